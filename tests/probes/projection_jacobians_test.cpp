#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "../../probes/block_sums.hpp"
#include "by_hand.hpp"
#include "tsdiag/intervals.hpp"

namespace tsdiag::test {
namespace {

constexpr double jacobian_step = 1e-4;
/// Truncation h^4, h = jacobian_step, (1e-16) times fifth derivatives up to 1e6; rounding eps / h.
constexpr Tolerance jacobian_differences{.relative = 1e-9, .reason = "differences of fourth order"};

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

/// The operations between the input and P.
struct Case {
    const char* name;
    Index n = 5, d = 6, heads = 2, kv_heads = 2, w = 4;
    Index rotated = 0;  ///< columns
    bool interleaved = false;
    enum { none, rms, layer } norm = none;
    bool causal = false;
    enum { softmax, sink, squares, divided_squares } activation = softmax;
    std::vector<double> position = {};
    double magnitude = 1;             ///< of the rotated columns
    std::vector<double> growth = {};  ///< of each token's query
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.name; }

/// Weights of a case, and P as a function of them: by ops only, independent of the probe.
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
            std::vector<double> length(std::size_t(c.w), 1.0);
            std::fill_n(length.begin(), c.rotated, c.magnitude);
            const Tensor stretch =
                Tensor::from_host(cpu(), {1, 1, c.w}, std::span<const double>(length), Type::f64);
            p.q = multiply(rotate(p.q, position, frequency, c.interleaved), stretch);
            p.k = multiply(rotate(p.k, position, frequency, c.interleaved), stretch);
        }
        if (!c.growth.empty())
            p.q = multiply(p.q, Tensor::from_host(cpu(), {1, c.n, 1},
                                                  std::span<const double>(c.growth), Type::f64));
        p.growth = c.growth;
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
        p.magnitude = c.magnitude;
        return p;
    }

    std::unique_ptr<AttentionOperator> attend(const Projections& p) const {
        if (c.activation == Case::squares || c.activation == Case::divided_squares)
            return std::make_unique<Squares>(p, c.activation == Case::divided_squares);
        AttentionInput input;
        input.q = p.q;
        input.k = p.k;
        input.scale = p.scale;
        input.causal = c.causal;
        if (c.activation == Case::softmax) return attention("softmax").make(std::move(input));
        input.options = {{"start", "0.4"}};
        return attention("sink").make(std::move(input));
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
                std::vector<double> slope(std::size_t(c.n * c.n), 0.0);
                for (const auto& [at, weight] : fourth_order) {
                    const std::vector<double> p = moved(query, k, r, col, at * jacobian_step);
                    for (std::size_t i = 0; i < p.size(); ++i)
                        slope[i] += weight * p[i] / jacobian_step;
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
        EXPECT_CLOSE(value(t, head(k), "jac_q_fro"), setting.difference(true, k),
                     jacobian_differences)
            << "head " << k;
        EXPECT_CLOSE(value(t, head(k), "jac_k_fro"), setting.difference(false, k),
                     jacobian_differences)
            << "head " << k;
    }
}

/// Two samples as one attention, as on a device.
struct TwoSamples {
    Setting all[2];
    Projections own[2], together;
    Tensor x;
    std::unique_ptr<AttentionOperator> op;

    explicit TwoSamples(const Case& c, double size = 1) : all{Setting(c), Setting(c)} {
        all[1].x = gaussian(c.n, c.d, 7, 0.3);
        for (double& v : all[1].x.a) v *= size;
        for (const int s : {0, 1}) own[s] = all[s].project(all[s].wq, all[s].wk);
        together = own[0];
        for (Tensor Projections::*t :
             {&Projections::q, &Projections::k, &Projections::q_raw, &Projections::k_raw})
            together.*t = concat_batches(std::vector{own[0].*t, own[1].*t});
        x = concat_batches(std::vector{tensor(all[0].x), tensor(all[1].x)});
        op = all[0].attend(together);
    }

