#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "program.hpp"
#include "tsdiag/json.hpp"
#include "tsdiag/output.hpp"

namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

class Compare : public testing::Test {
  protected:
    void probe(const std::string& model, const std::string& out,
               const std::vector<std::string>& more = {}) {
        std::vector<std::string> words = {"probe",       model, "--tokens", "8",
                                          "-o",          out,   "--probes", "t_sim,t_div,delta,fro",
                                          "--no-report", "-q"};
        words.insert(words.end(), more.begin(), more.end());
        const Finished done = tsdiag(folder, words);
        ASSERT_EQ(done.code, 0) << done.err;
    }
    void probe_two(const std::string& samples = "16") {
        probe("random:post-norm,d=16,heads=2,layers=4", "before", {"--samples", samples});
        probe("random:pre-norm,d=16,heads=2,layers=4", "after", {"--samples", samples});
    }
    Finished compare(std::vector<std::string> words) {
        words.insert(words.begin(), "compare");
        return tsdiag(folder, std::move(words));
    }
    Json json(std::vector<std::string> words) {
        words.emplace_back("--json");
        const Finished done = compare(std::move(words));
        EXPECT_EQ(done.code, 0) << done.err;
        return Json::parse(done.out, "stdout");
    }
    /// Changes a file and makes its digest in run.json that of the new content.
    void replace_table(const std::string& result, const std::string& from, const std::string& to) {
        const fs::path table = folder / (result + "/metrics.csv"),
                       run = folder / (result + "/run.json");
        std::string text = read_file(table), described = read_file(run);
        const std::string before = *sha256_of(table);
        ASSERT_NE(text.find(from), std::string::npos);
        std::ofstream(table) << text.replace(text.find(from), from.size(), to);
        described.replace(described.find(before), before.size(), *sha256_of(table));
        std::ofstream(run) << described;
    }
    /// As a run of an earlier version, which did not tell its inputs apart.
    void forget_inputs(const std::string& result) {
        const fs::path file = folder / (result + "/run.json");
        std::string run = read_file(file);
        const std::size_t at = run.find("\"digest\": \""), end = run.find(",\n", at);
        ASSERT_NE(end, std::string::npos);
        std::ofstream(file) << run.erase(at, end + 2 - at);
    }
    TemporaryDirectory folder;
};

TEST_F(Compare, OfDrawnModelsThatProbeIsGiven) {
    const std::string a = "random:post-norm,d=16,heads=2,layers=4",
                      b = "random:pre-norm,d=16,heads=2,layers=4";
    const std::vector<std::string> words = {
        "probe", a, b, "--tokens", "8", "--trials", "8", "--probes", "t_sim,t_div,delta,fro"};
    const Finished done = tsdiag(folder, words);
    ASSERT_EQ(done.code, 0) << done.err;
    EXPECT_THAT(done.out, HasSubstr("drawn.tsdiag/comparison/report.html"));
    const std::vector<std::string> results = {"A-random-post-norm", "B-random-pre-norm"};
    const fs::path drawn = folder / "drawn.tsdiag";
    for (const std::string& result : results)
        EXPECT_TRUE(fs::exists(drawn / result / "report.html"));
    EXPECT_TRUE(fs::exists(drawn / "comparison/report.html"));
    // The numbers are those of each model alone, the differences those of `compare`.
    probe(a, "alone", {"--trials", "8"});
    EXPECT_EQ(read_file(drawn / results[0] / "metrics.csv"),
              read_file(folder / "alone/metrics.csv"));
    const Json compared = json({"drawn.tsdiag/" + results[0], "drawn.tsdiag/" + results[1]});
    const Json kept = Json::parse(read_file(drawn / "comparison/run.json"), "run.json");
    EXPECT_EQ(kept["differences"].dump(), compared["differences"].dump());
    // Again, over its own results, as JSON.
    const Finished again = tsdiag(folder, with(words, {"--json"}));
    ASSERT_EQ(again.code, 0) << again.err;
    const Json printed = Json::parse(again.out, "stdout");
    EXPECT_EQ(printed["output"].string(), "compare");
    EXPECT_EQ(printed["compared"].array().size(), 2u);
    EXPECT_EQ(printed["out"].string(), "drawn.tsdiag/comparison");
    EXPECT_EQ(tsdiag(folder, with(words, {"--part", "1/2"})).code, 2);
}

