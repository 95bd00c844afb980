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
    std::vector<std::filesystem::path> parents;  ///< made for it, outermost first
    int descriptor = -1;
    bool effective = true;
    Held() = default;
    ~Held();
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    void release();  ///< of the disk; the caller holds the mutex
};

namespace output {

/// Everything that must go where the program is ended now.
struct Unfinished {
    std::recursive_mutex mutex;
    std::list<FolderLock::Held*> locks;
    std::list<std::filesystem::path> temporaries;
};
Unfinished& unfinished();

/// The name of something hidden beside `folder`, or inside: ".NAME.tsdiag-lock".
std::string hidden_name(const std::filesystem::path& folder, std::string_view end);
constexpr const char* hidden_inside = ".tsdiag-";

/// Removes a temporary folder, though others may still be writing into it.
void remove_temporary(const std::filesystem::path& folder);

}  // namespace output
}  // namespace tsdiag
