#include "equal_steps.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <set>
#include <unordered_map>

#include "log_records.hpp"

namespace tsdiag {
namespace {

constexpr std::size_t most_values = 4096, most_keys = 12, most_in_turn = 32;
constexpr Index most_returns = 100;

using Numbers = std::vector<LoggedNumber>;

/// Does the log go back, or to another file, at number i?
bool breaks_off(const Numbers& numbers, std::size_t i) {
    return numbers[i].step <= numbers[i - 1].step || numbers[i].file != numbers[i - 1].file;
}

/// The ends of the runs of ascending steps.
std::vector<std::size_t> ends_of_runs(const Numbers& numbers) {
    std::vector<std::size_t> ends;
    for (std::size_t i = 1; i < numbers.size(); ++i)
        if (breaks_off(numbers, i)) ends.push_back(i);
    ends.push_back(numbers.size());
    return ends;
}

/// Where the steps begin anew: the first epoch of each count, in ascending order.  Empty where they
/// do not, or where a number has no epoch.
std::vector<double> beginnings(const Numbers& numbers) {
    std::set<double> all;
    std::vector<double> anew;
    bool whole = true, back = false;
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        if (!numbers[i].epoch || !std::isfinite(*numbers[i].epoch)) return {};
        const double epoch = *numbers[i].epoch;
        whole = whole && epoch == std::floor(epoch);
        const bool grows =
            i > 0 && numbers[i].step <= numbers[i - 1].step && epoch > *numbers[i - 1].epoch;
        back = back || grows;
        if (i == 0 || (grows && epoch > *all.rbegin())) anew.push_back(epoch);
        all.insert(epoch);
    }
    if (!back) return {};
    return whole ? std::vector<double>(all.begin(), all.end()) : anew;
}

/// Counts steps that begin anew in each epoch on.
void count_on(SettledSeries& series) {
    Numbers& numbers = series.numbers;
    const std::vector<double> begins = beginnings(numbers);
    if (begins.size() < 2) return;
    const auto count_of = [&](const LoggedNumber& one) {
        const auto after = std::ranges::upper_bound(begins, *one.epoch);
        return std::size_t(std::max<std::ptrdiff_t>(after - begins.begin() - 1, 0));
    };
    const Index first = std::ranges::min(numbers, {}, &LoggedNumber::step).step;
    std::vector<Index> last(begins.size(), first), steps;
    for (const LoggedNumber& one : numbers)
        last[count_of(one)] = std::max(last[count_of(one)], one.step);
    for (std::size_t i = 0; i == 0 || (i < numbers.size() && !breaks_off(numbers, i)); ++i)
        steps.push_back(numbers[i].step);
    const Index distance = usual_distance(steps);
    std::vector<Index> offsets{0};
    for (std::size_t k = 0; k + 1 < last.size(); ++k) {
        offsets.push_back(offsets[k] + last[k] - first + distance);
        if (offsets.back() > Index(1) << 60) {
            series.refusal = "have a sum beyond 2^60 over the epochs; correct the log";
            return;
        }
    }
    for (LoggedNumber& one : numbers) one.step += offsets[count_of(one)];
    series.notes.push_back(
        fmt::format("the steps begin anew {} time{}, as in epochs: they are counted on",
                    begins.size() - 1, begins.size() == 2 ? "" : "s"));
}

/// What is said of steps that nothing explains.
std::string unexplained(const Numbers& numbers, const std::string& what) {
    const bool files = numbers.front().file != numbers.back().file;
    return fmt::format(
        "{}, and no column or key tells whether by runs, ranks, layers or epochs; {}", what,
        files
            ? "pass each event file by itself"
            : "add one that does (run, rank, layer, epoch), or pass --step-column with steps that "
              "do not begin anew");
}

/// Says why the returns of the steps are no resumptions; empty: they are.
std::string no_resumption(const Numbers& numbers, std::size_t distinct) {
    const std::vector<std::size_t> ends = ends_of_runs(numbers);
    Index twice = 0, step = 0;
    for (std::size_t i = 1; i < numbers.size(); ++i) {
        if (numbers[i].file != numbers[i - 1].file || numbers[i].step != numbers[i - 1].step)
            continue;
        if (twice++ == 0) step = numbers[i].step;
    }
    const Index some = Index(distinct) / 10;
    if (twice > std::max<Index>(some, 1))
        return unexplained(numbers, fmt::format("have step {} twice in succession", step));
    Index returns = 0, most = -1;
    for (std::size_t r = 0, i = 0; r < ends.size(); i = ends[r++]) {
        returns += numbers[i].step <= most;
        most = std::max(most, numbers[ends[r] - 1].step);
    }
    if (returns > std::clamp<Index>(some, 2, most_returns))
        return unexplained(numbers, fmt::format("go back {} times", returns));
    return "";
}

/// The greatest step of all runs that end at `ends` from run r on.
std::vector<Index> greatest_from(const Numbers& numbers, const std::vector<std::size_t>& ends) {
    std::vector<Index> out(ends.size() + 1, -1);
    for (std::size_t r = ends.size(); r-- > 0;)
        out[r] = std::max(out[r + 1], numbers[ends[r] - 1].step);
    return out;
}

/// Says of each return of the steps whether it is a resumption: one goes back to a step that the
/// log passed shortly before, in its later half, or goes on beyond all steps before, or begins
/// again where what was before ended soon.  Two runs are of the same steps.
void explain_returns(SettledSeries& series) {
    const Numbers& numbers = series.numbers;
    const std::vector<std::size_t> ends = ends_of_runs(numbers);
    if (std::ssize(ends) > 2 * most_returns + 1 && series.replaced == 0) return;  // not in order
    const std::vector<Index> greatest = greatest_from(numbers, ends);
    std::vector<Index> seen, run, both;
    for (std::size_t r = 0, i = 0; r < ends.size(); ++r) {
        const std::size_t left = numbers.size() - i;
        run.clear();
        for (; i < ends[r]; ++i) run.push_back(numbers[i].step);
        if (seen.empty() || run.front() > seen.back()) {
            seen.insert(seen.end(), run.begin(), run.end());
            continue;
        }
        both.clear();
        std::ranges::set_union(seen, run, std::back_inserter(both));
        const auto at = [](const std::vector<Index>& steps, Index step) {
            return std::size_t(std::ranges::lower_bound(steps, step) - steps.begin());
        };
        const std::size_t kept = at(seen, run.front()), most = seen.size() / 10 + 1;
        const bool beyond = greatest[r] > seen.back();
        // A training that ended before its first checkpoint begins again; two runs do so too.
        const bool resumed = 4 * seen.size() <= left || 2 * kept >= seen.size() ||
                             (beyond && 10 * kept >= seen.size());
        if (both.size() < seen.size() + run.size()) {
            if (!resumed) {
                series.refusal = unexplained(
                    numbers, fmt::format("go back to step {} and are repeated", run.front()));
                return;
            }
            if (2 * kept < seen.size() && 10 * kept >= seen.size())
                series.notes.push_back(
                    fmt::format("the steps go back from {} to {} and on beyond: taken for a "
                                "training resumed from an early checkpoint; of two runs, add a "
                                "column that tells them apart (run)",
                                seen.back(), run.front()));
        } else if (at(seen, run.back()) - kept > most && at(run, seen.back()) > most) {
            series.refusal = unexplained(
                numbers, fmt::format("go back to step {}, between those before", run.front()));
            return;
        }
        seen.swap(both);
    }
}

SettledSeries settled(const Numbers& numbers) {
    SettledSeries out{.numbers = numbers};
    count_on(out);
    std::vector<Index> steps;
    for (const LoggedNumber& one : out.numbers) steps.push_back(one.step);
    std::ranges::sort(steps);
    const Index all = std::ssize(steps);
    steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
    out.replaced = all - std::ssize(steps);
    if (!out.refusal.empty()) return out;
    if (out.replaced > 0) out.refusal = no_resumption(out.numbers, steps.size());
    if (out.refusal.empty()) explain_returns(out);
    if (out.replaced == 0) return out;
    out.notes.push_back(
        fmt::format("{} step{} written more than once (a resumed run?): the later record is used",
                    out.replaced, out.replaced == 1 ? " was" : "s were"));
    return out;
}

/// The numbers by the values of some keys: for each number 1 + the value of each key, 0: absent.
class Labels {
  public:
    Labels(const Numbers& numbers, const RecordKeys& keys) : numbers_(numbers), keys_(keys) {
        for (std::size_t i = 0; i < numbers.size(); ++i)
            for (const RecordKeys::Entry& entry : keys.of(numbers[i].record))
                found_[entry.key].emplace_back(i, entry.value);
        begins_ = ends_of_runs(numbers);
        begins_.insert(begins_.begin(), 0);
        first_ = std::ranges::min(numbers, {}, &LoggedNumber::step).step;
        firsts_ = std::size_t(std::ranges::count(numbers, first_, &LoggedNumber::step));
    }

