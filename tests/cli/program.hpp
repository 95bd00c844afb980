#pragma once
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "support/files.hpp"
#include "support/places.hpp"

extern char** environ;

/// Runs the program as a user does.
namespace tsdiag::test {

/// Is the memory of a process only the program's, or also a sanitizer's?
#ifdef TSDIAG_ADDRESS_SANITIZER
inline constexpr bool memory_is_its_own = false;
#else
inline constexpr bool memory_is_its_own = true;
#endif

/// A command line and more of it.
inline std::vector<std::string> with(std::vector<std::string> words,
                                     const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

struct Finished {
    int code = -1;  ///< exit status; 128 + signal where one ended it
    std::string out, err;
};

class Running {
  public:
    /// Arguments as words; `environment`: "NAME=value", added to what is inherited, in which
    /// colours are disabled and the date is always the same.
    Running(const std::filesystem::path& directory, std::vector<std::string> words,
            std::vector<std::string> environment = {})
        : out_(directory / ".stdout"), err_(directory / ".stderr") {
        words.insert(words.begin(), program_file());
        start(directory, std::move(words), std::move(environment));
    }
    /// A shell command in which "$TSDIAG" is the program.
    static Running shell(const std::filesystem::path& directory, const std::string& command) {
        Running running(directory);
        running.start(directory, {"/bin/sh", "-c", command}, {"TSDIAG=" + program_file()});
        return running;
    }
    void signal(int number) const { kill(child_, number); }
    pid_t pid() const { return child_; }
    bool ended() {
        siginfo_t info{};
        return waitid(P_PID, id_t(child_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
               info.si_pid == child_;
    }
    /// Waits until `happens()`, which it returns: false where the program has ended before.
    template <class Event>
    bool wait_until(const Event& happens) {
        while (!happens() && !ended()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        return happens();
    }
    /// Waits until it has ended; false where that takes minutes, as what would go on for ever.
    bool ends() {
        const auto patience = std::chrono::steady_clock::now() + std::chrono::minutes(5);
        wait_until([&] { return std::chrono::steady_clock::now() > patience; });
        return ended();
    }
    /// Its stderr so far.
    std::string said_so_far() const { return read_file(err_); }
    Finished wait() {
        int status = 0;
        waitpid(child_, &status, 0);
        Finished finished;
        finished.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        finished.out = read_file(out_);
        finished.err = read_file(err_);
        std::filesystem::remove(out_);
        std::filesystem::remove(err_);
        return finished;
    }

  private:
    explicit Running(const std::filesystem::path& directory)
        : out_(directory / ".stdout"), err_(directory / ".stderr") {}

    void start(const std::filesystem::path& directory, std::vector<std::string> words,
               std::vector<std::string> environment) {
        std::vector<char*> argv, envp;
        environment.emplace_back("SOURCE_DATE_EPOCH=1767225600");  // 2026; the first one counts
        for (std::string& word : words) argv.push_back(word.data());
        const auto replaced = [&](std::string_view variable) {
            const std::string_view name = variable.substr(0, variable.find('=') + 1);
            return name.starts_with("CLICOLOR") || name.starts_with("NO_COLOR") ||
                   std::ranges::any_of(environment, [&](const std::string& given) {
                       return given.starts_with(name);
                   });
        };
        for (char** e = environ; *e; ++e)
            if (!replaced(*e)) envp.push_back(*e);
        for (std::string& word : environment) envp.push_back(word.data());
        argv.push_back(nullptr);
        envp.push_back(nullptr);
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
        posix_spawn_file_actions_addopen(&actions, 1, out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                         0600);
        posix_spawn_file_actions_addopen(&actions, 2, err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                         0600);
        posix_spawn_file_actions_addchdir_np(&actions, directory.c_str());
        // A test run in the background ignores SIGINT; the program must not.
        posix_spawnattr_t attributes;
        posix_spawnattr_init(&attributes);
        sigset_t defaults;
        sigemptyset(&defaults);
        for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&defaults, number);
        posix_spawnattr_setsigdefault(&attributes, &defaults);
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
        posix_spawn(&child_, argv[0], &actions, &attributes, argv.data(), envp.data());
        posix_spawnattr_destroy(&attributes);
        posix_spawn_file_actions_destroy(&actions);
    }

    std::filesystem::path out_, err_;
    pid_t child_ = -1;
};

/// Called with the folder of each run of `tsdiag` below, and the time at which it began.
inline std::function<void(const std::filesystem::path&, std::filesystem::file_time_type)> after_run;

inline Finished tsdiag(const TemporaryDirectory& folder, std::vector<std::string> words,
                       std::vector<std::string> environment = {}) {
    const auto begin = std::filesystem::file_time_type::clock::now();
    Finished done = Running(folder.path(), std::move(words), std::move(environment)).wait();
    if (after_run) after_run(folder.path(), begin);
    return done;
}

/// One sentence for the user: one line, named, with an end.
inline void expect_one_sentence(const std::string& text) {
    EXPECT_TRUE(text.starts_with("tsdiag: ")) << text;
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
    for (const char* wrong : {"terminate", "?.", ",.", ";."})
        EXPECT_EQ(text.find(wrong), std::string::npos) << text;
}

/// "231M" of "... needs at least 231M (...)": the least value of --memory.
inline std::string least_memory(const std::string& sentence) {
    constexpr std::string_view before = "needs at least ";
    const std::size_t at = sentence.find(before);
    if (at == std::string::npos) return {};
    const std::string_view rest = std::string_view(sentence).substr(at + before.size());
    return std::string(rest.substr(0, rest.find(' ')));
}

/// Names in `folder`, sorted.
inline std::vector<std::string> names_in(const std::filesystem::path& folder) {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
        names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
}

/// Has a command begun to write its result `out`?  Then the folder that it will exchange for it is
/// there.
inline bool has_begun(const std::filesystem::path& out) {
    std::error_code none;
    const std::string begin = "." + out.filename().string() + ".tsdiag-";
    for (std::filesystem::directory_iterator at(out.parent_path(), none), end; !none && at != end;
         at.increment(none))
        if (at->path().filename().string().starts_with(begin) && at->is_directory(none))
            return true;
    return false;
}

/// What an interrupted run leaves beside the units that it had finished, which it keeps for the
/// same command: how many depends on the machine.
inline std::vector<std::string> names_but_units(const std::filesystem::path& folder) {
    std::vector<std::filesystem::path> units;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder))
        if (entry.path().filename().string().ends_with(".tsdiag-units"))
            units.push_back(entry.path());
    for (std::filesystem::path path : units) {
        std::filesystem::remove_all(path);
        while ((path = path.parent_path()) != folder && std::filesystem::is_empty(path))
            std::filesystem::remove(path);
    }
    return names_in(folder);
}

}  // namespace tsdiag::test
