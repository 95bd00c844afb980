#pragma once
#include <functional>

#include "hypotheses.hpp"
#include "variables.hpp"

/// Inequalities between two numbers that a draw determines.
namespace tsdiag::claim {

enum class Relation { at_most, at_least, equal };

struct Sides {
    double measured = 0, bound = 0;
    double room = 0;  ///< of an equation: how far apart rounding may leave its sides
};
/// measured/bound (at_least: bound/measured; equal: |measured - bound|/room): above 1 the relation
/// is broken.  0 where the smaller side is not positive and it holds, infinite where it is not and
/// it does not hold, or where nothing was allowed.
double tightness(const Sides& sides, Relation relation);

/// A hypothesis on what is drawn, by how much variables miss it, relative to their size.
struct Condition {
    std::string name = {};
    std::function<double(const Variables&)> missed = {};
};
/// What rounding misses a condition by.
constexpr double rounding_misses = 1e-9;

/// measured <= bound, measured >= bound or measured = bound, for every value of the variables.
struct Bound {
    std::string reading = {}, formula = {};
    Role role = Role::part;
    Relation relation = Relation::at_most;
    /// Relative: a bound that is attained is exceeded by rounding.
    double accuracy = 1e-12;
    std::optional<Hypotheses> hypotheses = {};  ///< in place of the claim's
    std::vector<Asked> given = {};              ///< found of what is not drawn
    /// A draw, a step of the search or a witness that misses one by more than rounding is none.
    std::vector<Condition> conditions = {};
    Mutant mutant = {};
    /// Free of constraints: a stochastic matrix is drawn as its logits, say, since searches and
    /// rounding move every entry.
    std::function<Variables(const Rng&, const Sizes&, Distribution)> draw = {};
    /// Nothing where the variables give the statement no meaning.
    std::function<std::optional<Sides>(const Variables&)> sides = {};
    /// Sizes at which a search tries to break it, the smallest first; empty: no search.  A user
    /// who chose sizes gets the search there.
    std::vector<Sizes> search = {};
    /// What is printed of a witness; the variables themselves where empty.
    std::function<std::vector<NamedMatrix>(const Variables&)> shown = {};
};

/// Draws `how.trials` times at (n, d), then searches: Nelder and Mead from many starts.  A
/// violation counts where it survives rounding the variables to six digits, so that rounding
/// errors break nothing; the witness is made as plain as it can be.
Reading examine_bound(const Bound& bound, const Check& how);

/// A control of the reading whose name `broken` has.
Reading control(const Bound& broken, std::string_view change, const Check& how);
/// The bound of f(scale x), x the variable `name`, whose derivative by x is `scale` times as large.
Bound scaled(Bound bound, const char* name, double scale);

/// The same comparison of two numbers that are known, without a draw.
Reading compare(std::string reading, std::string formula, Role role, Relation relation,
                const Sides& sides, double accuracy, std::vector<NamedMatrix> witness = {});

/// Throws `NonFiniteError` naming claim, part and trial.
[[noreturn]] void refuse_nonfinite(const Check& how, std::string_view part, Index trial,
                                   double value);
/// The streams of a part.
Rng trial_rng(const Check& how, std::string_view part, Index trial);

}  // namespace tsdiag::claim
