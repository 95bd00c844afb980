#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>

#include "features.hpp"
#include "score.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::variants {
namespace {

constexpr std::array transformer_xl_options{
    or_word("none",
            whole_option("clamp", "none", "maximum distance; keys farther away use this distance")),
    seed_option("seed of u and v, U(-1, 1) / sqrt(w) of w columns, and of W, "
                "U(-1, 1) sqrt(6/d), if a model has none")};

/// The parameter `name` of shape (1, rows, cols), cols 0: any; or drawn, `cols` columns.
Tensor own(const AttentionInput& in, const Options& options, std::string_view name, Shape shape,
           double bound) {
    Tensor given = parameter(in, name);
    if (!given.defined())
        return drawn_uniform(options.rng(in).fork(name), shape.rows, shape.cols, bound,
                             in.q.backend(), in.q.type());
    if (given.batch() == 1 && given.rows() == shape.rows &&
        (name == "position" || given.cols() == shape.cols))
        return given;
    throw ShapeError(
        fmt::format("attention 'transformer_xl': {} is ({}, {}, {}), expected (1, {}, {})", name,
                    given.batch(), given.rows(), given.cols(), shape.rows,
                    name == "position" ? std::string("d") : std::to_string(shape.cols)));
}

/// R: sin(t f_i) in column i, cos(t f_i) in column d/2 + i, f_i = 10000^(-2i/d), of distances t.
Tensor sinusoids(const std::vector<double>& distances, Index d, const Backend& backend, Type type) {
    if (d % 2 != 0)
        throw ShapeError(
            fmt::format("attention 'transformer_xl': distances have d/2 sines and d/2 cosines, but "
                        "d = {} is odd",
                        d));
    std::vector<double> frequency, values;
    for (Index i = 0; i < d / 2; ++i)
        frequency.push_back(std::pow(10000.0, -2 * double(i) / double(d)));
    values.reserve(distances.size() * std::size_t(d));
    for (const double t : distances)
        for (Index j = 0; j < d; ++j) {
            const double angle = t * frequency[std::size_t(j % (d / 2))];
            values.push_back(j < d / 2 ? std::sin(angle) : std::cos(angle));
        }
    return Tensor::from_host(backend, {1, std::ssize(distances), d},
                             std::span<const double>(values), type);
}

/// Two products of logits, and R W^T for every distance.
AttentionCost cost_of_positions(const AttentionOptions&, const AttentionSizes& s) {
    const Index inner = s.heads * s.head_dim, learned = s.shape_of("position").cols;
    const Index distances = s.causal ? s.tokens : 2 * s.tokens - 1;
    return {.flops = product_flops(distances, learned > 0 ? learned : 2 * inner, inner) +
                     2 * s.pairs(s.head_dim)};
}

/// (q + v) r_(i - j)^T, r = R W^T.
class PositionLogits {
  public:
    PositionLogits(const AttentionInput& in, const Options& options)
        : scale_(in.scale),
          memory_(in.memory()),
          keys_(in.k.rows()),
          causal_(in.causal),
          clamp_(options.number("clamp")) {
        const Index h = in.heads_of_a_sample(), w = in.q.cols();
        const Tensor bias = own(in, options, "position_bias", {1, h, w}, 1 / std::sqrt(double(w)));
        q_ = add(in.q, for_every_sample(bias.reshape({h, 1, w}), in));
        const Tensor map =
            own(in, options, "position", {1, h * w, 2 * h * w}, std::sqrt(6 / (2 * double(h * w))));
        std::vector<double> distances;
        for (Index i = 0; i < keys_; ++i) at_.push_back(position(in, i));
        even_ = evenly_spaced();
        if (even_) {
            for (Index t = keys_ - 1; t >= (causal_ ? 0 : 1 - keys_); --t)
                distances.push_back(double(t));
        } else {
            for (Index i = memory_; i < keys_; ++i)
                for (Index j = 0; j < (causal_ ? i + 1 : keys_); ++j)
                    distances.push_back(distance(i, j));
            std::ranges::sort(distances, std::greater());
            distances.erase(std::ranges::unique(distances).begin(), distances.end());
        }
        std::vector<double> clamped = distances;
        if (clamp_)
            for (double& t : clamped) t = std::clamp(t, -*clamp_, *clamp_);
        const Tensor r = sinusoids(clamped, map.cols(), in.q.backend(), in.q.type());
        r_ = for_every_sample(split_heads(linear(r, map, {}), h), in);
        if (!even_) distances_ = std::move(distances);
    }

