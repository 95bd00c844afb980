#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "commands.hpp"
#include "json_outputs.hpp"
#include "terminal.hpp"
#include "threads.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/output.hpp"
#include "tsdiag/text.hpp"
#include "version.hpp"

namespace tsdiag::cli {
namespace {

std::string processor() {
    std::ifstream in("/proc/cpuinfo");
    for (std::string line; std::getline(in, line);)
        if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
    return "unknown";
}

std::string found_on_path(const std::string& program) {
    const char* path = std::getenv("PATH");
    for (const std::string& folder : split(path ? path : "", ':')) {
        const std::filesystem::path file = std::filesystem::path(folder) / program;
        if (access(file.c_str(), X_OK) == 0) return file.string();
    }
    return "not found: reports will have no SVG or PDF figures";
}

/// The folder may hold the pages of other programs.
void write_pages(const PrintCommand& command) {
    namespace fs = std::filesystem;
    if (command.files.empty()) return;
    const fs::path folder = place_of_folder(command.folder);
    for (const auto& [name, page] : command.files) {
        const fs::path file = folder / name;
        const std::string_view first_word = std::string_view(page).substr(0, page.find(' '));
        if (place_of_file(file) == FilePlace::replaced &&
            !file_text(file, "a manual page").starts_with(fmt::format("{} TSDIAG", first_word)))
            throw UsageError(
                fmt::format("{}: was not written by tsdiag and would be overwritten; move it away, "
                            "or choose another --out.",
                            file.string()));
    }
    fs::create_directories(folder);
    for (const auto& [name, page] : command.files) write_atomically(folder / name, page);
}

}  // namespace

int run_command(const InfoCommand&) {
    std::vector<std::vector<std::string>> rows{
        {"version", TSDIAG_VERSION},
        {"commit", commit()},
        {"compiler", __VERSION__},
        {"build", TSDIAG_BUILD_TYPE},
        {"processor", processor()},
        {"threads", fmt::format("{}, waiting policy {}", omp_get_max_threads(), wait_policy())},
        {"memory", fmt::format("{:.1f} GiB", double(machine_memory()) / double(Index(1) << 30))}};
    for (const auto& [name, description] : list_backends())
        rows.push_back({"device " + name, description});
    rows.push_back({"formatting", fmt::format("fmt {}.{}.{}", FMT_VERSION / 10000,
                                              FMT_VERSION / 100 % 100, FMT_VERSION % 100)});
    rows.push_back({"gnuplot", found_on_path("gnuplot")});
    Json facts;
    for (const auto& row : rows) facts.set(row[0], row[1]);
    print_json("info", Json().set("facts", std::move(facts)));
    print(aligned(rows, 2));
    return 0;
}

int run_command(const PrintCommand& command) {
    write_pages(command);
    if (command.of.empty()) print_document(command.text);
    if (command.of.empty()) return 0;
    print_json(command.of, Json().set("text", command.text));
    print(command.text);
    return 0;
}

}  // namespace tsdiag::cli