TEST_F(Compare, OfDrawnModelsRefusesBeforeItMeasures) {
    const std::vector<std::string> more = {"--tokens", "8", "-o", "out", "--no-report"};
    const std::string a = "random:post-norm,d=16,heads=2,layers=2";
    const Finished unknown = tsdiag(folder, with({"probe", a, "random:nothing"}, more));
    EXPECT_EQ(unknown.code, 2);
    EXPECT_THAT(unknown.err, HasSubstr("random:nothing: unknown model"));
    EXPECT_FALSE(fs::exists(folder / "out"));
    fs::create_directories(folder / "out/B-random-pre-norm");
    write_file(folder / "out/B-random-pre-norm/mine", "");
    const Finished foreign = tsdiag(folder, with({"probe", a, "random:pre-norm"}, more));
    EXPECT_EQ(foreign.code, 2);
    EXPECT_THAT(foreign.err, HasSubstr("mine, which tsdiag did not write"));
    EXPECT_FALSE(fs::exists(folder / "out/A-random-post-norm/run.json"));
}

TEST_F(Compare, OfDrawnModelsDrawsAllPagesAsAsked) {
    const Finished done = tsdiag(folder, {"probe", "random:post-norm,d=16,heads=2,layers=2",
                                          "random:pre-norm,d=16,heads=2,layers=2", "--tokens", "8",
                                          "--probes", "t_sim", "--figure-width", "3.25in", "-q"});
    ASSERT_EQ(done.code, 0) << done.err;
    if (done.err.find("gnuplot") != std::string::npos) GTEST_SKIP() << "gnuplot is not installed";
    for (const char* figure :
         {"A-random-post-norm/figures/similarity.svg", "comparison/figures/courses.svg"})
        EXPECT_THAT(read_file(folder / ("drawn.tsdiag/" + std::string(figure))),
                    HasSubstr("width=\"312\""))
            << figure;
}

TEST_F(Compare, APageSaysWhatWasNotTestedAndWhatIsNotShown) {
    const std::vector<std::string> draws = {"post-norm", "pre-norm", "gpt2"};
    for (const std::string& draw : draws)
        ASSERT_EQ(tsdiag(folder, {"probe", "random:" + draw + ",d=16,heads=2,layers=2", "--tokens",
                                  "8", "--out", draw, "--no-report", "-q"})
                      .code,
                  0);
    EXPECT_EQ(compare({"post-norm", "pre-norm", "gpt2", "--out", "compared"}).code, 0);
    const std::string page = read_file(folder / "compared/report.html");
    const std::size_t begin = page.find("aria-label=\"Changes by metric\"");
    ASSERT_NE(begin, std::string::npos);
    const std::string table = page.substr(begin, page.find("</table>", begin) - begin);
    EXPECT_THAT(table, HasSubstr(" are shown; compare.csv has all."));
    EXPECT_THAT(table, testing::Not(HasSubstr("significant")));  // of one sample each
    EXPECT_THAT(page, HasSubstr("cannot be tested"));
}

TEST_F(Compare, PairsTheSamplesOfTheSameInputs) {
    probe_two("6");
    const Json paired = json({"before", "after"});
    EXPECT_GT(paired["tested"].integer(), 0);
    EXPECT_EQ(paired["paired"].integer(), paired["tested"].integer());
    EXPECT_THAT(paired["remarks"].array().at(0).string(), StartsWith("Paired test"));
    EXPECT_THAT(compare({"before", "after"}).out,
                testing::AnyOf(HasSubstr(" \u00b1 "), HasSubstr(" +- ")));  // by the locale
    ASSERT_EQ(compare({"before", "after", "--out", "compared"}).code, 0);
    EXPECT_THAT(read_file(folder / "compared/report.html"), HasSubstr("Paired test"));
    forget_inputs("after");
    const Json unpaired = json({"before", "after"});
    EXPECT_EQ(unpaired["paired"].integer(), 0);
    EXPECT_THAT(unpaired["remarks"].array().at(0).string(),
                HasSubstr("the inputs are not known to be the same"));
    // The error of pairs is at most the sum of both: the triangle inequality, up to rounding.
    std::map<std::string, double> bounds;
    for (const Json& row : unpaired["differences"].array())
        if (row["stderr"].is_number()) bounds[row["where"].string()] = row["stderr"].number();
    for (const Json& row : paired["differences"].array())
        if (row["stderr"].is_number() && bounds.contains(row["where"].string())) {
            const double bound = bounds[row["where"].string()] * (1 + 1e-9) + 1e-12;
            EXPECT_LE(row["stderr"].number(), bound) << row.dump();
        }
    // Other inputs are no pairs.
    probe("random:pre-norm,d=16,heads=2,layers=4", "other", {"--samples", "6", "--seed", "1"});
    EXPECT_EQ(json({"before", "other"})["paired"].integer(), 0);
    // Samples of one trial share its weights: pairs are of trials.
    for (const char* model : {"post-norm", "pre-norm"})
        probe(std::string("random:") + model + ",d=16,heads=2,layers=2",
              std::string("trials-") + model, {"--samples", "2", "--trials", "4"});
    int paired_by_trials = 0;
    const Json of_trials = json({"trials-post-norm", "trials-pre-norm"});
    for (const Json& row : of_trials["differences"].array())
        if (row["pairs"].integer() > 0) {
            EXPECT_EQ(row["pairs"].integer(), 4) << row.dump();
            EXPECT_EQ(row["freedom"].number(), 3) << row.dump();
            ++paired_by_trials;
        }
    EXPECT_GT(paired_by_trials, 0);
}

