#include <gmock/gmock.h>

#include <fstream>
#include <map>

#include "program.hpp"
#include "support/places.hpp"
#include "tsdiag/backend.hpp"
#include "tsdiag/json.hpp"
#include "tsdiag/units.hpp"

/// Commands whose units several processes compute: the tables are those of one process, byte for
/// byte.
namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;
using Words = std::vector<std::string>;
using Tables = std::map<std::string, std::string>;

const std::string mpirun = mpirun_file();

Tables tables(const fs::path& out) {
    Tables found;
    for (const auto& entry : fs::recursive_directory_iterator(out))
        for (const char* ending : {".csv", ".npz"})
            if (entry.path().extension() == ending)
                found[fs::relative(entry.path(), out).string()] = read_file(entry.path());
    return found;
}

std::string quoted(const Words& words) {
    std::string line;
    for (const std::string& word : words) line += " '" + word + "'";
    return line;
}

/// Begins a command of the shell that starts ranks on this machine.  They fail together, when all
/// is done, so that none needs the second for which mpirun lets the others go on.
std::string mpirun_here() {
    return "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
           "OMPI_MCA_odls_base_sigkill_timeout=0 " +
           mpirun + " --oversubscribe ";
}
std::string mpirun_of(int count) { return mpirun_here() + "-n " + std::to_string(count) + " "; }
Finished ranks(const TemporaryDirectory& folder, int count, const Words& words) {
    return Running::shell(folder.path(), mpirun_of(count) + "\"$TSDIAG\"" + quoted(words)).wait();
}

/// What the program itself said, without the words of mpirun.
std::string own_lines(const std::string& text) {
    std::string lines;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
        if (text.compare(at, 8, "tsdiag: ") == 0) lines += text.substr(at, end - at);
        at = end;
    }
    return lines;
}

/// When the results below `out` were begun.
Words dates_in(const fs::path& out) {
    Words dates;
    for (const auto& entry : fs::recursive_directory_iterator(out))
        for (const char* name : {"run.json", "claims.json"})
            if (entry.path().filename() == name) {
                const Json run = Json::parse(read_file(entry.path()), name, longest_result);
                dates.push_back(run["measured"]["date"].string());
            }
    return dates;
}

struct CommandCase {
    std::string name;
    Words words;  ///< without --out
    void (*prepare)(const TemporaryDirectory& folder) = [](const TemporaryDirectory&) {};
};
std::ostream& operator<<(std::ostream& out, const CommandCase& command) {
    return out << command.name;
}

Words figure_words(const std::string& trials) {
    return {"figure",    "tse.fig2",  "--trials", trials,      "--reading", "layers=2", "--reading",
            "tokens=16", "--reading", "d=16",     "--reading", "heads=2",   "-q"};
}

void write_model(const TemporaryDirectory& folder) {
    tsdiag(folder, {"init", "random:gpt2,layers=2,d=16,heads=2,vocab=32,tokens=80", "-o", "model"});
}
void write_series(const TemporaryDirectory& folder) {
    for (const char* step : {"1", "2", "3"})
        tsdiag(folder, {"init", "random:gpt2,layers=1,d=16,heads=2,vocab=32,tokens=80", "--seed",
                        step, "-o", std::string("run/checkpoint-") + step});
}

std::vector<CommandCase> every_command() {
    std::vector<CommandCase> all;
    all.push_back({"figure", figure_words("9")});
    all.push_back({"figure_each_trial",
                   {"figure", "devil.sec3", "--trials", "5", "--reading", "tokens=8", "--reading",
                    "d=4", "-q"}});
    all.push_back({"check",
                   {"check", "devil.propD6", "tse.prop2.3", "tse.lemmaA5", "devil.eq59", "--trials",
                    "40", "-q"}});
    all.push_back({"probe_trials",
                   {"probe", "random:pre-norm,layers=2,d=24,heads=3", "--tokens", "20", "--trials",
                    "5", "--no-report", "-q"}});
    all.push_back({"probe_samples",
                   {"probe", "model", "--tokens", "30", "--samples", "5", "--maps", "0:0,1:1",
                    "--no-report", "-q"},
                   write_model});
    all.push_back({"probe_loss",
                   {"probe", "model", "--tokens", "30", "--samples", "4", "--loss", "lm",
                    "--no-report", "-q"},
                   write_model});
    all.push_back({"probe_series",
                   {"probe", "run", "--tokens", "30", "--samples", "2", "--no-report", "-q"},
                   write_series});
    return all;
}

