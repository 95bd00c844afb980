#include "zip.hpp"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <mutex>

namespace tsdiag::checkpoint {
namespace {

constexpr std::string_view local_magic = "PK\x03\x04";
constexpr std::string_view central_magic = "PK\x01\x02";
constexpr std::string_view end_magic = "PK\x05\x06";
constexpr std::string_view end64_magic = "PK\x06\x06";
constexpr std::string_view locator64_magic = "PK\x06\x07";
constexpr std::size_t end_size = 22, end64_size = 56, locator64_size = 20;
constexpr std::size_t local_size = 30, central_size = 46;
constexpr std::size_t longest_comment = 0xffff;

constexpr std::uint64_t deflate_limit = 1032;  // deflate cannot shrink by more

struct Directory {
    std::uint64_t offset = 0, size = 0, count = 0;
};

/// Offset of the end record: the last one whose comment reaches exactly to the end of the file.
std::size_t find_end(Bytes file, const std::string& path) {
    if (file.size() >= end_size) {
        const std::size_t last = file.size() - end_size;
        const std::size_t first = last > longest_comment ? last - longest_comment : 0;
        for (std::size_t at = last + 1; at-- > first;)
            if (starts_with(file.subspan(at), end_magic) &&
                at + end_size + load<std::uint16_t>(&file[at + 20]) == file.size())
                return at;
    }
    refuse(
        path,
        "is a zip file without its end record. The file is truncated; download or save it again.");
}

Directory find_directory(Bytes file, const std::string& path) {
    const std::size_t end = find_end(file, path);
    Directory found{load<std::uint32_t>(&file[end + 16]), load<std::uint32_t>(&file[end + 12]),
                    load<std::uint16_t>(&file[end + 10])};
    const bool large = found.offset == in_zip64 || found.size == in_zip64 || found.count == 0xffff;
    if (large && end >= locator64_size &&
        starts_with(file.subspan(end - locator64_size), locator64_magic)) {
        const auto at = load<std::uint64_t>(&file[end - locator64_size + 8]);
        if (!inside(at, end64_size, file.size()) || !starts_with(file.subspan(at), end64_magic))
            refuse(path, fmt::format("has no zip64 end record at byte {}, where the zip64 locator "
                                     "expects it. The file is damaged; download or save it again.",
                                     at));
        found = {load<std::uint64_t>(&file[at + 48]), load<std::uint64_t>(&file[at + 40]),
                 load<std::uint64_t>(&file[at + 32])};
    }
    if (!inside(found.offset, found.size, file.size()) || found.count > found.size / central_size)
        refuse(path,
               fmt::format("has a zip directory of {} entries with {} bytes at byte {}, beyond its "
                           "{} bytes. The file is damaged or truncated; download or save it again.",
                           found.count, found.size, found.offset, file.size()));
    return found;
}

/// Replaces fields of `in_zip64` by those of the zip64 extra, which holds only these, in this
/// order.
void apply_zip64(Bytes extra, ZipEntry& entry, const std::string& where) {
    while (extra.size() >= 4) {
        const auto id = load<std::uint16_t>(&extra[0]);
        const std::size_t length = load<std::uint16_t>(&extra[2]);
        if (length > extra.size() - 4) return;
        if (id == 1) {
            ByteReader fields(extra.subspan(4, length), where);
            if (entry.size == in_zip64) entry.size = fields.take<std::uint64_t>();
            if (entry.packed == in_zip64) entry.packed = fields.take<std::uint64_t>();
            if (entry.header == in_zip64) entry.header = fields.take<std::uint64_t>();
            return;
        }
        extra = extra.subspan(4 + length);
    }
}

void check_crc(Bytes content, const ZipEntry& entry, const std::string& path) {
#ifndef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION  // else no mutated input passes the checksum
    if (entry.crc == 0) return;
    if (crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size()) != entry.crc)
        refuse(path, fmt::format("entry '{}' does not match its checksum. The file is damaged; "
                                 "download or save it again.",
                                 entry.name));
#endif
}

/// Inflates the first `wanted` bytes of `packed`, which unpack to `entry.size` bytes.
std::shared_ptr<std::vector<std::byte>> inflate_bytes(Bytes packed, const ZipEntry& entry,
                                                      std::uint64_t wanted,
                                                      const std::string& path) {
    const auto fail = [&](std::string_view why) {
        refuse(path, fmt::format("entry '{}' {}. The file is damaged; download or save it again.",
                                 entry.name, why));
    };
    auto out = std::make_shared<std::vector<std::byte>>(wanted);
    z_stream stream{};
    check(inflateInit2(&stream, -MAX_WBITS) == Z_OK, "zlib starts");
    const std::unique_ptr<z_stream, int (*)(z_stream*)> guard(&stream, inflateEnd);
    std::size_t in = 0, made = 0;
    int status = Z_OK;
    std::byte beyond[1];  // room to notice a stream that is longer than it says
    while (status == Z_OK) {
        const bool full = made == wanted;
        if (full && wanted < entry.size) return out;
        const std::size_t some_in = std::min<std::size_t>(packed.size() - in, 1u << 30);
        const std::size_t some_out = full ? 1 : std::min<std::size_t>(wanted - made, 1u << 30);
        stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data() + in));
        stream.avail_in = uInt(some_in);
        stream.next_out = reinterpret_cast<Bytef*>(full ? beyond : out->data() + made);
        stream.avail_out = uInt(some_out);
        status = inflate(&stream, Z_NO_FLUSH);
        in += some_in - stream.avail_in;
        const std::size_t new_bytes = some_out - stream.avail_out;
        if (full && new_bytes > 0)
            fail(fmt::format("unpacks to more than its stated size of {} bytes", entry.size));
        made += new_bytes;
    }
    if (status != Z_STREAM_END) fail("contains no valid deflate stream");
    if (made != wanted) fail(fmt::format("unpacks to {} bytes, expected {}", made, entry.size));
    check_crc(*out, entry, path);
    return out;
}

