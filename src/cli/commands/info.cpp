#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "command.hpp"
#include "json_outputs.hpp"
#include "machine.hpp"
#include "terminal.hpp"
#include "threads.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/output.hpp"
#include "tsdiag/text.hpp"
#include "version.hpp"

namespace tsdiag::cli {
namespace {

struct InfoCommand final : Command {
    explicit InfoCommand(CLI::App&);
    int run() const override;
};

std::string found_on_path(const std::string& program) {
    const char* path = std::getenv("PATH");
    for (const std::string& folder : split(path ? path : "", ':')) {
        const std::filesystem::path file = std::filesystem::path(folder) / program;
        if (access(file.c_str(), X_OK) == 0) return file.string();
    }
    return "not found: reports will have no SVG or PDF figures";
}

}  // namespace

InfoCommand::InfoCommand(CLI::App&) {}

int InfoCommand::run() const {
    const std::string named = processor();
    std::vector<std::vector<std::string>> rows{
        {"version", TSDIAG_VERSION},
        {"commit", commit()},
        {"compiler", __VERSION__},
        {"build", TSDIAG_BUILD_TYPE},
        {"processor", named.empty() ? "unknown" : named},
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

extern const CommandEntry info_command = {.name = "info",
                                          .about = "show version, build and devices",
                                          .examples = "",
                                          .make = made<InfoCommand>};

}  // namespace tsdiag::cli
