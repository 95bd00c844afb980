#include <gmock/gmock.h>

#include <map>

#include "program.hpp"
#include "tsdiag/json.hpp"

namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class Watch : public testing::Test {
  protected:
    void init(const std::string& name, const std::string& seed) {
        const Finished done =
            tsdiag(folder, {"init", "random:gpt2,layers=2,d=16,heads=2,vocab=32,tokens=16",
                            "--seed", seed, "-o", name});
        ASSERT_EQ(done.code, 0) << done.err;
    }
    /// Checkpoints 100, 200, ... with the same weights.
    void init_equal(int count) {
        for (int i = 1; i <= count; ++i) init("run/checkpoint-" + std::to_string(100 * i), "1");
    }
    std::vector<std::string> words(const std::vector<std::string>& more) const {
        std::vector<std::string> all = {"watch",    "run",    "--settle", "0",
                                        "--tokens", "8",      "--probes", "t_sim,lambda2_abs",
                                        "--out",    "watched"};
        all.insert(all.end(), more.begin(), more.end());
        return all;
    }
    Finished once(std::vector<std::string> more = {}) {
        more.emplace_back("--once");
        more.emplace_back("--no-report");
        return tsdiag(folder, words(more));
    }
    std::string file(const std::string& name) { return read_file(folder / name); }
    TemporaryDirectory folder;
};

TEST_F(Watch, OnceGivesWhatProbeGives) {
    init_equal(2);
    init("run/checkpoint-300", "2");
    const Finished done = once();
    ASSERT_EQ(done.code, 0) << done.err;
    EXPECT_THAT(done.out, HasSubstr("step 300: 3 checkpoints measured, no alarm"));
    ASSERT_EQ(tsdiag(folder, {"probe", "run", "--tokens", "8", "--probes", "t_sim,lambda2_abs",
                              "--no-report", "--out", "probed"})
                  .code,
              0);
    EXPECT_EQ(file("watched/metrics.csv"), file("probed/metrics.csv"));
}

/// --figure-width reaches the figures.
TEST_F(Watch, DrawsAsProbeDraws) {
    init_equal(1);
    init("run/checkpoint-200", "2");
    const auto drawn = [&](const std::vector<std::string>& command, const std::string& out) {
        const std::vector<std::string> all = {"--tokens",       "8",    "--probes", "t_sim",
                                              "--figure-width", "82mm", "--out",    out};
        const Finished done = tsdiag(folder, with(command, all));
        EXPECT_EQ(done.code, 0) << done.err;
        std::map<std::string, std::string> files;
        for (const auto& entry : fs::directory_iterator(fs::path(folder / out) / "figures"))
            files[entry.path().filename()] = read_file(entry.path());
        return files;
    };
    const auto watched = drawn({"watch", "run", "--once", "--settle", "0"}, "watched");
    EXPECT_FALSE(watched.empty());
    EXPECT_EQ(watched, drawn({"probe", "run"}, "probed"));
}

TEST_F(Watch, OnceTellsWhatIsNotMeasuredYet) {
    init_equal(2);
    const Finished done =
        tsdiag(folder, {"watch", "run", "--once", "--settle", "3600", "--out", "watched"});
    EXPECT_EQ(done.code, 0);
    EXPECT_THAT(done.err, HasSubstr("2 checkpoints in run were written to less than 3600 s ago and "
                                    "are not measured yet; --settle"));
    EXPECT_FALSE(fs::exists(folder / "watched/metrics.csv"));
}

TEST_F(Watch, TellsAChangeOnceAndGoesOnWhereItWas) {
    init_equal(6);
    const std::vector<std::string> alarm = {
        "--on-alarm", "echo \"$TSDIAG_STEP $TSDIAG_NUMBER: $TSDIAG_ALARM\" >> told; false"};
    ASSERT_EQ(once(alarm).code, 0);
    EXPECT_FALSE(fs::exists(folder / "told"));
    init("run/checkpoint-700", "9");
    fs::remove_all(folder / "run/checkpoint-100");  // trainings keep their last ones only
    const Finished changed = once(alarm);
    EXPECT_EQ(changed.code, 4);
    EXPECT_THAT(changed.out, HasSubstr("t_sim@out:last changes its course after step 600"));
    EXPECT_THAT(changed.out, HasSubstr("7 checkpoints measured"));
    EXPECT_THAT(changed.err, HasSubstr("measures run/checkpoint-700"));
    EXPECT_THAT(changed.err, Not(HasSubstr("checkpoint-200")));
    EXPECT_THAT(changed.err, HasSubstr("the command ended with code 1"));
    const std::string printed = file("told");
    EXPECT_THAT(printed, HasSubstr("700 t_sim@out:last: t_sim@out:last changes its course"));
    const Finished again = once(alarm);
    EXPECT_EQ(again.code, 4);  // it is still there, but it was told
    EXPECT_EQ(file("told"), printed);
    EXPECT_THAT(again.err, Not(HasSubstr("measures")));
    const Json run = Json::parse(file("watched/run.json"), "run.json");
    EXPECT_EQ(run["watch"]["alarms"].array().front()["step"].integer(), 700);
    EXPECT_EQ(run["checkpoints"].array().size(), 7U);
}

TEST_F(Watch, AnAssertionIsAnAlarmWhereItBecomesFalse) {
    init_equal(3);
    const Finished done = once({"--assert", "t_sim@out:last > 1", "--assert", "t_sim:0 < 2"});
    EXPECT_EQ(done.code, 4);
    EXPECT_THAT(done.out, HasSubstr("t_sim@out:last > 1 fails for step 100"));
    EXPECT_THAT(done.out, HasSubstr("1 alarm\n"));  // once, not for each checkpoint
}

