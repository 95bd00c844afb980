#include <signal.h>

#include <algorithm>
#include <chrono>
#include <clocale>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "failure.hpp"
#include "interruption.hpp"
#include "json_outputs.hpp"
#include "program.hpp"
#include "ranks.hpp"
#include "terminal.hpp"
#include "threads.hpp"
#include "tsdiag/memory.hpp"

namespace tsdiag::cli {
namespace {

/// Of words that may be wrong.
bool ask_for_json(const std::vector<std::string>& words) {
    return std::ranges::find(words, "--json") != words.end();
}

int run_program(const std::optional<Launcher>& started, int argc, const char* const* argv) {
    const std::vector<std::string> words{argv + std::min(argc, 1), argv + argc};
    std::optional<Program> program;
    Failure failure;
    try {
        try {
            program.emplace(words);
            if (program->json()) print_json_only();
        } catch (...) {
            if (ask_for_json(words)) print_json_only();
            if (!started) throw;
            failure = current_failure();  // the ranks fail together
        }
        if (!started) {
            const int code = program->command().run();
            ignore_interruptions();
            return code;
        }
        return run_ranks(*started, program ? &program->command() : nullptr, failure);
    } catch (...) {
        if (failure.code == done) failure = current_failure();
        ignore_interruptions();
        tell(failure);
        // Ranks that do not know of each other: the launcher ends all with the first that fails, so
        // that the one that speaks is to come first.
        if (started && started->rank > 0) std::this_thread::sleep_for(std::chrono::seconds(5));
        return failure.code;
    }
}

}  // namespace
}  // namespace tsdiag::cli

int main(int argc, char** argv) {
    tsdiag::cli::wait_passively(argv);
    tsdiag::keep_freed_memory();
    std::setlocale(LC_CTYPE, "");  // only LC_CTYPE: the decimal separator stays a point
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);  // a file-size limit is an error to report, like a full disk
    const std::optional<tsdiag::Launcher> started = tsdiag::launcher();
    tsdiag::cli::mute(started && started->rank > 0);  // before a signal can be answered
    tsdiag::cli::watch_interruptions();
    tsdiag::cli::use_threads(0);
    tsdiag::cli::command_line().assign(argv, argv + argc);
    return tsdiag::cli::run_program(started, argc, argv);
}
