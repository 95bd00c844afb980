#include "images.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tsdiag::families {
namespace {

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
    constexpr Index most = 1'000'000;
    if (std::min(out.first, out.second) < 1 || std::max(out.first, out.second) > most)
        r.refuse(
            fmt::format("the configuration's {} is not a size from 1 to {}", *keys.begin(), most));
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
    s.width = s.embedding_width = r.agreed({"hidden_size"}, r.extent(weight, 0), weight);
    s.channels = r.agreed({"num_channels"}, r.extent(weight, 1), weight);
    s.patch_height = r.extent(weight, 2);
    s.patch_width = r.extent(weight, 3);
    const auto [height, width] = told_size(r, {"patch_size"});
    if (height > 0 && (height != s.patch_height || width != s.patch_width))
        r.refuse(
            fmt::format("the configuration says patches of {} x {}, the kernel '{}{}' is {} x {}",
                        height, width, r.prefix(), weight, s.patch_height, s.patch_width));
}

void read_grid(Reader& r, Index rows) {
    ModelSpec& s = r.spec;
    const Index prefix = s.prefix_has_position ? s.prefix_tokens : 0;
    const Index patches = rows - prefix;
    const auto [height, width] = told_size(r, {"image_size", "img_size"});
    if (height > 0 && width > 0) {
        if ((height / s.patch_height) * (width / s.patch_width) != patches)
            r.refuse(fmt::format(
                "the configuration says images of {} x {}, which are not the {} patches of {} x {} "
                "that the table of positions has",
                height, width, patches, s.patch_height, s.patch_width));
        s.image_height = height;
        s.image_width = width;
        return;
    }
    const Index side = square_side(patches);
    if (side == 0)
        r.refuse(
            fmt::format("{} positions and {} prefix tokens leave no square of patches, and no "
                        "configuration tells the image_size",
                        rows, prefix));
    s.image_height = side * s.patch_height;
    s.image_width = side * s.patch_width;
    r.took(fmt::format("image {} x {}: a square that fits the table of positions", s.image_height,
                       s.image_width));
}

}  // namespace tsdiag::families
