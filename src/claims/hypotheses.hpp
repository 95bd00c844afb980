#pragma once
#include <optional>
#include <string>
#include <vector>

#include "tsdiag/claim.hpp"

/// Hypotheses of statements on the drawn entries.  They are checked before any draw: no verdict is
/// reached outside of them.
namespace tsdiag::claim {

/// "normal entries": all are drawn normal.
extern const Hypothesis normal_entries;
/// "d sigma^2 = 1": the variance of an entry of a d x d weight matrix is 1/d.
extern const Hypothesis standard_scale;

/// First step of every engine: a reading with its hypotheses, `own` or those of the claim, and
/// `given` ones that were checked otherwise.  Its verdict is `hypothesis_not_met` where one is
/// missed, and its note says which.
Reading begin(std::string name, std::string formula, Role role, const Check& how,
              const std::optional<Hypotheses>& own, const std::vector<Asked>& given);

/// How a reading is mutated: the claimed side is multiplied by `factor` (an exponent is shifted by
/// it).  By one in a hundred unless `why` says why the reading cannot resolve that.
struct Mutant {
    double factor = 0;  ///< 0: 0.99 of an upper bound, 1.01 otherwise; of an exponent -0.3
    std::string why = {};
};
/// As a statement that is sharper than the one in the paper.
template <class Statement>
Statement sharper(Statement statement) {
    statement.role = Role::sharper;
    return statement;
}
/// A control: `broken`, still under the name of the reading that it shows can fail, is renamed by
/// `change`.
template <class Statement>
Reading examine_control(Statement broken, std::string_view change,
                        Reading (*examine)(const Statement&, const Check&), const Check& how) {
    const std::string of = broken.reading;
    broken.reading += ", ";
    broken.reading += change;
    Reading r = examine(broken, how);
    r.of = of;
    return r;
}
/// "x 0.99", "x 0.6: nothing attains it"
std::string described(double factor, const Mutant& mutant);

}  // namespace tsdiag::claim
