#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "options.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag::cli {
namespace {

[[noreturn]] void refuse(std::string_view option, const std::string& text,
                         std::string_view expected) {
    throw UsageError(fmt::format("{}: '{}' is not {}.", option, text, expected));
}

template <class T>
bool read(std::string_view text, T& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

CLI::Option* value(CLI::App& app, const char* names, const char* metavariable,
                   const char* description, const std::function<void(const std::string&)>& read) {
    return app.add_option_function<std::string>(names, read, description)->type_name(metavariable);
}

CLI::Option* text(CLI::App& app, const char* names, std::string& out, const char* metavariable,
                  const char* description) {
    return app.add_option(names, out, description)->type_name(metavariable);
}

CLI::Option* place(CLI::App& app, std::string& out, const char* metavariable,
                   const char* description) {
    return value(app, "-o,--out", metavariable, description, [&out](const std::string& t) {
        if (t.empty()) throw UsageError("--out: is empty, expected a path to write to.");
        out = t;
    });
}

Index parse_count(const std::string& text, std::string_view option, Index least, Index most) {
    Index value = 0;
    if (read(text, value) && value >= least && value <= most) return value;
    refuse(option, text,
           most == no_limit ? fmt::format("an integer of at least {}", least)
                            : fmt::format("an integer from {} to {}", least, most));
}

std::uint64_t parse_seed(const std::string& text, std::string_view option) {
    std::uint64_t value = 0;
    if (!read(text, value)) refuse(option, text, "an integer from 0 to 2^64 - 1");
    return value;
}

std::pair<std::string, std::string> parse_reading(const std::string& text,
                                                  std::string_view option) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
        refuse(option, text, "of the form KEY=VALUE, such as var_v=h/d");
    return {text.substr(0, equals), text.substr(equals + 1)};
}

double parse_number(const std::string& text, std::string_view option) {
    double value = 0;
    if (!read(text, value) || !std::isfinite(value)) refuse(option, text, "a finite number");
    return value;
}

double parse_probability(const std::string& text, std::string_view option) {
    const double value = parse_number(text, option);
    if (!(value > 0 && value < 1)) refuse(option, text, "between 0 and 1, both excluded");
    return value;
}

Index parse_size(const std::string& text, std::string_view option) {
    constexpr std::string_view units = "KMGT";
    std::string digits = text;
    Index unit = 1;
    if (!digits.empty() && (digits.back() == 'B' || digits.back() == 'b')) digits.pop_back();
    if (!digits.empty() && (digits.back() == 'i')) digits.pop_back();
    if (!digits.empty()) {
        const auto power =
            units.find(char(std::toupper(static_cast<unsigned char>(digits.back()))));
        if (power != std::string_view::npos) {
            unit = Index(1) << (10 * (power + 1));
            digits.pop_back();
        }
    }
    double value = 0;
    if (!read(digits, value) || !(value > 0) || value * double(unit) > 1e18)
        refuse(option, text, "a size such as 512M or 2G");
    return Index(value * double(unit));
}

std::pair<Index, Index> parse_layers(const std::string& text, std::string_view option) {
    constexpr std::string_view expected = "a range of layers such as 0:5 (both included), 3: or 7";
    const std::vector<std::string> ends = split(text, ':');
    Index first = 0, last = -1;
    const bool one = ends.size() == 1;
    if (ends.size() > 2 || (!one && ends[0].empty() && ends[1].empty()))
        refuse(option, text, expected);
    if (!(ends[0].empty() && !one) && (!read(ends[0], first) || first < 0))
        refuse(option, text, expected);
    if (one) return {first, first};
    if (!ends[1].empty() && (!read(ends[1], last) || last < first)) refuse(option, text, expected);
    return {first, last};
}

std::vector<Index> parse_steps(const std::string& text, std::string_view option) {
    std::vector<Index> steps;
    for (const std::string& one : split(text, ',')) steps.push_back(parse_count(one, option, 0));
    return steps;
}

std::vector<Index> parse_indices(const std::string& text, std::string_view option) {
    constexpr std::string_view expected = "a list of heads such as 0,3,8:11";
    constexpr Index most = 1'000'000;
    std::vector<Index> list;
    for (const std::string& part : split(text, ',')) {
        const std::vector<std::string> ends = split(part, ':');
        Index first = 0, last = 0;
        if (ends.size() > 2 || !read(ends.front(), first) || !read(ends.back(), last) ||
            first < 0 || last < first || last > most)
            refuse(option, text, expected);
        for (Index i = first; i <= last; ++i) list.push_back(i);
    }
    return list;
}

std::vector<Index> parse_doubling(const std::string& text, std::string_view option) {
    const std::vector<std::string> ends = split(text, ':');
    Index first = 0, last = 0;
    constexpr Index most = 1 << 20;
    if (ends.size() != 2 || !read(ends[0], first) || !read(ends[1], last) || first < 2 ||
        last > most || last < 4 * first)
        refuse(option, text, "a range A:B with A >= 2 and B >= 4 A, such as 32:512");
    std::vector<Index> list;
    for (Index size = first; size <= last; size *= 2) list.push_back(size);
    return list;
}

std::vector<std::pair<Index, Index>> parse_maps(const std::string& text, std::string_view option) {
    if (text == "all") return {every_map};
    std::vector<std::pair<Index, Index>> list;
    for (const std::string& part : split(text, ',')) {
        const std::vector<std::string> pair = split(part, ':');
        Index layer = 0, head = 0;
        if (pair.size() != 2 || !read(pair[0], layer) || !read(pair[1], head) || layer < 0 ||
            head < 0)
            refuse(option, text, "all, or a list of LAYER:HEAD such as 0:3,11:7");
        list.emplace_back(layer, head);
    }
    return list;
}

}  // namespace tsdiag::cli
