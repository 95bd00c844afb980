#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>

#include "program.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/json.hpp"

/// Endless files, and files that change while they are read.
namespace tsdiag::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr const char* tiny_of_50_ids = "random:gpt2,layers=1,d=8,heads=2,vocab=50";

const std::string no_tensors = std::string("\2\0\0\0\0\0\0\0{}", 10);

struct Endless {
    const char* what;
    std::vector<std::string> words;  ///< FILE: the endless one
    std::string path = {};           ///< the file's path, if the command does not name it
};
class EveryEndlessFile : public testing::TestWithParam<Endless> {};

/// A pipe without a writer and an endless device: the program must neither wait for nor read them.
TEST_P(EveryEndlessFile, IsRefusedInOneSentence) {
    for (const bool pipe : {true, false}) {
        const TemporaryDirectory folder;
        const std::string name = GetParam().path.empty() ? "endless" : GetParam().path;
        const fs::path file = folder.path() / name;
        fs::create_directories(file.parent_path());
        if (name == "m/config.json") write_file(folder / "m/model.safetensors", no_tensors);
        if (pipe)
            ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
        else
            fs::create_symlink("/dev/zero", file);
        std::vector<std::string> words = GetParam().words;
        for (std::string& word : words)
            if (const std::size_t at = word.find("FILE"); at != std::string::npos)
                word.replace(at, 4, name);
        Running running(folder.path(), words);
        const bool ended = running.ends();
        if (!ended) running.signal(SIGKILL);
        const Finished done = running.wait();
        ASSERT_TRUE(ended) << (pipe ? "waits for a writer" : "reads for ever");
        EXPECT_TRUE(done.code == 1 || done.code == 2) << done.code;
        EXPECT_TRUE(done.err.starts_with("tsdiag: ")) << done.err;
        EXPECT_EQ(std::count(done.err.begin(), done.err.end(), '\n'), 1) << done.err;
    }
}

const Endless endless[] = {
    {"inspect", {"inspect", "FILE"}},
    {"probe", {"probe", "FILE"}},
    {"config", {"probe", tiny_of_50_ids, "--config", "FILE"}},
    {"config_beside", {"probe", "m/model.safetensors"}, "m/config.json"},
    {"ids_text", {"probe", tiny_of_50_ids, "--input", "ids:FILE"}},
    {"ids_npy", {"probe", tiny_of_50_ids, "--input", "ids:FILE"}, "endless.npy"},
    {"hidden", {"probe", tiny_of_50_ids, "--input", "hidden:FILE"}},
    {"mask", {"probe", tiny_of_50_ids, "--tokens", "4", "--mask", "FILE"}},
    {"text", {"train", tiny_of_50_ids, "--data", "text:FILE"}},
    {"characters", {"train", tiny_of_50_ids, "--data", "chars:FILE"}},
    {"images", {"train", "random:vit-tiny", "--data", "images:d"}, "d/data_batch_1.bin"},
    {"wikitext", {"train", tiny_of_50_ids, "--data", "d"}, "d/wiki.train.raw"},
    {"listops", {"train", tiny_of_50_ids, "--data", "d"}, "d/basic_train.tsv"},
    {"papers", {"train", tiny_of_50_ids, "--data", "aan:d"}, "d/new_aan_pairs.train.tsv"},
    {"review", {"train", tiny_of_50_ids, "--data", "imdb:d"}, "d/train/neg/1_1.txt"},
    {"glue", {"train", tiny_of_50_ids, "--data", "glue:d"}, "d/train.tsv"},
    {"metadata", {"train", tiny_of_50_ids, "--data", "pathfinder:d"}, "d/metadata/0.npy"},
    {"wnids", {"train", "random:vit-tiny", "--data", "images:d"}, "d/wnids.txt"},
    {"run_json", {"report", "d"}, "d/run.json"},
    {"log", {"gradients", "FILE"}},
    {"events", {"gradients", "d"}, "d/events.out.tfevents.1"},
    {"trainer_state", {"gradients", "d"}, "d/trainer_state.json"},
    {"earlier_run", {"gradients", "log.csv", "--out", "d"}, "d/run.json"},
    {"index", {"inspect", "d"}, "d/model.safetensors.index.json"},
};
INSTANTIATE_TEST_SUITE_P(Files, EveryEndlessFile, testing::ValuesIn(endless),
                         [](const auto& one) { return one.param.what; });

/// A JSON text of one byte more than is read.
struct LargeJson {
    const char* what;
    std::uint64_t most;  ///< bytes
    std::vector<std::string> words;
    std::string file;
    std::string begin = "{";        ///< zeros follow
    std::uint64_t size = most + 1;  ///< of a sparse file
};

