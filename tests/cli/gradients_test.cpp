#include <fmt/format.h>
#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <regex>
#include <sstream>
#include <tuple>

#include "program.hpp"
#include "tsdiag/json.hpp"
#include "tsdiag/output.hpp"
#include "tsdiag/table.hpp"

namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

/// Two logs of a stationary series; `spread` scales the variation.
void write_log(const std::string& file, double spread) {
    std::ofstream out(file);
    out << "step,grad_norm\n";
    for (int t = 0; t < 120; ++t) out << t << ',' << 1 + spread * std::sin(0.9 * t * t) << '\n';
}

TEST(Gradients, WritesTablesAndAPageThatReportMakesAgain) {
    const TemporaryDirectory folder;
    write_log(folder / "wide.csv", 0.5);
    write_log(folder / "narrow.csv", 0.1);
    const Finished done = tsdiag(folder, {"gradients", "wide.csv", "narrow.csv"});
    EXPECT_EQ(done.code, 0) << done.err;
    EXPECT_NE(done.out.find("wide.csv varies more than narrow.csv"), std::string::npos) << done.out;
    const std::string page = read_file(folder / "gradients.tsdiag/report.html");
    EXPECT_NE(page.find("gradient_ratio"), std::string::npos);
    const std::string metrics = read_file(folder / "gradients.tsdiag/metrics.csv");
    EXPECT_NE(metrics.find("wide.csv,,,,,grad_norm,grad_rsd,"), std::string::npos);
    const Finished again = tsdiag(folder, {"report", "gradients.tsdiag"});
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_EQ(read_file(folder / "gradients.tsdiag/report.html"), page);
}

TEST(Gradients, ReportRefusesATableOfOtherLogsThanRunJsonTells) {
    const TemporaryDirectory folder;
    write_log(folder / "wide.csv", 0.5);
    write_log(folder / "narrow.csv", 0.1);
    const auto report = [&](const char* found, const char* by) {
        fs::remove_all(folder / "gradients.tsdiag");
        EXPECT_EQ(tsdiag(folder, {"gradients", "wide.csv", "narrow.csv", "--no-report"}).code, 0);
        const auto file = [&](const char* name) {
            return folder / (std::string("gradients.tsdiag/") + name);
        };
        const std::string metrics =
            std::regex_replace(read_file(file("metrics.csv")), std::regex(found), by,
                               std::regex_constants::format_first_only);
        write_file(file("metrics.csv"), metrics);
        Json run = Json::parse(read_file(file("run.json")), "run.json");
        Json tables = run["tables"];  // with a valid digest, else the table would not be read
        run.set("tables", tables.set("metrics.csv", sha256(metrics)));
        write_file(file("run.json"), run.dump());
        fs::remove(file(Manifest::file));
        return tsdiag(folder, {"report", "gradients.tsdiag"});
    };
    const Finished refused = report("\nwide.csv,", "\nwild.csv,");
    EXPECT_EQ(refused.code, 1) << refused.err;
    EXPECT_THAT(refused.err, HasSubstr("a row of 'wild.csv', which is"));
    // An interval with one end is invalid.
    EXPECT_EQ(report("(grad_rsd,[^,]*),[^,]*", "$1,").code, 0);
}

TEST(Gradients, OfATrainingAreThoseOfItsLayersToo) {
    const TemporaryDirectory folder;
    ASSERT_EQ(tsdiag(folder, {"train", "random:gpt2,layers=2,d=8,heads=2", "--data", "copy",
                              "--tokens", "5", "--steps", "4", "-o", "run", "-q"})
                  .code,
              0);
    const Finished done = tsdiag(folder, {"gradients", "run", "--no-report", "--json"});
    ASSERT_EQ(done.code, 0) << done.err;
    std::vector<std::string> names;
    const Json found = Json::parse(done.out, "gradients");
    for (const Json& one : found["series"].array()) names.push_back(one["series"].string());
    EXPECT_THAT(names, testing::ElementsAre("grad_norm", "grad_norm layer=0", "grad_norm layer=1",
                                            "grad_norm of no layer"));
    const auto ratios = [&](std::vector<std::string> more) {
        const Finished run =
            tsdiag(folder, with({"gradients", "run", "--no-report", "--force"}, std::move(more)));
        EXPECT_EQ(run.code, 0) << run.err;
        return read_file(folder / "gradients.tsdiag/metrics.csv").find("grad_rsd_ratio") !=
               std::string::npos;
    };
    EXPECT_FALSE(ratios({}));
    EXPECT_TRUE(ratios({"--pairs"}));
    EXPECT_FALSE(ratios({"--column", "grad_norm layer=1"}));
}

