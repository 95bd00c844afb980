#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/units.hpp"

/// A file of finished units: "tsdunit3", the digest of the job, the host, the number of units and
/// parts of units, these, and a checksum of all these bytes.
namespace tsdiag::units {

constexpr std::string_view format = "tsdunit3";

struct Unit {
    Index stage = 0, unit = 0, part = -1;  ///< part -1: the whole unit
    double seconds = 0;
    std::string_view record;
};
void append(std::string& units, const Unit& unit);
/// The whole file, of `count` units as `append` wrote them.
std::string whole(const std::string& digest, const std::string& host, Index count,
                  std::string_view units);
/// The units of a file of job `digest`; the records stay in `bytes`.  Throws `FormatError` for
/// another format, job or checksum.
std::vector<Unit> parse(std::string_view bytes, std::string_view source, std::string_view digest,
                        std::string& host);

}  // namespace tsdiag::units
