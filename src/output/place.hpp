#pragma once
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tsdiag/output.hpp"

/// How a finished folder is put in place.  Nothing here removes or replaces files that are not the
/// program's.
namespace tsdiag::output {

/// In a temporary folder that holds only files of the program and may be removed.
constexpr const char* unfinished_mark = ".tsdiag-unfinished";
/// In a temporary folder that is complete and whose files are being moved into place.
constexpr const char* finished_mark = ".tsdiag-finished";

/// Sorted names of everything below `folder` that is not a folder, without locks, marks and
/// temporary folders.
std::vector<std::string> files_below(const std::filesystem::path& folder);
/// Is it a lock, a mark or a temporary folder?
bool is_own(const std::filesystem::path& path);
bool is_same_file(const std::filesystem::path& a, const std::filesystem::path& b);
/// Does the path exist, even as a broken link?
bool is_there(const std::filesystem::path& path);
/// Syncs a file, or the entries of a folder, to disk.
void sync(const std::filesystem::path& path);

/// Hard-links everything in `from` that `to` lacks into `to`, and creates its folders, except
/// `without`.  False where the file system cannot, or where there are too many files.
bool carry(const std::filesystem::path& from, const std::filesystem::path& to,
           const std::set<std::string>& without);

/// After `old` was exchanged for `folder`: removes the program's files and the carried hard links
/// from it; files that the user has added meanwhile are carried as well.
void dissolve(const std::filesystem::path& old, const std::filesystem::path& folder);

/// Moves the files of `whole` over those of `folder`, and removes files that only the manifest of
/// `folder` lists.  Can be repeated after an interruption.
void move_files(const std::filesystem::path& whole, const std::filesystem::path& folder);

/// The folder that ".NAME.tsdiag-xxxxxx" or ".NAME.tsdiag-lock" belongs to; empty: none.
std::string folder_of(const std::string& hidden);

/// Finishes or removes what killed processes left beside or inside `folder`.
void sweep(const std::filesystem::path& folder);

}  // namespace tsdiag::output
