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

bool is_event_name(const fs::path& file) {
    return file.filename().string().find("tfevents") != std::string::npos;
}

void read_file(const fs::path& file, LogRecords& out) {
    const std::string text = file_text(file, a_log);
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    if (first == std::string::npos)
        throw FormatError(fmt::format("{}: is empty, expected {}.", file.string(), a_log));
    if (is_event_file(text) || is_event_name(file)) return read_event_log(text, out);
    if (text.find('\0') != std::string::npos)
        throw FormatError(fmt::format(
            "{}: is binary but not a TensorBoard event file, expected {}.", file.string(), a_log));
    if (text[first] == '{' || text[first] == '[')
        read_json_log(text, out);
    else
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
