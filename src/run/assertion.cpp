#include "tsdiag/assertion.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>

#include "tsdiag/error.hpp"
#include "tsdiag/metric.hpp"
#include "tsdiag/spec.hpp"
#include "tsdiag/table_view.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag {
namespace {

using Selector = NumberName::Selector;
using Kind = Selector::Kind;
using Relation = Assertion::Relation;

[[noreturn]] void refuse_assertion(const std::string& text, const std::string& why) {
    throw UsageError(
        fmt::format("--assert '{}': {}; expected METRIC@STAGE:LAYER < NUMBER, such as "
                    "\"t_sim@out:last < 0.9\".",
                    text, why));
}

/// What refuses a name of a number, with the reason.
using Refuse = std::function<void(const std::string& why)>;

std::string stripped(std::string_view text) {
    const std::size_t begin = text.find_first_not_of(" \t");
    if (begin == std::string_view::npos) return {};
    return std::string(text.substr(begin, text.find_last_not_of(" \t") - begin + 1));
}

Selector parse_selector(const std::string& word, const Refuse& refuse) {
    if (word == "last") return {Kind::last};
    if (word == "max") return {Kind::most};
    if (word == "min") return {Kind::least};
    if (word == "mean") return {Kind::mean};
    Selector out{Kind::one};
    const auto [end, failed] = std::from_chars(word.data(), word.data() + word.size(), out.value);
    if (failed != std::errc() || end != word.data() + word.size() || out.value < 0)
        refuse(fmt::format("'{}' is not a number, last, max, min or mean", word));
    return out;
}

std::size_t result_of(const std::string& word, const std::string& text, std::size_t results) {
    if (word.size() != 1 || word[0] < 'A' || word[0] > 'Z')
        refuse_assertion(text, fmt::format("'{}' is not A, B, ... of a result", word));
    const auto i = std::size_t(word[0] - 'A');
    if (i >= results) refuse_assertion(text, fmt::format("there is no result {}", word));
    return i;
}

/// "A:" or "B-A:" in front of the metric, whose name is in lower case.
std::string without_results(const std::string& text, Assertion& out, std::size_t results,
                            std::string rest) {
    const std::size_t colon = rest.find(':');
    if (colon == std::string::npos || rest.empty() || rest[0] < 'A' || rest[0] > 'Z') return rest;
    const std::vector<std::string> names = split(rest.substr(0, colon), '-');
    if (names.size() > 2) refuse_assertion(text, "more than two results");
    out.result = result_of(stripped(names[0]), text, results);
    if (names.size() == 2) out.minus = result_of(stripped(names[1]), text, results);
    return stripped(rest.substr(colon + 1));
}

void read_relation(const std::string& text, std::size_t at, Assertion& out) {
    const bool equal = at + 1 < text.size() && text[at + 1] == '=';
    out.relation = text[at] == '<' ? (equal ? Relation::at_most : Relation::less)
                                   : (equal ? Relation::at_least : Relation::more);
    const std::string number = stripped(text.substr(at + (equal ? 2 : 1)));
    const auto [end, failed] =
        std::from_chars(number.data(), number.data() + number.size(), out.bound);
    if (failed != std::errc() || end != number.data() + number.size() || !std::isfinite(out.bound))
        refuse_assertion(text, fmt::format("'{}' is not a finite number", number));
}

/// A number, or an interval that it lies in, or why there is none.
struct Known {
    std::optional<double> value = {};
    double low = 0, high = 0;
    std::string where = {}, reason = {};
};

Known known(const MetricRow& row) {
    Known out;
    if (row.value) {
        out.value = out.low = out.high = *row.value;
        if (row.low && row.high) {
            out.low = std::min(*row.low, *row.value);
            out.high = std::max(*row.high, *row.value);
        }
    } else if (row.low && row.high) {
        out.low = *row.low;
        out.high = *row.high;
        out.value = std::midpoint(out.low, out.high);
    } else {
        out.reason = row.note.empty() ? "it is undefined" : row.note;
    }
    return out;
}

constexpr std::string_view no_layer = "a number of each layer, of which none is named (:last)";

Known lacking(std::string reason) {
    Known out;
    out.reason = std::move(reason);
    return out;
}

/// The numbers by index, combined as `selector` says; `noun` is what the index counts.
Known combined(const std::map<Index, Known>& all, const Selector& selector, std::string_view noun,
               Index last) {
    const bool one = selector.kind == Kind::one || selector.kind == Kind::last;
    if (all.empty()) return lacking("it was not measured");
    if (one) {
        const Index at = selector.kind == Kind::last ? last : selector.value;
        const auto found = all.find(at);
        if (found == all.end())
            return lacking(fmt::format("it was not measured in {} {}, but in {} to {}", noun, at,
                                       all.begin()->first, all.rbegin()->first));
        Known out = found->second;
        if (!out.value) out.reason = fmt::format("in {} {}: {}", noun, at, out.reason);
        out.where = fmt::format("{} {}", noun, at) + (out.where.empty() ? "" : ", " + out.where);
        return out;
    }
    for (const auto& [at, number] : all)
        if (!number.value) return lacking(fmt::format("in {} {}: {}", noun, at, number.reason));
    Known out = all.begin()->second;
    out.where = fmt::format("{} {}", noun, all.begin()->first);
    if (selector.kind == Kind::mean) {
        const double count = double(all.size());
        // Between the extremes: equal numbers have that mean, whatever the rounding.
        const auto mean_of = [&](const auto& member) {
            double sum = 0, least = member(all.begin()->second), most = least;
            for (const auto& [at, number] : all) {
                const double x = member(number);
                sum += x / count;
                least = std::min(least, x);
                most = std::max(most, x);
            }
            return std::clamp(sum, least, most);
        };
        out.value = mean_of([](const Known& number) { return *number.value; });
        out.low = mean_of([](const Known& number) { return number.low; });
        out.high = mean_of([](const Known& number) { return number.high; });
        out.where = fmt::format("mean of {} {}s", all.size(), noun);
        return out;
    }
    const bool most = selector.kind == Kind::most;
    for (const auto& [at, number] : all) {
        if (most ? *number.value > *out.value : *number.value < *out.value) {
            out.value = number.value;
            out.where =
                fmt::format("{} {}", noun, at) + (number.where.empty() ? "" : ", " + number.where);
        }
        out.low = most ? std::max(out.low, number.low) : std::min(out.low, number.low);
        out.high = most ? std::max(out.high, number.high) : std::min(out.high, number.high);
    }
    return out;
}

Known without_head(const std::map<Index, Known>& heads) {
    const auto whole = heads.find(-1);
    if (whole != heads.end()) return whole->second;
    return combined(heads, {Kind::mean}, "head", -1);
}

Known with_head(std::map<Index, Known> heads, const Selector& head) {
    heads.erase(-1);
    return combined(heads, head, "head", heads.empty() ? -1 : heads.rbegin()->first);
}

/// The stage at which summaries read the metric.
std::string default_stage(const std::string& metric, const MeasuredResult& of) {
    Table table("result");
    std::vector<MetricRow> rows = of.rows;
    for (MetricRow& row : rows) row.model = "result";
    table.append(rows, {});
    const Metric& found = *find_metric(metric);
    return found.of == Of::gradient ? "" : TableView(table).stage_of("result", found);
}

Known known_number(const NumberName& name, const MeasuredResult& of) {
    const std::string stage = name.stage.empty() ? default_stage(name.metric, of) : name.stage;
    std::map<Index, std::map<Index, Known>> layers;  // layer, head
    std::vector<std::string> stages;
    for (const MetricRow& row : of.rows) {
        if (row.metric != name.metric || !row.at.tensor.empty()) continue;
        if (std::ranges::find(stages, row.at.stage) == stages.end()) stages.push_back(row.at.stage);
        if (row.at.stage == stage) layers[row.at.layer][row.at.head] = known(row);
    }
    if (layers.empty()) {
        std::string all;
        for (const std::string& one : stages)
            all += (all.empty() ? "" : ", ") + (one.empty() ? "no stage" : one);
        return lacking(stages.empty() ? "it was not measured"
                                      : fmt::format("it was not measured at stage '{}', but at {}",
                                                    stage, all));
    }
    std::map<Index, Known> numbers;
    for (const auto& [layer, heads] : layers)
        numbers[layer] =
            name.head.kind == Kind::none ? without_head(heads) : with_head(heads, name.head);
    if (name.layer.kind == Kind::none) {
        const auto whole = numbers.find(-1);
        if (whole == numbers.end()) return lacking(std::string(no_layer));
        return whole->second;
    }
    numbers.erase(-1);
    if (numbers.empty() && of.layers == 0)
        return lacking("the result is of one layer already; name none");
    return combined(numbers, name.layer, "layer", of.layers - 1);
}

bool holds(const Known& number, Relation relation, double bound) {
    switch (relation) {
        case Relation::less:
            return number.high < bound;
        case Relation::at_most:
            return number.high <= bound;
        case Relation::more:
            return number.low > bound;
        case Relation::at_least:
            break;
    }
    return number.low >= bound;
}

/// `value` to so many digits that it is seen on its own side of the bound.
std::string distinguishable_from(double value, double bound) {
    constexpr int exact = 17;
    for (int digits = 4; digits < exact; ++digits) {
        const std::string text = readable(value, digits);
        double shown = 0;
        std::from_chars(text.data(), text.data() + text.size(), shown);
        if ((shown < bound) == (value < bound) && (shown > bound) == (value > bound)) return text;
    }
    return readable(value, exact);
}

Judgement judgement(const Assertion& assertion, const Known& number, const std::string& of) {
    Judgement out;
    if (!number.value) {
        out.sentence = fmt::format("{} fails for {}: {}.", assertion.text, of, number.reason);
        return out;
    }
    out.value = number.value;
    out.holds = holds(number, assertion.relation, assertion.bound);
    std::string value = distinguishable_from(*number.value, assertion.bound);
    if (number.low < number.high)
        value = fmt::format("between {} and {}", distinguishable_from(number.low, assertion.bound),
                            distinguishable_from(number.high, assertion.bound));
    out.sentence =
        fmt::format("{} {} for {}: it is {}{}.", assertion.text, out.holds ? "holds" : "fails", of,
                    value, number.where.empty() ? "" : " (" + number.where + ")");
    return out;
}

Known difference(const Known& a, const std::string& of_a, const Known& b, const std::string& of_b) {
    if (!a.value) return lacking(of_a + ": " + a.reason);
    if (!b.value) return lacking(of_b + ": " + b.reason);
    Known out;
    out.value = *a.value - *b.value;
    out.low = a.low - b.high;
    out.high = a.high - b.low;
    if (!std::isfinite(*out.value) || !std::isfinite(out.low) || !std::isfinite(out.high))
        return lacking("the difference is beyond the range of doubles");
    out.where = fmt::format("{} against {}", readable(*a.value), readable(*b.value));
    return out;
}

/// Refuses a stage, a layer or a head that the metric has in no result.
void refuse_other_places(const NumberName& name, const Metric& metric, const Refuse& refuse) {
    const bool of_states =
        metric.of == Of::state || metric.of == Of::step || metric.of == Of::gradient;
    if (metric.of == Of::series && (!name.stage.empty() || name.layer.kind != Kind::none))
        refuse(fmt::format("{} is a number of a whole series", metric.name));
    if (name.head.kind != Kind::none && metric.of != Of::head && metric.of != Of::curve)
        refuse(fmt::format("{} is no number of a head", metric.name));
    if (name.stage.empty() || name.stage == metric.stage) return;
    if (!of_states) refuse(fmt::format("{} has the stage {} only", metric.name, metric.stage));
    const std::vector<std::string_view> all = all_stages();
    if (std::ranges::find(all, name.stage) == all.end())
        refuse(fmt::format("'{}' is not a stage ({})", name.stage, fmt::join(all, ", ")));
}

/// METRIC@STAGE:LAYER.HEAD; `text` is what the user wrote.
NumberName number_name(std::string rest, const std::string& option, const std::string& text,
                       const Refuse& refuse) {
    NumberName out{.text = rest};
    const std::size_t colon = rest.find(':');
    if (colon != std::string::npos) {
        const std::string place = rest.substr(colon + 1);
        const std::size_t dot = place.find('.');
        out.layer = parse_selector(place.substr(0, dot), refuse);
        if (dot != std::string::npos) out.head = parse_selector(place.substr(dot + 1), refuse);
        rest.resize(colon);
    }
    const std::size_t stage = rest.find('@');
    if (stage != std::string::npos) {
        out.stage = rest.substr(stage + 1);
        if (out.stage.empty()) refuse("the stage after @ is missing");
        rest.resize(stage);
    }
    out.metric = rest;
    if (const Metric* metric = find_metric(out.metric)) {
        refuse_other_places(out, *metric, refuse);
        return out;
    }
    std::vector<std::string> names;
    for (const Metric* metric : metrics()) names.emplace_back(metric->name);
    const std::string near = nearest(out.metric, names);
    throw UsageError(fmt::format(
        "{} '{}': '{}' is not a metric; {}", option, text, out.metric,
        near.empty() ? "see tsdiag list metrics." : fmt::format("did you mean {}?", near)));
}

}  // namespace

