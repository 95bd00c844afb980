#include "tsdiag/comparison.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "tsdiag/csv.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/intervals.hpp"
#include "tsdiag/table_view.hpp"

namespace tsdiag {
namespace {

using Outcome = Difference::Outcome;
/// The place of a row, and its metric.
using RowKey = std::tuple<Index, std::string, Index, std::string, std::string>;

RowKey key_of(const MetricRow& row) {
    return {row.at.layer, row.at.stage, row.at.head, row.at.tensor, row.metric};
}

[[noreturn]] void refuse_part(const std::string& argument) {
    throw UsageError(
        fmt::format("'{}': expected a folder, or DIR@STEP, DIR:LAYER or DIR:LAYER.HEAD; LAYER is a "
                    "number or last.",
                    argument));
}

Index part_index(std::string_view text, const std::string& argument) {
    Index value = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failed != std::errc() || end != text.data() + text.size() || value < 0)
        refuse_part(argument);
    return value;
}

void require_statistics(const std::string& name, const MetricRow& row) {
    const auto finite = [](const std::optional<double>& v) { return !v || std::isfinite(*v); };
    const bool ordered = !row.low || !row.high || *row.low <= *row.high;
    if (finite(row.value) && finite(row.low) && finite(row.high) && finite(row.standard_error) &&
        ordered && row.standard_error.value_or(0) >= 0 && row.count >= 0)
        return;
    throw FormatError(
        fmt::format("{}: the row of {} in layer {} is no mean with a standard error, a count and "
                    "bounds in order; the table was not written by tsdiag.",
                    name, row.metric, row.at.layer));
}

void require_single_rows(const std::string& name, const std::vector<MetricRow>& rows) {
    std::set<RowKey> seen;
    for (const MetricRow& row : rows) {
        require_statistics(name, row);
        if (row.model != rows.front().model)
            throw FormatError(
                fmt::format("{}: has rows of several models, '{}' and '{}', expected one.", name,
                            rows.front().model, row.model));
        if (!seen.insert(key_of(row)).second)
            throw FormatError(fmt::format("{}: has two rows of {} in layer {}, expected one.", name,
                                          row.metric, row.at.layer));
    }
}

struct Scatter {
    double error = 0, freedom = 0;
};

/// The standard error of a mean, with its degrees of freedom; none for one sample.  Samples of one
/// trial share its weights.  Of T trials with S samples each, the standard error over the means of
/// trials is at most s sqrt((TS - 1) / (T - 1)), since their squares are a part of all squares.
std::optional<Scatter> scatter_of(const MetricRow& row, const RunRecord& run) {
    if (!row.standard_error || row.count < 2) return std::nullopt;
    const Index trials = run.input.trials.value_or(1);
    if (trials < 2 || trials >= row.count)
        return Scatter{*row.standard_error, double(row.count - 1)};
    const double freedom = double(trials - 1);
    return Scatter{*row.standard_error * std::sqrt(double(row.count - 1) / freedom), freedom};
}

/// Student's or Welch's standard error of a difference, with its degrees of freedom.
void set_error(Difference& d, const std::optional<Scatter>& a, const std::optional<Scatter>& b,
               Samples samples) {
    if (!a || !b) return;
    const auto [error_a, freedom_a] = *a;
    const auto [error_b, freedom_b] = *b;
    if (error_a == 0 && error_b == 0) return;
    const bool shared = samples == Samples::shared;
    const double error = shared ? error_a + error_b : std::hypot(error_a, error_b);
    if (!(error > 0) || !std::isfinite(error)) return;
    d.error = error;
    d.freedom = shared ? std::min(freedom_a, freedom_b)
                       : welch_freedom(error_a, freedom_a, error_b, freedom_b);
}

/// Whether sample i of one result is known to be sample i of the other.
bool same_inputs(const RunRecord& a, const RunRecord& b) {
    return !a.input.digest.empty() && a.input.digest == b.input.digest;
}

/// The differences b - a of the samples; of several trials those of their means.
struct Pairs {
    Index count = 0, rises = 0;  ///< and where b > a
    Scatter scatter = {};        ///< of their mean
    bool samples_scatter = false;
};

/// None where a value of a sample is not kept, or is defined in one result only.  Samples of one
/// trial share its weights, so that their mean is one observation.
std::optional<Pairs> pairs_of(const MetricRow& a, const MetricRow& b, Index trials) {
    const std::size_t all = a.samples.size();
    if (all < 2 || b.samples.size() != all || trials < 1 || all % std::size_t(trials) != 0)
        return std::nullopt;
    const std::size_t together = trials > 1 ? all / std::size_t(trials) : 1;
    Pairs out;
    std::vector<double> means;
    for (std::size_t i = 0; i < all; ++i) {
        if (a.samples[i].has_value() != b.samples[i].has_value()) return std::nullopt;
        if (!a.samples[i]) {
            if (together > 1) return std::nullopt;
            continue;
        }
        if (together == 1 || i % together == 0) means.push_back(0);
        means.back() += (*b.samples[i] - *a.samples[i]) / double(together);
    }
    const double count = double(means.size());
    if (count < 2) return std::nullopt;
    out.samples_scatter = a.standard_error.value_or(0) > 0 || b.standard_error.value_or(0) > 0;
    out.count = std::ssize(means);
    out.rises = std::ranges::count_if(means, [](double d) { return d > 0; });
    double mean = 0, squares = 0;
    for (const double d : means) mean += d / count;
    for (const double d : means) squares += (d - mean) * (d - mean);
    out.scatter = {std::sqrt(squares / (count * (count - 1))), count - 1};
    return out;
}

/// Of the mean difference of pairs, which lies `beyond` rounding; false where there are no pairs,
/// or where they do not scatter and are not equal pairs of samples that do.
bool set_paired_error(Difference& d, const std::optional<Pairs>& pairs, double beyond) {
    if (!pairs || !std::isfinite(pairs->scatter.error)) return false;
    if (pairs->scatter.error == 0 && (beyond > 0 || !pairs->samples_scatter)) return false;
    d.error = pairs->scatter.error;
    d.freedom = pairs->scatter.freedom;
    d.pairs = pairs->count;
    d.rises = pairs->rises;
    return true;
}

/// How far the numbers may be from what is written: bounds of iterative ones, and rounding.
double slack_of(const MetricRow& a, const MetricRow& b, double resolution) {
    const auto bounds = [](const MetricRow& row) {
        return row.low && row.high ? std::max({0.0, *row.high - *row.value, *row.value - *row.low})
                                   : 0;
    };
    return bounds(a) + bounds(b) + resolution * std::max(std::abs(*a.value), std::abs(*b.value));
}

std::string why_undefined(const MetricRow& row, const MeasuredResult& of) {
    return fmt::format("{}: {}", of.name, row.note.empty() ? "undefined" : row.note);
}

bool same_scatter(const MetricRow& a, const MetricRow& b, double resolution) {
    const double error_a = a.standard_error.value_or(0), error_b = b.standard_error.value_or(0);
    return a.count == b.count &&
           std::abs(error_a - error_b) <= resolution * std::max(error_a, error_b);
}

struct Tested {
    Difference found = {};
    double slack = 0;
    bool independent = false;  ///< samples
};

Tested difference_of(const MetricRow& a, const MetricRow& b, const MeasuredResult& first,
                     const MeasuredResult& other, Samples samples, double resolution) {
    Tested out{.independent = samples == Samples::independent};
    Difference& d = out.found;
    d.at = b.at;
    d.metric = b.metric;
    d.a = a.value;
    d.b = b.value;
    d.count_a = a.count;
    d.count_b = b.count;
    if (!a.value || !b.value) {
        d.note = !a.value ? why_undefined(a, first) : why_undefined(b, other);
        return out;
    }
    const double difference = *b.value - *a.value;
    if (!std::isfinite(difference)) {
        d.note = "the difference is beyond the range of doubles";
        return out;
    }
    d.difference = difference;
    out.slack = slack_of(a, b, resolution);
    const double beyond = std::max(0.0, std::abs(difference) - out.slack);
    const bool same = same_inputs(first.run, other.run);
    const Index trials = first.run.input.trials.value_or(1);
    if (!same || !set_paired_error(d, pairs_of(a, b, trials), beyond))
        set_error(d, scatter_of(a, first.run), scatter_of(b, other.run), samples);
    if (d.error) {
        const double ratio = beyond > 0 ? beyond / *d.error : 0;  // pairs may be equal
        d.probability = std::min(1.0, 2 * student_tail(ratio, *d.freedom));
        d.outcome = Outcome::scatter;
    } else {
        d.outcome = beyond > 0 ? Outcome::untested : Outcome::equal;
    }
    // Shared samples with equal mean and scatter count among the tests, with p = 1.
    if (samples == Samples::shared && beyond == 0 &&
        (d.error == 0.0 || same_scatter(a, b, resolution)))
        d.outcome = Outcome::equal;
    return out;
}

bool wanted(const MetricRow& row, const RowChoice& choice) {
    const Index layer = row.at.layer;
    if (choice.layers &&
        (layer < choice.first_layer || (choice.last_layer >= 0 && layer > choice.last_layer)))
        return false;
    if (!choice.metrics.empty() &&
        std::ranges::find(choice.metrics, row.metric) == choice.metrics.end())
        return false;
    if (choice.all_heads) return row.at.head >= 0;
    if (choice.heads.empty()) return row.at.head < 0;
    return std::ranges::find(choice.heads, row.at.head) != choice.heads.end();
}

void require_one_definition(const MeasuredResult& a, const MeasuredResult& b,
                            const std::set<std::string>& metrics) {
    const auto &of_a = a.run.definitions, &of_b = b.run.definitions;
    for (const std::string& metric : metrics) {
        const auto in_a = of_a.find(metric), in_b = of_b.find(metric);
        if (in_a != of_a.end() && in_b != of_b.end() && in_a->second != in_b->second)
            throw FormatError(
                fmt::format("{} and {}: {} is defined otherwise in each, so its numbers cannot be "
                            "compared; measure both with one version of tsdiag.",
                            a.name, b.name, metric));
    }
}

template <class T>
std::string plain(const std::optional<T>& count) {
    return count ? std::to_string(*count) : "";
}

/// What determines the inputs of a run, as far as its description tells: names and values.
std::vector<std::pair<std::string, std::string>> input_facts(const RunRecord& run) {
    if (run.train)
        return {{"samples held out of", run.train->data},
                {"contents", run.train->contents},
                {"tokens", plain(run.train->tokens)},
                {"samples", plain(run.train->probe_samples)},
                {"seed", plain(run.seed)}};
    return {{"input", run.settings.input.empty() ? run.input.kind : run.settings.input},
            {"tokens", plain(run.input.tokens)},
            {"samples", plain(run.input.samples)},
            {"trials", plain(run.input.trials)},
            {"mask", run.settings.mask},
            {"seed", run.input.kind == "trace" ? "" : plain(run.seed)}};
}

std::string or_none(const std::string& word) { return word.empty() ? "none" : word; }

/// How the inputs differ; empty where they do not.
std::string input_differences(const MeasuredResult& a, const MeasuredResult& b) {
    const bool in_training = a.run.train.has_value();
    if (in_training != b.run.train.has_value())
        return fmt::format("{} was measured in its training, {} by itself",
                           in_training ? a.name : b.name, in_training ? b.name : a.name);
    const auto of_a = input_facts(a.run), of_b = input_facts(b.run);
    std::string out;
    for (std::size_t i = 0; i < of_a.size(); ++i) {
        if (of_a[i].second == of_b[i].second) continue;
        out += fmt::format("{}{} {} in {}, {} in {}", out.empty() ? "" : "; ", of_a[i].first,
                           or_none(of_a[i].second), a.name, or_none(of_b[i].second), b.name);
    }
    return out;
}

/// What --fast rounded the factors of products to; empty: nothing.
std::string rounded_to(const RunRecord& run) {
    return run.fast.contains("products") ? run.fast["products"].string() : "";
}

std::string worded_layers(Index layers) {
    return layers == 1 ? "1 layer" : fmt::format("{} layers", layers);
}

void note_differences(Changes& out, const MeasuredResult& a, const MeasuredResult& b,
                      bool of_heads) {
    if (const std::string inputs = input_differences(a, b); !inputs.empty())
        out.notes.push_back(
            fmt::format("The inputs differ, so a change may be theirs: {}.", inputs));
    if (a.layers != b.layers && a.layers > 0 && b.layers > 0)
        out.notes.push_back(fmt::format(
            "{} has {}, {} has {}: equal layers are compared, not equal depths; "
            "{}:last {}:last compares the last ones.",
            a.name, worded_layers(a.layers), b.name, worded_layers(b.layers), a.name, b.name));
    if (a.step != b.step && !a.chosen && !b.chosen)
        out.notes.push_back(
            fmt::format("The last steps are compared: {} of {}, {} of {}.",
                        a.step < 0 ? "the only one" : std::to_string(a.step), a.name,
                        b.step < 0 ? "the only one" : std::to_string(b.step), b.name));
    for (const auto& [what, of_a, of_b] :
         {std::tuple("dtype", a.run.dtype, b.run.dtype),
          std::tuple("loss", a.run.loss.name, b.run.loss.name),
          std::tuple("--fast", rounded_to(a.run), rounded_to(b.run))})
        if (of_a != of_b)
            out.notes.push_back(fmt::format("{}: {} has {}, {} has {}.", what, a.name,
                                            or_none(of_a), b.name, or_none(of_b)));
    if (of_heads && a.run.model.argument != b.run.model.argument)
        out.notes.emplace_back(
            "Heads are compared by their numbers; in models that were not trained from the same "
            "weights, head 0 of one has no relation to head 0 of another.");
}

bool drawn(const std::string& kind) { return kind == "gaussian" || kind == "ids:random"; }

/// The order of compare.csv.
std::tuple<int, double, double> rank_of(const Difference& d) {
    switch (d.outcome) {
        case Outcome::significant:
        case Outcome::scatter:
            return {d.outcome == Outcome::significant ? 0 : 2, *d.probability,
                    -std::abs(*d.difference / *d.error)};
        case Outcome::untested:
            return {1, -d.relative(), 0};
        case Outcome::equal:
            return {3, 0, 0};
        case Outcome::undefined:
            break;
    }
    return {4, 0, 0};
}

/// A and B as a reader sees them apart: with more digits where four are the same.
std::pair<std::string, std::string> told_apart(const Difference& d) {
    constexpr int most = 8;  // digits; numbers that differ by less than 1e-6 count as equal
    int digits = 4;
    while (digits < most && readable(*d.a, digits) == readable(*d.b, digits)) ++digits;
    return {readable(*d.a, digits), readable(*d.b, digits)};
}

/// The first change; of several results with the letter of its own.
std::string first_change(const Changes& found) {
    const Difference& d = found.differences.front();
    const bool several = std::ranges::any_of(found.differences,
                                             [](const Difference& one) { return one.result > 1; });
    const auto [a, b] = told_apart(d);
    return fmt::format("{} from {} to {}{}", d.where(), a, b,
                       several ? " in " + letter(d.result) : "");
}

/// The change of t_sim behind the deepest layer that has one, by result.
std::map<std::size_t, const Difference*> final_similarities(const Changes& found) {
    std::map<std::size_t, const Difference*> out;
    for (const Difference& d : found.differences) {
        if (d.metric != metric::t_sim || d.at.stage != "out" || d.at.head >= 0 || !d.difference)
            continue;
        const Difference*& deepest = out[d.result];
        if (!deepest || d.at.layer > deepest->at.layer) deepest = &d;
    }
    return out;
}

/// "final t_sim", "t_sim (layer 3)", or "t_sim" of one layer of each result.
std::string similarity_name(const Changes& found, Index layer) {
    if (layer < 0) return "t_sim";
    return layer == found.layers - 1 ? "final t_sim" : fmt::format("t_sim (layer {})", layer);
}

/// What becomes of the tokens where t_sim ends at b instead of a.
std::string_view end_of_tokens(double a, double b) {
    constexpr double alike = 0.99, mostly = 0.9;  // as in the verdict on a result
    if (a <= alike && b > alike) return " collapses";
    if (a > mostly && b <= mostly) return " ends distinct";
    return b > a ? " ends more alike" : " ends less alike";
}

/// "(-0.851, 99.5 % CI -0.87 to -0.832)"
std::string change_in_words(const Changes& found, const Difference& d) {
    if (!d.low || !d.high) return fmt::format("({:+.3g})", *d.difference);
    return fmt::format("({:+.3g}, {:.5g} % CI {} to {})", *d.difference,
                       100 * found.interval_confidence, readable(*d.low, 3), readable(*d.high, 3));
}

/// "Final t_sim: 0.97 in A, 0.12 in B, 0.5 in C (layer 3)."  A layer is named where it is not that
/// of the deepest.
std::string of_several(const Changes& found, const std::map<std::size_t, const Difference*>& ends) {
    const Difference& deepest = *std::ranges::max_element(ends, {}, [](const auto& end) {
                                     return end.second->at.layer;
                                 })->second;
    std::string text = similarity_name(found, deepest.at.layer);
    if (text.starts_with("final")) text.front() = 'F';
    text += fmt::format(": {} in {}", readable(*deepest.a), found.names[0]);
    for (const auto& [result, end] : ends)
        text += fmt::format(
            ", {} in {}{}", readable(*end->b), found.names[result],
            end->at.layer == deepest.at.layer ? "" : fmt::format(" (layer {})", end->at.layer));
    return text + ".";
}

/// "after ends distinct: final t_sim 0.12 instead of 0.97 (-0.85, 95 % CI -0.87 to -0.83)."  Of
/// several results their numbers; empty without t_sim.
std::string of_tokens(const Changes& found) {
    const auto ends = final_similarities(found);
    if (ends.empty()) return {};
    if (found.names.size() > 2) return of_several(found, ends);
    const auto& [result, d] = *ends.begin();
    const std::string what = similarity_name(found, d->at.layer);
    const std::string& name = found.names[result];
    const auto [a, b] = told_apart(*d);
    const std::string numbers = a == b ? fmt::format("{} {} in both", what, a)
                                       : fmt::format("{} {} instead of {}", what, b, a);
    switch (d->outcome) {
        case Outcome::equal:
            return fmt::format("{}: {} is the same, {}.", name, what, readable(*d->a));
        case Outcome::scatter:
            return fmt::format("{}: {}, within scatter {}.", name, numbers,
                               change_in_words(found, *d));
        case Outcome::untested:
            return fmt::format("{}: {}.", name, numbers);
        case Outcome::significant:
        case Outcome::undefined:
            break;
    }
    return fmt::format("{}{}: {} {}.", name, end_of_tokens(*d->a, *d->b), numbers,
                       change_in_words(found, *d));
}

bool is_sure_of_tokens(const Changes& found) {
    return std::ranges::any_of(final_similarities(found), [](const auto& end) {
        return end.second->outcome == Outcome::significant;
    });
}

}  // namespace

