#pragma once

#include "tsdiag/backend.hpp"

namespace tsdiag {

/// out = op(a) op(b).
struct MatrixProduct {
    View out, a, b;
    Transpose t;
    bool first = t == Transpose::first, second = t == Transpose::second;  ///< is transposed
    Index inner = first ? a.shape.rows : a.shape.cols;                    ///< terms of each sum
};

/// out = op(alpha a) op(b) of float32 with both factors rounded to bfloat16 and sums in float32, as
/// jobs of one thread each.  A job is a block of rows of some samples that share their b, by a
/// panel of columns; its block is rounded once, its panel once for all of its samples.  Long sums
/// are made in parts: a thread holds 2 MB of each factor, however long they are.  Sizes follow from
/// one matrix, and each sample is a product of its own: no bit depends on the number of threads or
/// on the batch.
class RoundedProduct {
  public:
    /// Products with a single row or column are those of `TiledProduct`.
    static bool serves(const View& out, const View& a) {
        return out.shape.rows > 1 && out.shape.cols > 1 && a.shape.count() > 0;
    }
    RoundedProduct(const MatrixProduct& product, float alpha);
    Index jobs() const { return groups_ * down_ * across_; }
    /// Cost as an equivalent number of loop elements.
    Index work() const { return of_.out.shape.count() * of_.inner / 32; }
    void make(Index job) const;

  private:
    MatrixProduct of_;
    float alpha_;
    Index depth_;                ///< of these, summed at once
    Index shared_;               ///< samples of a for each b
    Index together_;             ///< of these, samples of a job
    Index rows_ = 0, cols_ = 0;  ///< of a job and one sample
    Index groups_ = 0, down_ = 0, across_ = 0;
};

}  // namespace tsdiag
