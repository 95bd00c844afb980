#include <cmath>

#include "by_hand.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/linalg.hpp"

namespace tsdiag::test {
namespace {

Layer stochastic_layer(std::vector<Matrix> heads, const Matrix& x, double a2 = 1) {
    auto op = std::make_shared<Made>(std::move(heads));
    op->declared.row_stochastic = true;
    return {.op = op, .input = tensor(x), .a2 = a2};
}

/// Symmetric, doubly stochastic: all values are known.
TEST(Spectrum, ALazyWalkHasItsKnownNumbers) {
    const double s = 0.5, a2 = 0.8;
    const Table t = measure("spectrum", stochastic_layer({lazy(8, s)}, gaussian(8, 3, 1, 1), a2));
    EXPECT_CLOSE(value(t, head(0), "lambda2_abs"), s, stopped_at(1e-9));
    EXPECT_CLOSE(value(t, head(0), "gap"), 1 - s, stopped_at(1e-9));
    EXPECT_CLOSE(value(t, head(0), "spectral_gap"), 1 - s * s, stopped_at(1e-9));
    EXPECT_CLOSE(value(t, head(0), "delta"), s, stopped_at(1e-9));
    EXPECT_CLOSE(value(t, head(0), "delta_pi"), s, stopped_at(1e-9));
    EXPECT_CLOSE(value(t, head(0), "dobrushin"), s, stopped_at(1e-9));
    const double estimate = a2 * (1 - s * s) / (1 + a2 * s * s);
    EXPECT_CLOSE(value(t, head(0), "est1"), estimate, stopped_at(1e-9));
    EXPECT_CLOSE(value(t, head(0), "est2"), estimate, stopped_at(1e-9));
    EXPECT_CLOSE(value(t, head(), "est2"), estimate, stopped_at(1e-9));
}

TEST(Spectrum, AgreesWithDenseSolvers) {
    const Index n = 9;
    const Matrix p = random_attention(n, 2), x = gaussian(n, 4, 3, 2);
    const Table t = measure("spectrum", stochastic_layer({p}, x));
    std::vector<double> moduli;
    for (const auto& z : eigenvalues(p.a, n)) moduli.push_back(std::abs(z));
    std::sort(moduli.rbegin(), moduli.rend());
    EXPECT_CLOSE(value(t, head(0), "lambda2_abs"), moduli[1], stopped_at(1e-8));
    const double delta = singular_values(naive::centred(p).a, n, n).front();
    EXPECT_CLOSE(value(t, head(0), "delta"), delta, stopped_at(1e-8));
    EXPECT_CLOSE(value(t, head(0), "dobrushin"), naive::dobrushin(p), rounding(81));
    const Matrix across = naive::mean_part(naive::product(p, naive::centred(x)));
    const double omega = naive::frobenius(across) / naive::frobenius(naive::mean_part(x));
    EXPECT_CLOSE(value(t, head(0), "est1"),
                 ((1 - omega) * (1 - omega) - delta * delta) / (1 + delta * delta),
                 stopped_at(1e-8));
}

TEST(Spectrum, LayersAverageTheIngredientsOfTheEstimates) {
    const double a2 = 0.6;
    const Table t = measure(
        "spectrum", stochastic_layer({lazy(6, 0.2), lazy(6, 0.9)}, gaussian(6, 3, 4, 1), a2));
    const double squares = (0.04 + 0.81) / 2;
    const double expected = a2 * (1 - squares) / (1 + a2 * squares);
    EXPECT_CLOSE(value(t, head(), "est1"), expected, stopped_at(1e-8));
    EXPECT_CLOSE(value(t, head(), "est2"), expected, stopped_at(1e-8));
    EXPECT_CLOSE(value(t, head(), "lambda2_abs"), 0.55, stopped_at(1e-8));
}

TEST(Spectrum, HeadsWithoutEst1AreNamedAndLeftOut) {
    Matrix sink(4, 4);  // every row attends to the first token alone
    for (Index i = 0; i < 4; ++i) sink(i, 0) = 1;
    const Matrix x(4, 1, {1, -1, 0.5, 0});  // its mean is 1/8: omega = 7
    const Table t = measure("spectrum", stochastic_layer({sink, uniform(4)}, x));
    EXPECT_EQ(reason(t, head(0), "est1"), "omega >= 1");
    EXPECT_CLOSE(value(t, head(1), "est1"), 1, stopped_at(1e-8));
    EXPECT_CLOSE(value(t, head(), "est1"), 1, stopped_at(1e-8));
    EXPECT_EQ(t.find(head(), "est1")->note, "undefined in head 0: omega >= 1");
}

TEST(Spectrum, TheEstimatesAreNotForPreNorm) {
    Layer layer = stochastic_layer({uniform(4)}, gaussian(4, 2, 5, 1));
    layer.pre_norm = true;
    const Table t = measure("spectrum", layer);
    for (const char* metric : {"est1", "est2"})
        for (const Index k : {0, -1}) EXPECT_EQ(reason(t, head(k), metric), "pre-norm");
    ProbeSettings settings;
    settings.metrics = {"est1"};
    EXPECT_EQ(reason(measure("spectrum", layer, settings), head(), "est1"), "pre-norm");
}

TEST(Spectrum, GapsNeedRowsThatSumToOne) {
    Matrix half = lazy(4, 0.5);
    for (double& v : half.a) v /= 2;
    const Layer layer{.op = std::make_shared<Made>(std::vector{half}),
                      .input = tensor(gaussian(4, 2, 6, 1))};
    const Table t = measure("spectrum", layer);
    for (const char* metric : {"spectral_gap", "gap", "est2", "delta_pi", "est1"})
        EXPECT_EQ(reason(t, head(0), metric), "rows do not sum to 1 (off by 5.0e-01)") << metric;
    EXPECT_CLOSE(value(t, head(0), "lambda2_abs"), 0.25, stopped_at(1e-8));
    EXPECT_CLOSE(value(t, head(0), "delta"), 0.25, stopped_at(1e-8));
}

TEST(Spectrum, OneTokenHasNoSecondEigenvalue) {
    const Table t = measure("spectrum", stochastic_layer({uniform(1)}, Matrix(1, 2, 1.0)));
    for (const char* metric : {"lambda2_abs", "spectral_gap", "gap", "est2"})
        EXPECT_EQ(reason(t, head(0), metric), "fewer than two tokens");
}

TEST(Spectrum, CausalHeadsHaveNoPositiveStationaryVector) {
    Layer layer = stochastic_layer({causal_uniform(5)}, gaussian(5, 2, 7, 3));
    std::dynamic_pointer_cast<Made>(layer.op)->declared.causal = true;
    const Table t = measure("spectrum", layer);
    EXPECT_NE(reason(t, head(0), "delta_pi"), "(defined)");
    EXPECT_CLOSE(value(t, head(0), "lambda2_abs"), 0.5, rounding(4));
    EXPECT_CLOSE(value(t, head(0), "dobrushin"), 0.8, rounding(16));  // first row against the last
}

TEST(Spectrum, DobrushinIsTheSameByBlocks) {
    const Index n = 300;  // blocks of at most 96 rows
    const Matrix x = gaussian(n, 2, 7, 8);
    Layer layer = stochastic_layer({random_attention(n, 8), random_attention(n, 9)}, x);
    const Table whole = measure("spectrum", layer);
    layer.memory = 1;
    const Table blocks = measure("spectrum", layer);
    for (Index h : {0, 1})
        EXPECT_EQ(value(blocks, head(h), "dobrushin"), value(whole, head(h), "dobrushin"));
}

TEST(Spectrum, DobrushinNeedsAFinitePByBlocksToo) {
    const Index n = 300;
    Matrix p = random_attention(n, 8);
    p(200, 7) = std::nan("");  // not of the first block
    Layer layer = stochastic_layer({p}, gaussian(n, 2, 7, 8));
    ProbeSettings settings;
    settings.metrics = {"dobrushin"};
    EXPECT_THROW(measure("spectrum", layer, settings), NonFiniteError);
    layer.memory = 1;
    EXPECT_THROW(measure("spectrum", layer, settings), NonFiniteError);
}

TEST(Spectrum, DobrushinOfLongInputsIsComputedWhenAskedForByName) {
    const Index n = 2049;
    Matrix p(n, n);
    for (Index i = 0; i < n; ++i) p(i, 0) = 1;
    const Layer layer{.op = std::make_shared<Made>(std::vector{p}, true, Type::f32),
                      .input = tensor(Matrix(n, 1, 1.0), Type::f32),
                      .block = n};
    ProbeSettings settings;
    settings.metrics = {"dobrushin"};
    EXPECT_EQ(reason(measure("spectrum", layer, settings), head(0), "dobrushin"),
              "more than 2048 tokens and not requested by name");
}

TEST(Spectrum, WritesDownHowItsNumbersWereFound) {
    Diagnostics diagnostics;
    ProbeSettings settings;
    settings.diagnostics = &diagnostics;
    measure("spectrum", stochastic_layer({lazy(5, 0.3), lazy(5, 0.4)}, gaussian(5, 2, 8, 1)),
            settings);
    Index lambda = 0, delta = 0, stationary = 0;
    for (const Diagnostics::Entry& e : diagnostics.entries) {
        EXPECT_FALSE(e.estimate.method.empty());
        EXPECT_EQ(e.at.stage, "attn");
        lambda += e.metric == "lambda2_abs";
        delta += e.metric == "delta";
        stationary += e.metric == "delta_pi";
    }
    EXPECT_EQ(lambda, 2);
    EXPECT_EQ(delta, 2);
    EXPECT_EQ(stationary, 2);
}

}  // namespace
}  // namespace tsdiag::test
