#include <cmath>

#include "device_case.hpp"

/// Rows of P of every attention on a device, in blocks that do not divide n, and their products,
/// against the CPU's.
namespace tsdiag {
namespace {

using namespace test;

using EveryAttentionThere = OnADevice;

template <class T>
void expect_near(const std::vector<T>& found, const std::vector<T>& expected,
                 const std::string& what) {
    ASSERT_EQ(found.size(), expected.size()) << what;
    // A few hundred roundings in double, and the errors of the functions.
    for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_NEAR(found[i], expected[i], 1e-11 * std::max<T>(1, std::abs(expected[i])))
            << what << ", element " << i;
}

TEST_F(EveryAttentionThere, HasTheRowsOfTheCpu) {
    for (const Case& variant : cases())
        for (const bool causal : {false, true}) {
            if (causal && !variant.entry->facts.causal()) continue;
            const Index n = std::min<Index>(variant.n, 19), block = 7;
            AttentionInput in = drawn_input(2, n, 6, Type::f64, 17);
            in.causal = causal;
            in.options = variant.options;
            if (variant.n > n && variant.entry->name == "nystrom") continue;  // needs more tokens
            const auto host = variant.entry->make(in);
            in.q = moved(in.q), in.k = moved(in.k);
            const auto there = variant.entry->make(in);
            const std::string what = variant.title + (causal ? ", causal" : "");
            const Tensor v = gaussian({2, n, 3}, Type::f64, 5);
            std::vector<RowStatistics> rows[2];
            const auto product = [&](const AttentionOperator& p, const Tensor& x, int which) {
                const auto keep = [&](const RowBlock& b) {
                    rows[which].push_back(row_statistics(b));
                };
                return p.apply(x, block, keep).to_host<double>();
            };
            expect_near(product(*there, moved(v), 0), product(*host, v, 1), what + ": P V");
            ASSERT_EQ(rows[0].size(), rows[1].size()) << what;
            for (std::size_t b = 0; b < rows[0].size(); ++b) {
                const RowStatistics &x = rows[0][b], &y = rows[1][b];
                expect_near(x.sum, y.sum, what + ": sum");
                expect_near(x.squares, y.squares, what + ": squares");
                expect_near(x.jacobian, y.jacobian, what + ": Jacobian");
                expect_near(x.jacobian_max, y.jacobian_max, what + ": its largest entry");
                expect_near(x.window, y.window, what + ": windows");
            }
            expect_near(there->apply_transpose(moved(v), block).to_host<double>(),
                        host->apply_transpose(v, block).to_host<double>(), what + ": P^T V");
        }
}

}  // namespace
}  // namespace tsdiag
