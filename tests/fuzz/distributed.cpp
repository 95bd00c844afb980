#include "fuzz.hpp"

/// What torch.distributed.checkpoint saves: the index and the files of two processes.

using namespace tsdiag;

void examine(std::string_view input) {
    const auto files = fuzz::parts(input, 3);
    const char* names[] = {".metadata", "__0_0.distcp", "__1_0.distcp"};
    for (std::size_t i = 0; i < 3; ++i) fuzz::folder().write(names[i], files[i]);
    std::unique_ptr<Checkpoint> file;
    if (!fuzz::accepts([&] { file = open_checkpoint(fuzz::folder().path()); })) return;
    fuzz::accepts([&] { fuzz::read_all(*file); });
    std::vector<std::string> notes;
    fuzz::accepts([&] { unwrap(std::move(file), &notes); });
}
