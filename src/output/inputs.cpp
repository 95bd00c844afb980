#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "place.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path>& inputs() {
    static std::vector<fs::path> instance;
    return instance;
}

/// Does one of the parents of `path`, links resolved, have the device and inode of `folder`?
bool is_below(const fs::path& path, const fs::path& folder) {
    std::error_code failed;
    fs::path at = fs::weakly_canonical(fs::absolute(path), failed);
    while (at.has_relative_path()) {
        at = at.parent_path();
        if (fs::equivalent(at, folder, failed)) return true;
    }
    return false;
}

}  // namespace

void set_inputs(std::vector<fs::path> read) { inputs() = std::move(read); }

void refuse_inputs(const fs::path& place) {
    for (const fs::path& input : inputs()) {
        std::error_code failed;
        // A result of its own inside a model's folder takes nothing from it.
        const auto is_result = [&](const fs::path& it) {
            return fs::exists(it / "run.json", failed);
        };
        const bool harmless = !is_result(input) && (!output::is_there(place) || is_result(place));
        const char* relation = fs::equivalent(place, input, failed)  ? "is"
                               : !harmless && is_below(place, input) ? "is inside"
                               : is_below(input, place)              ? "contains"
                                                                     : nullptr;
        if (relation)
            throw UsageError(
                fmt::format("{}: {} {}, which this command reads; choose another --out.",
                            place.string(), relation, input.string()));
    }
}

fs::path place_of_folder(const fs::path& folder) {
    std::error_code failed;
    fs::path path = fs::weakly_canonical(fs::absolute(folder), failed);
    if (failed) path = fs::absolute(folder).lexically_normal();
    if (!path.has_filename()) path = path.parent_path();
    if (!path.has_relative_path())
        throw UsageError(fmt::format(
            "{}: is the root of the file system, expected a folder below it; choose another --out.",
            path.string()));
    fs::path there = path;  // the last part of it that exists
    while (there.has_relative_path() && !output::is_there(there)) there = there.parent_path();
    if (!fs::is_directory(there, failed))
        throw UsageError(fmt::format(
            "{}: is {}, expected a directory to write into.", there.string(),
            fs::is_symlink(fs::symlink_status(there, failed)) ? "a link that leads nowhere"
                                                              : "a file"));
    refuse_inputs(path);
    if (::access(there.c_str(), W_OK) != 0)
        throw Error(fmt::format("{}: cannot be written ({}); choose another --out.", path.string(),
                                std::strerror(errno)));
    return path;
}

}  // namespace tsdiag
