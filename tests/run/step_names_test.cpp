#include "series/step_names.hpp"

#include <gtest/gtest.h>

/// Which numbers in names of checkpoints are steps of a training.
namespace tsdiag::test {
namespace {

TEST(StepNames, CountTheProgressOfATraining) {
    const std::tuple<const char*, Index, const char*> cases[] = {
        {"checkpoint-500", 500, "step"},
        {"step_1000", 1000, "step"},
        {"step_1k", 1000, "step"},
        {"ckpt-1.5k", 1500, "step"},
        {"step_2m", 2000000, "step"},
        {"step_1e4", 10000, "step"},
        {"step_500.ema", 500, "step"},
        {"iter_0000500", 500, "iteration"},
        {"epoch=3-step=1000", 1000, "step"},
        {"epoch_7", 7, "epoch"},
        {"step1000-tokens4b", 1000, "step"},
        {"global_step12", 12, "step"},
        {"checkpoint_1_500", 500, "step"},
        {"checkpoint12", 12, "step"},
        {"model_500", 500, "step"},
        {"model.ckpt-1000000", 1000000, "step"},
        {"500", 500, "step"},
        {"1000000", 1000000, "step"},
        {"model_1e3", 1000, "step"},
        {"model_10k", 10000, "step"},
        {"0001999", 1999, "step"},
        {"gpt-model500", 500, "step"},
        {"it5", 5, "iteration"},
        {"ep3-ba1000", 1000, "step"},
        {"global-step=7", 7, "step"},
        {"ba1000", 1000, "step"},
    };
    for (const auto& [name, step, unit] : cases) {
        const auto found = step_in_name(name);
        ASSERT_TRUE(found) << name;
        EXPECT_EQ(found->step, step) << name;
        EXPECT_EQ(found->unit, unit) << name;
    }
}

TEST(StepNames, AreNoOtherNumbers) {
    for (const char* name : {"2024-05-31",
                             "run_20240531",
                             "val_loss=2.31",
                             "best_model_acc0.91",
                             "lr1e-3",
                             "temp0.5",
                             "v1.5",
                             "warmup_steps=100",
                             "gpu0",
                             "s1",
                             "cfg1",
                             "sample_0",
                             "prompt1",
                             "layer0",
                             "heads4",
                             "group1",
                             "task1",
                             "wmt14",
                             "llama2",
                             "seed_3",
                             "seed3",
                             "abc1234",
                             "deadbeef1234567",
                             "pythia-160m",
                             "max_steps=500",
                             "save_steps-5",
                             "model",
                             "",
                             "version_2",
                             "gpt-2",
                             "small-gpt-300",
                             "vit-base-patch16-224",
                             "gemma-it-v2",
                             "client1",
                             "net_224_patch",
                             "model_1e3_0.5",
                             "client_1",
                             "model0",
                             "model_1",
                             "net-12",
                             "step_1_000",
                             "step_1_500",
                             "step-1-000",
                             "step_1,000",
                             "step_1.000",
                             "step-5-2.31",
                             "checkpoint-20240531",
                             "model_20240531",
                             "ckpt-2024-05-31",
                             "step_-5",
                             "step=-5",
                             "negstep-5",
                             "model_-500",
                             "footstep5",
                             "1234567",
                             "1234e05",
                             "0f1e2d3",
                             "70123456789",
                             "split-1"})
        EXPECT_FALSE(step_in_name(name)) << name << ": " << step_in_name(name)->step;
}

}  // namespace
}  // namespace tsdiag::test
