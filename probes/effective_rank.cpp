#include <cmath>

#include "support.hpp"
#include "tsdiag/linalg.hpp"
#include "tsdiag/ops.hpp"

/// How many directions the output of a layer uses.  [ROY-VETTERLI]
namespace tsdiag::probe {
namespace {

constexpr Index largest_side = 1024;

class EffectiveRank final : public Probe {
  public:
    explicit EffectiveRank(const ProbeSettings& settings)
        : by_name_(settings.wants_by_name("effective_rank")) {}

    void on_hidden(const Hidden& e, const StateMoments& m, Sink& out) override {
        if (e.stage != "out") return;
        const Place at = {.layer = e.layer, .stage = std::string(e.stage)};
        out.scalar(at, "effective_rank", value(e.x, m));
    }

  private:
    /// Cost: the singular values of X, O(n d min(n, d)).
    Value value(const Tensor& x, const StateMoments& m) const {
        if (m.squared == 0) return undefined("X = 0");
        if (!std::isfinite(m.squared)) return narrow(m.squared);
        if (std::min(x.rows(), x.cols()) > largest_side && !by_name_)
            return undefined("more than 1024 tokens and features, and not requested by name");
        const Tensor scaled = cast(without_exponent(x, exponent_of(x)), Type::f64);
        const std::vector<double> s = singular_values(scaled.to_host<double>(), x.rows(), x.cols());
        double sum = 0, entropy = 0;
        for (const double v : s) sum += v;
        for (const double v : s)
            if (v > 0) entropy -= v / sum * std::log(v / sum);
        return std::exp(entropy);
    }

    bool by_name_;
};

constexpr Metric effective_rank_metrics[] = {
    {.name = metric::effective_rank,
     .symbol = "erank(X)",
     .definition = "exp(-sum_i p_i ln p_i), p_i = s_i / sum_j s_j, s the singular values of X",
     .source = "[ROY-VETTERLI]",
     .range = "[1, min(n, d)]",
     .undefined = "X = 0; min(n, d) > 1024, unless requested by name",
     .of = Of::layer,
     .stage = "out",
     .show = Show::everywhere}};

}  // namespace

extern const ProbeEntry effective_rank = {.name = "rank",
                                          .metrics = effective_rank_metrics,
                                          .needs = Needs::hidden,
                                          .make = make<EffectiveRank>};

}  // namespace tsdiag::probe
