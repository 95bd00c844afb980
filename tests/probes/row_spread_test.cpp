#include "../../probes/row_spread.hpp"

#include "../../probes/mixing.hpp"
#include "by_hand.hpp"

namespace tsdiag::test {
namespace {

Attention event_of(const AttentionOperator& op, const Tensor& input) {
    return {.op = op, .input = input, .residual = input};
}

using probe::RowSpread;

/// What products in float32 may change; see probe::allowed_rounding.
constexpr Tolerance guarded{.relative = probe::allowed_rounding, .reason = "products in float32"};

/// A kind of logits, of n tokens.
struct Kind {
    const char* name;
    double size = 1;   ///< of drawn logits
    double sink = 0;   ///< added to those of token 1
    bool hot = false;  ///< row i attends to token 3 i alone
    bool causal = false;
};
std::ostream& operator<<(std::ostream& out, const Kind& kind) { return out << kind.name; }

class RowSpreads : public testing::TestWithParam<Kind> {
  protected:
    /// Softmax of the logits, rounded to float32.
    static Matrix attention(Index n, std::uint64_t seed) {
        const Kind& kind = GetParam();
        Matrix s = gaussian(n, n, seed);
        for (Index i = 0; i < n; ++i)
            for (Index j = 0; j < n; ++j) {
                s(i, j) = kind.hot ? (j == 3 * i % n ? 0.0 : -1e9) : kind.size * s(i, j);
                if (j == 1) s(i, j) += kind.sink;
            }
        Matrix p = naive::softmax(s, kind.causal);
        for (double& e : p.a) e = double(float(e));
        return p;
    }

