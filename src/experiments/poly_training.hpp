#pragma once
#include "training.hpp"
#include "tsdiag/intervals.hpp"

/// Shared by the trainings of [POLY]: a small ViT with a polynomial in place of the softmax.
namespace tsdiag::experiment_list {

constexpr ExperimentKey key_image{"image", "8", "16", "64", "pixels of a side"};
constexpr ExperimentKey key_vit_d{"d", "8", "48", "192", "width"};
constexpr ExperimentKey key_vit_heads{"heads", "2", "3", "3", "heads, a divisor of d"};
constexpr ExperimentKey key_classes(std::string_view quick) {
    return {.name = "classes",
            .tiny = "2",
            .quick = quick,
            .paper = "200",
            .description = "directions of the gratings",
            .least = 2,
            .most = 1000};
}

/// random:deit-tiny of the setting with patches of "4" or "32x16" pixels.
std::string vit(const ExperimentSetting& setting, const std::string& patch,
                const std::string& attention);
/// The number of patches of an image.
Index patches_of(const ExperimentSetting& setting, const std::string& patch);
/// The default data.
std::string gratings(const ExperimentSetting& setting);

}  // namespace tsdiag::experiment_list
