#include "branch.hpp"

#include <fmt/format.h>

#include <optional>

namespace tsdiag::model {

std::string Branch::numbered(std::string_view name) const {
    return fmt::format("{}{}", name, number_);
}

void Branch::parameters(Index d, Parameters& to) {
    if (!there()) return;
    const NormSpec& norm = block().norm;
    if (number_ == 1 ? block().attention_norm : !block().one_norm)
        to.norm(numbered("norm"), norm_, norm.kind, d, norm.bias);
    declare_maps(d, to);
    if (block().layer_scale) to.vector(numbered("scale"), scale_, d);
    if (block().branch_norms) to.norm(numbered("branch"), own_norm_, norm.kind, d, norm.bias);
}

Tensor Branch::normed(const Tensor& x, const Norm& norm) const {
    return model::normed(block().norm.kind, x, norm, block().norm.eps);
}

bool Branch::plain(const StepRun& run) const {
    return !scale_.defined() && alpha() == 1 && !run.drops() &&
           block().placement != NormPlacement::branch && !block().branch_norms;
}

LinearSum Branch::mapped_sum(const Linear& map, const Tensor& x, const Tensor& y,
                             const Norm* next) const {
    const auto norm =
        next ? as_row_norm(block().norm.kind, *next, block().norm.eps) : std::optional<RowNorm>();
    return linear_sum(x, map.weight, map.bias, y, norm ? &*norm : nullptr);
}

Tensor Branch::scaled_and_normed(Tensor branch) const {
    if (scale_.defined()) branch = multiply(branch, scale_);
    if (block().placement == NormPlacement::branch) return normed(branch);
    return block().branch_norms ? normed(branch, own_norm_) : branch;
}

Tensor Branch::sum(const Tensor& y, const Tensor& branch) const {
    return add(y, alpha() == 1 ? branch : scale(branch, alpha()));
}

}  // namespace tsdiag::model
