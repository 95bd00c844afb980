#include <set>

#include "by_hand.hpp"

/// Laws of every probe of the list.
namespace tsdiag::test {
namespace {

/// A layer with everything in it: three heads, one causal, one whose rows do not sum to 1.
struct FullLayer {
    Layer layer;
    Projections projections;

    explicit FullLayer(Type type = Type::f64) {
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
        layer.p = tensor(random_attention(n, 19), type);
        for (Index i = 0; i < n; ++i) layer.chosen.push_back(i * i % n);
        layer.gradients = {{"in", "", state(13)}, {"", "attn.q.weight", state(14)}};
        layer.v = tensor(gaussian(n, 2, 15), type);
        layer.output = tensor({gaussian(n, 2, 16), gaussian(n, 2, 17), gaussian(n, 2, 18)}, type);
    }
    FullLayer(const FullLayer&) = delete;
};

class EveryProbe : public testing::TestWithParam<const ProbeEntry*> {
  protected:
    Table run(const Layer& layer, ProbeSettings settings = {}) const {
        settings.maps = {{0, 1}};
        settings.cross_check = 2;
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
    const FullLayer scene;
    const Table table = run(scene.layer);
    std::set<std::string> metrics, curves;
    for (const MetricRow& row : table.metrics()) metrics.insert(row.metric);
    for (const CurveRow& row : table.curves()) curves.insert(row.curve);
    std::set<std::string> declared_metrics, declared_curves;
    for (const Metric& m : GetParam()->metrics)
        (m.of == Of::curve ? declared_curves : declared_metrics).emplace(m.name);
    EXPECT_EQ(metrics, declared_metrics);
    EXPECT_EQ(curves, declared_curves);
}

bool is_at(const Place& at, Of of) {
    switch (of) {
        case Of::state:
            return !at.stage.empty() && at.head < 0 && at.tensor.empty();
        case Of::step:
            return !at.stage.empty() && at.stage != "in" && at.head < 0;
        case Of::layer:
            return at.stage == "out" && at.head < 0;
        case Of::head:
        case Of::curve:
            return at.stage == "attn" && at.tensor.empty();
        case Of::gradient:
            return at.head < 0 && (at.stage.empty() || at.tensor.empty());
        case Of::series:
            return false;  // no probe's
    }
    return false;
}

TEST_P(EveryProbe, EmitsWhereItsMetricsAre) {
    const FullLayer scene;
    const Table table = run(scene.layer);
    for (const MetricRow& row : table.metrics())
        EXPECT_TRUE(is_at(row.at, find_metric(row.metric)->of)) << row.metric << row.at.stage;
    for (const CurveRow& row : table.curves())
        EXPECT_TRUE(is_at(row.at, find_metric(row.curve)->of)) << row.curve;
}

TEST_P(EveryProbe, DoesNotDependOnTheRowBlock) {
    for (const Type type : {Type::f64, Type::f32}) {
        FullLayer scene(type);
        const Numbers expected = numbers(run(scene.layer));
        for (const Index block : {1, 4, 10}) {
            scene.layer.block = block;
            expect_same(numbers(run(scene.layer)), expected, 1e-13);
        }
    }
}

/// Each metric alone gives the same values as all of them together, and no others.
TEST_P(EveryProbe, DoesNotDependOnWhatElseIsWanted) {
    const FullLayer scene;
    const Table all = run(scene.layer);
    for (const Metric& m : GetParam()->metrics) {
        ProbeSettings settings;
        settings.metrics = {std::string(m.name)};
        const Table alone = run(scene.layer, settings);
        for (const MetricRow& row : alone.metrics()) {
            EXPECT_EQ(row.metric, m.name);
            EXPECT_EQ(row.value, all.find(row.at, m.name)->value) << m.name << row.at.head;
        }
        for (const CurveRow& row : alone.curves()) EXPECT_EQ(row.curve, m.name);
        EXPECT_FALSE(alone.metrics().empty() && alone.curves().empty());
    }
}

TEST_P(EveryProbe, SecondSampleIsNotDisturbedByTheFirst) {
    const FullLayer scene;
    ProbeSettings settings;
    settings.maps = {{0, 1}};
    const auto probe = GetParam()->make(settings);
    Table first, second;
    drive(*probe, GetParam()->needs, scene.layer, first);
    drive(*probe, GetParam()->needs, scene.layer, second);
    expect_same(numbers(second), numbers(first), 0);
}

TEST_P(EveryProbe, UndefinedMetricsSayWhy) {
    const FullLayer scene;
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
