#include "fuzz.hpp"
#include "tsdiag/families.hpp"
#include "tsdiag/layouts.hpp"

/// The index and the data file of a TensorFlow checkpoint: opened, read, renamed and recognised.

using namespace tsdiag;

void examine(std::string_view input) {
    const std::vector<std::string_view> both = fuzz::parts(input, 2);
    const std::string path = fuzz::folder().write("fuzzed.index", both[0]);
    fuzz::folder().write("fuzzed.data-00000-of-00001", both[1]);
    std::shared_ptr<const Checkpoint> file;
    if (!fuzz::accepts([&] { file = open_checkpoint(path); })) return;
    fuzz::accepts([&] { fuzz::read_all(*file); });
    fuzz::accepts([&] {
        DetectOptions options;
        std::vector<std::string> notes;
        detect(*apply_layout(file, options.config, notes), options);
    });
}
