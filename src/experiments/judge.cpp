#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "tsdiag/experiment.hpp"
#include "tsdiag/intervals.hpp"
#include "tsdiag/text.hpp"

/// The judgements of comparisons.
namespace tsdiag {
namespace {

using Kind = Comparison::Kind;
using Outcome = Comparison::Outcome;

constexpr double level = 0.05, seen_with = 0.8;
constexpr std::string_view within_bound = "within the bound", agrees = "agrees";
constexpr double clearly = 3;  ///< standard errors inside a bound that is said to be far
constexpr Index fewest = 3;    ///< trials: with two, the 95 % interval is 13 standard errors wide

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
    d.exact = c.counted || (c.error && *c.error <= 1e-9 * size);
    return d;
}

/// A claim in words, which trials support or not; others are numbers and bounds.
bool in_words(const Comparison& c) { return c.kind == Kind::order || c.kind == Kind::comparable; }
bool is_judged(const Comparison& c) { return c.measured && (c.expected || in_words(c)); }

/// Degrees of freedom of Student's t.  Bounds are tested on one side.
double freedom_of(const Comparison& c) { return c.freedom > 0 ? c.freedom : double(c.count - 1); }
bool one_sided(const Comparison& c) { return c.kind == Kind::at_most || c.kind == Kind::at_least; }

/// How far a number is off on the side that speaks against the claim.
double beyond_claim(const Comparison& c, const Distance& d) {
    if (!one_sided(c)) return std::abs(d.beyond);
    return c.kind == Kind::at_most ? d.beyond : -d.beyond;
}

/// The number of standard errors at which one of `family` comparisons is significant whatever the
/// others are, with `freedom` degrees of freedom: the power of these trials.
double needed(const Comparison& c, std::size_t family, double freedom) {
    const double share = level / double(family) * (one_sided(c) ? 2 : 1);
    return student_quantile(1 - share, freedom);
}

/// Of a claim on several numbers the least certain is tested: its p-value is that of the claim
/// where it is in favour, for then the others are no less certain (intersection-union), and
/// multiplied by their number (Bonferroni) where it is against.
double tests(const Comparison& c, bool in_favour) { return in_favour ? 1 : double(c.chosen_from); }

/// The p-value of trials that all have the same value, as accuracies on few samples may: they give
/// no standard error, and what is left is their sign.
double probability_of_signs(const Comparison& c) { return std::pow(0.5, double(c.count - 1)); }

/// The p-value of two numbers that are comparable, or else are not: two one-sided tests [TOST] of
/// each side of the margin.
double probability_of_margin(const Comparison& c, const Distance& d) {
    const double inside = (c.resolution - std::abs(d.off)) / *c.error;
    const double alike = student_tail(inside, freedom_of(c)),
                 apart = tests(c, false) * student_tail(-inside, freedom_of(c));
    return std::min(1.0, 2 * std::min(alike, apart));
}

/// The p-value; an order is tested on both sides.
double probability_of(const Comparison& c, const Distance& d) {
    if (c.probability) return *c.probability;
    if (c.kind == Kind::order && d.exact)
        return d.off == 0 ? 1 : std::min(1.0, tests(c, d.off > 0) * probability_of_signs(c));
    if (c.kind == Kind::comparable)
        return *c.error > 0 ? probability_of_margin(c, d)
                            : std::min(1.0, tests(c, d.beyond == 0) * probability_of_signs(c));
    if (d.exact) return beyond_claim(c, d) > 0 ? 0 : 1;
    const double sides = one_sided(c) ? 1 : 2 * (c.kind == Kind::order ? tests(c, d.off > 0) : 1);
    return std::min(1.0, sides * student_tail(beyond_claim(c, d) / *c.error, freedom_of(c)));
}

/// "2.1 standard errors above"; "1.3 % above" where there is no standard error.
std::string how_far(const Comparison& c, const Distance& d) {
    const std::string_view side = d.off > 0 ? "above" : "below";
    if (c.probability) return fmt::format("p = {:.2g}", *c.probability);
    if (d.off == 0) return "equal up to rounding";
    if (c.kind == Kind::comparable)
        return fmt::format("{:.2g} {}, margin {:.2g}", std::abs(d.off), side, c.resolution);
    if (c.resolution > 0 && d.beyond == 0)
        return fmt::format("{:.2g} {}, resolution {:g}", std::abs(d.off), side, c.resolution);
    if (c.error && !d.exact)
        return fmt::format("{:.1f} standard errors {}", std::abs(d.off) / *c.error, side);
    if (c.kind == Kind::order) return fmt::format("{:.2g} {}", std::abs(d.off), side);
    const double size = std::max(std::abs(*c.measured), std::abs(c.expected.value_or(0)));
    return fmt::format("{} {}", as_percent(std::abs(d.off) / size), side);
}

struct Judgement {
    Outcome outcome = Outcome::open;
    std::string_view words = "not decided";
};

/// Where the test is not significant.
Judgement upheld(const Comparison& c, const Distance& d) {
    if (in_words(c) || (one_sided(c) && beyond_claim(c, d) > 0)) return {};
    if (one_sided(c)) return {Outcome::consistent, within_bound};
    return {Outcome::consistent,
            d.beyond == 0 && c.resolution > 0 ? agrees : "no significant difference"};
}

/// Where it is.
Judgement decided(const Comparison& c, const Distance& d) {
    switch (c.kind) {
        case Kind::equal:
            return {Outcome::contradicted, "differs"};
        case Kind::at_most:
            return {Outcome::contradicted, "above the bound"};
        case Kind::at_least:
            return {Outcome::contradicted, "below the bound"};
        case Kind::order:
            if (d.off > 0) return {Outcome::found, "found"};
            return {Outcome::contradicted, "the opposite order is found"};
        case Kind::comparable:
            if (d.beyond == 0) return {Outcome::found, "comparable"};
            return {Outcome::contradicted, "not comparable"};
    }
    return {};
}

bool signs_only(const Comparison& c, const Distance& d) {
    return in_words(c) && !c.probability && (*c.error == 0 || (d.exact && c.kind == Kind::order));
}

/// The fewest trials at which one of `family` claims would be significant if their distance and
/// scatter stay as they are; 0: more than ten thousand.
Index trials_for(const Comparison& c, const Distance& d, std::size_t family) {
    if (c.probability) return 0;  // it is of the models, not of the trials
    family *= std::size_t(tests(c, c.kind == Kind::order ? d.off > 0 : d.beyond == 0));
    if (signs_only(c, d))  // 2^-(n - 1) <= level / family
        return d.off == 0 && c.kind == Kind::order
                   ? 0
                   : 1 + Index(std::ceil(std::log2(double(family) / level)));
    const double distance =
        c.kind == Kind::comparable ? std::abs(c.resolution - std::abs(d.off)) : std::abs(d.beyond);
    constexpr Index most = 10'000;
    std::vector<Index> counts;
    for (Index n = std::max(c.count, fewest) + 1; n <= most; n += std::max<Index>(1, n / 20))
        counts.push_back(n);
    const auto first = std::ranges::partition_point(counts, [&](Index n) {
        const double scatter = *c.error * std::sqrt(double(c.count) / double(n));
        const double freedom = freedom_of(c) * double(n - 1) / double(c.count - 1);
        return distance < scatter * needed(c, family, freedom);  // both fall with n
    });
    return first == counts.end() ? 0 : *first;
}

/// The p-values of so many numbers share the level: of an order against several of them all do.
std::size_t numbers_tested(const Comparison& c, const Distance& d, std::size_t family) {
    return c.kind == Kind::order ? family * std::size_t(tests(c, d.off > 0)) : family;
}

/// The distance that these trials see with a probability of `seen_with`, as one of `family`
/// whatever the others are.
std::optional<double> seen_by(const Comparison& c, const Distance& d, std::size_t family) {
    if (c.kind == Kind::comparable || c.probability || d.exact || !c.error) return std::nullopt;
    const double freedom = freedom_of(c);
    const double from = needed(c, numbers_tested(c, d, family), freedom);
    return c.resolution + seen_distance(from, freedom, seen_with) * *c.error;
}

/// "; significant from 4.8, a difference of 0.16 is seen": beside a distance in standard errors.
std::string seen_from(const Comparison& c, const Distance& d, std::size_t family) {
    return fmt::format("; significant from {:.1f}, a difference of {:.2g} is seen",
                       needed(c, numbers_tested(c, d, family), freedom_of(c)), c.seen.value_or(0));
}

/// Why nothing is decided, and what would decide it.
std::string why_open(const Comparison& c, const Distance& d, std::size_t family) {
    if (signs_only(c, d))
        return "; all trials have the same value, and their sign alone decides too little";
    if (c.probability) return "";
    if (c.kind == Kind::comparable) return fmt::format(", standard error {:.2g}", *c.error);
    return c.resolution > 0 ? "" : seen_from(c, d, family);
}

/// "well below 0.5"; "not above 0.5" of a number that is no more than `clearly` inside the bound.
std::string inside_bound(const Comparison& c, const Distance& d) {
    const bool upper = c.kind == Kind::at_most, inside = upper ? d.off < 0 : d.off > 0;
    const std::string_view side = upper ? "below" : "above", wrong = upper ? "above" : "below";
    const std::string bound = fmt::format("{:g}", c.expected.value_or(0));
    if (inside && d.exact) return fmt::format("{} {}", side, bound);
    if (inside && std::abs(d.off) > clearly * *c.error)
        return fmt::format("well {} {}", side, bound);
    return fmt::format("not {} {}", wrong, bound);
}

void say(Comparison& c, const Distance& d, const Judgement& judged, const std::string& rest) {
    c.outcome = judged.outcome;
    c.judgement = judged.words == within_bound ? inside_bound(c, d)
                  : judged.words == agrees
                      ? fmt::format("{} (within {:g})", judged.words, c.resolution)
                      : fmt::format("{} ({}{})", judged.words, how_far(c, d), rest);
}

/// Judges one family with Holm's correction: claims in words, or numbers.
void judge_family(std::span<Comparison* const> family) {
    std::vector<double> probabilities;
    for (const Comparison* c : family) probabilities.push_back(probability_of(*c, distance_of(*c)));
    const std::vector<bool> falls = holm(probabilities, level);
    for (std::size_t i = 0; i < family.size(); ++i) {
        Comparison& c = *family[i];
        const Distance d = distance_of(c);
        const Judgement judged = falls[i] ? decided(c, d) : upheld(c, d);
        c.seen = seen_by(c, d, family.size());
        std::string rest;
        if (judged.outcome == Outcome::open || judged.words == "no significant difference")
            rest = d.exact && !in_words(c) ? "" : why_open(c, d, family.size());
        else if (d.exact && d.off != 0 && c.kind != Kind::comparable && !c.probability)
            rest = "; the trials agree up to rounding";
        if (judged.outcome == Outcome::open) c.trials_needed = trials_for(c, d, family.size());
        say(c, d, judged, rest);
    }
}

/// Without trials a number that was counted decides by itself.
void judge_alone(Comparison& c) {
    const Distance d = distance_of(c);
    const bool apart =
        c.kind == Kind::order ? d.off != 0 : c.kind == Kind::comparable || beyond_claim(c, d) > 0;
    say(c, d, apart ? decided(c, d) : upheld(c, d), "");
}

}  // namespace

