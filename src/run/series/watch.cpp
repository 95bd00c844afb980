#include "tsdiag/watch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tsdiag/change_test.hpp"
#include "tsdiag/table_view.hpp"

namespace tsdiag {
namespace {

/// The alarms of one number.
void add_changes(std::span<const MeasuredResult> results, const NumberName& number, double rate,
                 const std::string& unit, std::vector<Alarm>& out) {
    ChangeTest test(rate);
    std::map<Index, double> seen;
    for (const MeasuredResult& result : results) {
        const std::optional<double> value = number_of(number, result);
        if (!value) continue;
        seen[result.step] = *value;
        const std::optional<DriftChange> found = test.add(result.step, *value);
        if (!found) continue;
        const double expected =
            seen.at(found->since) + found->drift * double(result.step - found->since);
        out.push_back(
            {.kind = "change",
             .number = number.text,
             .step = result.step,
             .sentence = fmt::format(
                 "{} changes its course after {} {}: it is {} at {} {}, {} the {} that its earlier "
                 "drift gives.",
                 number.text, unit, found->since, readable(*value), unit, result.step,
                 found->up ? "above" : "below", readable(expected))});
    }
}

void add_failures(std::span<const MeasuredResult> results, const Assertion& assertion,
                  const std::string& unit, std::vector<Alarm>& out) {
    bool held = true;
    for (MeasuredResult result : results) {
        result.name = fmt::format("{} {}", unit, result.step);
        for (const Judgement& one : judge(assertion, std::span(&result, 1))) {
            if (held && !one.holds)
                out.push_back({.kind = "assertion",
                               .number = assertion.text,
                               .step = result.step,
                               .sentence = one.sentence});
            held = one.holds;
        }
    }
}

}  // namespace

std::vector<NumberName> default_numbers(const MeasuredResult& result) {
    std::vector<NumberName> out;
    for (const char* text :
         {"t_sim@out:last", "effective_rank@out:last", "lambda2_abs:mean", "delta:mean"}) {
        const NumberName name = parse_number_name(text, "default");
        if (number_of(name, result)) out.push_back(name);
    }
    return out;
}

std::vector<Alarm> alarms(std::span<const MeasuredResult> results, const WatchOptions& options,
                          const std::string& unit) {
    if (results.empty()) return {};
    const std::vector<NumberName> numbers =
        options.numbers.empty() ? default_numbers(results.front()) : options.numbers;
    std::vector<Alarm> out;
    for (const NumberName& number : numbers)
        add_changes(results, number, options.rate / double(numbers.size()), unit, out);
    for (const Assertion& assertion : options.assertions)
        add_failures(results, assertion, unit, out);
    std::ranges::stable_sort(out, {}, &Alarm::step);
    return out;
}

}  // namespace tsdiag
