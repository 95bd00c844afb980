#include "images.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tsdiag::families {
namespace {

void require_size(Reader& r, std::string_view key, Index height, Index width) {
    constexpr Index most = 1'000'000;
    if (std::min(height, width) < 1 || std::max(height, width) > most)
        r.refuse(fmt::format("the configuration's {} is not a size from 1 to {}", key, most));
}

/// A size in the config: one number or [height, width]; 0: not given.
std::pair<Index, Index> told_size(Reader& r, Words keys) {
    const Json& said = r.value(keys);
    if (said.is_null()) return {0, 0};
    std::pair<Index, Index> out;
    if (said.is_array() && said.array().size() == 2) {
        out = {said.array()[0].integer(), said.array()[1].integer()};
    } else {
        out.first = out.second = r.count(keys, 0);
    }
    require_size(r, *keys.begin(), out.first, out.second);
    return out;
}

/// The side of a square of `count` cells; 0: not a square.
Index square_side(Index count) {
    if (count < 1) return 0;
    const auto side = Index(std::llround(std::sqrt(double(count))));
    return side * side == count ? side : 0;
}

}  // namespace

void read_patch_kernel(Reader& r, const std::string& weight) {
    ModelSpec& s = r.spec;
    s.width = s.embedding.width = r.agreed({"hidden_size"}, r.extent(weight, 0), weight);
    s.embedding.image.channels = r.agreed({"num_channels"}, r.extent(weight, 1), weight);
    s.embedding.image.patch_height = r.extent(weight, 2);
    s.embedding.image.patch_width = r.extent(weight, 3);
    const auto [height, width] = told_size(r, {"patch_size"});
    if (height > 0 &&
        (height != s.embedding.image.patch_height || width != s.embedding.image.patch_width))
        r.refuse(fmt::format(
            "the configuration says patches of {} x {}, but the kernel '{}{}' is {} x {}", height,
            width, r.prefix(), weight, s.embedding.image.patch_height,
            s.embedding.image.patch_width));
}

void read_grid(Reader& r, Index rows) {
    ModelSpec& s = r.spec;
    const Index prefix = s.embedding.prefix_has_position ? s.embedding.prefix_tokens : 0;
    const Index patches = rows - prefix;
    const auto [height, width] = told_size(r, {"image_size", "img_size"});
    if (height > 0 && width > 0) {
        if ((height / s.embedding.image.patch_height) * (width / s.embedding.image.patch_width) !=
            patches)
            r.refuse(
                fmt::format("the configuration says images of {} x {}, but the position table has "
                            "{} patches of {} x {}",
                            height, width, patches, s.embedding.image.patch_height,
                            s.embedding.image.patch_width));
        s.embedding.image.height = height;
        s.embedding.image.width = width;
        return;
    }
    const Index side = square_side(patches);
    if (side == 0)
        r.refuse(
            fmt::format("{} positions and {} prefix tokens leave no square of patches, and no "
                        "configuration gives the image_size",
                        rows, prefix));
    s.embedding.image.height = side * s.embedding.image.patch_height;
    s.embedding.image.width = side * s.embedding.image.patch_width;
    r.took(fmt::format("image {} x {}: a square that fits the position table",
                       s.embedding.image.height, s.embedding.image.width));
}

void read_image_size(Reader& r, Index side) {
    ModelSpec& s = r.spec;
    auto [height, width] = told_size(r, {"image_size", "img_size"});
    const Json& input = r.value({"pretrained_cfg"})["input_size"];  // timm: channels, height, width
    if (height == 0 && input.is_array() && input.array().size() == 3) {
        height = input.array()[1].integer();
        width = input.array()[2].integer();
        require_size(r, "pretrained_cfg", height, width);
    }
    if (height == 0) {
        height = width = side;
        r.took(
            fmt::format("image_size {} x {} without pretrained_cfg: no tensor determines it, and "
                        "other multiples of the patch size work as well",
                        side, side));
    }
    if (height % s.embedding.image.patch_height != 0 || width % s.embedding.image.patch_width != 0)
        r.refuse(fmt::format(
            "the configuration's images of {} x {} are not a multiple of the patch, {} x {}",
            height, width, s.embedding.image.patch_height, s.embedding.image.patch_width));
    s.embedding.image.height = height;
    s.embedding.image.width = width;
}

void check_timm_arguments(const Reader& r) {
    const Json& said = r.value({"model_args"});
    if (!said.is_object()) return;
    constexpr std::array shown{"img_size",       "num_classes",      "global_pool",
                               "init_values",    "reg_tokens",       "class_token",
                               "no_embed_class", "dynamic_img_size", "patch_size"};
    for (const auto& [key, value] : said.object())
        if (!value.is_null() && std::ranges::find(shown, key) == shown.end())
            r.refuse(fmt::format("{} has model_args with '{}' ({}), which is not supported",
                                 r.config_source(), key, value.dump()));
}

}  // namespace tsdiag::families
