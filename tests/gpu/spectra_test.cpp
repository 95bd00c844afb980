#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

#include "device_case.hpp"
#include "tsdiag/error.hpp"

/// |lambda_2| and delta on a device against the CPU's, and the bytes that they copy to the host.
namespace tsdiag {
namespace {

using namespace test;

using Spectra = OnADevice;

void expect_same(const std::vector<Estimate>& found, const std::vector<Estimate>& expected,
                 const std::string& what) {
    ASSERT_EQ(found.size(), expected.size()) << what;
    for (std::size_t k = 0; k < found.size(); ++k) {
        // Rounding of cuBLAS decides borderline cases.
        if (gpu::emulated) {
            EXPECT_EQ(found[k].converged, expected[k].converged) << what;
        }
        // The guarantee of both where they converged; below 1e-9 everything is rounding of P.
        if (found[k].converged && expected[k].converged) {
            EXPECT_NEAR(found[k].value, expected[k].value, 1e-6 * expected[k].value + 1e-9)
                << what << " by " << found[k].method << " and " << expected[k].method;
        }
    }
}

TEST_F(Spectra, OfEveryAttentionAreThoseOfTheCpu) {
    std::set<std::string_view> seen;  // with its first options: the routes are the same
    for (const Case& variant : cases()) {
        const std::string_view name = variant.entry->name;
        if (!seen.insert(name).second) continue;
        for (const bool causal : {false, true}) {
            if (causal && name != "softmax" && name != "linear") continue;
            const bool fits_few = name != "nystrom";
            const Index n = fits_few ? std::min<Index>(variant.n, 7) : variant.n;
            AttentionInput in = drawn_input(1, n, 6, Type::f64, 17);
            in.causal = causal;
            in.options = variant.options;
            const auto host = variant.entry->make(in);
            in.q = moved(in.q), in.k = moved(in.k);
            const auto there = variant.entry->make(in);
            const std::string what = variant.title + (causal ? " causal" : "");
            expect_same(second_eigenvalue(*there), second_eigenvalue(*host), what + " lambda_2");
            expect_same(centred_norm(*there), centred_norm(*host), what + " delta");
        }
    }
}

TEST_F(Spectra, OfAGivenDefectiveHeadGoToTheHost) {
    // One Jordan block, whose powers grow beyond its eigenvalue: squaring does not converge.
    const Index n = 40;
    naive::Matrix p(n, n);
    for (Index i = 0; i < n; ++i) p(i, i) = p(i, std::min(i + 1, n - 1)) = 0.5;
    p(n - 1, n - 1) = 1;
    const Estimate found =
        second_eigenvalue(*given_attention(moved(one_head(p)), false, "")).front();
    EXPECT_EQ(found.method, "diagonal");
    EXPECT_NEAR(found.value, 0.5, 1e-15);
}

TEST_F(Spectra, CopyNumbersAndNotP) {
    constexpr Index n = 48, heads = 1;
    for (const bool causal : {false, true}) {
        AttentionInput in = drawn_input(heads, n, 6, Type::f32, 3);
        in.q = moved(in.q), in.k = moved(in.k);
        in.causal = causal;
        const auto p = attention("softmax").make(in);
        p->matrix();
        const std::size_t before = gpu::bytes_to_host();
        second_eigenvalue(*p);
        centred_norm(*p);
        const std::size_t copied = gpu::bytes_to_host() - before;
        // Ten numbers a row (the fields of its statistics), and the norm and trace of each of at
        // most 44 powers, for both.
        EXPECT_LE(copied, std::size_t(heads) * 8 * (13 * std::size_t(n) + 2 * 2 * 48)) << causal;
        EXPECT_LT(copied, std::size_t(heads * n * n) * 4) << causal;
    }
}

/// Leaves that many bytes of an emulated device.
class MemoryLeft {
  public:
    explicit MemoryLeft(std::size_t bytes) {
        setenv("TSDIAG_EMULATED_TAKEN", std::to_string(gpu::free_bytes() - bytes).c_str(), 1);
    }
    ~MemoryLeft() { unsetenv("TSDIAG_EMULATED_TAKEN"); }
};

class FullDevice : public testing::Test {
    void SetUp() override {
        if (!gpu::emulated) GTEST_SKIP() << "a device is not filled";
    }
};

TEST_F(FullDevice, HalvesBlocksAndSeesEachRowOnce) {
    constexpr Index n = 20;
    AttentionInput in = drawn_input(2, n, 6, Type::f64, 3);
    const Tensor v = gaussian({2, n, 3}, Type::f64, 4);
    const Tensor expected = attention("softmax").make(in)->apply(v, n);
    in.q = moved(in.q), in.k = moved(in.k);
    const Tensor there = moved(v);
    const auto p = attention("softmax").make(in);
    p->keep_rows(true);
    Index seen = 0, blocks = 0;
    const auto count = [&](const RowBlock& rows) {
        EXPECT_EQ(rows.first, seen);
        seen += rows.p.rows();
        ++blocks;
    };
    Tensor found;
    {
        const MemoryLeft half(8 * 2 * n * (n / 2 + 3) + 600);
        found = p->apply(there, n, count);
    }
    EXPECT_EQ(seen, n);
    EXPECT_GT(blocks, 1);
    const std::vector<double> a = found.to_host<double>(), b = expected.to_host<double>();
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-14);  // rounding
    const MemoryLeft nothing(40);
    try {
        p->apply(there, n, count);
        FAIL() << "nothing was thrown";
    } catch (const OutOfMemory& error) {
        EXPECT_NE(std::string(error.what()).find("bytes were requested"), std::string::npos);
    }
}

TEST_F(FullDevice, TakesAsManyHeadsAtOnceAsFit) {
    constexpr Index n = 9, heads = 4;
    AttentionInput in = drawn_input(heads, n, 6, Type::f64, 3);
    const auto expected = second_eigenvalue(*attention("softmax").make(in));
    in.q = moved(in.q), in.k = moved(in.k);
    const auto p = attention("softmax").make(in);
    p->matrix();
    {
        const MemoryLeft one_head(5 * 8 * n * n + 1000);
        const auto found = second_eigenvalue(*p);
        for (std::size_t k = 0; k < heads; ++k) {
            EXPECT_EQ(found[k].method, "squaring");
            EXPECT_NEAR(found[k].value, expected[k].value, 1e-6 * expected[k].value);
        }
    }
}

TEST_F(FullDevice, MakesPByBlocksWhereItDoesNotFit) {
    constexpr Index n = 80;
    AttentionInput in = drawn_input(1, n, 6, Type::f64, 3);
    const double expected = second_eigenvalue(*attention("softmax").make(in)).front().value;
    in.q = moved(in.q), in.k = moved(in.k);
    const auto p = attention("softmax").make(in);
    const MemoryLeft no_matrix(8 * n * n - 8);
    const Estimate found = second_eigenvalue(*p).front();
    EXPECT_EQ(found.method, "arnoldi");
    // With as many vectors as fit into memory.
    EXPECT_LE(found.low.value_or(found.value), expected * (1 + 1e-6));
    EXPECT_GE(found.high.value_or(found.value), expected * (1 - 1e-6));
}

TEST_F(Spectra, OfAHeadThatIsNotFiniteAreRefused) {
    AttentionInput in = drawn_input(1, 5, 2, Type::f64, 3);
    std::vector<double> q = in.q.to_host<double>();
    q[4] = std::nan("");
    in.q = moved(Tensor::from_host(cpu(), in.q.shape(), std::span<const double>(q), Type::f64));
    in.k = moved(in.k);
    const auto op = attention("softmax").make(in);
    EXPECT_THROW(second_eigenvalue(*op), NonFiniteError);
    EXPECT_THROW(centred_norm(*op), NonFiniteError);
}

}  // namespace
}  // namespace tsdiag
