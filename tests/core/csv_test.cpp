#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cfloat>
#include <charconv>
#include <cmath>
#include <csignal>
#include <fstream>
#include <limits>
#include <sstream>

#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/table.hpp"

namespace tsdiag {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

std::string message_of(const auto& action) {
    try {
        action();
    } catch (const Error& e) {
        return e.what();
    }
    return "no error";
}

std::string slurp(const fs::path& file) {
    std::ostringstream text;
    text << std::ifstream(file, std::ios::binary).rdbuf();
    return text.str();
}

/// A temporary folder, removed with the test.
struct Folder {
    fs::path path =
        fs::temp_directory_path() / ("tsdiag-csv-" + std::to_string(::getpid()) + "-" +
                                     testing::UnitTest::GetInstance()->current_test_info()->name());
    Folder() { fs::create_directories(path); }
    ~Folder() { fs::remove_all(path); }
};

TEST(ShortestTest, ReadsBackAsTheSameDouble) {
    for (double v : {0.0, -0.0, 0.1, 1.0 / 3, 1e-12, 123456.0, DBL_MIN, DBL_MAX, DBL_TRUE_MIN,
                     1 - DBL_EPSILON / 2, -2.5e-300}) {
        const std::string s = shortest(v);
        double back = 1;
        std::from_chars(s.data(), s.data() + s.size(), back);
        EXPECT_EQ(std::signbit(back), std::signbit(v)) << s;
        EXPECT_EQ(back, v) << s;
    }
    EXPECT_EQ(shortest(0.1), "0.1");
    EXPECT_EQ(shortest(64), "64");
    EXPECT_THROW(shortest(std::nan("")), NonFiniteError);
}

TEST(WriteAtomicallyTest, ReplacesTheWholeFileAndLeavesNothingElse) {
    Folder folder;
    const fs::path file = folder.path / "metrics.csv";
    write_atomically(file, "old and long");
    write_atomically(file, std::string(3 << 20, 'x'));
    write_atomically(file, "new");
    EXPECT_EQ(slurp(file), "new");
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path), {}), 1);
}

TEST(WriteAtomicallyTest, NamesTheFileAndTheCauseWhenItCannotWrite) {
    Folder folder;
    EXPECT_THAT(message_of([&] { write_atomically(folder.path / "no" / "run.json", "x"); }),
                HasSubstr("run.json: cannot be written: No such file or directory"));
    fs::create_directory(folder.path / "taken");
    EXPECT_THAT(message_of([&] { write_atomically(folder.path / "taken", "x"); }),
                HasSubstr("taken: cannot be written"));
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path), {}), 1);
}

TEST(WriteAtomicallyTest, AFileThatOutgrowsItsLimitLeavesTheOldOne) {
    Folder folder;
    const fs::path file = folder.path / "metrics.csv";
    write_atomically(file, "old");
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit small{1024, before.rlim_max};
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small);

    const std::string message =
        message_of([&] { write_atomically(file, std::string(1 << 20, 'x')); });

    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, handler);
    EXPECT_THAT(message, HasSubstr("cannot be written: File too large"));
    EXPECT_EQ(slurp(file), "old");
    EXPECT_EQ(std::distance(fs::directory_iterator(folder.path), {}), 1);
}

}  // namespace
}  // namespace tsdiag
