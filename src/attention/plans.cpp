#include <algorithm>
#include <array>

#include "tsdiag/attention.hpp"

namespace tsdiag {

std::span<const AttentionPlan> attention_plans() {
    static const std::array plans{
        AttentionPlan{.name = "transnormer1",
                      .description =
                          "diag_attention with relu(S) in the first half of the layers, "
                          "norm_attention with elu in the second, both followed by simple_rms",
                      .source = "[DEVIL] 4, as in its code",
                      .early = {.attention = "diag_attention",
                                .options = {{"activation", "rela"}, {"block", "64"}},
                                .output_norm = "simple_rms"},
                      .late = {.attention = "norm_attention",
                               .options = {{"map", "elu"}},
                               .output_norm = "simple_rms"}},
        AttentionPlan{.name = "transnormer2",
                      .description =
                          "diag_attention with softmax and no norm in the first half of the "
                          "layers, norm_attention with 1+elu and simple_rms in the second",
                      .source = "[DEVIL] 4, as in its code",
                      .early = {.attention = "diag_attention",
                                .options = {{"activation", "softmax"}, {"block", "64"}}},
                      .late = {.attention = "norm_attention",
                               .options = {{"map", "1+elu"}},
                               .output_norm = "simple_rms"}}};
    return plans;
}

const AttentionPlan* attention_plan(std::string_view name) {
    const auto found = std::ranges::find(attention_plans(), name, &AttentionPlan::name);
    return found == attention_plans().end() ? nullptr : &*found;
}

}  // namespace tsdiag