    struct Expected {
        double spread = 0, moved = 0;
    };
    /// In double, of X centred: for rows that sum to 1 that changes nothing.
    static Expected expected(const Matrix& p, const Matrix& x, const std::vector<double>& a) {
        const Matrix centred = naive::centred(x), z = naive::product(p, centred);
        Expected out;
        for (Index i = 0; i < p.rows; ++i)
            for (Index j = 0; j < p.cols; ++j)
                for (Index c = 0; c < x.cols; ++c) {
                    const double part = p(i, j) * (centred(j, c) - z(i, c));
                    out.spread += a[std::size_t(i)] * part * part;
                }
        out.moved = squared(naive::centred(z));
        return out;
    }
};

TEST_P(RowSpreads, EqualThoseInDouble) {
    // By G = X X^T and by X; as drawn, with a common part, and with one token far from the others.
    for (const auto& [n, f] : {std::pair<Index, Index>{70, 40}, {90, 9}, {5, 4}})
        for (const double common : {0.0, 100.0})
            for (const double outlier : {1.0, 1000.0}) {
                Matrix x = gaussian(n, f, 7, common);
                for (Index c = 0; c < f; ++c) x(2, c) *= outlier;
                const std::vector<Matrix> heads = {attention(n, 1), attention(n, 2)};
                const auto op = std::make_shared<Made>(heads, true, Type::f32);
                op->declared.row_stochastic = true;
                op->declared.causal = GetParam().causal;
                ASSERT_TRUE(RowSpread::fits(*op));
                const Tensor input = tensor(x);
                const Attention event = event_of(*op, input);
                const Tensor sums = GetParam().causal ? Tensor() : probe::column_sums(event);
                const RowSpread spread(*op, tensor(x), sums);
                std::vector<double> weights(std::size_t(2 * n));
                Rng(5).fill_uniform(weights, 0, 1);
                const std::vector<RowSpread::Sum> found = spread.sums(*op, weights);
                const auto moved =
                    GetParam().causal ? std::vector<std::optional<Wide>>(2) : spread.moved();
                for (std::size_t k = 0; k < 2; ++k) {
                    const auto own = weights.begin() + std::ptrdiff_t(k) * n;
                    const Expected right = expected(heads[k], x, {own, own + n});
                    // What is left of a saturated row is its rounding to float32.
                    const double least = 1e-15 * double(found[k].gross);
                    EXPECT_NEAR(double(found[k].value), right.spread,
                                guarded.relative * right.spread + least)
                        << n << " x " << f << ' ' << common << ' ' << outlier;
                    if (!GetParam().causal && std::string_view(GetParam().name) == "drawn") {
                        EXPECT_TRUE(moved[k]);
                    }
                    if (moved[k]) {
                        EXPECT_CLOSE(double(*moved[k]), right.moved, guarded)
                            << n << " x " << f << ' ' << common << ' ' << outlier;
                    }
                }
            }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, RowSpreads,
    testing::Values(Kind{.name = "drawn"}, Kind{.name = "uniform", .size = 0},
                    Kind{.name = "nearly_uniform", .size = 1e-3}, Kind{.name = "sharp", .size = 8},
                    Kind{.name = "saturated", .size = 60}, Kind{.name = "one_hot", .hot = true},
                    Kind{.name = "sink", .sink = 9}, Kind{.name = "strong_sink", .sink = 25},
                    Kind{.name = "causal", .causal = true},
                    Kind{.name = "sharp_causal", .size = 8, .causal = true}),
    [](const auto& test) { return test.param.name; });

/// Half of the rows attend to a token far from the others alone, the rest not at all: the mean row
/// holds it, and so does the rounding of their products.
TEST(RowSpreadOf, RowsBesideAnOutlierInTheMean) {
    const Index n = 600, f = 64;
    Matrix x = gaussian(n, f, 3), p(n, n);
    for (Index c = 0; c < f; ++c) x(0, c) *= 4096;
    for (Index i = 0; i < n; ++i) {
        p(i, 0) = i % 2 == 0 ? 1 : 0;
        p(i, 1) = p(i, 2) = i % 2 == 0 ? 0 : 0.5;
    }
    Made op({p}, true, Type::f32);
    op.declared.row_stochastic = true;
    const Tensor input = tensor(x);
    const Attention event = event_of(op, input);
    const RowSpread spread(op, input, probe::column_sums(event));
    double right = 0;
    for (Index c = 0; c < f; ++c) right += 0.125 * std::pow(x(1, c) - x(2, c), 2);
    auto weights = std::vector<double>(std::size_t(n));
    for (Index i = 1; i < n; i += 2) weights[std::size_t(i)] = 1;
    EXPECT_CLOSE(double(spread.sums(op, weights)[0].value), right * double(n / 2), guarded);
}

TEST(RowSpreadOf, HeadsOfOneGroupShareTheirTokens) {
    const Index n = 12;
    const std::vector<Matrix> heads = {random_attention(n, 1), random_attention(n, 2),
                                       random_attention(n, 3), random_attention(n, 4)};
    const std::vector<Matrix> x = {gaussian(n, 3, 5), gaussian(n, 3, 6)};
    const std::vector<double> ones(std::size_t(n), 1.0);
    const auto of = [&](const std::vector<Matrix>& p, const std::vector<Matrix>& tokens) {
        Made op(p, true, Type::f32);
        op.declared.row_stochastic = true;
        return RowSpread(op, tensor(tokens)).sums(op, ones);
    };
    const std::vector<RowSpread::Sum> together = of(heads, x);
    for (std::size_t k = 0; k < heads.size(); ++k)
        EXPECT_CLOSE(double(together[k].value), double(of({heads[k]}, {x[k / 2]})[0].value),
                     guarded);
}

TEST(RowSpreadOf, FitsOnlyStochasticRowsInFloat32) {
    Made op({random_attention(4, 1)}, true, Type::f32);
    EXPECT_FALSE(RowSpread::fits(op));
    op.declared.row_stochastic = true;
    EXPECT_TRUE(RowSpread::fits(op));
    Made wide({random_attention(4, 1)});
    wide.declared.row_stochastic = true;
    EXPECT_FALSE(RowSpread::fits(wide));
}

/// The same projections in float32 and in float64.
TEST(RowSpreadOf, JacobiansInFloat32AreThoseInFloat64) {
    const Index n = 40, d = 30, h = 2, w = 5;
    for (const bool causal : {false, true})
        for (const double logits : {1.0, 30.0})
            for (const double size : {1.0, 0x1p40, 0x1p-40}) {
                const Matrix x = gaussian(n, d, 1, 0.3);
                std::vector<double> values[2];
                for (const Type type : {Type::f32, Type::f64}) {
                    Projections p;
                    p.q = tensor({gaussian(n, w, 2), gaussian(n, w, 3)}, Type::f32);
                    p.k = tensor({gaussian(n, w, 4), gaussian(n, w, 5)}, Type::f32);
                    p.q = cast(p.q, type), p.k = cast(p.k, type);
                    p.q_raw = p.q, p.k_raw = p.k;
                    p.scale = logits / std::sqrt(double(w));
                    AttentionInput input{.q = p.q, .k = p.k, .scale = p.scale, .causal = causal};
                    const std::shared_ptr<AttentionOperator> op =
                        attention("softmax").make(std::move(input));
                    const Tensor tokens = cast(scale(tensor(x, Type::f32), size), type);
                    const Layer layer{.op = op, .input = tokens, .projections = &p};
                    const Table jacobians = measure("projection_jacobians", layer);
                    const Table mixed = measure("mixing", layer);
                    for (Index k = 0; k < h; ++k) {
                        auto& list = values[type == Type::f64];
                        list.push_back(value(jacobians, head(k), "jac_q_fro"));
                        list.push_back(value(jacobians, head(k), "jac_k_fro"));
                        list.push_back(value(mixed, head(k), "mu2"));
                    }
                }
                // Logits of up to 100 in float32 move an entry of P by some 100 roundings.
                EXPECT_ALL_CLOSE(values[0], values[1],
                                 (Tolerance{.relative = 3e-5 * logits, .reason = "P in float32"}));
            }
}

}  // namespace
}  // namespace tsdiag::test
