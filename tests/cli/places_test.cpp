#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <atomic>
#include <future>
#include <map>
#include <regex>

#include "program.hpp"
#include "tsdiag/json.hpp"
#include "tsdiag/output.hpp"

/// Where commands write: not onto devices, links to nowhere, or what they read.
namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

using Words = std::vector<std::string>;

const std::string tiny_gpt2 = "random:gpt2,layers=2,d=8,heads=2,vocab=16,tokens=8";

/// Everything below `folder`: what it is, and the bytes of files and links.
std::map<std::string, std::string> state_of(const fs::path& folder) {
    std::map<std::string, std::string> out;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
        const fs::file_type type = entry.symlink_status().type();
        std::string& said = out[entry.path().lexically_relative(folder).string()];
        said = std::to_string(int(type)) + " ";
        if (type == fs::file_type::regular) said += read_file(entry.path());
        if (type == fs::file_type::symlink) said += fs::read_symlink(entry.path()).string();
    }
    return out;
}

/// Fails where it takes minutes, as what waits for a reader would.
Finished soon(const fs::path& folder, const Words& words) {
    Running running(folder, words);
    const bool ended = running.ends();
    EXPECT_TRUE(ended) << testing::PrintToString(words);
    if (!ended) running.signal(SIGKILL);
    return running.wait();
}

/// A measured result in "a".
class Places : public testing::Test {
  protected:
    void SetUp() override { measure("a", "1"); }
    void measure(const std::string& out, const std::string& seed) {
        const Finished done = tsdiag(folder, {"probe", tiny_gpt2, "--tokens", "4", "--seed", seed,
                                              "--no-report", "-q", "-o", out});
        ASSERT_EQ(done.code, 0) << done.err;
    }
    Finished run(const Words& words) { return tsdiag(folder, words); }
    /// Nothing is written, and a sentence says why.
    void refused(const Words& words, const std::string& sentence, int code = 2) {
        SCOPED_TRACE(testing::PrintToString(words));
        const auto before = state_of(folder.path());
        const Finished found = soon(folder.path(), words);
        EXPECT_EQ(found.code, code) << found.err;
        expect_one_sentence(found.err);
        EXPECT_THAT(found.err, HasSubstr(sentence));
        EXPECT_TRUE(state_of(folder.path()) == before);
    }
    TemporaryDirectory folder;
    const Words exported = {"export", "a", "--to", "jsonl"};
};

