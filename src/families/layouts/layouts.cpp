#include "layouts.hpp"

#include <array>

#include "tsdiag/layouts.hpp"

namespace tsdiag {
namespace {

constexpr std::array name_layouts{&families::flax_names, &families::google_vit,
                                  &families::gpt_oss_names, &families::tensorflow_bert,
                                  &families::transformer_lens_names};

}  // namespace

std::vector<std::string_view> layout_titles() {
    std::vector<std::string_view> out;
    for (const families::Layout* layout : name_layouts) out.push_back(layout->title);
    return out;
}

std::shared_ptr<const Checkpoint> apply_layout(std::shared_ptr<const Checkpoint> file, Json& config,
                                               std::vector<std::string>& notes) {
    for (const families::Layout* layout : name_layouts) {
        if (!layout->matches(*file)) continue;
        auto out = std::make_shared<families::Relabelled>(file);
        notes.push_back(layout->rename(*file, *out, config));
        return out;
    }
    return file;
}

}  // namespace tsdiag
