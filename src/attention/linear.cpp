#include <array>

#include "factored.hpp"
#include "features.hpp"

namespace tsdiag::variants {
namespace {

constexpr std::array linear_options{
    word_option("map", "1+elu", "1+elu elu relu",
                "phi; relu: a row without features is 0; elu: a row may be "
                "divided by nearly 0, or by 0, which is an error")};

}  // namespace

extern const AttentionEntry linear = {
    .name = "linear",
    .description = "P = phi(Q) phi(K)^T / row sums; the scale of the logits is unused",
    .source = "[LINEAR]",
    .options = linear_options,
    .facts = {.row_stochastic = Holds::sometimes,
              .negative_entries = Holds::sometimes,
              .factors = Holds::always,
              .slope = Holds::sometimes,
              .window = false},
    .make = [](AttentionInput in) {
        const Options options(linear, in.options);
        admit(linear, in);
        const std::string& phi = options.text("map");
        return factored_attention(linear, feature_map(phi, in.q), feature_map(phi, in.k), in.causal,
                                  {.divide = true, .nonnegative = phi != "elu"});
    }};

}  // namespace tsdiag::variants
