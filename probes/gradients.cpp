#include <cmath>

#include "support.hpp"
#include "tsdiag/ops.hpp"

/// Norms of the derivatives of a loss.  [TSE] Fig. 1
namespace tsdiag::probe {
namespace {

class Gradients final : public Probe {
  public:
    explicit Gradients(const ProbeSettings&) {}

    void on_gradient(const Gradient& e, Sink& out) override {
        const Wide squared = squared_norm(e.g);
        out.scalar(
            {.layer = e.layer, .stage = std::string(e.stage), .tensor = std::string(e.tensor)},
            "grad_norm", narrow(std::sqrt(squared)));
        if (e.layer < 0 || e.tensor.empty()) return;
        squares_ += squared;
        parameters_ += 1;
    }

    void finish_layer(Index layer, Sink& out) override {
        if (parameters_ > 0) out.scalar({.layer = layer}, "grad_norm", narrow(std::sqrt(squares_)));
        squares_ = 0;
        parameters_ = 0;
    }

  private:
    Wide squares_ = 0;
    Index parameters_ = 0;
};

constexpr Metric gradients_metrics[] = {
    {.name = metric::grad_norm,
     .symbol = "|dL/dX|",
     .definition = "|dL/dX|_F of the state at `stage`; |dL/dW|_F of the parameter in `tensor`; "
                   "with neither, the root of the sum of squares over the layer's parameters",
     .source = "[TSE] Fig. 1",
     .range = ">= 0",
     .undefined = "never",
     .of = Of::gradient,
     .stage = "",
     .show = Show::trajectory}};

}  // namespace

extern const ProbeEntry gradients = {.name = "gradients",
                                     .metrics = gradients_metrics,
                                     .needs = Needs::gradient,
                                     .make = make<Gradients>};

}  // namespace tsdiag::probe
