#include <fcntl.h>
#include <fmt/format.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "place.hpp"
#include "tsdiag/error.hpp"
#include "unfinished.hpp"

namespace tsdiag {
namespace {

namespace fs = std::filesystem;
using namespace output;

void mark(const fs::path& folder) {
    const int file =
        ::open((folder / unfinished_mark).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0)
        throw Error(fmt::format("{}: cannot be written ({}); choose another --out.",
                                folder.parent_path().string(), std::strerror(errno)));
    ::close(file);
}

bool is_folder(const fs::path& path) {
    std::error_code failed;
    return fs::is_directory(fs::symlink_status(path, failed));
}

std::vector<fs::path> sorted_entries(const fs::path& folder) {
    std::vector<fs::path> out;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
        out.push_back(entry.path());
    std::ranges::sort(out);
    return out;
}

/// The first file below `folder` that is in neither its manifest nor one below it; empty: none.
fs::path first_foreign(const fs::path& folder, const Manifest& above = {},
                       const fs::path& way = {}) {
    const Manifest here = Manifest::of(folder);
    for (const fs::path& entry : sorted_entries(folder)) {
        const fs::path name = entry.filename();
        if (is_own(entry) || (name == Manifest::file && !here.empty())) continue;
        if (is_folder(entry)) {
            const fs::path found = here.empty() ? first_foreign(entry, above, way / name)
                                                : first_foreign(entry, here, name);
            if (!found.empty()) return found;
        } else if (!here.lists(name.string()) && !above.lists((way / name).string())) {
            return entry;
        }
    }
    return {};
}

/// The existing names that match the pattern: a file, or all files below a matching folder.  A link
/// or a file in place of a parent folder is returned instead.
std::vector<std::string> names_of(const fs::path& folder, const std::string& pattern) {
    std::vector<std::string> out;
    const fs::path way = fs::path(pattern).parent_path();
    if (!way.empty() && !is_folder(folder / way)) {
        if (is_there(folder / way)) out.push_back(way.string());
        return out;
    }
    for (const fs::path& entry : sorted_entries(folder / way)) {
        const fs::path name = way / entry.filename();
        if (::fnmatch(pattern.c_str(), name.c_str(), 0) != 0) continue;
        if (!is_folder(entry))
            out.push_back(name.string());
        else
            for (const std::string& below : files_below(entry))
                out.push_back((name / below).string());
    }
    return out;
}

/// Is the working directory in `folder`?  It would stay in the old folder after an exchange.
bool is_worked_in(const fs::path& folder) {
    std::error_code failed;
    for (fs::path at = fs::current_path(failed); !failed; at = at.parent_path()) {
        if (is_same_file(at, folder)) return true;
        if (at == at.parent_path()) return false;
    }
    return false;
}

/// Has it extended attributes, such as ACLs, which a new folder would lack?
bool has_attributes(const fs::path& folder) {
    std::string names(4096, '\0');
    const ssize_t size = ::listxattr(folder.c_str(), names.data(), names.size());
    if (size < 0) return errno == ERANGE;
    for (std::size_t at = 0; at < std::size_t(size); at += std::strlen(&names[at]) + 1)
        if (!std::string_view(&names[at]).starts_with("security.")) return true;
    return false;
}

bool is_mount_point(const fs::path& folder) {
    struct statx inside {
    }, above{};
    constexpr unsigned wanted = STATX_MNT_ID;
    const int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT;
    if (::statx(AT_FDCWD, folder.c_str(), flags, wanted, &inside) != 0 ||
        ::statx(AT_FDCWD, folder.parent_path().c_str(), flags, wanted, &above) != 0)
        return true;
    const bool same_device =
        inside.stx_dev_major == above.stx_dev_major && inside.stx_dev_minor == above.stx_dev_minor;
    const bool known = (inside.stx_mask & above.stx_mask & STATX_MNT_ID) != 0;
    return !same_device || (known && inside.stx_mnt_id != above.stx_mnt_id);
}

/// Sets permissions and owner as those of `like`; false where that is not permitted.
bool look_alike(const fs::path& folder, const fs::path& like) {
    struct stat wanted {
    }, found{};
    if (::stat(like.c_str(), &wanted) != 0 || ::stat(folder.c_str(), &found) != 0) return false;
    const bool owned = wanted.st_uid == found.st_uid && wanted.st_gid == found.st_gid;
    if (!owned && ::chown(folder.c_str(), wanted.st_uid, wanted.st_gid) != 0) return false;
    return ::chmod(folder.c_str(), wanted.st_mode & 07777) == 0;
}

}  // namespace

OutputFolder::OutputFolder(const fs::path& folder, OutputPlan plan)
    : lock_(folder), plan_(std::move(plan)) {
    const fs::path& path = lock_.folder();
    std::error_code failed;
    const bool exists = fs::exists(path, failed);
    if (lock_.effective()) sweep(path);
    if (exists && !plan_.force) refuse_other_files();
    if (exists) refuse_what_is_in_the_way(Manifest::of(path));
    make_temporary();
}

bool OutputFolder::matches(const std::string& name) const {
    return std::ranges::any_of(plan_.writes, [&](const std::string& pattern) {
        return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
    });
}

void OutputFolder::refuse_other_files() const {
    const fs::path& path = folder();
    if (plan_.replace && !Manifest::of(path).empty()) return;
    std::error_code failed;
    const fs::path foreign = first_foreign(path);
    if (foreign.empty() && (plan_.replace || fs::is_empty(path, failed))) return;
    throw UsageError(fmt::format(
        "{}: contains {}; choose another --out, or pass --force to write there.", path.string(),
        foreign.empty() ? "an earlier result"
                        : fmt::format("{}, which tsdiag did not write",
                                      foreign.lexically_relative(path).string())));
}

void OutputFolder::refuse_what_is_in_the_way(const Manifest& old) const {
    const std::vector<std::string> all = old.names(folder());
    std::vector<std::string> patterns = plan_.writes;
    patterns.emplace_back(Manifest::file);
    for (const std::string& pattern : patterns)
        for (const std::string& name : names_of(folder(), pattern)) {
            const bool known = std::ranges::find(all, name) != all.end();
            const bool shared = pattern.ends_with("/*") && name.size() >= pattern.size();
            const bool is_manifest = name == Manifest::file && !old.empty();
            if ((shared && !known) || is_manifest || old.owns(folder(), name)) continue;
            throw UsageError(fmt::format(
                "{}: {} and would be overwritten; move it away, or choose another --out.",
                (folder() / name).string(),
                known ? "was changed after tsdiag wrote it" : "was not written by tsdiag"));
        }
}

void OutputFolder::make_temporary() {
    const fs::path& path = folder();
    const bool inside = is_there(path) && (is_mount_point(path) || plan_.in_place ||
                                           ::access(path.parent_path().c_str(), W_OK) != 0);
    std::string pattern = (inside ? path / (std::string(hidden_inside) + "XXXXXX")
                                  : path.parent_path() / hidden_name(path, "XXXXXX"))
                              .string();
    const std::lock_guard guard(unfinished().mutex);
    if (!::mkdtemp(pattern.data()))
        throw Error(fmt::format("{}: cannot be written ({}); choose another --out.", path.string(),
                                std::strerror(errno)));
    const mode_t mask = ::umask(0);
    ::umask(mask);
    ::chmod(pattern.c_str(), 0777 & ~mask);  // mkdtemp creates it with mode 0700
    try {
        mark(pattern);
    } catch (const Error&) {
        remove_temporary(pattern);
        throw;
    }
    temporary_ = pattern;
    unfinished().temporaries.push_back(temporary_);
}

OutputFolder::~OutputFolder() {
    const std::lock_guard guard(unfinished().mutex);
    if (temporary_.empty()) return;
    remove_temporary(temporary_);
    unfinished().temporaries.remove(temporary_);
}

std::string OutputFolder::seal() {
    sealed_ = {};
    replaced_ = {Manifest::file};
    for (const std::string& name : files_below(temporary_)) {
        if (name == Manifest::file) continue;
        check(matches(name), "what is written into a folder is in its plan");
        sync(temporary_ / name);
        const std::optional<std::string> digest = sha256_of(temporary_ / name);
        if (!digest)
            throw Error(fmt::format("{}: cannot be read back.", (temporary_ / name).string()));
        Manifest::Entry entry{*digest};
        if (std::ranges::find(plan_.grows, name) != plan_.grows.end())
            entry.grows = fs::file_size(temporary_ / name);
        sealed_.set(name, entry);
    }
    const Manifest old = Manifest::of(folder());
    for (const std::string& name : old.names(folder()))
        if (matches(name) && old.owns(folder(), name)) replaced_.insert(name);
    for (const auto& [name, entry] : old.entries())
        if (!sealed_.lists(name) && !replaced_.contains(name) && is_there(folder() / name))
            sealed_.set(name, entry);  // kept: not in the plan, or changed by the user
    sealed_.write(temporary_);
    return sha256(sealed_.text());
}

/// The first name of the result whose target exists and is not the program's.
std::string OutputFolder::in_the_way() const {
    for (const std::string& name : files_below(temporary_)) {
        const bool replaceable =
            replaced_.contains(name) && (name != Manifest::file || !Manifest::of(folder()).empty());
        if (is_there(folder() / name) && !replaceable) return name;
        for (fs::path way = fs::path(name).parent_path(); !way.empty(); way = way.parent_path())
            if (is_there(folder() / way) && !is_folder(folder() / way)) return way.string();
    }
    return {};
}

void OutputFolder::commit() {
    if (sealed_.empty()) seal();
    const std::lock_guard guard(unfinished().mutex);
    const fs::path& path = folder();
    if (const std::string name = in_the_way(); !name.empty()) step_aside(name);
    try {
        if (!is_there(path)) {
            fs::remove(temporary_ / unfinished_mark);
            fs::rename(temporary_, path);
            release();
            sync(path.parent_path());
        } else if (!can_exchange() || !exchange()) {
            fs::rename(temporary_ / unfinished_mark, temporary_ / finished_mark);
            sync(temporary_);
            move_files(release(), path);  // on failure, the next command on the folder continues
        }
    } catch (const fs::filesystem_error& error) {
        throw Error(fmt::format("{}: cannot be renamed into place ({}).", path.string(),
                                error.code().message()));
    }
}

/// Stops tracking the temporary folder, which must no longer be removed.
fs::path OutputFolder::release() {
    unfinished().temporaries.remove(temporary_);
    return std::exchange(temporary_, {});
}

bool OutputFolder::can_exchange() const {
    const fs::path& path = folder();
    return (!Manifest::of(path).empty() || fs::is_empty(path)) && !plan_.in_place &&
           temporary_.parent_path() == path.parent_path() && !is_worked_in(path) &&
           !has_attributes(path);
}

/// Exchanges the folders atomically; false where that failed.
bool OutputFolder::exchange() {
    const fs::path& path = folder();
    if (!carry(path, temporary_, replaced_) || !look_alike(temporary_, path)) return false;
    for (const std::string& name : files_below(temporary_)) {
        const fs::path way = (temporary_ / name).parent_path();
        if (way != temporary_) sync(way);
    }
    fs::remove(temporary_ / unfinished_mark);
    sync(temporary_);
    if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) != 0) {
        mark(temporary_);
        return false;
    }
    const fs::path old = release();
    sync(path.parent_path());
    dissolve(old, path);
    return true;
}