/// Stored content; its checksum is verified when elements are read, since that reads all of it.
class Stored final : public Owner {
  public:
    Stored(std::shared_ptr<const MappedFile> file, ZipEntry entry, Bytes bytes)
        : file_(std::move(file)), entry_(std::move(entry)), bytes_(bytes) {}

    bool mapped() const override { return true; }
    void verify() const override {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!verified_) check_crc(bytes_, entry_, file_->path());
        verified_ = true;
    }

  private:
    std::shared_ptr<const MappedFile> file_;
    ZipEntry entry_;
    Bytes bytes_;
    mutable std::mutex mutex_;
    mutable bool verified_ = false;
};

}  // namespace

ZipArchive::ZipArchive(std::shared_ptr<const MappedFile> file) : ZipArchive(file, file->bytes()) {}

ZipArchive::ZipArchive(std::shared_ptr<const MappedFile> file, Bytes part)
    : file_(std::move(file)), bytes_(part), budget_(file_->path(), part.size()) {
    const Directory directory = find_directory(bytes_, path());
    ByteReader reader(bytes_.subspan(directory.offset, directory.size),
                      path() + " (zip directory)");
    for (std::uint64_t i = 0; i < directory.count; ++i) read_entry(reader);
    if (starts_with(bytes_.subspan(directory.offset + reader.position()), central_magic))
        refuse(path(), fmt::format("has more zip entries than the {} of its end record. The file "
                                   "is damaged; download or save it again.",
                                   directory.count));
    std::uint64_t total = 0;
    for (const ZipEntry& entry : entries_) {
        total += entry.packed;  // cannot overflow: each is at most the size of the file
        if (total > bytes_.size())
            refuse(
                path(),
                "has zip entries that overlap. The file is damaged or malicious; do not use it.");
    }
}

