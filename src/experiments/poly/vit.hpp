#pragma once
#include <array>
#include <optional>

#include "training.hpp"
#include "tsdiag/intervals.hpp"

/// Shared by the trainings of [POLY]: a small ViT with a polynomial in place of the softmax.
namespace tsdiag::experiment_list {

constexpr ExperimentKey key_vit_image = key_image("8", "16", "64");
constexpr ExperimentKey key_vit_d = key_d("8", "48", "192");
constexpr ExperimentKey key_vit_heads = key_heads("2", "3", "3");
constexpr ExperimentKey key_classes(std::string_view quick, std::string_view paper) {
    return whole_key("classes", "2", quick, paper, "directions of the gratings", 2, 1000);
}

/// An activation of attention in the tables: softmax, or x^p without a scale, with 1/sqrt(N), or
/// with a learned one that begins there ("dynamic"); N: the patches, or the tokens.
struct PolyActivation {
    enum class Scale { none, fixed, dynamic };
    Index power = 0;  ///< 0: softmax
    Scale scale = Scale::none;

    std::string name() const;                ///< "x^3 + fixed scale"
    std::string options(Index count) const;  ///< of `polynomial`, behind a comma: ",p=3,scale=..."
};
/// x^p without a scale, with a fixed and with a dynamic one.
std::array<PolyActivation, 3> poly_activations(Index power);
/// log10 of the learned scales of a run over 1/sqrt(count), mean over the layers; nothing: none is.
std::optional<double> learned_scale(const Outcome& run, Index count);

/// What [ViT] Table 3 says of ImageNet beside batch and rate: 10000 of 93835 updates of warm-up
/// (300 epochs), decay 0.3, dropout 0.1, gradients clipped to norm 1.
void vit_recipe(TrainOptions& options);

/// random:deit-tiny of the setting with patches of "4" or "32x16" pixels.
std::string vit(const ExperimentSetting& setting, const std::string& patch,
                const std::string& attention);
/// The number of patches of an image.
Index patches_of(const ExperimentSetting& setting, const std::string& patch);
/// The default data.
std::string gratings(const ExperimentSetting& setting);

}  // namespace tsdiag::experiment_list
