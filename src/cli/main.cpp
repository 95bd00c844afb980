#include <fmt/format.h>
#include <malloc.h>
#include <signal.h>

#include <clocale>
#include <filesystem>
#include <new>

#include "commands.hpp"
#include "interruption.hpp"
#include "terminal.hpp"
#include "threads.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::cli {
namespace {

enum Exit { done = 0, bad_input = 1, usage = 2, not_available = 3, failed = 4 };

constexpr std::string_view no_memory =
    "out of memory; choose smaller sizes, or limit memory with --memory.";

int fail(Exit code, std::string_view message) {
    say(fmt::format("tsdiag: {}", printable(message)));
    return code;
}

int run_program(int argc, const char* const* argv) {
    try {
        const Command command = parse(argc, argv);
        return std::visit([](const auto& chosen) { return run_command(chosen); }, command);
    } catch (const Closed&) {
        return done;
    } catch (const UsageError& error) {
        return fail(usage, error.what());
    } catch (const NotAvailable& error) {
        return fail(not_available, error.what());
    } catch (const BrokenInvariant& error) {
        return fail(failed, error.what());
    } catch (const std::bad_alloc&) {
        return fail(bad_input, no_memory);
    } catch (const std::length_error&) {  // more elements than a vector can have
        return fail(bad_input, no_memory);
    } catch (const std::filesystem::filesystem_error& error) {
        return fail(bad_input,
                    fmt::format("{}: {}.", error.path1().string(), error.code().message()));
    } catch (const std::exception& error) {
        return fail(bad_input, error.what());
    }
}

}  // namespace
}  // namespace tsdiag::cli

int main(int argc, char** argv) {
    tsdiag::cli::wait_passively(argv);
    // Fixed: else it grows with freed blocks, and holes between large vectors are never returned.
    mallopt(M_MMAP_THRESHOLD, 4 << 20);
    std::setlocale(LC_CTYPE, "");  // only LC_CTYPE: the decimal separator stays a point
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);  // a file-size limit is an error to report, like a full disk
    tsdiag::cli::watch_interruptions();
    tsdiag::cli::use_threads(0);
    tsdiag::cli::command_line().assign(argv, argv + argc);
    return tsdiag::cli::run_program(argc, argv);
}
