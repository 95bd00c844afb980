#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <unordered_set>

#include "log_records.hpp"
#include "tsdiag/csv.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/json.hpp"

/// Logs as text: CSV, wide or long, and JSON lines.
namespace tsdiag {
namespace {

constexpr std::size_t none = std::size_t(-1);

std::string line_place(Index line) { return fmt::format("line {}", line); }

/// A step as a log writes it: "500", "500.0".
Index parse_step(std::string_view text, const LogRecords& out, const std::string& place) {
    const std::optional<double> value = logged_number(text);
    constexpr double largest = 9007199254740992.0;  // 2^53: doubles above it skip integers
    if (!value || !(*value >= 0 && *value <= largest) || *value != std::floor(*value))
        out.fail(place, fmt::format("the step is '{}', expected a whole number; pass --step-column "
                                    "with the right name",
                                    text.substr(0, 40)));
    return Index(*value);
}

char lower_case(char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; }

std::string lower_case(std::string text) {
    for (char& c : text) c = lower_case(c);
    return text;
}

/// The first column of a name that is `wanted`, in small letters.
std::size_t find_column(const std::vector<std::string>& names,
                        std::initializer_list<std::string_view> wanted) {
    for (const std::string_view want : wanted)
        for (std::size_t c = 0; c < names.size(); ++c)
            if (names[c].size() == want.size() &&
                std::equal(want.begin(), want.end(), names[c].begin(),
                           [](char a, char b) { return a == lower_case(b); }))
                return c;
    return none;
}

/// The places of NAME__MIN and NAME__MAX; none where there are none.
std::pair<std::size_t, std::size_t> bounds_of(const std::string& name,
                                              const std::vector<std::string>& names) {
    return {find_column(names, {lower_case(name + "__min")}),
            find_column(names, {lower_case(name + "__max")})};
}

std::size_t step_column(const std::vector<std::string>& names, const LogRecords& out) {
    const std::string& given = out.options().step_column;
    std::size_t best = none;
    for (std::size_t c = 0; c < names.size(); ++c) {
        if (!given.empty()) {
            if (names[c] == given) return c;
            continue;
        }
        const int rank = step_rank(names[c]);
        if (rank > 0 && (best == none || rank < step_rank(names[best]))) best = c;
    }
    if (!given.empty())
        out.fail("line 1", fmt::format("has no column '{}', expected the column of the steps; pass "
                                       "--step-column with the right name",
                                       given));
    return best;
}

/// The columns of a table.
struct Layout {
    std::size_t step = none, epoch = none;
    std::size_t tag = none, value = none;  ///< of a long table
    std::vector<std::size_t> qualifiers;   ///< layer, tensor and the like: part of the name
    std::vector<std::pair<std::size_t, std::string>> columns;  ///< of a wide table
    std::vector<std::pair<std::size_t, std::size_t>> bounds;   ///< beside each of them, or none
    std::vector<std::size_t> others;  ///< columns that may tell records of one step apart
    std::vector<std::size_t> steps;   ///< columns beside that of the step that may hold it

