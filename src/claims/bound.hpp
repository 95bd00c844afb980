#pragma once
#include <functional>

#include "hypotheses.hpp"
#include "variables.hpp"

/// Inequalities between two numbers determined by a draw.
namespace tsdiag::claim {

enum class Relation { at_most, at_least, equal };

/// The two sides of a relation.
struct BoundSides {
    double measured = 0, bound = 0;
    double room = 0;  ///< of an equation: the difference of its sides that rounding allows
};
/// measured/bound (at_least: bound/measured; equal: |measured - bound|/room): above 1 the relation
/// is violated.  0 where the smaller side is not positive and it holds, infinite where it is not
/// and it does not hold, or where no difference is allowed.
double tightness(const BoundSides& sides, Relation relation);

/// A hypothesis on a draw; its miss is relative to the size of the variables.
struct Condition {
    std::string name = {};
    std::function<double(const Variables&)> missed = {};
};
/// The largest miss that counts as rounding.
constexpr double rounding_misses = 1e-9;

/// measured <= bound, measured >= bound or measured = bound, for every value of the variables.
struct Bound {
    std::string reading = {}, formula = {};
    Role role = Role::part;
    Relation relation = Relation::at_most;
    /// Relative tolerance: a bound that is attained is exceeded by rounding.
    double accuracy = 1e-12;
    std::optional<Hypotheses> hypotheses = {};  ///< override the claim's
    std::vector<Asked> given = {};              ///< found of what is not drawn
    /// Draws, search steps and witnesses that miss one by more than rounding are discarded.
    std::vector<Condition> conditions = {};
    Mutant mutant = {};
    /// Free variables without constraints: a stochastic matrix is drawn as its logits, say, since
    /// searches and rounding change every entry.
    std::function<Variables(const Rng&, const Sizes&, Distribution)> draw = {};
    /// nullopt where the statement is undefined for the variables.
    std::function<std::optional<BoundSides>(const Variables&)> sides = {};
    /// Sizes searched for a violation, the smallest first; empty: no search.  Sizes chosen by the
    /// user replace them.
    std::vector<Sizes> search = {};
    /// Matrices printed of a witness; if empty the variables themselves.
    std::function<std::vector<NamedMatrix>(const Variables&)> shown = {};
};

/// Draws `how.trials` times at (n, d), then searches: Nelder and Mead from many starts.  A
/// violation counts where it survives rounding the variables to six digits, which excludes rounding
/// errors; the witness is simplified as far as possible.
Reading examine_bound(const Bound& bound, const Check& how);
/// Each in turn.
std::vector<Reading> examine_bounds(const std::vector<Bound>& bounds, const Check& how);

/// A control of the reading that `broken` is named after.
Reading control(const Bound& broken, std::string_view change, const Check& how);
/// The bound of f(scale x), x the variable `name`: its derivative by x is `scale` times as large.
Bound scaled(Bound bound, const char* name, double scale);

/// Throws `NonFiniteError` naming claim, part and trial.
[[noreturn]] void refuse_nonfinite(const Check& how, std::string_view part, Index trial,
                                   double value);
/// The stream of one trial of a part.
Rng trial_rng(const Check& how, std::string_view part, Index trial);

}  // namespace tsdiag::claim
