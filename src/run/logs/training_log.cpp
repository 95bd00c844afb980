#include "tsdiag/training_log.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <regex>
#include <set>

#include "log_records.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"

namespace tsdiag {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view a_log = "a log (CSV, JSON lines, TensorBoard events)";

constexpr std::uint64_t longest_table = std::uint64_t{1} << 30;  // a million steps of 100 columns

bool is_event_name(const fs::path& file) {
    return file.filename().string().find("tfevents") != std::string::npos;
}

/// Is it what a program printed for people: {'loss': 1.5} of Python, or a name and a number,
/// as "iter 3: loss 2.5, gnorm=0.7" and " iteration 10/ 100 | grad norm: 0.7 |", or behind a date?
struct Printed {
    bool dictionary = false, words = false;
    Printed(std::string_view line) {
        constexpr std::string_view blanks = " \t\r";
        constexpr std::size_t most = 1000;
        const std::size_t first = line.find_first_not_of(blanks);
        if (first == line.npos) return;
        line = line.substr(first, most);
        const std::size_t next = line.find_first_not_of(blanks, 1);
        const char second = next == line.npos ? ' ' : line[next];
        dictionary = line[0] == '{' && second == '\'';
        const bool json = line[0] == '"' || line[0] == ',' || (line[0] == '{' && !dictionary) ||
                          (line[0] == '[' && std::string_view("{[\"").find(second) != line.npos);
        using namespace std::regex_constants;
        static const std::regex norm(
            "(grad[a-z]*[ _.-]?norm|gnorm)[\"']?[ :=]+[\"']?[+-]?([0-9]|nan|inf)",
            ECMAScript | icase | optimize),
            step("^(iter|iteration|step|epoch)[ :=]+[0-9]+ *(/ *[0-9]+)? *[:|,] *[a-z]",
                 ECMAScript | icase | optimize),
            date("^\\[[0-9]{4}-[0-9]{2}-[0-9]{2}( |T|\\])", ECMAScript | optimize);
        words = !json && (std::regex_search(line.begin(), line.end(), norm) ||
                          std::regex_search(line.begin(), line.end(), step) ||
                          std::regex_search(line.begin(), line.end(), date));
    }
};

/// The header of a table, whose rows may hold such words: a name of a run, an option.
bool is_header(std::string_view line) {
    bool told = false, separated = false;
    while (!line.empty()) {
        const std::size_t end = std::min(line.find_first_of(",;\t\r"), line.size());
        const std::string name(line.substr(0, end));
        told = told || step_rank(name) > 0 || names_gradient_norm(name);
        separated = separated || end < line.size();
        line.remove_prefix(std::min(end + 1, line.size()));
    }
    return told && separated;
}

/// Throws `FormatError` for a log that was printed.  A header may have a number in a name: words
/// count in the second line that has such.
void refuse_printed(const fs::path& file, std::string_view head) {
    constexpr Index lines = 200;
    const std::string_view first = head.substr(0, std::min(head.find('\n'), head.size()));
    if (is_header(first) && !Printed(first).words) return;
    Index with_words = 0;
    for (Index number = 1; number <= lines && !head.empty(); ++number) {
        const std::size_t end = std::min(head.find('\n'), head.size());
        const Printed line(head.substr(0, end));
        head.remove_prefix(std::min(end + 1, head.size()));
        with_words += line.words;
        if (line.dictionary || with_words == 2)
            throw FormatError(fmt::format(
                "{}: line {}: is of a log that was printed while training, expected {}; {}.",
                file.string(), number, a_log,
                line.dictionary
                    ? "pass the trainer_state.json of a checkpoint, which holds these records, or "
                      "write them as JSON lines with the keys step and grad_norm"
                    : "pass the TensorBoard file of the same training, or write the numbers as "
                      "CSV with the columns step and grad_norm"));
    }
}

void read_file(const fs::path& file, LogRecords& out) {
    LogFile log(file, a_log, longest_file);
    const std::string_view head = log.head();
    const std::size_t first = head.find_first_not_of(" \t\r\n");
    if (first == std::string_view::npos)
        throw FormatError(fmt::format("{}: is empty, expected {}.", file.string(), a_log));
    if (is_event_file(head) || is_event_name(file))
        return read_event_log(file_text(file, a_log), out);
    refuse_printed(file, head);
    if (head[first] == '{' || head[first] == '[') {
        // Its list of records follows a few other keys, each on a line of its own.
        const bool is_state = head.find("\"log_history\"") != std::string_view::npos ||
                              head.substr(first).starts_with("{\n");
        if (!is_state) return read_json_lines(log, out);
        return read_history(file_text(file, a_log, longest_history), out);
    }
    const std::string text = file_text(file, a_log, longest_table);
    if (text.find('\0') != std::string::npos)
        throw FormatError(fmt::format(
            "{}: is binary but not a TensorBoard event file, expected {}.", file.string(), a_log));
    read_csv_log(text, out);
}

/// The trainer_state.json of the last checkpoint of Hugging Face's Trainer in a folder, which has
/// the records of all before; empty: there is none.
fs::path last_state(const fs::path& folder) {
    static const std::regex checkpoint("checkpoint-([0-9]{1,15})");
    fs::path last;
    Index step = -1;
    std::error_code failed;
    for (fs::directory_iterator at(folder, failed), end; !failed && at != end;
         at.increment(failed)) {
        std::smatch found;
        const std::string name = at->path().filename().string();
        const fs::path state = at->path() / "trainer_state.json";
        std::error_code absent;
        if (!std::regex_match(name, found, checkpoint) || std::stoll(found[1]) <= step ||
            !fs::is_regular_file(state, absent))
            continue;
        step = std::stoll(found[1]);
        last = state;
    }
    return last;
}

/// The tables of `tsdiag train`.
constexpr const char *table_of_steps = "steps.csv", *table_of_layers = "gradients.csv";

bool is_training(const fs::path& given) {
    std::error_code failed;
    return fs::is_regular_file(given / table_of_steps, failed) &&
           fs::is_regular_file(given / table_of_layers, failed);
}

/// The folders below one that hold event files, as "train, valid"; at most four, no deeper than
/// two.
std::string folders_of_events(const fs::path& given) {
    constexpr int deepest = 1;
    constexpr std::size_t most = 4;
    std::set<std::string> found;
    std::error_code failed;
    const auto options = fs::directory_options::skip_permission_denied;
    for (fs::recursive_directory_iterator at(given, options, failed), end; !failed && at != end;
         at.increment(failed)) {
        if (at.depth() > deepest) at.disable_recursion_pending();
        if (at.depth() > 0 && is_event_name(at->path()))
            found.insert(at->path().parent_path().lexically_relative(given).string());
    }
    const std::size_t more = found.size() > most ? found.size() - most : 0;
    found.erase(std::prev(found.end(), std::ptrdiff_t(more)), found.end());
    return fmt::format("{}{}", fmt::join(found, ", "),
                       more > 0 ? fmt::format(" and {} more", more) : "");
}

/// What was chosen of a folder, and what in it is not read; empty: it is no folder, or all of it.
std::string said_of_folder(const fs::path& given, const std::vector<fs::path>& files) {
    std::error_code failed;
    if (files.empty() || !fs::is_directory(given, failed) || is_training(given)) return {};
    const std::string first = files.front().lexically_relative(given).string();
    if (!is_event_name(files.front()))
        return first == "trainer_state.json" ? "" : fmt::format("numbers are those of {}", first);
    std::string unread = folders_of_events(given);
    if (unread.empty()) return {};
    return fmt::format(
        "event files in folders of this one are not read, which are logs of their "
        "own: {}; pass such a folder",
        unread);
}

std::vector<fs::path> files_of(const fs::path& given) {
    std::error_code failed;
    if (!fs::is_directory(given, failed)) return {given};
    std::vector<fs::path> events;
    for (fs::directory_iterator at(given, failed), end; !failed && at != end; at.increment(failed))
        if (is_event_name(at->path())) events.push_back(at->path());
    std::ranges::sort(events);
    if (!events.empty()) return events;
    if (fs::exists(given / "trainer_state.json", failed)) return {given / "trainer_state.json"};
    if (const fs::path state = last_state(given); !state.empty()) return {state};
    const std::string below = folders_of_events(given);
    throw FormatError(fmt::format(
        "{}: contains no TensorBoard event file (*tfevents*) and no "
        "trainer_state.json, and tsdiag has not trained in it; pass {}.",
        given.string(),
        below.empty() ? "the path of the log" : "one of its folders that hold some: " + below));
}

std::vector<LoggedSeries> read_files(const std::vector<fs::path>& files, const fs::path& given,
                                     const LogOptions& options) {
    LogRecords records(given.string(), options);
    for (const fs::path& one : files) {
        records.enter(one.string());
        read_file(one, records);
    }
    records.enter(given.string());
    std::vector<LoggedSeries> all = records.finish();
    if (std::string said = said_of_folder(given, files); !said.empty())
        all.front().notes.push_back(std::move(said));
    return all;
}

/// Of all parameters, and of those of each layer and of none; one of them where a column is named.
std::vector<LoggedSeries> read_training(const fs::path& given, const LogOptions& options) {
    const std::string no_layer = "grad_norm of no layer", layer = "grad_norm layer=";
    const bool of_layer = options.column == no_layer || options.column.starts_with(layer);
    std::vector<LoggedSeries> all;
    if (!of_layer) all = read_files({given / table_of_steps}, given, options);
    if (!of_layer && !options.column.empty()) return all;
    LogOptions layers = options;
    layers.column.clear();
    for (LoggedSeries& one : read_files({given / table_of_layers}, given, layers)) {
        if (!one.name.starts_with(layer)) one.name = no_layer;
        if (!of_layer || one.name == options.column) all.push_back(std::move(one));
    }
    return all;
}

}  // namespace

std::vector<LoggedSeries> read_training_log(const fs::path& file, const LogOptions& options) {
    if (is_training(file)) return read_training(file, options);
    return read_files(files_of(file), file, options);
}

}  // namespace tsdiag
