#pragma once
#include <array>
#include <functional>

#include "bound.hpp"

/// Statements about the mean of something random.
namespace tsdiag::claim {

/// How near an equation must be confirmed to hold: this part of what is claimed, to either side.
/// Half of the hundredth by which mutants change it, so that those are found false.
constexpr double equation_resolution = 0.005;

/// What is averaged: E of one number, or E a / E b of two.
struct Mean {
    std::string reading = {}, formula = {};
    Role role = Role::part;
    Relation relation = Relation::equal;
    /// > 0: an equation that is meant to this part of the claimed value.
    double within = 0;
    std::optional<Hypotheses> hypotheses = {};  ///< in place of the claim's
    std::vector<Asked> given = {};              ///< found of what is not random
    Mutant mutant = {};
    double claimed = 0;  ///< the other side, computed from what is not random
    /// The exact value at this size, where there is a formula for it: reported beside the mean.
    std::optional<double> exact = {};
    std::function<double(const Rng&)> sample = {};
    bool frequency = false;  ///< every sample is 0 or 1: the interval is `binomial_interval`
    std::function<std::array<double, 2>(const Rng&)> ratio = {};  ///< instead of `sample`
    std::vector<NamedMatrix> fixed = {};  ///< what is not random, to be shown where it is false
};

/// Draws `how.trials` values, and more where those do not decide (`look_by_look`).  The interval,
/// Student's t without the skewness of the samples (of a frequency the exact one), decides: an
/// inequality holds or is false where the interval lies on one side of what is claimed; an equation
/// is false where the interval leaves out all that is meant, and holds where it lies within
/// `within`, or `equation_resolution`, of what is claimed.  Otherwise it is not decided, and the
/// note says how many trials would be.
Reading examine_mean(const Mean& mean, const Check& how);
/// A control of the reading whose name `broken` has.
Reading control(const Mean& broken, std::string_view change, const Check& how);

}  // namespace tsdiag::claim
