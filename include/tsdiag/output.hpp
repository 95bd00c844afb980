#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

/// Output folders.
///
/// A folder may also hold files of its user.  A manifest lists the files that the program wrote,
/// with digests; only listed and unchanged files are ever replaced or removed.  A result replaces
/// the previous one in one step, and a lock admits one writing process per folder.
namespace tsdiag {

/// SHA-256 (FIPS 180-4) of the bytes added so far.  Cost: O(bytes).
class Sha256 {
  public:
    void add(std::string_view bytes);
    std::string hex() const;  ///< 64 digits; more may be added afterwards

  private:
    void block(const unsigned char* bytes);
    std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                           0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    std::array<unsigned char, 64> rest_ = {};
    std::uint64_t length_ = 0;
};
std::string sha256(std::string_view bytes);
/// Of a file, or of its first `bytes`; nullopt where it is no regular file, is shorter or cannot be
/// read.
std::optional<std::string> sha256_of(const std::filesystem::path& file,
                                     std::optional<std::uint64_t> bytes = {});

/// The names and digests of the files that were written into a folder.  Stored as `files.sha256`,
/// which `sha256sum -c` reads, after a line with the digest of the lines; a file without that
/// digest is no manifest.
class Manifest {
  public:
    static constexpr const char* file = "files.sha256";
    struct Entry {
        std::string digest;
        /// A log that is appended to: the digest is that of its first bytes, as many as this.
        std::optional<std::uint64_t> grows = {};
        bool operator==(const Entry&) const = default;
    };
    using Entries = std::map<std::string, Entry>;  ///< by name, with '/' between folders

    /// That of a folder; empty where there is none.
    static Manifest of(const std::filesystem::path& folder);
    /// Empty where `text` is no manifest: another first line, or lines that do not match the
    /// digest.
    static Manifest parse(std::string_view text);
    std::string text() const;
    void write(const std::filesystem::path& folder) const;

    const Entries& entries() const { return entries_; }
    bool empty() const { return entries_.empty(); }
    bool lists(const std::string& name) const { return entries_.contains(name); }
    void set(const std::string& name, Entry entry) { entries_[name] = std::move(entry); }
    void erase(const std::string& name) { entries_.erase(name); }

    /// Whether `folder/name` was written by the program and is unchanged since.  Manifests of
    /// folders below count where this one lists them.  Cost: reads the file.
    bool owns(const std::filesystem::path& folder, const std::string& name) const;
    /// The names in it and in the manifests below that count; a manifest follows its files.
    std::vector<std::string> names(const std::filesystem::path& folder) const;

  private:
    Entries entries_;
};

/// Names what the command reads: nothing is written onto it or above it, nor into it where it is a
/// result.  Replaces what was named before.
void set_inputs(std::vector<std::filesystem::path> inputs);
/// Throws `UsageError` where `place`, a file or a folder that need not exist, is one of them or
/// contains one, or lies in one.  Inside a folder that is no result a new name and a former result
/// are allowed.  Compares devices and inodes, so also through links.
void refuse_inputs(const std::filesystem::path& place);

/// The absolute path, without symbolic links, of a folder that is to be written.  Throws
/// `UsageError` where it is the root, where it or a parent is no folder or is a link that leads
/// nowhere, and as `refuse_inputs`; `Error` where this user may not write there.
std::filesystem::path place_of_folder(const std::filesystem::path& folder);

/// Excludes other processes from writing a folder while it lives; recursive within a process.  The
/// folder need not exist; its parents are created, and removed at the end where they are empty.
/// The lock is one of the kernel (flock) on a file beside the folder, or inside where none can be
/// created beside it: it is released when the process dies.
///
/// Throws `UsageError` naming the process that holds it and as `place_of_folder`, `Error` where no
/// file can be created.
class FolderLock {
  public:
    explicit FolderLock(const std::filesystem::path& folder);
    const std::filesystem::path& folder() const;  ///< absolute, without symbolic links
    bool effective() const;                       ///< false where the file system has no locks

    struct Held;

  private:
    std::shared_ptr<Held> held_;
};

struct OutputPlan {
    /// Files that may be written, as patterns of fnmatch(3) in which '*' also matches '/'.  Below a
    /// pattern that ends in "/*" the user may have files of other names; any other match must be
    /// the program's own.
    std::vector<std::string> writes;
    bool replace = true;                  ///< an earlier result, without `force`
    bool force = false;                   ///< also beside files that it did not write
    bool in_place = false;                ///< file by file: other processes use the folder
    std::vector<std::string> grows = {};  ///< names that are appended to afterwards
};

/// A result that appears in a folder when it is complete.  It is built in `temporary()`, beside the
/// folder, and `commit` exchanges the two, keeping the user's files; where that is impossible (see
/// docs/decisions.md) it moves the files, and the next to open the folder completes an interrupted
/// move.  Without a commit nothing remains.
class OutputFolder {
  public:
    /// Throws `UsageError` where another process writes there, where the folder holds files that
    /// the program did not write (unless `force`), or where one of them, or a changed one, would be
    /// replaced.
    OutputFolder(const std::filesystem::path& folder, OutputPlan plan);
    ~OutputFolder();
    OutputFolder(const OutputFolder&) = delete;
    OutputFolder& operator=(const OutputFolder&) = delete;

    const std::filesystem::path& folder() const { return lock_.folder(); }
    const std::filesystem::path& temporary() const { return temporary_; }
    /// Writes the manifest and syncs all files to the disk; returns the manifest's digest.
    std::string seal();
    /// Puts the result in place.  Where a new file of the user conflicts, throws `Error` and leaves
    /// the result beside the folder.
    void commit();

  private:
    bool matches(const std::string& name) const;
    void refuse_other_files() const;
    void refuse_what_is_in_the_way(const Manifest& old) const;
    void make_temporary();
    std::string in_the_way() const;
    bool can_exchange() const;
    bool exchange();
    std::filesystem::path release();
    [[noreturn]] void step_aside(const std::string& name);

    FolderLock lock_;
    OutputPlan plan_;
    std::filesystem::path temporary_;
    Manifest sealed_;
    std::set<std::string> replaced_;  ///< names in the folder that may be removed
};

/// Completes or removes unfinished output of dead processes in `parent`.
void finish_output(const std::filesystem::path& parent);

/// Removes unfinished output before the process is terminated; output that begins or commits
/// afterwards blocks forever.
void abandon_output();

}  // namespace tsdiag
