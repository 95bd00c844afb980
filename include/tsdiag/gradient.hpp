#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tsdiag/ops.hpp"

/// Derivatives by a reverse sweep over recorded ops.
///
///     const Tensor x = variable(given);
///     const Tensor y = softmax_rows(matmul(x, k, Transpose::second), {});
///     const Tensor dx = grad(y, u, std::span(&x, 1))[0];   // (dy/dx)^T u
///
/// An op with a tracked operand returns a tracked tensor; others record nothing.  Each op's
/// derivative is made of ops, so that a derivative can be differentiated.
namespace tsdiag {

/// Saved values of an op that its derivative may read.
struct Saved {
    std::span<const Tensor> operands;  ///< those that were saved
    Tensor result;                     ///< where it was saved
};
/// The cotangent of one operand from that of the result.
using Pullback = std::function<Tensor(const Tensor& g, const Saved& saved)>;
/// Those of all tracked operands at once; empty where each has to be asked for.  `arrived`: the sum
/// of the cotangents that the first of them has from its other readers, empty where it has none
/// yet; a function that adds it to what it returns for that operand takes it, and leaves it empty.
using Pullbacks =
    std::function<std::vector<Tensor>(const Tensor& g, const Saved& saved, Tensor& arrived)>;
/// The cotangent of the only operand from those of parts of the result, batches behind each other
/// that are all of it.
using PartsPullback = std::function<Tensor(std::span<const Tensor> parts)>;

/// Where a part of a tensor begins.
struct Corner {
    Index batch = 0, row = 0, col = 0;
    bool operator==(const Corner&) const = default;
};

/// How a tracked tensor was computed.
struct Record {
    struct Edge {
        std::shared_ptr<const Record> operand;
        Pullback pullback;
        /// The cotangent is that of a part of the operand from here on; the rest of it is 0.
        std::optional<Corner> part = {};
    };
    Shape shape;
    Index depth = 0;  ///< ops between it and the farthest variable
    std::vector<Edge> edges;
    Pullbacks together;      ///< in the order of the edges; may be empty
    PartsPullback of_parts;  ///< saves joining them; may be empty
    std::vector<Tensor> saved;
    Tensor result;  ///< saved, not tracked
};

/// x as a leaf: derivatives are taken with respect to variables.
Tensor variable(const Tensor& x);

/// sum_ij cotangent_ij dy_ij/dx for each x of `wrt`, of the shape of x; zeros where y does not
/// depend on it.  `wrt` may hold intermediate results.
///
/// `differentiable`: the results are tracked too, also with respect to `cotangent`.
/// Cost: about twice the recorded ops.  Throws `ShapeError` for a cotangent of another shape than
/// y, and where an x is not tracked.
std::vector<Tensor> grad(const Tensor& y, const Tensor& cotangent, std::span<const Tensor> wrt,
                         bool differentiable = false);

/// `value` with the derivative of `y`: the same function, computed differently.
Tensor with_derivative(const Tensor& value, const Tensor& y);

}  // namespace tsdiag
