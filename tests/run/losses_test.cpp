#include "run/losses.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "support/files.hpp"
#include "support/near.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ModelSpec model_of_500_ids() {
    ModelSpec spec;
    spec.width = spec.embedding.width = 6;
    spec.embedding.vocabulary = 500;
    spec.embedding.max_tokens = 40;
    return spec;
}

/// The losses of `options`, and the inputs as they changed them.
struct Made {
    std::vector<Input> inputs;
    std::vector<Loss> losses;
    explicit Made(const RunOptions& options, Index trial = 0) {
        const ModelSpec spec = model_of_500_ids();
        const InputSource source(options, spec, cpu(), Type::f64);
        inputs = source.samples(trial);
        losses = LossSource(options, spec, source, cpu(), Type::f64).losses(trial, inputs);
    }
};

RunOptions with_loss(const std::string& loss) {
    RunOptions options;
    options.loss = loss;
    return options;
}

std::string error_of(const RunOptions& options) {
    try {
        require_well_formed(options);
        Made made(options);
    } catch (const UsageError& error) {
        return error.what();
    }
    return "(no error)";
}

TEST(Losses, LmPredictsTheNextKeptToken) {
    TemporaryDirectory folder;
    write_file(folder / "ids.txt", "7 8 9 10 11\n");
    write_npy<double>(folder / "mask.npy", "<f8", {5}, std::vector<double>{1, 0, 1, 1, 0});
    RunOptions options = with_loss("lm");
    options.input = "ids:" + folder / "ids.txt";
    EXPECT_THAT(Made(options).losses.at(0).rows, ElementsAre(0, 1, 2, 3));
    EXPECT_THAT(Made(options).losses.at(0).targets, ElementsAre(8, 9, 10, 11));
    options.mask = folder / "mask.npy";
    EXPECT_THAT(Made(options).losses.at(0).rows, ElementsAre(0, 1));
    EXPECT_THAT(Made(options).losses.at(0).targets, ElementsAre(9, 10));
}

TEST(Losses, MlmHidesFifteenPercentAndAsksForThem) {
    RunOptions plain, masked = with_loss("mlm:3");
    plain.loss = "square";
    const Made before(plain), after(masked);
    const Loss& loss = after.losses.at(0);
    EXPECT_EQ(loss.rows.size(), 6U);  // of 40
    EXPECT_TRUE(std::ranges::is_sorted(loss.rows));
    EXPECT_EQ(std::set<Index>(loss.rows.begin(), loss.rows.end()).size(), 6U);
    for (Index i = 0; i < 40; ++i) {
        const auto at = std::ranges::find(loss.rows, i);
        const Index old = before.inputs[0].ids[std::size_t(i)],
                    now = after.inputs[0].ids[std::size_t(i)];
        if (at == loss.rows.end()) {
            EXPECT_EQ(now, old);
            continue;
        }
        EXPECT_EQ(now, 3);
        EXPECT_EQ(loss.targets[std::size_t(at - loss.rows.begin())], old);
    }
    EXPECT_EQ(Made(masked).losses[0].rows, loss.rows);
    EXPECT_NE(Made(masked, 1).losses[0].rows, loss.rows);
    masked.seed = 1;
    EXPECT_NE(Made(masked).losses[0].rows, loss.rows);
    EXPECT_NE(Made(with_loss("mlm")).inputs[0].ids, before.inputs[0].ids);
}

TEST(Losses, VjpIsAUnitVector) {
    RunOptions options = with_loss("vjp");
    options.tokens = 9;
    options.samples = 2;
    const Made made(options);
    EXPECT_EQ(made.losses[0].cotangent.shape(), (Shape{1, 9, 6}));
    EXPECT_CLOSE(squared_norm(made.losses[0].cotangent), 1, rounding(64));
    EXPECT_LT(std::abs(dot(made.losses[0].cotangent, made.losses[1].cotangent)), 0.9);
}

TEST(Losses, LabelsAreDrawnOrRead) {
    TemporaryDirectory folder;
    RunOptions options = with_loss("classify:4");
    options.samples = 30;
    std::set<Index> seen;
    for (const Loss& loss : Made(options).losses) {
        seen.insert(loss.label);
        EXPECT_EQ(loss.classifier.shape(), (Shape{1, 4, 6}));
    }
    EXPECT_EQ(seen, (std::set<Index>{0, 1, 2, 3}));
    write_file(folder / "labels.txt", "2 0\n");
    options = with_loss("classify");
    options.samples = 2;
    options.labels = folder / "labels.txt";
    const Made made(options);
    EXPECT_EQ(made.losses[0].label, 2);
    EXPECT_EQ(made.losses[1].label, 0);
    EXPECT_EQ(made.losses[0].classifier.rows(), 3);
    options.samples = 3;
    EXPECT_THAT(error_of(options), HasSubstr("contains 2 labels for 3 samples"));
    options.samples = 2;
    options.loss = "classify:2";
    EXPECT_THAT(error_of(options), HasSubstr("has the label 2, expected 0 to 1"));
    options.loss = "square";
    EXPECT_THAT(error_of(options), HasSubstr("requires --loss classify"));
}