class EverySplitCommand : public testing::TestWithParam<CommandCase> {
  protected:
    void SetUp() override {
        GetParam().prepare(folder);
        const Finished done = tsdiag(folder, with(GetParam().words, {"--out", "alone"}));
        ASSERT_EQ(done.code, 0) << done.err;
        expected = tables(folder / "alone");
        ASSERT_FALSE(expected.empty());
    }
    void expect_the_same(const std::string& out) {
        const Tables found = tables(folder / out);
        ASSERT_EQ(found.size(), expected.size()) << out;
        for (const auto& [file, text] : expected)
            EXPECT_TRUE(found.at(file) == text) << out << ": " << file << " differs";
        EXPECT_FALSE(fs::exists(units_folder(folder / out))) << "units are left";
        for (const auto& entry : fs::directory_iterator(folder / out))
            EXPECT_FALSE(entry.path().filename().string().starts_with('.')) << entry.path();
    }
    TemporaryDirectory folder;
    Tables expected;
};

TEST_P(EverySplitCommand, MergedPartsAreTheResultOfOneProcess) {
    for (const int parts : {1, 3, 7}) {
        const std::string out = "of" + std::to_string(parts);
        for (int part = parts; part >= 1; --part) {
            const Finished done = tsdiag(
                folder,
                with(GetParam().words,
                     {"--out", out, "--part", std::to_string(part) + "/" + std::to_string(parts)}),
                part < parts ? Words{"SOURCE_DATE_EPOCH=0"} : Words());
            ASSERT_EQ(done.code, 0) << done.err;
        }
        const Finished merged = tsdiag(folder, {"merge", out}, {"SOURCE_DATE_EPOCH=0"});
        ASSERT_EQ(merged.code, 0) << merged.err;
        expect_the_same(out);
        for (const std::string& date : dates_in(folder / out))
            EXPECT_EQ(date, "2026-01-01T00:00:00Z") << "that of the first part";
    }
}

TEST_P(EverySplitCommand, GoesOnWithTheUnitsOfOneOfItsParts) {
    tsdiag(folder, with(GetParam().words, {"--out", "out", "--part", "1/2"}));
    const Finished missing = tsdiag(folder, {"merge", "out"});
    EXPECT_EQ(missing.code, 1);
    expect_one_sentence(missing.err);
    EXPECT_THAT(missing.err, HasSubstr("units are missing"));
    Words loud = GetParam().words;
    std::erase(loud, "-q");
    const Finished done = tsdiag(folder, with(loud, {"--out", "out"}));
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_THAT(done.out, HasSubstr("units reused from an earlier run"));
    expect_the_same("out");
}

TEST_P(EverySplitCommand, RanksGiveTheResultOfOneProcess) {
    if (mpirun.empty()) GTEST_SKIP() << "no MPI";
    const Finished done = ranks(folder, 3, with(GetParam().words, {"--out", "out"}));
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_THAT(done.err, Not(HasSubstr("computed again")));
    expect_the_same("out");
}

INSTANTIATE_TEST_SUITE_P(Commands, EverySplitCommand, testing::ValuesIn(every_command()),
                         [](const auto& test) { return test.param.name; });

class Ranks : public testing::Test {
  protected:
    void SetUp() override {
        if (mpirun.empty()) GTEST_SKIP() << "no MPI";
    }
    TemporaryDirectory folder;
};

TEST_F(Ranks, AnyNumberOfThemGivesTheSame) {
    ASSERT_EQ(tsdiag(folder, with(figure_words("5"), {"--out", "alone"})).code, 0);
    for (const int count : {1, 2, 4, 7}) {  // of five units
        const std::string out = "of" + std::to_string(count);
        Words words = with(figure_words("5"), {"--out", out});
        std::erase(words, "-q");
        const Finished done = ranks(folder, count, words);
        EXPECT_EQ(done.code, 0) << done.err;
        // Each unit by one of them, and none again for the result.
        if (count > 1) {
            EXPECT_THAT(done.out, HasSubstr("5 units, 5 computed by " + std::to_string(count)));
        }
        EXPECT_THAT(done.err, Not(HasSubstr("computed again")));
        EXPECT_EQ(tables(folder / out), tables(folder / "alone")) << count;
    }
}

/// Each keeps a P of its own, which on one machine fits for all of them together.
TEST_F(Ranks, ShareTheMemoryOfTheirMachine) {
    const Words words = {"probe",    "random:post-norm,layers=1,d=16,heads=2",
                         "-q",       "--no-report",
                         "--out",    "out",
                         "--probes", "fro"};
    const auto memory = [&](int count, const Words& more) {
        const Finished done = ranks(folder, count, with(with(words, {"--tokens", "40"}), more));
        EXPECT_EQ(done.code, 0) << done.err;
        const Json run = Json::parse(read_file(folder / "out/run.json"), "run.json");
        return run["settings"]["memory"].integer();
    };
    const Index whole = memory(1, {});
    EXPECT_EQ(whole, Index(machine_memory() / 2));
    for (const int count : {2, 3})
        EXPECT_EQ(memory(count, {}), Index(machine_memory() / std::size_t(count) / 2)) << count;
    EXPECT_EQ(memory(3, {"--memory", "300M"}), Index(300) << 20);
    // A refusal tells of whom the number is.
    const Finished refused = ranks(folder, 2, with(words, {"--tokens", "100000000"}));
    EXPECT_EQ(refused.code, 2);
    EXPECT_THAT(own_lines(refused.err), HasSubstr(" for each of 2 processes;"));
}

