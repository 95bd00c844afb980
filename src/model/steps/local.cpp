#include "local.hpp"

#include "step.hpp"
#include "tsdiag/ops.hpp"

/// Local patch interaction [XCIT] 3.3: norm3, two depthwise convolutions with a batch norm between
/// them.
namespace tsdiag::model {
namespace {

void local_parameters(const BlockSpec& b, Index d, LayerWeights& layer, Parameters& to) {
    if (b.local.kernel == 0) return;
    LocalWeights& w = layer.local;
    const Index taps = b.local.kernel * b.local.kernel;
    to.norm("norm3", w.before, b.norm.kind, d, b.norm.bias);
    to.linear("local.conv1", w.conv1, d, taps, true);
    to.batch_norm("local.norm", w.norm, d);
    to.linear("local.conv2", w.conv2, d, taps, true);
    if (b.layer_scale) to.vector("local.scale", w.scale, d);
}

void describe_local(const BlockSpec& b, Json& out) {
    if (b.local.kernel > 0) out.set("local_kernel", b.local.kernel).set("local_eps", b.local.eps);
}

void local_stages(const BlockSpec& b, StageList& list) {
    if (b.local.kernel == 0) return;
    list.aside("norm3");
    list.state("local");
}

double local_held(const BlockSpec& b, double d) {
    return 4 * d * double(b.local.kernel * b.local.kernel);
}

double local_flops(const BlockSpec& b, double d, double tokens) {
    return 4 * tokens * d * double(b.local.kernel * b.local.kernel);
}

}  // namespace

Tensor interact(const LocalSpec& spec, const LocalWeights& w, const Tensor& x, const Grid& grid) {
    const Tensor inner =
        map(spec.activation, convolve_channels(x, w.conv1.weight, w.conv1.bias, grid));
    const Tensor out =
        convolve_channels(batch_norm(inner, w.norm, spec.eps), w.conv2.weight, w.conv2.bias, grid);
    return w.scale.defined() ? multiply(out, w.scale) : out;
}

const LayerStep local_step = {.name = "local",
                              .parameters = local_parameters,
                              .stages = local_stages,
                              .describe = describe_local,
                              .flops = local_flops,
                              .held = local_held};

}  // namespace tsdiag::model
