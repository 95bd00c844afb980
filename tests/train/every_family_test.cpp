#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/files.hpp"
#include "tsdiag/checkpoint_series.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/families.hpp"
#include "tsdiag/run.hpp"
#include "tsdiag/train.hpp"

/// Laws of every family that can be drawn.
namespace tsdiag::test {
namespace {

class EveryFamily : public testing::TestWithParam<std::string> {
  protected:
    /// The family at its smallest size.
    static std::string small(const std::string& name) {
        if (name.starts_with("swin"))
            return name + ",depths=1-1,d=16,heads=4,ffn=24,image=8,window=2,patch=4";
        if (name == "flash" || name == "gau") return name + ",layers=2,d=16,ffn=24,tokens=24";
        const std::string text = name + ",layers=2,d=16,heads=4,ffn=24";
        if (takes_images(name)) return text + ",image=8,patch=4";
        return text + ",tokens=24" + (name.starts_with("albert") ? ",embedding=6" : "");
    }
    static bool takes_images(const std::string& name) {
        return name.starts_with("swin") || name.starts_with("vit") || name.starts_with("deit") ||
               name.starts_with("xcit");
    }
};

/// What `train` wrote is a training that `probe` measures, whatever the lines about its models say.
TEST_P(EveryFamily, HasATrainingThatIsASeries) {
    const TemporaryDirectory folder;
    TrainOptions options;
    options.subject.model = "random:" + small(GetParam());
    options.batch = 2;
    options.steps = 2;
    options.save_every = 1;
    options.directory = folder / "run";
    const bool image = takes_images(GetParam());
    if (!image) options.tokens = 12;
    std::string why;
    // Language, masked tokens of a chain, or labels: whatever the family can be trained on.
    for (const auto& [data, loss] : std::vector<std::pair<const char*, const char*>>{
             {image ? "patterns:2" : "copy:3", ""}, {"markov:5", "mlm"}, {"judged:5", ""}}) {
        options.data = data;
        options.loss = loss;
        try {
            why.clear();
            train(options);
            break;
        } catch (const UsageError& error) {
            why = error.what();
        }
    }
    if (!why.empty()) GTEST_SKIP() << why;
    const CheckpointSeries series = find_series({folder / "run"});
    ASSERT_EQ(series.members.size(), 2u);
    require_one_architecture(series, {});
    RunOptions probe;
    probe.subject.model = series.members.back().path;
    probe.probes = {"t_sim"};
    if (!image) probe.tokens = 8;
    EXPECT_FALSE(run(probe).table.metrics().empty());
}

/// The first name of each family.
std::vector<std::string> families() {
    std::vector<std::string> out;
    for (const ArchitectureEntry* entry : architectures())
        if (entry->random_names)
            if (const auto names = entry->random_names(); !names.empty())
                out.emplace_back(names.front());
    return out;
}
std::string test_name(const testing::TestParamInfo<std::string>& info) {
    std::string out = info.param;
    for (char& c : out)
        if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
    return out;
}
INSTANTIATE_TEST_SUITE_P(List, EveryFamily, testing::ValuesIn(families()), test_name);

}  // namespace
}  // namespace tsdiag::test