/// One sample is computed by all ranks: the rows of its P are spread over them, the heads where P
/// is kept.
struct Sequence {
    std::string name;
    Words words;
    std::vector<int> ranks = {3, 4};
};
class EverySequence : public Ranks, public testing::WithParamInterface<Sequence> {};

std::vector<Sequence> every_sequence() {
    const auto probe = [](const std::string& model, const Words& more) {
        return with({"probe", "random:" + model, "--no-report"}, more);
    };
    std::vector<Sequence> all;
    // P is made anew for every product.
    all.push_back(
        {"streamed",
         probe("post-norm,layers=1,d=32,heads=16", {"--tokens", "1000", "--memory", "120M"}),
         {3}});
    all.push_back({"streamed_causal",
                   probe("llama-7b,layers=1,d=32,heads=16,vocab=16",
                         {"--tokens", "1000", "--memory", "120M"}),
                   {4}});
    all.push_back({"kept", probe("post-norm,layers=2,d=24,heads=3",
                                 {"--tokens", "900", "--probes", "core,mu2,jac_k_fro"})});
    all.push_back({"short", probe("pre-norm,layers=2,d=16,heads=4", {"--tokens", "60"})});
    all.push_back({"two_samples",
                   probe("pre-norm,layers=2,d=16,heads=2", {"--tokens", "500", "--samples", "2"})});
    all.push_back({"maps", probe("pre-norm,layers=1,d=16,heads=2",
                                 {"--tokens", "500", "--maps", "0:1", "--probes",
                                  "local_acc_appendix,entropy"})});
    all.push_back({"loss", probe("gpt2,layers=2,d=16,heads=2,vocab=32,tokens=500",
                                 {"--tokens", "500", "--loss", "lm"})});
    all.push_back({"performer", probe("pre-norm,layers=2,d=16,heads=2,attention=performer",
                                      {"--tokens", "900"})});
    all.push_back({"float64", probe("pre-norm,layers=1,d=16,heads=2",
                                    {"--tokens", "800", "--dtype", "float64"})});
    return all;
}

TEST_P(EverySequence, IsComputedByAllRanksTogether) {
    const Words& words = GetParam().words;
    ASSERT_EQ(tsdiag(folder, with(words, {"--out", "alone"})).code, 0);
    for (const int count : GetParam().ranks) {
        const std::string out = "of" + std::to_string(count);
        const Finished done = ranks(folder, count, with(words, {"--out", out}));
        EXPECT_EQ(done.code, 0) << done.err;
        EXPECT_THAT(done.out,
                    HasSubstr("computed by " + std::to_string(count) + " ranks together"));
        EXPECT_THAT(done.err, Not(HasSubstr("computed again")));
        const Tables expected = tables(folder / "alone"), found = tables(folder / out);
        ASSERT_EQ(found.size(), expected.size());
        for (const auto& [file, text] : expected)
            EXPECT_TRUE(found.at(file) == text) << out << ": " << file << " differs";
    }
}

/// A probe of one sequence that is killed does not begin anew, alone or as ranks, and whoever goes
/// on.
TEST_F(Ranks, OfAKilledSequenceGoOnBehindItsLayers) {
    if (fault_shim().empty()) GTEST_SKIP() << "nothing is preloaded under sanitizers";
    const Words words = {"probe",      "random:post-norm,layers=6,d=32,heads=4",
                         "--tokens",   "1000",
                         "--memory",   "120M",
                         "--no-report"};
    ASSERT_EQ(tsdiag(folder, with(words, {"--out", "alone"})).code, 0);
    for (const auto& [killed, next] : {std::pair{1, 3}, {3, 1}}) {
        const std::string out = "of" + std::to_string(killed) + std::to_string(next);
        const Words all = with(words, {"--out", out});
        // The first rank, once it has kept a layer, which it does after a second at the earliest.
        write_file(folder / "start",
                   "[ \"${OMPI_COMM_WORLD_RANK:-0}\" = 0 ] && export LD_PRELOAD=" + fault_shim() +
                       " TSDIAG_FAULT_BEHIND=.units TSDIAG_FAULT_REST=1\n"
                       "exec \"$TSDIAG\"" +
                       quoted(all));
        const Finished over =
            Running::shell(folder.path(),
                           (killed > 1 ? mpirun_of(killed) : std::string()) + "sh start")
                .wait();
        ASSERT_NE(over.code, 0) << "it was not killed";
        const Finished done = ranks(folder, next, all);
        EXPECT_EQ(done.code, 0) << done.err;
        EXPECT_THAT(done.out, HasSubstr("reused from an earlier run")) << out;
        EXPECT_EQ(tables(folder / out), tables(folder / "alone")) << out;
        EXPECT_FALSE(fs::exists(units_folder(folder / out)));
    }
}

