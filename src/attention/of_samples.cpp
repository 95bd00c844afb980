#include "of_samples.hpp"

namespace tsdiag {

HeadsOfSample::HeadsOfSample(std::shared_ptr<SharedAttention> shared, Index sample)
    : shared_(std::move(shared)) {
    heads_ = shared_->all->heads() / shared_->samples;
    first_ = sample * heads_;
    keep_matrix(shared_->all->matrix().batch_range(first_, heads_));
}

RowBlock HeadsOfSample::rows(Index first, Index count) const {
    return shared_->all->rows(first, count).of_heads(first_, heads_);
}

Structure HeadsOfSample::structure() const {
    Structure known = shared_->all->structure();
    if (known.factors)
        known.factors = {known.factors->left.batch_range(first_, heads_),
                         known.factors->right.batch_range(first_, heads_)};
    return known;
}

std::vector<std::unique_ptr<AttentionOperator>> of_each_sample(
    std::unique_ptr<AttentionOperator> all, Index samples) {
    std::vector<std::unique_ptr<AttentionOperator>> out;
    if (samples == 1) {
        out.push_back(std::move(all));
        return out;
    }
    const auto shared = std::make_shared<SharedAttention>(SharedAttention{std::move(all), samples});
    for (Index s = 0; s < samples; ++s) out.push_back(std::make_unique<HeadsOfSample>(shared, s));
    return out;
}

}  // namespace tsdiag
