#include "place.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tsdiag/error.hpp"
#include "unfinished.hpp"

namespace tsdiag::output {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t most_carried = 10000;

bool is_temporary_of(const std::string& name, const std::string& begin) {
    constexpr std::size_t random = 6;
    return name.size() == begin.size() + random && name.starts_with(begin) &&
           name.find_first_of(".-", begin.size()) == name.npos;
}

/// Creates a folder with the permissions of `like`, and its owner where permitted.
bool make_like(const fs::path& folder, const fs::path& like) {
    struct stat about {};
    if (::lstat(like.c_str(), &about) != 0 || !S_ISDIR(about.st_mode)) return false;
    if (::mkdir(folder.c_str(), 0700) != 0) return errno == EEXIST;
    if (::chown(folder.c_str(), about.st_uid, about.st_gid) != 0 && errno != EPERM) return false;
    return ::chmod(folder.c_str(), about.st_mode & 07777) == 0;
}

/// Creates the parent folders of `name` in `to` as they are in `from`.
bool make_way(const fs::path& from, const fs::path& to, const fs::path& name) {
    fs::path way;
    for (const fs::path& part : name.parent_path()) {
        way /= part;
        if (!is_there(to / way) && !make_like(to / way, from / way)) return false;
    }
    return true;
}

void remove_empty(const fs::path& folder) {
    std::error_code failed;
    std::vector<fs::path> folders;
    for (fs::recursive_directory_iterator at(folder, failed), end; !failed && at != end;
         at.increment(failed))
        if (fs::is_directory(at->symlink_status(failed))) folders.push_back(at->path());
    std::ranges::sort(folders, std::greater());  // innermost first
    folders.push_back(folder);
    for (const fs::path& one : folders) ::rmdir(one.c_str());
}

/// Removes the parent folders of `name` that have become empty.
void remove_way(const fs::path& folder, fs::path name) {
    while (name.has_parent_path() && ::rmdir((folder / name.parent_path()).c_str()) == 0)
        name = name.parent_path();
}

void remove_old(const fs::path& folder, const Manifest& old, const Manifest& now) {
    for (const std::string& name : old.names(folder)) {
        if (now.lists(name) || !old.owns(folder, name)) continue;
        bool kept = false;  // listed by a manifest below that stays
        for (std::size_t at = name.find('/'); at != std::string::npos; at = name.find('/', at + 1))
            kept = kept || now.lists(name.substr(0, at) + "/" + Manifest::file);
        if (kept) continue;
        ::unlink((folder / name).c_str());
        remove_way(folder, name);
    }
}

void finish(const fs::path& left, const fs::path& folder) {
    std::error_code failed;
    if (!fs::is_directory(fs::symlink_status(left, failed))) return;
    if (is_there(left / unfinished_mark))
        remove_temporary(left);
    else if (is_there(left / finished_mark) && fs::is_directory(folder, failed))
        move_files(left, folder);
    else
        dissolve(left, folder);
}

}  // namespace

bool is_own(const fs::path& path) {
    const std::string name = path.filename().string();
    return name == std::string(hidden_inside) + "lock" || name == unfinished_mark ||
           name == finished_mark || is_temporary_of(name, hidden_inside);
}

std::vector<std::string> files_below(const fs::path& folder) {
    std::vector<std::string> out;
    std::error_code failed;
    for (fs::recursive_directory_iterator at(folder, failed), end; at != end;
         at.increment(failed)) {
        if (failed) break;
        const bool is_folder = fs::is_directory(at->symlink_status(failed));
        if (is_own(at->path()))
            at.disable_recursion_pending();
        else if (!is_folder)
            out.push_back(at->path().lexically_relative(folder).string());
    }
    if (failed) throw Error(folder.string() + ": cannot be read (" + failed.message() + ").");
    std::ranges::sort(out);
    return out;
}

bool is_there(const fs::path& path) {
    std::error_code failed;
    return fs::exists(fs::symlink_status(path, failed));
}

bool is_same_file(const fs::path& a, const fs::path& b) {
    struct stat first {
    }, second{};
    return ::lstat(a.c_str(), &first) == 0 && ::lstat(b.c_str(), &second) == 0 &&
           first.st_dev == second.st_dev && first.st_ino == second.st_ino;
}

