#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "factored.hpp"
#include "features.hpp"
#include "inverse.hpp"
#include "power.hpp"
#include "score.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::variants {
namespace {

constexpr std::array nystrom_options{
    or_word("n", whole_option("landmarks", "64", "m, a divisor of n; n: all tokens", 1, 1e6)),
    word_option("whole", "softmax", "softmax inverse",
                "what m = n means: the exact softmax (or polynomial), or the "
                "same formula (inverse: nystrom-attention)"),
    word_option("init", "original", "original exact",
                "start of the inverse of a softmax: K2^T over the largest "
                "column sum of all heads (original) or of each head (exact)"),
    word_option("activation", "softmax", "softmax polynomial",
                "activation of the logits: softmax, or c x^p entry by entry [POLY]; then V "
                "starts at K2^T over |K2|_1 |K2|_inf of each head"),
    power_option,
    scale_option,
    start_option,
    whole_option("conv", "0",
                 "odd width of the convolution over values that is added to P, "
                 "drawn U(-1, 1) / sqrt(width); 0: none",
                 0, 1e4),
    seed_option("seed of the convolution")};

constexpr std::string_view no_logits = "P is a product of three softmaxes";
constexpr std::string_view no_power_logits = "P is a product of three matrices of powers";
constexpr Index inverse_steps = 6;

/// Means of segments of n/m tokens: (h, n, w) -> (h, m, w).
Tensor landmarks(const Tensor& x, Index m) {
    const Index h = x.batch(), n = x.rows(), w = x.cols();
    return column_mean(contiguous(x).reshape({h * m, n / m, w})).reshape({h, m, w});
}

/// P + C, C_ij = w_(j - i + width/2) of each head: a convolution over the values.
class WithConvolution final : public AttentionOperator {
  public:
    WithConvolution(std::unique_ptr<AttentionOperator> p, Tensor kernel,
                    std::string_view why_no_slope)
        : p_(std::move(p)), kernel_(std::move(kernel)), why_no_slope_(why_no_slope) {}

    RowBlock rows(Index first, Index count) const override {
        RowBlock block = p_->rows(first, count);
        block.p = add(block.p, band(first, count));
        block.slope = {};
        block.divided = false;
        block.why_no_slope = why_no_slope_;
        return block;
    }
    Structure structure() const override { return {}; }
    Index heads() const override { return p_->heads(); }
    Index tokens() const override { return p_->tokens(); }
    Type type() const override { return p_->type(); }
    const Backend& backend() const override { return p_->backend(); }

  private:
    Tensor band(Index first, Index count) const {
        const Index n = tokens(), h = heads(), width = kernel_.cols();
        // A table with a row per offset and a row of zeros for all offsets beyond.
        const Tensor table =
            place(transpose(kernel_).reshape({1, width, h}), {1, width + 1, h}, 0, 0, 0);
        std::vector<Index> offset;
        for (Index i = first; i < first + count; ++i)
            for (Index j = 0; j < n; ++j) {
                const Index t = j - i + width / 2;
                offset.push_back(t >= 0 && t < width ? t : width);
            }
        return transpose(gather_rows(table, offset)).reshape({h, count, n});
    }

    std::unique_ptr<AttentionOperator> p_;
    Tensor kernel_;  ///< (1, h, width)
    std::string_view why_no_slope_;
};

/// The weights of the convolution, (h, 1, width), h the heads of a sample; none: empty.
Tensor convolution(const Options& options, const AttentionInput& in) {
    const Index h = in.heads_of_a_sample();
    if (const Tensor given = parameter(in, "conv"); given.defined()) {
        const Index count = given.shape().count();
        if (count % (2 * h) == 0 || count % h != 0)
            throw ShapeError(fmt::format(
                "attention 'nystrom': a convolution of {} numbers, expected an odd width times {}",
                count, h));
        return contiguous(given).reshape({h, 1, count / h});
    }
    const Index width = options.count("conv");
    if (width == 0) return {};
    if (width % 2 == 0)
        throw UsageError(fmt::format("attention 'nystrom': conv={} is not odd", width));
    return drawn_uniform(options.rng(in), h, width, 1 / std::sqrt(double(width)), in.q.backend(),
                         in.q.type())
        .reshape({h, 1, width});
}

}  // namespace

extern const AttentionEntry softmax, polynomial, nystrom;

