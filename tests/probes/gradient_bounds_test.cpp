#include "by_hand.hpp"
#include "tsdiag/gradient.hpp"

/// max |dL/dS| and its bounds: extremal cases, and gradients by differentiating S itself.
namespace tsdiag::test {
namespace {

/// One head of the attention of that name, and L = <u, norm(P v)>.
struct OneHead {
    Layer layer;
    Projections projections;
    OneHead(std::string_view name, const Matrix& q, const Matrix& k, const Matrix& v,
            const Matrix& u, bool causal = false, AttentionOptions options = {}) {
        AttentionInput in;
        in.q = projections.q = projections.q_raw = tensor(q);
        in.k = projections.k = projections.k_raw = tensor(k);
        in.causal = causal;
        in.options = std::move(options);
        layer.op = attention(name).make(in);
        layer.v = tensor(v);
        layer.output = tensor(u);
        layer.projections = &projections;
    }
    OneHead(const OneHead&) = delete;
    Table table() const { return measure("gradient_bounds", layer); }
};

Matrix column(std::vector<double> values) {
    Matrix m(Index(values.size()), 1);
    m.a = std::move(values);
    return m;
}

/// Two tokens, S = 0, V = (1, -1): the sharp bound is attained, and the paper's, which assumes many
/// tokens, is exceeded.
TEST(GradientBounds, OfSoftmaxIsAttained) {
    const OneHead s("softmax", column({0, 0}), column({0, 0}), column({1, -1}), column({1, 0}));
    const Table t = s.table();
    EXPECT_CLOSE(value(t, head(0), "ds_max"), 0.5, rounding(4));
    EXPECT_EQ(value(t, head(0), "c1"), 1);
    EXPECT_EQ(value(t, head(0), "c2"), 1);
    EXPECT_EQ(value(t, head(0), "c3"), 0);
    EXPECT_CLOSE(value(t, head(0), "ds_sharp"), 0.5, rounding(4));
    EXPECT_CLOSE(value(t, head(0), "ds_bound"), std::sqrt(2) / 4, rounding(4));
}

/// Two tokens that see two of nine keys, seven of a memory: V has nine rows, and so has the norm
/// sqrt(9) c2 at most in [DEVIL] (42).  The square root of the tokens would be below ds_max.
TEST(GradientBounds, CountTheKeysOfAMemory) {
    const Index n = 2, m = 7;
    Matrix p(n, m + n), v(m + n, 1);
    for (Index i = 0; i < n; ++i) p(i, 0) = p(i, 1) = 0.5;
    v(0, 0) = 1;
    v(1, 0) = -1;
    Layer layer;
    layer.op = std::make_shared<Made>(std::vector{p});
    layer.v = tensor(v);
    layer.output = tensor(column({1, 0}));
    const Table t = measure("gradient_bounds", layer);
    EXPECT_CLOSE(value(t, head(0), "ds_max"), 0.5, rounding(4));
    EXPECT_CLOSE(value(t, head(0), "ds_sharp"), 0.5, rounding(4));
    EXPECT_CLOSE(value(t, head(0), "ds_bound"), 0.75, rounding(4));
}

/// All logits c3, V = (1, -1, -1, ...): |dL/dS_11| = 2 (n - 1) / (n^2 c3).
TEST(GradientBounds, OfLinearAttentionIsAttained) {
    const Index n = 7;
    const double c3 = 0.25;
    Matrix v(n, 1, -1), u(n, 1);
    v(0, 0) = u(0, 0) = 1;
    const OneHead s("linear", Matrix(n, 1, 0.5), Matrix(n, 1, 0.5), v, u, false, {{"map", "relu"}});
    const Table t = s.table();
    EXPECT_CLOSE(value(t, head(0), "c3"), c3, rounding(4));
    EXPECT_CLOSE(value(t, head(0), "ds_max"), 2.0 * (n - 1) / (n * n * c3), rounding(16));
    EXPECT_CLOSE(value(t, head(0), "ds_sharp"), 2.0 * (n - 1) / (n * n * c3), rounding(16));
    EXPECT_CLOSE(value(t, head(0), "ds_bound"), std::sqrt(7.0) / (4 * c3), rounding(16));
}

/// Row 1 of a causal P sees two tokens, the worst case.
TEST(GradientBounds, OfCausalLinearAttentionIsAttainedInTheSecondRow) {
    Matrix v(5, 1, -1), u(5, 1);
    v(0, 0) = u(1, 0) = 1;
    const OneHead s("linear", Matrix(5, 1, 1), Matrix(5, 1, 1), v, u, true, {{"map", "relu"}});
    const Table t = s.table();
    EXPECT_CLOSE(value(t, head(0), "ds_max"), 0.5, rounding(8));
    EXPECT_CLOSE(value(t, head(0), "ds_sharp"), 0.5, rounding(8));
}

/// S = 0: the norm divides by sqrt(eps), and dL/dS_ij = <g_i, v_j> / sqrt(eps).
TEST(GradientBounds, OfNormAttentionIsAttained) {
    const double eps = 1e-4;
    OneHead s("norm_attention", Matrix(3, 2, -1), Matrix(3, 2, -1), Matrix(3, 2, 0.5),
              Matrix(3, 2, 1 / std::sqrt(eps)), false, {{"map", "relu"}});
    s.layer.norm = OutputNorm::rms;
    s.layer.norm_eps = eps;
    s.layer.normed = tensor(Matrix(3, 2, 1));
    const Table t = s.table();
    const double c12 = std::sqrt(2) * std::sqrt(0.5);
    EXPECT_CLOSE(value(t, head(0), "ds_max"), 100, rounding(16));
    EXPECT_CLOSE(value(t, head(0), "ds_sharp"), c12 / std::sqrt(eps), rounding(16));
    EXPECT_CLOSE(value(t, head(0), "ds_bound"), 1.5 * 2 * c12 / std::sqrt(eps), rounding(16));
    EXPECT_EQ(value(t, head(0), "c3"), 0);
}

/// dL/dS of softmax, by differentiating S; and the sharp bound holds.
TEST(GradientBounds, DsMaxIsThatOfTheTape) {
    for (const bool causal : {false, true}) {
        const Index n = 9;
        OneHead s("softmax", gaussian(n, 3, 1), gaussian(n, 3, 2), gaussian(n, 2, 3),
                  gaussian(n, 2, 4), causal);
        const Tensor logits = variable(matmul(s.projections.q, s.projections.k, Transpose::second));
        const Tensor o = matmul(softmax_rows(logits, s.layer.op->rows(0, n).visible), s.layer.v);
        const Tensor g = grad(o, s.layer.output, std::span(&logits, 1))[0];
        double largest = 0, least = INFINITY;
        for (const double x : g.to_host<double>()) largest = std::max(largest, std::abs(x));
        for (Index i = 0; i < n; ++i)
            for (Index j = 0; j < (causal ? i + 1 : n); ++j)
                least = std::min(
                    least, std::abs(logits.row_range(i, 1).col_range(j, 1).detached().item()));
        const Table t = s.table();
        EXPECT_CLOSE(value(t, head(0), "ds_max"), largest, rounding(64));
        EXPECT_CLOSE(value(t, head(0), "c3"), least, rounding(64));
        EXPECT_LE(largest, value(t, head(0), "ds_sharp"));
    }
}

/// dL/dS where P is n x (m + n), by differentiating a bias of S; and the bounds hold.
TEST(GradientBounds, HoldWithAMemory) {
    const Index n = 6, m = 5;
    AttentionInput in;
    in.q = tensor(gaussian(n, 4, 1));
    in.k = tensor(gaussian(m + n, 4, 2));
    in.causal = true;
    Layer layer;
    layer.op = attention("transformer_xl").make(in);
    layer.v = tensor(gaussian(m + n, 2, 3));
    layer.output = tensor(gaussian(n, 2, 4));
    const Tensor bias = in.bias = variable(tensor(Matrix(n, m + n)));
    const Tensor o = attention("transformer_xl").make(in)->apply(layer.v, n);
    const Tensor g = grad(o, layer.output, std::span(&bias, 1))[0];
    double largest = 0;
    for (const double x : g.to_host<double>()) largest = std::max(largest, std::abs(x));
    const Table t = measure("gradient_bounds", layer);
    const double sharp = value(t, head(0), "ds_sharp"), bound = value(t, head(0), "ds_bound");
    EXPECT_CLOSE(value(t, head(0), "ds_max"), largest, rounding(64));
    EXPECT_LE(largest, sharp);
    EXPECT_LE(sharp, bound);
    EXPECT_CLOSE(bound, std::sqrt(m + n) / 2 * sharp, rounding(4));
}

TEST(GradientBounds, OfSharedValuesBelongToTheGroup) {
    Layer layer;
    layer.op = std::make_shared<Made>(std::vector{uniform(3), uniform(3)});
    layer.v = tensor(Matrix(3, 1, 2));
    layer.output = tensor({Matrix(3, 1, 1), Matrix(3, 1, 5)});
    const Table t = measure("gradient_bounds", layer);
    EXPECT_EQ(value(t, head(0), "c2"), 2);
    EXPECT_EQ(value(t, head(1), "c2"), 2);
    EXPECT_EQ(value(t, head(1), "c1"), 5);
    EXPECT_EQ(value(t, head(), "c1"), 3);
    EXPECT_EQ(reason(t, head(0), "c3"), "no projections");
}

TEST(GradientBounds, SayWhatHasNone) {
    const Matrix x = gaussian(8, 2, 1);
    const OneHead polynomial("polynomial", x, x, x, x);
    EXPECT_EQ(reason(polynomial.table(), head(0), "ds_bound"),
              "no bound is known for this attention");
    value(polynomial.table(), head(0), "ds_max");
    const OneHead linformer("linformer", x, x, x, x);
    EXPECT_EQ(reason(linformer.table(), head(0), "ds_max"),
              "P is a softmax of n x k logits times F^T");
    const OneHead elu("linear", x, x, x, x, false, {{"map", "elu"}});
    EXPECT_EQ(reason(elu.table(), head(0), "ds_sharp"), "logits of both signs have no bound");
    const OneHead alibi("softmax", x, x, x, x, false, {{"alibi", "1"}});
    EXPECT_EQ(reason(alibi.table(), head(0), "c3"), "the logits are not scale q k^T only");
}

}  // namespace
}  // namespace tsdiag::test
