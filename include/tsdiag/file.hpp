#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

/// Texts as files have them.
namespace tsdiag {

inline constexpr std::uint64_t longest_file = std::uint64_t{4} << 30;

/// The bytes of a regular file.  Pipes, devices, sockets and directories are refused: they may have
/// no end.  Throws `FormatError` naming the file and what was `expected` ("a log"), also where it
/// has more than `most` bytes.
std::string file_text(const std::filesystem::path& file, std::string_view expected,
                      std::uint64_t most = longest_file);

}  // namespace tsdiag
