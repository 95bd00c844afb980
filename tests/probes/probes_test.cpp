#include "by_hand.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::test {
namespace {

std::vector<std::string> resolve(std::vector<std::string> words) { return resolve_metrics(words); }

TEST(ResolveMetrics, KnowsMetricsCurvesAndProbes) {
    EXPECT_EQ(resolve({"t_div", "t_sim", "t_div"}), (std::vector<std::string>{"t_sim", "t_div"}));
    EXPECT_EQ(resolve({"local_acc"}), (std::vector<std::string>{"local_acc"}));
    EXPECT_EQ(resolve({"escalation"}), words("xi1 xi2 xi_ratio r r_layer"));
    EXPECT_EQ(resolve({"locality"}), words("local_auc local_acc"));
    EXPECT_TRUE(resolve({}).empty());
    EXPECT_TRUE(resolve({"maps"}).empty());
}

TEST(ResolveMetrics, CoreIsAPartOfAll) {
    const std::vector<std::string> core = resolve({"core"}), all = resolve({"all"});
    EXPECT_EQ(std::ssize(core), std::ranges::count_if(metrics(), &Metric::core));
    EXPECT_LT(core.size(), all.size());
    for (const std::string& name : core)
        EXPECT_NE(std::find(all.begin(), all.end(), name), all.end()) << name;
    EXPECT_EQ(resolve({"core", "all"}), all);
}

TEST(ResolveMetrics, SuggestsTheNearestName) {
    try {
        resolve({"entrpy"});
        FAIL() << "no error";
    } catch (const UsageError& e) {
        EXPECT_STREQ(e.what(),
                     "unknown metric, curve or probe 'entrpy'. Did you mean 'entropy'? See "
                     "docs/metrics.md for the names.");
    }
    EXPECT_THROW(resolve({"t_sim", ""}), UsageError);
    EXPECT_THROW(resolve({"no such thing at all"}), UsageError);
}

TEST(ProbeSettings, AnEmptyListIsAll) {
    ProbeSettings settings;
    EXPECT_TRUE(settings.wants("anything") && settings.wants_head(7));
    settings.metrics = {"r"};
    settings.heads = {2};
    EXPECT_TRUE(settings.wants("r") && settings.wants_head(2));
    EXPECT_FALSE(settings.wants("t_sim") || settings.wants_head(0));
}

TEST(Probes, NoNameHasTwoMeanings) {
    std::vector<std::string> names = resolve({"all"});
    names.insert(names.end(), {"core", "all"});
    for (const ProbeEntry* e : probes()) names.emplace_back(e->name);
    std::sort(names.begin(), names.end());
    EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
}

}  // namespace
}  // namespace tsdiag::test
