#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "tsdiag/backend.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

/// Checks the message of a search for device libraries at `path`; ends the process.
[[noreturn]] void end_with(const std::string& path, const std::string& expected) {
    ::setenv("TSDIAG_CUDA_PLUGIN", path.c_str(), 1);
    try {
        open_backend("cuda:0");
    } catch (const NotAvailable& error) {
        std::exit(std::string(error.what()).find(expected) != std::string::npos ? 0 : 1);
    }
    std::exit(2);
}

TEST(DevicesDeathTest, SayThatALibraryThatWasAskedForIsNotThere) {
    if (::dlopen("libtsdiag_cuda.so", RTLD_LAZY) != nullptr) GTEST_SKIP() << "it is there";
    // The search is cached: each needs its own process.
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    for (const std::string path : {"libtsdiag_cuda.so", "/nowhere/libtsdiag_cuda.so"})
        EXPECT_EXIT(end_with(path, path + ": no such file"), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tsdiag
