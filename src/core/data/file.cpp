#include "tsdiag/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

struct Descriptor {
    int number;
    ~Descriptor() {
        if (number >= 0) ::close(number);
    }
};

[[noreturn]] void cannot_write(const std::filesystem::path& file, const std::string& temporary,
                               int error) {
    if (!temporary.empty()) ::unlink(temporary.c_str());
    throw Error(fmt::format("{}: cannot be written: {}.{}", file.string(), std::strerror(error),
                            error == ENOSPC   ? " Free some space or choose another --out."
                            : error == ENOENT ? " Does its folder exist?"
                                              : ""));
}

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

void write_atomically(const std::filesystem::path& file, std::string_view text) {
    static std::atomic<unsigned> serial{0};
    const std::filesystem::path folder = file.has_parent_path() ? file.parent_path() : ".";
    const std::string temporary =
        (folder / fmt::format(".{}.{}-{}.tmp", file.filename().string(), ::getpid(), serial++))
            .string();
    const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) cannot_write(file, "", errno);
    int error = 0;
    while (!text.empty() && !error) {
        const ssize_t written = ::write(fd, text.data(), text.size());
        if (written >= 0)
            text.remove_prefix(std::size_t(written));
        else if (errno != EINTR)
            error = errno;
    }
    // File systems without fsync return EINVAL or EROFS; nothing more can be done there.
    if (!error && ::fsync(fd) != 0 && errno != EINVAL && errno != EROFS) error = errno;
    if (::close(fd) != 0 && !error) error = errno;
    if (!error && ::rename(temporary.c_str(), file.c_str()) != 0) error = errno;
    if (error) cannot_write(file, temporary, error);
    if (const int dir = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); dir >= 0) {
        ::fsync(dir);
        ::close(dir);
    }
}

}  // namespace tsdiag
