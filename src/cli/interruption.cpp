#include "interruption.hpp"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <string_view>
#include <system_error>
#include <thread>

#include "tsdiag/output.hpp"

namespace tsdiag::cli {
namespace {

[[noreturn]] void wait_for_interruption(sigset_t signals) {
    int signal = 0;
    while (sigwait(&signals, &signal) != 0) {
    }
    abandon_output();
    if (isatty(STDERR_FILENO) == 1) {
        constexpr std::string_view clear = "\r\x1b[K";
        [[maybe_unused]] const auto n = write(STDERR_FILENO, clear.data(), clear.size());
    }
    constexpr std::string_view text = "tsdiag: interrupted; nothing half-written remains.\n";
    [[maybe_unused]] const auto n = write(STDERR_FILENO, text.data(), text.size());
    _exit(130);
}

}  // namespace

void watch_interruptions() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
        struct sigaction now {};
        sigaction(signal, nullptr, &now);
        if (now.sa_handler != SIG_IGN) sigaddset(&signals, signal);  // nohup stays in force
    }
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    try {
        std::thread(wait_for_interruption, signals).detach();
    } catch (const std::system_error&) {  // no thread can be had: a signal ends the program at once
        pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
    }
}

}  // namespace tsdiag::cli
