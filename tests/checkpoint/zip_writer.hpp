#pragma once
#include <zlib.h>

#include "checkpoint/samples.hpp"

/// Writes zip files and pickles, valid or not.
namespace tsdiag::samples {

struct ZipMember {
    std::string name, content;
    std::uint16_t method = 0;
    std::uint16_t flags = 0;
    std::uint32_t size = UINT32_MAX;    ///< the declared size; default: the true one
    std::uint32_t packed = UINT32_MAX;  ///< likewise
    std::uint32_t offset = UINT32_MAX;  ///< likewise
};

inline std::string deflated(const std::string& content) {
    z_stream stream{};
    deflateInit2(&stream, 9, Z_DEFLATED, -MAX_WBITS, 9, Z_DEFAULT_STRATEGY);
    std::string out(deflateBound(&stream, content.size()), '\0');
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
    stream.avail_in = uInt(content.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = uInt(out.size());
    deflate(&stream, Z_FINISH);
    out.resize(stream.total_out);
    deflateEnd(&stream);
    return out;
}

inline std::string zip_of(const std::vector<ZipMember>& members) {
    std::string out, directory;
    for (const ZipMember& m : members) {
        const std::string packed = m.method == 8 ? deflated(m.content) : m.content;
        const auto truth = [](std::uint32_t said, std::size_t real) {
            return said == UINT32_MAX ? std::uint32_t(real) : said;
        };
        const auto crc = std::uint32_t(
            crc32(0, reinterpret_cast<const Bytef*>(m.content.data()), uInt(m.content.size())));
        const auto length = std::uint16_t(m.name.size());
        const std::string sizes = raw<std::uint32_t>(
            {crc, truth(m.packed, packed.size()), truth(m.size, m.content.size())});
        const std::string common = raw<std::uint16_t>({20, m.flags, m.method, 0, 0}) + sizes +
                                   raw<std::uint16_t>({length});
        directory += "PK\x01\x02" + raw<std::uint16_t>({20}) + common + std::string(12, '\0') +
                     raw<std::uint32_t>({truth(m.offset, out.size())}) + m.name;
        out += "PK\x03\x04" + common + raw<std::uint16_t>({0}) + m.name + packed;
    }
    const auto count = std::uint16_t(members.size());
    const auto begin = std::uint32_t(out.size());
    return out + directory + "PK\x05\x06" + raw<std::uint16_t>({0, 0, count, count}) +
           raw<std::uint32_t>({std::uint32_t(directory.size()), begin}) + raw<std::uint16_t>({0});
}

/// A torch zip of a pickle and its storages "0", "1", ...
inline std::string torch_zip_of(const std::string& pickle,
                                const std::vector<std::string>& storages = {}) {
    std::vector<ZipMember> members = {{"m/data.pkl", pickle}};
    for (std::size_t i = 0; i < storages.size(); ++i)
        members.push_back({"m/data/" + std::to_string(i), storages[i]});
    return zip_of(members);
}

/// BINUNICODE.
inline std::string text(const std::string& s) {
    return "X" + raw<std::uint32_t>({std::uint32_t(s.size())}) + s;
}
inline std::string integer(std::int32_t i) { return "J" + raw<std::int32_t>({i}); }
inline std::string tuple(const std::vector<std::int64_t>& items) {
    std::string out = "(";
    for (const std::int64_t i : items) out += std::string("\x8a\x08") + raw<std::int64_t>({i});
    return out + "t";
}
/// A float32 tensor over storage `key` of `count` elements.
inline std::string tensor(const std::string& key, std::int64_t count, std::int64_t offset,
                          const std::vector<std::int64_t>& shape,
                          const std::vector<std::int64_t>& strides) {
    const std::string number = std::string("\x8a\x08");
    return "ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + "ctorch\nFloatStorage\n" +
           text(key) + text("cpu") + number + raw<std::int64_t>({count}) + "tQ" + number +
           raw<std::int64_t>({offset}) + tuple(shape) + tuple(strides) +
           "\x89"
           "ccollections\nOrderedDict\n)RtR";
}
/// {key: value} of two pickled values.
inline std::string dict(const std::string& items) { return "\x80\x02}(" + items + "u."; }

}  // namespace tsdiag::samples