void sync(const fs::path& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) return;
    const bool failed = ::fsync(file) != 0 && errno != EINVAL && errno != EROFS;
    const int error = errno;
    ::close(file);
    if (failed)
        throw Error(path.string() + ": cannot be written (" +
                    std::generic_category().message(error) + ").");
}

bool carry(const fs::path& from, const fs::path& to, const std::set<std::string>& without) {
    std::error_code failed;
    std::size_t count = 0;
    for (fs::recursive_directory_iterator at(from, failed), end; at != end; at.increment(failed)) {
        if (failed || ++count > most_carried) return false;
        if (is_own(at->path())) {
            at.disable_recursion_pending();
            continue;
        }
        const fs::path name = at->path().lexically_relative(from);
        if (without.contains(name.string()) || is_there(to / name)) continue;
        if (!fs::is_directory(at->symlink_status(failed))) {
            if (!make_way(from, to, name) || ::link(at->path().c_str(), (to / name).c_str()) != 0)
                return false;
        } else if (fs::is_empty(at->path(), failed)) {
            if (!make_way(from, to, name) || !make_like(to / name, at->path())) return false;
        }
        if (failed) return false;
    }
    return !failed;
}

void dissolve(const fs::path& old, const fs::path& folder) {
    const Manifest manifest = Manifest::of(old);
    if (manifest.empty()) return remove_empty(old);  // unmarked, emptied, or not the program's
    for (const std::string& name : manifest.names(old)) {
        if (!manifest.owns(old, name)) continue;
        ::unlink((old / name).c_str());
        remove_way(old, name);  // an empty folder would be taken for the user's
    }
    std::error_code failed;
    if (fs::is_directory(folder, failed)) carry(old, folder, {Manifest::file});
    for (const std::string& name : files_below(old))
        if (is_same_file(old / name, folder / name)) ::unlink((old / name).c_str());
    if (files_below(old) == std::vector<std::string>{Manifest::file})
        ::unlink((old / Manifest::file).c_str());
    remove_empty(old);
}

void move_files(const fs::path& whole, const fs::path& folder) {
    if (!is_there(whole / Manifest::file)) return remove_temporary(whole);  // already moved
    const Manifest now = Manifest::of(whole), old = Manifest::of(folder);
    if (now.empty()) return;
    remove_old(folder, old, now);
    for (const std::string& name : files_below(whole)) {
        if (name == Manifest::file || is_same_file(whole / name, folder / name)) continue;
        const bool free = !is_there(folder / name) || old.owns(folder, name);
        if (!free) continue;  // the user has created a file there since
        if (!make_way(whole, folder, name) ||
            ::rename((whole / name).c_str(), (folder / name).c_str()) != 0)
            throw Error(
                fmt::format("{}: cannot be renamed into place ({}); the next command on this "
                            "folder tries again.",
                            (folder / name).string(), std::strerror(errno)));
    }
    sync(folder);
    fs::rename(whole / Manifest::file, folder / Manifest::file);
    sync(folder);
    remove_temporary(whole);
}

std::string folder_of(const std::string& hidden) {
    const std::size_t end = hidden.rfind(hidden_inside);
    if (!hidden.starts_with('.') || end == std::string::npos || end < 2) return {};
    const std::string name = hidden.substr(1, end - 1), begin = hidden_name(name, "");
    return is_temporary_of(hidden, begin) || hidden == begin + "lock" ? name : std::string();
}

void sweep(const fs::path& folder) {
    const std::pair<fs::path, std::string> places[] = {
        {folder.parent_path(), hidden_name(folder, "")}, {folder, hidden_inside}};
    for (const auto& [place, begin] : places) {
        std::error_code failed;
        std::vector<fs::path> found;
        for (fs::directory_iterator at(place, failed), end; !failed && at != end;
             at.increment(failed))
            if (is_temporary_of(at->path().filename().string(), begin)) found.push_back(at->path());
        for (const fs::path& one : found) finish(one, folder);
    }
    // Manifests whose writing was interrupted.
    const std::string begin = std::string(".") + Manifest::file + ".";
    std::error_code failed;
    std::vector<fs::path> halves;
    for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed))
        if (const std::string name = at->path().filename().string();
            name.starts_with(begin) && name.ends_with(".tmp"))
            halves.push_back(at->path());
    for (const fs::path& half : halves) ::unlink(half.c_str());
}

}  // namespace tsdiag::output
