#include "output_directory.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <mutex>
#include <system_error>
#include <thread>

#include "terminal.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::cli {
namespace {

namespace fs = std::filesystem;

/// What an interruption has to remove, innermost first.  Held while a directory is put in place.
struct Unfinished {
    std::mutex mutex;
    fs::path temporary;
    std::vector<fs::path> parents;  ///< outermost first
};
Unfinished& unfinished() {
    static Unfinished instance;
    return instance;
}

void remove_unfinished(Unfinished& work) {
    std::error_code ignored;
    // Whoever still writes may add a file while the others are removed.
    for (int attempt = 0; attempt < 50 && !work.temporary.empty(); ++attempt) {
        fs::remove_all(work.temporary, ignored);
        if (!fs::exists(work.temporary, ignored)) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    for (auto parent = work.parents.rbegin(); parent != work.parents.rend(); ++parent)
        fs::remove(*parent, ignored);  // only where it is empty
    work.temporary.clear();
    work.parents.clear();
}

std::atomic<const char*> lost_file{nullptr};
std::atomic<pthread_t> watcher{};
std::atomic<bool> watching{false};

constexpr std::string_view lost_sentence =
    ": a part of it can no longer be read: it was shortened meanwhile, or its disk failed; run "
    "again when it is whole.";

void write_error(std::string_view text) {
    [[maybe_unused]] const auto n = write(STDERR_FILENO, text.data(), text.size());
}

/// On the thread that wanted bytes which are gone: hands over to the watcher, and never goes on.
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
    while (sigwait(&signals, &signal) != 0) {
    }
    const char* lost = lost_file;
    if (signal == SIGBUS && lost == nullptr) {  // from outside
        ::signal(SIGBUS, SIG_DFL);
        pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
        raise(SIGBUS);
    }
    Unfinished& work = unfinished();
    work.mutex.lock();  // never released: nothing may be put in place any more
    remove_unfinished(work);
    if (isatty(STDERR_FILENO) == 1) write_error("\r\x1b[K");
    if (lost == nullptr)
        write_error("tsdiag: interrupted; nothing half-written remains.\n");
    else
        write_error(fmt::format("tsdiag: {}{} Nothing half-written remains.\n", printable(lost),
                                lost_sentence));
    _exit(lost == nullptr ? 130 : 1);
}

std::string cause(int error) { return std::strerror(error); }

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
    unfinished();
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
    } catch (const std::system_error&) {  // no thread can be had: a signal ends the program at once
        pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
    }
    watch_mapped_files(hand_over);
}

OutputDirectory::OutputDirectory(fs::path path, std::vector<std::string> entries,
                                 std::string marker, bool force)
    : path_(std::move(path)), entries_(std::move(entries)), marker_(std::move(marker)) {
    path_ = fs::absolute(path_).lexically_normal();
    if (!path_.has_filename()) path_ = path_.parent_path();
    std::error_code failed;
    exists_ = fs::exists(path_, failed);
    if (exists_ && !fs::is_directory(path_))
        throw UsageError(
            fmt::format("{}: is a file, expected a directory to write into.", path_.string()));
    if (exists_ && !force && !is_ours() && !fs::is_empty(path_, failed))
        throw UsageError(
            fmt::format("{}: holds files that tsdiag did not write; choose another --out, or pass "
                        "--force to write beside them.",
                        path_.string()));
    if (!exists_) make_parents();
    std::string pattern =
        exists_ ? (path_ / ".tsdiag-XXXXXX").string()
                : (path_.parent_path() / ("." + path_.filename().string() + "-XXXXXX")).string();
    const std::lock_guard lock(unfinished().mutex);
    if (!mkdtemp(pattern.data())) {
        const std::string why = cause(errno);
        unfinished().parents = parents_;
        remove_unfinished(unfinished());
        throw Error(
            fmt::format("{}: cannot be written ({}); choose another --out.", path_.string(), why));
    }
    temporary_ = pattern;
    const mode_t mask = umask(0);
    umask(mask);
    chmod(pattern.c_str(), 0777 & ~mask);  // mkdtemp lets nobody else in
    unfinished().temporary = temporary_;
    unfinished().parents = parents_;
}

void OutputDirectory::make_parents() {
    std::vector<fs::path> missing;
    std::error_code failed;
    for (fs::path p = path_.parent_path(); !p.empty() && !fs::exists(p, failed);
         p = p.parent_path())
        missing.push_back(p);
    std::reverse(missing.begin(), missing.end());
    for (const fs::path& parent : missing) {
        if (!fs::create_directory(parent, failed) && failed)
            throw Error(fmt::format("{}: cannot be made ({}); choose another --out.",
                                    parent.string(), failed.message()));
        parents_.push_back(parent);
    }
}

OutputDirectory::~OutputDirectory() {
    const std::lock_guard lock(unfinished().mutex);
    remove_unfinished(unfinished());
}

/// An earlier run made it: its marker begins as run.json does.
bool OutputDirectory::is_ours() const {
    std::error_code none;
    if (marker_.empty() || !fs::is_regular_file(path_ / marker_, none)) return false;
    std::ifstream in(path_ / marker_, std::ios::binary);
    std::string head(64, '\0');
    in.read(head.data(), std::streamsize(head.size()));
    return head.find("\"tsdiag\"") != std::string::npos;
}

void OutputDirectory::replace_entries() {
    // What is replaced goes into the temporary directory, which is removed afterwards.
    const fs::path old = temporary_ / ".old";
    fs::create_directory(old);
    for (const std::string& name : entries_) {
        if (fs::exists(path_ / name)) fs::rename(path_ / name, old / name);
        if (fs::exists(temporary_ / name)) fs::rename(temporary_ / name, path_ / name);
    }
}

void OutputDirectory::commit() {
    require_unchanged_files();
    const std::lock_guard lock(unfinished().mutex);
    try {
        if (exists_) {
            replace_entries();
        } else {
            fs::rename(temporary_, path_);
            unfinished().temporary.clear();
        }
    } catch (const fs::filesystem_error& error) {
        throw Error(fmt::format("{}: cannot be put in place ({}).", path_.string(),
                                error.code().message()));
    }
    unfinished().parents.clear();
}

}  // namespace tsdiag::cli
