#pragma once
#include <filesystem>
#include <fstream>
#include <span>
#include <string_view>

#include "bytes.hpp"
#include "tsdiag/checkpoint.hpp"

namespace tsdiag::checkpoint {

/// A file that appears atomically under its name when complete; an incomplete one is removed.
class WrittenFile {
  public:
    /// Throws `UsageError` where it cannot be created.
    explicit WrittenFile(const std::filesystem::path& path);
    ~WrittenFile();
    WrittenFile(const WrittenFile&) = delete;
    WrittenFile& operator=(const WrittenFile&) = delete;

    void write(Bytes bytes);
    void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
    std::uint64_t position() const { return position_; }
    /// Renames the file to its final name.  Throws `Error` where not everything could be written.
    void finish();

  private:
    std::filesystem::path path_, temporary_;
    std::ofstream out_;
    std::uint64_t position_ = 0;
    bool finished_ = false;
};

/// Appends an integer, little-endian.
template <class T>
void append(std::string& out, T value) {
    out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// The elements of `array`.  Throws `UsageError` where its shape does not fit them, or where a name
/// of `arrays` occurs twice or is `reserved`.
Bytes bytes_of_array(const NamedArray& array);
void check_names(std::span<const NamedArray> arrays, std::string_view reserved);
inline bool is_double(const NamedArray& array) { return !array.f64.empty(); }

}  // namespace tsdiag::checkpoint
