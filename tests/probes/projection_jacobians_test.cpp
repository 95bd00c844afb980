#include "by_hand.hpp"

namespace tsdiag::test {
namespace {

constexpr double step = 1e-4;
/// Truncation step^4 (1e-16) times fifth derivatives up to 1e6; rounding eps / step.
constexpr Tolerance differences{.relative = 1e-9, .reason = "differences of fourth order"};

/// P = S^2, or S^2 over its row sums: slopes that are not P.
class Squares final : public AttentionOperator {
  public:
    Squares(const Projections& p, bool divided)
        : s_(matmul(p.q, p.k, Transpose::second, p.scale)), divided_(divided) {}
    RowBlock rows(Index first, Index count) const override {
        const Tensor s = contiguous(s_.row_range(first, count)), square = map(Unary::square, s);
        const Tensor z = row_sum(square);
        return {.first = first,
                .p = divided_ ? divide(square, z) : square,
                .slope = divided_ ? divide(scale(s, 2), z) : scale(s, 2),
                .divided = divided_,
                .visible = {}};
    }
    Index heads() const override { return s_.batch(); }
    Index tokens() const override { return s_.rows(); }
    Type type() const override { return s_.type(); }
    const Backend& backend() const override { return cpu(); }

  private:
    Tensor s_;
    bool divided_;
};

/// What lies between the input and P.
struct Case {
    const char* name;
    Index n = 5, d = 6, heads = 2, kv_heads = 2, w = 4;
    Index rotated = 0;  ///< columns
    bool interleaved = false;
    enum { none, rms, layer } norm = none;
    bool causal = false;
    enum { softmax, squares, divided_squares } activation = softmax;
    std::vector<double> position = {};
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

/// Weights of a case, and P as a function of them: ops only, nothing of the probe.
struct Setting {
    Case c;
    Matrix x, wq, wk, gq, gk, bk;
    std::vector<double> position, frequency;

    explicit Setting(const Case& given) : c(given) {
        x = gaussian(c.n, c.d, 1, 0.3);
        wq = gaussian(c.heads * c.w, c.d, 2);
        wk = gaussian(c.kv_heads * c.w, c.d, 3);
        gq = gaussian(1, c.w, 4, 1);
        gk = gaussian(1, c.w, 5, 1);
        bk = gaussian(1, c.w, 6);
        for (double& v : wq.a) v *= 0.5;
        for (Index i = 0; i < c.n; ++i) position.push_back(double(i));
        if (!c.position.empty()) position = c.position;
        for (Index p = 0; p < c.rotated / 2; ++p) frequency.push_back(1.0 / double(1 + 2 * p));
    }

    Tensor norm(const Tensor& raw, const Matrix& gain, const Tensor& bias) const {
        if (c.norm == Case::rms) return rms_norm(raw, tensor(gain), 1e-2);
        if (c.norm == Case::layer) return layer_norm(raw, tensor(gain), bias, 1e-2);
        return raw;
    }

    Projections project(const Matrix& q_weight, const Matrix& k_weight) const {
        Projections p;
        p.q_raw =
            contiguous(matmul(tensor(x), tensor(q_weight), Transpose::second).split_heads(c.heads));
        p.k_raw = contiguous(
            matmul(tensor(x), tensor(k_weight), Transpose::second).split_heads(c.kv_heads));
        p.q = norm(p.q_raw, gq, {});
        p.k = norm(p.k_raw, gk, tensor(bk));
        if (c.rotated > 0) {
            p.q = rotate(p.q, position, frequency, c.interleaved);
            p.k = rotate(p.k, position, frequency, c.interleaved);
        }
        if (c.norm != Case::none) {
            p.q_norm = tensor(gq);
            p.k_norm = tensor(gk);
        }
        p.norm_is_layer = c.norm == Case::layer;
        p.norm_eps = 1e-2;
        p.scale = 0.7;
        p.position = position;
        p.frequency = frequency;
        p.interleaved = c.interleaved;
        return p;
    }

    std::unique_ptr<AttentionOperator> attend(const Projections& p) const {
        if (c.activation != Case::softmax)
            return std::make_unique<Squares>(p, c.activation == Case::divided_squares);
        AttentionInput input;
        input.q = p.q;
        input.k = p.k;
        input.scale = p.scale;
        input.causal = c.causal;
        return attention("softmax").make(std::move(input));
    }

    /// P of head k when entry (row, col) of the query or key weight is moved by `step`.
    std::vector<double> moved(bool query, Index k, Index row, Index col, double step) const {
        Matrix q = wq, key = wk;
        (query ? q : key)(row, col) += step;
        return attend(project(q, key))->matrix().batch_range(k, 1).to_host<double>();
    }

    /// |dP/dW|_F of a head by differences of fourth order in the rows of W that belong to it.
    double difference(bool query, Index k) const {
        const Index group = c.heads / c.kv_heads, first = (query ? k : k / group) * c.w;
        double total = 0;
        for (Index r = first; r < first + c.w; ++r)
            for (Index col = 0; col < c.d; ++col) {
                std::vector<double> slope(static_cast<std::size_t>(c.n * c.n), 0.0);
                for (const auto& [at, weight] :
                     {std::pair{-2.0, 1.0}, {-1.0, -8.0}, {1.0, 8.0}, {2.0, -1.0}}) {
                    const std::vector<double> p = moved(query, k, r, col, at * step);
                    for (std::size_t i = 0; i < p.size(); ++i)
                        slope[i] += weight * p[i] / (12 * step);
                }
                for (const double x : slope) total += x * x;
            }
        return std::sqrt(total);
    }