void judge(std::span<Comparison> comparisons) {
    std::map<bool, std::vector<Comparison*>> families;
    for (Comparison& c : comparisons) {
        c.judgement.clear();
        c.outcome = Outcome::unjudged;
        c.trials_needed = 0;
        c.seen.reset();
        if (!is_judged(c)) continue;
        const Distance d = distance_of(c);
        if (c.counted) {
            judge_alone(c);
        } else if (c.count >= fewest && (c.error || c.probability)) {
            families[in_words(c)].push_back(&c);
        } else if (d.off == 0 && !in_words(c)) {
            c.outcome = Outcome::consistent;
            c.judgement = "equal up to rounding";
        } else {
            c.outcome = Outcome::open;
            c.judgement = fmt::format("too few trials to decide ({})", how_far(c, d));
        }
    }
    for (const auto& [words, family] : families) judge_family(family);
}

std::string outcome_of(std::span<const Comparison> comparisons) {
    std::map<Outcome, std::size_t> counts;
    std::vector<Index> trials;
    std::size_t few = 0;
    for (const Comparison& c : comparisons) {
        if (c.outcome == Outcome::unjudged) continue;
        ++counts[c.outcome];
        if (c.outcome != Outcome::open || c.counted) continue;
        if (c.count < fewest)
            ++few;
        else if (!c.probability)
            trials.push_back(c.trials_needed > 0 ? c.trials_needed
                                                 : std::numeric_limits<Index>::max());
    }
    std::size_t sum = 0;
    std::string parts;
    for (const auto& [outcome, words] : {std::pair{Outcome::contradicted, "contradicted"},
                                         {Outcome::found, "found"},
                                         {Outcome::consistent, "consistent with the trials"},
                                         {Outcome::open, "not decided"}}) {
        if (counts[outcome] == 0) continue;
        sum += counts[outcome];
        parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", counts[outcome], words);
    }
    if (sum == 0) return "No claim is judged here.";
    std::string out = fmt::format("Of {} judged: {}.", counted(sum, "claim"), parts);
    if (few > 0)
        out +=
            fmt::format(" {} of the open ones {} fewer trials than the {} that a decision takes.",
                        few, few == 1 ? "has" : "have", fewest);
    if (trials.empty()) return out;
    std::ranges::sort(trials);
    const Index median = trials[(trials.size() - 1) / 2];
    const std::string_view which = few > 0 ? "the other open ones" : "the open ones";
    return out + (median == std::numeric_limits<Index>::max()
                      ? fmt::format(" More than 10000 trials would be needed to decide half of {}, "
                                    "at distances like theirs.",
                                    which)
                      : fmt::format(" About {} trials would decide half of {}, at distances like "
                                    "theirs.",
                                    median, which));
}

}  // namespace tsdiag
