#include "log_records.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

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

/// What follows the last '/'.
std::string_view last_part(std::string_view name) {
    const std::size_t slash = name.rfind('/');
    return slash == std::string_view::npos ? name : name.substr(slash + 1);
}

/// Says of numbers that many of them are equal to the one before, more than draws of the same
/// values would be.  Zeros and the largest are told of otherwise.
void add_repeated_numbers(const std::vector<double>& values, double limit,
                          std::vector<std::string>& to) {
    std::map<double, double> counts;
    std::size_t repeats = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        ++counts[values[i]];
        repeats += i > 0 && values[i] == values[i - 1] && values[i] != 0 && values[i] < limit;
    }
    double by_chance = 0;
    for (const auto& [value, count] : counts) by_chance += count * count / double(values.size());
    if (3 * repeats < values.size() || double(repeats) < 2 * by_chance) return;
    to.push_back(fmt::format(
        "{} of {} numbers are equal to the one before, as where a logger writes its last number "
        "again, or few digits",
        repeats, values.size()));
}

/// Says of numbers what a share of them that are equal may mean: steps without a gradient, norms
/// that were written after they were clipped.
void add_equal_numbers(const std::vector<double>& values, std::vector<std::string>& to) {
    constexpr std::size_t fewest = 10, least_zeros = 2;
    // PyTorch multiplies by limit / (norm + 1e-6).
    constexpr double clipped = 1 - 1e-5;
    if (values.size() < fewest) return;
    const double most = *std::ranges::max_element(values);
    add_repeated_numbers(values, clipped * most, to);
    const auto is_largest = [&](double v) { return v > 0 && v >= clipped * most; };
    const auto zeros = std::size_t(std::ranges::count(values, 0.0)),
               largest = std::size_t(std::ranges::count_if(values, is_largest));
    std::set<double> others(values.begin(), values.end());
    const bool alike = others.size() <= 2;
    std::erase_if(others, [&](double v) { return v == 0 || is_largest(v); });
    // Numbers that are rounded to a few are equal by that alone.
    if (2 * others.size() < values.size() - zeros - largest || (others.empty() && alike)) return;
    if (zeros >= least_zeros)
        to.push_back(fmt::format("{} of {} numbers are 0, as of steps that were skipped", zeros,
                                 values.size()));
    if (10 * largest >= values.size() && largest > 2)
        to.push_back(
            fmt::format("{} of {} numbers are the largest, {:.4g}, as of numbers that were written "
                        "after they were clipped",
                        largest, values.size(), most));
}

/// Says which series has the numbers of one before it, as one that is logged by two names; empty:
/// none has.
std::string same_numbers(const std::vector<LoggedSeries>& all) {
    constexpr std::size_t fewest = 10;
    const auto less = [](const LoggedSeries* a, const LoggedSeries* b) {
        return a->values < b->values;
    };
    std::set<const LoggedSeries*, decltype(less)> seen(less);
    std::string first;
    int more = -1;
    for (const LoggedSeries& one : all) {
        const std::vector<double>& own = one.values;
        if (own.size() < fewest || std::ranges::count(own, own.front()) == std::ssize(own))
            continue;
        const auto [before, is_new] = seen.insert(&one);
        if (!is_new && ++more == 0)
            first = fmt::format("{} has the same numbers as {}", one.name, (*before)->name);
    }
    return first + (more > 0 ? fmt::format(", and {} more series those of another", more) : "");
}

}  // namespace

int step_rank(std::string_view name) {
    constexpr std::array<std::string_view, 10> words = {
        "step",     "global_step", "_step",      "iteration",         "iter",
        "iter_num", "num_updates", "train_step", "train_num_updates", "valid_num_updates"};
    const std::string small = lower(trimmed(name));
    const std::string_view last = last_part(small);
    const auto found = std::ranges::find(words, last);
    if (found == words.end()) return 0;
    // "train/global_step" ranks behind every plain name.
    const int rank = int(found - words.begin()) + 1;
    return last.size() == small.size() ? rank : rank + int(words.size());
}

bool is_qualifier(std::string_view name) {
    constexpr std::array<std::string_view, 17> words = {
        "run",   "run_id",     "run_name", "model",     "layer",      "layer_name",
        "stage", "head",       "tensor",   "parameter", "param_name", "module",
        "rank",  "local_rank", "worker",   "device",    "seed"};
    return std::ranges::find(words, lower(trimmed(name))) != words.end();
}

int epoch_rank(std::string_view name) {
    constexpr std::array<std::string_view, 3> words = {"epoch", "ep", "epochs"};
    const std::string small = lower(trimmed(name));
    const auto found = std::ranges::find(words, last_part(small));
    return found == words.end() ? 0 : int(found - words.begin()) + 1;
}

bool is_bound_of_bucket(std::string_view name) {
    const std::string small = lower(name);
    return small.ends_with("__min") || small.ends_with("__max");
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
    // "grad_norm layer=3" is of the records of "grad_norm".
    const std::string& column = options_.column;
    const bool wanted = column.empty()
                            ? names_gradient_norm(name)
                            : column == name || (column.starts_with(std::string(name) + ' ') &&
                                                 column.find('=', name.size()) != column.npos);
    wanted_.emplace(std::string(name), wanted);
    return wanted;
}

LogRecords::Gathered& LogRecords::at(std::string_view name) {
    const auto found = index_.find(name);
    if (found != index_.end()) return all_[found->second];
    index_.emplace(std::string(name), all_.size());
    return all_.emplace_back(Gathered{.name = std::string(name)});
}

