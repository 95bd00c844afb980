#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "distances.hpp"
#include "features.hpp"
#include "score.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::variants {

extern const AttentionEntry disentangled;

namespace {

constexpr std::array disentangled_options{
    word_option("terms", "both", "both c2p p2c", "c2p: q_i a_c^T alone; p2c: k_j b_c^T alone"),
    whole_option("longest", "512", "distance from which on all are in one class of each direction",
                 2),
    or_word("none", whole_option("buckets", "none",
                                 "classes of each direction; exact distances up to a half of "
                                 "them, then ranges that grow by a factor",
                                 4)),
    switch_option("shared", "0", "1: a and b by the maps of keys and queries"),
    or_word("none",
            real_option("eps", "none", "of a layer norm of the table of distances; none: no norm")),
    seed_option("seed of a and b, U(-1, 1) / sqrt(w) of w columns, if a model "
                "has no table")};

/// Of distance t, from -buckets to buckets - 1 and beyond.
Index log_class(Index t, Index buckets, Index longest) {
    const Index half = buckets / 2, far = std::abs(t);
    if (far <= half) return t;
    const double steps = std::log(double(far) / double(half)) /
                         std::log(double(longest - 1) / double(half)) * double(half - 1);
    const Index out = half + Index(std::ceil(steps));
    return t < 0 ? -out : out;
}

/// The rows of the table of distances: of each direction as many as there are classes.
class Classes {
  public:
    explicit Classes(const Options& options)
        : longest_(options.count("longest")),
          logarithmic_(options.number("buckets").has_value()),
          span_(logarithmic_ ? options.count("buckets") : longest_) {}
    Index rows() const { return 2 * span_; }
    /// That of distance t.
    Index row(Index t) const {
        const Index c = logarithmic_ ? log_class(t, span_, longest_) : t;
        return std::clamp(c + span_, Index{0}, rows() - 1);
    }
    /// How many occur among n tokens.
    Index among(Index n) const {
        Index count = 1;  // rows ascend with t
        for (Index t = 2 - n; t < n; ++t) count += row(t) != row(t - 1);
        return count;
    }

  private:
    Index longest_;
    bool logarithmic_;
    Index span_;
};

/// Logits with keys and, of each kind of term, with every class of distances, whose table is
/// mapped where there is one.
AttentionCost cost_of_terms(const AttentionOptions& given, const AttentionSizes& s) {
    const Options options(disentangled, given);
    if (const auto buckets = options.number("buckets");
        buckets && *buckets > double(options.count("longest")))
        return {.flops = s.pairs(s.head_dim)};  // `make` refuses it
    const Index rows = Classes(options).among(s.tokens), inner = s.heads * s.head_dim;
    const bool table = s.parameters_of_another || s.shape_of("distances").count() > 0;
    const double terms = options.is("terms", "both") ? 2 : 1;
    const double of_term =
        (table ? product_flops(rows, s.width, inner) : 0) + product_flops(s.tokens, inner, rows);
    return {.flops = s.pairs(s.head_dim) + terms * of_term};
}

/// a or b of every head, (h, rows, w): the rows of the table of distances, mapped; or drawn.
class Positions {
  public:
    Positions(const AttentionInput& in, const Options& options, Index all)
        : in_(in), options_(options), table_(parameter(in, "distances")), all_(all) {
        if (!table_.defined()) return;
        if (table_.batch() != 1 || table_.rows() != all)
            throw ShapeError(fmt::format(
                "attention 'disentangled': distances is ({}, {}, {}), expected (1, {}, d)",
                table_.batch(), table_.rows(), table_.cols(), all));
    }
    Tensor of(const std::vector<Index>& rows, const char* map, const char* shared) const {
        const Index h = in_.heads_of_a_sample(), w = in_.q.cols();
        if (!table_.defined())
            return split(
                gather_rows(drawn_uniform(options_.rng(in_).fork(map), all_, h * w,
                                          1 / std::sqrt(double(w)), in_.q.backend(), in_.q.type()),
                            rows));
        Tensor t = gather_rows(table_, rows);
        if (const auto eps = options_.number("eps"))
            t = layer_norm(t, parameter(in_, "distances_norm.weight"),
                           parameter(in_, "distances_norm.bias"), *eps);
        const std::string stem = options_.is("shared", "1") ? shared : map;
        const Tensor weight = parameter(in_, stem + ".weight");
        if (!weight.defined() || weight.rows() != h * w || weight.cols() != t.cols())
            throw ShapeError(fmt::format(
                "attention 'disentangled': {} is {}, expected a map from {} columns to {}", stem,
                weight.defined() ? fmt::format("({}, {})", weight.rows(), weight.cols())
                                 : std::string("missing"),
                t.cols(), h * w));
        return split(linear(t, weight, parameter(in_, stem + ".bias")));
    }

  private:
    Tensor split(const Tensor& x) const {
        return for_every_sample(split_heads(x, in_.heads_of_a_sample()), in_);
    }
    const AttentionInput& in_;
    const Options& options_;
    Tensor table_;
    Index all_;
};

}  // namespace

const AttentionEntry disentangled = {
    .name = "disentangled",
    .description =
        "P = exp(S) / row sums, S_ij = scale [q_i k_j^T + q_i a_c^T + k_j b_c^T] + bias, c the "
        "class of the distance i - j, a and b two maps of a table of distances that all layers "
        "share",
    .source = "[DEBERTA] (4); [DEBERTA-V3]",
    .options = disentangled_options,
    .facts = {.row_stochastic = Holds::always},
    .cost = cost_of_terms,
    .make = [](AttentionInput in) -> std::unique_ptr<AttentionOperator> {
        const Options options(disentangled, in.options);
        admit(disentangled, in);
        const Index longest = options.count("longest");
        const auto buckets = options.number("buckets");
        if (buckets && double(longest) < *buckets)
            throw UsageError(
                fmt::format("attention 'disentangled': {} classes do not fit distances of up to {}",
                            Index(*buckets), longest));
        const Classes classes(options);
        const Distances distances(in, [&](Index t) { return classes.row(t); });
        const Positions positions(in, options, classes.rows());
        const double scale = in.scale;
        Tensor a, of_keys;
        if (!options.is("terms", "p2c")) a = positions.of(distances.rows(), "position_key", "k");
        if (!options.is("terms", "c2p")) {
            const Tensor b = positions.of(distances.rows(), "position_query", "q");
            const Tensor k = repeat_batches(in.k, in.q.batch() / in.k.batch());
            of_keys = Distances::by_columns(matmul(k, b, Transpose::second, scale));
        }
        ScoreRule rule;
        rule.terms = [=, q = in.q](Index first, Index count) {
            Tensor sum;
            if (a.defined())
                sum = distances.of_queries(
                    matmul(q.row_range(first, count), a, Transpose::second, scale), first, count);
            if (!of_keys.defined()) return sum;
            const Tensor more = distances.of_keys(of_keys, first, count);
            return sum.defined() ? add(sum, more) : more;
        };
        rule.row_stochastic = true;
        rule.plain_logits = false;
        rule.fill = softmax_of_biased;
        return score_attention(std::move(in), std::move(rule));
    }};

}  // namespace tsdiag::variants