TEST_F(Compare, PairsCheckpointsOfASeries) {
    for (const char* step : {"1", "2"})
        ASSERT_EQ(tsdiag(folder, {"init", "random:gpt2,layers=2,d=8,heads=2,vocab=11,tokens=8",
                                  "--seed", step, "-o", std::string("run/checkpoint-") + step})
                      .code,
                  0);
    const Finished probed = tsdiag(folder, {"probe", "run", "--samples", "4", "--probes",
                                            "t_sim,fro", "--no-report", "-o", "result", "-q"});
    ASSERT_EQ(probed.code, 0) << probed.err;
    const Json steps = json({"result@1", "result"});
    EXPECT_GT(steps["tested"].integer(), 0);
    EXPECT_EQ(steps["paired"].integer(), steps["tested"].integer());
    fs::remove_all(folder / "result/checkpoints/1");
    const Json rest = json({"result@1", "result"});
    EXPECT_GT(rest["tested"].integer(), 0);
    EXPECT_EQ(rest["paired"].integer(), 0);
}

TEST_F(Compare, APageNamesTheCheckpointOfEachStepAndSaysWhatIsEqual) {
    for (const char* step : {"1", "2"})
        ASSERT_EQ(tsdiag(folder, {"init", "random:gpt2,layers=2,d=8,heads=2,vocab=11,tokens=8",
                                  "--seed", step, "-o", std::string("run/checkpoint-") + step})
                      .code,
                  0);
    const Finished probed =
        tsdiag(folder, {"probe", "run", "--samples", "4", "--probes", "t_sim,fro,neg_mass,est1",
                        "--no-report", "-o", "result", "-q"});
    ASSERT_EQ(probed.code, 0) << probed.err;
    const Finished done = compare({"result@1", "result", "--out", "compared"});
    ASSERT_EQ(done.code, 0) << done.err;
    EXPECT_THAT(done.out, HasSubstr("- 2 numbers are equal.\n"));  // neg_mass is 0
    EXPECT_THAT(done.out, HasSubstr("- 2 numbers are undefined in both.\n"));
    const std::string page = read_file(folder / "compared/report.html");
    EXPECT_THAT(page, HasSubstr("result@1 (run/checkpoint-1, step 1)"));
    EXPECT_THAT(page, HasSubstr("result (run/checkpoint-2, step 2)"));
    for (const char* outcome : {"<td>equal</td>", "<td>undefined</td>"})
        EXPECT_THAT(page, HasSubstr(outcome));
    EXPECT_THAT(page, testing::Not(HasSubstr("<td>not tested</td>")));
    // Of the same result everything is equal, which is said once.
    const Finished same = compare({"result", "result@2"});
    EXPECT_THAT(same.out, StartsWith("No change: 34 numbers are equal.\n"
                                     "- 2 numbers are undefined in both.\n"));
}

