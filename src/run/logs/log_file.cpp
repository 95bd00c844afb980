#include "log_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "tsdiag/error.hpp"

namespace tsdiag {

LogFile::LogFile(std::filesystem::path file, std::string_view expected, std::uint64_t most)
    : path_(std::move(file)),
      expected_(expected),
      most_(most),
      // Without O_NONBLOCK, opening a pipe would wait for its writer.
      file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    struct stat status {};
    if (file_ < 0 || ::fstat(file_, &status) != 0)
        refuse(fmt::format("cannot be read ({})", std::strerror(errno)));
    if (!S_ISREG(status.st_mode)) refuse("is not a regular file");
    if (std::uint64_t(status.st_size) > most_) refuse_length();
}

LogFile::~LogFile() {
    if (file_ >= 0) ::close(file_);
}

void LogFile::refuse(std::string_view found) const {
    throw FormatError(fmt::format("{}: {}, expected {}.", path_.string(), found, expected_));
}

void LogFile::refuse_length() const { refuse(fmt::format("has more than {} bytes", most_)); }

bool LogFile::more() {
    constexpr std::size_t piece = 1 << 16;
    bytes_.erase(0, std::exchange(at_, 0));
    const std::size_t used = bytes_.size();
    bytes_.resize(used + piece);
    ssize_t some = -1;
    do some = ::read(file_, bytes_.data() + used, piece);
    while (some < 0 && errno == EINTR);
    if (some < 0) refuse(fmt::format("cannot be read ({})", std::strerror(errno)));
    bytes_.resize(used + std::size_t(some));
    read_ += std::uint64_t(some);
    if (read_ > most_) refuse_length();  // it grows meanwhile
    return some > 0;
}

std::string_view LogFile::head() {
    if (bytes_.empty()) more();
    return bytes_;
}

std::optional<std::string_view> LogFile::line(std::size_t most) {
    std::size_t seen = 0;  // of the bytes from at_ on, where no line ends
    for (;;) {
        const std::string_view left = std::string_view(bytes_).substr(at_);
        const std::size_t end = left.find('\n', seen);
        terminated_ = end != std::string_view::npos;
        if (terminated_) {
            at_ += end + 1;
            return left.substr(0, end);
        }
        seen = left.size();
        if (seen > most || !more()) break;
    }
    const std::string_view last = std::string_view(bytes_).substr(at_);
    at_ = bytes_.size();
    return last.empty() ? std::nullopt : std::optional(last);
}

}  // namespace tsdiag
