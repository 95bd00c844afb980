#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "support.hpp"
#include "tsdiag/error.hpp"
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

/// Each x in float64, divided by a power of two.
Tensor scaled(const Tensor& x) { return cast(without_exponents(x, exponents_of(x)), Type::f64); }

/// The eigenvalues of the smaller of X X^T and X^T X of each x; empty where a device has none.
std::vector<std::vector<double>> squares_of(const Tensor& x) {
    return symmetric_eigenvalues(
        matmul(x, x, x.rows() <= x.cols() ? Transpose::second : Transpose::first));
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
        if (const auto s = by_gram(squares(e))) return std::exp(entropy(*s));
        return std::exp(entropy(singular_values(scaled(x).to_host<double>(), x.rows(), x.cols())));
    }

    /// The first sample that asks has those of all found.
    static std::vector<double> squares(const Hidden& e) {
        if (e.together && !e.together->squares) try {
                e.together->squares = squares_of(scaled(e.together->x));
            } catch (const OutOfMemory&) {
                if (e.together->x.batch() == 1) throw;
                note_shortage("the effective ranks of samples were found one by one");
            }
        if (!e.together || !e.together->squares) return squares_of(scaled(e.x)).front();
        return (*e.together->squares)[std::size_t(e.sample)];
    }

    bool by_name_;
};

/// Copies and workspace of Eigen's BDCSVD; larger ones only if requested by name.
MetricBytes svd_bytes(const MetricSizes& s) {
    const double rank = std::min({s.tokens, s.width, double(largest_side)});
    return {.work = s.tokens * s.width * (5 * sizeof(double) + s.element) +
                    4 * rank * rank * sizeof(double)};
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
