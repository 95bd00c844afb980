#include "looks_like.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace tsdiag::checkpoint {
namespace {

struct Signature {
    std::string_view bytes;
    std::string_view sentence;
};

constexpr std::string_view sound =
    "is sound, which no family takes. Save what the model makes of it before its first layer, "
    "(tokens, width), as .npy, and pass that with the model by --input hidden:FILE.npy.";
constexpr std::string_view picture =
    "is a picture, expected a checkpoint. Pass a model of images, and the picture by --images "
    "FILE.";

constexpr Signature signatures[] = {
    {"version https://git-lfs.github.com/spec/",
     "is a git-lfs pointer, not the file itself. Run `git lfs pull`, or download the file."},
    {"\x89HDF\r\n",
     "is an HDF5 file (Keras, older TensorFlow), expected a PyTorch, safetensors or NumPy "
     "checkpoint. Convert it to safetensors."},
    {"\x1f\x8b", "is compressed with gzip, expected a checkpoint. Unpack it with gunzip."},
    {"\x28\xb5\x2f\xfd", "is compressed with zstd, expected a checkpoint. Unpack it with unzstd."},
    {"\xfd"
     "7zXZ",
     "is compressed with xz, expected a checkpoint. Unpack it with unxz."},
    {"BZh", "is compressed with bzip2, expected a checkpoint. Unpack it with bunzip2."},
    {"7z\xbc\xaf", "is a 7z archive, expected a checkpoint. Unpack it."},
    {"PYTORCH1",
     "is in a PyTorch format that was never released, expected a file from torch.save. Save it "
     "again with PyTorch 1.6 or newer."},
    {"PK\x05\x06", "is an empty zip file, expected a checkpoint. Save it again."},
    {"PK\x03\x04", "is a truncated zip file, expected a complete one. Download it again."},
    {"\x7f"
     "ELF",
     "is an executable, expected a checkpoint. Check the path."},
    // Little-endian words of llama.cpp before GGUF.
    {"tjgg",
     "is a GGJT file of llama.cpp before GGUF, expected a checkpoint. Use the original model."},
    {"fmgg",
     "is a GGMF file of llama.cpp before GGUF, expected a checkpoint. Use the original model."},
    {"lmgg",
     "is a GGML file (llama.cpp before GGUF, whisper.cpp), expected a checkpoint. Use the original "
     "model."},
    {"algg",
     "is a GGLA file of llama.cpp, an adapter without its model, expected a checkpoint. Use the "
     "original model and adapter."},
    {"PAR1", "is a Parquet table, expected a checkpoint. Check the path."},
    {"Rar!", "is a RAR archive, expected a checkpoint. Unpack it."},
    {"\x04\x22\x4d\x18", "is compressed with lz4, expected a checkpoint. Unpack it with unlz4."},
    {"SQLite format 3", "is an SQLite database, expected a checkpoint. Check the path."},
    {"%PDF", "is a PDF document, expected a checkpoint. Check the path."},
    {"fLaC", sound},
    {"OggS", sound},
    {"ID3", sound},
    {"\x89PNG", picture},
    {"\xff\xd8\xff", picture},
};

bool starts_with_ignoring_case(std::string_view text, std::string_view lower) {
    return text.size() >= lower.size() &&
           std::equal(lower.begin(), lower.end(), text.begin(),
                      [](char l, char c) { return l == (c >= 'A' && c <= 'Z' ? c + 32 : c); });
}

/// A tar archive begins with the name of its first member and has its magic at byte 257.
bool is_tar(std::string_view head) { return head.size() > 262 && head.substr(257, 5) == "ustar"; }

bool is_old_torch_tar(std::string_view head) {
    const std::string_view member = head.substr(0, std::min(head.find('\0'), head.size()));
    constexpr std::array<std::string_view, 4> parts = {"storages", "tensors", "pickle", "sys_info"};
    return std::find(parts.begin(), parts.end(), member) != parts.end();
}

bool is_ascii(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

/// Protocols 2 to 5 have a header; 0 and 1 begin with a container, a number or the name of a class.
bool is_pickle(std::string_view head) {
    if (head.size() < 3) return false;
    if (head[0] == '\x80') return head[1] >= 2 && head[1] <= 5;
    const std::string_view two = head.substr(0, 2);
    if (two == "(d" || two == "(l" || two == "(t") return head[2] == 'p';
    if (two == "}q" || two == "]q") return head[2] == '\0';
    if (head[0] != 'c') return false;  // "cmodule\nname\n"
    const std::size_t end = head.find('\n'), next = head.find('\n', end + 1);
    return next < 200 && is_ascii(head.substr(1, end - 1)) &&
           is_ascii(head.substr(end + 1, next - end - 1)) && next + 1 < head.size();
}

/// A message of protocol buffers: the version of the format, from 3 on, then the name or the
/// version of what wrote it, its domain, the graph, or a set of operators.
bool is_onnx(std::string_view head) {
    constexpr std::string_view next = "\x12\x1a\x22\x3a\x42";
    constexpr char newest = 64;
    return head.size() > 8 && head[0] == '\x08' && head[1] >= 3 && head[1] <= newest &&
           next.find(head[2]) != std::string_view::npos;
}

bool is_text(std::string_view head) {
    return std::all_of(head.begin(), head.end(), [](char c) {
        return static_cast<unsigned char>(c) >= ' ' || c == '\n' || c == '\r' || c == '\t';
    });
}

}  // namespace

bool begins_as_msgpack(std::string_view head) {
    const auto byte = [&](std::size_t i) {
        return i < head.size() ? static_cast<unsigned char>(head[i]) : 0u;
    };
    const bool short_map = byte(0) > 0x80 && byte(0) <= 0x8f;
    const std::size_t key = short_map ? 1 : byte(0) == 0xde ? 3 : byte(0) == 0xdf ? 5 : 0;
    if (key == 0) return false;
    const bool short_text = byte(key) > 0xa0 && byte(key) <= 0xbf;
    const std::size_t length = short_text ? byte(key) & 0x1f : byte(key + 1);
    const std::size_t begin = key + (short_text ? 1 : 2);
    return (short_text || byte(key) == 0xd9) && length > 0 && begin + length < head.size() &&
           is_ascii(head.substr(begin, length));
}

bool begins_as_llama2c(std::string_view head) {
    if (head.starts_with("24ka")) return true;
    std::array<std::int32_t, 7>
        n{};  // width, feed-forward, layers, heads, key heads, words, tokens
    if (head.size() <= sizeof n) return false;
    std::memcpy(n.data(), head.data(), sizeof n);
    const auto between = [](std::int64_t x, std::int64_t low, std::int64_t high) {
        return low <= x && x <= high;
    };
    // The vocabulary is negative where the output matrix is not the embedding.
    return between(n[0], 8, 1 << 16) && between(n[1], n[0], 1 << 20) && between(n[2], 1, 512) &&
           between(n[3], 1, 512) && between(n[4], 1, n[3]) && n[0] % n[3] == 0 &&
           n[3] % n[4] == 0 && between(std::abs(std::int64_t{n[5]}), 16, 1 << 20) &&
           between(n[6], 1, 1 << 24);
}

std::string looks_like(Bytes bytes) {
    const std::string_view head = text_of(bytes);
    if (head.empty())
        return "is empty (0 bytes), expected a checkpoint. Download or save it again.";
    for (const Signature& signature : signatures)
        if (head.starts_with(signature.bytes)) return std::string(signature.sentence);
    if (head.starts_with("RIFF") && head.size() > 12)  // a container of both
        if (const std::string_view kind = head.substr(8, 4); kind == "WAVE" || kind == "WEBP")
            return std::string(kind == "WAVE" ? sound : picture);
    if (is_tar(head))
        return is_old_torch_tar(head)
                   ? "is a tar file from PyTorch 0.1, which is not supported, expected a newer "
                     "torch.save file. Load it with PyTorch before 2.0 and save it again."
                   : "is a tar archive, expected a checkpoint. Unpack it.";
    if (is_pickle(head))
        return "is a plain Python pickle, expected a file from torch.save. Load it in Python, and "
               "save its tensors with torch.save or as safetensors.";
    const std::size_t first = head.find_first_not_of(" \t\r\n");
    const std::string_view text =
        head.substr(first == std::string_view::npos ? head.size() : first);
    if (starts_with_ignoring_case(text, "<!doctype html") ||
        starts_with_ignoring_case(text, "<html"))
        return "is a web page (HTML), not the file itself: the download failed or required a "
               "login. Download it again.";
    if (is_text(head))
        return text.starts_with('{') || text.starts_with('[')
                   ? "is JSON text, expected a checkpoint. Pass the model file, or the index "
                     "*.index.json of its shards."
                   : "is text, expected a checkpoint. Check the path.";
    if (head.size() > 8 && head.substr(4, 4) == "TFL3")
        return "is a TensorFlow Lite model, expected a checkpoint. Use the original model.";
    if (is_onnx(head)) return "is an ONNX model, expected a checkpoint. Use the original model.";
    return "is not in a known checkpoint format (safetensors, PyTorch, NumPy). Check the path, and "
           "whether the download is complete.";
}

}  // namespace tsdiag::checkpoint
