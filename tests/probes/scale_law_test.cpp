#include <algorithm>
#include <map>

#include "by_hand.hpp"

/// Scaling by a power of two: a metric of degree g is multiplied by 2^(g k), bit for bit, where the
/// result is a float64, and is undefined with its reason where it is not.
namespace tsdiag::test {
namespace {

/// The data scaled by 2^k.
enum class What { states, attention, gradients, values };

constexpr int no_law = -100;  ///< not homogeneous

/// Degrees in states, attention, gradients and values.
struct Degrees {
    int states, attention, gradients, values;
    int in(What what) const {
        const int all[] = {states, attention, gradients, values};
        return all[int(what)];
    }
};

/// Of every metric and curve.  Rows of a scaled P do not sum to 1: what needs it is undefined.
const std::map<std::string, Degrees>& degrees() {
    static const std::map<std::string, Degrees> all = {
        {"t_sim", {0, 0, 0, 0}},
        {"t_div", {0, 0, 0, 0}},
        {"t_cos", {0, 0, 0, 0}},
        {"fro", {1, 0, 0, 0}},
        {"stable_rank", {0, 0, 0, 0}},
        {"effective_rank", {0, 0, 0, 0}},
        {"xi1", {0, 0, 0, 0}},
        {"xi2", {0, 0, 0, 0}},
        {"xi_ratio", {0, 0, 0, 0}},
        {"r", {0, 0, 0, 0}},
        {"r_layer", {0, 0, 0, 0}},
        {"lambda2_abs", {0, 1, 0, 0}},
        {"lambda2_check", {0, 0, 0, 0}},
        {"spectral_gap", {0, 0, 0, 0}},
        {"gap", {0, 0, 0, 0}},
        {"delta", {0, 1, 0, 0}},
        {"omega", {0, 0, 0, 0}},
        {"mu1", {0, 1, 0, 0}},
        {"mu2", {0, 1, 0, 0}},
        {"est1", {0, 0, 0, 0}},
        {"est2", {0, 0, 0, 0}},
        {"est_mu", {0, no_law, 0, 0}},
        {"delta_pi", {0, 0, 0, 0}},
        {"dobrushin", {0, 1, 0, 0}},
        {"attn_fro", {0, 1, 0, 0}},
        {"jac_fro", {0, 1, 0, 0}},
        {"dp_ds_max", {0, 1, 0, 0}},
        {"jac_q_fro", {1, 1, 0, 0}},
        {"jac_k_fro", {1, 1, 0, 0}},
        {"entropy", {0, 0, 0, 0}},
        {"row_max", {0, 1, 0, 0}},
        {"neg_mass", {0, 0, 0, 0}},
        {"row_sum_dev", {0, no_law, 0, 0}},
        {"expert_load", {0, 0, 0, 0}},
        {"expert_unused", {0, 0, 0, 0}},
        {"expert_entropy", {0, 0, 0, 0}},
        {"routing_entropy", {0, 0, 0, 0}},
        {"routing_dropped", {0, 0, 0, 0}},
        {"local_auc", {0, 1, 0, 0}},
        {"local_acc", {0, 1, 0, 0}},
        {"local_acc_appendix", {0, no_law, 0, 0}},
        {"grad_norm", {0, 0, 1, 0}},
        {"ds_max", {0, 1, 1, 1}},
        {"c1", {0, 0, 1, 0}},
        {"c2", {0, 0, 0, 1}},
        {"c3", {0, 0, 0, 0}},
        {"ds_bound", {0, 0, 1, 1}},
        {"ds_sharp", {0, 0, 1, 1}},
    };
    return all;
}

/// Rows not divided by their sum; the slope is P.
class Undivided final : public AttentionOperator {
  public:
    explicit Undivided(Tensor p) : p_(std::move(p)) {}
    RowBlock rows(Index first, Index count) const override {
        const Tensor p = contiguous(p_.row_range(first, count));
        return {.first = first, .p = p, .slope = map(Unary::copy, p), .visible = {}};
    }
    Index heads() const override { return p_.batch(); }
    Index tokens() const override { return p_.rows(); }
    Type type() const override { return p_.type(); }
    const Backend& backend() const override { return cpu(); }

  private:
    Tensor p_;
};

/// Two samples of a layer with all kinds of data.
class Scaled {
  public:
    Scaled(Type type, What what, int exponent) : type_(type), what_(what), exponent_(exponent) {
        for (const std::uint64_t seed : {100, 200}) add_sample(seed);
    }
    Table run(const ProbeEntry& entry) const {
        Table table;
        const std::unique_ptr<Probe> probe = entry.make({});
        for (const Layer& layer : layers_) drive(*probe, entry.needs, layer, table);
        return table;
    }

