#include "process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "tsdiag/error.hpp"

extern char** environ;

namespace tsdiag::reports {
namespace {

/// What the child writes, read until it closes the pipe; only the beginning is kept.
std::string drain(int fd) {
    std::string text;
    char buffer[4096];
    for (;;) {
        const ssize_t n = ::read(fd, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return text;
        if (text.size() < sizeof buffer) text.append(buffer, std::size_t(n));
    }
}

/// The first line that says something: gnuplot repeats the command and points at it with a caret.
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
                    const std::filesystem::path& directory) {
    int pipe[2];
    if (::pipe2(pipe, O_CLOEXEC) != 0)
        throw Error(fmt::format("{}: no pipe: {}.", arguments[0], std::strerror(errno)));
    std::vector<char*> argv;
    for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addchdir_np(&actions, directory.c_str());
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, pipe[1], 1);
    posix_spawn_file_actions_adddup2(&actions, pipe[1], 2);
    pid_t child = 0;
    const int error = ::posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    ::close(pipe[1]);
    Outcome outcome;
    if (error == 0) {
        outcome.first_line = telling_line(drain(pipe[0]));
        int status = 0;
        while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
        outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    ::close(pipe[0]);
    outcome.found = error == 0;
    if (error != 0 && error != ENOENT)
        throw Error(fmt::format("{}: cannot be started: {}.", arguments[0], std::strerror(error)));
    return outcome;
}

}  // namespace tsdiag::reports
