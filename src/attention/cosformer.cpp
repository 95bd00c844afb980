#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "factored.hpp"
#include "features.hpp"

namespace tsdiag::variants {
namespace {

/// [relu(x) sin(pi i / 2M), relu(x) cos(pi i / 2M)], i = 1 .. M.
Tensor weighted(const Tensor& x, const std::vector<double>& position, double length) {
    const Index w = x.cols();
    return map_rows(
        x, 2 * w, [&](Index, Index i, std::span<const double> in, std::span<double> out) {
            const double at =
                1 + (position.empty() ? double(i) : position[static_cast<std::size_t>(i)]);
            const double angle = std::numbers::pi / 2 * at / length;
            // At i = M the cosine is 0, and rounding must not make it negative.
            const double s = std::sin(angle), c = std::max(0.0, std::cos(angle));
            for (std::size_t k = 0; k < in.size(); ++k) {
                const double positive = std::max(0.0, in[k]);
                out[k] = positive * s;
                out[k + in.size()] = positive * c;
            }
        });
}

constexpr std::array option_list{
    AttentionOption{.name = "clamp",
                    .fallback = "0",
                    .numbers = true,
                    .most = 1,
                    .description = "the least denominator: 0 as in the text, 1e-6 in the released "
                                   "code"}};

}  // namespace

extern const AttentionEntry cosformer;
const AttentionEntry cosformer = {
    .name = "cosformer",
    .description =
        "P_ij = relu(q_i) . relu(k_j) cos(pi (i - j) / 2n) / row sums; a row without "
        "features is 0; the scale of the logits is not used",
    .source = "[COSFORMER]",
    .options = option_list,
    .facts = {.row_stochastic = Holds::sometimes,
              .factors = Holds::always,
              .slope = Holds::sometimes,
              .window = false},
    .make = [](AttentionInput in) {
        const Options options(cosformer, in.options);
        require_fit(in);
        refuse_window(cosformer, in);
        refuse_bias(cosformer, in);
        const double last = in.position.empty() ? 0 : in.position.back() + 1;
        const double length = std::max(double(in.q.rows()), last);
        return factored_attention(
            cosformer, weighted(in.q, in.position, length), weighted(in.k, in.position, length),
            in.causal,
            {.divide = true, .least = options.number("clamp").value_or(0), .nonnegative = true});
    }};

}  // namespace tsdiag::variants
