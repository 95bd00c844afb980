#include <array>

#include "callables.hpp"
#include "directory.hpp"
#include "looks_like.hpp"
#include "mapped_file.hpp"
#include "tsdiag/checkpoint.hpp"

namespace tsdiag {
namespace checkpoint {

extern const FormatEntry safetensors;
extern const FormatEntry npz;
extern const FormatEntry npy;
extern const FormatEntry torch_zip;
extern const FormatEntry torch_legacy;
extern const FormatEntry gguf;
extern const FormatEntry flax;
extern const FormatEntry llama2c;

}  // namespace checkpoint

/// The list of formats, in the order in which they are tried: npz before torch zip, which accepts
/// any zip; those without a magic last.
std::span<const FormatEntry* const> formats() {
    static constexpr std::array list = {
        &checkpoint::gguf,       //
        &checkpoint::npz,        //
        &checkpoint::npy,        //
        &checkpoint::torch_zip,  //
        &checkpoint::torch_legacy, &checkpoint::safetensors,
        &checkpoint::flax,         &checkpoint::llama2c,
    };
    return list;
}

namespace checkpoint {

constexpr std::size_t head_size = 4096;

const FormatEntry* find_format(Bytes file) {
    const Bytes head = file.first(std::min(head_size, file.size()));
    for (const FormatEntry* format : formats())
        if (format->sniff(head)) return format;
    return nullptr;
}

std::unique_ptr<Checkpoint> open_file(const std::filesystem::path& path) {
    const auto file = MappedFile::open(path);
    const FormatEntry* format = find_format(file->bytes());
    if (format == nullptr) {
        const std::string asks = foreign_pickle(file->bytes(), file->path());
        refuse(file->path(),
               !asks.empty()
                   ? asks
                   : looks_like(file->bytes().first(std::min(head_size, file->bytes().size()))));
    }
    return format->open(path);
}

}  // namespace checkpoint

std::unique_ptr<Checkpoint> open_checkpoint(const std::filesystem::path& path) {
    std::error_code error;
    if (std::filesystem::is_directory(path, error)) return checkpoint::open_directory(path);
    if (path.string().ends_with(".index.json")) return checkpoint::open_shards(path);
    if (path.string().ends_with(checkpoint::tensorflow_ending))
        return checkpoint::open_tensorflow(path);
    checkpoint::refuse_deepspeed_part(path);
    return checkpoint::open_file(path);
}

}  // namespace tsdiag