INSTANTIATE_TEST_SUITE_P(Probes, EverySequence, testing::ValuesIn(every_sequence()),
                         [](const auto& test) { return test.param.name; });

/// Ranks whose last digits differ cannot go in step.
TEST_F(Ranks, OfMixedInstructionSetsComputeAUnitAlone) {
    const Words words = {"probe",       "random:pre-norm,layers=1,d=16,heads=2",
                         "--tokens",    "500",
                         "--no-report", "--mixed",
                         "--out",       "out"};
    const Finished done = ranks(folder, 2, words);
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_THAT(done.out, HasSubstr("1 computed by 2 ranks, 0 to 1 each"));
}

TEST_F(Ranks, FailInOneSentenceWithOneCode) {
    const std::vector<std::pair<Words, std::string>> all = {
        {{"probe", "nothing", "--out", "out"}, "no such file"},
        {{"figure", "tse.fig2", "--part", "1/2"}, "leave it out"},
        {{"check", "devil.eq59", "--n", "0", "--out", "out"}, "--n"},
        {{"figure", "tse.fig2", "--reading", "d=15", "--out", "out", "-q"}, "is not a divisor"}};
    for (const auto& [words, part] : all) {
        const Finished done = ranks(folder, 3, words);
        EXPECT_EQ(done.code, part == "no such file" ? 1 : 2) << done.err;
        expect_one_sentence(own_lines(done.err));
        EXPECT_THAT(done.err, HasSubstr(part));
        EXPECT_TRUE(names_in(folder.path()).empty()) << names_in(folder.path()).front();
    }
}

TEST_F(Ranks, WithOtherArgumentsOrInstructionSetsAreRefused) {
    const std::string base = mpirun_here();
    const std::string words = " \"$TSDIAG\" check devil.eq59 --trials 20 -q --out out ";
    const Finished arguments =
        Running::shell(folder.path(),
                       base + "-n 1" + words + "--seed 1 : -n 1" + words + "--seed 2")
            .wait();
    EXPECT_EQ(arguments.code, 2);
    expect_one_sentence(own_lines(arguments.err));
    EXPECT_THAT(arguments.err, HasSubstr("ranks 0 and 1 have different arguments"));
    for (const bool mixed : {false, true}) {
        const std::string more = mixed ? words + "--mixed" : words;
        const Finished sets =
            Running::shell(folder.path(), base + "-n 1 -x TSDIAG_ISA=base" + more +
                                              " : -n 1 -x TSDIAG_ISA=avx2" + more)
                .wait();
        if (mixed) {
            EXPECT_EQ(sets.code, 0) << sets.err;
        } else if (own_lines(sets.err).empty()) {
            GTEST_SKIP() << "this machine has one instruction set";
        } else {
            EXPECT_EQ(sets.code, 2);
            expect_one_sentence(own_lines(sets.err));
            EXPECT_THAT(sets.err, HasSubstr("--mixed"));
        }
    }
}

/// The ranks of one command: each line is a command of the shell in a folder of its own, in which
/// "$TSDIAG" is the program.
Finished unlike_ranks(const TemporaryDirectory& folder, const std::vector<std::string>& lines) {
    std::string all = mpirun_here();
    for (std::size_t i = 0; i < lines.size(); ++i) {
        const fs::path own = folder / ("rank" + std::to_string(i));
        fs::create_directories(own);
        const fs::path script = own / "script";
        std::ofstream(script) << "cd '" << own.string() << "'\n" << lines[i] << "\n";
        all += std::string(i == 0 ? "" : " : ") + "-n 1 sh '" + script.string() + "'";
    }
    return Running::shell(folder.path(), all).wait();
}

