#include "looks_like.hpp"

#include <algorithm>
#include <array>

namespace tsdiag::checkpoint {
namespace {

struct Signature {
    std::string_view bytes;
    std::string_view sentence;
};

constexpr Signature signatures[] = {
    {"version https://git-lfs.github.com/spec/",
     "is a git-lfs pointer, not the file itself. Run `git lfs pull`, or download the file."},
    {"\x89HDF\r\n",
     "is an HDF5 file (Keras, older TensorFlow), expected a PyTorch, safetensors or NumPy "
     "checkpoint. Convert it to safetensors."},
    {"\x1f\x8b", "is packed by gzip, expected a checkpoint. Unpack it with gunzip."},
    {"\x28\xb5\x2f\xfd", "is packed by zstd, expected a checkpoint. Unpack it with unzstd."},
    {"\xfd"
     "7zXZ",
     "is packed by xz, expected a checkpoint. Unpack it with unxz."},
    {"BZh", "is packed by bzip2, expected a checkpoint. Unpack it with bunzip2."},
    {"7z\xbc\xaf", "is a 7z archive, expected a checkpoint. Unpack it."},
    {"PYTORCH1",
     "is in a format of PyTorch that was never released, expected a file of "
     "torch.save. Save it again with PyTorch 1.6 or newer."},
    {"PK\x05\x06", "is an empty zip file, expected a checkpoint. Save it again."},
    {"PK\x03\x04", "is the beginning of a zip file, expected a whole one. Download it again."},
    {"\x7f"
     "ELF",
     "is a program, expected a checkpoint. Check the path."},
};

bool starts_with_ignoring_case(std::string_view text, std::string_view lower) {
    return text.size() >= lower.size() &&
           std::equal(lower.begin(), lower.end(), text.begin(),
                      [](char l, char c) { return l == (c >= 'A' && c <= 'Z' ? c + 32 : c); });
}

/// A tar archive names its first member in its first bytes and itself at byte 257.
bool is_tar(std::string_view head) { return head.size() > 262 && head.substr(257, 5) == "ustar"; }

bool is_old_torch_tar(std::string_view head) {
    const std::string_view member = head.substr(0, std::min(head.find('\0'), head.size()));
    constexpr std::array<std::string_view, 4> parts = {"storages", "tensors", "pickle", "sys_info"};
    return std::find(parts.begin(), parts.end(), member) != parts.end();
}

bool is_text(std::string_view head) {
    return std::all_of(head.begin(), head.end(), [](char c) {
        return static_cast<unsigned char>(c) >= ' ' || c == '\n' || c == '\r' || c == '\t';
    });
}

}  // namespace

std::string looks_like(Bytes bytes) {
    const std::string_view head = text_of(bytes);
    if (head.empty())
        return "is empty (0 bytes), expected a checkpoint. Download or save it again.";
    for (const Signature& signature : signatures)
        if (head.starts_with(signature.bytes)) return std::string(signature.sentence);
    if (is_tar(head))
        return is_old_torch_tar(head)
                   ? "is a tar of PyTorch 0.1, which is not supported, expected a file of a newer "
                     "torch.save. Load it with PyTorch before 2.0 and save it again."
                   : "is a tar archive, expected a checkpoint. Unpack it.";
    if (head.size() > 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5)
        return "is a plain Python pickle, expected a file of torch.save. Load it in Python, and "
               "save its tensors with torch.save or as safetensors.";
    const std::size_t first = head.find_first_not_of(" \t\r\n");
    const std::string_view text =
        head.substr(first == std::string_view::npos ? head.size() : first);
    if (starts_with_ignoring_case(text, "<!doctype html") ||
        starts_with_ignoring_case(text, "<html"))
        return "is a web page (HTML), not the file itself: the download asked for a login or "
               "failed. Download it again.";
    if (is_text(head))
        return text.starts_with('{') || text.starts_with('[')
                   ? "is JSON text, expected a checkpoint. Name the model's file, or the index "
                     "*.index.json of its shards."
                   : "is text, expected a checkpoint. Check the path.";
    return "is no checkpoint that is known (safetensors, PyTorch, NumPy), by its first bytes. "
           "Check "
           "the path, or whether the download is complete.";
}

}  // namespace tsdiag::checkpoint
