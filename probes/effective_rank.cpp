#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "support.hpp"
#include "tsdiag/linalg.hpp"
#include "tsdiag/ops.hpp"

/// How many directions the output of a layer uses.  [ROY-VETTERLI]
namespace tsdiag::probe {
namespace {

constexpr Index largest_side = 1024;

/// The relative error allowed by rounding in the Gram matrix.
constexpr double allowed_change = 1e-7;

/// -sum_i p_i ln p_i, p_i = s_i / sum_j s_j.
double entropy(std::span<const double> s) {
    double sum = 0, entropy = 0;
    for (const double v : s) sum += v;
    for (const double v : s)
        if (v > 0) entropy -= v / sum * std::log(v / sum);
    return entropy;
}

/// The roots of the eigenvalues `s`; none where their rounding errors may change the entropy by
/// more than `allowed_change`: products and solver change an eigenvalue by about eps |X|_F^2, which
/// for a small one is much of its root.
std::optional<std::vector<double>> by_gram(std::vector<double> s) {
    if (s.empty()) return std::nullopt;
    double squares = 0, sum = 0, change = 0;
    for (double& v : s) {
        v = std::max(0.0, v);
        squares += v;
        sum += v = std::sqrt(v);
    }
    const double off = 4 * std::numeric_limits<double>::epsilon() * squares;
    const double whole = entropy(s);
    for (const double v : s) {
        const double own = std::min(std::sqrt(off), off / (2 * v)) / sum;
        change += own * (1 + whole + std::abs(std::log(std::max(v / sum, own))));
    }
    if (!(change <= allowed_change)) return std::nullopt;
    return s;
}

class EffectiveRank final : public Probe {
  public:
    explicit EffectiveRank(const ProbeSettings& settings)
        : by_name_(settings.wants_by_name("effective_rank")) {}

    void on_hidden(const Hidden& e, const StateMoments& m, Sink& out) override {
        if (e.stage != "out") return;
        const Place at = {.layer = e.layer, .stage = std::string(e.stage)};
        out.scalar(at, "effective_rank", value(e, m));
    }

  private:
    /// Cost: the singular values of X, O(n d min(n, d)), and a third of it where they are far
    /// enough from 0 to be roots.
    Value value(const Hidden& e, const StateMoments& m) const {
        const Tensor& x = e.x;
        if (m.squared == 0) return undefined("X = 0");
        if (!std::isfinite(m.squared)) return narrow(m.squared);
        if (std::min(x.rows(), x.cols()) > largest_side && !by_name_)
            return undefined("more than 1024 tokens and features, and not requested by name");
        if (const auto s = by_gram(squares_of(e).values)) return std::exp(entropy(*s));
        const Tensor scaled = cast(without_exponent(x, exponent_of(x)), Type::f64);
        return std::exp(entropy(singular_values(scaled.to_host<double>(), x.rows(), x.cols())));
    }

    bool by_name_;
};

/// Copies and workspace of Eigen's BDCSVD; larger ones only if requested by name.  On a device of
/// all samples their states in float64, Gram matrices and tridiagonal forms.
MetricBytes svd_bytes(const MetricSizes& s) {
    constexpr double wide = sizeof(double);
    const double side = std::min(s.tokens, s.width), rank = std::min(side, double(largest_side));
    return {.work = s.tokens * s.width * (5 * wide + s.element) + 4 * rank * rank * wide,
            .of_sample = wide * (s.tokens * s.width + side * side + 2 * side)};
}

constexpr Metric effective_rank_metrics[] = {
    {.name = metric::effective_rank,
     .symbol = "erank(X)",
     .definition = "exp(-sum_i p_i ln p_i), p_i = s_i / sum_j s_j, s the singular values of X",
     .source = "[ROY-VETTERLI]",
     .range = "[1, min(n, d)]",
     .undefined = "X = 0; min(n, d) > 1024, unless requested by name",
     .of = Of::layer,
     .stage = "out",
     .show = Show::everywhere,
     .bytes = svd_bytes}};

}  // namespace

extern const ProbeEntry effective_rank = {.name = "rank",
                                          .metrics = effective_rank_metrics,
                                          .needs = Needs::hidden,
                                          .make = make<EffectiveRank>};

}  // namespace tsdiag::probe