TEST_F(Watch, LeavesWhatIsNotCompleteOrBroken) {
    init_equal(2);
    EXPECT_EQ(
        tsdiag(folder, {"watch", "run", "--once", "--settle", "3600", "--out", "watched"}).out, "");
    EXPECT_FALSE(fs::exists(folder / "watched/metrics.csv"));
    const std::string whole = file("run/checkpoint-200/model.safetensors");
    write_file(folder / "run/checkpoint-200/model.safetensors", whole.substr(0, whole.size() / 2));
    init("run/tmp-checkpoint-300", "1");
    const Finished done = once();
    EXPECT_EQ(done.code, 0);
    EXPECT_THAT(done.err, HasSubstr("model.safetensors"));
    EXPECT_THAT(done.out, HasSubstr("step 100: 1 checkpoint measured"));
    EXPECT_THAT(done.err, Not(HasSubstr("300")));
    write_file(folder / "run/checkpoint-200/model.safetensors", whole);
    EXPECT_THAT(once().out, HasSubstr("step 200: 2 checkpoints measured"));
    EXPECT_EQ(tsdiag(folder, {"watch", "absent"}).code, 1);
    EXPECT_EQ(tsdiag(folder, {"watch", "run", "--false-alarms", "0", "--once"}).code, 2);
    const Finished unknown = tsdiag(folder, {"watch", "run", "--numbers", "t_simm:0"});
    EXPECT_EQ(unknown.code, 2);
    EXPECT_THAT(unknown.err, HasSubstr("did you mean t_sim?"));
}

/// A list of told alarms that is none is refused with its file, what is wrong and what to do.
TEST_F(Watch, NamesWhatIsWrongInTheListOfToldAlarms) {
    init_equal(1);
    ASSERT_EQ(once().code, 0);
    const std::string list = "watched/checkpoints/told/alarms.json";
    fs::create_directories(folder / "watched/checkpoints/told");
    for (const auto& [text, wrong] : std::map<std::string, std::string>{
             {"{}", "a JSON value is an object, expected an array"},
             {R"([{"kind": "change", "number": "t_sim", "step": 1}])",
              "alarm 0: has no member 'sentence'; another version may have written it"},
             {R"([{"kind": 3}])",
              "alarm 0: has a number (3) in member 'kind', expected a string"}}) {
        write_file(folder / list, text);
        const Finished refused = once();
        EXPECT_EQ(refused.code, 1) << refused.err;
        expect_one_sentence(refused.err);
        EXPECT_THAT(refused.err, HasSubstr(list + ": is not a list of alarms (" + wrong +
                                           "); remove it, and alarms are told again."));
    }
}

/// As `probe` of the series does.
TEST_F(Watch, TellsOfStepsThatContradictEachOther) {
    init_equal(2);
    const auto warnings = [&] {
        return Json::parse(file("watched/run.json"), "run.json")["warnings"].dump();
    };
    ASSERT_EQ(once().code, 0);
    EXPECT_THAT(warnings(), Not(HasSubstr("is taken for")));
    fs::remove_all(folder / "watched");
    write_file(folder / "run/checkpoint-200/trainer_state.json", "{\"global_step\": 700}");
    const std::string told =
        "run/checkpoint-200: is taken for step 700 (global_step of trainer_state.json), not 200 "
        "(its name); rename it";
    const Finished done = once();
    ASSERT_EQ(done.code, 0) << done.err;
    EXPECT_THAT(done.err, HasSubstr("tsdiag: " + told + "."));
    EXPECT_THAT(warnings(), HasSubstr(told));
    const Finished again = once();
    EXPECT_THAT(again.err, Not(HasSubstr("is taken for")));  // once
    EXPECT_THAT(warnings(), HasSubstr(told));
    init("run/checkpoint-800", "1");
    fs::remove_all(folder / "run/checkpoint-200");
    ASSERT_EQ(once().code, 0);
    EXPECT_THAT(warnings(), HasSubstr(told));  // also where the checkpoint is gone
    fs::remove_all(folder / "run/checkpoint-100");
    ASSERT_EQ(once().code, 0);
    EXPECT_THAT(warnings(), HasSubstr(told));
}

TEST_F(Watch, SeesCheckpointsAppearAndEndsCleanly) {
    fs::create_directory(folder / "run");
    Running running(folder.path(), words({"--every", "0"}));
    const auto has_step = [&](const char* step) {
        const fs::path table = folder / "watched/metrics.csv";
        return fs::exists(table) &&
               read_file(table).find(std::string("\nrun,") + step + ",") != std::string::npos;
    };
    init("elsewhere", "1");
    fs::rename(folder / "elsewhere", folder / "run/checkpoint-100");
    EXPECT_TRUE(running.wait_until([&] { return has_step("100"); })) << running.said_so_far();
    init("elsewhere", "2");
    fs::rename(folder / "elsewhere", folder / "run/checkpoint-200");
    EXPECT_TRUE(running.wait_until([&] { return has_step("200"); })) << running.said_so_far();
    EXPECT_THAT(file("watched/report.html"), HasSubstr("http-equiv=\"refresh\" content=\"1\""));
    running.signal(SIGINT);
    const Finished ended = running.wait();
    EXPECT_EQ(ended.code, 130);
    EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"run", "watched"}));
    ASSERT_EQ(tsdiag(folder, {"report", "watched"}).code, 0);
}

}  // namespace
}  // namespace tsdiag::test
