#pragma once
#include "support.hpp"

/// Shared by the experiments of [TSE] on encoders at initialisation.
namespace tsdiag::experiment_list {

inline constexpr ExperimentKey key_tokens = whole_key("tokens", "8", "64", "64", "tokens n", 2);
inline constexpr ExperimentKey key_var_v{
    .name = "var_v",
    .tiny = "1/d",
    .quick = "1/d",
    .paper = "1/d",
    .description = "variance of W_V: the paper's text says h/d, its figures need 1/d",
    .words = "1/d h/d xavier torch",
    .whole = false,
    .least = 1e-12,
    .most = 1e6};
inline constexpr ExperimentKey key_out_proj =
    word_key("out_proj", "0", "0", "0", "1: an output projection with PyTorch's default", "0 1");
/// d, heads and ffn: those of the paper at both scales, and at quick scale half of them.
inline constexpr std::array full_sizes{key_d("16", "512", "512"), key_heads("2", "8", "8"),
                                       key_ffn("32", "2048", "2048")};
inline constexpr std::array half_sizes{key_d("16", "256", "512"), key_heads("2", "4", "8"),
                                       key_ffn("32", "1024", "2048")};
/// All that an encoder has, and `more`.
template <class... Keys>
constexpr auto encoder_keys(const std::array<ExperimentKey, 3>& sizes, const ExperimentKey& layers,
                            const Keys&... more) {
    return joined(std::array{layers, key_tokens}, sizes,
                  std::array{key_var_v, key_out_proj, more...});
}

/// `encoder` with the setting's var_v and out_proj.
std::string drawn_encoder(const ExperimentSetting& setting, std::string_view kind,
                          const std::string& more = "");
/// `branch_gain` of it.
double branch_gain(const ExperimentSetting& setting);

}  // namespace tsdiag::experiment_list
