/// Preloaded into tsdiag: injects a fault at its N-th file change.
///
///     TSDIAG_FAULT_AT=N  TSDIAG_FAULT=kill|torn|power|full|once|term  TSDIAG_FAULT_COUNT=FILE
///
/// kill: the process ends before the change; torn: half of a write is done, then it ends; power: it
/// ends before the change, and what was written and not yet synchronised is not on the disk (cut
/// off, or zeros, or half of it); full: this and all later changes that need space fail with
/// ENOSPC; once: only this one does; term: the process gets SIGTERM, and the writer goes on while
/// another thread cleans up.  The number of changes is written to FILE at the end, and what a power
/// cut after that end would take: how many names of files, and, a line each, files.
///
/// Of a power cut: names reach the disk in the order in which they were made, as in a journal; a
/// synchronised folder has reached it with all names before.
///
///     TSDIAG_FAULT_LIES=1 the disk says that it synchronised, and did not
///     TSDIAG_FAULT_BEHIND=ENDING  once a file has got a name with this ending, the process ends
///     TSDIAG_FAULT_REST=S         making a temporary folder takes S seconds
///     TSDIAG_CLOCK=S      the clock is S seconds ahead of the file system's
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <vector>

namespace {

std::atomic<long> changes{0};
long fault_at = -1;
enum class Fault { none, kill, torn, power, full, once, term } fault = Fault::none;
bool active = false;

template <class F>
F* real(const char* name) {
    return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

void die() { syscall(SYS_kill, getpid(), SIGKILL); }

/// A file that was written, by a descriptor of its own.
struct Written {
    dev_t device;
    ino_t inode;
    int file;
    off_t durable;  ///< bytes that reached the disk
    bool waits;     ///< others were written since
};
struct Disk {
    std::mutex mutex;
    std::vector<Written> files;
    long names = 0;  ///< made since a folder was synchronised
};
Disk& disk() {
    static Disk& instance = *new Disk;  // written to until the end
    return instance;
}

bool is_output(int file) {
    struct stat about {};
    return file > 2 && fstat(file, &about) == 0 && S_ISREG(about.st_mode);
}

/// Before bytes are written.
void writes(int file) {
    struct stat about {};
    if (!active || !is_output(file) || fstat(file, &about) != 0) return;
    const std::lock_guard guard(disk().mutex);
    for (Written& one : disk().files)
        if (one.device == about.st_dev && one.inode == about.st_ino) {
            if (!one.waits) one.durable = about.st_size;
            one.waits = true;
            return;
        }
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", file);
    const int own = int(syscall(SYS_openat, AT_FDCWD, name, O_WRONLY | O_CLOEXEC));
    if (own >= 0) disk().files.push_back({about.st_dev, about.st_ino, own, about.st_size, true});
}
void makes_a_name() {
    const std::lock_guard guard(disk().mutex);
    ++disk().names;
}
void synchronises(int file) {
    struct stat about {};
    if (!active || fstat(file, &about) != 0) return;
    const std::lock_guard guard(disk().mutex);
    if (S_ISDIR(about.st_mode)) disk().names = 0;
    for (Written& one : disk().files)
        if (one.device == about.st_dev && one.inode == about.st_ino) one.waits = false;
}
/// Prints the files that still have a name, and bytes that did not reach the disk.
void print_waiting_files(FILE* out) {
    struct stat about {};
    char link[64], name[4096];
    for (const Written& one : disk().files) {
        if (!one.waits || fstat(one.file, &about) != 0 || about.st_nlink == 0) continue;
        snprintf(link, sizeof link, "/proc/self/fd/%d", one.file);
        const ssize_t length = readlink(link, name, sizeof name);
        if (length > 6 && strncmp(name, "/proc/", 6) == 0) continue;
        fprintf(out, "%.*s\n", int(length > 0 ? length : 0), name);
    }
}
void lose_what_waits() {
    const std::lock_guard guard(disk().mutex);
    struct stat about {};
    for (const Written& one : disk().files) {
        if (!one.waits || fstat(one.file, &about) != 0) continue;
        static const char zeros[4096] = {};
        if (fault_at % 3 == 0)
            syscall(SYS_ftruncate, one.file, one.durable);
        else if (fault_at % 3 == 1)
            syscall(SYS_ftruncate, one.file, one.durable + (about.st_size - one.durable) / 2);
        else
            for (off_t at = one.durable; at < about.st_size; at += off_t(sizeof zeros)) {
                const off_t left = about.st_size - at;
                const size_t some = left < off_t(sizeof zeros) ? size_t(left) : sizeof zeros;
                syscall(SYS_pwrite64, one.file, zeros, some, at);
            }
    }
}

bool is_main_thread() { return syscall(SYS_gettid) == getpid(); }

std::atomic<bool> folder_gone{false};

/// Sends SIGTERM; the writer then waits until a folder is removed, at most 200 ms.
void interrupt() {
    constexpr useconds_t step = 1000;
    constexpr int most = 200;
    syscall(SYS_kill, getpid(), SIGTERM);
    for (int i = 0; i < most && !folder_gone; ++i) usleep(step);
}

/// The cleaning thread waits after removing a folder, so that the writer continues before the exit.
int removed_folder(int result) {
    constexpr useconds_t head_start = 30000;
    if (fault == Fault::term && fault_at >= 0 && result == 0 && !is_main_thread()) {
        folder_gone = true;
        usleep(head_start);
    }
    return result;
}

/// Counts a change.  True where it must fail with ENOSPC; `tears`: where it must be torn.
bool fails(bool needs_space, bool* tears = nullptr) {
    if (!active) return false;
    const long now = ++changes;
    if (fault == Fault::term && now == fault_at && is_main_thread()) interrupt();
    if (fault == Fault::power && now == fault_at) lose_what_waits();
    if ((fault == Fault::kill || fault == Fault::power) && now == fault_at) die();
    if (fault == Fault::torn && now == fault_at) {
        if (!tears) die();
        *tears = true;
    }
    const bool due =
        (fault == Fault::full && now >= fault_at) || (fault == Fault::once && now == fault_at);
    if (!due || !needs_space || fault_at < 0) return false;
    errno = ENOSPC;
    return true;
}

__attribute__((constructor)) void begin() {
    active = strcmp(program_invocation_short_name, "tsdiag") == 0;
    if (const char* at = getenv("TSDIAG_FAULT_AT")) fault_at = atol(at);
    const char* kind = getenv("TSDIAG_FAULT");
    if (kind && strcmp(kind, "kill") == 0) fault = Fault::kill;
    if (kind && strcmp(kind, "torn") == 0) fault = Fault::torn;
    if (kind && strcmp(kind, "power") == 0) fault = Fault::power;
    if (kind && strcmp(kind, "full") == 0) fault = Fault::full;
    if (kind && strcmp(kind, "once") == 0) fault = Fault::once;
    if (kind && strcmp(kind, "term") == 0) fault = Fault::term;
}

__attribute__((destructor)) void end() {
    const char* name = getenv("TSDIAG_FAULT_COUNT");
    if (!active || !name) return;
    active = false;
    if (FILE* out = fopen(name, "w")) {
        fprintf(out, "%ld %ld\n", changes.load(), disk().names);
        print_waiting_files(out);
        fclose(out);
    }
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t id, timespec* now) {
    const int result = real<int(clockid_t, timespec*)>("clock_gettime")(id, now);
    const char* ahead = getenv("TSDIAG_CLOCK");
    if (result == 0 && id == CLOCK_REALTIME && ahead != nullptr) now->tv_sec += atol(ahead);
    return result;
}
int open(const char* path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
    va_end(more);
    if ((flags & O_CREAT) && fails(true)) return -1;
    return real<int(const char*, int, ...)>("open")(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
    va_list more;
    va_start(more, flags);
    const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
    va_end(more);
    if ((flags & O_CREAT) && fails(true)) return -1;
    return real<int(const char*, int, ...)>("open64")(path, flags, mode);
}
FILE* fopen64(const char* path, const char* mode) {
    if (mode[0] != 'r' && fails(true)) return nullptr;
    return real<FILE*(const char*, const char*)>("fopen64")(path, mode);
}
ssize_t write(int file, const void* bytes, size_t count) {
    bool tears = false;
    if (is_output(file) && fails(true, &tears)) return -1;
    if (tears) {
        syscall(SYS_write, file, bytes, count / 2);
        die();
    }
    writes(file);
    return real<ssize_t(int, const void*, size_t)>("write")(file, bytes, count);
}
ssize_t writev(int file, const iovec* parts, int count) {
    bool tears = false;
    if (is_output(file) && fails(true, &tears)) return -1;
    if (tears) {
        syscall(SYS_write, file, parts[0].iov_base, parts[0].iov_len / 2);
        die();
    }
    writes(file);
    return real<ssize_t(int, const iovec*, int)>("writev")(file, parts, count);
}
ssize_t sendfile(int to, int from, off_t* at, size_t count) {
    if (is_output(to) && fails(true)) return -1;
    writes(to);
    return real<ssize_t(int, int, off_t*, size_t)>("sendfile")(to, from, at, count);
}
int fsync(int file) {
    fails(false);
    const int result = real<int(int)>("fsync")(file);
    if (result == 0 && !getenv("TSDIAG_FAULT_LIES")) synchronises(file);
    return result;
}
int ftruncate(int file, off_t size) {
    fails(false);
    return real<int(int, off_t)>("ftruncate")(file, size);
}
int ftruncate64(int file, off64_t size) {
    fails(false);
    return real<int(int, off64_t)>("ftruncate64")(file, size);
}
int rename(const char* from, const char* to) {
    if (fails(true)) return -1;
    makes_a_name();
    const int result = real<int(const char*, const char*)>("rename")(from, to);
    const char* ending = getenv("TSDIAG_FAULT_BEHIND");
    const size_t length = ending ? strlen(ending) : 0, all = strlen(to);
    if (active && ending && all >= length && strcmp(to + all - length, ending) == 0) die();
    return result;
}
int renameat2(int a, const char* from, int b, const char* to, unsigned flags) {
    if (fails(true)) return -1;
    if (getenv("TSDIAG_FAULT_NO_EXCHANGE")) {
        errno = EINVAL;
        return -1;
    }
    makes_a_name();
    return real<int(int, const char*, int, const char*, unsigned)>("renameat2")(a, from, b, to,
                                                                                flags);
}
int link(const char* from, const char* to) {
    if (fails(true)) return -1;
    makes_a_name();
    return real<int(const char*, const char*)>("link")(from, to);
}
int mkdir(const char* path, mode_t mode) {
    if (fails(true)) return -1;
    return real<int(const char*, mode_t)>("mkdir")(path, mode);
}
char* mkdtemp(char* pattern) {
    if (fails(true)) return nullptr;
    if (const char* seconds = getenv("TSDIAG_FAULT_REST")) sleep(unsigned(atol(seconds)));
    return real<char*(char*)>("mkdtemp")(pattern);
}
int unlink(const char* path) {
    fails(false);
    return real<int(const char*)>("unlink")(path);
}
int unlinkat(int folder, const char* path, int flags) {
    fails(false);
    const int result = real<int(int, const char*, int)>("unlinkat")(folder, path, flags);
    return (flags & AT_REMOVEDIR) != 0 ? removed_folder(result) : result;
}
int remove(const char* path) {
    fails(false);
    return real<int(const char*)>("remove")(path);
}
int rmdir(const char* path) {
    fails(false);
    return removed_folder(real<int(const char*)>("rmdir")(path));
}

}  // extern "C"
