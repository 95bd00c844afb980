#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "tsdiag/training_folder.hpp"

namespace tsdiag {

namespace fs = std::filesystem;

Written written(const fs::path& checkpoint) {
    std::vector<fs::path> files;
    std::error_code failed;
    if (fs::is_directory(checkpoint, failed))
        for (const fs::directory_entry& entry : fs::directory_iterator(checkpoint, failed))
            files.push_back(entry.path());
    std::ranges::sort(files);
    files.insert(files.begin(), checkpoint);
    Written out;
    fs::file_time_type last = fs::file_time_type::min();
    for (const fs::path& file : files) {
        std::error_code gone;
        const auto time = fs::last_write_time(file, gone);
        const auto size = fs::is_regular_file(file, failed) ? fs::file_size(file, failed) : 0;
        if (!gone) last = std::max(last, time);
        out.state +=
            fmt::format("{} {} {}\n", file.string(), size, time.time_since_epoch().count());
    }
    if (last > fs::file_time_type::min()) {
        const std::chrono::duration<double> age = fs::file_time_type::clock::now() - last;
        out.age = std::max(age.count(), 0.0);
    }
    return out;
}

}  // namespace tsdiag
