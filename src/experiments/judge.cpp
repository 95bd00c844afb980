#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tsdiag/experiment.hpp"
#include "tsdiag/intervals.hpp"

/// The judgements of comparisons.
namespace tsdiag {
namespace {

using Kind = Comparison::Kind;

constexpr double level = 0.05;
constexpr std::string_view within_bound = "consistent with the bound";
constexpr Index fewest = 3;  ///< trials: with two, the 95 % interval is 13 standard errors wide

/// The quantities that a test needs of a comparison.
struct Distance {
    double off = 0;      ///< measured - expected
    double beyond = 0;   ///< the part of it that exceeds the resolution
    bool exact = false;  ///< the trials agree to rounding: no standard error
};

Distance distance_of(const Comparison& c) {
    const double expected = c.expected.value_or(0);
    Distance d{.off = *c.measured - expected};
    const double size = std::max(std::abs(*c.measured), std::abs(expected));
    if (std::abs(d.off) <= 1e-12 * size) d.off = 0;
    d.beyond = std::copysign(std::max(0.0, std::abs(d.off) - c.resolution), d.off);
    d.exact = c.error && *c.error <= 1e-9 * size;
    return d;
}

bool judged(const Comparison& c) { return c.measured && (c.expected || c.kind == Kind::order); }

/// Degrees of freedom of Student's t.  Bounds are tested on one side.
double freedom_of(const Comparison& c) { return c.freedom > 0 ? c.freedom : double(c.count - 1); }
bool one_sided(const Comparison& c) { return c.kind == Kind::at_most || c.kind == Kind::at_least; }

/// The number of standard errors at which one of `family` comparisons is significant whatever the
/// others are: the power of these trials.
double needed(const Comparison& c, std::size_t family) {
    const double share = level / double(family) * (one_sided(c) ? 2 : 1);
    return student_quantile(1 - share, freedom_of(c));
}

/// The p-value; an order is tested on both sides.
double probability_of(const Comparison& c, const Distance& d) {
    const double against = !one_sided(c)             ? std::abs(d.beyond)
                           : c.kind == Kind::at_most ? d.beyond
                                                     : -d.beyond;
    if (d.exact) return against > 0 ? 0 : 1;
    return (one_sided(c) ? 1 : 2) * student_tail(against / *c.error, freedom_of(c));
}

/// "2.1 standard errors above"; "1.3 % above" where there is no standard error.
std::string how_far(const Comparison& c, const Distance& d) {
    const std::string_view side = d.off > 0 ? "above" : "below";
    if (d.off == 0) return "equal up to rounding";
    if (c.resolution > 0 && d.beyond == 0)
        return fmt::format("{:.2g} {}, resolution {:g}", std::abs(d.off), side, c.resolution);
    if (c.error && !d.exact)
        return fmt::format("{:.1f} standard errors {}", std::abs(d.off) / *c.error, side);
    const double size = std::max(std::abs(*c.measured), std::abs(c.expected.value_or(0)));
    return fmt::format("{:.2g} % {}", 100 * std::abs(d.off) / size, side);
}

/// The judgement where the test is not significant.
std::string_view upheld(const Comparison& c, const Distance& d) {
    switch (c.kind) {
        case Kind::equal:
            return d.beyond == 0 && c.resolution > 0 ? "equal within the resolution"
                                                     : "no significant difference";
        case Kind::at_most:
            return d.beyond <= 0 ? within_bound : "not decided";
        case Kind::at_least:
            return d.beyond >= 0 ? within_bound : "not decided";
        case Kind::order:
            return "not decided";
    }
    return "";
}

std::string_view fallen(const Comparison& c, const Distance& d) {
    switch (c.kind) {
        case Kind::equal:
            return "differs";
        case Kind::at_most:
            return "above the bound";
        case Kind::at_least:
            return "below the bound";
        case Kind::order:
            return d.beyond > 0 ? "found" : "the opposite order is found";
    }
    return "";
}

/// Judges one family with Holm's correction: orders, or numbers.
void judge_family(std::span<Comparison* const> family) {
    std::vector<double> probabilities;
    for (const Comparison* c : family) probabilities.push_back(probability_of(*c, distance_of(*c)));
    const std::vector<bool> falls = holm(probabilities, level);
    for (std::size_t i = 0; i < family.size(); ++i) {
        Comparison& c = *family[i];
        const Distance d = distance_of(c);
        const std::string_view says = falls[i] ? fallen(c, d) : upheld(c, d);
        std::string rest = d.exact && d.off != 0 ? "; the trials agree up to rounding" : "";
        if (!d.exact && c.resolution == 0 &&
            (says == "not decided" || says == "no significant difference"))
            rest = fmt::format("; significant from {:.1f}", needed(c, family.size()));
        c.judgement = says == within_bound ? std::string(says)
                                           : fmt::format("{} ({}{})", says, how_far(c, d), rest);
    }
}

}  // namespace

void judge(std::span<Comparison> comparisons) {
    std::map<bool, std::vector<Comparison*>> families;
    for (Comparison& c : comparisons) {
        c.judgement.clear();
        if (!judged(c)) continue;
        const Distance d = distance_of(c);
        if (c.count >= fewest && c.error)
            families[c.kind == Kind::order].push_back(&c);
        else if (d.off == 0 && c.kind != Kind::order)
            c.judgement = "equal up to rounding";
        else
            c.judgement = fmt::format("too few trials to decide ({})", how_far(c, d));
    }
    for (const auto& [orders, family] : families) judge_family(family);
}

}  // namespace tsdiag
