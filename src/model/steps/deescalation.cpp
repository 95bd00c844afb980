#include "deescalation.hpp"

#include <algorithm>
#include <vector>

#include "step.hpp"
#include "tsdiag/ops.hpp"

/// X - tau 1 mean(X)^T.  [TSE (21)]
namespace tsdiag::model {
namespace {

/// Row i: the mean of rows 0 .. i.
Tensor means_so_far(const Tensor& x) {
    const Index n = x.rows();
    std::vector<double> shares(std::size_t(n * n), 0.0);
    for (Index i = 0; i < n; ++i) std::fill_n(shares.begin() + i * n, i + 1, 1 / double(i + 1));
    const Tensor triangle =
        Tensor::from_host(x.backend(), {1, n, n}, std::span<const double>(shares), x.type());
    return matmul(repeat_batches(triangle, x.batch()), x);
}

void deescalation_parameters(const BlockSpec& b, Index, LayerWeights& layer, Parameters& to) {
    if (b.deesc.learned) to.vector("deesc.tau", layer.tau, 1);
}

void describe_deescalation(const BlockSpec& b, Json& out) {
    b.deesc.learned ? out.set("deesc_learned", true) : out.set("deesc", b.deesc.tau);
    if (b.deesc.before_ffn) out.set("deesc_at", "ffn");
    if (b.deesc.past) out.set("deesc_mean", "past");
}

void deescalation_stages(const BlockSpec& b, StageList& list) {
    if (b.deesc.there()) list.state("deesc");
}

}  // namespace

Tensor deescalated(const Deescalation& spec, const Tensor& tau, const Tensor& x) {
    const Tensor mean = spec.past ? means_so_far(x) : column_mean(x);
    return subtract(x, spec.learned ? multiply(mean, tau) : scale(mean, spec.tau));
}

const LayerStep deescalation_step = {.name = "deescalation",
                                     .parameters = deescalation_parameters,
                                     .stages = deescalation_stages,
                                     .describe = describe_deescalation,
                                     .flops = [](const BlockSpec&, double, double) { return 0.0; }};

}  // namespace tsdiag::model
