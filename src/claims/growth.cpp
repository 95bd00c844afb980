#include "growth.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trials.hpp"
#include "tsdiag/intervals.hpp"
#include "tsdiag/parallel.hpp"

namespace tsdiag::claim {
namespace {

using SamplesBySize = std::vector<std::vector<double>>;  ///< one list per size

Verdict decide(const Growth& growth, const Interval& e) {
    const double most = growth.claimed + growth.resolution;
    const double least =
        growth.relation == Relation::at_most ? -INFINITY : growth.claimed - growth.resolution;
    if (e.low > most || e.high < least) return Verdict::false_as_stated;
    if (e.high <= most && e.low >= least) return Verdict::holds_asymptotically;
    return Verdict::not_decided;
}

/// Trial t of the s-th of `count` sizes.
Index trial_of(std::size_t s, Index t, std::size_t count) { return t * Index(count) + Index(s); }

void draw_samples(SamplesBySize& samples, const Growth& growth, const Check& how,
                  const std::vector<Index>& sizes, Index from, Index to) {
    const std::size_t count = sizes.size();
    samples.resize(count);
    for (std::vector<double>& list : samples) list.resize(std::size_t(to));
    const Index more = to - from;
    in_parallel(Index(count) * more, [&](Index k) {
        const std::size_t s = count - 1 - std::size_t(k / more);  // the largest size first
        const Index t = from + k % more, trial = trial_of(s, t, count);
        const double v = growth.sample(sizes[s], trial_rng(how, growth.reading, trial));
        if (!std::isfinite(v)) refuse_nonfinite(how, growth.reading, trial, v);
        samples[s][std::size_t(t)] = v;
    });
}

/// The least-squares slope of log mean on log size.  The interval covers the scatter about the line
/// and the noise of the means, whichever is wider.
Interval exponent_of(const std::vector<double>& x, const SamplesBySize& samples, const Check& how) {
    std::vector<double> means;
    for (const auto& sample : samples) means.push_back(moments_of(sample).mean());
    const Interval line = fit_power_law(x, means, how.confidence).exponent;
    double centre = 0, square = 0, variance = 0;
    for (const double at : x) centre += std::log(at) / double(x.size());
    for (const double at : x) square += std::pow(std::log(at) - centre, 2);
    for (std::size_t i = 0; i < x.size(); ++i)
        variance += std::pow(
            (std::log(x[i]) - centre) / square * moments_of(samples[i]).standard_error() / means[i],
            2);
    const double noise =
        student_quantile(how.look_confidence(), double(samples.front().size() - 1)) *
        std::sqrt(variance);
    const double half = std::max(noise, line.high - line.value);
    return {line.value, line.value - half, line.value + half};
}

/// The means, and the claimed power through the first of them.
Trace trace_of(const Growth& growth, const Check& how, const std::vector<double>& x,
               const SamplesBySize& samples) {
    Trace t{.x_title = growth.size, .y_title = "mean", .log_x = true, .log_y = true};
    for (std::size_t i = 0; i < x.size(); ++i) {
        const Interval mean = student_interval(moments_of(samples[i]), how.confidence);
        t.x.push_back(x[i]);
        t.y.push_back(mean.value);
        t.low.push_back(std::max(mean.low, mean.value / 10));  // positive, for a logarithmic axis
        t.high.push_back(mean.high);
        t.claimed.push_back(t.y.front() * std::pow(x[i] / x.front(), growth.claimed));
    }
    return t;
}

Reading one_trial(const Growth& growth, const Check& how, const std::vector<Index>& sizes,
                  Reading r) {
    const Index N = sizes[std::size_t(*how.only) % sizes.size()];
    r.measured = growth.sample(N, trial_rng(how, growth.reading, *how.only));
    r.trials = 1;
    r.note = fmt::format("trial {} only, at {} = {}: no exponent", *how.only, growth.size, N);
    return r;
}

void rehearse(const Growth& growth, const Check& how, const std::vector<Index>& sizes) {
    double one = 0;
    for (const Index N : sizes)
        one += rehearsed(1, [&] { growth.sample(N, trial_rng(how, growth.reading, 0)); });
    how.rehearsal->seconds += one * double(how.trials);
    how.rehearsal->most += one * double(most_trials(how));
}

}  // namespace

Reading examine_growth(const Growth& stated, const Check& how) {
    Growth growth = stated;
    const double mutant = growth.mutant.factor == 0 ? -0.3 : growth.mutant.factor;
    if (how.mutated) growth.claimed += mutant;
    Reading r =
        begin(growth.reading, growth.formula, growth.role, how, growth.hypotheses, growth.given);
    r.mutant = described(mutant, growth.mutant);
    if (r.verdict == Verdict::hypothesis_not_met) return r;
    r.bound = growth.claimed;
    r.resolution = growth.resolution;
    const std::vector<Index>& sizes = how.range.empty() ? growth.sizes : how.range;
    if (how.only) return one_trial(growth, how, sizes, std::move(r));
    if (how.rehearsal) {
        rehearse(growth, how, sizes);
        return r;
    }
    const std::vector<double> x(sizes.begin(), sizes.end());
    SamplesBySize samples;
    Interval e;
    look_by_look(how, [&](Index from, Index to) {
        draw_samples(samples, growth, how, sizes, from, to);
        e = exponent_of(x, samples, how);
        r.verdict = decide(growth, e);
        return r.verdict != Verdict::not_decided;
    });
    r.measured = e.value;
    r.low = e.low;
    r.high = e.high;
    r.trials = Index(samples.front().size() * sizes.size());
    if (growth.claimed > 0) r.tightness = e.value / growth.claimed;
    r.note = fmt::format("exponent over {} = {}..{}, {} trials each", growth.size, sizes.front(),
                         sizes.back(), samples.front().size());
    if (r.verdict == Verdict::not_decided)
        r.note += "; more trials or a longer range may decide it";
    r.trace = trace_of(growth, how, x, samples);
    return r;
}

Reading control(const Growth& broken, std::string_view change, const Check& how) {
    return examine_control(broken, change, examine_growth, how);
}

}  // namespace tsdiag::claim
