#pragma once
#include <span>
#include <string_view>
#include <vector>

#include "pinnsformer.hpp"
#include "tsdiag/gradient.hpp"

/// The equations of [POLY] A.2.5 on x in [0, 2 pi], t in [0, 1], and the losses of a network that
/// is to solve one.
namespace tsdiag::experiment_list {

/// u(0, t) = u(2 pi, t) and u(x, 0) = exact(x, 0).  `coefficient`: beta or rho.
struct Equation {
    std::string_view name;    ///< "Convection"
    std::string_view symbol;  ///< "u_t + beta u_x = 0"
    /// Of each token, (s, L, 1): 0 where u (s, L, 1) with du = (u_x, u_t), (s, L, 2), solves it.
    Tensor (*residual)(double coefficient, const Tensor& u, const Tensor& du);
    /// In closed form.
    double (*exact)(double coefficient, double x, double t);
};
/// u_t + beta u_x = 0: sin(x - beta t).  [POLY] (72), (73)
extern const Equation convection;
/// u_t - rho u (1 - u) = 0: h e^(rho t) / (h e^(rho t) + 1 - h), h = exp(-(x - pi)^2 / (2
/// (pi/4)^2)).  [POLY] (74), (75), whose h is printed without the minus sign.
extern const Equation reaction;

/// Points on a grid that includes the borders, and the sequence t, t + step, ... of each.
struct Collocation {
    Index points = 51;   ///< of an axis
    Index sequence = 5;  ///< L
    double step = 1e-4;  ///< between neighbours of a sequence

    double x(Index i) const;
    double t(Index j) const;
    /// Those of rows [first, first + count) of equal t, x running fastest: (count points, L, 2) in
    /// float64.
    Tensor rows(const Backend& backend, Index first, Index count) const;
};

/// The derivatives of `u` = u(points): by x and t of each token, of the sum of u over its sequence,
/// as the published code takes them.  Since no token knows its place in the sequence, they tend to
/// those of u along x and t as the steps of the sequence tend to 0.  `points` is a variable.
Tensor derivatives(const Tensor& u, const Tensor& points);

/// Means of squares: over all tokens, of the residual and of u(0, t) - u(2 pi, t); over the first
/// tokens at t = 0, of u - u(x, 0).
struct EquationLoss {
    double residual = 0, boundary = 0, initial = 0;
    double total() const { return residual + boundary + initial; }
};
/// With `gradient` not empty: also that of the total by all parameters.  Cost: memory for the
/// activations of some 1000 tokens.
EquationLoss equation_loss(const Pinnsformer& model, const Backend& backend,
                           std::span<const double> parameters, const Equation& equation,
                           double coefficient, const Collocation& grid,
                           std::span<double> gradient = {});

/// u of the first token of each point, t by t.
std::vector<double> solution(const Pinnsformer& model, const Backend& backend,
                             std::span<const double> parameters, const Collocation& grid);

/// rMAE = sum |u - exact| / sum |exact| and rMSE = sqrt(sum (u - exact)^2 / sum exact^2).  [POLY]
/// (76), (77)
struct RelativeErrors {
    double rmae = 0, rmse = 0;
};
RelativeErrors relative_errors(std::span<const double> u, std::span<const double> exact);

}  // namespace tsdiag::experiment_list