void ZipArchive::read_entry(ByteReader& directory) {
    const Bytes fixed = directory.take_bytes(central_size);
    if (!starts_with(fixed, central_magic))
        refuse(directory.where(),
               fmt::format(
                   "has no zip entry at byte {}. The file is damaged; download or save it again.",
                   directory.position() - central_size));
    ZipEntry entry;
    entry.encrypted = (load<std::uint16_t>(&fixed[8]) & 1) != 0;
    entry.method = load<std::uint16_t>(&fixed[10]);
    entry.crc = load<std::uint32_t>(&fixed[16]);
    entry.packed = load<std::uint32_t>(&fixed[20]);
    entry.size = load<std::uint32_t>(&fixed[24]);
    entry.header = load<std::uint32_t>(&fixed[42]);
    entry.name = text_of(directory.take_bytes(load<std::uint16_t>(&fixed[28])));
    apply_zip64(directory.take_bytes(load<std::uint16_t>(&fixed[30])), entry,
                directory.where() + " entry '" + entry.name + "'");
    directory.take_bytes(load<std::uint16_t>(&fixed[32]));  // the comment
    if (entry.packed > bytes_.size())
        refuse(path(), fmt::format("entry '{}' has {} bytes, expected at most the file's {}. The "
                                   "file is truncated; download or save it again.",
                                   entry.name, entry.packed, bytes_.size()));
    if (!by_name_.emplace(entry.name, entries_.size()).second)
        refuse(path(), fmt::format("has two zip entries named '{}', expected one. The file is "
                                   "damaged; download or save it again.",
                                   entry.name));
    entries_.push_back(std::move(entry));
}

const ZipEntry* ZipArchive::find(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &entries_[found->second];
}

Bytes ZipArchive::packed_bytes(const ZipEntry& entry) const {
    const Bytes file = bytes_;
    if (entry.encrypted)
        refuse(
            path(),
            fmt::format(
                "entry '{}' is encrypted, expected plain data. Save it again without a password.",
                entry.name));
    if (entry.method != 0 && entry.method != 8)
        refuse(path(), fmt::format("entry '{}' uses compression method {}, expected 0 (stored) or "
                                   "8 (deflated). Save it again without compression.",
                                   entry.name, entry.method));
    const auto fail = [&] {
        refuse(path(),
               fmt::format("entry '{}' is not at byte {} with {} bytes, as the zip directory says. "
                           "The file is damaged or truncated; download or save it again.",
                           entry.name, entry.header, entry.packed));
    };
    if (!inside(entry.header, local_size, file.size()) ||
        !starts_with(file.subspan(entry.header), local_magic))
        fail();
    const std::byte* local = &file[entry.header];
    const std::uint64_t name = load<std::uint16_t>(local + 26);
    const std::uint64_t begin = entry.header + local_size + name + load<std::uint16_t>(local + 28);
    if (!inside(begin, entry.packed, file.size()) ||
        text_of(file.subspan(entry.header + local_size, name)) != entry.name)
        fail();
    return file.subspan(begin, entry.packed);
}

Bytes ZipArchive::stored_bytes(const ZipEntry& entry) const {
    const Bytes packed = packed_bytes(entry);
    if (entry.size != entry.packed)
        refuse(path(), fmt::format("entry '{}' is stored in {} bytes, expected its size of {}. The "
                                   "file is damaged; download or save it again.",
                                   entry.name, entry.packed, entry.size));
    return packed;
}

Payload ZipArchive::inflated(const ZipEntry& entry, std::uint64_t wanted) {
    const Bytes packed = packed_bytes(entry);
    if (entry.size / deflate_limit > entry.packed)
        refuse(path(),
               fmt::format("entry '{}' has {} bytes that unpack to {}, expected at most {} times "
                           "as many. It is damaged or a zip bomb; save it without compression.",
                           entry.name, entry.packed, entry.size, deflate_limit));
    budget_.spend(wanted, fmt::format("entry '{}'", entry.name));
    const auto bytes = inflate_bytes(packed, entry, wanted, path());
    return {*bytes, bytes};
}

Payload ZipArchive::payload(const ZipEntry& entry) {
    if (entry.method != 0) return inflated(entry, entry.size);
    const Bytes bytes = stored_bytes(entry);
    return {bytes, own(new Stored(file_, entry, bytes))};
}

Payload ZipArchive::head(const ZipEntry& entry, std::uint64_t count) {
    const std::uint64_t wanted = std::min(entry.size, count);
    if (entry.method != 0) return inflated(entry, wanted);
    return {stored_bytes(entry).first(wanted), file_};
}

Payload ZipArchive::verified(const ZipEntry& entry) {
    Payload content = payload(entry);
    if (entry.method == 0) check_crc(content.bytes, entry, path());
    return content;
}

std::string_view first_zip_name(Bytes head) {
    if (head.size() < local_size || !starts_with(head, local_magic)) return {};
    const std::size_t length = load<std::uint16_t>(&head[26]);
    return text_of(head.subspan(local_size, std::min(length, head.size() - local_size)));
}

}  // namespace tsdiag::checkpoint
