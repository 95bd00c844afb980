#pragma once
#include <filesystem>
#include <list>
#include <mutex>
#include <string>
#include <vector>

#include "tsdiag/output.hpp"

namespace tsdiag {

/// A lock that this process holds.
struct FolderLock::Held {
    std::filesystem::path folder, file;
    std::vector<std::filesystem::path> parents;  ///< created for it, outermost first
    int descriptor = -1;
    bool effective = true;
    Held() = default;
    ~Held();
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    void release();  ///< removes the file and closes it; the caller holds the mutex
};

namespace output {

/// Everything to be removed when the program is ended early.
struct Unfinished {
    std::recursive_mutex mutex;
    std::list<FolderLock::Held*> locks;
    std::list<std::filesystem::path> temporaries;
};
Unfinished& unfinished();

/// The name of a hidden entry beside `folder`, or inside: ".NAME.tsdiag-lock".
std::string hidden_name(const std::filesystem::path& folder, std::string_view end);
constexpr const char* hidden_inside = ".tsdiag-";

/// Removes a temporary folder, even while other threads write into it.
void remove_temporary(const std::filesystem::path& folder);

}  // namespace output
}  // namespace tsdiag
