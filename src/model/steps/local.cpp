#include "step.hpp"
#include "tsdiag/ops.hpp"

/// Local patch interaction [XCIT] 3.3: x + scale * conv2(batch norm(act(conv1(norm3 of x)))), two
/// depthwise convolutions over the grid.
namespace tsdiag::model {
namespace {

class LocalStep final : public Step {
  public:
    using Step::Step;

    StepPlace place() const override { return StepPlace::between; }
    void parameters(Index d, Parameters& to) override {
        const NormSpec& norm = block().norm;
        to.norm("norm3", before_, norm.kind, d, norm.bias);
        to.linear("local.conv1", conv1_, d, taps(), true);
        to.batch_norm("local.norm", norm_, d);
        to.linear("local.conv2", conv2_, d, taps(), true);
        if (block().layer_scale) to.vector("local.scale", scale_, d);
    }
    void stages(StageList& list) const override {
        list.aside("norm3");
        list.state("local");
    }
    void describe(Json& layer) const override {
        layer.set("local_kernel", spec().kernel).set("local_eps", spec().eps);
    }
    double flops(double d, double tokens) const override { return 4 * tokens * d * double(taps()); }
    HeldNumbers held(double d) const override { return {.of_token = 4 * d * double(taps())}; }
    Tensor apply(StepRun& run, const Tensor& x) const override {
        const Tensor in = normed(block().norm.kind, x, before_, block().norm.eps);
        run.emit("norm3", "", in);
        const Tensor y = add(x, run.dropped(branch(in, run.grid()), "local"));
        run.emit("local", "attn", y);
        return y;
    }

  private:
    const LocalSpec& spec() const { return block().local; }
    Index taps() const { return spec().kernel * spec().kernel; }
    Tensor branch(const Tensor& x, const Grid& grid) const {
        const Tensor inner =
            map(spec().activation, convolve_channels(x, conv1_.weight, conv1_.bias, grid));
        const Tensor out = convolve_channels(batch_norm(inner, norm_, spec().eps), conv2_.weight,
                                             conv2_.bias, grid);
        return scale_.defined() ? multiply(out, scale_) : out;
    }

    Norm before_;
    Linear conv1_, conv2_;
    BatchNorm norm_;
    Tensor scale_;
};

}  // namespace

std::unique_ptr<Step> local_step(const BlockSpec& block) {
    return block.local.kernel == 0 ? nullptr : std::make_unique<LocalStep>(block);
}

}  // namespace tsdiag::model
