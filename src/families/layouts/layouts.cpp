#include "layouts.hpp"

#include <array>

#include "tsdiag/layouts.hpp"

namespace tsdiag {

std::shared_ptr<const Checkpoint> apply_layout(std::shared_ptr<const Checkpoint> file, Json& config,
                                               std::vector<std::string>& notes) {
    static constexpr std::array all{&families::flax_names, &families::google_vit,
                                    &families::gpt_oss_names, &families::tensorflow_bert,
                                    &families::transformer_lens_names};
    for (const families::Layout* layout : all) {
        if (!layout->matches(*file)) continue;
        auto out = std::make_shared<families::Relabelled>(file);
        notes.push_back(layout->rename(*file, *out, config));
        return out;
    }
    return file;
}

}  // namespace tsdiag