void LogRecords::add(std::string_view name, Index step, double value, const std::string& place) {
    ++added_;
    LoggedNumber number{
        .step = step, .value = value, .epoch = epoch_, .file = file_, .record = keys_.current()};
    if (!std::isfinite(value) ? !options_.allow_nonfinite : value < options_.least) {
        number.complaint = std::ssize(complaints_);
        if (sources_.empty() || sources_.back() != source_) sources_.push_back(source_);
        complaints_.push_back({std::ssize(sources_) - 1, place});
    }
    at(name).numbers.push_back(number);
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

void LogRecords::compare_step(std::string_view name, Index step, std::string_view other,
                              std::string_view text) {
    if (!other_step_.empty()) return;
    const std::optional<double> value = logged_number(text);
    if (!value || !std::isfinite(*value) || *value == double(step)) return;
    other_step_ = fmt::format(
        "steps are those of {}, not of {}, which is {} where that is {}; --step-column takes "
        "another",
        name, other, trimmed(text), step);
}

void LogRecords::fail(const std::string& place, const std::string& what) const {
    throw FormatError(fmt::format("{}: {}: {}.", source_, place, what));
}

void LogRecords::complain(const std::string& name, const LoggedNumber& number) const {
    const Complaint& found = complaints_[std::size_t(number.complaint)];
    const bool nonfinite = !std::isfinite(number.value);
    const std::string what = fmt::format(
        "{}: {}: '{}' is {} at step {}, expected {}.", sources_[std::size_t(found.source)],
        found.place, name, number.value, number.step,
        nonfinite ? "a finite number; pass --allow-nonfinite to skip such steps"
                  : "a nonnegative norm; pass --column with the right name");
    if (nonfinite) throw NonFiniteError(what);
    throw FormatError(what);
}

LoggedSeries LogRecords::finished(const Gathered& one, const SettledSeries& settled) const {
    LoggedSeries out{.source = source_,
                     .name = one.name + settled.of,
                     .steps = {},
                     .values = {},
                     .notes = notes_};
    out.notes.insert(out.notes.end(), settled.notes.begin(), settled.notes.end());
    if (lower(one.name).ends_with("_epoch"))
        out.notes.push_back(
            "numbers are of epochs, as means over their steps by PyTorch Lightning: single steps "
            "vary more");
    std::map<Index, const LoggedNumber*> by_step;
    for (const LoggedNumber& number : settled.numbers)
        if (number.step >= options_.first && (options_.last < 0 || number.step <= options_.last))
            by_step.insert_or_assign(number.step, &number);
    Index left_out = 0;
    for (const auto& [step, number] : by_step) {
        if (number->complaint >= 0) complain(one.name, *number);
        if (!std::isfinite(number->value)) {
            ++left_out;
            continue;
        }
        out.steps.push_back(step);
        out.values.push_back(number->value);
    }
    if (left_out > 0)
        out.notes.push_back(fmt::format("{} number{} not finite and skipped", left_out,
                                        left_out == 1 ? " is" : "s are"));
    add_equal_numbers(out.values, out.notes);
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

std::vector<LoggedSeries> LogRecords::finished(const Gathered& one) const {
    std::vector<LoggedSeries> out;
    for (const SettledSeries& settled : settled_series(one.numbers, keys_)) {
        if (!settled.refusal.empty())
            throw FormatError(
                fmt::format("{}: the steps of '{}' {}.", source_, one.name, settled.refusal));
        // Of "grad_norm layer=3" both "grad_norm" and all of it are names.
        const std::string name = one.name + settled.of, &column = options_.column;
        if (!column.empty() && name != column && !name.starts_with(column + ' ')) continue;
        LoggedSeries series = finished(one, settled);
        if (!series.values.empty()) out.push_back(std::move(series));
    }
    return out;
}

std::string LogRecords::left_out() const {
    std::vector<std::string> names;
    for (const std::string& name : known_) {
        if (!options_.column.empty() || is_bound_of_bucket(name) || !is_like_gradient_norm(name))
            continue;
        if (const std::string word = names_other_than_norm(name); !word.empty())
            names.push_back(fmt::format("{} ({})", name, word));
    }
    if (names.empty()) return {};
    const std::size_t more = names.size() > 8 ? names.size() - 8 : 0;
    names.resize(names.size() - more);
    return fmt::format(
        "columns that are not read, since a word of their names says that they are no norms but "
        "limits, powers, logarithms, averages, times or the like: {}{}; --column reads one",
        fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

std::vector<LoggedSeries> LogRecords::finish() {
    std::vector<LoggedSeries> out;
    for (const Gathered& one : all_)
        for (LoggedSeries& series : finished(one)) out.push_back(std::move(series));
    if (out.empty()) fail_empty();
    for (const std::string& line : {left_out(), other_step_, same_numbers(out)})
        if (!line.empty()) out.front().notes.push_back(line);
    return out;
}

void LogRecords::fail_empty() const {
    std::vector<std::string> names = known_;
    const std::size_t more = names.size() > 12 ? names.size() - 12 : 0;
    names.resize(names.size() - more);
    const std::string wanted = options_.column.empty()
                                   ? std::string("number in a series named like a gradient norm")
                                   : fmt::format("number in '{}'", options_.column);
    const bool matched = std::ranges::any_of(wanted_, [](const auto& one) { return one.second; });
    const bool steps = options_.first > 0 || options_.last >= 0;
    const std::string others = left_out();
    throw FormatError(
        fmt::format("{}: contains no {}{}; it has {}{}; {}.", source_, wanted,
                    steps ? " in the requested range of steps" : "",
                    names.empty() ? "no series" : fmt::format("{}", fmt::join(names, ", ")),
                    more > 0 ? fmt::format(" and {} more", more) : "",
                    steps             ? "check --from and --to"
                    : matched         ? "the requested series is empty"
                    : !others.empty() ? others
                                      : "pass --column NAME (for an event file, its tag)"));
}

}  // namespace tsdiag
