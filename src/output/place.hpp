#pragma once
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tsdiag/output.hpp"

/// How a finished folder comes into its place.  None of this removes or replaces a file that is not
/// the program's.
namespace tsdiag::output {

/// In a temporary folder whose content is all the program's, and may be removed.
constexpr const char* unfinished_mark = ".tsdiag-unfinished";
/// In one that is whole and whose files are on their way to where they belong.
constexpr const char* finished_mark = ".tsdiag-finished";

/// Names of everything below `folder` that is no folder itself, in order; without locks, marks and
/// temporary folders.
std::vector<std::string> files_below(const std::filesystem::path& folder);
/// Is it a lock, a mark or a temporary folder of this part?
bool is_own(const std::filesystem::path& path);
bool is_same_file(const std::filesystem::path& a, const std::filesystem::path& b);
/// Is there anything of that name, be it a broken link?
bool is_there(const std::filesystem::path& path);
/// Waits until the disk has a file or a folder's entries.
void sync(const std::filesystem::path& path);

/// Gives everything in `from` that `to` lacks a second name there (hard links, equal folders), but
/// for `without`.  False where the file system cannot, or where it is very much.
bool carry(const std::filesystem::path& from, const std::filesystem::path& to,
           const std::set<std::string>& without);

/// `old` was exchanged for `folder`: removes the program's files in it and the second names of what
/// was carried; what somebody put there meanwhile is carried, too.
void dissolve(const std::filesystem::path& old, const std::filesystem::path& folder);

/// Moves the files of `whole` over those of `folder`, and removes what the manifest of `folder`
/// names and that of `whole` does not.  It may be begun again.
void move_files(const std::filesystem::path& whole, const std::filesystem::path& folder);

/// The folder that ".NAME.tsdiag-xxxxxx" or ".NAME.tsdiag-lock" belongs to; empty: none.
std::string folder_of(const std::string& hidden);

/// Finishes or removes what processes that have died left beside or inside `folder`.
void sweep(const std::filesystem::path& folder);

}  // namespace tsdiag::output
