#include "machine.hpp"

#include <array>
#include <charconv>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string_view>

#include "version.hpp"

namespace tsdiag::cli {
namespace {

/// Seconds since the epoch.
std::time_t now() {
    const char* given = std::getenv("SOURCE_DATE_EPOCH");
    const std::string_view text = given ? given : "";
    constexpr std::time_t latest = 253402300799;  // the last second of the year 9999
    std::time_t seconds = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    const bool whole = !text.empty() && error == std::errc() && end == text.data() + text.size();
    return whole && seconds >= 0 && seconds <= latest ? seconds : std::time(nullptr);
}

/// "2026-11-28T14:03:05Z"
std::string date() {
    const std::time_t seconds = now();
    std::tm parts{};
    std::array<char, 32> text{};
    gmtime_r(&seconds, &parts);
    return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

}  // namespace

std::string processor() {
    std::ifstream in("/proc/cpuinfo");
    for (std::string line; std::getline(in, line);)
        if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
    return "";
}

RunRecord::Measured measured_now() {
    return {.date = date(), .commit = commit(), .processor = processor()};
}

}  // namespace tsdiag::cli
