#pragma once
#include "variables.hpp"

/// Tokens, what attention does to them, and the quantities of [TSE].
namespace tsdiag::claim {

/// |Pi1 X|_F^2 / |X|_F^2 and |Pi2 X|_F^2 / |X|_F^2.  [TSE] Def. 1.1
double t_sim(const Matrix& x);
double t_div(const Matrix& x);

/// Tokens X and an attention P that acts on them: Y = X + alpha P X W.
struct Step {
    Matrix X, P;
    double alpha = 1;
    Matrix apply(const Matrix& W) const { return X + alpha * P * X * W; }
};
/// X of `distribution`, P = softmax of logits drawn N(0, spread^2).
Step draw_step(const Rng& rng, const Check& how, double spread = 1);

/// |Pi_i P X|_F / |Pi_i X|_F.  [TSE] (10)
struct Mixing {
    double mu1 = 0, mu2 = 0;
    double omega = 0;  ///< |e^T P Pi2 X| / |e^T X|.  [TSE] (12)
    double delta = 0;  ///< |Pi2 P|_2.  [TSE] (12)
};
Mixing mixing_of(const Step& step);

/// |Pi_i Y|_F^2 / |Pi_i X|_F^2.  [TSE] (7)
struct Gains {
    double xi1 = 0, xi2 = 0;
};
Gains gains_of(const Matrix& X, const Matrix& Y);

/// X and P, for witnesses.
std::vector<NamedMatrix> named(const Step& step);

}  // namespace tsdiag::claim