namespace {

std::unique_ptr<AttentionOperator> of_softmaxes(const AttentionInput& in, Index m, bool each_head) {
    const auto kernel = [&](const Tensor& a, const Tensor& b) {
        return softmax_rows(matmul(a, b, Transpose::second, in.scale), {});
    };
    const Tensor q = landmarks(in.q, m), k = landmarks(in.k, m);
    const Tensor left =
        matmul(kernel(in.q, k),
               iterated_inverse(kernel(q, k), inverse_steps, in.heads_of_a_sample(), each_head));
    return factored_attention(nystrom, left, transpose(kernel(q, in.k)), false,
                              {.why_no_slope = no_logits});
}

/// With the activation c x^p.  The inverse of c K2 is that of K2 over c, so that one c is left.
std::unique_ptr<AttentionOperator> of_powers(const AttentionInput& in, Index m,
                                             const Options& options) {
    const auto kernel = [&](const Tensor& a, const Tensor& b) {
        return power(matmul(a, b, Transpose::second, in.scale), options.count("p"));
    };
    const Tensor q = landmarks(in.q, m), k = landmarks(in.k, m);
    const Tensor left =
        matmul(kernel(in.q, k), iterated_signed_inverse(kernel(q, k), inverse_steps));
    return factored_attention(nystrom, multiply(left, power_scale(nystrom, options, in)),
                              transpose(kernel(q, in.k)), false, {.why_no_slope = no_power_logits});
}

/// Three matrices of logits with landmarks, the inverse of one, and the products of all three.
AttentionCost cost_of_landmarks(const AttentionOptions& given, const AttentionSizes& s) {
    const Options options(nystrom, given);
    const Index n = s.tokens, w = s.head_dim;
    const Index m = options.is("landmarks", "n") ? n : options.count("landmarks");
    if (m == n && options.is("whole", "softmax")) return {.flops = s.pairs(w)};
    const double of_head = 2 * product_flops(n, w, m) + product_flops(m, w, m) +
                           inverse_flops(m, inverse_steps) + product_flops(n, m, m);
    return {.flops = double(s.heads) * of_head + s.pairs(m)};
}

/// Of as many landmarks as tokens.
std::unique_ptr<AttentionOperator> exact(AttentionInput in, bool powers) {
    AttentionOptions given;
    for (const char* name : {"p", "scale"})
        if (const auto found = in.options.find(name); powers && found != in.options.end())
            given.insert(*found);
    in.options = std::move(given);
    return (powers ? polynomial : softmax).make(std::move(in));
}

}  // namespace

const AttentionEntry nystrom = {
    .name = "nystrom",
    .description =
        "P = softmax(q l_k^T) V softmax(l_q k^T), l the means of n/m tokens, V six "
        "steps towards the inverse of K2 = softmax(l_q l_k^T); or with a polynomial for softmax",
    .source = "[NYSTROM], [POLY] 6.3",
    .options = nystrom_options,
    .facts = {.row_stochastic = Holds::sometimes,
              .negative_entries = Holds::sometimes,
              .factors = Holds::sometimes,
              .slope = Holds::sometimes,
              .never_causal = "a landmark is a mean that includes later tokens",
              .window = false},
    .token_multiple =
        [](const AttentionOptions& given) {
            const Options options(nystrom, given);
            return options.is("landmarks", "n") ? Index(1) : options.count("landmarks");
        },
    .learned =
        [](const AttentionOptions& given, const LearnedFor& model) {
            const Options options(nystrom, given);
            return options.is("activation", "polynomial") ? learned_scale(nystrom, given, model)
                                                          : std::vector<LearnedParameter>();
        },
    .cost = cost_of_landmarks,
    .make = [](AttentionInput in) -> std::unique_ptr<AttentionOperator> {
        const Options options(nystrom, in.options);
        admit(nystrom, in);
        const Index n = in.q.rows();
        const Index m = options.is("landmarks", "n") ? n : options.count("landmarks");
        if (m > n || n % m != 0)
            throw UsageError(
                fmt::format("attention 'nystrom': landmarks={} does not divide the {} tokens of "
                            "the sample; expected a multiple of {} tokens",
                            m, n, m));
        const Tensor kernel = convolution(options, in);
        const bool powers = options.is("activation", "polynomial");
        for (const char* name : {"p", "scale", "start"})
            if (!powers && in.options.contains(name))
                throw UsageError(fmt::format(
                    "attention 'nystrom': {} requires activation=polynomial, not softmax", name));
        std::unique_ptr<AttentionOperator> op =
            m == n && options.is("whole", "softmax") ? exact(in, powers)
            : powers                                 ? of_powers(in, m, options)
                     : of_softmaxes(in, m, options.is("init", "exact"));
        if (!kernel.defined()) return op;
        const Tensor all = for_every_sample(kernel, in);
        return std::make_unique<WithConvolution>(std::move(op),
                                                 all.reshape({1, all.batch(), all.cols()}),
                                                 powers ? no_power_logits : no_logits);
    }};

}  // namespace tsdiag::variants
