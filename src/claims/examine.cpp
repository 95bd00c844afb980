#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tsdiag/backend.hpp"
#include "tsdiag/claim.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/memory.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag {
namespace {

constexpr std::array all_distributions = {Distribution::gaussian, Distribution::uniform,
                                          Distribution::rademacher, Distribution::torch,
                                          Distribution::xavier};

void refuse(const Claim& claim, const std::string& why) {
    throw UsageError(fmt::format("{}: {}.", claim.name, why));
}

/// A claim holds a few dozen square matrices at once.
void check_memory(const Claim& claim, const Check& how) {
    constexpr double matrices = 32, gib = double(Index(1) << 30);
    const Index side = std::max({how.n, how.d, how.range.empty() ? Index(0) : how.range.back()});
    const double bytes = matrices * sizeof(double) * double(side) * double(side);
    if (bytes > double(process_memory()))
        refuse(claim, fmt::format("matrices of {} x {} need about {:.2g} GiB, but this machine has "
                                  "{:.2g}{}; choose a smaller --n, --d or --range",
                                  side, side, bytes / gib, double(process_memory()) / gib,
                                  of_each_process()));
}

void check_sizes(const Claim& claim, const Check& how) {
    for (const auto& [option, value] : {std::pair{"--n", how.n},
                                        {"--d", how.d},
                                        {"--heads", how.heads},
                                        {"--trials", how.trials}})
        if (value < 1)
            refuse(claim, fmt::format("{} {} is too small, expected at least 1", option, value));
    if (how.n < claim.least_n)
        refuse(claim, fmt::format("--n {} is too small, the statement needs n >= {}", how.n,
                                  claim.least_n));
    if (how.d < claim.least_d)
        refuse(claim, fmt::format("--d {} is too small, the statement needs d >= {}", how.d,
                                  claim.least_d));
    if (how.d % how.heads != 0)
        refuse(claim, fmt::format("--heads {} does not divide --d {}", how.heads, how.d));
    if (claim.chance && how.trials < 2 && !how.only)
        refuse(
            claim,
            fmt::format("--trials {} is too small for the interval of a mean, expected at least 2",
                        how.trials));
    if (!(how.confidence > 0 && how.confidence < 1))
        refuse(claim, fmt::format("--confidence {} is not between 0 and 1", how.confidence));
    if (!how.range.empty() &&
        (how.range.size() < 3 || !std::is_sorted(how.range.begin(), how.range.end()) ||
         std::adjacent_find(how.range.begin(), how.range.end()) != how.range.end() ||
         how.range.front() < 2))
        refuse(claim, "a range needs three ascending sizes of at least 2 for an exponent");
}

}  // namespace

std::string_view name(Distribution distribution) {
    constexpr std::array<std::string_view, 5> names{"gaussian", "uniform", "rademacher", "torch",
                                                    "xavier"};
    return names[std::size_t(distribution)];
}

std::span<const Distribution> distributions() { return all_distributions; }

Distribution distribution(const std::string& word) {
    std::vector<std::string> known;
    for (const Distribution d : all_distributions) {
        if (word == name(d)) return d;
        known.emplace_back(name(d));
    }
    const std::string near = nearest(word, known);
    throw UsageError(fmt::format("unknown distribution '{}'.{}", word,
                                 near.empty()
                                     ? " Expected gaussian, uniform, rademacher, torch or xavier."
                                     : fmt::format(" Did you mean '{}'?", near)));
}

std::string_view name(Verdict verdict) {
    constexpr std::array<std::string_view, 6> names{
        "holds",     "false as stated", "holds asymptotically",
        "ambiguous", "not decided",     "hypothesis not met"};
    return names[std::size_t(verdict)];
}

std::string_view control_outcome(const Reading& control) {
    if (control.verdict == Verdict::false_as_stated) return "found false";
    if (control.verdict == Verdict::hypothesis_not_met) return name(control.verdict);
    return "not found false";
}

bool has_false_reading(const Examined& e) {
    return e.verdict != Verdict::hypothesis_not_met &&
           std::ranges::any_of(e.readings, [](const Reading& r) {
               return r.role != Role::sharper && r.verdict == Verdict::false_as_stated;
           });
}

Verdict overall(std::span<const Reading> readings) {
    Verdict parts = Verdict::holds;
    std::optional<Verdict> meant;
    bool differ = false, any = false;
    const auto rank = [](Verdict v) {  // a conjunction is as weak as its weakest part
        constexpr std::array order = {Verdict::holds, Verdict::holds_asymptotically,
                                      Verdict::ambiguous, Verdict::not_decided,
                                      Verdict::false_as_stated};
        return std::find(order.begin(), order.end(), v) - order.begin();
    };
    for (const Reading& r : readings) {
        if (r.role == Role::sharper) continue;
        if (r.verdict == Verdict::hypothesis_not_met) return r.verdict;
        any = true;
        if (r.role == Role::part) {
            if (rank(r.verdict) > rank(parts)) parts = r.verdict;
        } else {
            differ = differ || (meant && *meant != r.verdict);
            if (!meant || rank(r.verdict) > rank(*meant)) meant = r.verdict;
        }
    }
    if (!any) return Verdict::not_decided;
    if (meant) {
        const Verdict together = !differ                          ? *meant
                                 : *meant == Verdict::not_decided ? Verdict::not_decided
                                                                  : Verdict::ambiguous;
        if (rank(together) > rank(parts)) parts = together;
    }
    return parts;
}

Check plan(const Claim& claim, const CheckSettings& s) {
    Check how;
    how.trials = s.trials > 0 ? s.trials : claim.trials;
    how.looks = s.trials > 0 ? 1 : 4;
    how.climbs = s.climbs;
    how.n = s.n > 0 ? s.n : claim.n;
    how.d = s.d > 0 ? s.d : claim.d;
    how.heads = s.heads > 0 ? s.heads : claim.heads;
    if (s.heads == 0 && how.d % how.heads != 0) how.heads = 1;
    how.sizes_chosen = s.n > 0 || s.d > 0;
    how.distribution = s.distribution;
    how.confidence = s.confidence;
    how.range = s.range;
    how.only = s.only;
    how.seed = s.seed;
    how.claim = claim.name;
    how.hypotheses = claim.hypotheses;
    how.mutated = s.mutated;
    how.rng = Rng(s.seed).fork(claim.name);
    check_sizes(claim, how);
    check_memory(claim, how);
    return how;
}

Effort effort(const Claim& claim, const CheckSettings& settings) {
    Effort sum;
    Check how = plan(claim, settings);
    how.rehearsal = &sum;
    if (how.only) return sum;
    claim.check(how);
    if (claim.violate) claim.violate(how);
    return sum;
}

Examined examine(const Claim& claim, const CheckSettings& settings) {
    Examined e{.claim = &claim, .how = plan(claim, settings)};
    e.readings = claim.check(e.how);
    e.verdict = overall(e.readings);
    if (claim.violate && !settings.only && !settings.mutated) e.controls = claim.violate(e.how);
    return e;
}

}  // namespace tsdiag
