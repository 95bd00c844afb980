#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "tsdiag/json.hpp"

/// Reading and writing whole files.
namespace tsdiag {

inline constexpr std::uint64_t longest_file = std::uint64_t{4} << 30;

/// The bytes of a regular file.  Pipes, devices, sockets and directories are refused: they may be
/// endless.  Throws `FormatError` naming the file and what was `expected` ("a log"), also where it
/// has more than `most` bytes.
std::string file_text(const std::filesystem::path& file, std::string_view expected,
                      std::uint64_t most = longest_file);

/// The JSON text that a regular file is, of at most `most` bytes (`longest_json` and the others).
Json file_json(const std::filesystem::path& file, std::string_view expected,
               std::uint64_t most = longest_json);

/// What is written to a name: a new file, one in place of a regular file, which may be behind a
/// symbolic link, or bytes into a pipe or a character device.
enum class FilePlace { free, replaced, stream };
/// Throws `UsageError` where none of these can be: a folder, a link that leads nowhere, a block
/// device, a socket.
FilePlace place_of_file(const std::filesystem::path& file);

/// Writes `text` to a temporary name beside `file`, flushes it to the disk and renames it: a reader
/// sees the old file or the whole new one.  Only a regular file is replaced: a symbolic link stays
/// and the file behind it is replaced; a pipe or a character device is written into.  Throws as
/// `place_of_file`, and `Error` naming file and cause (disk full, permission ...).
void write_atomically(const std::filesystem::path& file, std::string_view text);

/// Removes what `write_atomically` has not finished, before the process is terminated; what is
/// written afterwards blocks forever.
void abandon_files();

}  // namespace tsdiag