    /// The keys that may tell series apart, those of text before those of numbers.
    std::vector<std::uint32_t> candidates(bool also_numbers) const {
        std::vector<std::uint32_t> out;
        for (const bool numeric : {false, true})
            for (const auto& [key, found] : found_)
                if (keys_.numeric(key) == numeric && (also_numbers || !numeric) &&
                    out.size() < most_keys && tells_apart(found))
                    out.push_back(key);
        return out;
    }

    /// The series of equal values of all `chosen` keys; empty where they are not all explained.
    std::vector<SettledSeries> split(const std::vector<std::uint32_t>& chosen) const {
        std::vector<std::vector<std::uint32_t>> columns;
        for (const std::uint32_t key : chosen) columns.push_back(values_of(key));
        std::map<std::vector<std::uint32_t>, std::size_t> places;
        std::vector<Numbers> groups;
        std::vector<std::string> names;
        std::vector<std::uint32_t> values(chosen.size());
        for (std::size_t i = 0; i < numbers_.size(); ++i) {
            for (std::size_t k = 0; k < chosen.size(); ++k) values[k] = columns[k][i];
            const auto [at, added] = places.emplace(values, groups.size());
            if (added) {
                groups.emplace_back();
                names.push_back(name_of(chosen, values));
            }
            groups[at->second].push_back(numbers_[i]);
        }
        std::vector<SettledSeries> out;
        for (std::size_t g = 0; g < groups.size(); ++g) {
            out.push_back(settled(groups[g]));
            out.back().of = names[g];
            if (!out.back().refusal.empty()) return {};
        }
        return out;
    }

