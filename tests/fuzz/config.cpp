#include <algorithm>

#include "fuzz.hpp"
#include "support/places.hpp"
#include "tsdiag/families.hpp"

/// A config.json beside the tensors of one of the golden models, which the first byte chooses.

using namespace tsdiag;

namespace {

std::vector<std::unique_ptr<Checkpoint>> golden_models() {
    std::vector<std::filesystem::path> folders;
    for (const auto& entry :
         std::filesystem::directory_iterator(tsdiag::test::test_data() + "/golden"))
        if (entry.is_directory()) folders.push_back(entry.path());
    std::sort(folders.begin(), folders.end());
    std::vector<std::unique_ptr<Checkpoint>> out;
    for (const auto& folder : folders)
        fuzz::accepts([&] {
            for (const char* name : {"model.safetensors", "pytorch_model.bin"})
                if (std::filesystem::exists(folder / name))
                    return out.push_back(unwrap(open_checkpoint(folder / name), nullptr));
        });
    return out;
}

}  // namespace

void examine(std::string_view input) {
    static const std::vector<std::unique_ptr<Checkpoint>> models = golden_models();
    const Checkpoint& file = *models[fuzz::take_choice(input) % models.size()];
    fuzz::accepts([&] {
        DetectOptions options;
        options.config = Json::parse(input, "config.json");
        const Architecture found = detect(file, options);
        found.spec.json().dump();
        parameters(found.spec);
    });
}
