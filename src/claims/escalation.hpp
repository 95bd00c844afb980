#pragma once
#include <functional>

#include "similarity.hpp"

/// The escalation theorem and what it is compared with.  alpha = 1 and d sigma^2 = 1 throughout.
namespace tsdiag::claim {

/// 1 + ((1 + (1-omega)^2)/(1 + delta^2) - 1) t_sim.  [TSE] (16)
double theorem_bound(const Step& step);
/// 1 + (2/(1 + lambda^2) - 1) t_sim.  [TSE] (17)
double estimate(const Step& step, double lambda);
/// 1 + ((1 + mu1^2)/(1 + mu2^2) - 1) t_sim: what E[r] tends to as d grows, mixing unchanged.
double limit_rate(const Step& step);
/// E[r] for d = 1 and W = -1, 1 equally likely: exact.  Nothing where a Y has no diversity.
std::optional<double> exact_rate(const Step& step);
/// r of one draw of W with entries of the given variance.
double drawn_rate(const Step& step, const Rng& rng, Distribution distribution, double variance);
/// The modulus of the second eigenvalue.
double second_eigenvalue(const Matrix& P);
/// Every tuple of `count` numbers from `values`, in order; stops where `visit` returns true.
bool for_each_tuple(std::size_t count, const std::vector<double>& values,
                    const std::function<bool(const std::vector<double>&)>& visit);
/// The n x n matrix of a map of n points: row i is the unit vector of map[i].
Matrix map_matrix(const std::vector<double>& map);

}  // namespace tsdiag::claim