    /// The sums of the blocks of both samples are those of `Derivative`, of each sample alone.
    template <class Derivative>
    void expect_sums(const std::optional<probe::BlockSums>& sums,
                     std::span<const probe::RowRange> blocks) const {
        ASSERT_TRUE(sums);
        const Index heads = all[0].c.heads;
        for (const Index s : {0, 1}) {
            const Derivative derivative(tensor(all[s].x), own[s]);
            const auto alone = all[s].attend(own[s]);
            for (std::size_t b = 0; b < blocks.size(); ++b) {
                const auto [first, count] = blocks[b];
                const probe::RowNorms rows = derivative.norms(probe::rows_of(*alone, first, count));
                for (Index k = 0; k < heads; ++k) {
                    Wide value = 0, gross = 0;
                    for (Index i = k * count; i < (k + 1) * count; ++i) {
                        value += rows.value[std::size_t(i)];
                        gross += rows.gross[std::size_t(i)];
                    }
                    const probe::RowSpread::Sum found =
                        sums->of(s * heads + k, Index(b), Index(blocks.size()));
                    EXPECT_LE(std::abs(found.value - value), 1e-12 * gross) << s << ' ' << k;
                    EXPECT_LE(std::abs(found.gross - gross), 1e-12 * gross) << s << ' ' << k;
                }
            }
        }
    }
    Attention event() const {
        return {.op = *op, .input = x, .residual = x, .projections = &together};
    }
};

TEST_P(ProjectionJacobians, OfSamplesTogetherAreThoseOfEachAlone) {
    const Case& c = GetParam();
    const TwoSamples two(c);
    const Attention e = two.event();
    const std::vector<probe::RowRange> blocks{{0, 1}, {1, c.n - 1}};
    two.expect_sums<probe::QueryDerivative>(probe::query_sums_later(e, blocks), blocks);
    two.expect_sums<probe::KeyDerivative>(probe::key_sums_later(e, blocks), blocks);
}

TEST(ProjectionJacobiansTogether, KeepTheScaleOfEachSample) {
    const std::vector<probe::RowRange> blocks{{0, 5}};
    for (const double size : {1e-120, 1e60}) {
        const TwoSamples two({.name = "", .heads = 4, .rotated = 2}, size);
        const Attention e = two.event();
        two.expect_sums<probe::QueryDerivative>(probe::query_sums_later(e, blocks), blocks);
        two.expect_sums<probe::KeyDerivative>(probe::key_sums_later(e, blocks), blocks);
    }
}

TEST(ProjectionJacobiansTogether, AreRefusedWhereSquaresOfANormMayOverflow) {
    const std::vector<probe::RowRange> blocks{{0, 5}};
    const TwoSamples two({.name = "", .norm = Case::rms}, 1e60);
    const Attention e = two.event();
    EXPECT_FALSE(probe::query_sums_later(e, blocks));
    EXPECT_FALSE(probe::key_sums_later(e, blocks));
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
        Case{.name = "stretched", .rotated = 4, .causal = true, .magnitude = 1.4},
        Case{.name = "half_stretched", .kv_heads = 1, .rotated = 2, .magnitude = 0.6},
        Case{.name = "rms_half_stretched", .rotated = 2, .norm = Case::rms, .magnitude = 1.7},
        Case{.name = "layer_norm_stretched",
             .rotated = 4,
             .interleaved = true,
             .norm = Case::layer,
             .magnitude = 1.3},
        Case{.name = "squares_stretched",
             .rotated = 2,
             .activation = Case::squares,
             .magnitude = 1.5},
        Case{.name = "growing", .causal = true, .growth = {1, 1.3, 1.3, 0.7, 2}},
        Case{.name = "growing_rotated",
             .kv_heads = 1,
             .rotated = 2,
             .activation = Case::squares,
             .growth = {1, 1.5, 0.5, 2, 2}},
        Case{.name = "growing_rms",
             .rotated = 2,
             .norm = Case::rms,
             .causal = true,
             .growth = {0.5, 1, 1.5, 2, 2.5}},
        Case{.name = "sink", .causal = true, .activation = Case::sink},
        Case{.name = "sink_rotated",
             .kv_heads = 1,
             .rotated = 4,
             .causal = true,
             .activation = Case::sink,
             .magnitude = 1.2},
        Case{.name = "sink_rms", .rotated = 2, .norm = Case::rms, .activation = Case::sink},
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
    setting.x = Matrix(4, 6, 1.0);  // equal tokens: the derivative of P is 0
    const auto row = *setting.measured().find(head(0), "jac_k_fro");
    if (row.value) {
        EXPECT_EQ(*row.value, 0);
    } else {
        EXPECT_EQ(*row.low, 0);
        EXPECT_LT(*row.high, 1e-6);
        EXPECT_EQ(row.note, "cancellation leaves few digits");
    }
}