Assertion parse_assertion(const std::string& text, std::size_t results) {
    Assertion out{.text = stripped(text)};
    const std::size_t at = text.find_first_of("<>");
    if (at == std::string::npos) refuse_assertion(text, "has none of <, <=, > and >=");
    read_relation(text, at, out);
    std::string rest = without_results(text, out, results, stripped(text.substr(0, at)));
    out.number = number_name(rest, "--assert", text,
                             [&](const std::string& why) { refuse_assertion(text, why); });
    return out;
}

NumberName parse_number_name(const std::string& text, const std::string& option) {
    return number_name(stripped(text), option, text, [&](const std::string& why) {
        throw UsageError(
            fmt::format("{} '{}': {}; expected METRIC@STAGE:LAYER, such as t_sim@out:last.", option,
                        text, why));
    });
}

std::optional<double> number_of(const NumberName& name, const MeasuredResult& result) {
    return known_number(name, result).value;
}

std::vector<Judgement> judge(const Assertion& assertion, std::span<const MeasuredResult> results) {
    std::vector<Judgement> out;
    const auto number = [&](std::size_t i) {
        const Known found = known_number(assertion.number, results[i]);
        if (found.reason == no_layer)
            refuse_assertion(assertion.text,
                             fmt::format("{} is {}", assertion.number.metric, no_layer));
        return found;
    };
    if (assertion.minus) {
        const MeasuredResult &a = results[*assertion.result], &b = results[*assertion.minus];
        out.push_back(judgement(
            assertion,
            difference(number(*assertion.result), a.name, number(*assertion.minus), b.name),
            fmt::format("{} minus {}", a.name, b.name)));
        return out;
    }
    for (std::size_t i = 0; i < results.size(); ++i)
        if (!assertion.result || *assertion.result == i)
            out.push_back(judgement(assertion, number(i), results[i].name));
    return out;
}

}  // namespace tsdiag
