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

/// Writes `text` to a temporary name beside `file`, flushes it to the disk and renames it: a reader
/// sees the old file or the whole new one.  Throws `Error` naming file and cause (disk full,
/// permission ...).
void write_atomically(const std::filesystem::path& file, std::string_view text);

}  // namespace tsdiag