// The selection of rows, and the report on it.

/// Records the rows requested from it.
class Watched final : public AttentionOperator {
  public:
    explicit Watched(std::unique_ptr<AttentionOperator> inner) : inner_(std::move(inner)) {}
    RowBlock rows(Index first, Index count) const override {
        if (count > 1) asked.emplace_back(first, count);  // single rows are probes for a slope
        return inner_->rows(first, count);
    }
    Structure structure() const override { return inner_->structure(); }
    Index heads() const override { return inner_->heads(); }
    Index tokens() const override { return inner_->tokens(); }
    Type type() const override { return inner_->type(); }
    const Backend& backend() const override { return cpu(); }
    mutable std::vector<std::pair<Index, Index>> asked;

  private:
    std::unique_ptr<AttentionOperator> inner_;
};

struct Looked {
    std::vector<std::pair<Index, Index>> blocks;
    MetricRow row;
};

/// |dP_i/dW_Q| of head 0 with a work limit of `rows` rows, and the blocks of rows used.
Looked looked(const Setting& setting, double rows) {
    const Projections p = setting.project(setting.wq, setting.wk);
    const auto op = std::make_shared<Watched>(setting.attend(p));
    ProbeSettings settings;
    const double seen = setting.c.causal ? 0.5 : 1;  // of the columns
    settings.largest_work = rows * seen * probe::query_work(p, setting.c.heads, setting.c.n);
    const Table t = measure("projection_jacobians",
                            {.op = op, .input = tensor(setting.x), .projections = &p}, settings);
    std::vector<std::pair<Index, Index>> blocks = op->asked;
    // The first repetition belongs to |dP/dW_K|.
    const auto again = std::adjacent_find(blocks.begin(), blocks.end(),
                                          [](auto a, auto b) { return b.first <= a.first; });
    if (again != blocks.end()) blocks.erase(again + 1, blocks.end());
    return {blocks, *t.find(head(0), "jac_q_fro")};
}

TEST(ProjectionJacobiansOf, SomeRowsAreBlocksOfEightEvenlySpaced) {
    for (const bool causal : {false, true})
        for (const Index n : {33, 100, 203})
            for (const Index count : {2, 3}) {
                const Setting setting({.name = "", .n = n, .causal = causal});
                const Looked l = looked(setting, double(8 * count) + 0.5);
                ASSERT_EQ(Index(l.blocks.size()), count) << n;
                for (Index t = 0; t < count; ++t) {
                    const auto [first, rows] = l.blocks[std::size_t(t)];
                    EXPECT_EQ(rows, 8);
                    // The middles of equal parts of the range of block starts.
                    const double middle = (double(t) + 0.5) / double(count) * double(n - 8);
                    EXPECT_LE(std::abs(double(first) - middle), 1) << n << ' ' << t;
                }
                EXPECT_TRUE(l.row.note.starts_with(
                    fmt::format("from {} of {} rows, standard error ", 8 * count, n)))
                    << l.row.note;
            }
}

TEST(ProjectionJacobiansOf, SomeRowsAreTwoBlocksAtLeastAndAllOfFewOrOfThoseThatAreAffordable) {
    EXPECT_EQ(looked(Setting({.name = "", .n = 33}), 1e-9).blocks.size(), 2u);
    EXPECT_EQ(looked(Setting({.name = "", .n = 33}), 32.9).blocks.size(), 3u) << "one is left out";
    for (const auto& [n, rows] : {std::pair{32, 1e-9}, {33, 33.0}}) {
        const Looked l = looked(Setting({.name = "", .n = n}), rows * (1 + 1e-12));
        ASSERT_EQ(l.blocks.size(), 1u);
        EXPECT_EQ(l.blocks[0], (std::pair<Index, Index>(0, n)));
        EXPECT_EQ(l.row.note, "");
    }
}

TEST(ProjectionJacobiansOf, ManyRowsAreTakenInBlocksOfTheirEntries) {
    // Two heads of 600 tokens: 2^17 entries are 109 rows and a fraction.
    const Setting setting({.name = "", .n = 600, .d = 2, .w = 2});
    const Looked l = looked(setting, 1e9);
    ASSERT_EQ(l.blocks.size(), 6u);
    for (Index t = 0; t < 6; ++t)
        EXPECT_EQ(l.blocks[std::size_t(t)],
                  (std::pair<Index, Index>(109 * t, std::min<Index>(109, 600 - 109 * t))));
}

