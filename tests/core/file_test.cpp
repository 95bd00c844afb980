#include "tsdiag/file.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "support/files.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

using testing::HasSubstr;

std::string file_refusal(const std::string& file, std::uint64_t most = longest_file) {
    try {
        file_text(file, "a log", most);
    } catch (const FormatError& error) {
        return error.what();
    }
    return "read";
}

TEST(FileText, IsTheBytesOfTheFile) {
    const test::TemporaryDirectory folder;
    for (const std::string& text : {std::string(), std::string("a"), std::string("\0\r\n\xff", 4),
                                    std::string(70'000, 'x')}) {
        test::write_file(folder / "f", text);
        EXPECT_EQ(file_text(folder / "f", "a text"), text);
    }
}

TEST(FileText, ReadsFilesWhoseSizeIsNotKnownBeforehand) {
    EXPECT_THAT(file_text("/proc/self/status", "the state of a process"), HasSubstr("Threads:"));
}

TEST(FileText, LeavesNoFileOpenThatItWrote) {
    // Without a standard input the next open file gets descriptor 0.
    const test::TemporaryDirectory folder;
    const int input = ::dup(0);
    ASSERT_GT(input, 0);
    ::close(0);
    write_atomically(folder / "f", "text");
    const bool closed = ::fcntl(0, F_GETFD) == -1;
    ::dup2(input, 0);
    ::close(input);
    EXPECT_TRUE(closed);
    EXPECT_EQ(file_text(folder / "f", "a text"), "text");
}

TEST(FileText, RefusesWhatMayHaveNoEnd) {
    const test::TemporaryDirectory folder;
    const std::string pipe = folder / "pipe", socket_file = folder / "socket";
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
    std::strncpy(address.sun_path, socket_file.c_str(), sizeof address.sun_path - 1);
    ASSERT_EQ(bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(file_refusal(pipe), pipe + ": is not a regular file, expected a log.");
    EXPECT_THAT(file_refusal("/dev/zero"), HasSubstr("is not a regular file"));
    EXPECT_THAT(file_refusal(folder.path().string()), HasSubstr("is not a regular file"));
    EXPECT_THAT(file_refusal(socket_file), HasSubstr("cannot be read (No such device"));
    EXPECT_THAT(file_refusal(folder / "absent"), HasSubstr("No such file"));
    ::close(listener);
}

TEST(FileText, RefusesWhatIsLongerThanAllowed) {
    const test::TemporaryDirectory folder;
    test::write_file(folder / "f", "12345");
    EXPECT_EQ(file_text(folder / "f", "a log", 5), "12345");
    EXPECT_THAT(file_refusal(folder / "f", 4), HasSubstr("has more than 4 bytes, expected a log"));
    EXPECT_THAT(file_refusal("/proc/self/status", 4), HasSubstr("has more than 4 bytes"));
}

}  // namespace
}  // namespace tsdiag
