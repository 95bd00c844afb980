#pragma once
#include <functional>
#include <memory>
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

/// How a tracked tensor was computed.
struct Record {
    struct Edge {
        std::shared_ptr<const Record> operand;
        Pullback pullback;
    };
    Shape shape;
    Index depth = 0;  ///< ops between it and the farthest variable
    std::vector<Edge> edges;
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
