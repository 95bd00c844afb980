#pragma once
#include <string>
#include <vector>

#include "layer.hpp"
#include "tsdiag/gradient.hpp"

/// Parts of the reverse sweep through a model.
namespace tsdiag::model {

/// The parameters of other weights as variables, recording which were used.
class TrackedWeights final : public Weights {
  public:
    struct Used {
        std::string name;
        Tensor value;             ///< the variable
        std::vector<Index> rows;  ///< of the whole table, where only these were read
    };

    explicit TrackedWeights(const Weights& weights) : weights_(weights) {}
    bool has(std::string_view name) const override { return weights_.has(name); }
    Tensor get(std::string_view name) const override;
    /// Each row of the table is read once, however often it is used.
    Tensor rows(std::string_view name, std::span<const Index> rows) const override;
    std::vector<std::string> names() const override { return weights_.names(); }
    const std::vector<Used>& used() const { return used_; }

  private:
    const Weights& weights_;
    mutable std::vector<Used> used_;
};

/// `x` after class attention and the final norm, where there are any.
Tensor last_state(const ModelSpec& spec, const Weights& weights, const Tensor& x);

/// Of each prediction: whether the target had the greatest logit.
using Hits = std::vector<bool>;
/// The sum of the losses of the samples of y (s, n, d), a last state, of one kind and by one
/// classifier, (1, 1, 1); behind class attention those of the class token.  Throws `UsageError` for
/// a loss that does not fit the model or the sample.  `hits`: counted where it is given and the
/// losses have targets.
Tensor loss_of(const ModelSpec& spec, const Weights& weights, const Tensor& y,
               std::span<const Loss> losses, Hits* hits = nullptr);

/// The mean row of each sample of y (s, n, d), (1, s, d).
Tensor mean_rows(const Tensor& y);
/// The sum of the losses of pairs of samples, by their mean rows (1, s, d).
Tensor loss_of_pairs(const Tensor& means, std::span<const Loss> losses, Hits* hits = nullptr);

/// Whether the parameter is read on the host, and so a constant in the sweep, or is a running mean
/// or variance, which no gradient moves.
bool constant_in_sweep(std::string_view name);

}  // namespace tsdiag::model
