#include "experiments/training.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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
