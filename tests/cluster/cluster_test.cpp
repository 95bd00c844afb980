#include "tsdiag/cluster.hpp"

#include <gmock/gmock.h>
#include <stdlib.h>

namespace tsdiag::test {
namespace {

using testing::HasSubstr;
using testing::Not;

/// Variables of the environment during a test; all that a launcher sets are cleared first.
class Environment {
  public:
    explicit Environment(std::vector<std::pair<const char*, const char*>> values) {
        for (const char* name : all) unsetenv(name);
        for (const auto& [name, value] : values) setenv(name, value, 1);
    }
    ~Environment() {
        for (const char* name : all) unsetenv(name);
    }

  private:
    static constexpr const char* all[] = {"OMPI_COMM_WORLD_SIZE",
                                          "OMPI_COMM_WORLD_RANK",
                                          "MV2_COMM_WORLD_SIZE",
                                          "MV2_COMM_WORLD_RANK",
                                          "PMI_SIZE",
                                          "PMI_RANK",
                                          "SLURM_STEP_NUM_TASKS",
                                          "SLURM_PROCID",
                                          "SLURM_NTASKS"};
};

TEST(Launcher, IsSeenFromItsVariables) {
    {
        const Environment e({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "3"}});
        const auto found = launcher();
        ASSERT_TRUE(found);
        EXPECT_EQ(found->name, "mpirun");
        EXPECT_EQ(found->rank, 3);
        EXPECT_EQ(found->size, 4);
    }
    const Environment e({{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "0"}});
    ASSERT_TRUE(launcher());
    EXPECT_EQ(launcher()->name, "srun");
}

TEST(Launcher, IsNoneForOneProcessABatchScriptOrNonsense) {
    const std::vector<std::vector<std::pair<const char*, const char*>>> all = {
        {},
        {{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}},
        {{"OMPI_COMM_WORLD_SIZE", "1"}, {"OMPI_COMM_WORLD_RANK", "0"}},
        {{"PMI_SIZE", "x"}, {"PMI_RANK", "0"}},
        {{"PMI_SIZE", "2"}, {"PMI_RANK", "2"}},
        {{"PMI_SIZE", "2"}}};
    for (const auto& values : all) {
        const Environment e(values);
        EXPECT_FALSE(launcher());
    }
}

TEST(BatchScript, HasWhatWasAskedAndQuotesWords) {
    SubmitOptions options;
    options.words = {"figure", "tse.fig3", "--out", "a folder", "it's"};
    options.nodes = 8;
    options.time = "2:00:00";
    const std::string script = sbatch_script(options);
    EXPECT_TRUE(script.starts_with("#!/bin/bash\n"));
    for (const char* line :
         {"#SBATCH --nodes=8\n", "#SBATCH --time=2:00:00\n", "#SBATCH --requeue\n",
          "srun tsdiag figure tse.fig3 --out 'a folder' 'it'\\''s'\n"})
        EXPECT_THAT(script, HasSubstr(line));
    EXPECT_THAT(script, Not(HasSubstr("partition")));
}

TEST(BatchScript, OfAnArrayRunsPartsWithoutRanks) {
    SubmitOptions options;
    options.words = {"check"};
    options.result = "out";
    options.parts = 16;
    const std::string script = sbatch_script(options);
    EXPECT_THAT(script, HasSubstr("#SBATCH --array=1-16\n"));
    EXPECT_THAT(script, HasSubstr("\ntsdiag check --part \"$SLURM_ARRAY_TASK_ID/16\"\n"));
    EXPECT_THAT(script, HasSubstr("tsdiag merge out"));
    EXPECT_THAT(script, Not(HasSubstr("srun")));
}

}  // namespace
}  // namespace tsdiag::test