class EveryLargeJson : public testing::TestWithParam<LargeJson> {};

TEST_P(EveryLargeJson, IsRefusedBeforeItIsParsed) {
    const TemporaryDirectory folder;
    const LargeJson& given = GetParam();
    fs::create_directories((folder.path() / given.file).parent_path());
    fs::create_directory(folder / "m");
    write_file(folder / "m/model.safetensors", no_tensors);
    write_file(folder.path() / given.file, given.begin);
    fs::resize_file(folder.path() / given.file, given.size);
    const Finished done = tsdiag(folder, given.words);
    EXPECT_EQ(done.code, 1) << done.err;
    expect_one_sentence(done.err);
    EXPECT_THAT(done.err, HasSubstr(given.file));
    EXPECT_THAT(done.err, HasSubstr(std::to_string(given.most)));
}

const std::vector<LargeJson> large = {
    {"config", longest_json, {"probe", "m"}, "m/config.json"},
    {"named_config", longest_json, {"probe", "m", "--config", "c.json"}, "c.json"},
    {"modules", longest_json, {"inspect", "m"}, "m/modules.json"},
    {"index", longest_index, {"inspect", "d"}, "d/model.safetensors.index.json"},
    {"run_json", longest_result, {"report", "d"}, "d/run.json"},
    {"tokenizer",
     longest_vocabulary,
     {"probe", tiny_of_50_ids, "--text", "a", "--tokenizer", "t.json"},
     "t.json"},
    {"trainer_state", longest_history, {"gradients", "d"}, "d/trainer_state.json", "{\n"},
    {"one_line_of_a_state", longest_history, {"gradients", "d/log"}, "d/log", "{\"log_history\":"},
    {"json_lines",
     longest_json,
     {"gradients", "l.jsonl"},
     "l.jsonl",
     "{\"step\": 1, \"grad_norm\": 0.5}\n{",
     std::uint64_t{3} << 30},
    {"csv", std::uint64_t{1} << 30, {"gradients", "l.csv"}, "l.csv", "step,grad_norm\n1,0.5\n"},
    {"log", longest_file, {"gradients", "l.jsonl"}, "l.jsonl", "{\"step\": 1}\n"},
    // 100 000 001 as eight bytes
    {"safetensors",
     100'000'000,
     {"inspect", "d/m.safetensors"},
     "d/m.safetensors",
     std::string("\x01\xe1\xf5\x05\0\0\0\0{", 9),
     100'000'009},
};
INSTANTIATE_TEST_SUITE_P(Files, EveryLargeJson, testing::ValuesIn(large),
                         [](const auto& one) { return one.param.what; });

TEST(HostileTables, LayersBeyondAllModelsAreRefusedNotAllocated) {
    for (const char* place : {"9223372036854775807,,0", "99999999,,0", "0,,9223372036854775807"}) {
        const TemporaryDirectory folder;
        fs::create_directory(folder / "run");
        write_file(folder / "run/run.json", R"({"tables": {}})");
        write_file(
            folder / "run/metrics.csv",
            "model,step,layer,stage,head,tensor,metric,value,low,high,stderr,count,note\nm,," +
                std::string(place) + ",,entropy,1,,,,1,\n");
        write_file(folder / "run/curves.csv",
                   "model,step,layer,stage,head,curve,x,y,stderr,count\n");
        const Finished done = tsdiag(folder, {"report", "run"});
        EXPECT_EQ(done.code, 1) << done.err;
        EXPECT_THAT(done.err, HasSubstr("metrics.csv: line 2: "));
    }
}

TEST(HostileTables, HeadsFarApartMakeNoImage) {
    const TemporaryDirectory folder;
    fs::create_directory(folder / "run");
    write_file(folder / "run/run.json", R"({"tables": {}})");
    write_file(folder / "run/metrics.csv",
               "model,step,layer,stage,head,tensor,metric,value,low,high,stderr,count,note\n"
               "m,,999999,,999999,,entropy,1,,,,1,\n");
    write_file(folder / "run/curves.csv", "model,step,layer,stage,head,curve,x,y,stderr,count\n");
    const Finished done = tsdiag(folder, {"report", "run"});
    EXPECT_EQ(done.code, 0) << done.err;
}

/// A safetensors file of so many tensors of one number, an hour old.
void write_tensors(const fs::path& file, int count) {
    constexpr std::array<float, 1> zero{};
    std::vector<NamedArray> arrays;
    for (int i = 0; i < count; ++i) arrays.push_back({"tensor" + std::to_string(i), {1}, zero, {}});
    write_safetensors(file, arrays, {});
    fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(1));
}

