#include "expectation.hpp"

#include <fmt/format.h>

#include <cmath>

#include "trials.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/intervals.hpp"

namespace tsdiag::claim {
namespace {

/// Half the width, as part of the claimed value, that an equation is confirmed to.
constexpr double narrow = 0.05;

struct Samples {
    std::vector<double> up, down;  ///< `down` is empty but for ratios
};

Samples draw_samples(const Mean& mean, const Check& how) {
    Samples s;
    s.up.resize(std::size_t(how.trials));
    if (mean.ratio) s.down.resize(s.up.size());
    for_each_trial(how.trials, [&](Index t) {
        const Rng rng = trial_rng(how, mean.reading, t);
        const std::array<double, 2> pair =
            mean.ratio ? mean.ratio(rng) : std::array<double, 2>{mean.sample(rng), 1};
        for (const double v : pair)
            if (!std::isfinite(v)) refuse_nonfinite(how, mean.reading, t, v);
        s.up[std::size_t(t)] = pair[0];
        if (mean.ratio) s.down[std::size_t(t)] = pair[1];
    });
    return s;
}

Interval interval_of(const Mean& mean, const Check& how, const Samples& s, double confidence) {
    const Rng rng = how.rng.fork(mean.reading + "/bootstrap");
    const Index resamples = resamples_for(confidence);
    if (mean.ratio) return bootstrap_ratio(s.up, s.down, confidence, rng, resamples);
    if (mean.heavy) return bootstrap_mean(s.up, confidence, rng, resamples);
    return student_interval(moments_of(s.up), confidence);
}

Verdict decide(const Mean& mean, const Interval& i) {
    const double claimed = mean.claimed, room = mean.within * std::abs(claimed);
    const bool above = i.low > claimed + room, below = i.high < claimed - room;
    switch (mean.relation) {
        case Relation::at_most:
            return above               ? Verdict::false_as_stated
                   : i.high <= claimed ? Verdict::holds
                                       : Verdict::not_decided;
        case Relation::at_least:
            return below              ? Verdict::false_as_stated
                   : i.low >= claimed ? Verdict::holds
                                      : Verdict::not_decided;
        case Relation::equal:
            break;
    }
    if (above || below) return Verdict::false_as_stated;
    if (mean.within > 0)
        return i.low >= claimed - room && i.high <= claimed + room ? Verdict::holds
                                                                   : Verdict::not_decided;
    const double half = (i.high - i.low) / 2;
    return half <= narrow * std::abs(claimed) ? Verdict::holds : Verdict::not_decided;
}

/// How many trials would narrow the interval to what a verdict needs.
std::string trials_needed(const Mean& mean, const Interval& i, Index trials) {
    const double half = (i.high - i.low) / 2;
    const double apart = std::abs(i.value - mean.claimed);
    const double needed = mean.relation != Relation::equal ? apart
                          : mean.within > 0 ? std::abs(apart - mean.within * std::abs(mean.claimed))
                                            : narrow * std::abs(mean.claimed);
    const double factor = half / needed;
    const double count = double(trials) * factor * factor;
    if (!(count < 1e9)) return "no number of trials is likely to decide it";
    return fmt::format("about {:.2g} trials would decide it", std::max(count, double(trials) + 1));
}

/// The mean of the first trials, with its interval, at numbers of trials that double.
Trace running_mean(const Mean& mean, const Check& how, const Samples& all) {
    Trace t{.x_title = "trials", .y_title = "mean", .log_x = true};
    for (Index count = how.trials; count >= 16; count /= 2) {
        Samples part;
        part.up.assign(all.up.begin(), all.up.begin() + count);
        if (mean.ratio) part.down.assign(all.down.begin(), all.down.begin() + count);
        Interval i = student_interval(moments_of(part.up), how.confidence);
        if (mean.ratio) {
            const double down = moments_of(part.down).mean();
            std::vector<double> rest;  // of the ratio, linearised
            for (std::size_t k = 0; k < part.up.size(); ++k)
                rest.push_back((part.up[k] - i.value / down * part.down[k]) / down);
            const Interval r = student_interval(moments_of(rest), how.confidence);
            i = {i.value / down, i.value / down + r.low, i.value / down + r.high};
        }
        t.x.insert(t.x.begin(), double(count));
        t.y.insert(t.y.begin(), i.value);
        t.low.insert(t.low.begin(), i.low);
        t.high.insert(t.high.begin(), i.high);
        t.claimed.push_back(mean.claimed);
    }
    return t;
}

Reading one_trial(const Mean& mean, const Check& how, Reading r) {
    const Rng rng = trial_rng(how, mean.reading, *how.only);
    const std::array<double, 2> pair =
        mean.ratio ? mean.ratio(rng) : std::array<double, 2>{mean.sample(rng), 1};
    r.measured = pair[0] / pair[1];
    r.trials = 1;
    r.note = fmt::format("trial {} alone: one draw says nothing of a mean", *how.only);
    return r;
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
    const Samples samples = draw_samples(mean, how);
    const Interval i = interval_of(mean, how, samples, how.joint_confidence());
    r.verdict = decide(mean, i);
    r.measured = i.value;
    r.low = i.low;
    r.high = i.high;
    r.trials = how.trials;
    const Sides sides{i.value, mean.claimed};
    const double t =
        mean.relation == Relation::equal ? i.value / mean.claimed : tightness(sides, mean.relation);
    if (std::isfinite(t)) r.tightness = t;
    r.note = mean.ratio || mean.heavy ? "bootstrap interval" : "Student's t interval";
    if (mean.exact) r.note += fmt::format("; exact at this size: {:.6g}", *mean.exact);
    if (r.verdict == Verdict::not_decided) r.note += "; " + trials_needed(mean, i, how.trials);
    if (r.verdict == Verdict::false_as_stated) r.witness = mean.fixed;
    r.trace = running_mean(mean, how, samples);
    return r;
}

}  // namespace tsdiag::claim
