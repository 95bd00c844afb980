#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace tsdiag::cli {

/// A directory that appears when it is whole.  Everything is written to `temporary()`, beside a new
/// directory or hidden inside an existing one; `commit` renames it, or moves its entries over those
/// of the same name.  Without a commit, and where an interruption comes first, nothing remains.
class OutputDirectory {
  public:
    /// `entries`: the names that this program may write; in a directory that an earlier run made,
    /// those that the new one lacks are removed, and nothing else.  `marker`: the file that tells
    /// such a directory; empty: none does. Throws `UsageError` for a directory that holds anything
    /// else, unless `force`.
    OutputDirectory(std::filesystem::path path, std::vector<std::string> entries,
                    std::string marker, bool force);
    ~OutputDirectory();
    OutputDirectory(const OutputDirectory&) = delete;
    OutputDirectory& operator=(const OutputDirectory&) = delete;

    const std::filesystem::path& temporary() const { return temporary_; }
    void commit();

  private:
    bool is_ours() const;
    void make_parents();
    void replace_entries();

    std::filesystem::path path_, temporary_;
    std::vector<std::string> entries_;
    std::string marker_;
    std::vector<std::filesystem::path> parents_;  ///< made here, outermost first
    bool exists_ = false;
};

/// SIGINT, SIGTERM and SIGHUP from now on remove what is unfinished and end the program with 130.
/// To be called before any thread is started.
void watch_interruptions();

}  // namespace tsdiag::cli