    Table measured(ProbeSettings settings = {}) const {
        const Projections p = project(wq, wk);
        return measure("projection_jacobians",
                       {.op = attend(p), .input = tensor(x), .projections = &p}, settings);
    }
};

class ProjectionJacobians : public testing::TestWithParam<Case> {};

TEST_P(ProjectionJacobians, AgreeWithDifferences) {
    const Setting setting(GetParam());
    const Table t = setting.measured();
    for (Index k = 0; k < setting.c.heads; ++k) {
        EXPECT_CLOSE(value(t, head(k), "jac_q_fro"), setting.difference(true, k), differences)
            << "head " << k;
        EXPECT_CLOSE(value(t, head(k), "jac_k_fro"), setting.difference(false, k), differences)
            << "head " << k;
    }
}

INSTANTIATE_TEST_SUITE_P(
    Cases, ProjectionJacobians,
    testing::Values(
        Case{.name = "plain"}, Case{.name = "two_tokens", .n = 2},
        Case{.name = "causal", .causal = true},
        Case{.name = "grouped", .heads = 4, .kv_heads = 2, .causal = true},
        Case{.name = "more_tokens_than_features", .n = 9, .d = 3},
        Case{.name = "rotated", .rotated = 4, .causal = true},
        Case{.name = "half_rotated", .rotated = 2},
        Case{.name = "interleaved", .heads = 4, .rotated = 4, .interleaved = true, .causal = true},
        Case{.name = "positions_with_gaps", .rotated = 4, .position = {0, 1, 4, 5, 9}},
        Case{.name = "rotated_more_tokens", .n = 9, .d = 3, .rotated = 2},
        Case{.name = "rms", .norm = Case::rms}, Case{.name = "layer_norm", .norm = Case::layer},
        Case{.name = "rms_rotated", .kv_heads = 1, .rotated = 4, .norm = Case::rms, .causal = true},
        Case{.name = "rms_half_interleaved",
             .w = 6,
             .rotated = 4,
             .interleaved = true,
             .norm = Case::rms},
        Case{.name = "layer_norm_rotated", .heads = 4, .rotated = 4, .norm = Case::layer},
        Case{.name = "rms_more_tokens", .n = 9, .d = 3, .rotated = 2, .norm = Case::rms},
        Case{.name = "squares", .rotated = 4, .activation = Case::squares},
        Case{.name = "divided_squares", .rotated = 2, .activation = Case::divided_squares},
        Case{.name = "rms_squares", .norm = Case::rms, .activation = Case::squares},
        Case{.name = "layer_norm_divided_squares",
             .rotated = 4,
             .norm = Case::layer,
             .activation = Case::divided_squares}),
    [](const auto& test) { return test.param.name; });

TEST(ProjectionJacobiansOf, LayersAreMeansOfHeads) {
    const Table t = Setting({.name = "", .rotated = 2, .causal = true}).measured();
    for (const char* metric : {"jac_q_fro", "jac_k_fro"})
        EXPECT_CLOSE(value(t, head(), metric),
                     (value(t, head(0), metric) + value(t, head(1), metric)) / 2, rounding(4));
}

TEST(ProjectionJacobiansOf, OneTokenIsZero) {
    const Table t = Setting({.name = "", .n = 1}).measured();
    EXPECT_EQ(value(t, head(0), "jac_q_fro"), 0);
    EXPECT_EQ(value(t, head(0), "jac_k_fro"), 0);
}

TEST(ProjectionJacobiansOf, SomeRowsGiveAnEstimateWithItsError) {
    const Setting setting({.name = "", .n = 200, .rotated = 4, .causal = true});
    ProbeSettings settings;
    settings.largest_work = 1e6;
    const Table all = setting.measured(), some = setting.measured(settings);
    const auto row = *some.find(head(0), "jac_k_fro");
    ASSERT_TRUE(row.value && row.low && row.high);
    EXPECT_LT(*row.low, *row.value);
    EXPECT_NE(row.note.find("of 200 rows, standard error"), std::string::npos) << row.note;
    const double exact = value(all, head(0), "jac_k_fro");
    EXPECT_LT(*row.low, exact);
    EXPECT_GT(*row.high, exact);
    EXPECT_EQ(all.find(head(0), "jac_k_fro")->note, "");
}

TEST(ProjectionJacobiansOf, ALostDifferenceIsAnInterval) {
    Setting setting({.name = "", .n = 4});
    setting.x = Matrix(4, 6, 1.0);  // equal tokens: the rows of P do not move at all
    const auto row = *setting.measured().find(head(0), "jac_k_fro");
    if (row.value) {
        EXPECT_EQ(*row.value, 0);
    } else {
        EXPECT_EQ(*row.low, 0);
        EXPECT_LT(*row.high, 1e-6);
        EXPECT_EQ(row.note, "cancellation leaves few digits");
    }
}

TEST(ProjectionJacobiansOf, SaysWhyItIsUndefined) {
    const Layer traced{.op = std::make_shared<Made>(std::vector{uniform(3)}),
                       .input = tensor(gaussian(3, 2, 1))};
    EXPECT_EQ(reason(measure("projection_jacobians", traced), head(0), "jac_q_fro"),
              "no projections");
    const Projections p =
        Setting({.name = "", .n = 3}).project(gaussian(8, 6, 2), gaussian(8, 6, 3));
    const Layer given{.op = std::make_shared<Made>(std::vector{uniform(3)}, false),
                      .input = tensor(gaussian(3, 6, 1)),
                      .projections = &p};
    EXPECT_EQ(reason(measure("projection_jacobians", given), head(), "jac_k_fro"),
              "P given without its logits or its activation");
}

}  // namespace
}  // namespace tsdiag::test