TEST(Gradients, PrintTwentyRowsAtMost) {
    const TemporaryDirectory folder;
    // Of 6 layers with 6 tensors each, a row a layer; of 36 layers, the 20 that vary most.
    for (const auto& [file, layers, tensors, rows] :
         {std::tuple{"six.csv", 6, 6, 6}, {"many.csv", 36, 1, 20}}) {
        std::string log = "step";
        for (int k = 0; k < layers * tensors; ++k)
            log += ",grad_norm/layers." + std::to_string(k / tensors) + ".w" +
                   std::to_string(k % tensors);
        for (int t = 0; t < 30; ++t) {
            log += "\n" + std::to_string(t);
            for (int k = 0; k < layers * tensors; ++k)
                log += "," + std::to_string(2 + std::sin(t * t * (k + 1)));
        }
        write_file(folder / file, log + "\n");
        const Finished done = tsdiag(folder, {"gradients", file, "--no-report", "--force"});
        ASSERT_EQ(done.code, 0) << done.err;
        EXPECT_THAT(done.out, HasSubstr("36 series; all of them are in metrics.csv"));
        int found = 0;
        std::istringstream lines(done.out);
        for (std::string line; std::getline(lines, line);) found += line.starts_with(file);
        EXPECT_EQ(found, rows) << done.out;
    }
}

TEST(Gradients, OfTwoSeriesOfALayerTheMedianIsTheirMean) {
    const TemporaryDirectory folder;
    std::string log = "step";
    for (int k = 0; k < 22; ++k)
        log += ",grad_norm/layers." + std::to_string(k / 2) + (k % 2 == 0 ? ".a" : ".b");
    for (int t = 0; t < 30; ++t) {
        log += "\n" + std::to_string(t);
        for (int k = 0; k < 22; ++k) log += "," + std::to_string(2 + std::sin(t * t) / (k % 2 + 1));
    }
    write_file(folder / "two.csv", log + "\n");
    const Finished done = tsdiag(folder, {"gradients", "two.csv", "--no-report"});
    ASSERT_EQ(done.code, 0) << done.err;
    std::smatch row;
    ASSERT_TRUE(std::regex_search(done.out, row,
                                  std::regex("\ntwo.csv +0 +\\S+ +2 +(\\S+) +(\\S+) +(\\S+)\n")))
        << done.out;
    const double least = std::stod(row[1]), median = std::stod(row[2]), most = std::stod(row[3]);
    EXPECT_LT(least, 0.75 * most);
    EXPECT_NEAR(median, (least + most) / 2, 1e-3 * most);  // numbers of four digits
}

TEST(Gradients, WarnBeforeTheyTellNumbers) {
    const TemporaryDirectory folder;
    std::vector<std::string> words = {"gradients", "--out", "all"};
    for (int k = 0; k < 6; ++k) {
        words.push_back("even" + std::to_string(k) + ".csv");
        write_log(folder / words.back(), 0.1 + 0.05 * k);
    }
    std::string rising = "step,grad_norm\n";
    for (int t = 0; t < 120; ++t)
        rising +=
            std::to_string(t) + "," + std::to_string(1 + t / 40.0 + 0.1 * std::sin(t * t)) + "\n";
    write_file(folder / "rising.csv", rising);
    words.emplace_back("rising.csv");
    const Finished done = tsdiag(folder, words);
    ASSERT_EQ(done.code, 0) << done.err;
    const std::size_t warning = done.out.find("\n! rising.csv: ");
    ASSERT_NE(warning, std::string::npos) << done.out;
    EXPECT_LT(warning, done.out.find("\n- even0.csv: "));
}

TEST(Gradients, GivesTheSameFilesForTheSameSeed) {
    const TemporaryDirectory folder;
    write_log(folder / "log.csv", 0.5);
    const auto metrics = [&](const std::string& out, const std::string& seed) {
        EXPECT_EQ(
            tsdiag(folder, {"gradients", "log.csv", "-q", "--no-report", "-o", out, "--seed", seed})
                .code,
            0);
        return read_file(folder / (out + "/metrics.csv"));
    };
    const std::string first = metrics("a", "1");
    EXPECT_EQ(first, metrics("b", "1"));
    EXPECT_NE(first, metrics("c", "2"));
}

