#include <fmt/format.h>

#include <charconv>
#include <fstream>
#include <iterator>

#include "tsdiag/file.hpp"
#include "tsdiag/output.hpp"

namespace tsdiag {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view head = "# What tsdiag wrote here; the digest of these lines is ";
constexpr std::string_view growing = "# written on behind ";
constexpr std::uintmax_t longest = std::uintmax_t(64) << 20;

bool is_digest(std::string_view text) {
    return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == text.npos;
}

/// A relative path below the folder; a manifest may have been edited.
bool is_name(std::string_view name) {
    if (name.empty() || name.front() == '/' || name.back() == '/') return false;
    for (const char c : name)
        if (static_cast<unsigned char>(c) < 0x20 || c == '\\' || c == 0x7f) return false;
    return fs::path(name).lexically_normal().string() == name && !name.starts_with("../") &&
           name != ".." && name != ".";
}

/// Are all parent folders of `name` real folders, not links?
bool lies_below(const fs::path& folder, const std::string& name) {
    std::error_code failed;
    for (std::size_t at = name.find('/'); at != std::string::npos; at = name.find('/', at + 1))
        if (!fs::is_directory(fs::symlink_status(folder / name.substr(0, at), failed)))
            return false;
    return true;
}

/// "DIGEST  NAME", "# written on behind BYTES DIGEST  NAME"
bool read_line(std::string_view line, Manifest& out) {
    Manifest::Entry entry;
    if (line.starts_with(growing)) {
        line.remove_prefix(growing.size());
        std::uint64_t bytes = 0;
        const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), bytes);
        if (error != std::errc() || end == line.data() + line.size() || *end != ' ') return false;
        line.remove_prefix(std::size_t(end - line.data()) + 1);
        entry.grows = bytes;
    }
    if (line.size() < 67 || line.substr(64, 2) != "  ") return false;
    entry.digest = line.substr(0, 64);
    const std::string name(line.substr(66));
    if (!is_digest(entry.digest) || !is_name(name) || out.lists(name)) return false;
    out.set(name, std::move(entry));
    return true;
}

}  // namespace

Manifest Manifest::parse(std::string_view text) {
    const std::size_t end = text.find('\n');
    if (end == text.npos || !text.starts_with(head)) return {};
    const std::string_view digest = text.substr(head.size(), end - head.size());
    std::string_view lines = text.substr(end + 1);
    if (digest != sha256(lines)) return {};
    Manifest out;
    while (!lines.empty()) {
        const std::size_t stop = lines.find('\n');
        if (stop == lines.npos || !read_line(lines.substr(0, stop), out)) return {};
        lines.remove_prefix(stop + 1);
    }
    return out;
}

std::string Manifest::text() const {
    std::string lines;
    for (const auto& [name, entry] : entries_) {
        if (entry.grows) lines += fmt::format("{}{} ", growing, *entry.grows);
        lines += fmt::format("{}  {}\n", entry.digest, name);
    }
    return fmt::format("{}{}\n{}", head, sha256(lines), lines);
}

Manifest Manifest::of(const fs::path& folder) {
    const fs::path path = folder / file;
    std::error_code failed;
    if (!fs::is_regular_file(fs::symlink_status(path, failed)) ||
        fs::file_size(path, failed) > longest)
        return {};
    std::ifstream in(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    return parse(text);
}

void Manifest::write(const fs::path& folder) const { write_atomically(folder / file, text()); }

bool Manifest::owns(const fs::path& folder, const std::string& name) const {
    if (const auto found = entries_.find(name); found != entries_.end())
        return lies_below(folder, name) &&
               sha256_of(folder / name, found->second.grows) == found->second.digest;
    for (std::size_t at = name.find('/'); at != std::string::npos; at = name.find('/', at + 1)) {
        const std::string below = name.substr(0, at);
        if (const std::string listed = below + "/" + file; lists(listed) && owns(folder, listed))
            return of(folder / below).owns(folder / below, name.substr(at + 1));
    }
    return false;
}

std::vector<std::string> Manifest::names(const fs::path& folder) const {
    std::vector<std::string> out;
    const std::string end = std::string("/") + file;
    for (const auto& [name, entry] : entries_) {
        if (name.ends_with(end) && owns(folder, name)) {
            const std::string below = name.substr(0, name.size() - end.size());
            for (const std::string& one : of(folder / below).names(folder / below))
                out.push_back(below + "/" + one);
        }
        out.push_back(name);
    }
    return out;
}

}  // namespace tsdiag