  private:
    /// Numbers by their place, and the value of a key in their records.
    using Found = std::vector<std::pair<std::size_t, std::uint32_t>>;

    std::vector<std::uint32_t> values_of(std::uint32_t key) const {
        std::vector<std::uint32_t> out(numbers_.size(), 0);
        for (const auto& [i, value] : found_.at(key)) out[i] = value + 1;
        return out;
    }
    std::string name_of(const std::vector<std::uint32_t>& chosen,
                        const std::vector<std::uint32_t>& values) const {
        std::string name;
        for (std::size_t k = 0; k < chosen.size(); ++k)
            if (values[k] > 0)
                name += fmt::format(" {}={}", keys_.name(chosen[k]),
                                    keys_.value({chosen[k], values[k] - 1}));
        return name;
    }
    /// May a key of these values tell series apart?  Looks only at the records that have it.
    bool tells_apart(const Found& found) const {
        std::map<std::uint32_t, std::size_t> counts;
        std::set<std::uint32_t> at_first;
        std::size_t firsts = 0;
        bool constant = true;
        for (std::size_t k = 0; k < found.size(); ++k) {
            const auto& [i, value] = found[k];
            ++counts[value];
            if (numbers_[i].step == first_) {
                at_first.insert(value);
                ++firsts;
            }
            const bool begins = std::ranges::binary_search(begins_, i);
            const bool ends = std::ranges::binary_search(begins_, i + 1);
            const bool follows = k > 0 && found[k - 1] == std::pair(i - 1, value);
            const bool precedes = k + 1 < found.size() && found[k + 1] == std::pair(i + 1, value);
            constant = constant && (begins || follows) && (ends || precedes);
        }
        const std::size_t absent = numbers_.size() - found.size();
        const std::size_t different = counts.size() + (absent > 0 ? 1 : 0);
        if (different < 2 || 2 * different > numbers_.size()) return false;
        if (constant) return true;
        return at_first.size() == counts.size() &&
               (absent == 0 || (absent > 1 && firsts < firsts_)) &&
               std::ranges::all_of(counts, [](const auto& one) { return one.second > 1; });
    }

