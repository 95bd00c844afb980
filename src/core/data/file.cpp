#include "tsdiag/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
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
    if (!S_ISREG(status.st_mode)) refuse("is no regular file");
    if (static_cast<std::uint64_t>(status.st_size) > most) too_long();
    std::string text;
    // One byte more than it has shows the end; a file that grows meanwhile is read on.
    std::size_t room = static_cast<std::size_t>(status.st_size) + 1, used = 0;
    for (;;) {
        text.resize(room);
        const ssize_t some = ::read(in.number, text.data() + used, room - used);
        if (some < 0 && errno == EINTR) continue;
        if (some < 0) refuse(fmt::format("cannot be read ({})", std::strerror(errno)));
        if (some == 0) break;
        used += static_cast<std::size_t>(some);
        if (used > most) too_long();
        if (used == room) room = std::max<std::size_t>(2 * room, 4096);
    }
    text.resize(used);
    return text;
}

}  // namespace tsdiag
