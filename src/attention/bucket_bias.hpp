#pragma once
#include <optional>

#include "distances.hpp"

/// The relative bias of gated attention units.  [FLASH]
namespace tsdiag::variants {

/// The parameter `rel_pos_bias` of a drawn model: b ~ N(0, 1) of 32 buckets, for all heads.
std::vector<LearnedParameter> learned_bucket_bias(const AttentionOptions& options,
                                                  const LearnedFor& model);

/// Of `AttentionCost`: of each entry its place in the table, and twice its bias, which all heads
/// share.
double bytes_of_bucket_bias(const AttentionSizes& sizes);

/// factor b_c, c the bucket of j - i [T5], b the parameter `rel_pos_bias`, (1, buckets, 1).
///
/// Half of the buckets of a direction are one step wide, the others grow as powers up to 128 steps.
class BucketBias {
  public:
    /// Throws `ShapeError` where the number of buckets is no multiple of 4.
    BucketBias(const AttentionEntry& entry, const AttentionInput& input, double factor);

    bool there() const { return values_.defined(); }  ///< whether the model has that parameter
    /// Rows [first, first + count), (1, count, n).
    Tensor rows(Index first, Index count) const;

  private:
    std::optional<Distances> distances_;
    Tensor values_;  // of the rows of the distances, times the factor
};

}  // namespace tsdiag::variants