TEST(Gradients, DrawsNumbersAtTheEndsOfTheRangeOfDoubles) {
    for (const auto& [small, large] : {std::pair("5e-324", "3.5e-323"),
                                       {"1e308", "1.7e308"},
                                       {"5e-324", "1.7e308"},
                                       {"0", "1.7e308"}}) {
        const TemporaryDirectory folder;
        std::string log = "step,grad_norm\n";
        for (int t = 0; t < 40; ++t)
            log += std::to_string(t) + ',' + (t * t % 7 < 3 ? small : large) + '\n';
        write_file(folder / "log.csv", log);
        const Finished done = tsdiag(folder, {"gradients", "log.csv"});
        EXPECT_EQ(done.code, 0) << small << ": " << done.err;
        EXPECT_EQ(done.err, "") << small;
        EXPECT_EQ(tsdiag(folder, {"report", "gradients.tsdiag"}).code, 0) << small;
    }
}

TEST(Gradients, TellsASecondRunFromAResumption) {
    const TemporaryDirectory folder;
    const auto read = [&](int first, int last) {
        std::string log = "step,grad_norm\n";
        for (const auto& [from, to] : {std::pair(0, 100), {first, last}})
            for (int t = from; t < to; ++t)
                log += std::to_string(t) + ',' + std::to_string(1 + t % 7) + '\n';
        write_file(folder / "log.csv", log);
        return tsdiag(folder, {"gradients", "log.csv", "--no-report", "--force"});
    };
    const Finished second = read(20, 100);
    EXPECT_EQ(second.code, 1);
    EXPECT_THAT(second.err, HasSubstr("go back to step 20 and are repeated"));
    expect_one_sentence(second.err);
    const Finished early = read(20, 130), late = read(80, 100);
    EXPECT_EQ(early.code, 0) << early.err;
    EXPECT_THAT(early.out + early.err, HasSubstr("resumed from an early checkpoint"));
    EXPECT_EQ(late.code, 0) << late.err;
    EXPECT_EQ((late.out + late.err).find("early checkpoint"), std::string::npos);
}

TEST(Gradients, RefusesInOneLineAndLeavesNothing) {
    const TemporaryDirectory folder;
    std::ofstream(folder / "bad.csv") << "step,grad_norm\n1,oops\n";
    const Finished done = tsdiag(folder, {"gradients", "bad.csv"});
    EXPECT_EQ(done.code, 1);
    EXPECT_EQ(std::count(done.err.begin(), done.err.end(), '\n'), 1) << done.err;
    EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"bad.csv"});
    EXPECT_EQ(tsdiag(folder, {"gradients"}).code, 2);
    EXPECT_EQ(tsdiag(folder, {"gradients", "missing.csv"}).code, 1);
}

/// The names and grad_rsd of the series of a log that a run wrote to `out`.
std::vector<std::pair<std::string, double>> dispersions(const TemporaryDirectory& folder) {
    std::vector<std::pair<std::string, double>> all;
    for (const MetricRow& row :
         read_metrics_csv(read_file(folder / "out/metrics.csv"), "metrics.csv"))
        if (row.metric == "grad_rsd")
            all.emplace_back(row.at.tensor, row.value.value_or(std::nan("")));
    return all;
}