TEST(ProjectionJacobiansOf, SomeRowsHaveStudentsInterval) {
    constexpr Index n = 100, count = 3;
    const Setting setting({.name = "", .n = n});
    const Looked l = looked(setting, 8 * count + 0.5);
    const Projections p = setting.project(setting.wq, setting.wk);
    const probe::QueryDerivative derivative(tensor(setting.x), p);
    const auto op = setting.attend(p);
    // Sums b of blocks, a sample without replacement of n/8 of them: their total is n/8 times the
    // mean, its standard error n/8 s sqrt((1 - 24/n)/3).
    std::vector<double> sums;
    for (const auto& [first, rows] : l.blocks) {
        const probe::RowNorms norms = derivative.norms(probe::rows_of(*op, first, rows));
        sums.push_back(0);
        for (Index i = 0; i < rows; ++i) sums.back() += double(norms.value[std::size_t(i)]);
    }
    ASSERT_EQ(Index(sums.size()), count);
    const double all = double(n) / 8, mean = (sums[0] + sums[1] + sums[2]) / 3;
    double square = 0;
    for (const double b : sums) square += (b - mean) * (b - mean) / 2;
    const double error = all * std::sqrt(square * (1 - 24.0 / n) / 3), total = all * mean;
    const double reach = student_quantile(0.95, 2) * error;
    const auto root = [](double x) { return std::sqrt(std::max(0.0, x)); };
    ASSERT_TRUE(l.row.value && l.row.low && l.row.high);
    EXPECT_CLOSE(*l.row.value, root(total), rounding(100));
    EXPECT_CLOSE(*l.row.low, root(total - reach), rounding(1000));
    EXPECT_CLOSE(*l.row.high, root(total + reach), rounding(1000));
    EXPECT_EQ(l.row.note,
              fmt::format("from 24 of 100 rows, standard error {:.1e}", error / (2 * root(total))));
}

/// Products of a row of weights over the n tokens with columns, of one head, in flops.
double products(double n, double columns) { return 2 * n * columns; }

TEST(ProjectionJacobiansWork, IsThatOfTheProductsOfARow) {
    for (const Index n : {5, 11, 12, 20, 40})
        for (const Index rotated : {0, 2, 4})
            for (const auto norm : {Case::none, Case::rms, Case::layer}) {
                const Setting setting({.name = "",
                                       .n = n,
                                       .heads = 4,
                                       .rotated = rotated,
                                       .norm = norm,
                                       .position = std::vector<double>(std::size_t(n), 1)});
                const double w = 4, d = 6, pairs = double(rotated) / 2, tokens = double(n);
                const Projections p = setting.project(setting.wq, setting.wk);
                const double query = probe::query_work(p, 4, n) / 4,
                             key = probe::key_work(p, 4, n, setting.c.d) / 4;
                // Squares of keys, and keys twice; with a norm the products of rotated pairs, and
                // one or two projected-out vectors.
                const double more =
                    norm == Case::none ? 0 : pairs + (norm == Case::rms ? w : 2 * w);
                const double of_query = products(tokens, 3 * w + more);
                EXPECT_GE(query, of_query) << n << ' ' << rotated;
                EXPECT_LE(query, norm == Case::none ? of_query : 2 * of_query)
                    << n << ' ' << rotated;
                // X X^T where that is smaller than twice X, else X twice; once a rotated pair, or
                // for its cosine and its sine; once for what is not rotated.  With a norm once a
                // column.
                const bool gram = n < 2 * d;
                const double once = gram ? products(tokens, tokens) : 2 * products(tokens, d);
                const double rest = 2 * pairs < w ? 1 : 0;
                const double of_key =
                    once * (norm != Case::none ? w : (gram ? pairs : 2 * pairs) + rest);
                EXPECT_GE(key, of_key) << n << ' ' << rotated;
                EXPECT_LE(key, rest == 1 || norm != Case::none ? of_key : 1.5 * of_key)
                    << n << ' ' << rotated;
            }
}

