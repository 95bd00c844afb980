#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tsdiag/attention.hpp"

namespace tsdiag {

/// The attention of several samples, and what was found for all their heads at once.
struct SharedAttention {
    std::unique_ptr<AttentionOperator> all;
    Index samples = 1;
    /// By what was sought and how: `spectra::solve`.
    using Question = std::tuple<int, double, double, std::string>;
    std::map<Question, std::vector<Estimate>> answers = {};
    std::optional<std::vector<double>> dobrushin = {};  ///< of all heads
    /// By memory and accuracy: delta_pi of the heads of which the device finds it.
    std::map<std::pair<double, double>, std::vector<std::optional<Estimate>>> stationary_norms = {};
};

/// The heads of one sample of them.
class HeadsOfSample final : public AttentionOperator {
  public:
    HeadsOfSample(std::shared_ptr<SharedAttention> shared, Index sample);

    RowBlock rows(Index first, Index count) const override;
    Structure structure() const override;
    Index heads() const override { return heads_; }
    Index tokens() const override { return shared_->all->tokens(); }
    Index columns() const override { return shared_->all->columns(); }
    Type type() const override { return shared_->all->type(); }
    const Backend& backend() const override { return shared_->all->backend(); }
    Tensor matrix_on_host() const override {
        return shared_->all->matrix_on_host().batch_range(first_, heads_);
    }

    SharedAttention& shared() const { return *shared_; }
    /// Of the answers for all heads those for its own.
    template <class Answer>
    std::vector<Answer> own(const std::vector<Answer>& all) const {
        return {all.begin() + first_, all.begin() + first_ + heads_};
    }

  private:
    std::shared_ptr<SharedAttention> shared_;
    Index first_, heads_;
};

}  // namespace tsdiag