TEST_F(Compare, ThePageOfAResultNamesTheTableOfItsSamples) {
    for (const char* samples : {"1", "2"}) {
        const fs::path page = folder / (std::string(samples) + "/report.html");
        ASSERT_EQ(tsdiag(folder, {"probe", "random:post-norm,d=8,heads=2,layers=1", "--tokens", "4",
                                  "--probes", "t_sim", "--samples", samples, "-q", "-o", samples})
                      .code,
                  0);
        const std::string drawn = read_file(page);
        EXPECT_EQ(drawn.find("href=\"samples.csv\"") != std::string::npos, *samples == '2');
        ASSERT_EQ(tsdiag(folder, {"report", samples}).code, 0);
        EXPECT_TRUE(read_file(page) == drawn) << samples;
    }
}

/// The columns of samples.csv behind those that name a row, by row.
std::map<std::string, std::vector<double>> samples_of(const fs::path& result) {
    std::map<std::string, std::vector<double>> out;
    std::istringstream lines(read_file(result / "samples.csv"));
    std::string line;
    for (std::getline(lines, line); std::getline(lines, line);) {
        std::istringstream cells(line);
        std::string name, cell;
        for (int i = 0; i < 4 && std::getline(cells, cell, ','); ++i) name += cell + ",";
        while (std::getline(cells, cell, ',')) out[name].push_back(std::stod(cell));
    }
    return out;
}

TEST_F(Compare, AColumnIsASampleWhateverIsComputedBesideIt) {
    const auto gradients = [&](const std::string& out, const std::vector<std::string>& more) {
        const Finished done = tsdiag(
            folder,
            with({"probe", "random:gpt2,layers=2,d=16,heads=2,vocab=11", "--tokens", "8", "--loss",
                  "lm", "--probes", "t_sim,grad_norm", "--no-report", "-q", "-o", out},
                 more));
        ASSERT_EQ(done.code, 0) << done.err;
    };
    gradients("five", {"--samples", "5"});
    gradients("two", {"--samples", "2"});
    const auto all = samples_of(folder / "five"), first = samples_of(folder / "two");
    ASSERT_GT(first.size(), 4u);
    for (const auto& [row, values] : first) {
        ASSERT_EQ(values.size(), 2u) << row;
        for (std::size_t i = 0; i < 2; ++i)
            // On a processor no number depends on how many samples go together (docs/metrics.md).
            EXPECT_EQ(values[i], all.at(row).at(i)) << row;
    }
    gradients("slowly", {"--samples", "5", "--batch", "1"});
    EXPECT_EQ(read_file(folder / "five/samples.csv"), read_file(folder / "slowly/samples.csv"));
    gradients("one", {"--samples", "1"});
    EXPECT_FALSE(fs::exists(folder / "one/samples.csv"));
}

TEST_F(Compare, SaysFirstWhatBecomesOfTheTokensAndWritesAPage) {
    probe_two();
    forget_inputs("before");
    const Finished done = compare({"before", "after", "--out", "compared"});
    EXPECT_EQ(done.code, 0) << done.err;
    const Json found = json({"before", "after"});
    const std::int64_t significant = found["significant"].integer(),
                       tested = found["tested"].integer();
    EXPECT_GT(significant, 0);
    EXPECT_LE(significant, tested);
    std::string flat = done.out;
    std::ranges::replace(flat, '\n', ' ');
    EXPECT_THAT(flat, StartsWith("after: final t_sim "));
    EXPECT_THAT(flat, HasSubstr(", within scatter ("));
    EXPECT_THAT(flat, HasSubstr(" % CI "));
    EXPECT_THAT(flat, HasSubstr("; the surest: fro@out:"));
    EXPECT_THAT(flat, HasSubstr(". " + std::to_string(significant) + " of " +
                                std::to_string(tested) + " numbers changed significantly "));
    EXPECT_THAT(flat, HasSubstr("Unpaired, conservative test"));
    for (const char* file : {"compare.csv", "run.json", "report.html", "files.sha256"})
        EXPECT_TRUE(fs::exists(folder / ("compared/" + std::string(file)))) << file;
    const std::string page = read_file(folder / "compared/report.html");
    EXPECT_THAT(page, HasSubstr("id=\"courses\""));
    EXPECT_THAT(page, HasSubstr("id=\"changes\""));
    const std::string csv = read_file(folder / "compared/compare.csv");
    EXPECT_EQ(std::size_t(std::count(csv.begin(), csv.end(), '\n')),
              1 + found["differences"].array().size());
    // The intervals of significant changes, and only those, exclude 0; they come first.
    std::int64_t at = 0;
    for (const Json& row : found["differences"].array()) {
        EXPECT_EQ(row["outcome"].string() == "significant", at++ < significant);
        const bool excludes =
            row["low"].is_number() && (row["low"].number() > 0 || row["high"].number() < 0);
        EXPECT_EQ(excludes, at <= significant);
    }
    const Finished report = tsdiag(folder, {"report", "compared"});
    EXPECT_EQ(report.code, 1);
    expect_one_sentence(report.err);
    EXPECT_THAT(report.err, HasSubstr("is a comparison"));
    EXPECT_EQ(compare({"before", "after", "--out", "compared"}).code, 0);  // takes its place
}

