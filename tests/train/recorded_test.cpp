#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "support/files.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/train.hpp"

/// `report` on the tables of a training, complete or damaged.
namespace tsdiag::test {
namespace {

using testing::HasSubstr;

class RecordedTraining : public testing::Test {
  protected:
    void SetUp() override {
        TrainOptions o;
        o.subject.model = "random:gpt2,layers=2,d=8,heads=2,tokens=8";
        o.data = "copy:3";
        o.tokens = 5;
        o.batch = 1;
        o.steps = 3;
        o.eval_every = 1;
        o.eval_samples = 1;
        o.directory = folder / "run";
        run = train(o).run;
    }
    /// Replaces the first `old` of a table and reads the training again.
    std::string error_with(const std::string& table, const std::string& old,
                           const std::string& now) {
        const std::string file = folder / ("run/" + table), whole = read_file(file);
        std::string text = whole;
        const std::size_t at = text.find(old);
        EXPECT_NE(at, std::string::npos) << table << " has no '" << old << "'";
        if (at != std::string::npos) text.replace(at, old.size(), now);
        write_file(file, text);
        std::string error = "(no error)";
        try {
            training_page(recorded_training(folder / "run", run));
        } catch (const Error& e) {
            error = e.what();
        }
        write_file(file, whole);
        return error;
    }
    TemporaryDirectory folder;
    Json run;
};

TEST_F(RecordedTraining, IsReadBack) {
    const TrainResult read = recorded_training(folder / "run", run);
    EXPECT_TRUE(read.finished);
    EXPECT_EQ(read.steps.size(), 3u);
    EXPECT_EQ(read.steps[2].layer_norms.size(), 3u);
    EXPECT_EQ(read.evaluations.size(), 4u);  // including that before the first step
    EXPECT_EQ(training_page(read).figures.size(), 2u);
}

TEST_F(RecordedTraining, RefusesTablesThatDoNotFit) {
    const std::string gradients = read_file(folder / "run/gradients.csv");
    const std::size_t second = gradients.find("\n2,0,") + 1, third = gradients.find("\n3,0,") + 1;
    ASSERT_LT(second, third);
    ASSERT_LT(third, gradients.size());
    const std::string of_second = gradients.substr(second, third - second),
                      of_third = gradients.substr(third);
    EXPECT_THAT(error_with("gradients.csv", of_third, ""), HasSubstr("ends within step 3"));
    EXPECT_THAT(error_with("gradients.csv", of_third, of_third.substr(0, of_third.find('\n') + 1)),
                HasSubstr("ends within step 3"));
    EXPECT_THAT(error_with("gradients.csv", of_second, ""),
                HasSubstr("belongs to step 3, expected"));
    EXPECT_THAT(error_with("gradients.csv", "\n2,1,", "\n2,,"), HasSubstr("follows 1 layers"));
    EXPECT_THAT(error_with("gradients.csv", "\n2,1,", "\n2,7,"), HasSubstr("follows 1 layers"));
    EXPECT_THAT(error_with("gradients.csv", "\n1,1,", "\n1,9223372036854775807,"),
                HasSubstr("follows 1 layers"));
    EXPECT_THAT(error_with("steps.csv", "\n2,", "\n3,"), HasSubstr("not consecutive"));
    EXPECT_THAT(error_with("steps.csv", "\n2,", "\n2,nan"), HasSubstr("expected a finite number"));
    EXPECT_THAT(error_with("evaluations.csv", "\n2,", "\n1,"), HasSubstr("are not ascending"));
}

TEST_F(RecordedTraining, DrawsNumbersOfAnySize) {
    const std::string steps = read_file(folder / "run/steps.csv");
    const std::string tail = steps.substr(steps.find("\n1,"));
    EXPECT_EQ(
        error_with("steps.csv", tail, "\n1,1e308,1e308,1\n2,1e308,1e308,1\n3,1e308,5e-324,1\n"),
        "(no error)");
    TrainResult many = recorded_training(folder / "run", run);
    while (many.steps.size() < 1000) {
        many.steps.push_back(many.steps.back());
        many.steps.back().loss = 1.7e308;
    }
    EXPECT_EQ(*training_page(many).figures[0].panels[0].series[0].y.back(), 1.7e308);
}

TEST_F(RecordedTraining, APageNeedsNoNormsOfLayers) {
    TrainResult read = recorded_training(folder / "run", run);
    read.steps[1].layer_norms.resize(1);
    EXPECT_EQ(training_page(read).figures[1].panels.size(), 2u);  // no panel by layer
    read.steps[2].layer_norms.clear();
    EXPECT_EQ(training_page(read).figures[1].panels.size(), 2u);
}

}  // namespace
}  // namespace tsdiag::test