  private:
    static constexpr Index n = 10, d = 6, w = 3;

    Tensor scaled(What what, const std::vector<Matrix>& heads) const {
        const Tensor x = tensor(heads, type_);
        return what == what_ ? scale(x, std::ldexp(1.0, exponent_)) : x;
    }
    Tensor state(std::uint64_t seed) const {
        return scaled(What::states, {gaussian(n, d, seed, 0.4)});
    }
    void add_sample(std::uint64_t seed) {
        Layer& l = layers_.emplace_back();
        const Tensor out = state(seed + 8);
        l.states = {{"in", "", state(seed + 5)},
                    {"sa", "", state(seed + 6)},
                    {"attn", "in", state(seed + 7)},
                    {"norm1", "attn", out},
                    {"out", "", out}};
        l.input = l.residual = l.states[0].x;
        if (what_ == What::attention)
            l.op = std::make_shared<Undivided>(
                scaled(What::attention, {gaussian(n, n, seed + 1), gaussian(n, n, seed + 2)}));
        else
            l.op = std::make_shared<Made>(
                std::vector{random_attention(n, seed + 1), random_attention(n, seed + 2, true)},
                true, type_);
        projections_.q = projections_.q_raw =
            tensor({gaussian(n, w, seed + 9), gaussian(n, w, seed + 10)}, type_);
        projections_.k = projections_.k_raw = tensor(gaussian(n, w, seed + 12), type_);
        all_.push_back(std::make_unique<Projections>(projections_));
        l.projections = all_.back().get();
        l.a2 = 0.9;
        l.p = tensor(random_attention(n, seed + 19), type_);
        for (Index i = 0; i < n; ++i) l.chosen.push_back(i * i % n);
        const auto gradient = [&](std::uint64_t own, Index cols) {
            return scaled(What::gradients, {gaussian(n, cols, seed + own)});
        };
        l.gradients = {{"in", "", gradient(13, d)}, {"", "attn.q.weight", gradient(14, d)}};
        l.v = scaled(What::values, {gaussian(n, 2, seed + 15)});
        l.output = scaled(What::gradients, {gaussian(n, 2, seed + 16), gaussian(n, 2, seed + 17)});
    }

