#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace tsdiag::test {

/// A temporary folder, removed by its destructor.
struct Folder {
    std::filesystem::path path = std::filesystem::temp_directory_path() / name_of_this_test();
    Folder() { std::filesystem::create_directories(path); }
    ~Folder() { std::filesystem::remove_all(path); }

  private:
    static std::string name_of_this_test() {
        std::string test = testing::UnitTest::GetInstance()->current_test_info()->name();
        std::ranges::replace(test, '/', '_');  // of a parameter
        return "tsdiag-reports-" + std::to_string(::getpid()) + "-" + test;
    }
};

inline std::string slurp(const std::filesystem::path& file) {
    std::ostringstream text;
    text << std::ifstream(file, std::ios::binary).rdbuf();
    return text.str();
}

/// The first of `names` on PATH; empty where there is none.
inline std::string program(std::initializer_list<const char*> names) {
    const char* path = std::getenv("PATH");
    for (const char* name : names) {
        std::istringstream folders(path ? path : "");
        for (std::string folder; std::getline(folders, folder, ':');)
            if (::access((folder + "/" + name).c_str(), X_OK) == 0) return folder + "/" + name;
    }
    return {};
}

inline std::size_t count_of(std::string_view text, std::string_view part) {
    std::size_t n = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != std::string_view::npos;
         at += part.size())
        ++n;
    return n;
}

}  // namespace tsdiag::test
