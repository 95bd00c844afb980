#include "merge.hpp"

#include <fmt/format.h>

#include "step.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/ops.hpp"

/// Patch merging [SWIN] 3.1 behind a layer: four neighbours beside each other, their norm, a linear
/// map.
namespace tsdiag::model {
namespace {

void merge_parameters(const BlockSpec& b, Index d, LayerWeights& layer, Parameters& to) {
    if (b.merge.width == 0) return;
    to.norm("merge.norm", layer.merge.norm, NormKind::layer, 4 * d);
    to.linear("merge.map", layer.merge.map, b.merge.width, 4 * d, false);
}

void describe_merge(const BlockSpec& b, Json& out) {
    if (b.merge.width > 0) out.set("merge_width", b.merge.width).set("merge_eps", b.merge.eps);
}

void merge_stages(const BlockSpec& b, StageList& list) {
    if (b.merge.width > 0) list.aside("merge");
}

double merge_flops(const BlockSpec& b, double d, double tokens) {
    return 2 * (tokens / 4) * (4 * d) * double(b.merge.width);
}

}  // namespace

Tensor merged(const Tensor& x, const MergeSpec& spec, const MergeWeights& weights, const Grid& grid,
              Index layer) {
    if (grid.rows % 2 != 0 || grid.cols % 2 != 0)
        throw UsageError(
            fmt::format("layer {}: the patches of its grid of {} x {} do not merge by twos; pass "
                        "an image of another size",
                        layer, grid.rows, grid.cols));
    std::vector<Tensor> parts;
    for (const Index right : {0, 1})
        for (const Index down : {0, 1}) {
            std::vector<Index> rows;
            for (Index y = 0; y < grid.rows; y += 2)
                for (Index c = 0; c < grid.cols; c += 2)
                    rows.push_back((y + down) * grid.cols + c + right);
            parts.push_back(rows_of_each(x, rows));
        }
    return weights.map(normed(NormKind::layer, concat_cols(parts), weights.norm, spec.eps));
}

const LayerStep merge_step = {.name = "merge",
                              .parameters = merge_parameters,
                              .stages = merge_stages,
                              .describe = describe_merge,
                              .flops = merge_flops,
                              .behind = true};

}  // namespace tsdiag::model