    Type type_;
    What what_;
    int exponent_;
    Projections projections_;
    std::vector<std::unique_ptr<Projections>> all_;
    std::vector<Layer> layers_;
};

struct Number {
    std::string where, metric;
    std::optional<double> value, low, high, error;
    std::string note;
};

std::vector<Number> numbers_with_errors(const Table& table) {
    std::vector<Number> list;
    const auto where = [](const Place& at) {
        return at.stage + " " + at.tensor + " " + std::to_string(at.head);
    };
    for (const MetricRow& r : table.metrics())
        list.push_back({where(r.at), r.metric, r.value, r.low, r.high, r.standard_error, r.note});
    for (const CurveRow& r : table.curves())
        list.push_back(
            {where(r.at) + " " + shortest(r.x), r.curve, r.y, {}, {}, r.standard_error, ""});
    return list;
}

/// Checks that `found` is 2^exponent times `expected`, or undefined where that is not a double.
void expect_scaled(std::optional<double> found, std::optional<double> expected, int exponent,
                   const std::string& where) {
    if (expected && *expected != 0) {
        const double value = std::ldexp(*expected, exponent);
        if (!std::isnormal(value)) return;
        expected = value;
    }
    EXPECT_EQ(found, expected) << where;
}

class ScaleLaw : public testing::TestWithParam<const ProbeEntry*> {
  protected:
    /// Returns the number of metrics compared.
    static int compare(Type type, What what, int k) {
        const std::vector<Number> expected =
                                      numbers_with_errors(Scaled(type, what, 0).run(*GetParam())),
                                  found =
                                      numbers_with_errors(Scaled(type, what, k).run(*GetParam()));
        EXPECT_EQ(found.size(), expected.size());
        int compared = 0;
        for (std::size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
            const Number &f = found[i], &e = expected[i];
            const std::string where = f.metric + " " + f.where + ", 2^" + std::to_string(k);
            EXPECT_EQ(f.where, e.where);
            const auto known = degrees().find(f.metric);
            if (known == degrees().end()) {
                ADD_FAILURE() << f.metric << " has no degree here";
                continue;
            }
            const int degree = known->second.in(what);
            if (degree == no_law) continue;
            compared += 1;
            const int exponent = degree * k;
            expect_scaled(f.value, e.value, exponent, where + f.note);
            expect_scaled(f.low, e.low, exponent, where + ": low");
            expect_scaled(f.high, e.high, exponent, where + ": high");
            expect_scaled(f.error, e.error, exponent, where + ": error");
        }
        return compared;
    }
};

constexpr What everything[] = {What::states, What::attention, What::gradients, What::values};

TEST_P(ScaleLaw, Float64) {
    int compared = 0;
    for (const What what : everything)
        for (const int k : {-540, -537, -170, -1, 3, 160, 510})
            compared += compare(Type::f64, what, k);
    EXPECT_EQ(compared > 0, !GetParam()->metrics.empty());
}

TEST_P(ScaleLaw, Float32) {
    for (const What what : everything)
        for (const int k : {-60, -1, 60}) compare(Type::f32, what, k);
}

INSTANTIATE_TEST_SUITE_P(List, ScaleLaw, testing::ValuesIn(probes().begin(), probes().end()),
                         [](const auto& test) { return std::string(test.param->name); });

TEST(ScaleLawOfRows, CosinesDoNotDependOnTheLengthsOfRows) {
    const Matrix x = gaussian(9, 5, 1, 0.5);
    Matrix stretched = x;
    for (Index i = 0; i < x.rows; ++i)
        for (Index j = 0; j < x.cols; ++j)
            stretched(i, j) = std::ldexp(x(i, j), int(i * 130) - 540);
    const Table expected = measure("similarity", {.states = {{"in", "", tensor(x)}}}),
                found = measure("similarity", {.states = {{"in", "", tensor(stretched)}}});
    EXPECT_EQ(value(found, state("in"), "t_cos"), value(expected, state("in"), "t_cos"));
}

/// Each head has its own scale, and the exponents of both factors add up to that of P.
TEST(ScaleLawOfHeads, SpectraOfEachHead) {
    const Matrix small = gaussian(140, 140, 3), large = gaussian(140, 140, 4);
    const auto stack = [&](int a, int b) {
        std::vector<Matrix> heads = {small, large};
        for (double& e : heads[0].a) e = std::ldexp(e, a);
        for (double& e : heads[1].a) e = std::ldexp(e, b);
        return Undivided(tensor(heads));
    };
    for (const auto find : {second_eigenvalue, centred_norm}) {
        const std::vector<Estimate> expected = find(stack(0, 0), 1e9, 1e-6, "auto"),
                                    found = find(stack(-530, 500), 1e9, 1e-6, "auto"),
                                    streamed = find(stack(-530, 500), 1e5, 1e-6, "auto");
        EXPECT_EQ(found[0].value, std::ldexp(expected[0].value, -530));
        EXPECT_EQ(found[1].value, std::ldexp(expected[1].value, 500));
        EXPECT_EQ(found[0].residual, std::ldexp(expected[0].residual, -530));
        EXPECT_EQ(streamed[0].value, found[0].value);
        EXPECT_EQ(streamed[1].value, found[1].value);
    }
}

/// Rows of P that are 0, and a P that is 0: numbers, or reasons.
TEST(ScaleLawOfNothing, ZeroRowsAndZeroMatrices) {
    Matrix some = gaussian(6, 6, 5);
    for (Index j = 0; j < 6; ++j) some(2, j) = some(4, j) = 0;
    Layer layer;
    layer.op = std::make_shared<Undivided>(tensor({some, Matrix(6, 6)}));
    layer.input = layer.residual = tensor(gaussian(6, 3, 6));
    for (const char* probe :
         {"spectrum", "mixing", "attention_norms", "attention_shape", "locality"})
        for (const MetricRow& row : measure(probe, layer).metrics())
            EXPECT_TRUE(row.value || !row.note.empty()) << row.metric;
    EXPECT_EQ(value(measure("attention_norms", layer), head(1), "attn_fro"), 0);
    EXPECT_EQ(value(measure("spectrum", layer), head(1), "lambda2_abs"), 0);
    EXPECT_EQ(value(measure("spectrum", layer), head(1), "delta"), 0);
    EXPECT_EQ(value(measure("mixing", layer), head(1), "mu2"), 0);
}

TEST(ScaleLaws, NameEveryMetric) {
    for (const ProbeEntry* entry : probes())
        for (const Metric& m : entry->metrics)
            EXPECT_TRUE(degrees().contains(std::string(m.name))) << m.name;
}

}  // namespace
}  // namespace tsdiag::test
