#include <functional>
#include <map>

#include "support.hpp"
#include "tsdiag/error.hpp"

/// The change of token similarity in a step.  [TSE] Def. 2.2, (5), (7)
namespace tsdiag::probe {
namespace {

Value ratio(Wide numerator, Wide denominator, const char* why_not) {
    return denominator == 0 ? undefined(why_not) : narrow(numerator / denominator);
}

/// Whether rounding alone can make this part of X or of Y, the states before and after the step.
bool hides(const Rounding& errors, Wide StateMoments::*part, const StateMoments& x,
           const StateMoments& y) {
    return errors.hides(x.*part, x.squared) || errors.hides(y.*part, y.squared);
}

/// |Pi Y|_F^2 / |Pi X|_F^2.
Value change(const Rounding& errors, Wide StateMoments::*part, const StateMoments& x,
             const StateMoments& y, const char* why_not) {
    return hides(errors, part, x, y) ? errors.undefined() : ratio(y.*part, x.*part, why_not);
}

/// r = t_div(X) / t_div(Y).
Value diversity_ratio(const Rounding& errors, const StateMoments& x, const StateMoments& y) {
    if (x.squared == 0) return undefined("X = 0");
    if (y.squared == 0) return undefined("Y = 0");
    if (hides(errors, &StateMoments::centred, x, y)) return errors.undefined();
    return ratio(x.centred / x.squared, y.centred / y.squared, "t_div(Y) = 0");
}

class Escalation final : public Probe {
  public:
    explicit Escalation(const ProbeSettings& settings) : settings_(settings) {}

    void on_hidden(const Hidden& e, const StateMoments& y, Sink& out) override {
        if (e.layer != layer_) states_.clear();
        layer_ = e.layer;
        const Place at{
            .step = -1, .layer = e.layer, .stage = std::string(e.stage), .head = -1, .tensor = {}};
        const auto emit = [&](std::string_view metric, const Value& value) {
            if (settings_.wants(metric)) out.scalar(at, metric, value);
        };
        const Rounding errors(e.x.type(), settings_.state_rounding);
        if (!e.pred.empty()) {
            const auto x = states_.find(e.pred);
            check(x != states_.end(), "a state comes after the one that it is measured from");
            emit_step(errors, x->second, y, emit);
        }
        if (e.stage == "out") {
            const auto x = states_.find("in");
            emit("r_layer", x == states_.end() ? undefined("the layer's input is missing")
                                               : diversity_ratio(errors, x->second, y));
        }
        states_.insert_or_assign(std::string(e.stage), y);
    }

    void finish_layer(Index, Sink&) override { states_.clear(); }

  private:
    template <class Emit>
    static void emit_step(const Rounding& errors, const StateMoments& x, const StateMoments& y,
                          const Emit& emit) {
        const Value xi1 = change(errors, &StateMoments::mean_part, x, y, "Pi1 X = 0");
        const Value xi2 = change(errors, &StateMoments::centred, x, y, "Pi2 X = 0");
        emit("xi1", xi1);
        emit("xi2", xi2);
        emit("xi_ratio", !xi1.value   ? xi1
                         : !xi2.value ? xi2
                                      : ratio(*xi1.value, *xi2.value, "xi2 = 0"));
        emit("r", diversity_ratio(errors, x, y));
    }

    ProbeSettings settings_;
    Index layer_ = -1;
    std::map<std::string, StateMoments, std::less<>> states_;  ///< of this layer and sample
};

constexpr Metric escalation_metrics[] = {
    {.name = "xi1",
     .symbol = "ξ₁",
     .definition = "|Pi1 Y|_F^2 / |Pi1 X|_F^2, Y this stage, X the previous one",
     .source = "[TSE] (7)",
     .range = ">= 0",
     .undefined = "the denominator is 0, or a part is below the rounding of its state",
     .of = Of::step,
     .core = true},
    {.name = "xi2",
     .symbol = "ξ₂",
     .definition = "|Pi2 Y|_F^2 / |Pi2 X|_F^2, Y this stage, X the previous one",
     .source = "[TSE] (7)",
     .range = ">= 0",
     .undefined = "as xi1",
     .of = Of::step,
     .core = true},
    {.name = metric::xi_ratio,
     .symbol = "ξ₁/ξ₂",
     .definition = "xi1 / xi2",
     .source = "[TSE] (7)",
     .range = ">= 0",
     .undefined = "xi1 or xi2 is undefined, or xi2 = 0",
     .of = Of::step,
     .core = true,
     .show = Show::everywhere},
    {.name = metric::r,
     .symbol = "r",
     .definition = "t_div(X) / t_div(Y): the escalation rate; Def. 2.2 requires t_sim(X) and "
                   "t_sim(Y) in (0, 1), but the ratio is reported wherever it exists: with "
                   "t_sim(X) = 1 it is 0, with t_sim(X) or t_sim(Y) = 0 the value of the formula",
     .source = "[TSE] (5)",
     .range = ">= 0",
     .undefined = "X = 0, Y = 0, t_div(Y) = 0, or t_div(X) or t_div(Y) below the rounding",
     .of = Of::step,
     .core = true,
     .show = Show::page},
    {.name = metric::r_layer,
     .symbol = "r",
     .definition = "t_div(X) / t_div(Y) from `in` to `out`, on stage `out`",
     .source = "[TSE] (5)",
     .range = ">= 0",
     .undefined = "as r",
     .of = Of::layer,
     .stage = "out",
     .core = true,
     .show = Show::everywhere}};

}  // namespace

extern const ProbeEntry escalation = {.name = "escalation",
                                      .metrics = escalation_metrics,
                                      .needs = Needs::hidden,
                                      .make = make<Escalation>};

}  // namespace tsdiag::probe
