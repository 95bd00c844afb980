#pragma once
#include <complex>

#include "bound.hpp"

/// Derivatives of one row of attention.  s: logits or scores, 1 x n; V: values, n x d;
/// g = dL/do: 1 x d.
namespace tsdiag::claim {

/// dp_j/ds_k of p = softmax(s): diag(p) - p^T p, with 1 - p_j as a sum of the others.
Matrix softmax_derivative(const Matrix& p);
/// dp_j/ds_k of p = s / sum(s): (1_{j=k} - p_j) / sum(s).  Also where s_k = 0.
Matrix linear_derivative(const Matrix& s);
/// dL/ds_j of o = p V, p = softmax(s): p_j <g, v_j - o>, 1 x n, by differences of values.
Matrix softmax_gradient(const Matrix& s, const Matrix& V, const Matrix& g);
/// dL/ds_j of o = p V, p = s / sum(s): <g, v_j - o> / sum(s), 1 x n, by differences of values:
/// exactly 0 where all are equal.
Matrix linear_gradient(const Matrix& s, const Matrix& V, const Matrix& g);

/// s of any sign; s >= 0.
Variables draw_signed_scores(const Rng& rng, const Sizes& at, Distribution distribution);
Variables draw_scores(const Rng& rng, const Sizes& at, Distribution distribution);
/// s of any sign, V and g: a statement about each row by itself.
Variables draw_row(const Rng& rng, const Sizes& at, Distribution distribution);

/// A positive eps, 1 x 1, and the variable of that name.
Matrix draw_eps(const Rng& rng);
double eps_of(const Variables& v);
/// Factors of bounds on RMS normalisation.
double one(double d);
double three_halves_d(double d);
/// sigma^2 + eps, sigma^2 = |t|^2 / d.  t: 1 x d.
double rms_square(const Matrix& t, double eps);
/// do_j/dt_k of o = t / sqrt(v), v = sigma^2 + eps: (I - t^T t / (d v)) / sqrt(v).
Matrix rms_norm_derivative(const Matrix& t, double eps);
/// dL/ds_j of o = t / sqrt(v), t = s V: <g R, v_j> with R the derivative above.  1 x n.
Matrix norm_attention_gradient(const Matrix& s, const Matrix& V, const Matrix& g, double eps);

/// Entry by entry: the pair where |measured| / bound is largest.
BoundSides worst_entry(const Matrix& measured, const Matrix& bound);
/// Of an equation, entry by entry: the pair with the largest difference relative to its room; where
/// none exceeds its room, the one with the largest claim.
BoundSides worst_difference(const Matrix& measured, const Matrix& claimed, const Matrix& room);

using ComplexRow = Eigen::RowVectorXcd;
/// df_j/dx_k of an analytic f by a complex step: Im f(x + i h e_k)_j / h.  Nothing is subtracted,
/// so h can be far below rounding and the result is accurate to rounding.
template <class F>
Matrix complex_step(const F& f, const Matrix& x) {
    constexpr double h = 1e-100;
    const ComplexRow at = x.row(0).template cast<std::complex<double>>();
    Matrix derivative;
    for (Index k = 0; k < x.cols(); ++k) {
        ComplexRow stepped = at;
        stepped(k) += std::complex<double>(0, h);
        const ComplexRow value = f(stepped);
        if (k == 0) derivative.resize(value.cols(), x.cols());
        derivative.col(k) = value.imag().transpose() / h;
    }
    return derivative;
}

/// Weights p_j = f(s_j) / sum_k f(s_k) of scores, 1 x n.
struct Weights {
    ComplexRow (*of)(const ComplexRow& s);
    Matrix (*slope)(const Matrix& s);  ///< f'(s_k) / f(s_k), 1 x n
};
extern const Weights softmax_weights;   ///< f = exp
extern const Weights linear_weights;    ///< f(x) = x
extern const Weights parabola_weights;  ///< f(x) = 1 + x^2
/// dp_j/ds_k = slope_k (1_{j=k} p_j - p_j p_k), as printed.  [DEVIL] (7)
Matrix weight_derivative(const Matrix& p, const Matrix& slope);

}  // namespace tsdiag::claim