/// What differs between ranks is told in one sentence, with one code of all.
TEST_F(Ranks, ThatDifferAreRefused) {
    const auto init = [&](const std::string& rank, const char* seed) {
        fs::create_directories(folder / rank);
        const Finished made =
            tsdiag(folder, {"init", "random:gpt2,layers=1,d=8,heads=2,vocab=11,tokens=8", "-o",
                            rank + "/model", "--seed", seed});
        ASSERT_EQ(made.code, 0) << made.err;
    };
    init("rank0", "1");
    init("rank1", "2");
    const std::string probe = "exec \"$TSDIAG\" probe model --samples 2 --no-report -q --out ";
    const std::string common = (folder / "out");
    struct Unlike {
        const char* what;
        std::string first, second;
        const char* said;
    };
    std::vector<Unlike> all = {
        {"models", probe + common, probe + common, "different models, data or settings"},
        {"folders", "rm -r model; cp -r ../rank1/model .; " + probe + "out", probe + "out",
         "is not the same folder on rank 1"},
        {"arguments", probe + common, probe + common + " --seed 2", "different arguments"},
        {"parts", probe + common, probe + common + " --part 1/2", "different arguments"}};
    for (const Unlike& unlike : all) {
        const Finished done = unlike_ranks(folder, {unlike.first, unlike.second});
        EXPECT_EQ(done.code, 2) << unlike.what << ": " << done.err;
        expect_one_sentence(own_lines(done.err));
        EXPECT_THAT(done.err, HasSubstr(unlike.said)) << unlike.what;
        EXPECT_FALSE(fs::exists(folder / "out")) << unlike.what;
        EXPECT_FALSE(fs::exists(units_folder(folder / "out"))) << unlike.what;
    }
}

/// However late a rank comes, and whether it fails with the others or alone.
TEST_F(Ranks, WhoseArgumentsAreWrongFailTogether) {
    const std::string wrong = "exec \"$TSDIAG\" check devil.eq59 --n 0 --out out",
                      right = "exec \"$TSDIAG\" check devil.eq59 --n 8 --out out",
                      late = "sleep 6; ";
    struct Unlike {
        std::string first, second;
        const char* said;
    };
    for (const Unlike& unlike : {Unlike{late + wrong, wrong, "tsdiag: --n: '0' is not"},
                                 {right, wrong, "tsdiag: rank 1: --n: '0' is not"},
                                 {wrong, right, "tsdiag: --n: '0' is not"}}) {
        const Finished done = unlike_ranks(folder, {unlike.first, unlike.second});
        EXPECT_EQ(done.code, 2) << done.err;
        expect_one_sentence(own_lines(done.err));
        EXPECT_THAT(done.err, HasSubstr(unlike.said));
    }
}

/// May a process here have a file system of its own?
bool has_namespaces(const TemporaryDirectory& folder) {
    return Running::shell(folder.path(), "unshare -m mount -t tmpfs none /mnt").wait().code == 0;
}
std::string in_namespace(const std::string& prepare, const std::string& command) {
    return "exec unshare -m sh -c '" + prepare + " && exec " + command + "'";
}

/// The same path is another folder for one of them, or one that it cannot write.
TEST_F(Ranks, WithoutASharedFolderAreRefused) {
    if (!has_namespaces(folder)) GTEST_SKIP() << "no mount namespaces here";
    const std::string place = (folder / "place");
    fs::create_directories(place);
    const std::string command =
        "\"$TSDIAG\" check devil.eq59 tse.prop2.3 --trials 20 -q --out " + place + "/out";
    const Finished apart = unlike_ranks(
        folder, {"exec " + command, in_namespace("mount -t tmpfs none " + place, command)});
    EXPECT_EQ(apart.code, 2) << apart.err;
    expect_one_sentence(own_lines(apart.err));
    EXPECT_THAT(apart.err, HasSubstr("is not the same folder on rank 1"));
    EXPECT_TRUE(names_in(place).empty());
    const Finished read_only = unlike_ranks(
        folder, {"exec " + command, in_namespace("mount --bind " + place + " " + place +
                                                     " && mount -o remount,ro,bind " + place,
                                                 command)});
    EXPECT_EQ(read_only.code, 1) << read_only.err;
    expect_one_sentence(own_lines(read_only.err));
    EXPECT_THAT(read_only.err, HasSubstr("rank 1: "));
    EXPECT_FALSE(fs::exists(fs::path(place) / "out"));
}

TEST_F(Ranks, OnAFullDiskFailInOneSentence) {
    if (!has_namespaces(folder)) GTEST_SKIP() << "no mount namespaces here";
    const std::string place = (folder / "place");
    fs::create_directories(place);
    const Finished full =
        Running::shell(folder.path(), in_namespace("mount -t tmpfs -o size=8k none " + place +
                                                       " && head -c 8192 "
                                                       "/dev/zero > " +
                                                       place + "/all 2> /dev/null",
                                                   mpirun_of(3) +
                                                       "\"$TSDIAG\" check devil.eq59 "
                                                       "tse.prop2.3 --trials 20 -q --out " +
                                                       place + "/out"))
            .wait();
    EXPECT_EQ(full.code, 1) << full.err;
    expect_one_sentence(own_lines(full.err));
    EXPECT_THAT(full.err, HasSubstr("No space left"));
}

