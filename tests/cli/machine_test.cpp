#include <gmock/gmock.h>

#include <fstream>
#include <regex>

#include "program.hpp"
#include "support/process.hpp"
#include "tsdiag/json.hpp"
#include "tsdiag/tensor.hpp"

/// Machines that are busy, small or unusually configured, and malicious names.
namespace tsdiag::test {
namespace {

using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

constexpr const char* tiny_of_20_ids = "random:gpt2,layers=1,d=8,heads=2,vocab=20";

TEST(Threads, WaitPassivelyUnlessTheUserChose) {
    TemporaryDirectory folder;
    const auto info = [&](const std::string& environment) {
        return Running::shell(folder.path(), "env " + environment + " \"$TSDIAG\" info").wait().out;
    };
    EXPECT_THAT(info("-u OMP_WAIT_POLICY -u GOMP_SPINCOUNT"), HasSubstr("policy passive"));
    EXPECT_THAT(info("OMP_WAIT_POLICY=active"), HasSubstr("policy active"));
    EXPECT_THAT(info("-u OMP_WAIT_POLICY GOMP_SPINCOUNT=7"), HasSubstr("policy default"));
}

TEST(Threads, AreNeverMoreThanTheMachineStarts) {
    TemporaryDirectory folder;
    const Finished many =
        tsdiag(folder, {"probe", tiny_of_20_ids, "--tokens", "4", "--no-report", "--out", "out"},
               {"OMP_NUM_THREADS=100000"});
    EXPECT_EQ(many.code, 0) << many.err;
    EXPECT_THAT(many.err, HasSubstr("instead of 100000"));
    // As a user who may start no other process.
    const fs::path out = "/dev/shm" / folder.path().filename();
    const std::string limited =
        "export ASAN_OPTIONS=detect_leaks=0; ulimit -u 1; exec \"$TSDIAG\" probe " +
        std::string(tiny_of_20_ids) + " --tokens 4 --no-report --threads 2 --out " + out.string();
    const std::string as_nobody =
        getuid() == 0 ? "setpriv --reuid 65534 --clear-groups bash -c '" + limited + "'"
                      : "bash -c '" + limited + "'";
    const Finished one = Running::shell(folder.path(), as_nobody).wait();
    fs::remove_all(out);
    if (one.code == 126 || one.code == 127)
        GTEST_SKIP() << "no other user can be tried: " << one.err;
    EXPECT_EQ(one.code, 0) << one.err;
    EXPECT_THAT(one.err, HasSubstr("using 1 threads instead of 2"));
}

/// A file of safetensors whose tensors have these names.
void write_named(const fs::path& file, const std::vector<std::string>& names) {
    Json header = Json::Object{};
    Index at = 0;
    for (const std::string& name : names) {
        Json entry;
        entry.set("dtype", "F32").set("shape", Json::Array{Json(Index(1))});
        entry.set("data_offsets", Json::Array{Json(at), Json(at + 4)});
        header.set(name, entry);
        at += 4;
    }
    const std::string text = header.dump();
    std::string bytes(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) bytes[i] = char(text.size() >> (8 * i));
    write_file(file, bytes + text + std::string(std::size_t(at), '\0'));
}

TEST(HostileNames, ForgeNoLineAndHideNothing) {
    TemporaryDirectory folder;
    const std::vector<std::string> names = {"a\nvalid: yes", "\u202egnp.sthgiew", "\u009b31mred",
                                            "b\u2028c", std::string(65536, 'x')};
    write_named(folder / "m.safetensors", names);
    const Finished listed = tsdiag(folder, {"inspect", "m.safetensors"}, {"LC_ALL=C.UTF-8"});
    EXPECT_EQ(listed.code, 0) << listed.err;
    EXPECT_THAT(listed.out, HasSubstr("a\\nvalid: yes"));
    EXPECT_THAT(listed.out, HasSubstr("\\u202egnp.sthgiew"));
    EXPECT_THAT(listed.out, HasSubstr("bytes left out"));
    const Finished json = tsdiag(folder, {"inspect", "m.safetensors", "--json"});
    const Finished probed = tsdiag(folder, {"probe", "m.safetensors", "--out", "out"});
    EXPECT_EQ(probed.code, 1);
    EXPECT_EQ(std::count(probed.err.begin(), probed.err.end(), '\n'), 1) << probed.err;
    EXPECT_LT(probed.err.size(), 5000u);
    for (const std::string* text : {&listed.out, &json.out, &probed.err})
        for (const char* control : {"\u202e", "\u009b", "\u2028"})
            EXPECT_THAT(*text, Not(HasSubstr(control)));
    const Json inspected = Json::parse(json.out, "inspect");
    std::vector<std::string> read;
    for (const Json& tensor : inspected["tensors"].array()) read.push_back(tensor["name"].string());
    EXPECT_THAT(read, testing::UnorderedElementsAreArray(names));
}

/// Sizes that no machine holds are refused before anything is allocated, and at once: in few
/// seconds of a processor, which a sanitizer multiplies.
class EveryAbsurdSize : public testing::TestWithParam<std::string> {};
TEST_P(EveryAbsurdSize, IsRefusedAtOnce) {
    TemporaryDirectory folder;
    const Finished found =
        Running::shell(folder.path(), "ulimit -t 30; exec \"$TSDIAG\" " + GetParam()).wait();
    EXPECT_TRUE(found.code == 1 || found.code == 2) << found.code << ": " << found.err;
    EXPECT_EQ(std::count(found.err.begin(), found.err.end(), '\n'), 1) << found.err;
    EXPECT_THAT(found.err, Not(HasSubstr("std::")));
}
const std::string model = tiny_of_20_ids;
INSTANTIATE_TEST_SUITE_P(
    Sizes, EveryAbsurdSize,
    testing::Values("probe " + model + " --tokens 4 --samples 1000000000",
                    "probe " + model + " --tokens 4 --trials 1000000000000",
                    "probe " + model + " --tokens 1000000000000",
                    "probe random:gpt2,layers=1000000,d=8,heads=2,vocab=20 --tokens 4",
                    "train " + model + " --data copy --tokens 5 --batch 1000000000 -o run",
                    "train " + model + " --data copy --tokens 5 --eval-samples 1000000000 -o run",
                    "check tse --n 100000000000", "check devil.eq59 --d 10000000000",
                    "check devil.eq59 --trials 10000000000"));

TEST(Gnuplot, EndsWithTheProgramThatStartedIt) {
    TemporaryDirectory folder;
    write_file(folder / "gnuplot", "#!/bin/sh\necho $$ >\"$MARK\"\nexec sleep 600\n");
    fs::permissions(folder / "gnuplot", fs::perms::owner_all);
    Running running(
        folder.path(), {"probe", tiny_of_20_ids, "--tokens", "4", "--out", "out"},
        {"PATH=" + folder.path().string() + ":/usr/bin:/bin", "MARK=" + (folder / "pid")});
    ASSERT_TRUE(running.wait_until([&] { return read_file(folder / "pid").ends_with('\n'); }));
    const pid_t gnuplot = std::stoi(read_file(folder / "pid"));
    EXPECT_TRUE(is_alive(gnuplot));
    running.signal(SIGKILL);
    EXPECT_EQ(running.wait().code, 128 + SIGKILL);
    EXPECT_TRUE(dies(gnuplot));
}

}  // namespace
}  // namespace tsdiag::test
