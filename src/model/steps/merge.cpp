#include <fmt/format.h>

#include "step.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/ops.hpp"

/// Patch merging [SWIN] 3.1 behind a layer: four neighbours beside each other, their norm, a linear
/// map.
namespace tsdiag::model {
namespace {

/// x (s, grid, d) -> (s, a quarter of the grid, 4 d): upper left, lower left, upper right, lower
/// right.
Tensor four_neighbours(const Tensor& x, const Grid& grid) {
    std::vector<Tensor> parts;
    for (const Index right : {0, 1})
        for (const Index down : {0, 1}) {
            std::vector<Index> rows;
            for (Index y = 0; y < grid.rows; y += 2)
                for (Index c = 0; c < grid.cols; c += 2)
                    rows.push_back((y + down) * grid.cols + c + right);
            parts.push_back(rows_of_each(x, rows));
        }
    return concat_cols(parts);
}

class MergeStep final : public Step {
  public:
    using Step::Step;

    StepPlace place() const override { return StepPlace::behind; }
    void parameters(Index d, Parameters& to) override {
        to.norm("merge.norm", norm_, NormKind::layer, 4 * d);
        to.linear("merge.map", map_, spec().width, 4 * d, false);
    }
    void stages(StageList& list) const override { list.aside("merge"); }
    void describe(Json& layer) const override {
        layer.set("merge_width", spec().width).set("merge_eps", spec().eps);
    }
    double flops(double d, double tokens) const override {
        return 2 * (tokens / 4) * (4 * d) * double(spec().width);
    }
    Tensor apply(StepRun& run, const Tensor& x) const override {
        const Grid& grid = run.grid();
        if (grid.rows % 2 != 0 || grid.cols % 2 != 0)
            throw UsageError(
                fmt::format("layer {}: the patches of its grid of {} x {} do not merge by twos; "
                            "pass an image of another size",
                            run.layer(), grid.rows, grid.cols));
        const Tensor y = map_(normed(NormKind::layer, four_neighbours(x, grid), norm_, spec().eps));
        run.emit("merge", "", y);
        return y;
    }

  private:
    const MergeSpec& spec() const { return block().merge; }

    Norm norm_;
    Linear map_;
};

}  // namespace

std::unique_ptr<Step> merge_step(const BlockSpec& block) {
    return block.merge.width == 0 ? nullptr : std::make_unique<MergeStep>(block);
}

}  // namespace tsdiag::model