TEST(Gradients, TwoNetworksThatAreTrainedInTurnAreTwoSeries) {
    const TemporaryDirectory folder;
    // Of each network 1, 3, 1, 3, ..., five times that of the second: the standard deviation over
    // the mean is sqrt(30 / 29) / 2 in both, and greater together.
    const auto value = [](int t) { return (t % 2 ? 5 : 1) * (t / 2 % 2 ? 3 : 1); };
    for (const auto& [key, values] : {std::pair("net", std::array{"\"G\"", "\"D\""}),
                                      {"network", std::array{"\"generator\"", "\"critic\""}},
                                      {"optimizer_idx", std::array{"0", "1"}},
                                      {"of_critic", std::array{"false", "true"}}})
        for (const bool csv : {false, true}) {
            std::string text = csv ? fmt::format("step,{},grad_norm\n", key) : "";
            for (int t = 0; t < 60; ++t)
                text += csv ? fmt::format("{},{},{}\n", t, values[t % 2], value(t))
                            : fmt::format("{{\"step\": {}, \"{}\": {}, \"grad_norm\": {}}}\n", t,
                                          key, values[t % 2], value(t));
            write_file(folder / "log", text);
            const Finished done =
                tsdiag(folder, {"gradients", "log", "--no-report", "--force", "-o", "out"});
            ASSERT_EQ(done.code, 0) << done.err;
            EXPECT_THAT(std::regex_replace(done.out, std::regex("\\s+"), " "),
                        HasSubstr("records of other values come between"));
            const auto found = dispersions(folder);
            ASSERT_EQ(found.size(), 2u) << text;
            for (const auto& [name, rsd] : found) {
                EXPECT_THAT(name, HasSubstr(fmt::format("grad_norm {}=", key)));
                EXPECT_NEAR(rsd, std::sqrt(30. / 29) / 2, 1e-12) << name;
            }
        }
}

TEST(Gradients, ValuesOfAKeyThatComeBackTellSeriesApartIfTheyAreWords) {
    const TemporaryDirectory folder;
    const auto series = [&](const std::string& key, auto&& of) {
        std::string text = fmt::format("step,{},grad_norm\n", key);
        for (int t = 0; t < 60; ++t)
            text += fmt::format("{},{},{}\n", t, of(t), 1 + 0.5 * std::sin(0.9 * t * t));
        write_file(folder / "log.csv", text);
        const Finished done =
            tsdiag(folder, {"gradients", "log.csv", "--no-report", "--force", "-o", "out"});
        EXPECT_EQ(done.code, 0) << done.err;
        return dispersions(folder).size();
    };
    EXPECT_EQ(series("split", [](int t) { return t % 10 == 9 ? "val" : "train"; }), 2u);
    EXPECT_EQ(series("task", [](int t) { return std::array{"a", "b", "c"}[t * t % 7 % 3]; }), 3u);
    // Phases, a speed, a count within an epoch and one overflow are of one series.
    EXPECT_EQ(series("phase", [](int t) { return t < 30 ? "warmup" : "main"; }), 1u);
    EXPECT_EQ(series("speed", [](int t) { return t % 3 ? "3.1 it/s" : "3.2 it/s"; }), 1u);
    EXPECT_EQ(series("batch", [](int t) { return t % 5; }), 1u);
    EXPECT_EQ(series("status", [](int t) { return t == 20 ? "overflow" : "ok"; }), 1u);
    const auto now_and_then = [](int t) { return t * t % 31 < 8 ? "WARNING" : "INFO"; };
    EXPECT_EQ(series("level", now_and_then), 1u);
    EXPECT_EQ(series("network", now_and_then), 2u);
    EXPECT_EQ(series("name", [](int) { return "gpt_max_grad_norm=1.0"; }), 1u);
}

/// Which of the states of a folder was read, and where its logs are if it has none itself.
TEST(Gradients, OfAFolderSayWhatTheyAreOf) {
    const TemporaryDirectory folder;
    for (const int last : {40, 50}) {
        std::string state = "{\n \"log_history\": [";
        for (int t = 1; t <= last; ++t)
            state += fmt::format("{}{{\"step\": {}, \"grad_norm\": {}}}", t > 1 ? ", " : "", t,
                                 1 + 0.5 * std::sin(0.9 * t * t));
        const std::string place = fmt::format("run/checkpoint-{}", last);
        fs::create_directories(folder / place);
        write_file(folder / (place + "/trainer_state.json"), state + "]\n}\n");
    }
    const Finished done = tsdiag(folder, {"gradients", "run", "--no-report", "--json"});
    ASSERT_EQ(done.code, 0) << done.err;
    EXPECT_THAT(done.out, HasSubstr("numbers are those of checkpoint-50/trainer_state.json"));
    EXPECT_EQ(Json::parse(done.out, "gradients")["series"].array()[0]["count"].integer(), 50);

    fs::create_directories(folder / "logs/train_inner");
    write_file(folder / "logs/train_inner/events.out.tfevents.1.host", "");
    const Finished refused = tsdiag(folder, {"gradients", "logs", "--no-report"});
    EXPECT_EQ(refused.code, 1);
    expect_one_sentence(refused.err);
    EXPECT_THAT(refused.err, HasSubstr("pass one of its folders that hold some: train_inner."));
}

