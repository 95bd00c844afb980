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

class DeescalationStep final : public Step {
  public:
    using Step::Step;

    StepPlace place() const override {
        return spec().before_ffn ? StepPlace::between : StepPlace::end;
    }
    void parameters(Index, Parameters& to) override {
        if (spec().learned) to.declare({"deesc.tau", {1, 1, 1}, true, spec().tau}, tau_);
    }
    void stages(StageList& list) const override {
        if (spec().there()) list.state("deesc");
    }
    void describe(Json& layer) const override {
        spec().learned ? layer.set("deesc_learned", true) : layer.set("deesc", spec().tau);
        if (spec().before_ffn) layer.set("deesc_at", "ffn");
        if (spec().past) layer.set("deesc_mean", "past");
    }
    double flops(double, double) const override { return 0; }
    Tensor apply(StepRun& run, const Tensor& x) const override {
        if (!spec().there()) return x;
        const Tensor mean = spec().past ? means_so_far(x) : column_mean(x);
        const Tensor y =
            subtract(x, spec().learned ? multiply(mean, tau_) : scale(mean, spec().tau));
        run.emit("deesc", run.last_stage(), y);
        return y;
    }

  private:
    const Deescalation& spec() const { return block().deesc; }

    Tensor tau_;
};

}  // namespace

std::unique_ptr<Step> deescalation_step(const BlockSpec& block) {
    return std::make_unique<DeescalationStep>(block);
}

}  // namespace tsdiag::model
