#include "log_records.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <unordered_map>

#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

std::string lower(std::string_view text) {
    std::string out(text);
    std::ranges::transform(out, out.begin(), [](unsigned char c) {
        return char(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    });
    return out;
}

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
    return text;
}

/// The most frequent difference of neighbouring steps; the smallest of equally frequent ones.
Index usual_distance(const std::vector<Index>& steps) {
    std::unordered_map<Index, Index> seen;
    for (std::size_t i = 1; i < steps.size(); ++i) ++seen[steps[i] - steps[i - 1]];
    Index best = 1, count = 0;
    for (const auto& [distance, times] : seen)
        if (times > count || (times == count && distance < best)) {
            best = distance;
            count = times;
        }
    return best;
}

}  // namespace

bool names_gradient_norm(std::string_view name) {
    const std::string word = lower(name);
    const auto has = [&](std::string_view part) { return word.find(part) != std::string::npos; };
    if (has("max_") || has("clip") || has("threshold")) return false;
    return (has("grad") && has("norm")) || has("gnorm");
}

int step_rank(std::string_view name) {
    constexpr std::array<std::string_view, 9> words = {
        "step", "global_step", "trainer/global_step", "_step",     "iteration",
        "iter", "iter_num",    "num_updates",         "train_step"};
    const auto found = std::ranges::find(words, lower(trimmed(name)));
    return found == words.end() ? 0 : int(found - words.begin()) + 1;
}

std::optional<double> logged_number(std::string_view text) {
    text = trimmed(text);
    if (text.starts_with('+')) text.remove_prefix(1);
    double value = 0;
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, value);
    if (at != end || text.empty()) return std::nullopt;
    if (error == std::errc::result_out_of_range)
        return text.find("e-") != std::string_view::npos ||
                       text.find("E-") != std::string_view::npos
                   ? 0.0
                   : std::numeric_limits<double>::infinity();
    return error == std::errc() ? std::optional(value) : std::nullopt;
}

LogRecords::LogRecords(std::string source, const LogOptions& options)
    : source_(std::move(source)), options_(options) {}

bool LogRecords::wants(std::string_view name) {
    const auto found = wanted_.find(name);
    if (found != wanted_.end()) return found->second;
    known_.emplace_back(name);
    const bool wanted =
        options_.column.empty() ? names_gradient_norm(name) : name == options_.column;
    wanted_.emplace(std::string(name), wanted);
    return wanted;
}

LogRecords::Gathered& LogRecords::at(std::string_view name) {
    const auto found = index_.find(name);
    if (found != index_.end()) return all_[found->second];
    index_.emplace(std::string(name), all_.size());
    return all_.emplace_back(Gathered{.name = std::string(name), .values = {}});
}

void LogRecords::add(std::string_view name, Index step, double value, const std::string& place) {
    if (step < options_.first || (options_.last >= 0 && step > options_.last)) return;
    ++added_;
    Gathered& series = at(name);
    if (!std::isfinite(value)) {
        if (!options_.allow_nonfinite)
            throw NonFiniteError(
                fmt::format("{}: {}: '{}' is {} at step {}, expected a finite number; pass "
                            "--allow-nonfinite to skip such steps.",
                            source_, place, name, value, step));
        ++series.left_out;
        series.values.erase(step);
        return;
    }
    if (value < options_.least)
        fail(place, fmt::format("'{}' is {} at step {}, expected a nonnegative norm; pass --column "
                                "with the right name",
                                name, value, step));
    const auto [found, fresh] = series.values.insert_or_assign(step, value);
    if (!fresh) ++series.replaced;
}

void LogRecords::add_text(std::string_view name, Index step, std::string_view text,
                          const std::string& place) {
    if (trimmed(text).empty()) return;
    const std::optional<double> value = logged_number(text);
    if (!value)
        fail(place,
             fmt::format("'{}' is '{}', expected a number; correct the log, or pass --column "
                         "with the right name",
                         name, text.substr(0, 40)));
    add(name, step, *value, place);
}

void LogRecords::note(std::string text) { notes_.push_back(std::move(text)); }

void LogRecords::fail(const std::string& place, const std::string& what) const {
    throw FormatError(fmt::format("{}: {}: {}.", source_, place, what));
}

LoggedSeries LogRecords::finished(const Gathered& one) const {
    LoggedSeries out{
        .source = source_, .name = one.name, .steps = {}, .values = {}, .notes = notes_};
    for (const auto& [step, value] : one.values) {
        out.steps.push_back(step);
        out.values.push_back(value);
    }
    if (one.replaced > 0)
        out.notes.push_back(fmt::format(
            "{} step{} written more than once (a resumed run?): the later record is used",
            one.replaced, one.replaced == 1 ? " was" : "s were"));
    if (one.left_out > 0)
        out.notes.push_back(fmt::format("{} number{} not finite and skipped", one.left_out,
                                        one.left_out == 1 ? " is" : "s are"));
    const Index distance = usual_distance(out.steps);
    Index gaps = 0, first = -1, longest = 0;
    for (std::size_t i = 1; i < out.steps.size(); ++i) {
        const Index step = out.steps[i] - out.steps[i - 1];
        if (step <= distance) continue;
        if (gaps++ == 0) first = out.steps[i - 1];
        longest = std::max(longest, step);
    }
    if (gaps > 0)
        out.notes.push_back(fmt::format(
            "{} gap{}: the usual distance is {} step{}, the longest is {}, the first is after step "
            "{}; steps on both sides of a gap count as consecutive",
            gaps, gaps == 1 ? "" : "s", distance, distance == 1 ? "" : "s", longest, first));
    return out;
}

std::vector<LoggedSeries> LogRecords::finish() {
    std::vector<LoggedSeries> out;
    for (const Gathered& one : all_)
        if (!one.values.empty()) out.push_back(finished(one));
    if (!out.empty()) return out;
    std::vector<std::string> names = known_;
    const std::size_t more = names.size() > 12 ? names.size() - 12 : 0;
    names.resize(names.size() - more);
    const std::string wanted = options_.column.empty()
                                   ? std::string("number in a series named like a gradient norm")
                                   : fmt::format("number in '{}'", options_.column);
    const bool matched = std::ranges::any_of(wanted_, [](const auto& one) { return one.second; });
    const bool steps = options_.first > 0 || options_.last >= 0;
    throw FormatError(
        fmt::format("{}: contains no {}{}; it has {}{}; {}.", source_, wanted,
                    steps ? " in the requested range of steps" : "",
                    names.empty() ? "no series" : fmt::format("{}", fmt::join(names, ", ")),
                    more > 0 ? fmt::format(" and {} more", more) : "",
                    steps     ? "check --from and --to"
                    : matched ? "the requested series is empty"
                              : "pass --column NAME (for an event file, its tag)"));
}

}  // namespace tsdiag
