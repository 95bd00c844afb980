#include "tsdiag/training_log.hpp"

#include <fmt/format.h>

#include <algorithm>

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

void read_file(const fs::path& file, LogRecords& out) {
    LogFile log(file, a_log, longest_file);
    const std::string_view head = log.head();
    const std::size_t first = head.find_first_not_of(" \t\r\n");
    if (first == std::string_view::npos)
        throw FormatError(fmt::format("{}: is empty, expected {}.", file.string(), a_log));
    if (is_event_file(head) || is_event_name(file))
        return read_event_log(file_text(file, a_log), out);
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

std::vector<fs::path> files_of(const fs::path& given) {
    std::error_code failed;
    if (!fs::is_directory(given, failed)) return {given};
    std::vector<fs::path> events;
    for (fs::directory_iterator at(given, failed), end; !failed && at != end; at.increment(failed))
        if (is_event_name(at->path())) events.push_back(at->path());
    std::ranges::sort(events);
    if (!events.empty()) return events;
    if (fs::exists(given / "trainer_state.json", failed)) return {given / "trainer_state.json"};
    throw FormatError(
        fmt::format("{}: contains no TensorBoard event file (*tfevents*) and no "
                    "trainer_state.json; pass the path of the log.",
                    given.string()));
}

}  // namespace

std::vector<LoggedSeries> read_training_log(const fs::path& file, const LogOptions& options) {
    LogRecords records(file.string(), options);
    for (const fs::path& one : files_of(file)) {
        records.enter(one.string());
        read_file(one, records);
    }
    records.enter(file.string());
    return records.finish();
}

}  // namespace tsdiag
