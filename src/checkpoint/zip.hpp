#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "budget.hpp"
#include "bytes.hpp"
#include "mapped_file.hpp"

namespace tsdiag::checkpoint {

/// In a field of 32 bits: its value is in the zip64 extra.
inline constexpr std::uint32_t in_zip64 = 0xffffffff;

struct ZipEntry {
    std::string name;
    std::uint16_t method = 0;  ///< 0 stored, 8 deflated
    bool encrypted = false;
    std::uint32_t crc = 0;     ///< 0: not computed, an option of torch.save
    std::uint64_t packed = 0;  ///< bytes in the file
    std::uint64_t size = 0;    ///< bytes of the content
    std::uint64_t header = 0;  ///< offset of the local header
};

/// Bytes and their owner: the mapping, or memory they were inflated into.
struct Payload {
    Bytes bytes;
    std::shared_ptr<const void> owner;
};

/// The directory of a zip file.  Sizes come from the central directory (local headers may leave
/// them 0), payload offsets from the local headers.
class ZipArchive {
  public:
    /// Throws `FormatError` where the directory is damaged, has equal names, or payloads that
    /// overlap.
    explicit ZipArchive(std::shared_ptr<const MappedFile> file);
    /// The zip file that a part of `file` is.
    ZipArchive(std::shared_ptr<const MappedFile> file, Bytes part);

    const std::vector<ZipEntry>& entries() const { return entries_; }
    const ZipEntry* find(const std::string& name) const;
    const std::string& path() const { return file_->path(); }

    /// The content: in place where it is stored, else inflated.  The checksum of stored content is
    /// checked when its owner is verified.  Throws `FormatError` where the entry is damaged,
    /// encrypted, compressed otherwise, or inflates beyond the budget of the file.
    Payload payload(const ZipEntry& entry);
    /// The first bytes of the content, at most `count`, without checking the checksum.
    Payload head(const ZipEntry& entry, std::uint64_t count);
    /// The content, with its checksum verified.
    Payload verified(const ZipEntry& entry);

    Budget& budget() { return budget_; }

  private:
    Bytes packed_bytes(const ZipEntry& entry) const;
    Bytes stored_bytes(const ZipEntry& entry) const;
    Payload inflated(const ZipEntry& entry, std::uint64_t wanted);
    void read_entry(ByteReader& directory);

    std::shared_ptr<const MappedFile> file_;
    Bytes bytes_;
    Budget budget_;
    std::vector<ZipEntry> entries_;
    std::unordered_map<std::string, std::size_t> by_name_;
};

/// The name in the first local header of a zip file, as far as `head` shows it; empty for no zip.
std::string_view first_zip_name(Bytes head);

}  // namespace tsdiag::checkpoint
