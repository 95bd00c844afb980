#include <array>
#include <numeric>
#include <vector>

#include "step.hpp"
#include "tsdiag/ops.hpp"

/// [CONTRANORM]: tokens move away from those that resemble them.
namespace tsdiag::model {
namespace {

constexpr std::array contranorm_options{
    NamedOption{.name = "scale",
                .fallback = "0.1",
                .numbers = true,
                .least = 0,
                .description = "s; 0: only the norm is left"},
    NamedOption{
        .name = "temperature", .fallback = "1", .numbers = true, .least = 1e-6, .description = "t"},
    NamedOption{.name = "identity",
                .fallback = "0",
                .words = "0 1",
                .description = "1: (1 + s) X instead of X, so that equal tokens keep their length"},
    NamedOption{.name = "norm",
                .fallback = "1",
                .words = "0 1",
                .description = "1: a LayerNorm of eps 1e-6 behind it, with parameters"},
    NamedOption{.name = "learned",
                .fallback = "0",
                .words = "0 1",
                .description = "1: s is a parameter of each column, which begins at `scale`"}};

/// Of row i the columns up to i.
Visible so_far(Index n) {
    Visible out{std::vector<Index>(std::size_t(n), 0), std::vector<Index>(std::size_t(n))};
    std::iota(out.last.begin(), out.last.end(), Index{1});
    return out;
}

class ContraNorm final : public FurtherStep {
  public:
    using FurtherStep::FurtherStep;

    void parameters(Index d, Parameters& to) override {
        if (options().is("learned", "1"))
            to.declare({own("scale"), {1, 1, d}, true, options().number("scale")}, scale_);
        if (options().is("norm", "1")) to.norm(own("norm"), norm_, NormKind::layer, d);
    }
    double flops(double d, double tokens) const override { return 4 * tokens * tokens * d; }
    HeldNumbers held(double) const override { return {.of_pair = 2}; }

  private:
    Tensor changed(const Tensor& x) const override {
        const Tensor unit = unit_rows(x);
        const Tensor similar = softmax_rows(
            scale(matmul(unit, unit, Transpose::second), 1 / *options().number("temperature")),
            block().attention.causal ? so_far(x.rows()) : Visible());
        const Tensor mean = matmul(similar, x);
        const Tensor moved = options().is("identity", "1") ? subtract(x, mean) : scale(mean, -1);
        const Tensor y = add(x, scale_.defined() ? multiply(moved, scale_)
                                                 : scale(moved, *options().number("scale")));
        return options().is("norm", "1") ? normed(NormKind::layer, y, norm_, 1e-6) : y;
    }

    Tensor scale_;
    Norm norm_;
};

}  // namespace
}  // namespace tsdiag::model

namespace tsdiag {

extern const StepEntry contranorm_step = {
    .name = "contranorm",
    .description =
        "By default LN(X - s softmax(U U^T / t) X), the rows of U those of X divided by their "
        "lengths; of a causal layer row i has the tokens up to i",
    .source = "[CONTRANORM]",
    .options = model::contranorm_options,
    .make = [](const BlockSpec& block, const StepSpec& spec) -> std::unique_ptr<FurtherStep> {
        return std::make_unique<model::ContraNorm>(contranorm_step, block, spec);
    }};

}  // namespace tsdiag
