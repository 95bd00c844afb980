#include "experiments/training.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tsdiag::experiment_list {
namespace {

using testing::HasSubstr;

Number number(double value, double error) { return {value, error, 4, ""}; }

TEST(OrderOf, SaysWhatTheErrorsCarry) {
    const auto says = [](const Number& a, const Number& b) {
        return order_of("rsd", "a", "b", a, b, true);
    };
    const Comparison found = says(number(0.5, 0.03), number(0.3, 0.04));  // 4 standard errors
    EXPECT_THAT(found.says, HasSubstr("a has the greater; found"));
    EXPECT_DOUBLE_EQ(*found.measured, 0.5 - 0.3);
    EXPECT_DOUBLE_EQ(*found.error, 0.05);
    EXPECT_EQ(found.count, 4);
    EXPECT_THAT(says(number(0.3, 0.03), number(0.5, 0.04)).says, HasSubstr("the other way round"));
    EXPECT_THAT(says(number(0.35, 0.03), number(0.3, 0.04)).says, HasSubstr("not decided"));
    const Comparison unknown = says({.note = "training diverged"}, number(0.5, 0.04));
    EXPECT_FALSE(unknown.measured);
    EXPECT_EQ(unknown.unknown, "training diverged");
}

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
