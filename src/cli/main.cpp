#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <clocale>
#include <optional>
#include <thread>

#include "failure.hpp"
#include "interruption.hpp"
#include "program.hpp"
#include "ranks.hpp"
#include "terminal.hpp"
#include "threads.hpp"
#include "tsdiag/memory.hpp"

namespace tsdiag::cli {
namespace {

int run_program(int argc, const char* const* argv) {
    const std::optional<Launcher> started = launcher();
    mute(started && started->rank > 0);
    try {
        Program program({argv + std::min(argc, 1), argv + argc});
        if (program.json()) print_json_only();
        if (started) return run_ranks(*started, program.command());
        return program.command().run();
    } catch (...) {
        const Failure failure = current_failure();
        if (!failure.message.empty()) say(fmt::format("tsdiag: {}", printable(failure.message)));
        if (!started) return failure.code;
        ignore_interruptions();
        // The launcher ends all ranks with the first that fails: the one that speaks comes first.
        if (started->rank > 0) std::this_thread::sleep_for(std::chrono::seconds(1));
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
    tsdiag::cli::watch_interruptions();
    tsdiag::cli::use_threads(0);
    tsdiag::cli::command_line().assign(argv, argv + argc);
    return tsdiag::cli::run_program(argc, argv);
}
