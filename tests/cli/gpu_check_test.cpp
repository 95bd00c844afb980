#include <gmock/gmock.h>

#include <cctype>
#include <filesystem>
#include <sstream>

#include "program.hpp"
#include "support/places.hpp"

/// gpu/check: passes on a working device, here an emulated one, and on no other.
#ifdef TSDIAG_EMULATED_PLUGIN
namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;
using testing::ContainsRegex;
using testing::HasSubstr;

/// A folder of programs as gpu/check builds it.
class GpuCheck : public testing::Test {
  protected:
    GpuCheck() {
        fs::create_directories(tests_);
        link(program_file(), build_ / "tsdiag");
        link(emulated_plugin(), tests_ / "libtsdiag_emulated.so");
        link(compare_tables_file(), tests_ / "tsdiag_compare_tables");
    }
    static void link(const fs::path& to, const fs::path& name) {
        fs::remove(name);
        fs::create_symlink(to, name);
    }
    /// A script in place of a program.
    static void script(const fs::path& name, const std::string& text) {
        fs::remove(name);
        write_file(name, "#!/bin/bash\n" + text + "\n");
        fs::permissions(name, fs::perms::owner_all);
    }
    /// `probe` copies the tables of a run, and corrupts those of gpt2 on the device with a command
    /// in which $out is their folder.
    void spoil(const std::string& command) {
        const Finished run = tsdiag(folder_, {"probe", "random:gpt2,layers=1,d=8,heads=2,vocab=9",
                                              "--tokens", "4", "--no-report", "-o", "tables"});
        ASSERT_EQ(run.code, 0) << run.err;
        script(build_ / "tsdiag",
               "[[ $1 == probe ]] || exec " + program_file() +
                   " \"$@\"\nmodel=$2\nwhile [ $# -gt 1 ]; do\n  [ \"$1\" != -o ] || out=$2\n"
                   "  [ \"$1\" != --device ] || device=$2\n  shift\ndone\ncp -r " +
                   (folder_.path() / "tables").string() +
                   " \"$out\"\n[[ \"$device $model\" == 'cuda random:gpt2,'* ]] || exit 0\n" +
                   command);
    }
    Finished check(const std::string& words) {
        return Running::shell(folder_.path(),
                              gpu_check_file() + " --build " + build_.string() + " " + words)
            .wait();
    }
    void expect_failed(const Finished& found, const std::string& why) {
        EXPECT_EQ(found.code, 1) << found.out << found.err;
        EXPECT_THAT(found.out, HasSubstr("\nFAIL: "));
        EXPECT_THAT(found.out, HasSubstr(why));
        EXPECT_THAT(found.out, testing::Not(HasSubstr("\nPASS: ")));
        EXPECT_THAT(read_file(build_ / "check/table.md"), HasSubstr("FAIL "));
    }

    TemporaryDirectory folder_;
    fs::path build_ = folder_.path() / "build", tests_ = build_ / "tests";
};

TEST_F(GpuCheck, PassesOnASoundDevice) {
    const Finished found = check("--emulated device families repeat");
    EXPECT_EQ(found.code, 0) << found.out << found.err;
    EXPECT_THAT(found.out, HasSubstr("\nPASS: device families repeat"));
    const std::string table = read_file(build_ / "check/table.md");
    EXPECT_THAT(table, ContainsRegex("\\| gpt2 \\|.* same: [0-9]+ numbers"));
    EXPECT_THAT(table, ContainsRegex("\\| post-norm,attention=nystrom \\|.* same: "));
    EXPECT_THAT(table, HasSubstr("PASS families"));
}

TEST_F(GpuCheck, FailsOnAKernelThatIsWrong) {
    link(spoilt_plugin(), tests_ / "libtsdiag_emulated.so");
    const Finished found = check("--emulated --models ':(bert-base|llama-7b)$' families");
    expect_failed(found, "FAIL: families");
    const std::string table = read_file(build_ / "check/table.md");
    EXPECT_THAT(table, ContainsRegex("\\| bert-base \\|.* different: "));
    EXPECT_THAT(table, ContainsRegex("\\| llama-7b \\|.* same: "));  // has no GELU
}