TEST_F(Compare, FindsNothingInTheSameResultAndTestsNothingOfOneSample) {
    probe_two("1");
    EXPECT_THAT(compare({"before", "before"}).out, StartsWith("No change: "));
    const Finished one = compare({"before", "after"});
    EXPECT_EQ(one.code, 0);
    std::string flat = one.out;
    std::ranges::replace(flat, '\n', ' ');
    EXPECT_THAT(flat, HasSubstr("numbers differ, untested."));
    EXPECT_THAT(flat, HasSubstr("a result has one sample only"));
    EXPECT_EQ(json({"before", "after"})["tested"].integer(), 0);
}

TEST_F(Compare, TakesStepsLayersAndHeads) {
    const Finished trained =
        tsdiag(folder, {"train", "random:gpt2,layers=2,d=16,heads=2", "--data", "copy", "--tokens",
                        "9", "--steps", "4", "--probe-every", "2", "-o", "run", "-q"});
    ASSERT_EQ(trained.code, 0) << trained.err;
    const Json steps = json({"run@2", "run"});
    EXPECT_EQ(steps["compared"].array()[0]["step"].integer(), 2);
    EXPECT_EQ(steps["compared"].array()[1]["step"].integer(), 4);
    const Json layers = json({"run:0", "run:last", "--metrics", "t_sim,delta"});
    for (const Json& row : layers["differences"].array())
        EXPECT_TRUE(row["layer"].is_null()) << row.dump();
    const Json heads = json({"run:0.0", "run:0.1", "--metrics", "delta"});
    EXPECT_EQ(heads["differences"].array().size(), 1U);
    EXPECT_EQ(json({"run@2", "run@4", "--heads", "all", "--layers", "1", "--metrics",
                    "delta"})["differences"]
                  .array()
                  .size(),
              2U);
    const Finished missing = compare({"run@3", "run"});
    EXPECT_EQ(missing.code, 1);
    expect_one_sentence(missing.err);
    EXPECT_THAT(missing.err, HasSubstr("has no row of step 3; its last step is 4"));
    fs::rename(folder / "run", folder / "run@7");  // a folder's name comes first
    EXPECT_EQ(compare({"run@7", "run@7@2"}).code, 0);
}

TEST_F(Compare, AssertionsFailWithExitCodeFour) {
    probe_two();
    const Finished holds =
        compare({"before", "--assert", "t_sim@out:last < 1", "--assert", "t_sim@out:0 > -1"});
    EXPECT_EQ(holds.code, 0) << holds.err;
    EXPECT_THAT(holds.out, HasSubstr("t_sim@out:last < 1 holds for before: it is "));
    const Finished fails =
        compare({"before", "--assert", "t_sim@out:last < 1", "--assert", "t_sim@out:max < 0"});
    EXPECT_EQ(fails.code, 4);
    EXPECT_THAT(fails.out, HasSubstr("t_sim@out:max < 0 fails for before: it is "));
    const Finished quiet = compare({"before", "--assert", "t_sim@out:max < 0", "-q"});
    EXPECT_EQ(quiet.code, 4);
    EXPECT_EQ(quiet.out, "");
    expect_one_sentence(quiet.err);
    const Finished undefined = compare({"before", "--assert", "t_sim@out:9 < 1"});
    EXPECT_EQ(undefined.code, 4);
    EXPECT_THAT(undefined.out, HasSubstr("not measured in layer 9, but in 0"));
    EXPECT_EQ(compare({"before", "after", "--assert", "B-A: t_sim@out:last < 1"}).code, 0);
    EXPECT_EQ(compare({"before", "after", "--assert", "B-A: t_sim@out:last > 1"}).code, 4);
    const Finished unknown = compare({"before", "--assert", "t_simm@out:last < 1"});
    EXPECT_EQ(unknown.code, 2);
    EXPECT_THAT(unknown.err, HasSubstr("did you mean t_sim?"));
}