std::string MeasuredResult::model() const {
    if (run.checkpoints)
        for (const RunRecord::Checkpoint& one : *run.checkpoints)
            if (one.step == step) return one.path;
    return run.model.argument;
}

ResultPart parse_part(const std::string& suffix, const std::string& argument) {
    ResultPart part;
    std::string_view rest = suffix;
    if (rest.starts_with('@')) {
        const std::size_t end = std::min(rest.find(':'), rest.size());
        part.step = part_index(rest.substr(1, end - 1), argument);
        rest.remove_prefix(end);
    }
    if (rest.empty() && part.step) return part;
    if (!rest.starts_with(':')) refuse_part(argument);
    rest.remove_prefix(1);
    const std::size_t dot = rest.find('.');
    const std::string_view layer = rest.substr(0, dot);
    if (layer == "last")
        part.last_layer = true;
    else
        part.layer = part_index(layer, argument);
    if (dot != std::string_view::npos) part.head = part_index(rest.substr(dot + 1), argument);
    return part;
}

MeasuredResult select(std::string name, std::vector<MetricRow> rows, RunRecord run,
                      const ResultPart& part) {
    MeasuredResult out{
        .name = std::move(name), .run = std::move(run), .chosen = part.step.has_value()};
    Index last_step = -1;
    for (const MetricRow& row : rows) last_step = std::max(last_step, row.at.step);
    out.step = part.step.value_or(last_step);
    std::erase_if(rows, [&](const MetricRow& row) { return row.at.step != out.step; });
    if (rows.empty())
        throw FormatError(part.step && last_step >= 0
                              ? fmt::format("{}: has no row of step {}; its last step is {}.",
                                            out.name, out.step, last_step)
                              : fmt::format("{}: has no row of a metric{}.", out.name,
                                            part.step ? " of a step; leave out @STEP" : ""));
    require_single_rows(out.name, rows);
    Index last_layer = -1;
    for (const MetricRow& row : rows) last_layer = std::max(last_layer, row.at.layer);
    out.layers = last_layer + 1;
    const Index layer = part.last_layer ? last_layer : part.layer.value_or(-1);
    Index last_head = -1;
    for (MetricRow& row : rows) {
        row.at.step = -1;
        if (!part.whole()) {
            if (row.at.layer != layer) continue;
            last_head = std::max(last_head, row.at.head);
            if (part.head && row.at.head != *part.head) continue;
            row.at.layer = -1;
            if (part.head) row.at.head = -1;
        }
        out.rows.push_back(std::move(row));
    }
    if (!part.whole()) out.layers = 0;
    if (out.rows.empty())
        throw FormatError(
            last_head >= 0
                ? fmt::format("{}: has no row of that head; the last of layer {} is {}.", out.name,
                              layer, last_head)
                : fmt::format("{}: has no row there; its last layer is {}.", out.name, last_layer));
    return out;
}

