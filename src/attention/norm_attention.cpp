#include <array>

#include "factored.hpp"
#include "features.hpp"

namespace tsdiag::variants {
namespace {

constexpr std::array norm_attention_options{
    word_option("map", "1+elu", "1+elu elu relu identity",
                "phi; identity: a model with LRPE applies phi before the rotation")};

}  // namespace

extern const AttentionEntry norm_attention = {
    .name = "norm_attention",
    .description =
        "P = phi(Q) phi(K)^T, not normalised; a norm of P V (heads concatenated) follows, which "
        "the metrics of P do not include; the scale of the logits is unused",
    .source = "[DEVIL] (14)",
    .options = norm_attention_options,
    .facts = {.negative_entries = Holds::sometimes, .factors = Holds::always, .window = false},
    .output_norm = "rms",
    .make = [](AttentionInput in) {
        const Options options(norm_attention, in.options);
        admit(norm_attention, in);
        const std::string& phi = options.text("map");
        return factored_attention(norm_attention, feature_map(phi, in.q), feature_map(phi, in.k),
                                  in.causal, {.nonnegative = phi != "elu"});
    }};

}  // namespace tsdiag::variants