struct Spoilt {
    const char *name, *command, *said;
};
void PrintTo(const Spoilt& spoilt, std::ostream* out) { *out << spoilt.name; }

class SpoiltTables : public GpuCheck, public testing::WithParamInterface<Spoilt> {};

TEST_P(SpoiltTables, Fail) {
    spoil(GetParam().command);
    const Finished found = check("--emulated --models ':(gpt2|opt-125m)$' families");
    if (GetParam().said == std::string()) {
        EXPECT_EQ(found.code, 0) << found.out;  // so that failures below have another cause
        return;
    }
    expect_failed(found, "2 families and attentions, 1 of them different");
    EXPECT_THAT(read_file(build_ / "check/families.log"), HasSubstr(GetParam().said));
}

INSTANTIATE_TEST_SUITE_P(
    All, SpoiltTables,
    testing::Values(
        Spoilt{"none", "true", ""},
        Spoilt{"nan", "sed -i '2s/,[0-9.e-]*,,,,1,,/,nan,,,,1,,/' \"$out/metrics.csv\"",
               "'nan' found"},
        Spoilt{"no_table", "rm \"$out/metrics.csv\"", "metrics.csv: cannot be read"},
        Spoilt{"no_curves", "rm \"$out/curves.csv\"", "curves.csv: cannot be read"},
        Spoilt{"no_folder", "rm -r \"$out\"", "metrics.csv: cannot be read"},
        Spoilt{"fewer_rows", "sed -i '$d' \"$out/metrics.csv\"", " rows, expected "},
        Spoilt{"no_rows", "sed -i '2,$d' \"$out/metrics.csv\"", "0 rows, expected "},
        Spoilt{"empty", ": >\"$out/metrics.csv\"", "the header is"},
        Spoilt{"another_place", "sed -i '2s/,0,/,1,/' \"$out/metrics.csv\"", "was expected"},
        Spoilt{"undefined", "sed -i '2s/,[0-9.e-]*,,,,1,,/,,,,,0,why,/' \"$out/metrics.csv\"",
               "undefined in one table alone"},
        Spoilt{"failing", "exit 1", "different: a run failed"},
        Spoilt{"crashing", "kill -SEGV $$", "different: a run failed"}),
    [](const auto& test) { return test.param.name; });

TEST_F(GpuCheck, FailsWhereNoModelIsOfTheName) {
    expect_failed(check("--emulated --models gpt-7 families"), "no model is called gpt-7");
}

TEST_F(GpuCheck, FailsWithoutADevice) {
    if (fs::exists("/dev/nvidiactl")) GTEST_SKIP() << "there is one";
    expect_failed(check("device"), "FAIL: device");
}

TEST_F(GpuCheck, FailsWhereTheDeviceIsNotTheOneAskedFor) {
    fs::remove(tests_ / "libtsdiag_emulated.so");
    expect_failed(check("--emulated device"), "FAIL: device");
}

TEST_F(GpuCheck, FailsWhereNoTestRan) {
    script(tests_ / "gpu_attention_tests", "echo '[  PASSED  ] 3 tests.'");
    for (const char* output :
         {"echo '[  PASSED  ] 0 tests.'", "true", "echo '[  PASSED  ] 3 tests.'; exit 1",
          "echo '[  SKIPPED ] All.'; echo '[  PASSED  ] 3 tests.'"}) {
        script(tests_ / "gpu_tests", output);
        expect_failed(check("--emulated kernels"), "FAIL: kernels");
    }
    script(tests_ / "gpu_tests", "echo '[  PASSED  ] 3 tests.'");
    EXPECT_EQ(check("--emulated kernels").code, 0);
}