TEST_F(Compare, APageSaysWhenEachResultWasMeasuredWhereItIsKnown) {
    probe_two("3");
    const fs::path file = folder / "before/run.json";
    const std::string run = read_file(file);
    const std::size_t at = run.find("  \"measured\": {"), end = run.find("},\n", at);
    ASSERT_NE(end, std::string::npos);
    std::ofstream(file) << run.substr(0, at) + run.substr(end + 3);  // of an earlier version
    EXPECT_EQ(compare({"before", "after", "--out", "compared"}).code, 0);
    const std::string page = read_file(folder / "compared/report.html");
    EXPECT_THAT(page, HasSubstr("layers=4), computed with "));
    EXPECT_THAT(page, HasSubstr("layers=4), measured 2026-01-01"));
}

TEST_F(Compare, NotesWhatElseDiffers) {
    probe("random:post-norm,d=16,heads=2,layers=4", "a", {"--samples", "2"});
    probe("random:post-norm,d=16,heads=2,layers=3", "b", {"--samples", "3", "--seed", "1"});
    const Finished done = compare({"a", "b"});
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_THAT(done.out, HasSubstr("! The inputs differ"));
    EXPECT_THAT(done.out, HasSubstr("! a has 4 layers, b has 3 layers"));
}

TEST_F(Compare, RefusesWhatItCannotCompareInOneSentence) {
    probe_two();
    const auto refused = [&](std::vector<std::string> words, int code, const char* why) {
        const Finished done = compare(std::move(words));
        EXPECT_EQ(done.code, code) << why;
        EXPECT_EQ(done.out, "");
        expect_one_sentence(done.err);
        EXPECT_THAT(done.err, HasSubstr(why));
    };
    refused({"before"}, 2, "needs a second result");
    refused({"before", "absent"}, 1, "absent: is not a directory");
    refused({"before", "after:x"}, 2, "expected a folder, or DIR@STEP");
    refused({"before:0", "after:4"}, 1, "after:4: has no row there; its last layer is 3.");
    refused({"before:0.0", "after:0.2"}, 1,
            "after:0.2: has no row of that head; the last of layer 0 is 1.");
    refused({"before", "after", "--metrics", "tsim"}, 2, "'tsim' is not a metric");
    refused({"before", "after", "--layers", "9"}, 1, "nothing to compare");
    refused({"before", "after", "--fdr", "0"}, 2, "not between 0 and 1");
    refused({"before", "--assert", "t_sim:0 < 1", "--out", "x"}, 2, "needs two results");
    fs::create_directory(folder / "foreign");
    std::ofstream(folder / "foreign/mine.txt") << "mine";
    refused({"before", "after", "--out", "foreign"}, 2, "foreign");
    // A folder that holds results, or a model that was not measured.
    refused({"before", "foreign"}, 1,
            "foreign: has no run.json, expected a result of tsdiag; a model is measured with "
            "`tsdiag probe foreign`.");
    fs::copy(folder / "after", folder / "foreign/inner");
    refused({"before", "foreign"}, 1, "expected a result of tsdiag; it contains foreign/inner.");
    // A table that is not that of run.json.
    std::ofstream(folder / "after/metrics.csv", std::ios::app) << "x";
    refused({"before", "after"}, 1, "does not match its SHA-256");
}

TEST_F(Compare, HostileTablesAreRefused) {
    probe("random:post-norm,d=16,heads=2,layers=2", "a");
    const std::pair<const char*, const char*> edits[] = {
        {",t_sim,0", ",t_sim,nan"}, {",t_sim,0", ",t_sim,1e999"}, {",t_sim,0", ",t_sim,x"},
        {",,,1,,", ",,-1,1,,"},     {",,,1,,", ",,,-5,,"},        {",1,out,", ",0,out,"}};
    for (const auto& [from, to] : edits) {
        fs::remove_all(folder / "b");
        fs::copy(folder / "a", folder / "b", fs::copy_options::recursive);
        replace_table("b", from, to);
        const Finished done = compare({"a", "b"});
        EXPECT_EQ(done.code, 1) << to << done.out;
        expect_one_sentence(done.err);
    }
}

}  // namespace
}  // namespace tsdiag::test