    const Numbers& numbers_;
    const RecordKeys& keys_;
    std::map<std::uint32_t, Found> found_;
    std::vector<std::size_t> begins_;  ///< of the runs of ascending steps, and the end
    Index first_ = 0;                  ///< the least step
    std::size_t firsts_ = 0;           ///< its numbers
};

/// The series that keys tell apart; empty where none do.  `also_numbers`: by keys of numbers, too.
std::vector<SettledSeries> told_apart(const Numbers& numbers, const RecordKeys& keys,
                                      bool also_numbers) {
    const Labels labels(numbers, keys);
    std::vector<std::uint32_t> chosen = labels.candidates(also_numbers);
    // One key, the one of the fewest series; else the least of them together.
    std::vector<SettledSeries> best;
    bool numeric = false;
    for (const std::uint32_t key : chosen) {
        if (!best.empty() && keys.numeric(key) && !numeric) break;
        std::vector<SettledSeries> out = labels.split({key});
        if (out.empty() || (!best.empty() && best.size() <= out.size())) continue;
        best = std::move(out);
        numeric = keys.numeric(key);
    }
    if (!best.empty() || chosen.size() < 2) return best;
    best = labels.split(chosen);
    for (std::size_t k = chosen.size(); k-- > 0 && !best.empty();) {
        std::vector<std::uint32_t> fewer = chosen;
        fewer.erase(fewer.begin() + std::ptrdiff_t(k));
        std::vector<SettledSeries> out = labels.split(fewer);
        if (out.empty()) continue;
        best = std::move(out);
        chosen = std::move(fewer);
    }
    return best;
}

/// "generator", but no number, measure ("3.1 it/s") or boolean.
bool is_word(const std::string& value) {
    std::string small = value;
    for (char& c : small) c = c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
    return small.front() >= 'a' && small.front() <= 'z' && small != "true" && small != "false" &&
           !logged_number(small);
}

/// The values of a key in successive numbers.
struct Turns {
    std::map<std::uint32_t, Index> counts = {};
    std::vector<std::uint32_t> order = {};
    std::size_t found = 0, changes = 0;
};

/// Does a sequence repeat itself, at least twice?
bool repeats(const std::vector<std::uint32_t>& order) {
    constexpr std::size_t longest = 100;
    for (std::size_t period = 2; period <= std::min(longest, order.size() / 2); ++period)
        if (std::equal(order.begin() + std::ptrdiff_t(period), order.end(), order.begin()))
            return true;
    return false;
}

/// Keys by which those who write them tell series apart; others may tell of one training what
/// happens in it now and then.
bool names_a_part(std::string_view key) {
    constexpr std::array<std::string_view, 10> known = {
        "net",   "network", "optim", "optimizer", "optimiser",
        "split", "subset",  "mode",  "phase",     "stage"};
    return std::ranges::find(known, key) != known.end();
}

/// The keys that all records have and of which a value returns behind another one: words in turns
/// or of a key for parts, before those of two values that take turns.
std::vector<std::uint32_t> alternating(const Numbers& numbers, const RecordKeys& keys) {
    std::map<std::uint32_t, Turns> seen;
    for (const LoggedNumber& number : numbers)
        for (const RecordKeys::Entry& entry : keys.of(number.record)) {
            Turns& turns = seen[entry.key];
            if (turns.counts.size() > most_in_turn) continue;
            turns.changes += turns.found++ > 0 && entry.value != turns.order.back();
            turns.order.push_back(entry.value);
            ++turns.counts[entry.value];
        }
    std::vector<std::uint32_t> words, others;
    for (const auto& [key, turns] : seen) {
        const auto& counts = turns.counts;
        const bool returns = turns.changes >= counts.size(), few = counts.size() <= most_in_turn;
        if (turns.found != numbers.size() || counts.size() < 2 || !returns || !few) continue;
        const bool of_words = std::ranges::all_of(counts, [&, at = key](const auto& one) {
            return is_word(keys.value({at, one.first}));
        });
        if (of_words && (names_a_part(keys.name(key)) || repeats(turns.order)))
            words.push_back(key);
        else if (counts.size() == 2 && turns.changes + 1 == numbers.size())
            others.push_back(key);
    }
    words.insert(words.end(), others.begin(), others.end());
    words.resize(std::min(words.size(), most_keys));
    return words;
}

/// The series that alternate in some keys, as those of two networks that are trained in turn; empty
/// where none do.
std::vector<SettledSeries> in_turn(const Numbers& numbers, const RecordKeys& keys) {
    std::vector<SettledSeries> best;
    std::vector<std::uint32_t> chosen;
    const std::vector<std::uint32_t> candidates = alternating(numbers, keys);
    if (candidates.empty()) return best;
    const Labels labels(numbers, keys);
    for (const std::uint32_t key : candidates) {
        std::vector<std::uint32_t> more = chosen;
        more.push_back(key);
        std::vector<SettledSeries> out = labels.split(more);
        const bool single = std::ranges::any_of(
            out, [](const SettledSeries& one) { return one.numbers.size() < 2; });
        if (out.size() <= best.size() || out.size() > most_in_turn || single) continue;
        best = std::move(out);
        chosen = std::move(more);
    }
    for (SettledSeries& one : best)
        one.notes.push_back(fmt::format(
            "records of other values come between those of{}: without that key they are one series",
            one.of));
    return best;
}

}  // namespace

