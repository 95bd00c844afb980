#include "bucket_bias.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

#include "tsdiag/error.hpp"

namespace tsdiag::variants {
namespace {

/// Of j - i = `distance`.  In float32, as in training: at powers of two the last bit decides.
Index bucket(Index distance, Index buckets, bool causal) {
    Index out = 0, steps = -distance;
    if (!causal) {
        buckets /= 2;
        if (steps < 0) out = buckets;
        steps = std::abs(steps);
    }
    steps = std::max<Index>(steps, 0);
    const Index exact = buckets / 2;
    if (steps < exact) return out + steps;
    const float ratio = std::log(float(steps) / float(exact)) /
                        float(std::log(128.0 / double(exact))) * float(buckets - exact);
    return out + std::min(exact + Index(ratio), buckets - 1);
}

}  // namespace

std::vector<LearnedParameter> learned_bucket_bias(const AttentionOptions&, const LearnedFor&) {
    return {{.name = "rel_pos_bias",
             .matrix = true,
             .shape = {1, 32, 1},
             .law = Law::normal,
             .spread = 1}};
}

double bytes_of_bucket_bias(const AttentionSizes& sizes) {
    if (sizes.shape_of("rel_pos_bias").count() == 0) return 0;
    return double(sizeof(Index) + 2 * bytes_of(sizes.type));
}

BucketBias::BucketBias(const AttentionEntry& entry, const AttentionInput& in, double factor) {
    const Tensor given = parameter(in, "rel_pos_bias");
    if (!given.defined()) return;
    const Index buckets = given.rows();
    if (buckets < 4 || buckets % 4 != 0)
        throw ShapeError(fmt::format(
            "attention '{}': a bias of {} buckets, expected a multiple of 4", entry.name, buckets));
    distances_.emplace(
        in, [=, causal = in.causal](Index before) { return bucket(-before, buckets, causal); });
    values_ = scale(gather_rows(given, distances_->rows()), factor);
}

Tensor BucketBias::rows(Index first, Index count) const {
    return distances_->of_table(values_, first, count);
}

}  // namespace tsdiag::variants