/// Inspects a file whose list is longer than a pipe that nobody reads, calls `change` once the
/// program writes into it, and reads it.
template <class Change>
Finished inspect_meanwhile(const TemporaryDirectory& folder, Change change) {
    const std::string file = folder / "large.safetensors";
    EXPECT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
    const int pipe = open((folder / "pipe").c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
    const int room = fcntl(pipe, F_SETPIPE_SZ, 4096);
    EXPECT_GT(room, 0);
    write_tensors(file, room / 64);  // a line has more bytes
    Running running =
        Running::shell(folder.path(), "exec \"$TSDIAG\" inspect large.safetensors > pipe");
    const auto written = [&] {
        int bytes = 0;
        return ioctl(pipe, FIONREAD, &bytes) == 0 && bytes > 0;
    };
    EXPECT_TRUE(running.wait_until(written));
    change(file);
    std::string some(4096, '\0');
    running.wait_until([&] { return read(pipe, some.data(), some.size()) < 0 && running.ended(); });
    close(pipe);
    return running.wait();
}

/// Pickles for which Python would run a command, in all encodings.
TEST(HostilePickles, NameWhatTheyAskFor) {
    using namespace std::string_literals;
    const struct {
        std::string bytes, name;
    } pickles[] = {
        {"cos\nsystem\n(S'echo'\ntR."s, "os.system"},                               // protocol 0
        {"(S'echo'\nios\nsystem\n."s, "os.system"},                                 // INST
        {"\x80\2cbuiltins\neval\nX\1\0\0\0001\x85R."s, "builtins.eval"},            // 2
        {"\x80\2csubprocess\nPopen\nX\4\0\0\0echo\x85\x81."s, "subprocess.Popen"},  // NEWOBJ
        {"\x80\4\x8c\2os\x94\x8c\6system\x94\x93\x8c\4echo\x85R."s, "os.system"},   // 4
        {"\x80\5\x8c\5posix\x8c\6system\x93\x8c\4echo\x85R0}."s, "posix.system"},   // dropped
        {"\x80\2cbuiltins\ngetattr\nc__builtin__\n__import__\nX\2\0\0\0os\x85RX\6\0\0\0system"
         "\x86RX\4\0\0\0echo\x85R."s,
         "__builtin__.__import__"},  // nested
    };
    for (const auto& [bytes, name] : pickles) {
        TemporaryDirectory folder;
        write_file(folder / "model.pt", bytes);
        const Finished plain = tsdiag(folder, {"inspect", "model.pt"});
        EXPECT_EQ(plain.code, 1);
        expect_one_sentence(plain.err);
        EXPECT_THAT(plain.err, HasSubstr(name));
    }
}

TEST(ChangedFiles, AFileThatIsShortenedWhileItIsReadIsASentence) {
    const TemporaryDirectory folder;
    const Finished done =
        inspect_meanwhile(folder, [](const std::string& file) { fs::resize_file(file, 0); });
    EXPECT_EQ(done.code, 1);
    EXPECT_EQ(done.err,
              "tsdiag: large.safetensors: part of the file can no longer be read; it was truncated "
              "or its disk failed. Restore it and run again. No partial output was left.\n");
}

TEST(ChangedFiles, AFileThatIsWrittenWhileItIsReadIsASentence) {
    const TemporaryDirectory folder;
    const Finished done = inspect_meanwhile(folder, [](const std::string& file) {
        std::fstream out(file, std::ios::in | std::ios::out | std::ios::binary);
        out.seekp(-4, std::ios::end);
        out << "else";
    });
    EXPECT_EQ(done.code, 1);
    EXPECT_EQ(done.err,
              "tsdiag: large.safetensors: changed while it was being read. Run again when no "
              "process writes to it.\n");
}

TEST(ChangedFiles, AModelThatIsShortenedWhileItRunsEndsTheProbeOnAnyThread) {
    const TemporaryDirectory folder;
    ASSERT_EQ(
        tsdiag(folder, {"init", "random:gpt2,layers=6,d=512,heads=8,vocab=512", "-o", "m"}).code,
        0);
    Running running(folder.path(), {"probe", "m", "--no-report", "--tokens", "64", "--samples",
                                    "4000", "-q", "--out", "out"});
    ASSERT_TRUE(running.wait_until([&] { return has_begun(folder / "out"); }));
    ASSERT_EQ(truncate((folder / "m/model.safetensors").c_str(), 200'000), 0);
    const Finished done = running.wait();
    EXPECT_EQ(done.code, 1) << done.err;
    EXPECT_THAT(done.err, HasSubstr("m/model.safetensors: "));
    EXPECT_EQ(std::count(done.err.begin(), done.err.end(), '\n'), 1) << done.err;
    EXPECT_THAT(names_but_units(folder.path()), ElementsAre("m"));
}

}  // namespace
}  // namespace tsdiag::test