TEST(ProjectionJacobiansWork, ByDistanceIsThatOfThePairsOfTokens) {
    const auto work = [](Index n, Index heads, Index rotated) {
        const Setting setting({.name = "", .n = n, .heads = heads, .rotated = rotated});
        const Projections p = setting.project(setting.wq, setting.wk);
        return probe::key_work(p, heads, n, setting.c.d);
    };
    const double one = work(50, 2, 2);
    EXPECT_GE(one, 2 * 50.0 * 50 * 2) << "a multiplication and an addition each";
    EXPECT_LE(one, 16 * 50.0 * 50 * 2) << "no more than eight of them";
    EXPECT_EQ(work(50, 2, 4), one) << "whatever is rotated";
    EXPECT_EQ(work(100, 2, 2), 4 * one);
    EXPECT_EQ(work(50, 4, 2), 2 * one);
}

TEST(ProjectionJacobiansRounding, IsThatOfWhatIsAddedUp) {
    // The sum before any cancellation: everything where rows are not divided.
    for (const auto norm : {Case::none, Case::rms, Case::layer})
        for (const Index rotated : {0, 4}) {
            const Setting setting(
                {.name = "", .heads = 4, .rotated = rotated, .norm = norm, .causal = true});
            const Projections p = setting.project(setting.wq, setting.wk);
            const auto op = setting.attend(p);
            const probe::Rows divided = probe::rows_of(*op, 1, 3);
            probe::Rows alone = divided;
            alone.divided = false;
            const probe::QueryDerivative query(tensor(setting.x), p);
            const probe::KeyDerivative key(tensor(setting.x), p);
            const auto as_double = [](const std::vector<Wide>& list) {
                return std::vector<double>(list.begin(), list.end());
            };
            const std::vector<double> of_key = as_double(key.norms(divided).gross),
                                      whole = as_double(key.norms(alone).value);
            const std::vector<double> of_query = as_double(query.norms(divided).gross);
            const std::vector<double> slope = op->matrix().to_host<double>(),
                                      k = p.k.to_host<double>(), raw = p.q_raw.to_host<double>();
            for (Index h = 0; h < 4; ++h)
                for (Index r = 0; r < 3; ++r) {
                    const Index i = 1 + r;
                    const auto at = std::size_t(h * 3 + r);
                    EXPECT_CLOSE(of_key[at], whole[at], rounding(200));
                    if (rotated > 0 && norm != Case::none) continue;  // rows of k are rotated back
                    double inverse = 1, input = 0, sum = 0;
                    if (norm != Case::none) {
                        double mean = 0, square = 0;
                        const double* u = raw.data() + (h * 5 + i) * 4;
                        for (Index c = 0; c < 4 && norm == Case::layer; ++c) mean += u[c] / 4;
                        for (Index c = 0; c < 4; ++c) square += (u[c] - mean) * (u[c] - mean) / 4;
                        inverse = 1 / (square + 1e-2);
                    }
                    for (Index c = 0; c < 6; ++c) input += setting.x(i, c) * setting.x(i, c);
                    for (Index j = 0; j < 5; ++j)
                        for (Index c = 0; c < 4; ++c) {
                            const double g = norm == Case::none ? 1 : setting.gq(0, c);
                            const double v = slope[std::size_t((h * 5 + i) * 5 + j)] *
                                             k[std::size_t(((h / 2) * 5 + j) * 4 + c)] * g;
                            sum += v * v;
                        }
                    EXPECT_CLOSE(of_query[at], 0.49 * input * inverse * sum, rounding(200));
                }
        }
}

TEST(ProjectionJacobiansRounding, LeavesRoomOfSixteenUnits) {
    Setting setting({.name = "", .n = 4});
    setting.x = Matrix(4, 6, 1.0);  // equal tokens: the derivative of P is 0
    const Projections p = setting.project(setting.wq, setting.wk);
    const probe::RowNorms norms =
        probe::KeyDerivative(tensor(setting.x), p).norms(probe::rows_of(*setting.attend(p), 0, 4));
    Wide value = 0, gross = 0;
    for (std::size_t i = 0; i < 4; ++i) value += norms.value[i], gross += norms.gross[i];
    const double room = 16 * std::numeric_limits<double>::epsilon() * double(gross);
    ASSERT_LT(std::abs(double(value)), room) << "nothing is left";
    const auto row = *setting.measured().find(head(0), "jac_k_fro");
    if (value == 0) return;  // exact, without rounding error
    ASSERT_TRUE(row.high);
    EXPECT_CLOSE(*row.high * *row.high, std::max(0.0, double(value)) + room, rounding(10));
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
