#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "factored.hpp"

namespace tsdiag::variants {
namespace {

/// [relu(x) sin(pi i / 2M), relu(x) cos(pi i / 2M)], i = 1 .. M.
Tensor weighted(const Tensor& x, const std::vector<double>& position, double length) {
    std::array<std::vector<double>, 2> weights;
    for (Index i = 0; i < x.rows(); ++i) {
        const double at = 1 + (position.empty() ? double(i) : position[std::size_t(i)]);
        const double angle = std::numbers::pi / 2 * at / length;
        weights[0].push_back(std::sin(angle));
        // At i = M the cosine is 0; rounding must not make it negative.
        weights[1].push_back(std::max(0.0, std::cos(angle)));
    }
    const Tensor positive = map(Unary::relu, x);
    std::vector<Tensor> parts;
    for (const std::vector<double>& w : weights)
        parts.push_back(multiply(
            positive, Tensor::from_host(x.backend(), {1, x.rows(), 1}, std::span(w), x.type())));
    return concat_cols(parts);
}

constexpr std::array cosformer_options{real_option(
    "clamp", "0", "smallest denominator: 0 as in the text, 1e-6 in the released code", 0, 1)};

AttentionCost cost_of_sines_and_cosines(const AttentionOptions&, const AttentionSizes& s) {
    return {.flops = s.pairs(2 * s.head_dim)};
}

}  // namespace

extern const AttentionEntry cosformer = {
    .name = "cosformer",
    .description =
        "P_ij = relu(q_i) . relu(k_j) cos(pi (i - j) / 2n) / row sums; a row without features is "
        "0; the scale of the logits is unused",
    .source = "[COSFORMER]",
    .options = cosformer_options,
    .facts = {.row_stochastic = Holds::sometimes,
              .factors = Holds::always,
              .slope = Holds::sometimes,
              .window = false},
    .cost = cost_of_sines_and_cosines,
    .make = [](AttentionInput in) {
        const Options options(cosformer, in.options);
        admit(cosformer, in);
        const double last = in.position.empty() ? 0 : in.position.back() + 1;
        const double length = std::max(double(in.q.rows()), last);
        return factored_attention(
            cosformer, weighted(in.q, in.position, length), weighted(in.k, in.position, length),
            in.causal,
            {.divide = true, .least = options.number("clamp").value_or(0), .nonnegative = true});
    }};

}  // namespace tsdiag::variants
