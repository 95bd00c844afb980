#include "cli/commands.hpp"
#include "fuzz.hpp"

/// A directory that `tsdiag report` draws again: run.json and its tables, in one input.

using namespace tsdiag;

void examine(std::string_view input) {
    const char* names[] = {"run.json",  "metrics.csv",   "curves.csv",
                           "steps.csv", "gradients.csv", "evaluations.csv"};
    const std::filesystem::path directory = fuzz::folder().path() / "run";
    std::filesystem::create_directories(directory);
    const std::vector<std::string_view> files = fuzz::parts(input, std::size(names));
    for (std::size_t i = 0; i < files.size(); ++i)
        fuzz::folder().write(std::string("run/") + names[i], files[i]);
    fuzz::accepts([&] { cli::run_command(cli::ReportCommand{directory.string()}); });
}