Samples samples_of(const RunRecord& a, const RunRecord& b) {
    const bool independent = drawn(a.input.kind) && drawn(b.input.kind) && a.seed != b.seed;
    return independent ? Samples::independent : Samples::shared;
}

std::string Difference::where() const {
    std::string out = metric;
    if (!at.stage.empty()) out += "@" + at.stage;
    if (at.layer >= 0) out += fmt::format(":{}", at.layer);
    if (at.head >= 0)
        out += at.layer >= 0 ? fmt::format(".{}", at.head) : fmt::format(" head {}", at.head);
    if (!at.tensor.empty()) out += " " + at.tensor;
    return out;
}

double Difference::relative() const {
    if (!difference || *difference == 0) return 0;
    return std::abs(*difference) / std::max(std::abs(*a), std::abs(*b));
}

std::string_view name(Outcome outcome) {
    constexpr std::array<std::string_view, 5> names{"significant", "not told apart", "not tested",
                                                    "equal", "undefined"};
    return names[std::size_t(outcome)];
}

Discoveries discoveries(std::span<const double> probabilities, double rate) {
    std::vector<double> sorted(probabilities.begin(), probabilities.end());
    std::ranges::sort(sorted);
    double harmonic = 0;
    for (std::size_t k = 1; k <= sorted.size(); ++k) harmonic += 1 / double(k);
    if (sorted.empty()) return {0, rate};
    const double step = rate / (double(sorted.size()) * harmonic);
    std::size_t count = sorted.size();
    while (count > 0 && !(sorted[count - 1] <= double(count) * step)) --count;
    return {count, double(std::max<std::size_t>(count, 1)) * step};
}