    bool is_long() const { return tag != none && value != none; }
};

/// May a column or key of that name tell series apart, though it is not known to?
bool may_tell_apart(std::string_view name, const LogRecords& out) {
    return step_rank(name) == 0 && !names_gradient_norm(name) && epoch_rank(name) == 0 &&
           !is_qualifier(name) && !is_bound_of_bucket(name) && name != out.options().column &&
           name != out.options().step_column;
}

Layout layout_of(const std::vector<std::string>& names, LogRecords& out) {
    Layout layout;
    layout.step = step_column(names, out);
    layout.tag = find_column(names, {"metric", "tag", "name", "key", "variable"});
    layout.value = find_column(names, {"value"});
    for (std::size_t c = 0; c < names.size(); ++c) {
        const int rank = epoch_rank(names[c]);
        if (rank > 0 && (layout.epoch == none || rank < epoch_rank(names[layout.epoch])))
            layout.epoch = c;
        if (c != layout.step && step_rank(names[c]) > 0 && out.options().step_column.empty())
            layout.steps.push_back(c);
        if (is_qualifier(names[c]) && c != layout.tag && c != layout.step && c != layout.value &&
            names[c] != out.options().column)
            layout.qualifiers.push_back(c);
    }
    for (std::size_t c = 0; c < names.size(); ++c)
        if (may_tell_apart(names[c], out) &&
            !(layout.is_long() && (c == layout.tag || c == layout.value)))
            layout.others.push_back(c);
    if (layout.is_long()) return layout;
    for (std::size_t c = 0; c < names.size(); ++c)
        if (c != layout.step && out.wants(names[c])) layout.columns.emplace_back(c, names[c]);
    for (const auto& [c, name] : layout.columns) layout.bounds.push_back(bounds_of(name, names));
    std::unordered_set<std::string_view> seen;
    for (const auto& [c, name] : layout.columns)
        if (!seen.insert(name).second)
            out.fail("line 1",
                     fmt::format("has two columns named '{}', expected each name once", name));
    return layout;
}

/// "grad_norm layer=3 tensor=attn.q"
std::string qualified(std::string name, const CsvReader& row, const Layout& layout,
                      const std::vector<std::string>& names) {
    for (const std::size_t c : layout.qualifiers)
        if (!row.text(c).empty()) name += fmt::format(" {}={}", names[c], row.text(c));
    return name;
}

/// Quotes NaN and Infinity, which Python writes but JSON does not allow.
std::string with_quoted_nonfinite(std::string_view line) {
    std::string out;
    bool inside = false;
    for (std::size_t i = 0; i < line.size(); ++i) {
        const char c = line[i];
        if (inside && c == '\\' && i + 1 < line.size()) {
            out += c;
            out += line[++i];
            continue;
        }
        if (c == '"') inside = !inside;
        bool replaced = false;
        for (const std::string_view word : {"NaN", "-Infinity", "Infinity"})
            if (!inside && !replaced && line.substr(i).starts_with(word)) {
                out += fmt::format("\"{}\"", word);
                i += word.size() - 1;
                replaced = true;
            }
        if (!replaced) out += c;
    }
    return out;
}

/// What Weights & Biases logs beside numbers, as the histogram of a parameter that it watches.
bool is_media(const Json& value) {
    return value.contains("_type") || (value.contains("bins") && value.contains("values"));
}

/// Tells the keys of an object, also nested ones, and its epoch; `epoch` is the rank of the one so
/// far, 0 at first.
void enter_keys(const Json& object, const std::string& prefix, int& epoch, LogRecords& out) {
    for (const auto& [key, value] : object.object()) {
        const std::string name = prefix.empty() ? key : prefix + "/" + key;
        if (value.is_object()) {
            if (!is_media(value)) enter_keys(value, name, epoch, out);
            continue;
        }
        std::string text;
        if (value.is_string()) text = value.string();
        if (value.is_number()) text = shortest(value.number());
        if (value.is_integer()) text = std::to_string(value.integer());
        if (value.is_bool()) text = value.boolean() ? "true" : "false";
        if (const int rank = epoch_rank(name); rank > 0) {
            const std::optional<double> number = logged_number(text);
            if (!number || (epoch > 0 && epoch <= rank)) continue;
            out.enter_epoch(number);
            epoch = rank;
        } else if (may_tell_apart(name, out)) {
            out.enter_key(name, text);
        }
    }
}

/// Reads the numbers of an object; nested keys are joined.  `of` tells it from others of its step.
void read_object(const Json& object, const std::string& prefix, const std::string& of, Index step,
                 const std::string& place, LogRecords& out) {
    for (const auto& [key, value] : object.object()) {
        const std::string name = prefix.empty() ? key : prefix + "/" + key;
        if (value.is_object()) {
            if (!is_media(value)) read_object(value, name, of, step, place, out);
        } else if (value.is_number() || value.is_string()) {
            if (!out.wants(name) && name + of != out.options().column) continue;
            if (value.is_string())
                out.add_text(name + of, step, value.string(), place);
            else
                out.add(name + of, step, value.number(), place);
        } else if (!value.is_null() && out.wants(name)) {
            out.fail(place,
                     fmt::format("'{}' is not a number; pass --column with the right name", name));
        }
    }
}

/// A number of a record as a log writes it.
std::string text_of(const Json& value) {
    return value.is_string() ? value.string() : shortest(value.number());
}

/// The step of an object; -1 where it has none.
Index step_of(const Json& object, const std::string& place, const LogRecords& out) {
    const std::string& given = out.options().step_column;
    const Json* best = nullptr;
    int best_rank = 0;
    bool steps = false, norms = false;  // several in one object
    for (const auto& [key, value] : object.object()) {
        const int rank = given.empty() ? step_rank(key) : key == given ? 1 : 0;
        const bool readable = value.is_number() || value.is_string();
        const bool several = value.is_object() || value.is_array();
        steps = steps || (rank > 0 && several);
        norms = norms || (several && (names_gradient_norm(key) || key == out.options().column));
        if (rank > 0 && readable && (!best || rank < best_rank)) {
            best = &value;
            best_rank = rank;
        }
    }
    if (!best && !given.empty())
        out.fail(place, fmt::format("has no '{}', expected the step; pass --step-column with the "
                                    "right name",
                                    given));
    if (!best && steps && norms)
        out.fail(place,
                 "holds all steps at once, expected one record per line, such as {\"step\": 1, "
                 "\"grad_norm\": 0.5}; write the log so (pandas: orient='records', lines=True)");
    if (!best) return -1;
    return parse_step(text_of(*best), out, place);
}

/// Compares the step of a record with its other keys that may hold it.
void compare_steps(const Json& record, Index step, LogRecords& out) {
    if (step < 0 || !out.options().step_column.empty()) return;
    std::map<int, std::string> keys;  // by their ranks
    for (const auto& [key, value] : record.object())
        if (const int rank = step_rank(key); rank > 0 && (value.is_number() || value.is_string()))
            keys.try_emplace(rank, key);
    for (const auto& [rank, key] : keys)
        if (key != keys.begin()->second)
            out.compare_step(keys.begin()->second, step, key, text_of(record[key]));
}

/// " layer=3 rank=0"
std::string qualifiers_of(const Json& record, const LogRecords& out) {
    std::string of;
    for (const auto& [key, value] : record.object())
        if (is_qualifier(key) && key != out.options().column && key != out.options().step_column &&
            (value.is_number() || value.is_string()))
            of += fmt::format(" {}={}", key, text_of(value));
    return of;
}

/// Whether the relevant records have numbers of steps, or are counted; and whether their norms are
/// means, as fairseq writes them.
struct Steps {
    bool numbered = false, counted = false, averaged = false;
};

/// Of fairseq's progress bar, which keeps the mean of what it was told since the record before, or
/// in an epoch.
bool is_mean_of_updates(const Json& record) {
    return (record.contains("num_updates") && record.contains("gnorm")) ||
           (record.contains("train_num_updates") && record.contains("train_gnorm"));
}

/// Reads one record of a log; records without a step are counted.
void read_record(const Json& record, Index counted, const std::string& place, Steps& seen,
                 LogRecords& out) {
    if (!record.is_object())
        out.fail(place,
                 "is not a JSON object, expected one per line, such as {\"step\": 1, "
                 "\"grad_norm\": 0.5}");
    const Index step = step_of(record, place, out), before = out.added();
    out.enter_record();
    int epoch = 0;
    enter_keys(record, "", epoch, out);
    read_object(record, "", qualifiers_of(record, out), step < 0 ? counted : step, place, out);
    if (out.added() == before) return;
    compare_steps(record, step, out);
    seen.averaged = seen.averaged || is_mean_of_updates(record);
    (step < 0 ? seen.counted : seen.numbered) = true;
    if (seen.numbered && seen.counted)
        out.fail(
            place,
            fmt::format(
                "{} a step, unlike the records before; pass --step-column, or remove such lines",
                step < 0 ? "does not give" : "gives"));
}

constexpr const char* counted_note = "no column or key gives the step: records are counted from 1";

/// Says of records that were read what was decided about all of them.
void note_steps(const Steps& seen, LogRecords& out) {
    if (seen.counted) out.note(counted_note);
    if (seen.averaged)
        out.note(
            "numbers of fairseq are means over the updates since the record before, or over an "
            "epoch: single steps vary more");
}

constexpr const char* truncated_note = "the last line is incomplete and was skipped";

/// Does a line begin a list of records, on it or on several lines?
bool begins_list(std::string_view line) {
    const std::size_t inside = line.find_first_not_of(" \t\r[");
    return line.front() == '[' && (inside == std::string_view::npos || line[inside] == '{');
}

/// The text up to its last complete line; a truncated last line may be dropped.
std::string_view whole_lines(std::string_view text, LogRecords& out) {
    if (!out.options().allow_truncated || text.ends_with('\n')) return text;
    const std::size_t end = text.rfind('\n');
    if (end == std::string_view::npos) return text;
    out.note(truncated_note);
    return text.substr(0, end + 1);
}

}  // namespace

void read_csv_log(std::string_view text, LogRecords& out) {
    CsvReader row(whole_lines(text, out), out.source());
    const std::vector<std::string> names = row.fields();
    if (const std::size_t mark =
            names.size() == 1 ? names[0].find_first_of(";\t") : std::string::npos;
        mark != std::string::npos)
        out.fail("line 1",
                 fmt::format("separates columns by {}, expected commas (and decimal points)",
                             names[0][mark] == ';' ? "semicolons" : "tabs"));
    const Layout layout = layout_of(names, out);
    if (layout.step == none) out.note(counted_note);
    Index counted = 0;
    bool averaged = false;
    while (row.next()) {
        const std::string place = line_place(row.line());
        ++counted;
        out.enter_record();
        if (layout.epoch != none) out.enter_epoch(logged_number(row.text(layout.epoch)));
        for (const std::size_t c : layout.others) out.enter_key(names[c], row.text(c));
        const auto step = [&] {
            return layout.step == none ? counted : parse_step(row.text(layout.step), out, place);
        };
        if (layout.is_long()) {
            const std::string& tag = row.text(layout.tag);
            const std::string name = qualified(tag, row, layout, names);
            if (out.wants(tag) || name == out.options().column)
                out.add_text(name, step(), row.text(layout.value), place);
            continue;
        }
        for (std::size_t i = 0; i < layout.columns.size(); ++i) {
            const auto& [c, name] = layout.columns[i];
            if (row.text(c).empty()) continue;
            const Index at = step();
            out.add_text(qualified(name, row, layout, names), at, row.text(c), place);
            for (const std::size_t other : layout.steps)
                out.compare_step(names[layout.step], at, names[other], row.text(other));
            const auto& [low, high] = layout.bounds[i];
            averaged = averaged || (low != none && high != none && row.text(low) != row.text(high));
        }
    }
    if (averaged)
        out.note(
            "numbers are means of several steps each, whose range is in __MIN and __MAX: single "
            "steps vary more");
}

/// The records of a trainer_state.json.
const Json::Array& history(const Json& state, const LogRecords& out) {
    const bool present = state.is_object() && state.contains("log_history");
    if (!present || !state["log_history"].is_array())
        out.fail("'log_history'",
                 "is not a list of records, expected that of a trainer_state.json");
    return state["log_history"].array();
}

void read_history(std::string_view text, LogRecords& out) {
    const Json state = Json::parse(with_quoted_nonfinite(text), out.source(), longest_history);
    Steps seen;
    Index counted = 0;
    for (const Json& record : history(state, out)) {
        ++counted;
        read_record(record, counted, fmt::format("record {}", counted), seen, out);
    }
    note_steps(seen, out);
}

void read_json_lines(LogFile& file, LogRecords& out) {
    Steps seen;
    Index counted = 0;
    for (Index number = 1; const auto line = file.line(longest_json); ++number) {
        const std::string place = line_place(number);
        if (line->size() > longest_json)
            out.fail(place, fmt::format("has more than {} bytes, expected one record per line",
                                        longest_json));
        if (number > 1 && !file.terminated() && out.options().allow_truncated) {
            out.note(truncated_note);
            break;
        }
        const std::size_t first = line->find_first_not_of(" \t\r");
        if (first == std::string_view::npos) continue;
        if (counted == 0 && begins_list(line->substr(first)))
            out.fail(place,
                     "begins a list of records, expected one record per line, such as "
                     "{\"step\": 1, \"grad_norm\": 0.5}; write the log so (jq -c '.[]')");
        const Json record =
            Json::parse(with_quoted_nonfinite(*line), fmt::format("{}: {}", out.source(), place));
        read_record(record, ++counted, place, seen, out);
    }
    note_steps(seen, out);
}

}  // namespace tsdiag
