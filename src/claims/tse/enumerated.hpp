#pragma once
#include <functional>

#include "expectation.hpp"
#include "similarity.hpp"

/// Attention of one head or several, and exact means over every W of entries -sigma and sigma.
namespace tsdiag::claim {

/// Y = X + alpha [P_1 X W_1, ..., P_h X W_h], W = [W_1, ..., W_h] of d x d.
struct Heads {
    Matrix X;
    std::vector<Matrix> P;
    double alpha = 1;
    Matrix apply(const Matrix& W) const;
};
/// X of `distribution`, and a softmax of normal logits per head.
Heads draw_heads(const Rng& rng, const Check& how, Index heads);
std::vector<NamedMatrix> named(const Heads& heads);

/// Means over the heads.
struct HeadMeans {
    double mu1 = 0, mu2 = 0;  ///< of mu_i^2
    double least = 0;         ///< of (1 - omega)^2
};
HeadMeans means_of(const Heads& heads);
/// 1 + a2 (mu1^2 - mu2^2)/(1 + a2 mu2^2), a2 = alpha^2 d sigma^2: E xi1/E xi2.  [TSE] (13), (18)
double printed_ratio(const HeadMeans& means, double a2);
/// Gains averaged over W and -W, which removes their odd part of mean 0.
Gains paired_gains(const Heads& heads, const Matrix& W);

/// Means over the 2^(d^2) matrices W, d <= 2.
struct Enumerated {
    double xi1 = 0, xi2 = 0, r = 0, inverse = 0;  ///< E xi1, E xi2, E r, E[xi1/xi2]
    double worst = 1;                             ///< the largest 1/t_div(Y)
};
/// Calls visit(W) for each.
void for_each_sign(Index d, double sigma, const std::function<void(const Matrix&)>& visit);
/// nullopt where some Y has t_sim outside of (0, 1).
std::optional<Enumerated> enumerate(const Heads& heads, double sigma);

/// X of at most two columns (of two, where there are two heads), the stacked logits of the heads,
/// alpha, and sigma.
Variables draw_enumerated(const Rng& rng, const Sizes& at, Distribution distribution, Index heads);
/// An equation of such means, `sides(heads, a2, means)`; its `room` is in units of the rounding
/// error of numbers of size 1.
struct EnumeratedEquation {
    std::string reading, formula;
    Index heads = 1;
    std::function<BoundSides(const Heads&, double a2, const Enumerated&)> sides;
    double deviation = 1;  ///< of the entries, relative to the claimed sigma
};
Bound enumerated_bound(const EnumeratedEquation& equation);
/// E[xi1], or E[xi2], = 1 + alpha^2 d sigma^2 mean_k mu_i(k)^2; entries of W of `deviation` sigma.
/// [TSE] (9), (29)
Bound enumerated_gain(std::string reading, std::string formula, bool similar, Index heads,
                      double deviation = 1);

/// Fixed heads, for which W of --dist is redrawn.
struct FixedHeads {
    Heads heads;
    double variance = 0, a2 = 0;  ///< of an entry of W; alpha^2 d sigma^2
};
FixedHeads fixed_heads(const Check& how, Index count);
/// E xi1/E xi2 = `printed_ratio`; entries of W of `scale` times the claimed variance.
Mean drawn_ratio(const Check& how, const FixedHeads& fixed, std::string reading,
                 std::string formula, double scale = 1);

}  // namespace tsdiag::claim
