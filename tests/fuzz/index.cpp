#include "fuzz.hpp"
#include "support/places.hpp"

/// The index of shards, beside two shards that are whole.

using namespace tsdiag;

namespace {

std::filesystem::path directory() {
    static const std::filesystem::path made = [] {
        const std::filesystem::path from = tsdiag::test::test_data() + "/formats/sharded";
        for (const auto& entry : std::filesystem::directory_iterator(from))
            std::filesystem::copy_file(entry.path(),
                                       fuzz::folder().path() / entry.path().filename());
        return fuzz::folder().path();
    }();
    return made;
}

}  // namespace

void examine(std::string_view input) {
    directory();
    fuzz::folder().write("model.safetensors.index.json", input);
    fuzz::accepts([] { fuzz::read_all(*open_checkpoint(directory())); });
}
