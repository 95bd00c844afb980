#include "hypotheses.hpp"

#include <fmt/format.h>

#include <cmath>

#include "variables.hpp"

namespace tsdiag::claim {
namespace {

std::string not_normal(const Check& how) {
    if (how.distribution == Distribution::gaussian) return {};
    return fmt::format("--dist {} does not draw them", name(how.distribution));
}

std::string not_standard(const Check& how) {
    const double d = double(how.d);
    const double scale = d * weight_variance(how.distribution, how.d, how.d, 1 / d);
    if (std::abs(scale - 1) <= 1e-12) return {};
    return fmt::format("it is {:.4g} with --dist {}", scale, name(how.distribution));
}

}  // namespace

std::string described(double factor, const Mutant& mutant) {
    const std::string change =
        factor < 0 ? fmt::format("exponent {:+g}", factor) : fmt::format("x {:g}", factor);
    return mutant.why.empty() ? change : change + ": " + mutant.why;
}

extern const Hypothesis normal_entries = {.name = "normal entries", .unmet = not_normal};
extern const Hypothesis standard_scale = {.name = "d sigma^2 = 1", .unmet = not_standard};

Reading begin(std::string name, std::string formula, Role role, const Check& how,
              const std::optional<Hypotheses>& own, const std::vector<Asked>& given) {
    Reading r;
    r.name = std::move(name);
    r.formula = std::move(formula);
    r.role = role;
    for (const Hypothesis* h : own.value_or(how.hypotheses))
        if (h) r.hypotheses.push_back({std::string(h->name), h->unmet(how)});
    r.hypotheses.insert(r.hypotheses.end(), given.begin(), given.end());
    for (const Asked& asked : r.hypotheses) {
        if (asked.unmet.empty()) continue;
        r.verdict = Verdict::hypothesis_not_met;
        r.note +=
            fmt::format("{}{}: {}", r.note.empty() ? "it assumes " : "; ", asked.name, asked.unmet);
    }
    return r;
}

}  // namespace tsdiag::claim
