#include <fmt/format.h>

#include "mapped_file.hpp"
#include "tsdiag/checkpoint.hpp"

namespace tsdiag::checkpoint {
namespace {

constexpr std::string_view gguf_magic = "GGUF";

bool sniff_gguf(Bytes head) { return starts_with(head, gguf_magic); }

std::unique_ptr<Checkpoint> open_gguf(const std::filesystem::path& path) {
    const auto file = MappedFile::open(path);
    ByteReader in(file->bytes(), file->path());
    in.take_bytes(gguf_magic.size());
    const auto version = in.take<std::uint32_t>();
    const std::uint64_t tensors =
        version == 1 ? in.take<std::uint32_t>() : in.take<std::uint64_t>();
    if (version > 0xffff)
        throw FormatError(
            fmt::format("{}: is a GGUF file of version {:#x}, probably big-endian; "
                        "GGUF is not supported yet. Convert it to safetensors.",
                        file->path(), version));
    throw FormatError(
        fmt::format("{}: is a GGUF file (version {}, {} tensors); GGUF is not supported yet. "
                    "Convert it to safetensors, or use the original model.",
                    file->path(), version, tensors));
}

}  // namespace

extern const FormatEntry gguf;
const FormatEntry gguf = {"gguf", "GGUF, recognised and not supported yet", sniff_gguf, open_gguf};

}  // namespace tsdiag::checkpoint
