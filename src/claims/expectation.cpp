#include "expectation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trials.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/intervals.hpp"
#include "tsdiag/parallel.hpp"

namespace tsdiag::claim {
namespace {

using Pair = std::array<double, 2>;

constexpr double rounding_of_means = 1e-12;  ///< relative, of means of equal samples

struct Samples {
    std::vector<double> up, down;  ///< `down`: only for ratios
};

Pair sample_of(const Mean& mean, const Rng& rng) {
    return mean.ratio ? mean.ratio(rng) : Pair{mean.sample(rng), 1};
}

void draw_samples(Samples& s, const Mean& mean, const Check& how, Index from, Index to) {
    s.up.resize(std::size_t(to));
    if (mean.ratio) s.down.resize(s.up.size());
    in_parallel(from, to, [&](Index t) {
        const Pair pair = sample_of(mean, trial_rng(how, mean.reading, t));
        for (const double v : pair)
            if (!std::isfinite(v)) refuse_nonfinite(how, mean.reading, t, v);
        s.up[std::size_t(t)] = pair[0];
        if (mean.ratio) s.down[std::size_t(t)] = pair[1];
    });
}

/// From the first `count` samples; of a ratio the interval of its linearisation, up - ratio down.
Interval interval_of(const Mean& mean, const Samples& s, std::size_t count, double confidence) {
    const std::span<const double> up(s.up.data(), count);
    if (mean.frequency)
        return binomial_interval(std::ranges::count(up, 1.0), Index(count), confidence);
    if (s.down.empty()) return skewed_interval(up, confidence);
    const double below = moments_of({s.down.data(), count}).mean();
    const double ratio = moments_of(up).mean() / below;
    std::vector<double> rest;
    for (std::size_t k = 0; k < count; ++k) rest.push_back((up[k] - ratio * s.down[k]) / below);
    const Interval i = skewed_interval(rest, confidence);
    return {ratio, ratio + i.low, ratio + i.high};
}

double room_of(const Mean& mean) {
    return (mean.within > 0 ? mean.within : equation_resolution) * std::abs(mean.claimed);
}

Verdict decide(const Mean& mean, const Interval& i) {
    // Equal samples give an interval of width 0, and the claimed value is rounded too.
    const double claimed = mean.claimed, room = room_of(mean),
                 slack = rounding_of_means * std::abs(claimed);
    if (mean.relation == Relation::at_most)
        return i.low > claimed + slack     ? Verdict::false_as_stated
               : i.high <= claimed + slack ? Verdict::holds
                                           : Verdict::not_decided;
    if (mean.relation == Relation::at_least)
        return i.high < claimed - slack   ? Verdict::false_as_stated
               : i.low >= claimed - slack ? Verdict::holds
                                          : Verdict::not_decided;
    const double allowed = std::max(mean.within > 0 ? room : 0, slack);
    if (i.low > claimed + allowed || i.high < claimed - allowed) return Verdict::false_as_stated;
    return i.low >= claimed - room && i.high <= claimed + room ? Verdict::holds
                                                               : Verdict::not_decided;
}

/// The number of trials that would narrow the interval enough for a verdict.
std::string trials_needed(const Mean& mean, const Interval& i, double trials) {
    const double half = (i.high - i.low) / 2, apart = std::abs(i.value - mean.claimed);
    const double needed = mean.relation != Relation::equal ? apart
                          : mean.within > 0                ? std::abs(apart - room_of(mean))
                                                           : std::max(apart, room_of(mean) - apart);
    const double count = trials * std::pow(half / needed, 2);
    if (!(count < 1e9)) return "no number of trials is likely to decide it";
    return fmt::format("about {:.2g} trials would decide it", std::max(count, trials + 1));
}

/// The running mean with its interval, at trial counts that double.
Trace running_mean(const Mean& mean, const Check& how, const Samples& all) {
    Trace t{.x_title = "trials", .y_title = "mean", .log_x = true};
    for (std::size_t count = all.up.size(); count >= 16; count /= 2) {
        const Interval i = interval_of(mean, all, count, how.confidence);
        t.x.insert(t.x.begin(), double(count));
        t.y.insert(t.y.begin(), i.value);
        t.low.insert(t.low.begin(), i.low);
        t.high.insert(t.high.begin(), i.high);
        t.claimed.push_back(mean.claimed);
    }
    return t;
}

Reading one_trial(const Mean& mean, const Check& how, Reading r) {
    const Pair pair = sample_of(mean, trial_rng(how, mean.reading, *how.only));
    r.measured = pair[0] / pair[1];
    r.trials = 1;
    r.note = fmt::format("trial {} only: one draw gives no estimate of a mean", *how.only);
    return r;
}

void rehearse(const Mean& mean, const Check& how) {
    const double one =
        rehearsed(1, [&] { (void)sample_of(mean, trial_rng(how, mean.reading, 0)); });
    how.rehearsal->seconds += one * double(how.trials);
    how.rehearsal->most += one * double(most_trials(how));
}

}  // namespace

Reading examine_mean(const Mean& stated, const Check& how) {
    Mean mean = stated;
    const double own = mean.relation == Relation::at_most ? 0.99 : 1.01;
    const double mutant = mean.mutant.factor == 0 ? own : mean.mutant.factor;
    if (how.mutated) mean.claimed *= mutant;
    Reading r = begin(mean.reading, mean.formula, mean.role, how, mean.hypotheses, mean.given);
    r.mutant = described(mutant, mean.mutant);
    if (r.verdict == Verdict::hypothesis_not_met) return r;
    r.bound = mean.claimed;
    if (how.only) return one_trial(mean, how, std::move(r));
    if (how.rehearsal) {
        rehearse(mean, how);
        return r;
    }
    Samples samples;
    Interval i;
    look_by_look(how, [&](Index from, Index to) {
        draw_samples(samples, mean, how, from, to);
        i = interval_of(mean, samples, samples.up.size(), how.look_confidence());
        r.verdict = decide(mean, i);
        return r.verdict != Verdict::not_decided;
    });
    r.measured = i.value;
    r.low = i.low;
    r.high = i.high;
    r.trials = Index(samples.up.size());
    const BoundSides sides{i.value, mean.claimed};
    const double t =
        mean.relation == Relation::equal ? i.value / mean.claimed : tightness(sides, mean.relation);
    if (std::isfinite(t)) r.tightness = t;
    if (mean.exact) r.note = fmt::format("exact at this size: {:.6g}", *mean.exact);
    if (i.high - i.low <= rounding_of_means * std::abs(i.value)) {
        r.low = r.high = r.measured;
        r.note += fmt::format(
            "{}all {} samples are equal, so the interval has width 0 and excludes rare values",
            r.note.empty() ? "" : "; ", r.trials);
    }
    if (r.verdict == Verdict::not_decided)
        r.note += (r.note.empty() ? "" : "; ") + trials_needed(mean, i, double(r.trials));
    if (r.verdict == Verdict::false_as_stated) r.witness = mean.fixed;
    r.trace = running_mean(mean, how, samples);
    return r;
}

Reading control(const Mean& broken, std::string_view change, const Check& how) {
    return examine_control(broken, change, examine_mean, how);
}

}  // namespace tsdiag::claim