Changes compare(std::span<const MeasuredResult> results, const ComparisonOptions& options) {
    if (results.size() < 2) throw UsageError("a comparison needs two results.");
    if (!(options.rate > 0 && options.rate < 1))
        throw UsageError(
            fmt::format("a false-discovery rate of {} is not between 0 and 1.", options.rate));
    Changes out;
    out.rate = options.rate;
    std::vector<Tested> all;
    const MeasuredResult& first = results.front();
    const bool of_heads = options.choice.all_heads || !options.choice.heads.empty();
    out.layers = first.layers;
    for (const MeasuredResult& one : results) {
        out.names.push_back(one.name);
        if (one.layers != first.layers) out.layers = 0;
    }
    std::map<RowKey, const MetricRow*> baseline;
    for (const MetricRow& row : first.rows)
        if (wanted(row, options.choice)) baseline[key_of(row)] = &row;
    for (std::size_t i = 1; i < results.size(); ++i) {
        const MeasuredResult& other = results[i];
        const Samples samples = samples_of(first.run, other.run);
        std::size_t common = 0, rows = 0;
        std::set<std::string> metrics;
        for (const MetricRow& row : other.rows) {
            if (!wanted(row, options.choice)) continue;
            ++rows;
            const auto found = baseline.find(key_of(row));
            if (found == baseline.end()) continue;
            ++common;
            metrics.insert(row.metric);
            all.push_back(
                difference_of(*found->second, row, first, other, samples, options.resolution));
            all.back().found.result = i;
        }
        if (common == 0)
            throw FormatError(
                fmt::format("{} and {}: have no number of the same metric at the same place{}, so "
                            "there is nothing to compare.",
                            first.name, other.name,
                            options.choice.layers || of_heads || !options.choice.metrics.empty()
                                ? " among those chosen"
                                : ""));
        require_one_definition(first, other, metrics);
        out.only_in_one += rows + baseline.size() - 2 * common;
        note_differences(out, first, other, of_heads);
        out.same_inputs = out.same_inputs &&
                          (samples == Samples::independent || same_inputs(first.run, other.run));
    }

    std::vector<double> probabilities;
    for (const Tested& one : all)
        if (one.found.probability) probabilities.push_back(*one.found.probability);
    const Discoveries found = discoveries(probabilities, options.rate);
    out.tested = probabilities.size();
    out.significant = found.count;
    out.interval_confidence = 1 - found.threshold;
    for (Tested& one : all) {
        Difference& d = one.found;
        if (d.probability) {
            out.paired += d.pairs > 0;
            out.independent += d.pairs == 0 && one.independent;
            if (*d.probability <= found.threshold) d.outcome = Outcome::significant;
            const double half =
                student_quantile(out.interval_confidence, *d.freedom) * *d.error + one.slack;
            d.low = *d.difference - half;
            d.high = *d.difference + half;
            if (!std::isfinite(*d.low) || !std::isfinite(*d.high)) d.low = d.high = std::nullopt;
        }
        out.untested += d.outcome == Outcome::untested;
        out.equal += d.outcome == Outcome::equal;
        out.undefined += d.outcome == Outcome::undefined;
        out.differences.push_back(std::move(d));
    }
    // Equal ranks stay in the order of the tables.
    std::vector<std::pair<decltype(rank_of(Difference())), std::size_t>> order;
    for (const Difference& d : out.differences) order.emplace_back(rank_of(d), order.size());
    std::ranges::sort(order);
    std::vector<Difference> sorted;
    for (const auto& [rank, i] : order) sorted.push_back(std::move(out.differences[i]));
    out.differences = std::move(sorted);
    return out;
}

