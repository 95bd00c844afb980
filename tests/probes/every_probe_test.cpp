#include <fstream>
#include <iterator>
#include <set>

#include "by_hand.hpp"

/// Laws of every probe of the list.
namespace tsdiag::test {
namespace {

/// A layer with everything in it: three heads, one causal, one whose rows do not sum to 1.
struct Scene {
    Layer layer;
    Projections projections;

    explicit Scene(Type type = Type::f64) {
        const Index n = 10, d = 6, w = 3;
        const auto state = [&](std::uint64_t seed) {
            return tensor(gaussian(n, d, seed, 0.4), type);
        };
        Matrix unnormalised = random_attention(n, 3);
        unnormalised(4, 4) += 0.25;
        layer.op = std::make_shared<Made>(
            std::vector{random_attention(n, 1), random_attention(n, 2, true), unnormalised}, true,
            type);
        layer.states = {{"in", "", state(5)},
                        {"sa", "", state(6)},
                        {"attn", "in", state(7)},
                        {"norm1", "attn", state(8)},
                        {"out", "", state(8)}};
        layer.input = layer.states[0].x;
        layer.residual = layer.states[0].x;
        projections.q = projections.q_raw =
            tensor({gaussian(n, w, 9), gaussian(n, w, 10), gaussian(n, w, 11)}, type);
        projections.k = projections.k_raw = tensor(gaussian(n, w, 12), type);
        layer.projections = &projections;
        layer.a2 = 0.9;
        layer.gradients = {{"in", "", state(13)}, {"", "attn.q.weight", state(14)}};
        layer.v = tensor(gaussian(n, 2, 15), type);
        layer.output = tensor({gaussian(n, 2, 16), gaussian(n, 2, 17), gaussian(n, 2, 18)}, type);
    }
    Scene(const Scene&) = delete;
};

class EveryProbe : public testing::TestWithParam<const ProbeEntry*> {
  protected:
    Table run(const Layer& layer, ProbeSettings settings = {}) const {
        settings.maps = {{0, 1}};
        return measure(GetParam()->name, layer, settings);
    }
};

using Numbers = std::vector<std::pair<std::string, double>>;

/// Every number of a table, undefined ones as NaN, by name and place.
Numbers numbers(const Table& table) {
    Numbers list;
    const auto add = [&](const Place& at, const std::string& name, std::optional<double> v) {
        list.emplace_back(at.stage + " " + std::to_string(at.head) + " " + name, v.value_or(NAN));
    };
    for (const MetricRow& row : table.metrics()) add(row.at, row.metric, row.value);
    for (const CurveRow& row : table.curves()) add(row.at, row.curve + shortest(row.x), row.y);
    for (const Map& map : table.maps())
        for (double v : map.values) add(map.at, map.name, v);
    return list;
}

void expect_same(const Numbers& found, const Numbers& expected, double relative) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(found[i].first, expected[i].first);
        EXPECT_EQ(std::isnan(found[i].second), std::isnan(expected[i].second)) << found[i].first;
        if (std::isnan(expected[i].second)) continue;
        EXPECT_NEAR(found[i].second, expected[i].second,
                    relative * (1e-3 + std::abs(expected[i].second)))
            << found[i].first;
    }
}

TEST_P(EveryProbe, EmitsWhatItDeclaresAndNothingElse) {
    const Scene scene;
    const Table table = run(scene.layer);
    std::set<std::string> metrics, curves;
    for (const MetricRow& row : table.metrics()) metrics.insert(row.metric);
    for (const CurveRow& row : table.curves()) curves.insert(row.curve);
    const auto declared = [](std::string_view text) {
        const auto list = words(text);
        return std::set<std::string>(list.begin(), list.end());
    };
    EXPECT_EQ(metrics, declared(GetParam()->metrics));
    EXPECT_EQ(curves, declared(GetParam()->curves));
}

TEST_P(EveryProbe, IsInTheDictionary) {
    std::ifstream file(TSDIAG_TEST_DATA "/../../docs/metrics.md");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    ASSERT_FALSE(text.empty());
    std::string plain;
    for (const char c : text)
        plain += std::isalnum(static_cast<unsigned char>(c)) || c == '_' ? c : ' ';
    const std::vector<std::string> known = words(plain);
    for (const std::string_view list : {GetParam()->metrics, GetParam()->curves})
        for (const std::string& name : words(list))
            EXPECT_NE(std::find(known.begin(), known.end(), name), known.end()) << name;
}

TEST_P(EveryProbe, DoesNotDependOnTheRowBlock) {
    for (const Type type : {Type::f64, Type::f32}) {
        Scene scene(type);
        const Numbers expected = numbers(run(scene.layer));
        for (const Index block : {1, 4, 10}) {
            scene.layer.block = block;
            expect_same(numbers(run(scene.layer)), expected, 1e-13);
        }
    }
}

/// Each metric alone gives what all of them together give, and only itself.
TEST_P(EveryProbe, DoesNotDependOnWhatElseIsWanted) {
    const Scene scene;
    const Table all = run(scene.layer);
    for (const std::string_view list : {GetParam()->metrics, GetParam()->curves})
        for (const std::string& name : words(list)) {
            ProbeSettings settings;
            settings.metrics = {name};
            const Table alone = run(scene.layer, settings);
            for (const MetricRow& row : alone.metrics()) {
                EXPECT_EQ(row.metric, name);
                EXPECT_EQ(row.value, all.find(row.at, name)->value) << name << row.at.head;
            }
            for (const CurveRow& row : alone.curves()) EXPECT_EQ(row.curve, name);
            EXPECT_FALSE(alone.metrics().empty() && alone.curves().empty());
        }
}

TEST_P(EveryProbe, SecondSampleIsNotDisturbedByTheFirst) {
    const Scene scene;
    const auto probe = GetParam()->make({.maps = {{0, 1}}});
    Table first, second;
    drive(*probe, GetParam()->needs, scene.layer, first);
    drive(*probe, GetParam()->needs, scene.layer, second);
    expect_same(numbers(second), numbers(first), 0);
}

TEST_P(EveryProbe, UndefinedMetricsSayWhy) {
    const Scene scene;
    for (const MetricRow& row : run(scene.layer).metrics())
        EXPECT_TRUE(row.value || !row.note.empty()) << row.metric;
}

TEST_P(EveryProbe, NothingComesOfNothing) {
    Table table;
    const auto probe = GetParam()->make({});
    probe->finish_layer(0, table);
    EXPECT_TRUE(table.metrics().empty() && table.curves().empty() && table.maps().empty());
}

INSTANTIATE_TEST_SUITE_P(List, EveryProbe, testing::ValuesIn(probes().begin(), probes().end()),
                         [](const auto& test) { return std::string(test.param->name); });

}  // namespace
}  // namespace tsdiag::test