TEST_F(GpuCheck, FailsWithoutASanitizerUnlessToldSo) {
    script(tests_ / "gpu_device_tests", "echo '[  PASSED  ] 3 tests.'");
    if (Running::shell(folder_.path(), "command -v compute-sanitizer").wait().code == 0)
        GTEST_SKIP() << "there is one";
    expect_failed(check("memcheck"), "FAIL: memcheck");
    const Finished refused = check("--no-sanitizer memcheck");
    EXPECT_EQ(refused.code, 2) << "no stage of that name is left: " << refused.out;
}

TEST_F(GpuCheck, StopsAStageThatTakesTooLong) {
    script(build_ / "tsdiag", "sleep 60");
    const Finished found =
        Running::shell(folder_.path(), "TSDIAG_CHECK_LIMIT=1 " + gpu_check_file() + " --build " +
                                           build_.string() + " --emulated device families")
            .wait();
    expect_failed(found, "FAIL: device families");
    EXPECT_THAT(found.out, HasSubstr("stopped after 1 s"));
}

TEST_F(GpuCheck, BeginsNoPartOfTheSanitizersTestsThatMayNotEndInTime) {
    fs::create_directory(folder_.path() / "bin");
    script(folder_.path() / "bin/compute-sanitizer", "sleep 4; echo '[  PASSED  ] 3 tests.'");
    const Finished found =
        Running::shell(folder_.path(), "TSDIAG_CHECK_LIMIT=8 PATH=" + (folder_ / "bin") +
                                           ":$PATH " + gpu_check_file() + " --build " +
                                           build_.string() + " memcheck")
            .wait();
    EXPECT_EQ(found.code, 0) << found.out;
    EXPECT_THAT(found.out, ContainsRegex("PASS memcheck .* 1 of 8 parts of the tests"));
}

TEST_F(GpuCheck, TakesFourMinutesFromAPack) {
    std::istringstream lines(read_file(gpu_check_file()));
    std::string line;
    while (std::getline(lines, line) && !line.starts_with("stages='")) {
    }
    int all = 0;
    for (std::string name, here, packed; std::getline(lines, line);) {
        std::istringstream(line) >> name >> here >> packed;
        if (std::isdigit(packed[0])) all += std::stoi(packed);
        if (line.ends_with("'")) break;
    }
    EXPECT_EQ(all, 240);
}

/// gpu/pack, for a machine that has neither this checkout nor its libraries.
class GpuPack : public GpuCheck {
  protected:
    GpuPack() {
        const fs::path built = fs::path(compare_tables_file()).parent_path();
        for (const char* name : {"libtsdiag_sampler.so", "gpu_tests", "gpu_attention_tests"})
            link(built / name, tests_ / name);
        fs::create_directory(folder_.path() / "bin");
    }
    Finished pack(const std::string& words) {
        const fs::path command = fs::path(gpu_check_file()).replace_filename("pack");
        return Running::shell(folder_.path(), "TSDIAG_PACK_LEVEL=0 PATH=" + (folder_ / "bin") +
                                                  ":$PATH " + command.string() + " " + words +
                                                  " build pack.tar.xz")
            .wait();
    }
    void expect_refused(const std::string& words, const std::string& why) {
        const Finished found = pack(words);
        EXPECT_EQ(found.code, 1) << found.out;
        EXPECT_TRUE(found.err.starts_with("gpu/pack: ")) << found.err;
        EXPECT_THAT(found.err, HasSubstr(why));
        EXPECT_FALSE(fs::exists(folder_.path() / "pack.tar.xz"));
    }
    /// Of what has been unpacked, without the environment of the tests.
    Finished check_there(const std::string& words) {
        return Running::shell(folder_.path(),
                              "env -i PATH=/usr/bin:/bin 'GTEST_FILTER=*Rotation*:Targets.*' "
                              "there/tsdiag-device/gpu/check --emulated --models 'gpt2$' " +
                                  words)
            .wait();
    }
};