void RecordKeys::begin() {
    open_ = true;
    pending_.clear();
}

void RecordKeys::put(std::string_view name, std::string_view value) {
    auto at = index_.find(name);
    if (at == index_.end()) {
        at = index_.emplace(std::string(name), std::uint32_t(keys_.size())).first;
        keys_.push_back({.name = std::string(name)});
    }
    Key& key = keys_[at->second];
    if (key.dropped || value.empty()) return;
    auto place = key.places.find(value);
    if (place == key.places.end()) {
        if (key.values.size() == most_values) {
            key = {.name = key.name, .dropped = true};
            return;
        }
        place = key.places.emplace(std::string(value), std::uint32_t(key.values.size())).first;
        key.values.emplace_back(value);
        key.numeric = key.numeric && logged_number(value).has_value();
    }
    pending_.push_back({at->second, place->second});
}

std::size_t RecordKeys::current() {
    if (open_ || begins_.empty()) {
        open_ = false;
        begins_.push_back(entries_.size());
        entries_.insert(entries_.end(), pending_.begin(), pending_.end());
    }
    return begins_.size() - 1;
}

std::vector<RecordKeys::Entry> RecordKeys::of(std::size_t record) const {
    const std::size_t end = record + 1 < begins_.size() ? begins_[record + 1] : entries_.size();
    std::vector<Entry> out;
    for (std::size_t i = begins_[record]; i < end; ++i)
        if (!keys_[entries_[i].key].dropped) out.push_back(entries_[i]);
    return out;
}

std::vector<SettledSeries> settled_series(const std::vector<LoggedNumber>& numbers,
                                          const RecordKeys& keys) {
    const SettledSeries one = settled(numbers);
    // Of a resumed training a number, such as the memory in use, may differ from one part to the
    // next.
    const bool resumed = one.refusal.empty();
    std::vector<SettledSeries> several;
    if (one.replaced > 0 || !resumed) several = told_apart(numbers, keys, !resumed);
    if (several.empty()) {
        several = in_turn(numbers, keys);
        return several.empty() ? std::vector{one} : several;
    }
    if (resumed)
        for (SettledSeries& part : several)
            part.notes.push_back(fmt::format(
                "the steps go back as in a resumed run, but the records differ in{}: without that "
                "key they are one series",
                part.of.empty() ? " a key" : part.of));
    return several;
}

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

}  // namespace tsdiag