    /// Of rows [first, first + count), (h, count, m + n); 0 behind the last column that one sees.
    Tensor operator()(Index first, Index count) const {
        const Index seen = causal_ ? memory_ + first + count : keys_;
        const Tensor q = q_.row_range(first, count);
        Tensor near = even_ ? skewed(q, first, count, seen) : gathered(q, first, count, seen);
        if (seen == keys_) return near;
        return concat_cols(std::vector<Tensor>{
            near, zeros(q.backend(), {q.batch(), count, keys_ - seen}, q.type())});
    }

  private:
    double distance(Index i, Index j) const { return at_[std::size_t(i)] - at_[std::size_t(j)]; }
    bool evenly_spaced() const {
        for (Index i = 0; i < keys_; ++i)
            if (distance(i, 0) != double(i)) return false;
        return true;
    }

    /// By distance from the farthest on, then every row shifted to the left by the number of rows
    /// below: in row-major order a row that is one element shorter.
    Tensor skewed(const Tensor& q, Index first, Index count, Index seen) const {
        const Index all = seen + count - 1, farthest = memory_ + first + count - 1;
        const Index made = causal_ ? seen : all;  // the others are ahead
        Tensor by_distance = matmul(q, r_.row_range(keys_ - 1 - farthest, made), Transpose::second,
                                    scale_);  // (h, count, made)
        if (count == 1) return by_distance;
        if (made < all)
            by_distance = concat_cols(std::vector<Tensor>{
                by_distance, zeros(q.backend(), {q.batch(), count, all - made}, q.type())});
        const Tensor flat = contiguous(by_distance).reshape({q.batch(), 1, count * all});
        return contiguous(flat.col_range(count - 1, count * (all - 1)))
            .reshape({q.batch(), count, all - 1})
            .col_range(0, seen);
    }

    Tensor gathered(const Tensor& q, Index first, Index count, Index seen) const {
        const Index all = r_.rows();
        const Tensor by_distance = contiguous(matmul(q, r_, Transpose::second, scale_))
                                       .reshape({1, q.batch() * count * all, 1});
        std::vector<Index> rows;
        rows.reserve(std::size_t(q.batch() * count * seen));
        for (Index row = 0; row < q.batch() * count; ++row)
            for (Index j = 0; j < seen; ++j) {
                const Index i = memory_ + first + row % count;
                const double t = distance(i, j);  // of a key that the row does not see: any
                const auto found = std::ranges::lower_bound(distances_, t, std::greater());
                rows.push_back(row * all + std::min<Index>(found - distances_.begin(), all - 1));
            }
        return gather_rows(by_distance, rows).reshape({q.batch(), count, seen});
    }

    double scale_;
    Index memory_, keys_;
    bool causal_, even_ = true;
    std::optional<double> clamp_;
    std::vector<double> at_;         ///< position of each key
    std::vector<double> distances_;  ///< of the rows of r_, descending, where they are uneven
    Tensor q_, r_;                   ///< q + v, (h, n, w); r by descending distance, (h, t, w)
};

}  // namespace

extern const AttentionEntry transformer_xl = {
    .name = "transformer_xl",
    .description =
        "P = exp(S) / row sums, S_ij = scale [(q_i + u) k_j^T + (q_i + v) r_(i-j)^T] + bias, "
        "r = R W^T, row t of R the sines and cosines of the angles t 10000^(-2i/d); u, v and W of "
        "each layer. With a memory its m keys come first and P is n x (m + n)",
    .source = "[TRANSFORMER-XL] 3.3",
    .options = transformer_xl_options,
    .facts = {.row_stochastic = Holds::always, .memory = true},
    .cost = cost_of_positions,
    .make = [](AttentionInput in) -> std::unique_ptr<AttentionOperator> {
        const Options options(transformer_xl, in.options);
        admit(transformer_xl, in);
        ScoreRule rule;
        rule.terms = PositionLogits(in, options);
        rule.memory = Memory::allowed;
        rule.row_stochastic = true;
        rule.plain_logits = false;
        rule.fill = softmax_of_biased;
        const Index h = in.heads_of_a_sample(), w = in.q.cols();
        const Tensor bias = own(in, options, "content_bias", {1, h, w}, 1 / std::sqrt(double(w)));
        in.q = add(in.q, for_every_sample(bias.reshape({h, 1, w}), in));
        return score_attention(std::move(in), std::move(rule));
    }};

}  // namespace tsdiag::variants
