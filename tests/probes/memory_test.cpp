#include <gtest/gtest.h>

#include <set>

#include "by_hand.hpp"

/// Metrics of a P with keys of a memory, n x (m + n).
namespace tsdiag::test {
namespace {

constexpr Index n = 9, m = 5, d = 6;

/// Rows of softmax in which row i sees m + i + 1 keys.
Matrix with_memory(std::uint64_t seed) {
    const Matrix square = random_attention(m + n, seed, true);
    return {n, m + n, {square.a.begin() + m * (m + n), square.a.end()}};
}

struct Scene {
    std::vector<Matrix> heads{with_memory(1), with_memory(2)};
    Projections projections;
    Layer layer;

    Scene() {
        const auto op = std::make_shared<Made>(heads);
        op->declared.row_stochastic = op->declared.causal = true;
        op->declared.plain_logits = op->declared.constant_terms = false;
        layer.op = op;
        layer.input = layer.residual = tensor(gaussian(n, d, 5));
        layer.projections = &projections;
        layer.v = tensor(gaussian(m + n, 2, 6));
        layer.output = tensor({gaussian(n, 2, 7), gaussian(n, 2, 8)});
    }
    Scene(const Scene&) = delete;
};

TEST(Memory, LeavesUndefinedWhatNeedsASquareAndNothingElse) {
    const Scene scene;
    const std::set<std::string> square{"lambda2_abs", "lambda2_check", "spectral_gap", "gap",
                                       "est1",        "est2",          "delta_pi",     "omega",
                                       "mu1",         "mu2",           "est_mu"},
        logits{"jac_q_fro", "jac_k_fro", "c3"};
    std::set<std::string> seen;
    for (const ProbeEntry* probe : probes()) {
        ProbeSettings settings;
        settings.cross_check = 1;
        for (const MetricRow& row : measure(probe->name, scene.layer, settings).metrics()) {
            if (row.at.stage != "attn" || row.at.head != 0) continue;
            seen.insert(row.metric);
            EXPECT_EQ(row.value.has_value(),
                      !square.contains(row.metric) && !logits.contains(row.metric))
                << row.metric << ": " << row.note;
            if (square.contains(row.metric)) {
                EXPECT_EQ(row.note, not_square) << row.metric;
            }
        }
    }
    for (const std::string& name : square) EXPECT_TRUE(seen.contains(name)) << name;
    for (const char* name : {"delta", "dobrushin", "attn_fro", "jac_fro", "entropy", "row_max",
                             "row_sum_dev", "local_auc", "ds_max"})
        EXPECT_TRUE(seen.contains(name)) << name;
}

double of_head(const Table& table, const std::string& metric, Index k) {
    for (const MetricRow& row : table.metrics())
        if (row.metric == metric && row.at.head == k) return row.value.value();
    throw std::runtime_error("no " + metric);
}

TEST(Memory, HasTheOtherMetricsByDefinition) {
    const Scene scene;
    const Table shape = measure("attention_shape", scene.layer),
                norms = measure("attention_norms", scene.layer),
                spectrum = measure("spectrum", scene.layer),
                locality = measure("locality", scene.layer);
    for (Index k = 0; k < 2; ++k) {
        const Matrix& p = scene.heads[std::size_t(k)];
        double entropy = 0, largest = 0, jacobian = 0;
        for (Index i = 0; i < n; ++i) {
            double top = 0, squares = 0, cubes = 0;
            for (Index j = 0; j < m + n; ++j) {
                const double e = p(i, j);
                if (e > 0) entropy -= e * std::log(e) / double(n);
                top = std::max(top, e);
                squares += e * e;
                cubes += e * e * e;
            }
            largest += top / double(n);
            jacobian += squares - 2 * cubes + squares * squares;
        }
        const Matrix centred = naive::centred(p);
        const std::vector<double> curve = naive::accumulated_from(p, m);
        double area = 0;
        for (const double c : curve) area += c / double(m + n);
        const Tolerance close = rounding(100);
        EXPECT_CLOSE(of_head(shape, "entropy", k), entropy, close);
        EXPECT_CLOSE(of_head(shape, "row_max", k), largest, close);
        EXPECT_CLOSE(of_head(norms, "attn_fro", k), naive::frobenius(p), close);
        EXPECT_CLOSE(of_head(norms, "jac_fro", k), std::sqrt(jacobian), close);
        EXPECT_CLOSE(of_head(spectrum, "dobrushin", k), naive::dobrushin(p), close);
        EXPECT_CLOSE(of_head(spectrum, "delta", k), singular_values(centred.a, n, m + n).front(),
                     (Tolerance{.relative = 1e-6, .reason = "accuracy of an iteration"}));
        EXPECT_CLOSE(of_head(locality, "local_auc", k), area, close);
        Index points = 0;
        for (const CurveRow& row : locality.curves()) {
            if (row.at.head != k) continue;
            EXPECT_CLOSE(row.x, double(points + 1) / double(m + n), close);
            EXPECT_CLOSE(*row.y, curve[std::size_t(points)], close);
            ++points;
        }
        EXPECT_EQ(points, m + n);
    }
}

TEST(Memory, IsInTheMapsThatAreKept) {
    const Scene scene;
    ProbeSettings settings;
    settings.maps = {{0, 1}};
    const Table table = measure("maps", scene.layer, settings);
    ASSERT_EQ(table.maps().size(), 1U);
    const Map& map = table.maps().front();
    EXPECT_EQ(map.rows, n);
    EXPECT_EQ(map.cols, m + n);
    EXPECT_ALL_CLOSE(map.values, scene.heads[1].a, exactly);
}

}  // namespace
}  // namespace tsdiag::test
