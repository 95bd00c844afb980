#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <numbers>

#include "program.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/json.hpp"
#include "tsdiag/table.hpp"

/// `--tolerance` sets the relative error of lambda2_abs, delta and delta_pi on every route.
namespace tsdiag::test {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

/// P = 1 1^T / n + sum_k s_k u_k u_k^T, u_k the cosine basis: stochastic, symmetric and positive,
/// so |lambda_2| = |Pi2 P|_2 = |P - 1 pi^T|_pi = s_1.  The moduli s_k decrease slowly, so that
/// every iteration takes many steps.
constexpr double second = 0.015, ratio = 0.98;
std::vector<double> slow_chain(std::size_t n) {
    constexpr int parts = 60;
    std::vector<std::vector<double>> u(parts, std::vector<double>(n));
    for (int k = 0; k < parts; ++k)
        for (std::size_t i = 0; i < n; ++i)
            u[std::size_t(k)][i] =
                std::sqrt(2.0 / double(n)) *
                std::cos(std::numbers::pi * (k + 1) * (double(i) + 0.5) / double(n));
    std::vector<double> p(n * n, 1 / double(n));
    for (int k = 0; k < parts; ++k) {
        const std::vector<double>& of = u[std::size_t(k)];
        for (std::size_t i = 0; i < n; ++i)
            for (std::size_t j = 0; j < n; ++j)
                p[i * n + j] += second * std::pow(ratio, k) * of[i] * of[j];
    }
    return p;
}

struct Solved {
    Index iterations = 0;
    std::string method;
};

struct Route {
    const char* name;
    Index tokens;
    std::map<std::string, std::string> methods;
    bool least_memory = false;  ///< with the least memory, P does not fit
    const char* finest = "1e-11";
};
std::ostream& operator<<(std::ostream& out, const Route& route) { return out << route.name; }

class EveryRoute : public testing::TestWithParam<Route> {
  protected:
    void SetUp() override {
        const auto n = std::int64_t(GetParam().tokens);
        const std::vector<double> p = slow_chain(std::size_t(n));
        const std::vector<NamedArray> arrays = {{"attentions.0", {1, n, n}, {}, p}};
        write_npz(folder_ / "trace.npz", arrays);
    }
    /// The solution of each metric; its error is at most the tolerance.
    std::map<std::string, Solved> solved(const std::string& tolerance) {
        Words words = {"probe",       "trace.npz", "--dtype",  "f64",
                       "--no-report", "-q",        "--probes", "lambda2_abs,delta,delta_pi",
                       "--tolerance", tolerance,   "--out",    tolerance};
        if (GetParam().least_memory) {
            words.insert(words.end(), {"--memory", "1M"});
            words.back() = least_memory(tsdiag(folder_, words).err);
        }
        const Finished done = tsdiag(folder_, words);
        EXPECT_EQ(done.code, 0) << done.err;
        const fs::path out = folder_ / tolerance;
        for (const MetricRow& row :
             read_metrics_csv(read_file(out / "metrics.csv"), "metrics.csv")) {
            if (GetParam().least_memory && row.metric == "delta_pi") continue;  // P is not kept
            EXPECT_NEAR(row.value.value_or(0), second, std::stod(tolerance) * second)
                << row.metric << ", --tolerance " << tolerance;
        }
        std::map<std::string, Solved> found;
        const Json run = Json::parse(read_file(out / "run.json"), "run.json");
        for (const Json& entry : run["solver"].array())
            found[entry["metric"].string()] = {entry["iterations"].integer(),
                                               entry["method"].string()};
        return found;
    }

    TemporaryDirectory folder_;
};

TEST_P(EveryRoute, KeepsTheToleranceAndStopsThere) {
    std::map<std::string, Solved> coarse = solved("1e-2"), fine = solved(GetParam().finest);
    for (const auto& [metric, method] : GetParam().methods) {
        EXPECT_EQ(fine[metric].method, method) << metric;
        EXPECT_LT(coarse[metric].iterations, fine[metric].iterations) << metric;
    }
}

INSTANTIATE_TEST_SUITE_P(
    ToASpectrum, EveryRoute,
    testing::Values(
        Route{"Dense", 100, {}, false, "1e-8"},  // without iterations
        Route{"Kept",
              300,
              {{"lambda2_abs", "arnoldi"}, {"delta", "golub-kahan"}, {"delta_pi", "golub-kahan"}}},
        Route{"ByRows", 1200, {{"lambda2_abs", "arnoldi"}, {"delta", "golub-kahan"}}, true}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace tsdiag::test
