#include <algorithm>
#include <cmath>
#include <vector>

#include "support.hpp"

/// How a mixture of experts spreads its tokens.  [SWITCH] 2.2
namespace tsdiag::probe {
namespace {

/// -sum_e f_e ln f_e / ln E of f >= 0 with sum 1.
double relative_entropy(const double* f, std::size_t count) {
    double sum = 0;
    for (std::size_t e = 0; e < count; ++e)
        if (f[e] > 0) sum -= f[e] * std::log(f[e]);
    return sum / std::log(double(count));
}

class Experts final : public Probe {
  public:
    explicit Experts(const ProbeSettings& settings) : settings_(settings) {}

    void on_routing(const Routing& e, Sink& out) override {
        const std::vector<double> p = e.p.to_host<double>();
        const auto experts = std::size_t(e.p.cols()), tokens = p.size() / experts;
        std::vector<double> load(experts);
        double dropped = 0, spread = 0;
        for (std::size_t i = 0; i < tokens; ++i) {
            double kept = 0;
            for (std::size_t k = 0; k < std::size_t(e.each); ++k) {
                const auto expert = std::size_t(e.chosen[i * std::size_t(e.each) + k]);
                load[expert] += 1 / double(e.chosen.size());
                kept += p[i * experts + expert];
            }
            dropped += 1 - kept;
            if (experts > 1) spread += relative_entropy(&p[i * experts], experts);
        }
        const Place at{.layer = e.layer, .stage = "out"};
        const auto emit = [&](std::string_view metric, const Value& value) {
            if (settings_.wants(metric)) out.scalar(at, metric, value);
        };
        const auto of_several = [&](double value) {
            return experts > 1 ? Value(value) : undefined("there is one expert");
        };
        emit(metric::expert_load, double(experts) * *std::ranges::max_element(load));
        emit(metric::expert_unused, double(std::ranges::count(load, 0.0)) / double(experts));
        emit(metric::expert_entropy, of_several(relative_entropy(load.data(), experts)));
        emit(metric::routing_entropy, of_several(spread / double(tokens)));
        emit(metric::routing_dropped, std::max(0.0, dropped / double(tokens)));
    }

  private:
    ProbeSettings settings_;
};

constexpr Metric experts_metrics[] = {
    {.name = metric::expert_load,
     .symbol = "E max f",
     .definition =
         "E max_e f_e, f_e the share of expert e of all choices of the layer, E the number "
         "of experts; 1: all have as many tokens",
     .source = "[SWITCH] (5)",
     .range = "[1, E]",
     .undefined = "the layer has no mixture of experts (not in the tables)",
     .of = Of::layer,
     .stage = "out"},
    {.name = metric::expert_unused,
     .symbol = "unused experts",
     .definition = "the share of experts that no token of the sample chose",
     .range = "[0, 1)",
     .undefined = "as expert_load",
     .of = Of::layer,
     .stage = "out"},
    {.name = metric::expert_entropy,
     .symbol = "H(f)",
     .definition = "-sum_e f_e ln f_e / ln E; 1: all have as many tokens",
     .range = "[0, 1]",
     .undefined = "as expert_load; E = 1",
     .of = Of::layer,
     .stage = "out"},
    {.name = metric::routing_entropy,
     .symbol = "H(p)",
     .definition =
         "the mean over the tokens of -sum_e p_e ln p_e / ln E, p the softmax of the router, or "
         "its sigmoids over their sum",
     .range = "[0, 1]",
     .undefined = "as expert_load; E = 1",
     .of = Of::layer,
     .stage = "out"},
    {.name = metric::routing_dropped,
     .symbol = "dropped p",
     .definition =
         "the mean over the tokens of 1 - sum p_e over the chosen experts: the share of the "
         "router's probability that is not followed",
     .range = "[0, 1)",
     .undefined = "as expert_load",
     .of = Of::layer,
     .stage = "out"}};

}  // namespace

extern const ProbeEntry experts = {
    .name = "experts", .metrics = experts_metrics, .needs = Needs::routing, .make = make<Experts>};

}  // namespace tsdiag::probe
