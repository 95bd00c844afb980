#pragma once
#include <filesystem>
#include <memory>
#include <string>

#include "bytes.hpp"
#include "owner.hpp"

namespace tsdiag::checkpoint {

/// A read-only mapping of a whole file.  Spans into it live as long as a pointer to it does.
/// For reads beyond the end of a truncated file see `watch_mapped_files`.
class MappedFile final : public Owner {
  public:
    /// Throws `FormatError` where `path` cannot be opened or is no regular file.
    static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path);

    Bytes bytes() const { return bytes_; }
    const std::string& path() const { return path_; }

    bool mapped() const override { return true; }

  private:
    MappedFile() = default;
    ~MappedFile() override;

    Bytes bytes_;
    std::string path_;
};

/// Drops the whole pages inside `bytes`, which must be mapped; they are read again when needed.
void drop_pages(Bytes bytes);

}  // namespace tsdiag::checkpoint