TEST(Losses, SayWhatTheyAreNot) {
    EXPECT_THAT(error_of(with_loss("lmm")), HasSubstr("did you mean"));
    EXPECT_THAT(error_of(with_loss("square:3")), HasSubstr("is not valid"));
    EXPECT_THAT(error_of(with_loss("classify:1")), HasSubstr("2 to 1000000"));
    EXPECT_THAT(error_of(with_loss("classify:1000000000000")), HasSubstr("2 to 1000000"));
    EXPECT_THAT(error_of(with_loss("mlm:x")), HasSubstr("mlm:ID"));
    EXPECT_THAT(error_of(with_loss("mlm:500")), HasSubstr("ids 0 to 499"));
    RunOptions states = with_loss("lm");
    states.input = "gaussian";
    EXPECT_THAT(error_of(states), HasSubstr("the input is gaussian"));
}

// --- Whole runs

RunOptions run_options(const std::string& loss) {
    RunOptions options = with_loss(loss);
    options.subject.model = "random:gpt2,layers=2,d=24,heads=3,vocab=50";
    options.tokens = 10;
    options.dtype = Type::f64;
    return options;
}

TEST(RunWithLoss, MeasuresGradientsAndLeavesTheRestAsItIs) {
    RunOptions options = run_options("lm");
    options.samples = 2;
    const RunResult with = run(options);
    options.loss.clear();
    const RunResult without = run(options);
    for (const MetricRow& row : without.table.metrics()) {
        EXPECT_FALSE(needs_loss(row.metric)) << row.metric;
        EXPECT_EQ(with.table.find(row.at, row.metric)->value, row.value) << row.metric;
    }
    for (const Place& at :
         {Place{.layer = 1, .stage = "attn"}, Place{.layer = 0},
          Place{.layer = 1, .tensor = "ffn.down.bias"}, Place{.tensor = "embed.token"}}) {
        const auto row = with.table.find(at, "grad_norm");
        ASSERT_TRUE(row) << at.tensor;
        EXPECT_EQ(row->count, 2);
        EXPECT_GT(*row->value, 0);
    }
    const auto head = with.table.find({.layer = 1, .stage = "attn", .head = 2}, "ds_max");
    ASSERT_TRUE(head);
    EXPECT_LE(*head->value,
              *with.table.find({.layer = 1, .stage = "attn", .head = 2}, "ds_sharp")->value);
    EXPECT_EQ(with.run["loss"]["name"].string(), "lm");
    // Of 50 ids, by a random model.
    EXPECT_NEAR(with.run["loss"]["value"].number(), std::log(50), 0.5);
    EXPECT_TRUE(without.run["loss"].is_null());
}

/// The gradient norm of a layer is the root sum of squares of its parameters' norms.
TEST(RunWithLoss, LayersAddUp) {
    const RunResult result = run(run_options("vjp"));
    double squares = 0;
    for (const MetricRow& row : result.table.metrics())
        if (row.metric == "grad_norm" && row.at.layer == 0 && !row.at.tensor.empty())
            squares += *row.value * *row.value;
    EXPECT_CLOSE(*result.table.find({.layer = 0}, "grad_norm")->value, std::sqrt(squares),
                 rounding(64));
}

TEST(RunWithLoss, SweepsOnlyWhereItIsWanted) {
    RunOptions options = run_options("square");
    options.probes = {"t_sim"};
    EXPECT_TRUE(run(options).run["loss"].is_null());
    options.probes = {"ds_max"};
    const RunResult result = run(options);
    EXPECT_FALSE(result.run["loss"].is_null());
    for (const MetricRow& row : result.table.metrics()) EXPECT_EQ(row.metric, "ds_max");
}

TEST(RunWithLoss, IsRefusedWhereItCannotBe) {
    RunOptions options = run_options("");
    options.probes = {"t_sim", "gradients"};
    try {
        run(options);
        FAIL();
    } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), HasSubstr("grad_norm requires a loss; pass --loss"));
    }
    options.probes = {"all"};
    options.labels = "labels.txt";
    EXPECT_THROW(run(options), UsageError);
}

}  // namespace
}  // namespace tsdiag::test
