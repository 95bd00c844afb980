#include "process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "tsdiag/error.hpp"

namespace tsdiag::reports {
namespace {

using Clock = std::chrono::steady_clock;

int milliseconds_until(Clock::time_point deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    return int(std::max<std::int64_t>(left.count(), 0));
}

/// The output of the child until it closes the pipe or the deadline; only the beginning is kept.
std::string drain(int fd, Clock::time_point deadline) {
    std::string text;
    char buffer[4096];
    for (;;) {
        pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
        const int polled = ::poll(&ready, 1, milliseconds_until(deadline));
        if (polled < 0 && errno == EINTR) continue;
        if (polled <= 0) return text;
        const ssize_t n = ::read(fd, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return text;
        if (text.size() < sizeof buffer) text.append(buffer, std::size_t(n));
    }
}

/// The exit status of the child; at the deadline it is killed with its process group.
int status_of(pid_t child, Clock::time_point deadline, bool& in_time) {
    int status = 0;
    for (int flags = WNOHANG;;) {
        const pid_t ended = ::waitpid(child, &status, flags);
        if (ended == child || (ended < 0 && errno != EINTR)) return status;
        if (ended < 0 || flags == 0) continue;
        if (milliseconds_until(deadline) > 0) {
            ::poll(nullptr, 0, 2);
        } else {
            in_time = false;
            ::kill(-child, SIGKILL);
            flags = 0;
        }
    }
}

/// Starts the program in its own process group, and ends it when this process ends for any reason.
/// Returns 0 or an error number.  `vfork` avoids copying a large process; the child only makes
/// system calls.
int start(const std::vector<char*>& argv, const char* directory, int output, pid_t& child) {
    const pid_t parent = ::getpid();
    const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    sigset_t none;
    sigemptyset(&none);
    volatile int error = 0;
    child = ::vfork();
    if (child == 0) {
        ::setpgid(0, 0);
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::sigprocmask(SIG_SETMASK, &none, nullptr);
        if (::getppid() == parent && ::chdir(directory) == 0 && ::dup2(nothing, 0) >= 0 &&
            ::dup2(output, 1) >= 0 && ::dup2(output, 2) >= 0)
            ::execvp(argv[0], argv.data());
        error = errno;
        ::_exit(127);
    }
    if (child < 0) error = errno;
    ::close(nothing);
    if (child > 0 && error) ::waitpid(child, nullptr, 0);
    return error;
}

/// The first informative line: gnuplot repeats the command and points at it with a caret.
std::string telling_line(const std::string& text) {
    std::string found;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size());
        const std::string line = text.substr(at, end - at);
        if (line.find("line ") != std::string::npos) return line;
        if (found.empty() && line.find_first_not_of(" ^\t") != std::string::npos) found = line;
        at = end + 1;
    }
    return found;
}

}  // namespace

Outcome run_program(const std::vector<std::string>& arguments,
                    const std::filesystem::path& directory, std::chrono::seconds limit) {
    int pipe[2];
    if (::pipe2(pipe, O_CLOEXEC) != 0)
        throw Error(
            fmt::format("{}: cannot create a pipe: {}.", arguments[0], std::strerror(errno)));
    std::vector<char*> argv;
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    pid_t child = 0;
    const int error = start(argv, directory.c_str(), pipe[1], child);
    ::close(pipe[1]);
    Outcome outcome;
    if (error == 0) {
        const Clock::time_point deadline = Clock::now() + limit;
        outcome.first_line = telling_line(drain(pipe[0], deadline));
        const int status = status_of(child, deadline, outcome.in_time);
        outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    ::close(pipe[0]);
    outcome.found = error == 0;
    if (error != 0 && error != ENOENT)
        throw Error(fmt::format("{}: cannot be started: {}.", arguments[0], std::strerror(error)));
    return outcome;
}

}  // namespace tsdiag::reports
