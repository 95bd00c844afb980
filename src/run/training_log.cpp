#include "tsdiag/training_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>

#include "log_records.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

namespace fs = std::filesystem;

constexpr std::uintmax_t longest_log = std::uintmax_t(4) << 30;

bool is_event_name(const fs::path& file) {
    return file.filename().string().find("tfevents") != std::string::npos;
}

std::string read_whole(const fs::path& file) {
    std::error_code failed;
    if (!fs::exists(file, failed))
        throw FormatError(
            fmt::format("{}: there is no such file; expected a log (CSV, JSON lines, "
                        "TensorBoard events).",
                        file.string()));
    if (!fs::is_regular_file(file, failed))
        throw FormatError(fmt::format("{}: is no regular file, expected a log.", file.string()));
    const std::uintmax_t size = fs::file_size(file, failed);
    if (!failed && size > longest_log)
        throw FormatError(fmt::format("{}: is {} bytes long, expected a log of at most {}.",
                                      file.string(), size, longest_log));
    std::ifstream in(file, std::ios::binary);
    std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    if (!in.eof() && !in) throw FormatError(fmt::format("{}: cannot be read.", file.string()));
    return text;
}

void read_file(const fs::path& file, LogRecords& out) {
    const std::string text = read_whole(file);
    const std::size_t first = text.find_first_not_of(" \t\r\n");
    if (first == std::string::npos)
        throw FormatError(fmt::format(
            "{}: is empty, expected a log (CSV, JSON lines, TensorBoard events).", file.string()));
    if (is_event_file(text) || is_event_name(file)) return read_event_log(text, out);
    if (text.find('\0') != std::string::npos)
        throw FormatError(
            fmt::format("{}: is binary and no TensorBoard event file, expected a log "
                        "(CSV, JSON lines, TensorBoard events).",
                        file.string()));
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
        fmt::format("{}: holds no TensorBoard event file (*tfevents*) and no trainer_state.json; "
                    "name the log itself.",
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
