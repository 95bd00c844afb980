#pragma once
#include "variables.hpp"

/// Tokens, attention steps, and the quantities of [TSE].
namespace tsdiag::claim {

/// |Pi1 X|_F^2 / |X|_F^2 and |Pi2 X|_F^2 / |X|_F^2.  [TSE] Def. 1.1
double t_sim(const Matrix& x);
double t_div(const Matrix& x);

/// Tokens X and an attention P applied to them: Y = X + alpha P X W.
struct Step {
    Matrix X, P;
    double alpha = 1;
    Matrix apply(const Matrix& W) const { return X + alpha * P * X * W; }
};
/// X of `distribution`, P = softmax of logits drawn N(0, spread^2), alpha = 1.
Step draw_step(const Rng& rng, const Check& how, double spread = 1);
/// X of `distribution` and logits N(0, 1) as free variables, and the step that they define.
Variables draw_mixed(const Rng& rng, const Sizes& at, Distribution distribution);
Step mixed_step(const Variables& v, double alpha = 1);
/// A number between 1/2 and 3/2, 1 x 1: alpha where a statement holds for any.
Matrix draw_alpha(const Rng& rng);
/// As `draw_mixed`, and alpha.
Variables draw_mixed_by_alpha(const Rng& rng, const Sizes& at, Distribution distribution);
/// P(X) = softmax(X Wq (X Wk)^T / sqrt(k)), Wq and Wk d x k, uniform in (-1, 1)/sqrt(d) as
/// torch.nn.Linear draws them.  [TSE] (2)
Matrix attention_of(const Matrix& X, const Rng& rng, Index k);
inline Matrix attention_of(const Matrix& X, const Rng& rng) {
    return attention_of(X, rng, X.cols());
}

/// |Pi_i P X|_F / |Pi_i X|_F.  [TSE] (10)
struct Mixing {
    double mu1 = 0, mu2 = 0;
    double omega = 0;  ///< |e^T P Pi2 X| / |e^T X|.  [TSE] (12)
    double delta = 0;  ///< |Pi2 P|_2.  [TSE] (12)
};
Mixing mixing_of(const Step& step);
/// mu1, mu2 and omega of a step; `delta` stays 0: a singular value costs more than the others.
Mixing mixing_without_delta(const Step& step);
/// |Pi2 P|_2
double delta_of(const Matrix& P);

/// Rounding error of mu1 and of omega: sums of numbers as large as X, over Pi1 X.  Where mu1 and
/// |1 - omega| are no larger, neither is significant.
double rounding_of_mu1(const Matrix& X);

/// |Pi_i Y|_F^2 / |Pi_i X|_F^2.  [TSE] (7)
struct Gains {
    double xi1 = 0, xi2 = 0;
};
Gains gains_of(const Matrix& X, const Matrix& Y);
/// E xi_i = 1 + a2 mu_i^2 with a2 = alpha^2 d sigma^2.  [TSE] (9)
Gains expected_gains(const Mixing& mixing, double a2);
/// Whether both Pi1 X and Pi2 X are more than rounding of X: a ten-thousandth at least.
bool has_both_parts(const Matrix& X);

/// X and P, and alpha where it is not 1, for witnesses.
std::vector<NamedMatrix> named(const Step& step);

}  // namespace tsdiag::claim
