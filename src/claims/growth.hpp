#pragma once
#include <functional>

#include "bound.hpp"

/// Statements such as O(N): exponents over a range of sizes.
namespace tsdiag::claim {

/// Resolution of exponents: at feasible sizes, lower orders and logarithms bend a line by about as
/// much.
constexpr double exponent_resolution = 0.25;
/// Where they do not: less than half of the 0.3 by which mutants shift it.
constexpr double fine_resolution = 0.14;

struct Growth {
    std::string reading = {}, formula = {};
    Role role = Role::part;
    Relation relation = Relation::at_most;      ///< O(N^e); equal: Theta(N^e)
    std::optional<Hypotheses> hypotheses = {};  ///< override the claim's
    std::vector<Asked> given = {};
    Mutant mutant = {};
    double claimed = 0;             ///< the exponent e
    std::vector<Index> sizes = {};  ///< N, unless the user chose a range
    std::function<double(Index N, const Rng&)> sample = {};
    std::string size = "N";  ///< its name in the papers
    double resolution = exponent_resolution;
};

/// Means over `how.trials` draws at each N, and more where those do not decide (`look_by_look`),
/// and the exponent of their least-squares line in logarithms.  Its interval is the wider one of
/// the noise of the means and of the regression.  It holds asymptotically where the interval stays
/// within the resolution of the claimed exponent, is false where it lies beyond, and is not decided
/// otherwise.
Reading examine_growth(const Growth& growth, const Check& how);
/// A control of the reading that `broken` is named after.
Reading control(const Growth& broken, std::string_view change, const Check& how);

}  // namespace tsdiag::claim