TEST_F(Places, AnExportIsWrittenIntoAPipeAndThroughALink) {
    const std::string text = run(exported).out;
    ASSERT_GT(text.size(), 1000u);
    ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
    fs::create_symlink("pipe", folder / "to-pipe");
    for (const char* name : {"pipe", "to-pipe"}) {
        for (const Words& force : {Words{}, Words{"--force"}}) {
            const int held = open((folder / "pipe").c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
            std::atomic<bool> over{false};
            auto seen = std::async(std::launch::async, [&] {
                std::string all, some(1 << 16, '\0');
                for (bool last = false; !last;) {
                    last = over;
                    ssize_t count = 0;
                    while ((count = read(held, some.data(), some.size())) > 0)
                        all.append(some, 0, std::size_t(count));
                    std::this_thread::sleep_for(std::chrono::milliseconds(1));
                }
                return all;
            });
            const Finished done = soon(folder.path(), with(with(exported, {"-o", name}), force));
            over = true;
            EXPECT_EQ(done.code, 0) << done.err;
            EXPECT_TRUE(fs::is_fifo(folder / "pipe")) << name;
            EXPECT_TRUE(seen.get() == text);
            close(held);
        }
    }
    fs::create_symlink("/dev/stdout", folder / "to-stdout");
    for (const Words& force : {Words{}, Words{"--force"}})
        EXPECT_TRUE(run(with(with(exported, {"-o", "to-stdout"}), force)).out == text);
    EXPECT_TRUE(fs::is_symlink(folder / "to-stdout"));

    write_file(folder / "file", "mine");
    fs::create_symlink("file", folder / "to-file");
    refused(with(exported, {"-o", "to-file"}), "to-file exists");
    EXPECT_EQ(run(with(exported, {"-o", "to-file", "--force"})).code, 0);
    EXPECT_TRUE(fs::is_symlink(folder / "to-file"));
    EXPECT_TRUE(read_file(folder / "file") == text);

    fs::create_symlink("nowhere", folder / "dangling");
    fs::create_directory(folder / "folder");
    refused(with(exported, {"-o", "dangling", "--force"}), "a link that leads nowhere");
    refused(with(exported, {"-o", "folder", "--force"}), "is a folder, expected a file");
    EXPECT_EQ(run(with(exported, {"-o", "/proc/tsdiag-test"})).code, 1);
}

/// Commands that write a folder, each so large that it would not end here.
const std::vector<Words>& writers() {
    static const std::vector<Words> all = {
        {"probe", tiny_gpt2, "--tokens", "8", "--trials", "10000000", "-q"},
        {"probe", tiny_gpt2, "--tokens", "8", "--trials", "10000000", "-q", "--part", "1/2"},
        {"check", "tse.lemma2.4", "--trials", "10000000", "-q"},
        {"figure", "tse.fig2", "--trials", "100000", "-q"},
        {"train", tiny_gpt2, "--data", "copy:3", "--tokens", "5", "--steps", "100000000", "-q"},
        {"init", "random:gpt2"},
        {"compare", "a", "a", "-q"},
        {"gradients", "log.csv", "--resamples", "100", "-q"},
        {"watch", "empty", "-q"},
        {"export", "a", "--to", "parquet"},
        {"export", "a", "--to", "tensorboard"},
        {"manual"}};
    return all;
}

TEST_F(Places, AFolderIsRefusedBeforeAnythingIsComputed) {
    std::string log = "step,grad_norm\n";
    for (int t = 0; t < 40; ++t) log += std::to_string(t) + ',' + std::to_string(1 + t % 7) + '\n';
    write_file(folder / "log.csv", log);
    fs::create_directory(folder / "empty");
    write_file(folder / "file", "mine");
    fs::create_symlink("file", folder / "to-file");
    fs::create_symlink("nowhere", folder / "dangling");
    fs::create_symlink("loop", folder / "loop");
    ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
    for (const Words& words : writers()) {
        for (const char* place : {"file", "to-file", "pipe", "file/below"})
            refused(with(words, {"-o", place}), "is a file, expected a directory to write into");
        for (const char* place : {"dangling", "loop", "dangling/below"})
            refused(with(words, {"-o", place}),
                    "is a link that leads nowhere, expected a directory to write into");
    }
}

TEST_F(Places, TheRootIsRefused) {
    const std::vector<Words> all = {
        {"probe", tiny_gpt2, "--tokens", "8", "-q"},
        {"train", tiny_gpt2, "--data", "copy:3", "--tokens", "5", "--steps", "100000000", "-q"},
        {"init", tiny_gpt2},
        {"compare", "a", "a", "-q"}};
    for (const Words& words : all)
        for (const char* place : {"/", "/.."})
            refused(with(words, {"-o", place}),
                    "/: is the root of the file system, expected a folder below it; choose another "
                    "--out.");
}

TEST_F(Places, NothingIsWrittenOntoIntoOrAboveWhatIsRead) {
    measure("b", "2");
    ASSERT_EQ(run({"init", tiny_gpt2, "-o", "models/m"}).code, 0);
    fs::create_directory(folder / "logs");
    std::string log = "step,grad_norm\n";
    for (int t = 0; t < 40; ++t) log += std::to_string(t) + ',' + std::to_string(1 + t % 7) + '\n';
    write_file(folder / "logs/log.csv", log);
    write_file(folder / "logs/text", std::string(4000, 'a'));
    fs::create_symlink("a", folder / "to-a");
    fs::create_symlink("models/m", folder / "to-m");
    fs::create_hard_link(folder / "a/metrics.csv", folder / "metrics");
    const std::string why = "which this command reads; choose another --out";
    for (const Words& words : std::vector<Words>{
             {"compare", "a", "b", "-q", "-o", "a"},
             {"compare", "a", "b", "-q", "-o", "b/../b/."},
             {"compare", "a", "to-a", "-q", "-o", "a"},
             {"compare", "a", "b", "-q", "-o", "to-a"},
             {"compare", "a", "b", "-q", "-o", "b/below/it"},
             {"compare", "a:0", "a:last", "-q", "-o", "a"},
             {"compare", "a", "b", "-q", "--force", "-o", "."},
             {"export", "a", "--to", "jsonl", "--force", "-o", "a/metrics.csv"},
             {"export", "to-a", "--to", "jsonl", "-o", "a/new"},
             {"export", "a", "--to", "parquet", "--force", "-o", "to-a"},
             {"export", "a", "--to", "tensorboard", "-o", "a/events"},
             {"probe", "models/m", "--tokens", "4", "--force", "-o", "models/m"},
             {"probe", "to-m", "--tokens", "4", "--force", "-o", "models/m"},
             {"probe", "models/m", "--tokens", "4", "--force", "-o", "models"},
             {"probe", "models/m/model.safetensors", "--tokens", "4", "--force", "-o", "models/m"},
             {"watch", "models", "--once", "-o", "models/m"},
             {"gradients", "logs/log.csv", "--force", "-o", "logs"},
             {"train", "models/m", "--data", "copy:3", "--tokens", "5", "--steps", "1", "--force",
              "-o", "models/m"},
             {"train", "random:gpt2,layers=1,d=8,heads=2", "--data", "text:logs/text", "--tokens",
              "5", "--steps", "1", "-o", "logs", "--force"}})
        refused(words, why);
    // A result beside the files of a model takes nothing from them.
    for (int twice = 0; twice < 2; ++twice) {
        const Finished inside =
            run({"probe", "models/m", "--tokens", "4", "-q", "--force", "-o", "models/m/result"});
        EXPECT_EQ(inside.code, 0) << inside.err;
    }
}

/// A law over the options: one that names a file to be read protects it.
TEST_F(Places, EveryOptionThatNamesAFileProtectsIt) {
    fs::create_directories(folder / "box/devil.fig2b");
    write_file(folder / "box/x", "");
    write_file(folder / "box/devil.fig2b/x", "");
    const std::regex named("(--[a-z-]+) (FILE|FILE.npy|KIND|PATH)\\b");
    std::size_t count = 0;
    for (const Words& words : std::vector<Words>{
             {"probe", tiny_gpt2, "--tokens", "4"},
             {"watch", "a", "--once", "--settle", "0"},
             {"check", "tse.lemma2.4"},
             {"figure", "devil.fig2b"},
             {"gradients", "a/metrics.csv"},
             {"train", tiny_gpt2, "--data", "copy:3", "--tokens", "5", "--steps", "1"},
             {"init", tiny_gpt2}}) {
        const std::string help = run({words.front(), "--help"}).out;
        for (std::sregex_iterator at(help.begin(), help.end(), named), end; at != end; ++at) {
            const std::string option = (*at)[1];
            if (option == "--data") continue;  // given already, or not taken
            // `figure` writes a folder for each.
            const std::string read = words.front() == "figure" ? "box/devil.fig2b/x" : "box/x";
            static const std::map<std::string, Words> with_what = {
                {"--tokenizer", {"--text", "a"}},
                {"--preprocessor", {"--images", test_data() + "/pictures"}},
                {"--labels", {"--loss", "classify"}}};
            Words all = with(words, {option, (option == "--input" ? "ids:" : "") + read, "--force",
                                     "-o", "box"});
            if (const auto found = with_what.find(option); found != with_what.end())
                all = with(all, found->second);
            refused(all, " contains " + read + ", which this command reads");
            ++count;
        }
    }
    EXPECT_GE(count, 20u);
}

TEST_F(Places, MergeWritesWhatItsArgumentNames) {
    const Words probe = {"probe", tiny_gpt2, "--tokens", "4", "--trials", "4", "--no-report", "-q"};
    for (const char* part : {"1/2", "2/2"})
        ASSERT_EQ(run(with(probe, {"--part", part, "-o", "r"})).code, 0);
    fs::rename(folder / ".r.tsdiag-units", folder / ".s.tsdiag-units");
    measure("r", "7");
    const auto other = state_of(folder.path() / "r");
    const Finished merged = run({"merge", "s"});
    EXPECT_EQ(merged.code, 0) << merged.err;
    EXPECT_TRUE(state_of(folder.path() / "r") == other);
    ASSERT_EQ(run(with(probe, {"-o", "whole"})).code, 0);
    EXPECT_TRUE(read_file(folder / "s/metrics.csv") == read_file(folder / "whole/metrics.csv"));
    EXPECT_THAT(names_in(folder.path()), testing::ElementsAre("a", "r", "s", "whole"));

    const Words figure = {"figure",    "tse.fig2",  "--trials",  "2",         "--reading",
                          "d=16",      "--reading", "heads=2",   "--reading", "ffn=8",
                          "--reading", "tokens=8",  "--reading", "layers=2",  "-q"};
    ASSERT_EQ(run(with(figure, {"--part", "1/1", "-o", "figures"})).code, 0);
    fs::rename(folder / "figures", folder / "moved");
    const Finished again = run({"merge", "moved"});
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_TRUE(fs::exists(folder / "moved/tse.fig2/run.json"));
    EXPECT_FALSE(fs::exists(folder / "figures"));
    refused({"merge", "figures"}, "has no finished units", 1);
}

TEST_F(Places, PagesReplaceOnlyPages) {
    ASSERT_EQ(run({"manual", "-o", "man"}).code, 0);
    const auto pages = state_of(folder.path() / "man");
    write_file(folder / "man/other.1", "mine");
    EXPECT_EQ(run({"manual", "-o", "man"}).code, 0);
    write_file(folder / "man/tsdiag-probe.1", "mine");
    refused({"manual", "-o", "man"}, "tsdiag-probe.1: was not written by tsdiag");
    fs::remove(folder / "man/tsdiag-probe.1");
    fs::create_symlink("nowhere", folder / "man/tsdiag-probe.1");
    refused({"manual", "-o", "man"}, "a link that leads nowhere");
    refused({"submit", "--dry-run", "manual", "-o", "new"}, "expected figure, check or probe");
}

TEST_F(Places, SubmitReplacesNothing) {
    fs::create_symlink("nowhere", folder / "tsdiag-probe.sbatch");
    const Words submit = {"submit", "probe", tiny_gpt2, "--out"};
    const Finished found = run(with(submit, {"result"}));
    EXPECT_EQ(found.code, 2);
    EXPECT_THAT(found.err, HasSubstr("tsdiag-probe.sbatch: exists"));
    EXPECT_TRUE(fs::is_symlink(folder / "tsdiag-probe.sbatch"));
    refused(with(submit, {"a/metrics.csv"}), "is a file, expected a directory");
}

/// The disk is full at its first units.
TEST_F(Places, APartThatCannotKeepItsUnitsLeavesNoFolder) {
    const Finished found =
        Running::shell(folder.path(), "ulimit -f 2; exec \"$TSDIAG\" probe " + tiny_gpt2 +
                                          " --tokens 4 --trials 4 -q --part 1/2 -o out")
            .wait();
    EXPECT_EQ(found.code, 1);
    expect_one_sentence(found.err);
    EXPECT_THAT(found.err, HasSubstr(".units: cannot be written"));
    EXPECT_THAT(names_in(folder.path()), testing::ElementsAre("a"));
}

/// Commands that write a folder, each short; "run" holds checkpoints.
const std::vector<Words>& short_writers() {
    static const std::vector<Words> all = {
        {"probe", tiny_gpt2, "--tokens", "4", "-q"},
        {"probe", "run", "--samples", "2", "-q"},
        {"check", "devil.eq59", "--trials", "20", "-q"},
        {"figure", "tse.fig2", "--trials", "2", "--reading", "d=16", "--reading", "heads=2",
         "--reading", "ffn=8", "--reading", "tokens=8", "--reading", "layers=2", "-q"},
        {"train", tiny_gpt2, "--data", "copy:3", "--tokens", "5", "--steps", "2", "-q"},
        {"init", tiny_gpt2},
        {"compare", "a", "a", "-q"},
        {"gradients", "log.csv", "--resamples", "100", "-q"},
        {"watch", "run", "--once", "--settle", "0", "--samples", "2", "-q"},
        {"export", "a", "--to", "parquet"},
        {"export", "a", "--to", "tensorboard"},
        {"manual"}};
    return all;
}

class BadDisk : public Places {
  protected:
    void SetUp() override {
        Places::SetUp();
        std::string log = "step,grad_norm\n";
        for (int t = 0; t < 40; ++t)
            log += std::to_string(t) + ',' + std::to_string(1 + t % 7) + '\n';
        write_file(folder / "log.csv", log);
        const Finished trained = run({"train", tiny_gpt2, "--data", "copy:3", "--tokens", "5",
                                      "--steps", "4", "--probe-every", "2", "-q", "-o", "run"});
        ASSERT_EQ(trained.code, 0) << trained.err;
    }
    /// `before` is the beginning of a line of the shell.
    Finished under(const std::string& before, const Words& words) {
        std::string line = before + " \"$TSDIAG\"";
        for (const std::string& word : words) line += " '" + word + "'";
        return Running::shell(folder.path(), line).wait();
    }
    /// Hidden names; a command that failed keeps its units for the next.
    Words hidden() const {
        Words out;
        for (const auto& entry : fs::recursive_directory_iterator(folder.path())) {
            const std::string name = entry.path().filename().string();
            const bool units = entry.path().string().find(".tsdiag-units") != std::string::npos;
            if (name.starts_with('.') && !units) out.push_back(entry.path().string());
        }
        return out;
    }
};

/// clang's OpenMP keeps a file of 1024 bytes, a block is of 512: with less, it would leave an empty
/// file, on which a later process of the same number dies.
constexpr int fewest_blocks = 2;

/// No file can grow beyond a limit, as on a disk that is full then.
TEST_F(BadDisk, ThatIsFullIsToldInOneSentenceAndLeavesNothingHidden) {
    for (const Words& words : short_writers()) {
        int failed = 0;
        for (const int blocks : {fewest_blocks, 4, 16, 64}) {
            SCOPED_TRACE(testing::PrintToString(words) + " " + std::to_string(blocks));
            const Finished found =
                under(fmt::format("ulimit -f {}; exec", blocks), with(words, {"-o", "out"}));
            EXPECT_THAT(hidden(), testing::IsEmpty());
            if (found.code == 0) break;
            ++failed;
            EXPECT_EQ(found.code, 1) << found.err;
            expect_one_sentence(found.err);
            EXPECT_THAT(found.err, testing::ContainsRegex("(cannot|could not) be written"));
            // A training goes on where it was, and pages are single files.
            if (words[0] == "train" || words[0] == "manual") fs::remove_all(folder / "out");
        }
        EXPECT_GE(failed, 1) << testing::PrintToString(words);
        if (words[0] == "init" || words[0] == "train") fs::remove_all(folder / "out");
        const Finished after = run(with(words, {"-o", "out"}));
        EXPECT_EQ(after.code, 0) << testing::PrintToString(words) << after.err;
        EXPECT_THAT(hidden(), testing::IsEmpty());
        fs::remove_all(folder / "out");
    }
}

TEST_F(BadDisk, ThatIsFullLeavesAnEarlierResultAndFile) {
    for (const Words& words :
         std::vector<Words>{{"probe", tiny_gpt2, "--tokens", "4", "--seed", "2", "-q", "-o", "a"},
                            {"report", "a"},
                            {"export", "run", "--to", "jsonl", "--force", "-o", "log.csv"}}) {
        const auto before = state_of(folder.path());
        const Finished found = under(fmt::format("ulimit -f {}; exec", fewest_blocks), words);
        EXPECT_EQ(found.code, 1) << found.err;
        expect_one_sentence(found.err);
        EXPECT_TRUE(state_of(folder.path()) == before) << testing::PrintToString(words);
    }
    const Finished full = run(with(exported, {"-o", "/dev/full"}));
    EXPECT_EQ(full.code, 1);
    expect_one_sentence(full.err);
    EXPECT_THAT(full.err, HasSubstr("/dev/full: cannot be written: No space left on device"));
}

/// Root may write into any folder, unless it gives that up.
TEST_F(BadDisk, AFolderThatIsShutIsToldBeforeAnythingIsComputed) {
    fs::create_directory(folder / "shut");
    fs::permissions(folder / "shut", fs::perms::owner_read | fs::perms::owner_exec);
    std::string as_user = "exec";
    if (geteuid() == 0) as_user += " setpriv --bounding-set=-dac_override,-dac_read_search";
    const bool open = Running::shell(folder.path(), as_user + " touch shut/x").wait().code == 0;
    if (open || under(as_user, {"--version"}).code != 0)
        GTEST_SKIP() << "this user may write into any folder, and setpriv does not change that";
    std::vector<Words> all = writers();
    all.insert(all.end(), short_writers().begin(), short_writers().end());
    fs::create_directory(folder / "empty");
    for (const Words& words : all) {
        for (const char* place : {"shut/out", "shut"}) {
            SCOPED_TRACE(testing::PrintToString(words) + place);
            const auto before = state_of(folder.path());
            const Finished found = under(as_user, with(words, {"-o", place}));
            EXPECT_EQ(found.code, 1) << found.err;
            expect_one_sentence(found.err);
            EXPECT_THAT(found.err, HasSubstr(" cannot be written (Permission denied); choose "));
            EXPECT_TRUE(state_of(folder.path()) == before);
        }
    }
    const Finished found = under(as_user, with(exported, {"-o", "shut/table"}));
    EXPECT_EQ(found.code, 1);
    EXPECT_THAT(found.err, HasSubstr("shut/table: cannot be written: Permission denied"));
    fs::permissions(folder / "shut", fs::perms::owner_all);
}

/// A table that takes long to write: some of the signals come before its file has its name.
TEST_F(Places, AnInterruptedExportLeavesNothing) {
    const std::string curves = read_file(folder / "a/curves.csv");
    const std::string head = curves.substr(0, curves.find('\n') + 1);
    const std::string row =
        curves.substr(head.size(), curves.find('\n', head.size()) + 1 - head.size());
    std::string many = head;
    for (int i = 0; i < 200'000; ++i) many += row;
    write_file(folder / "a/curves.csv", many);
    Json run = Json::parse(read_file(folder / "a/run.json"), "run.json");
    Json tables = run["tables"];
    tables.set("curves.csv", *sha256_of(folder / "a/curves.csv"));
    run.set("tables", std::move(tables));
    write_file(folder / "a/run.json", run.dump(2));
    write_file(folder / "out", "mine");
    const auto half = [&] {
        for (const std::string& name : names_in(folder.path()))
            if (name.ends_with(".tmp")) return true;
        return false;
    };
    bool seen = false;
    for (int attempt = 0; attempt < 20 && !seen; ++attempt) {
        write_file(folder / "out", "mine");
        Running running(folder.path(), with(exported, {"-o", "out", "--force"}));
        while (!running.ended() && !half()) std::this_thread::yield();
        running.signal(attempt % 2 ? SIGINT : SIGTERM);
        const Finished done = running.wait();
        EXPECT_THAT(names_in(folder.path()), testing::ElementsAre("a", "out"));
        if (done.code == 0) continue;  // it had ended
        EXPECT_EQ(done.code, 130) << done.err;
        const std::string now = read_file(folder / "out");
        seen = now == "mine";
        EXPECT_TRUE(seen || now == tsdiag(folder, exported).out) << "half of it";
    }
    EXPECT_TRUE(seen);
}

}  // namespace
}  // namespace tsdiag::test
