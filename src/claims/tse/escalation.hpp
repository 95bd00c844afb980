#pragma once
#include <functional>

#include "expectation.hpp"
#include "similarity.hpp"

/// The escalation theorem and related rates, for any alpha; d sigma^2 = 1 unless stated.
namespace tsdiag::claim {

/// 1 + alpha^2/(1 + alpha^2 delta^2) ((1-omega)^2 - delta^2) t_sim.  [TSE] (16)
double theorem_bound(const Step& step);
double theorem_bound(const Step& step, const Mixing& mixing);
/// 1 + (2/(1 + lambda^2) - 1) t_sim, for alpha = 1.  [TSE] (17)
double estimate(const Step& step, double lambda);
/// 1 + (E xi1/E xi2 - 1) t_sim: the limit of E[r] as d grows, mixing unchanged.
double limit_rate(const Step& step);
/// E[r] for d = 1 and W = -1, 1 equally likely: exact.  nullopt where a Y has no diversity.
std::optional<double> exact_rate(const Step& step);

/// The left side of (15).
double condition_of(const Mixing& mixing);
/// "Bounded away from zero" is at least this much.
constexpr double least_gap = 0.01;
/// Largest miss of omega + delta < 1 and of a left side of (15) of `least_gap`.
double theorem_miss(const Mixing& mixing);

/// One draw of r with entries of W of the given variance, whose mean is E r.  The first-order part
/// in the gains, of mean 0 by (9), is subtracted as a control variate: it is most of the scatter.
double drawn_rate(const Step& step, const Rng& rng, Distribution distribution, double variance);

/// Steps that satisfy the theorem's conditions, made by `make` from separate streams.
struct Steps {
    std::vector<Step> all;
    std::vector<Asked> given;  ///< the conditions, and whether a step that meets them was found
};
Steps steps_of(const Check& how, const std::function<std::optional<Step>(const Rng&)>& make);
/// E r >= bound(step), of each step with its share of the trials and of the error; the reading of
/// the step that fails, or comes closest.  `like` gives words, role and hypotheses.
Reading examine_rates(const Check& how, const Steps& steps, const Mean& like, double variance,
                      const std::function<double(const Step&)>& bound);

/// The modulus of the second eigenvalue.
double second_eigenvalue(const Matrix& P);
/// The n x n matrix of a map of n points: row i is the unit vector of map[i].
Matrix map_matrix(const std::vector<double>& map);

}  // namespace tsdiag::claim
