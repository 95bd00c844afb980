#pragma once
#include <stdlib.h>

#include <bit>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// Files that tests write and read.
namespace tsdiag::test {

/// A temporary directory, removed by its destructor.
class TemporaryDirectory {
  public:
    TemporaryDirectory() {
        std::string pattern =
            (std::filesystem::temp_directory_path() / "tsdiag-test-XXXXXX").string();
        path_ = mkdtemp(pattern.data());
    }
    ~TemporaryDirectory() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
    const std::filesystem::path& path() const { return path_; }
    std::string operator/(const std::string& name) const { return (path_ / name).string(); }

  private:
    std::filesystem::path path_;
};

inline std::string read_file(const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void write_file(const std::filesystem::path& file, std::string_view text) {
    std::ofstream(file, std::ios::binary).write(text.data(), std::streamsize(text.size()));
}

/// A .npy file, version 1.0, of little-endian elements.  `descr`: "<f8", "<i8", ...
template <class T>
void write_npy(const std::filesystem::path& file, std::string_view descr,
               const std::vector<std::int64_t>& shape, std::span<const T> values) {
    static_assert(std::endian::native == std::endian::little);
    std::string axes;
    for (const std::int64_t extent : shape) axes += std::to_string(extent) + ", ";
    std::string header = "{'descr': '" + std::string(descr) +
                         "', 'fortran_order': False, 'shape': (" + axes + "), }";
    header.resize((10 + header.size() + 1 + 63) / 64 * 64 - 10 - 1, ' ');
    header += '\n';
    std::string text = "\x93NUMPY";
    text += {'\1', '\0', char(header.size() & 0xff), char(header.size() >> 8)};
    text += header;
    text.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
    write_file(file, text);
}

}  // namespace tsdiag::test
