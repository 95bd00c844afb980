#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include "tsdiag/error.hpp"
#include "tsdiag/experiment.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag {
namespace {

std::optional<double> parsed(const std::string& text) {
    double value = 0;
    const char* last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, value);
    if (error != std::errc() || end != last || !std::isfinite(value)) return std::nullopt;
    return value;
}

std::vector<std::string> words_of(std::string_view text) {
    std::istringstream in{std::string(text)};
    std::vector<std::string> words;
    for (std::string word; in >> word;) words.push_back(word);
    return words;
}

/// "a whole number from 1 to 100000", "1/d, h/d or a number from ..."
std::string expected_of(const ExperimentKey& key) {
    std::string text;
    for (const std::string& word : words_of(key.words)) text += (text.empty() ? "" : ", ") + word;
    if (!key.numbers) return (key.list ? "a list of " : "one of ") + text;
    const std::string number = fmt::format("a {}number from {:.6g} to {:.6g}",
                                           key.whole ? "whole " : "", key.least, key.most);
    text += (text.empty() ? "" : " or ") + number;
    return key.list ? "a list whose members are each " + text : text;
}

bool fits(const ExperimentKey& key, const std::string& part) {
    const std::vector<std::string> words = words_of(key.words);
    if (std::ranges::find(words, part) != words.end()) return true;
    const std::optional<double> value = parsed(part);
    return key.numbers && value && *value >= key.least && *value <= key.most &&
           (!key.whole || *value == std::floor(*value));
}

void check_value(const ExperimentEntry& entry, const ExperimentKey& key, const std::string& text) {
    const std::vector<std::string> parts =
        key.list ? split(text, ',') : std::vector<std::string>{text};
    for (const std::string& part : parts)
        if (!fits(key, part))
            throw UsageError(
                fmt::format("{}: {}={} is not {}.", entry.name, key.name, text, expected_of(key)));
}

std::string_view value_at(const ExperimentKey& key, ExperimentScale scale) {
    return scale == ExperimentScale::tiny    ? key.tiny
           : scale == ExperimentScale::quick ? key.quick
                                             : key.paper;
}

}  // namespace

ExperimentSetting::ExperimentSetting(const ExperimentEntry& entry, const ExperimentOptions& options)
    : entry_(entry), options_(options) {
    for (const ExperimentKey& key : entry.keys) {
        const auto given = options.readings.find(std::string(key.name));
        if (given != options.readings.end()) check_value(entry, key, given->second);
        values_.emplace(key.name, given != options.readings.end()
                                      ? given->second
                                      : std::string(value_at(key, options.scale)));
    }
    for (const auto& [name, value] : options.readings) {
        if (values_.contains(name)) continue;
        std::vector<std::string_view> known;
        std::string all;
        for (const ExperimentKey& key : entry.keys) {
            known.push_back(key.name);
            all += (all.empty() ? "" : ", ") + std::string(key.name);
        }
        const std::string near = nearest(name, known);
        throw UsageError(fmt::format("{}: there is no reading '{}'{}; it has {}.", entry.name, name,
                                     near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near),
                                     all));
    }
}

const std::string& ExperimentSetting::text(std::string_view key) const {
    const auto found = values_.find(key);
    check(found != values_.end(), "an experiment asks for its own keys");
    return found->second;
}

Index ExperimentSetting::count(std::string_view key) const { return Index(number(key)); }

double ExperimentSetting::number(std::string_view key) const {
    const std::optional<double> value = parsed(text(key));
    check(value.has_value(), "a key read as a number holds one");
    return *value;
}

std::vector<std::string> ExperimentSetting::list(std::string_view key) const {
    return split(text(key), ',');
}

std::vector<double> ExperimentSetting::numbers(std::string_view key) const {
    std::vector<double> values;
    for (const std::string& part : list(key)) {
        const std::optional<double> value = parsed(part);
        check(value.has_value(), "a list read as numbers holds numbers");
        values.push_back(*value);
    }
    return values;
}

std::vector<Index> ExperimentSetting::counts(std::string_view key) const {
    std::vector<Index> values;
    for (const double value : numbers(key)) values.push_back(Index(value));
    return values;
}

RunRecord::Setting ExperimentSetting::described() const {
    RunRecord::Setting out{.scale = options_.scale == ExperimentScale::paper   ? "paper"
                                    : options_.scale == ExperimentScale::quick ? "quick"
                                                                               : "tiny",
                           .model = options_.model,
                           .data = options_.data};
    for (const ExperimentKey& key : entry_.keys) out.keys.emplace_back(key.name, text(key.name));
    return out;
}

}  // namespace tsdiag
