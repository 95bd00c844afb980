#include "experiments/training.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace tsdiag::experiment_list {
namespace {

TEST(Trained, TellsOfARunThatDiverges) {
    const ExperimentEntry& entry = experiment("poly.fig1");
    ExperimentOptions options;
    options.scale = ExperimentScale::tiny;
    options.readings["trials"] = "1";
    const ExperimentSetting setting(entry, options);
    TrainOptions run =
        train_options(setting, "random:deit-tiny,layers=1,d=8,heads=2,image=8,patch=4", "patterns");
    run.schedule = {.kind = Schedule::Kind::constant, .rate = 1e30};
    run.clip = 0;
    const Trained model{"wild", run};
    const RunResult result = trained(setting, std::span(&model, 1));
    const Numbers numbers(result.table);
    EXPECT_EQ(numbers.at("wild", "diverged", "", -1).value, 1.0);
    EXPECT_FALSE(numbers.at("wild", "final_loss", "", -1).value);
    EXPECT_EQ(numbers.at("wild", "final_loss", "", -1).note, "training diverged");
    EXPECT_FALSE(curve_of(result.table, "wild", "train_loss").empty());
}

/// A run may take minutes: its time is estimated from its first steps.
TEST(Trained, TellsItsProgressByStepsAndNeverBackwards) {
    ExperimentOptions options;
    options.scale = ExperimentScale::tiny;
    options.readings = {{"trials", "2"}, {"steps", "10"}};
    std::vector<double> told;
    options.progress = [&](const Progress& at) { told.push_back(at.fraction); };
    perform(experiment("tse.fig6"), options);
    EXPECT_GE(told.size(), 8u);  // of each training, but for what is told at once
    EXPECT_TRUE(std::ranges::is_sorted(told));
    EXPECT_NEAR(told.back(), 1, 1e-9);  // a sum of as many shares as there are steps
}

TEST(Data, OfAnotherKindIsForExperimentsThatTrain) {
    ExperimentOptions options;
    options.scale = ExperimentScale::tiny;
    options.data = "patterns:2";
    EXPECT_ANY_THROW(perform(experiment("tse.fig2"), options));
    options.readings["trials"] = "1";
    const RunResult result = perform(experiment("tse.fig6"), options);
    EXPECT_EQ(result.run["setting"]["data"].string(), "patterns:2");
    EXPECT_EQ(recorded_options(result.run).data, "patterns:2");
}

}  // namespace
}  // namespace tsdiag::experiment_list