/// Lets a process be `seconds` ahead of the others, and of the file system.
std::string clock(const char* seconds) {
    return "LD_PRELOAD=" + fault_shim() + " TSDIAG_CLOCK=" + seconds + " ";
}

TEST_F(Ranks, OfOtherClocksGiveTheSameAndSweepNothing) {
    if (fault_shim().empty()) GTEST_SKIP() << "nothing is preloaded under sanitizers";
    // Units of other settings, with which somebody may go on.
    ASSERT_EQ(
        tsdiag(folder, with(figure_words("4"), {"--seed", "9", "--out", "out", "--part", "1/2"}))
            .code,
        0);
    const fs::path others = units_folder(folder / "out/tse.fig2");
    ASSERT_TRUE(fs::exists(others));
    ASSERT_EQ(tsdiag(folder, with(figure_words("4"), {"--out", "alone"})).code, 0);
    const std::string command =
        "exec \"$TSDIAG\"" + quoted(with(figure_words("4"), {"--out", folder / "out"}));
    const Finished done =
        unlike_ranks(folder, {clock("40000000") + command, clock("-40000000") + command, command});
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_EQ(tables(folder / "out"), tables(folder / "alone"));
    EXPECT_TRUE(fs::exists(others));
    EXPECT_FALSE(names_in(others).empty());
}

/// Another build, which may compute other digits: this one with another commit in its bytes.
TEST_F(Ranks, OfOtherVersionsAreRefused) {
    std::string bytes = read_file(program_file());
    const std::string said = tsdiag(folder, {"--version"}).out, before = "(commit ";
    const std::size_t begin = said.find(before) + before.size();
    const std::string commit = said.substr(begin, said.find(',', begin) - begin);
    std::string other = commit;
    other[0] = other[0] == '9' ? '8' : '9';
    std::size_t found = 0;
    for (std::size_t at = 0; (at = bytes.find(commit, at)) != std::string::npos; ++found)
        bytes.replace(at, commit.size(), other);
    ASSERT_GT(found, 0U) << commit;
    write_file(folder / "tsdiag", bytes);
    fs::permissions(folder / "tsdiag", fs::perms::owner_all);
    const std::string words = " check devil.eq59 --trials 20 -q --out " + (folder / "out");
    const std::string library =
        "TSDIAG_MPI_PLUGIN='" +
        (fs::path(program_file()).parent_path() / "libtsdiag_mpi.so").string() + "' ";
    const Finished done = unlike_ranks(
        folder, {"exec \"$TSDIAG\"" + words, library + "exec " + (folder / "tsdiag") + words});
    EXPECT_EQ(done.code, 2) << done.err;
    expect_one_sentence(own_lines(done.err));
    EXPECT_THAT(done.err, HasSubstr("ranks 0 and 1 have different versions"));
    EXPECT_FALSE(fs::exists(folder / "out"));
}

/// One of the ranks that compute a sequence together runs out of memory, wherever it is.
TEST_F(Ranks, OfASequenceFailTogether) {
    if (!memory_is_its_own) GTEST_SKIP() << "a sanitizer needs all addresses";
    const std::string command =
        "exec \"$TSDIAG\" probe random:post-norm,layers=2,d=64,heads=4 --tokens 3000 --no-report "
        "--probes core,entropy --threads 1 -q --out " +
        (folder / "out");
    int failures = 0;
    for (int megabytes = 300; megabytes <= 1000; megabytes += 50) {
        const Finished done = unlike_ranks(
            folder, {command, "ulimit -v " + std::to_string(megabytes << 10) + "\n" + command});
        if (done.code == 0) break;
        // MPI ends by itself where it gets no shared memory.
        if (done.err.find("shared memory initialization") != std::string::npos) continue;
        ++failures;
        EXPECT_EQ(done.code, 1) << megabytes << " MB: " << done.err;
        expect_one_sentence(own_lines(done.err));
        EXPECT_THAT(done.err, HasSubstr("tsdiag: rank 1: out of memory")) << megabytes << " MB";
        EXPECT_FALSE(fs::exists(folder / "out"));
    }
    EXPECT_GT(failures, 0);
}

