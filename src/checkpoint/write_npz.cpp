#include <fmt/format.h>
#include <fmt/ranges.h>
#include <zlib.h>

#include "layout.hpp"
#include "npy.hpp"
#include "written_file.hpp"
#include "zip.hpp"

namespace tsdiag {
namespace checkpoint {
namespace {

constexpr std::size_t alignment = 64;
constexpr std::uint16_t version_needed = 45;                 // zip64
constexpr std::uint16_t midnight = 0, first_of_1980 = 0x21;  // the earliest time that zip can store

/// One entry.  All sizes are in zip64 extras, so that small and large files have the same layout.
struct Entry {
    std::string name;
    std::uint32_t crc = 0;
    std::uint64_t size = 0, header = 0;
};

std::string npy_header(const NamedArray& array) {
    std::string dict = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}",
                                   is_double(array) ? "<f8" : "<f4", shape_text(array.shape));
    const std::size_t before = npy_magic.size() + 4;
    dict.append((alignment - (before + dict.size() + 1) % alignment) % alignment, ' ');
    dict += '\n';
    std::string header(npy_magic);
    header += std::string_view("\x01\x00", 2);
    append<std::uint16_t>(header, std::uint16_t(dict.size()));
    return header + dict;
}

/// What local and central headers have in common, from the flags to the name's length.
std::string common(const Entry& entry) {
    std::string out;
    append<std::uint16_t>(out, 0x0800);  // the name is UTF-8
    append<std::uint16_t>(out, 0);       // stored
    append(out, midnight);
    append(out, first_of_1980);
    append(out, entry.crc);
    append(out, in_zip64);
    append(out, in_zip64);
    append<std::uint16_t>(out, std::uint16_t(entry.name.size()));
    return out;
}

std::string zip64_extra(const Entry& entry, bool with_offset) {
    std::string out;
    append<std::uint16_t>(out, 1);
    append<std::uint16_t>(out, with_offset ? 24 : 16);
    append(out, entry.size);
    append(out, entry.size);
    if (with_offset) append(out, entry.header);
    return out;
}

std::string local_header(const Entry& entry) {
    std::string extra = zip64_extra(entry, false);
    const std::uint64_t end = entry.header + 30 + entry.name.size() + extra.size() + 4;
    const auto padding = std::uint16_t((alignment - end % alignment) % alignment);
    append<std::uint16_t>(extra, 0x4246);  // "FB", as PyTorch pads
    append(extra, padding);
    extra.append(padding, 'Z');
    std::string out("PK\x03\x04");
    append(out, version_needed);
    out += common(entry);
    append<std::uint16_t>(out, std::uint16_t(extra.size()));
    return out + entry.name + extra;
}

std::string central_header(const Entry& entry) {
    const std::string extra = zip64_extra(entry, true);
    std::string out("PK\x01\x02");
    append(out, version_needed);
    append(out, version_needed);
    out += common(entry);
    append<std::uint16_t>(out, std::uint16_t(extra.size()));
    out.append(10, '\0');  // no comment, first disk, no attributes
    append(out, in_zip64);
    return out + entry.name + extra;
}

std::string end_records(std::uint64_t count, std::uint64_t begin, std::uint64_t end) {
    std::string out("PK\x06\x06");
    append<std::uint64_t>(out, 44);  // remaining bytes of this record
    append(out, version_needed);
    append(out, version_needed);
    out.append(8, '\0');  // disks
    append(out, count);
    append(out, count);
    append(out, end - begin);
    append(out, begin);
    out += "PK\x06\x07";
    out.append(4, '\0');
    append(out, end);
    append<std::uint32_t>(out, 1);
    out += "PK\x05\x06";
    out.append(4, '\0');
    append<std::uint16_t>(out, 0xffff);
    append<std::uint16_t>(out, 0xffff);
    append(out, in_zip64);
    append(out, in_zip64);
    out.append(2, '\0');
    return out;
}

std::uint32_t checksum(std::string_view header, Bytes data) {
    const uLong crc = crc32_z(0, reinterpret_cast<const Bytef*>(header.data()), header.size());
    return std::uint32_t(crc32_z(crc, reinterpret_cast<const Bytef*>(data.data()), data.size()));
}

}  // namespace
}  // namespace checkpoint

void write_npz(const std::filesystem::path& file, std::span<const NamedArray> arrays) {
    checkpoint::check_names(arrays, "");
    checkpoint::WrittenFile out(file);
    std::vector<checkpoint::Entry> entries;
    for (const NamedArray& array : arrays) {
        if (array.name.size() > 0xf000)
            throw UsageError(fmt::format("the name of an array has {} bytes, expected at most {}.",
                                         array.name.size(), 0xf000));
        const std::string header = checkpoint::npy_header(array);
        const checkpoint::Bytes data = checkpoint::bytes_of_array(array);
        checkpoint::Entry entry{array.name + ".npy", checkpoint::checksum(header, data),
                                header.size() + data.size(), out.position()};
        out.write(checkpoint::local_header(entry));
        out.write(header);
        out.write(data);
        entries.push_back(std::move(entry));
    }
    const std::uint64_t begin = out.position();
    for (const checkpoint::Entry& entry : entries) out.write(checkpoint::central_header(entry));
    out.write(checkpoint::end_records(entries.size(), begin, out.position()));
    out.finish();
}

}  // namespace tsdiag