/// Its progress bar writes records of updates and, with `train_` before each key, of epochs.
TEST(Gradients, OfFairseqAreMeansAtTheStepsOfItsKeys) {
    const TemporaryDirectory folder;
    std::string log;
    for (int t = 1; t <= 40; ++t) {
        log += fmt::format(
            "{{\"epoch\": {}, \"loss\": \"3.2\", \"num_updates\": \"{}\", \"gnorm\": \"{}\"}}\n",
            1 + (t - 1) / 4, 100 * t, t % 2 ? 1 : 3);
        if (t % 4 == 0)
            log += fmt::format(
                "{{\"epoch\": {}, \"train_num_updates\": \"{}\", \"train_gnorm\": \"{}\"}}\n"
                "{{\"epoch\": {}, \"valid_loss\": \"3.1\", \"valid_num_updates\": \"{}\"}}\n",
                t / 4, 100 * t, 2 + t % 8, t / 4, 100 * t);
    }
    write_file(folder / "log", log);
    const Finished done = tsdiag(folder, {"gradients", "log", "--no-report", "--json"});
    ASSERT_EQ(done.code, 0) << done.err;
    const Json found = Json::parse(done.out, "gradients");
    std::vector<std::string> names;
    for (const Json& one : found["series"].array()) {
        names.push_back(one["series"].string());
        EXPECT_EQ(one["count"].integer(), names.size() == 1 ? 40 : 10) << done.out;
    }
    EXPECT_THAT(names, testing::ElementsAre("gnorm", "train_gnorm"));
    const Json run = Json::parse(read_file(folder / "gradients.tsdiag/run.json"), "run.json");
    for (const Json& one : run["logs"].array()) EXPECT_EQ(one["last_step"].integer(), 4000);
    EXPECT_THAT(done.out, HasSubstr("numbers of fairseq are means over the updates"));
    EXPECT_THAT(done.out, testing::Not(HasSubstr("records are counted")));
    EXPECT_EQ(tsdiag(folder, {"gradients", "log", "--column", "valid_loss", "--no-report",
                              "--force", "-o", "valid"})
                  .code,
              0);
}

TEST(Gradients, ALogThatWasPrintedIsSaidToBeOne) {
    const TemporaryDirectory folder;
    const auto gradients = [&](const std::string& text) {
        write_file(folder / "train.log", text);
        return tsdiag(folder, {"gradients", "train.log", "--no-report", "--force", "-o", "out"});
    };
    for (const std::string line :
         {"2023-01-01 | INFO | train_inner | epoch 001: {} / 100 loss=3.2, gnorm=0.786\n",
          "2023-01-01 | INFO | train_inner | {{\"num_updates\": \"{}\", \"gnorm\": \"0.7\"}}\n",
          "iter {}: loss 3.2, time 100ms, grad_norm 0.7862\n", "step {}: train loss 4.1\n",
          " iteration {}/ 100 | lm loss: 3.2E+00 | grad norm: 1.2 |\n",
          "[2023-01-01] [INFO] [logging.py] step={}, lr=[1e-4], grad_norm=0.5\n",
          "[2023-01-01 10:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] step={}, lr=[1e-4]\n",
          "{{'loss': {}, 'grad_norm': 0.5, 'epoch': 0.1}}\n"}) {
        std::string text;
        for (int t = 1; t <= 3; ++t) text += fmt::format(fmt::runtime(line), t);
        const Finished refused = gradients(text);
        EXPECT_EQ(refused.code, 1) << line << refused.out;
        expect_one_sentence(refused.err);
        EXPECT_THAT(refused.err, HasSubstr("printed while training")) << line;
    }
    // The names of columns and of keys may look alike.
    for (const char* log :
         {"step,grad_norm 2\n1,0.5\n2,0.6\n3,0.4\n",
          "{\"step\": 1, \"note\": \"gnorm=2\", \"grad_norm\": 0.5}\n{\"step\": 2, \"note\": "
          "\"gnorm=2\", \"grad_norm\": 0.6}\n{\"step\": 3, \"grad_norm\": 0.4}\n"})
        EXPECT_EQ(gradients(log).code, 0) << log;
}

}  // namespace
}  // namespace tsdiag::test