namespace {

/// Is every number equal that both results have?
bool is_unchanged(const Changes& found) {
    return found.equal > 0 && found.equal + found.undefined == found.differences.size();
}

}  // namespace

std::string headline(const Changes& found) {
    const std::size_t all = found.differences.size();
    const std::string rate = fmt::format("false-discovery rate at most {:.4g} %", 100 * found.rate);
    if (is_unchanged(found))
        return fmt::format("No change: {} number{} equal.", found.equal,
                           found.equal == 1 ? " is" : "s are");
    const std::string tokens = of_tokens(found), begin = tokens.empty() ? "" : tokens + " ";
    if (found.significant > 0)
        return fmt::format("{}{} of {} number{} changed significantly ({}){}.", begin,
                           found.significant, found.tested, found.tested == 1 ? "" : "s", rate,
                           is_sure_of_tokens(found) ? "" : "; the surest: " + first_change(found));
    if (found.tested > 0)
        return fmt::format("{}None of {} number{} changed significantly ({}).", begin, found.tested,
                           found.tested == 1 ? "" : "s", rate);
    if (found.untested > 0)
        return fmt::format(
            "{}{} of {} numbers differ, untested{}.", begin, found.untested, all,
            tokens.empty() ? "; the greatest change, relative to its size: " + first_change(found)
                           : "");
    return "Nothing can be compared: every number is undefined in one of the results.";
}

