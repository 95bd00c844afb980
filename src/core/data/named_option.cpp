#include "tsdiag/named_option.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>
#include <vector>

#include "tsdiag/error.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag {
namespace {

std::optional<double> plain_number(std::string_view text) {
    double value = 0;
    const char* last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, value);
    if (error != std::errc{} || end != last || !std::isfinite(value)) return std::nullopt;
    return value;
}

/// "0.5", "3" or "1/14".
std::optional<double> option_number(std::string_view text) {
    const std::size_t slash = text.find('/');
    if (slash == std::string_view::npos) return plain_number(text);
    const auto above = plain_number(text.substr(0, slash)),
               below = plain_number(text.substr(slash + 1));
    if (!above || !below || *below == 0) return std::nullopt;
    return *above / *below;
}

bool accepts(const NamedOption& option, const std::string& value) {
    const std::vector<std::string> words = split(option.words, ' ');
    if (!option.words.empty() && std::ranges::find(words, value) != words.end()) return true;
    const auto number = option.numbers ? option_number(value) : std::nullopt;
    return number && *number >= option.least && *number <= option.most &&
           (!option.whole || *number == std::floor(*number));
}

std::string numbers_of(const NamedOption& option) {
    return fmt::format("a {} from {} to {}", option.whole ? "whole number" : "number", option.least,
                       option.most);
}

std::string words_of(const NamedOption& option) {
    return fmt::format("{}", fmt::join(split(option.words, ' '), ", "));
}

std::string expected(const NamedOption& option) {
    if (!option.numbers) return "one of " + words_of(option);
    return option.words.empty() ? numbers_of(option)
                                : numbers_of(option) + " or one of " + words_of(option);
}

}  // namespace

std::string range_of(const NamedOption& option) {
    if (!option.numbers) return words_of(option);
    return option.words.empty() ? numbers_of(option).substr(2)
                                : words_of(option) + ", or " + numbers_of(option);
}

void check_options(std::string_view owner, std::span<const NamedOption> known,
                   const OptionTexts& given, std::string_view page) {
    for (const auto& [name, value] : given) {
        const auto option = std::ranges::find(known, name, &NamedOption::name);
        if (option == known.end()) {
            std::vector<std::string_view> names;
            for (const NamedOption& one : known) names.push_back(one.name);
            const std::string near = nearest(name, names);
            throw UsageError(
                fmt::format("{}: unknown option '{}'{}; see {}", owner, name,
                            near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near), page));
        }
        if (!accepts(*option, value))
            throw UsageError(
                fmt::format("{}: {}={} is not {}", owner, name, value, expected(*option)));
    }
}

OptionValues::OptionValues(std::span<const NamedOption> known, OptionTexts given)
    : values_(std::move(given)) {
    for (const NamedOption& option : known) values_.emplace(option.name, option.fallback);
}

const std::string& OptionValues::text(std::string_view name) const {
    const auto found = values_.find(std::string(name));
    check(found != values_.end(), "an option that is declared");
    return found->second;
}

std::optional<double> OptionValues::number(std::string_view name) const {
    return option_number(text(name));
}

Index OptionValues::count(std::string_view name) const {
    const auto value = number(name);
    check(value.has_value(), "an option that is a number");
    return Index(*value);
}

}  // namespace tsdiag
