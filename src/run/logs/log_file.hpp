#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace tsdiag {

/// A log that is read piece by piece: its length may be far beyond what a line needs.
class LogFile {
  public:
    /// Throws as `file_text`.
    LogFile(std::filesystem::path file, std::string_view expected, std::uint64_t most);
    ~LogFile();
    LogFile(const LogFile&) = delete;
    LogFile& operator=(const LogFile&) = delete;

    /// The first bytes, before any line was taken.
    std::string_view head();
    /// The next line without its end, valid until the next call; of one that is longer than `most`
    /// its first bytes, more than `most` of them.
    std::optional<std::string_view> line(std::size_t most);
    /// Did an end of line follow the last line?
    bool terminated() const { return terminated_; }

  private:
    [[noreturn]] void refuse(std::string_view found) const;
    [[noreturn]] void refuse_length() const;
    bool more();  ///< reads on; false at the end of the file

    std::filesystem::path path_;
    std::string expected_, bytes_;
    std::uint64_t most_, read_ = 0;
    std::size_t at_ = 0;  ///< of bytes_: the lines before were taken
    int file_ = -1;
    bool terminated_ = false;
};

}  // namespace tsdiag