namespace {

std::string how_tested(const Changes& found) {
    if (found.independent == found.tested) return "Independent samples: Welch's test.";
    if (found.paired == found.tested) {
        const bool of_trials = std::ranges::any_of(found.differences, [](const Difference& d) {
            return d.pairs > 0 && d.pairs < d.count_a;
        });
        return fmt::format("Paired test: each {} with itself.", of_trials ? "trial" : "sample");
    }
    constexpr std::string_view missed = "small changes may be missed";
    if (const std::size_t known = found.paired + found.independent; known > 0) {
        std::vector<std::string> kinds;
        if (found.paired > 0) kinds.push_back(fmt::format("{} paired", found.paired));
        if (found.independent > 0)
            kinds.push_back(fmt::format("{} of independent samples (Welch's)", found.independent));
        if (known < found.tested)
            kinds.push_back(
                fmt::format("{} unpaired and conservative: {}", found.tested - known, missed));
        return fmt::format("Tests: {}.", fmt::join(kinds, ", "));
    }
    return fmt::format("Unpaired, conservative test, for {}: {}.",
                       found.same_inputs ? "values of the samples were not kept"
                                         : "the inputs are not known to be the same",
                       missed);
}

}  // namespace

std::vector<std::string> remarks(const Changes& found) {
    std::vector<std::string> out;
    const auto count = [&](std::size_t numbers, std::string_view what) {
        if (numbers > 0)
            out.push_back(fmt::format("{} {} {}.", numbers,
                                      numbers == 1 ? "number is" : "numbers are", what));
    };
    if (found.tested > 0 && !is_unchanged(found)) out.push_back(how_tested(found));
    if (found.untested > 0) {
        const bool single = std::ranges::any_of(found.differences, [](const Difference& d) {
            return d.outcome == Outcome::untested && std::min(d.count_a, d.count_b) < 2;
        });
        out.push_back(fmt::format("{} difference{} cannot be tested: {}.", found.untested,
                                  found.untested == 1 ? "" : "s",
                                  single ? "a result has one sample only (--samples 8 of probe, "
                                           "--probe-samples 8 of train)"
                                         : "no scatter of the samples was recorded"));
    }
    if (!is_unchanged(found)) count(found.equal, "equal");
    const auto in_both = std::size_t(
        std::ranges::count_if(found.differences, [](const Difference& d) { return !d.a && !d.b; }));
    count(found.undefined - in_both, "undefined in one of the results");
    count(in_both, "undefined in both");
    count(found.only_in_one, "in one result only");
    return out;
}

