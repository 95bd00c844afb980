#include <gmock/gmock.h>

#include <map>
#include <random>

#include "program.hpp"
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

#ifdef TSDIAG_MPIRUN
constexpr const char* mpirun = TSDIAG_MPIRUN;
#else
constexpr const char* mpirun = nullptr;
#endif

Tables tables(const fs::path& out) {
    Tables found;
    for (const auto& entry : fs::recursive_directory_iterator(out))
        for (const char* ending : {".csv", ".npz"})
            if (entry.path().extension() == ending)
                found[fs::relative(entry.path(), out).string()] = read_file(entry.path());
    return found;
}

Words with(Words words, const Words& more) {
    words.insert(words.end(), more.begin(), more.end());
    return words;
}

std::string quoted(const Words& words) {
    std::string line;
    for (const std::string& word : words) line += " '" + word + "'";
    return line;
}

/// The command as so many ranks on this machine.
Finished ranks(const TemporaryDirectory& folder, int count, const Words& words) {
    const std::string line =
        std::string("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ") + mpirun +
        " --oversubscribe -n " + std::to_string(count) + " \"$TSDIAG\"" + quoted(words);
    return Running::shell(folder.path(), line).wait();
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

struct Work {
    std::string name;
    Words words;  ///< without --out
    void (*prepare)(const TemporaryDirectory& folder) = [](const TemporaryDirectory&) {};
};
std::ostream& operator<<(std::ostream& out, const Work& work) { return out << work.name; }

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

std::vector<Work> every_work() {
    std::vector<Work> all;
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

class EverySplitCommand : public testing::TestWithParam<Work> {
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
    for (const int parts : {1, 2, 3, 4, 7}) {
        const std::string out = "of" + std::to_string(parts);
        for (int part = parts; part >= 1; --part) {
            const Finished done = tsdiag(
                folder,
                with(GetParam().words,
                     {"--out", out, "--part", std::to_string(part) + "/" + std::to_string(parts)}));
            ASSERT_EQ(done.code, 0) << done.err;
        }
        const Finished merged = tsdiag(folder, {"merge", out});
        ASSERT_EQ(merged.code, 0) << merged.err;
        expect_the_same(out);
    }
}

TEST_P(EverySplitCommand, GoesOnWithTheUnitsOfOneOfItsParts) {
    tsdiag(folder, with(GetParam().words, {"--out", "out", "--part", "1/2"}));
    const Finished missing = tsdiag(folder, {"merge", "out"});
    EXPECT_EQ(missing.code, 2);
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
    if (!mpirun) GTEST_SKIP() << "no MPI";
    const Finished done = ranks(folder, 3, with(GetParam().words, {"--out", "out"}));
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_THAT(done.err, Not(HasSubstr("computed again")));
    expect_the_same("out");
}

INSTANTIATE_TEST_SUITE_P(Commands, EverySplitCommand, testing::ValuesIn(every_work()),
                         [](const auto& test) { return test.param.name; });

class Ranks : public testing::Test {
  protected:
    void SetUp() override {
        if (!mpirun) GTEST_SKIP() << "no MPI";
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
    const std::string base = std::string(
                                 "OMPI_ALLOW_RUN_AS_ROOT=1 "
                                 "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ") +
                             mpirun + " --oversubscribe ";
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
    const Words words = {"check", "devil.eq59", "tse.prop2.3", "--trials",
                         "20",    "-q",         "--out",       "out"};
    for (const bool mixed : {false, true}) {
        TemporaryDirectory folder;
        const Words all = mixed ? with(words, {"--mixed"}) : words;
        tsdiag(folder, with(all, {"--part", "1/2"}), {"TSDIAG_ISA=base"});
        tsdiag(folder, with(all, {"--part", "2/2"}));
        const bool one_set = tsdiag(folder, {"info"}).out.find("base kernels") != std::string::npos;
        const Finished merged = tsdiag(folder, {"merge", "out"});
        EXPECT_EQ(merged.code, mixed || one_set ? 0 : 2) << merged.err;
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
    EXPECT_EQ(merged.code, 2) << merged.out;
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
    EXPECT_EQ(nothing.code, 2);
    expect_one_sentence(nothing.err);
    EXPECT_TRUE(names_in(folder.path()).empty());
}

TEST(Status, TellsWhatPartsHaveDone) {
    TemporaryDirectory folder;
    EXPECT_THAT(tsdiag(folder, {"status", "out"}).out, HasSubstr("no command is under way"));
    tsdiag(folder, with(figure_words("4"), {"--out", "out", "--part", "1/2"}));
    const Finished told = tsdiag(folder, {"status", "out"});
    EXPECT_EQ(told.code, 0);
    EXPECT_THAT(told.out, HasSubstr("2 of 4 units"));
    EXPECT_THAT(told.out, HasSubstr("figure tse.fig2"));
    EXPECT_THAT(told.out, HasSubstr("done"));
    EXPECT_THAT(tsdiag(folder, {"status", "out", "--json"}).out, HasSubstr("\"done\": 2"));
}

TEST(Submit, ShowsTheScriptAndRefusesWhatIsNotSplit) {
    TemporaryDirectory folder;
    const Finished shown = tsdiag(folder, {"submit", "--dry-run", "--nodes", "8", "--time",
                                           "2:00:00", "figure", "tse.fig3", "--out", "f"});
    EXPECT_EQ(shown.code, 0) << shown.err;
    EXPECT_THAT(shown.out, HasSubstr("#SBATCH --nodes=8\n"));
    EXPECT_THAT(shown.out, HasSubstr("figure tse.fig3 --out f\n"));
    EXPECT_TRUE(names_in(folder.path()).empty());
    for (const Words& words :
         {Words{"submit"}, Words{"submit", "list", "random"},
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
