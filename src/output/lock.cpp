#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "unfinished.hpp"

namespace tsdiag {
namespace output {

namespace fs = std::filesystem;

Unfinished& unfinished() {
    static Unfinished instance;
    return instance;
}

std::string hidden_name(const fs::path& folder, std::string_view end) {
    constexpr std::size_t longest = 200;  // a name may have 255 bytes
    std::string name = folder.filename().string();
    if (name.size() > longest) name = sha256(name).substr(0, 32);
    return fmt::format(".{}.tsdiag-{}", name, end);
}

void remove_temporary(const fs::path& folder) {
    std::error_code ignored;
    for (int attempt = 0; attempt < 50; ++attempt) {
        fs::remove_all(folder, ignored);
        if (!fs::exists(fs::symlink_status(folder, ignored))) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
}

namespace {

[[noreturn]] void cannot_write(const fs::path& folder, int error) {
    throw Error(fmt::format("{}: cannot be written ({}); choose another --out.", folder.string(),
                            std::strerror(error)));
}

void make_parents(const fs::path& folder, std::vector<fs::path>& made) {
    std::vector<fs::path> missing;
    std::error_code failed;
    for (fs::path p = folder.parent_path(); !p.empty() && !fs::exists(p, failed);
         p = p.parent_path())
        missing.push_back(p);
    std::ranges::reverse(missing);
    for (const fs::path& parent : missing) {
        if (!fs::create_directory(parent, failed) && failed)
            throw Error(fmt::format("{}: cannot be created ({}); choose another --out.",
                                    parent.string(), failed.message()));
        made.push_back(parent);
    }
}

/// -1 with errno where it can neither be opened nor created.
int open_lock(const fs::path& file) {
    constexpr int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
    int found = ::open(file.c_str(), O_RDWR | flags);
    if (found < 0 && errno == EACCES) found = ::open(file.c_str(), O_RDONLY | flags);
    if (found < 0 && errno == ENOENT)
        found = ::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | flags, 0666);
    return found;
}

/// Does `file` still name the open file?  Its last owner may have removed it.
bool is_named(int descriptor, const fs::path& file) {
    struct stat open {
    }, named{};
    return ::fstat(descriptor, &open) == 0 && ::lstat(file.c_str(), &named) == 0 &&
           open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

std::string holder(int descriptor) {
    char text[32] = {};
    const ssize_t count = ::pread(descriptor, text, sizeof text - 1, 0);
    long pid = 0;
    std::from_chars(text, text + std::max<ssize_t>(count, 0), pid);
    return pid > 0 ? fmt::format("process {}", pid) : "another process";
}

void write_holder(int descriptor) {
    const std::string text = fmt::format("{}\n", ::getpid());
    if (::ftruncate(descriptor, 0) != 0) return;  // another user's: it can be locked, not written
    [[maybe_unused]] const ssize_t n = ::pwrite(descriptor, text.data(), text.size(), 0);
}

bool has_no_locks(int error) {
    return error == ENOLCK || error == EOPNOTSUPP || error == ENOSYS || error == EINVAL;
}

/// Opens the lock beside the folder, or inside it where its parent is not writable.  -1 with errno.
int open_lock_of(const fs::path& folder, fs::path& file) {
    file = folder.parent_path() / hidden_name(folder, "lock");
    int found = open_lock(file);
    const int error = found < 0 ? errno : 0;
    std::error_code failed;
    if ((error == EACCES || error == EPERM || error == EROFS) && fs::is_directory(folder, failed)) {
        file = folder / (std::string(hidden_inside) + "lock");
        return open_lock(file);
    }
    errno = error;
    return found;
}

/// False where another process created or removed the lock in between.
bool acquire(FolderLock::Held& held) {
    held.descriptor = open_lock_of(held.folder, held.file);
    if (const int error = held.descriptor < 0 ? errno : 0) {
        std::error_code failed;
        if ((error == EEXIST || error == ENOENT) &&
            fs::is_directory(held.folder.parent_path(), failed))
            return false;
        cannot_write(held.folder, error);
    }
    const bool locked = ::flock(held.descriptor, LOCK_EX | LOCK_NB) == 0;
    const int error = locked ? 0 : errno;
    if (locked ? is_named(held.descriptor, held.file) : has_no_locks(error)) {
        held.effective = locked;
        if (locked) write_holder(held.descriptor);
        return true;
    }
    const std::string who = holder(held.descriptor);
    ::close(std::exchange(held.descriptor, -1));
    if (locked || error == EINTR) return false;
    throw UsageError(
        fmt::format("{}: {} is writing there; wait until it ends, or choose another --out.",
                    held.folder.string(), who));
}

}  // namespace
}  // namespace output

FolderLock::Held::~Held() {
    const std::lock_guard guard(output::unfinished().mutex);
    output::unfinished().locks.remove(this);
    release();
}

void FolderLock::Held::release() {
    std::error_code ignored;
    if (descriptor >= 0) {
        if (effective) std::filesystem::remove(file, ignored);  // while nobody else can hold it
        ::close(descriptor);
        descriptor = -1;
    }
    for (auto parent = parents.rbegin(); parent != parents.rend(); ++parent)
        std::filesystem::remove(*parent, ignored);  // only where it is empty
    parents.clear();
}

FolderLock::FolderLock(const std::filesystem::path& folder) {
    const std::filesystem::path path = place_of_folder(folder);
    static std::map<std::filesystem::path, std::weak_ptr<Held>> all;
    // Other processes may come in between, but not for ever: where a file system creates no files,
    // such as /proc, the lock is never there.  The mutex is free between the attempts.
    constexpr int most_attempts = 200;
    for (int attempt = 0; attempt < most_attempts; ++attempt) {
        if (attempt > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        const std::lock_guard guard(output::unfinished().mutex);
        std::weak_ptr<Held>& known = all[path];
        held_ = known.lock();
        if (held_) return;
        held_ = std::make_shared<Held>();
        held_->folder = path;
        output::make_parents(path, held_->parents);
        if (!output::acquire(*held_)) continue;
        output::unfinished().locks.push_back(held_.get());
        known = held_;
        return;
    }
    output::cannot_write(path, ENOENT);
}

const std::filesystem::path& FolderLock::folder() const { return held_->folder; }
bool FolderLock::effective() const { return held_->effective; }

void abandon_output() {
    output::Unfinished& work = output::unfinished();
    work.mutex.lock();  // never unlocked
    for (const std::filesystem::path& one : work.temporaries) output::remove_temporary(one);
    for (FolderLock::Held* held : work.locks) held->release();
    abandon_files();
}

}  // namespace tsdiag
