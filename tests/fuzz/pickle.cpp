#include "checkpoint/torch_objects.hpp"
#include "fuzz.hpp"

/// A pickle, and its tensors and metadata, over storages of zeros.

using namespace tsdiag;
using namespace tsdiag::checkpoint;

namespace {

Storage zeros(const StorageId& id) {
    static const auto memory = std::make_shared<std::vector<std::byte>>(4096);
    const auto bytes = times(id.count, std::int64_t(id.width));
    if (!bytes || std::uint64_t(*bytes) > memory->size())
        refuse("pickle", "has a storage of many elements");
    return {Bytes(*memory).first(id.width == 0 ? memory->size() : std::size_t(*bytes)), memory,
            (id.key.size() & 1) != 0};
}

}  // namespace

void examine(std::string_view input) {
    fuzz::accepts([&] {
        const Pickle pickle = read_pickle(std::as_bytes(std::span(input)), "pickle");
        Budget budget("pickle", input.size());
        ListedCheckpoint listed("pickle", "pickle");
        list_objects(pickle, zeros, budget, listed);
        fuzz::read_all(listed);
    });
}