/// Locales of ranks leave no trace.
TEST_F(Ranks, OfOtherLocalesGiveTheSame) {
    const std::string words = " check devil.eq59 tse.prop2.3 --trials 20 -q --out ";
    const std::string out = (folder / "out"), alone = (folder / "alone");
    ASSERT_EQ(Running::shell(folder.path(), "\"$TSDIAG\"" + words + alone).wait().code, 0);
    const Finished done = unlike_ranks(
        folder,
        {"exec \"$TSDIAG\"" + words + out,
         "LC_ALL=de_DE.UTF-8 LANG=tr_TR.UTF-8 TZ=Pacific/Auckland exec \"$TSDIAG\"" + words + out});
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_EQ(tables(out), tables(alone));
}

#ifdef TSDIAG_EMULATED_PLUGIN
/// Ranks of one machine take its devices in turn.
TEST_F(Ranks, HaveADeviceEach) {
    const std::string probe =
        " probe random:pre-norm,layers=1,d=8,heads=2 --tokens 12 --samples 3 --no-report -q "
        "--device cuda --out ";
    const std::string plugin = "TSDIAG_CUDA_PLUGIN=" + emulated_plugin() + " ";
    const auto line = [&](const char* devices, const std::string& out) {
        return plugin + "CUDA_VISIBLE_DEVICES=0,1 TSDIAG_EMULATED_DEVICES=" + devices +
               " exec \"$TSDIAG\"" + probe + (folder / out);
    };
    ASSERT_EQ(Running::shell(folder.path(), line("9.0,9.0", "alone")).wait().code, 0);
    const std::string both = line("9.0,9.0", "out");
    const Finished done = unlike_ranks(folder, {both, both});
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_EQ(tables(folder / "out"), tables(folder / "alone"));
    const std::string second = line("9.0,7.5", "broken");  // an old device is the second rank's
    const Finished old = unlike_ranks(folder, {second, second});
    EXPECT_EQ(old.code, 3) << old.err;
    expect_one_sentence(own_lines(old.err));
    EXPECT_THAT(old.err, HasSubstr("rank 1: "));
    EXPECT_THAT(old.err, HasSubstr("compute capability 7.5"));
}
#endif

TEST_F(Ranks, RunWhatIsNotSplitOnTheFirst) {
    const Finished done = ranks(folder, 3, {"list", "random"});
    EXPECT_EQ(done.code, 0);
    EXPECT_EQ(done.out, tsdiag(folder, {"list", "random"}).out);
    EXPECT_THAT(done.err, HasSubstr("list is not split; it runs on rank 0 of 3"));
}

TEST_F(Ranks, OfAnotherMpiAreToldTo) {
    // Several processes by their environment, of which MPI knows nothing.
    const Words words = {"check", "devil.eq59", "-q"};
    for (const std::string rank : {"0", "1"}) {
        const Finished done = tsdiag(folder, words, {"PMI_SIZE=2", "PMI_RANK=" + rank});
        EXPECT_EQ(done.code, 3) << done.err;
        if (rank == "0") {
            expect_one_sentence(own_lines(done.err));
            EXPECT_THAT(done.err, HasSubstr("--part"));
        } else {
            EXPECT_EQ(own_lines(done.err), "");
        }
    }
}

TEST(Launched, WithoutTheLibraryOfMpiSaysSo) {
    TemporaryDirectory folder;
    const Finished done =
        tsdiag(folder, {"check", "devil.eq59", "-q"},
               {"SLURM_STEP_NUM_TASKS=2", "SLURM_PROCID=0", "TSDIAG_MPI_PLUGIN=/nowhere.so"});
    EXPECT_EQ(done.code, 3);
    expect_one_sentence(done.err);
    EXPECT_THAT(done.err, HasSubstr("--part i/N"));
}

TEST(Parts, OfOtherInstructionSetsAreNotMergedUnasked) {
    const Words words = {"check", "tse.lemma2.4", "tse.prop2.3", "--trials",
                         "20",    "-q",           "--out",       "out"};
    for (const bool mixed : {false, true}) {
        TemporaryDirectory folder;
        const Words all = mixed ? with(words, {"--mixed"}) : words;
        tsdiag(folder, with(all, {"--part", "1/2"}), {"TSDIAG_ISA=base"});
        tsdiag(folder, with(all, {"--part", "2/2"}));
        const bool one_set = tsdiag(folder, {"info"}).out.find("base kernels") != std::string::npos;
        const Finished merged = tsdiag(folder, {"merge", "out"});
        EXPECT_EQ(merged.code, mixed || one_set ? 0 : 1) << merged.err;
        if (merged.code != 0) {
            expect_one_sentence(merged.err);
            EXPECT_THAT(merged.err, HasSubstr("--mixed"));
        }
    }
}

