#include "fuzz.hpp"
#include "support/places.hpp"
#include "tsdiag/families.hpp"
#include "tsdiag/layouts.hpp"

/// A map of names for a golden model: applied, its tensors read, and recognised.

using namespace tsdiag;

void examine(std::string_view input) {
    static const std::shared_ptr<const Checkpoint> file =
        open_checkpoint(std::filesystem::path(test::test_data()) / "golden/gpt2/model.safetensors");
    fuzz::accepts([&] {
        DetectOptions options;
        const std::shared_ptr<const Checkpoint> mapped =
            apply_map(file, input, "a.map", options.config);
        fuzz::read_all(*mapped);
        detect(*mapped, options);
    });
}
