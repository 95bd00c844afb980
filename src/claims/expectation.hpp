#pragma once
#include <array>
#include <functional>

#include "bound.hpp"

/// Statements about expectations.
namespace tsdiag::claim {

/// Relative precision to which an equation must be confirmed to hold, to either side: half of the
/// hundredth by which mutants change it, so that those are found false.
constexpr double equation_resolution = 0.005;

/// The expectation: E of one number, or E a / E b of two.
struct Mean {
    std::string reading = {}, formula = {};
    Role role = Role::part;
    Relation relation = Relation::equal;
    /// > 0: an equation stated only to this part of the claimed value.
    double within = 0;
    std::optional<Hypotheses> hypotheses = {};  ///< override the claim's
    std::vector<Asked> given = {};              ///< found of what is not random
    Mutant mutant = {};
    double claimed = 0;  ///< the other side, computed from what is not random
    /// The exact value at this size, if known: reported beside the mean.
    std::optional<double> exact = {};
    std::function<double(const Rng&)> sample = {};
    bool frequency = false;  ///< every sample is 0 or 1: the interval is `binomial_interval`
    std::function<std::array<double, 2>(const Rng&)> ratio = {};  ///< instead of `sample`
    std::vector<NamedMatrix> fixed = {};  ///< the fixed quantities, shown where it is false
};

/// Draws `how.trials` values, and more where those do not decide (`look_by_look`).  The interval,
/// Student's t corrected for skewness (of a frequency the exact one), decides: an inequality holds
/// or is false where the interval lies on one side of the claimed value; an equation is false where
/// the interval excludes every value within `within` of the claimed one, and holds where it lies
/// within `within`, or `equation_resolution`, of it.  Otherwise it is not decided, and the note
/// says how many trials would be needed.
Reading examine_mean(const Mean& mean, const Check& how);
/// A control of the reading that `broken` is named after.
Reading control(const Mean& broken, std::string_view change, const Check& how);

}  // namespace tsdiag::claim
