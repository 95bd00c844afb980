#include "units_file.hpp"

#include <cstring>

namespace tsdiag::units {
namespace {

/// Detects damage, not forgery: what is read is checked besides.
std::uint64_t checksum(std::string_view bytes) {
    std::uint64_t state = 0xCBF29CE484222325u ^ bytes.size();
    const auto mix = [&](std::uint64_t word) {
        state = (state ^ word) * 0x9E3779B97F4A7C15u;
        state ^= state >> 29;
    };
    for (; bytes.size() >= sizeof state; bytes.remove_prefix(sizeof state)) {
        std::uint64_t word = 0;
        std::memcpy(&word, bytes.data(), sizeof word);
        mix(word);
    }
    std::uint64_t rest = 0;
    if (!bytes.empty()) std::memcpy(&rest, bytes.data(), bytes.size());
    mix(rest);
    return state;
}

}  // namespace

void append(std::string& units, const Unit& unit) {
    RecordWriter out;
    out.index(unit.stage);
    out.index(unit.unit);
    out.index(unit.part);
    out.real(unit.seconds);
    out.count(unit.record.size());
    units += out.take();
    units += unit.record;
}

std::string whole(const std::string& digest, const std::string& host, Index count,
                  std::string_view units) {
    RecordWriter head;
    head.text(digest);
    head.text(host);
    head.count(std::uint64_t(count));
    std::string bytes(format);
    bytes += head.take();
    bytes += units;
    const std::uint64_t sum = checksum(bytes);
    char end[sizeof sum];
    std::memcpy(end, &sum, sizeof sum);
    return bytes.append(end, sizeof sum);
}

std::vector<Unit> parse(std::string_view bytes, std::string_view source, std::string_view digest,
                        std::string& host) {
    std::uint64_t sum = 0;
    RecordReader broken({}, source);
    if (bytes.size() < format.size() + sizeof sum || !bytes.starts_with(format))
        broken.refuse("is no file of finished units");
    std::memcpy(&sum, bytes.data() + bytes.size() - sizeof sum, sizeof sum);
    bytes.remove_suffix(sizeof sum);
    if (checksum(bytes) != sum) broken.refuse("does not match its checksum");
    RecordReader in(bytes.substr(format.size()), source);
    if (in.view() != digest) broken.refuse("belongs to another job");
    host = in.text();
    constexpr std::size_t least = 12;  // bytes of a unit
    auto all = std::vector<Unit>(in.length(least));
    for (Unit& unit : all) {
        unit.stage = in.index();
        unit.unit = in.index();
        unit.part = in.index();
        unit.seconds = in.real();
        unit.record = in.view();
    }
    in.end();
    return all;
}

}  // namespace tsdiag::units