std::string letter(std::size_t i) { return std::string(1, char('A' + i)); }

std::string comparison_csv(const Changes& found, std::span<const MeasuredResult> results) {
    std::string out =
        "against,result,layer,stage,head,tensor,metric,a,b,difference,low,high,stderr,freedom,p,"
        "count_a,count_b,pairs,rises,outcome,note\n";
    for (const Difference& d : found.differences) {
        CsvLine line(out);
        line.text(results.front().name).text(results[d.result].name);
        line.index(d.at.layer).text(d.at.stage).index(d.at.head).text(d.at.tensor).text(d.metric);
        line.number(d.a).number(d.b).number(d.difference).number(d.low).number(d.high);
        line.number(d.error).number(d.freedom).number(d.probability);
        line.index(d.count_a).index(d.count_b).index(d.pairs).index(d.rises);
        line.text(name(d.outcome)).text(d.note).end();
    }
    return out;
}

RunRecord::Comparison comparison_record(const Changes& found) {
    const auto number = [](const std::optional<double>& v) { return v ? Json(*v) : Json(); };
    Json::Array rows;
    for (const Difference& d : found.differences) {
        Json row;
        row.set("result", letter(d.result)).set("where", d.where()).set("metric", d.metric);
        row.set("layer", d.at.layer >= 0 ? Json(d.at.layer) : Json()).set("stage", d.at.stage);
        row.set("head", d.at.head >= 0 ? Json(d.at.head) : Json()).set("tensor", d.at.tensor);
        row.set("a", number(d.a)).set("b", number(d.b)).set("difference", number(d.difference));
        row.set("low", number(d.low)).set("high", number(d.high)).set("stderr", number(d.error));
        row.set("freedom", number(d.freedom)).set("p", number(d.probability));
        row.set("count_a", d.count_a).set("count_b", d.count_b);
        row.set("pairs", d.pairs).set("rises", d.rises);
        rows.push_back(row.set("outcome", name(d.outcome)).set("note", d.note));
    }
    return {.verdict = headline(found),
            .notes = found.notes,
            .remarks = remarks(found),
            .rate = found.rate,
            .interval_confidence = found.interval_confidence,
            .tested = Index(found.tested),
            .paired = Index(found.paired),
            .significant = Index(found.significant),
            .untested = Index(found.untested),
            .equal = Index(found.equal),
            .undefined = Index(found.undefined),
            .only_in_one = Index(found.only_in_one),
            .differences = std::move(rows)};
}

}  // namespace tsdiag