/// Units of another model, seed or directory are not merged, and a merge computes nothing itself.
TEST(Parts, OfAnotherModelOrPlaceAreNotMerged) {
    TemporaryDirectory folder;
    const auto draw = [&](const char* seed) {
        ASSERT_EQ(tsdiag(folder, {"init", "random:gpt2,layers=1,d=8,heads=2,vocab=11,tokens=8",
                                  "-o", "model", "--seed", seed, "--force"})
                      .code,
                  0);
    };
    draw("1");
    const Words words = {"probe", "model", "--samples", "2", "--no-report", "-q", "--out", "out"};
    for (const char* part : {"1/2", "2/2"})
        ASSERT_EQ(tsdiag(folder, with(words, {"--part", part})).code, 0);
    std::filesystem::create_directory(folder.path() / "elsewhere");
    const Finished elsewhere =
        Running::shell(folder.path(), "cd elsewhere && \"$TSDIAG\" merge ../out").wait();
    EXPECT_EQ(elsewhere.code, 2);
    EXPECT_THAT(elsewhere.err, HasSubstr("expected merge to run there"));
    draw("2");  // the same names and sizes
    const Finished merged = tsdiag(folder, {"merge", "out"});
    EXPECT_EQ(merged.code, 1) << merged.out;
    EXPECT_THAT(merged.err, HasSubstr("missing"));
    EXPECT_FALSE(std::filesystem::exists(folder.path() / "out" / "metrics.csv"));
    draw("1");
    EXPECT_EQ(tsdiag(folder, {"merge", "out"}).code, 0);
}

TEST(Parts, InvalidOnesAreRefused) {
    TemporaryDirectory folder;
    for (const char* part : {"0/2", "3/2", "1", "1/2/3", "a/b", "1/0", "-1/2", "1/99999999999"}) {
        const Finished done =
            tsdiag(folder, {"check", "devil.eq59", "--out", "out", "--part", part});
        EXPECT_EQ(done.code, 2) << part;
        expect_one_sentence(done.err);
    }
    const Finished nowhere = tsdiag(folder, {"check", "devil.eq59", "--part", "1/2"});
    EXPECT_EQ(nowhere.code, 2);
    EXPECT_THAT(nowhere.err, HasSubstr("--out"));
    const Finished nothing = tsdiag(folder, {"merge", "out"});
    EXPECT_EQ(nothing.code, 1);
    expect_one_sentence(nothing.err);
    EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(Status, TellsWhatPartsHaveDone) {
    TemporaryDirectory folder;
    EXPECT_THAT(tsdiag(folder, {"status", "out"}).out, HasSubstr("no command is under way"));
    tsdiag(folder, with(figure_words("4"), {"--out", "out", "--part", "1/2"}));
    const Finished status = tsdiag(folder, {"status", "out"});
    EXPECT_EQ(status.code, 0);
    EXPECT_THAT(status.out, HasSubstr("2 of 4 units"));
    EXPECT_THAT(status.out, HasSubstr("figure tse.fig2"));
    EXPECT_THAT(status.out, HasSubstr("done"));
    EXPECT_THAT(tsdiag(folder, {"status", "out", "--json"}).out, HasSubstr("\"done\": 2"));
}

TEST(Submit, ShowsTheScriptAndRefusesWhatIsNotSplit) {
    TemporaryDirectory folder;
    const Finished shown = tsdiag(folder, {"submit", "--dry-run", "--nodes", "8", "--time",
                                           "2:00:00", "figure", "tse.fig3", "--out", "f"});
    EXPECT_EQ(shown.code, 0) << shown.err;
    EXPECT_THAT(shown.out, HasSubstr("#SBATCH --nodes=8\n"));
    EXPECT_THAT(shown.out, HasSubstr("figure tse.fig3 --out f\n"));
    const Finished as_json =
        tsdiag(folder, {"submit", "--dry-run", "--json", "check", "--out", "o"});
    EXPECT_EQ(as_json.code, 0) << as_json.err;  // a flag takes no word of the command
    EXPECT_THAT(as_json.out, HasSubstr("check --out o"));
    EXPECT_TRUE(names_in(folder.path()).empty());
    for (const Words& words :
         {Words{"submit"}, Words{"submit", "list", "random"},
          Words{"submit", "--dry-run", "figure", "--list", "--out", "o"},
          Words{"submit", "check", "--no-such-option"},
          Words{"submit", "--nodes", "0", "check", "--out", "o"}, Words{"submit", "check"},
          Words{"submit", "--array", "4", "--nodes", "2", "check", "--out", "o"},
          Words{"submit", "--array", "4", "--ranks", "2", "check", "--out", "o"}}) {
        const Finished refused = tsdiag(folder, words);
        EXPECT_EQ(refused.code, 2) << testing::PrintToString(words);
        expect_one_sentence(refused.err);
    }
}

}  // namespace
}  // namespace tsdiag::test
