#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "bytes.hpp"

namespace tsdiag::checkpoint {

/// A read-only mapping of a whole file.  Spans into it live as long as a pointer to it does.
/// The file must not be shortened meanwhile: reading behind its new end ends the process (SIGBUS).
class MappedFile {
  public:
    /// Throws `FormatError` where `path` cannot be opened or is no regular file.
    static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path);

    Bytes bytes() const { return bytes_; }
    const std::string& path() const { return path_; }

    MappedFile(const MappedFile&) = delete;
    MappedFile& operator=(const MappedFile&) = delete;

  private:
    MappedFile() = default;
    ~MappedFile();
    friend struct Unmap;

    Bytes bytes_;
    std::string path_;
};

/// The deleter of every mapping: `std::get_deleter<Unmap>(owner)` tells mapped bytes from allocated
/// ones.
struct Unmap {
    void operator()(const MappedFile* file) const { delete file; }
};

/// Drops the whole pages inside `bytes`, which must be mapped; they are read again when needed.
void drop_pages(Bytes bytes);

}  // namespace tsdiag::checkpoint
