#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "support/files.hpp"
#include "support/places.hpp"
#include "tsdiag/json.hpp"
#include "tsdiag/metric.hpp"
#include "tsdiag/random.hpp"
#include "tsdiag/run.hpp"

/// What float32 prints is right, or it prints nothing: against float64, of models with tokens that
/// differ and with tokens that are nearly equal.
namespace tsdiag::test {
namespace {

const std::filesystem::path golden = std::filesystem::path(test_data()) / "golden";

constexpr double unit = 0x1p-24;  ///< the relative rounding of float32
constexpr double stated = 8;      ///< the errors of a part of a whole, in units of it

bool below(const MetricRow& row) { return row.note.find(below_rounding) != std::string::npos; }

/// By how much the errors of the elements are larger, relative to a part of the states of a layer,
/// or of a P, of which a metric is.
class Conditions {
  public:
    explicit Conditions(const std::vector<MetricRow>& rows) {
        for (const MetricRow& row : rows) {
            if (!row.value || !(*row.value > 0)) continue;
            if (row.metric == "t_sim" || row.metric == "t_div") {
                double& worst = of_states_[row.at.layer];
                worst = std::max(worst, 1 / std::sqrt(*row.value));
            }
            if (row.metric == "attn_fro") sizes_[{row.at.layer, row.at.head}] = *row.value;
        }
    }
    double of(const MetricRow& row) const {
        const Metric& metric = *find_metric(row.metric);
        const double value = std::abs(*row.value);
        if (row.metric == "t_sim" || row.metric == "t_div") return 1 / std::sqrt(value);
        if (row.metric == "delta" || row.metric == "lambda2_abs")
            return sizes_.at({row.at.layer, row.at.head}) / value;
        const bool of_parts = row.metric.starts_with("mu") || row.metric.starts_with("est") ||
                              row.metric.starts_with("jac_q") || row.metric.starts_with("jac_k");
        if (metric.of == Of::step || row.metric == "r_layer" || of_parts)
            return 2 * of_states_.at(row.at.layer);
        return 1 / std::min(value, 1.0);
    }

  private:
    std::map<Index, double> of_states_ = {};
    std::map<std::pair<Index, Index>, double> sizes_ = {};
};

struct Compared {
    Index equal = 0, hidden = 0;
};

/// Compares the numbers of a run in float32 and in float64, of one place and metric each.
Compared compare(RunOptions options, const std::string& name) {
    options.dtype = Type::f64;
    const std::vector<MetricRow> exact = run(options).table.metrics();
    options.dtype = Type::f32;
    const std::vector<MetricRow> found = run(options).table.metrics();
    EXPECT_EQ(exact.size(), found.size());
    const Conditions conditions(exact);
    Compared out;
    for (std::size_t i = 0; i < std::min(exact.size(), found.size()); ++i) {
        const MetricRow &a = found[i], &b = exact[i];
        EXPECT_TRUE(a.at == b.at && a.metric == b.metric);
        out.hidden += below(a);
        // Of 0 in one of both nothing is said, nor of the deviation that rounding is, nor of the
        // mean over the heads that are left.
        if (!a.value || !b.value || *a.value == 0 || *b.value == 0 || a.metric == "row_sum_dev" ||
            below(a) || below(b))
            continue;
        ++out.equal;
        const double allowed = 1e-4 + stated * unit * conditions.of(b);
        // The estimates are differences from 1.
        const double size = std::abs(*b.value) + (a.metric.starts_with("est") ? 1 : 0);
        EXPECT_LE(std::abs(*a.value - *b.value), allowed * size)
            << name << ": " << a.metric << " in layer " << a.at.layer << ", stage " << a.at.stage
            << ", head " << a.at.head << ": " << *a.value << " and " << *b.value;
    }
    return out;
}

RunOptions options_of(const Json& one) {
    RunOptions options;
    options.subject.model = (golden / one["open"].string()).string();
    if (one["needs"]["n_heads"].is_integer())
        options.subject.heads = one["needs"]["n_heads"].integer();
    if (one["needs"]["memory_tokens"].is_integer())
        options.subject.memory_tokens = one["needs"]["memory_tokens"].integer();
    const auto config = std::filesystem::path(options.subject.model).parent_path() / "config.json";
    if (std::filesystem::exists(config)) options.subject.config = config.string();
    options.probes = {"all"};
    return options;
}

std::vector<Json> golden_models() {
    std::vector<Json> out;
    std::set<std::string> seen;
    const Json manifest = Json::parse(read_file(golden / "manifest.json"), "manifest.json");
    for (const Json& one : manifest["cases"].array())
        if (seen.insert(one["open"].string()).second) out.push_back(one);
    return out;
}

TEST(BelowTheRounding, Float32AndFloat64OfEveryGoldenModelAgreeOrOneIsUndefined) {
    Compared all;
    const std::vector<Json> models = golden_models();
    for (const Json& one : models) {
        RunOptions options = options_of(one);
        if (one["input"].string() != "image") options.tokens = one["tokens"].integer();
        const Compared own = compare(options, one["open"].string());
        all.equal += own.equal, all.hidden += own.hidden;
    }
    EXPECT_GT(models.size(), 80u);
    EXPECT_GT(all.equal, 10000);
    EXPECT_LT(all.hidden, all.equal / 100);  // of tokens that differ
}

TEST(BelowTheRounding, OfNearlyEqualTokensToo) {
    const TemporaryDirectory folder;
    Compared all;
    for (const Json& one : golden_models()) {
        if (one["input"].string() != "ids" || !one["needs"].object().empty()) continue;
        const Index n = one["tokens"].integer(), d = one["width"].integer();
        for (const double apart : {1e-2, 1e-5, 1e-8}) {
            std::vector<double> x(std::size_t(n * d)), mean(std::size_t(d), 0.0);
            Rng rng(7);
            rng.fill_normal(std::span<double>(mean), 0, 1);
            rng.fill_normal(std::span<double>(x), 0, apart);
            for (std::size_t i = 0; i < x.size(); ++i) x[i] += mean[i % mean.size()];
            write_npy(folder / "x.npy", "<f8", {n, d}, std::span<const double>(x));
            RunOptions options = options_of(one);
            options.input = "hidden:" + (folder / "x.npy");
            const Compared own =
                compare(options, fmt::format("{}, {} apart", one["open"].string(), apart));
            all.equal += own.equal, all.hidden += own.hidden;
        }
    }
    EXPECT_GT(all.equal, 1000);
    EXPECT_GT(all.hidden, 1000);
}

}  // namespace
}  // namespace tsdiag::test
