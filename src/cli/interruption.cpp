#include "interruption.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <string_view>
#include <system_error>
#include <thread>

#include "terminal.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/output.hpp"

namespace tsdiag::cli {
namespace {

std::atomic<const char*> lost_file{nullptr};
std::atomic<pthread_t> watcher{};
std::atomic<bool> watching{false};
std::atomic<bool> deferred{false}, asked_to_end{false};

/// Who ends the program: the first that asks to, so that only one speaks and gives the exit code.
enum class End { open, by_itself, by_signal };
std::atomic<End> ending{End::open};

bool may_end(End by) {
    End before = End::open;
    return ending.compare_exchange_strong(before, by) || before == by;
}

constexpr std::string_view lost_sentence =
    ": part of the file can no longer be read; it was truncated or its disk failed. Restore it and "
    "run again.";

void write_error(std::string_view text) {
    [[maybe_unused]] const auto n = write(STDERR_FILENO, text.data(), text.size());
}

/// Runs on the thread that accessed lost bytes: hands over to the watcher; never returns.
[[noreturn]] void hand_over(const char* path) {
    if (!watching) {
        for (const std::string_view part : {std::string_view("tsdiag: "), std::string_view(path),
                                            lost_sentence, std::string_view("\n")})
            write_error(part);
        _exit(1);
    }
    lost_file = path;
    pthread_kill(watcher, SIGBUS);
    for (;;) pause();
}

[[noreturn]] void wait_for_interruption(sigset_t signals) {
    int signal = 0;
    // Another signal than SIGBUS is left to the command that asked for the first one.
    const auto is_left = [&] {
        return signal != SIGBUS &&
               ((deferred && !asked_to_end.exchange(true)) || !may_end(End::by_signal));
    };
    while (sigwait(&signals, &signal) != 0 || is_left()) {
    }
    const char* lost = lost_file;
    if (signal == SIGBUS && lost == nullptr) {  // raised by another process
        ::signal(SIGBUS, SIG_DFL);
        pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
        raise(SIGBUS);
    }
    may_end(End::by_signal);  // the thread that lost the file cannot come to the program's own end
    const bool speaks = !is_muted();
    mute(true);  // other threads, which find that what they write to is gone
    abandon_output();
    if (isatty(STDERR_FILENO) == 1) write_error("\r\x1b[K");
    if (lost == nullptr && speaks)
        write_error(deferred
                        ? "tsdiag: interrupted again, before the step was saved; what was saved "
                          "earlier is kept.\n"
                        : "tsdiag: interrupted; no partial output was left.\n");
    if (lost != nullptr)
        write_error(fmt::format("tsdiag: {}{} No partial output was left.\n", printable(lost),
                                lost_sentence));
    _exit(lost == nullptr ? 130 : 1);
}

}  // namespace

void ignore_interruptions() {
    while (!may_end(End::by_itself)) pause();  // a signal has ended the program
}
void defer_interruption() { deferred = true; }
bool is_interrupted() { return asked_to_end; }

void watch_interruptions() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
        struct sigaction now {};
        sigaction(signal, nullptr, &now);
        if (now.sa_handler != SIG_IGN) sigaddset(&signals, signal);  // nohup stays in force
    }
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    sigset_t watched = signals;
    sigaddset(&watched, SIGBUS);
    try {
        std::thread thread([watched] {
            pthread_sigmask(SIG_BLOCK, &watched, nullptr);
            wait_for_interruption(watched);
        });
        watcher = thread.native_handle();
        watching = true;
        thread.detach();
    } catch (const std::system_error&) {  // no thread started: a signal ends the program at once
        pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
    }
    watch_mapped_files(hand_over);
}

}  // namespace tsdiag::cli
