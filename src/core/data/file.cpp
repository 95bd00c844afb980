#include "tsdiag/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

struct Descriptor {
    int number;
    ~Descriptor() {
        if (number >= 0) ::close(number);
    }
};

[[noreturn]] void cannot_write(const std::filesystem::path& file, int error) {
    throw Error(fmt::format("{}: cannot be written: {}.{}", file.string(), std::strerror(error),
                            error == ENOSPC  ? " Free some space or choose another --out."
                            : error == EFBIG ? " Raise the limit of file sizes (ulimit -f)."
                            : error == EACCES || error == EROFS ? " Choose another --out."
                            : error == ENOENT                   ? " Does its folder exist?"
                                                                : ""));
}

/// 0, or the error at which writing stopped.
int write_all(int descriptor, std::string_view text) {
    while (!text.empty()) {
        const ssize_t written = ::write(descriptor, text.data(), text.size());
        if (written >= 0)
            text.remove_prefix(std::size_t(written));
        else if (errno != EINTR)
            return errno;
    }
    return 0;
}

void write_into(const std::filesystem::path& stream, std::string_view text) {
    const Descriptor out{::open(stream.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY)};
    if (const int error = out.number < 0 ? errno : write_all(out.number, text))
        cannot_write(stream, error);
}

/// Temporary files that are being written.
struct Unfinished {
    std::mutex mutex;
    std::set<std::string> files;
};
Unfinished& unfinished() {
    static Unfinished instance;
    return instance;
}

/// One of them, which is removed unless it was renamed.
class Temporary {
  public:
    explicit Temporary(std::string name) : name_(std::move(name)) {
        const std::lock_guard guard(unfinished().mutex);
        out_.number = ::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (out_.number < 0) error_ = errno;
        if (!error_) unfinished().files.insert(name_);
    }
    ~Temporary() {
        const std::lock_guard guard(unfinished().mutex);
        if (unfinished().files.erase(name_) > 0) ::unlink(name_.c_str());
    }
    Temporary(const Temporary&) = delete;
    Temporary& operator=(const Temporary&) = delete;

    /// 0, or the first error.
    int finish(std::string_view text, const std::filesystem::path& target) {
        if (!error_) error_ = write_all(out_.number, text);
        // File systems without fsync return EINVAL or EROFS; nothing more can be done there.
        if (!error_ && ::fsync(out_.number) != 0 && errno != EINVAL && errno != EROFS)
            error_ = errno;
        if (out_.number >= 0 && ::close(std::exchange(out_.number, -1)) != 0 && !error_)
            error_ = errno;
        const std::lock_guard guard(unfinished().mutex);
        if (!error_ && ::rename(name_.c_str(), target.c_str()) != 0) error_ = errno;
        if (!error_) unfinished().files.erase(name_);
        return error_;
    }

  private:
    std::string name_;
    Descriptor out_{-1};
    int error_ = 0;
};

}  // namespace

std::string file_text(const std::filesystem::path& file, std::string_view expected,
                      std::uint64_t most) {
    const auto refuse = [&](std::string_view found) {
        throw FormatError(fmt::format("{}: {}, expected {}.", file.string(), found, expected));
    };
    const auto too_long = [&] { refuse(fmt::format("has more than {} bytes", most)); };
    // Without O_NONBLOCK, opening a pipe would wait for its writer.
    const Descriptor in{::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
    struct stat status {};
    if (in.number < 0 || ::fstat(in.number, &status) != 0)
        refuse(fmt::format("cannot be read ({})", std::strerror(errno)));
    if (!S_ISREG(status.st_mode)) refuse("is not a regular file");
    if (std::uint64_t(status.st_size) > most) too_long();
    std::string text;
    // One byte beyond the size detects the end; a file that grows meanwhile is read to its end.
    std::size_t room = std::size_t(status.st_size) + 1, used = 0;
    for (;;) {
        text.resize(room);
        const ssize_t some = ::read(in.number, text.data() + used, room - used);
        if (some < 0 && errno == EINTR) continue;
        if (some < 0) refuse(fmt::format("cannot be read ({})", std::strerror(errno)));
        if (some == 0) break;
        used += std::size_t(some);
        if (used > most) too_long();
        if (used == room) room = std::max<std::size_t>(2 * room, 4096);
    }
    text.resize(used);
    return text;
}

Json file_json(const std::filesystem::path& file, std::string_view expected, std::uint64_t most) {
    return Json::parse(file_text(file, expected, most), file.string(), most);
}

FilePlace place_of_file(const std::filesystem::path& file) {
    namespace fs = std::filesystem;
    const auto refuse = [&](std::string_view found) {
        throw UsageError(fmt::format(
            "{}: cannot be written: is {}, expected a file or a free name; choose another name.",
            file.string(), found));
    };
    std::error_code failed;
    const fs::file_status found = fs::status(file, failed);
    switch (found.type()) {
        case fs::file_type::regular:
            return FilePlace::replaced;
        case fs::file_type::fifo:
        case fs::file_type::character:
            return FilePlace::stream;
        case fs::file_type::directory:
            refuse("a folder");
            break;
        case fs::file_type::block:
            refuse("a block device");
            break;
        case fs::file_type::socket:
            refuse("a socket");
            break;
        default:
            break;
    }
    if (fs::is_symlink(fs::symlink_status(file, failed))) refuse("a link that leads nowhere");
    return FilePlace::free;
}

void write_atomically(const std::filesystem::path& file, std::string_view text) {
    static std::atomic<unsigned> serial{0};
    const FilePlace place = place_of_file(file);
    if (place == FilePlace::stream) return write_into(file, text);
    const std::filesystem::path target =
        place == FilePlace::replaced ? std::filesystem::canonical(file) : file;
    const std::filesystem::path folder = target.has_parent_path() ? target.parent_path() : ".";
    Temporary temporary(
        (folder / fmt::format(".{}.{}-{}.tmp", target.filename().string(), ::getpid(), serial++))
            .string());
    if (const int error = temporary.finish(text, target)) cannot_write(file, error);
    if (const int dir = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); dir >= 0) {
        ::fsync(dir);
        ::close(dir);
    }
}

void abandon_files() {
    unfinished().mutex.lock();  // never unlocked
    for (const std::string& file : unfinished().files) ::unlink(file.c_str());
}

}  // namespace tsdiag
