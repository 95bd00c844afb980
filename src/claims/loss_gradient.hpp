#pragma once
#include "variables.hpp"

/// From a loss back to the output of attention.  [DEVIL] App. D.5
namespace tsdiag::claim {

/// X1 (n x d) -> X2 = relu(X1 W1) (n x d1) -> X3 = relu(X2 W2) (n x d) -> O = X3 W3 (n x m).
struct Tail {
    Matrix X1, W1, W2, W3;
};

/// Gradients of L = - sum_i log softmax(O)_{i, label(i)}; row i has the label i mod m.
struct TailGradients {
    Matrix O, X3, X2, X1;
};

double loss(const Tail& tail);
/// `slope` multiplies both activations: 1 for relu.
TailGradients gradients(const Tail& tail, double slope = 1);

}  // namespace tsdiag::claim