/// Renames the result to a free name such as "DIR-1", and throws.
void OutputFolder::step_aside(const std::string& name) {
    const bool inside = temporary_.parent_path() == folder();
    const std::string base = inside ? (folder() / "result").string() : folder().string();
    for (int k = 1;; ++k) {
        const fs::path aside = fmt::format("{}-{}", base, k);
        if (is_there(aside)) continue;
        fs::remove(temporary_ / unfinished_mark);
        fs::rename(temporary_, aside);
        release();
        throw Error(
            fmt::format("{}: was created by another program during this run, so it was kept; the "
                        "result is in {}.",
                        (folder() / name).string(), aside.string()));
    }
}

void finish_output(const fs::path& parent) {
    std::error_code failed;
    if (!fs::is_directory(parent, failed)) return;
    std::set<std::string> names;
    for (const fs::path& entry : sorted_entries(parent))
        if (std::string name = folder_of(entry.filename().string()); !name.empty())
            names.insert(std::move(name));
    for (const std::string& name : names) {
        const bool there = is_there(parent / name);
        if (there && !fs::is_directory(parent / name, failed)) continue;
        if (there && ::access((parent / name).c_str(), W_OK) != 0) continue;
        const FolderLock lock(parent / name);
        if (lock.effective()) sweep(lock.folder());
    }
}

}  // namespace tsdiag