TEST_F(GpuPack, RunsWhereItIsUnpacked) {
#ifdef TSDIAG_ADDRESS_SANITIZER
    GTEST_SKIP() << "programs with sanitizers are larger than an archive may be";
#endif
    const Finished packed = pack("--emulated");
    if (packed.err.find("more than 2.36") != std::string::npos)
        GTEST_SKIP() << packed.err;  // of this system
    ASSERT_EQ(packed.code, 0) << packed.out << packed.err;
    ASSERT_EQ(
        Running::shell(folder_.path(), "mkdir there && tar -C there -xf pack.tar.xz").wait().code,
        0);
    const bool sums_up =
        Running::shell(folder_.path(), "PATH=/usr/bin:/bin command -v python3").wait().code == 0;
    const Finished found = check_there(sums_up ? "" : "unpacked device kernels families repeat");
    EXPECT_EQ(found.code, 0) << found.out << found.err;
    EXPECT_THAT(found.out, HasSubstr("\nPASS: unpacked device kernels families repeat"));
    const fs::path there = folder_.path() / "there/tsdiag-device";
    const std::string table = read_file(there / "build/device/check/table.md");
    EXPECT_THAT(table, ContainsRegex("\\| gpt2 \\|.* same: [0-9]+ numbers"));
    if (sums_up) {
        EXPECT_THAT(table, HasSubstr("| where the host is: training, "));
        // A function, and two that called it, as the symbols of the program tell.
        EXPECT_THAT(table, ContainsRegex("\n\\| gpu::[a-z_:]+ \\| [0-9.]+ % \\| [0-9.]+ % \\| "
                                         "[a-zA-Z_:{}#0-9()]+ < "));
        EXPECT_THAT(table, HasSubstr("| where the host is: all, "));
    }
    write_file(there / "gpu/bench", "");
    EXPECT_THAT(check_there("").out, HasSubstr("./gpu/bench: FAILED"));
    for (const auto& library : fs::directory_iterator(there / "lib"))
        if (library.path().filename().string().starts_with("libfmt")) fs::remove(library);
    const Finished lacking = check_there("");
    EXPECT_EQ(lacking.code, 1);
    EXPECT_THAT(lacking.out, ContainsRegex("lib/libfmt.so.*: FAILED open"));
    EXPECT_THAT(lacking.out, HasSubstr("\nFAIL: unpacked"));
    EXPECT_THAT(lacking.out, testing::Not(HasSubstr(" device  ")));  // nothing else was begun
}

TEST_F(GpuPack, RefusesWhatWouldNotRunThere) {
    script(folder_.path() / "bin/xz", "cat >/dev/null; head -c 40000001 /dev/zero");
    script(folder_.path() / "bin/readelf", "true");
    expect_refused("--emulated", "the archive has 40000001 bytes, more than 40000000");
    script(folder_.path() / "bin/readelf", "echo GLIBC_2.9 GLIBC_2.38 GLIBC_2.4");
    expect_refused("--emulated", "needs GLIBC_2.38, more than 2.36");
    fs::remove(folder_.path() / "bin/readelf");
    link(other_plugin(), tests_ / "libtsdiag_emulated.so");
    expect_refused("--emulated", "libtsdiag_emulated.so were not built together");
    fs::remove(tests_ / "gpu_tests");
    expect_refused("--emulated", "has no tests/gpu_tests; build it with: cmake --build ");
    expect_refused("",
                   "has no libtsdiag_cuda.so tests/gpu_device_tests "
                   "tests/tsdiag_device_benchmarks; build it with: ");
    for (const char* name : {"gpu_device_tests", "tsdiag_device_benchmarks"})
        link(compare_tables_file(), tests_ / name);
    link(emulated_plugin(), build_ / "libtsdiag_cuda.so");
    expect_refused("", "libtsdiag_cuda.so has no code for a device");
}

}  // namespace
}  // namespace tsdiag::test
#endif
