#include "growth.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trials.hpp"
#include "tsdiag/intervals.hpp"

namespace tsdiag::claim {
namespace {

Interval wider(const Interval& a, const Interval& b) {
    return {a.value, std::min(a.low, b.low), std::max(a.high, b.high)};
}

Verdict decide(const Growth& growth, const Interval& e) {
    const double most = growth.claimed + exponent_resolution;
    const double least =
        growth.relation == Relation::at_most ? -INFINITY : growth.claimed - exponent_resolution;
    if (e.low > most || e.high < least) return Verdict::false_as_stated;
    if (e.high <= most && e.low >= least) return Verdict::holds_asymptotically;
    return Verdict::not_decided;
}

std::vector<std::vector<double>> draw_samples(const Growth& growth, const Check& how,
                                              const std::vector<Index>& sizes, Index trials) {
    std::vector<std::vector<double>> samples(sizes.size(),
                                             std::vector<double>(std::size_t(trials)));
    // The largest size first: threads end together.
    const Index count = Index(sizes.size()) * trials;
    for_each_trial(count, [&](Index k) {
        const Index t = count - 1 - k;
        const auto s = std::size_t(t / trials);
        const double v = growth.sample(sizes[s], trial_rng(how, growth.reading, t));
        if (!std::isfinite(v)) refuse_nonfinite(how, growth.reading, t, v);
        samples[s][std::size_t(t % trials)] = v;
    });
    return samples;
}

/// The means, and the power that is claimed through the first of them.
Trace trace_of(const Growth& growth, const Check& how, const std::vector<double>& x,
               const std::vector<std::vector<double>>& samples) {
    Trace t{.x_title = growth.size, .y_title = "mean", .log_x = true, .log_y = true};
    for (std::size_t i = 0; i < x.size(); ++i) {
        const Interval mean = student_interval(moments_of(samples[i]), how.confidence);
        t.x.push_back(x[i]);
        t.y.push_back(mean.value);
        t.low.push_back(std::max(mean.low, mean.value / 10));  // a logarithmic axis needs it
        t.high.push_back(mean.high);
        t.claimed.push_back(t.y.front() * std::pow(x[i] / x.front(), growth.claimed));
    }
    return t;
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
    const std::vector<Index>& sizes = how.range.empty() ? growth.sizes : how.range;
    const Index trials = how.trials;
    if (how.only) {
        const Index N = sizes[std::size_t(std::min(*how.only / trials, Index(sizes.size()) - 1))];
        r.measured = growth.sample(N, trial_rng(how, growth.reading, *how.only));
        r.trials = 1;
        r.note = fmt::format("trial {} alone, at {} = {}: no exponent", *how.only, growth.size, N);
        return r;
    }
    const auto samples = draw_samples(growth, how, sizes, trials);
    const std::vector<double> x(sizes.begin(), sizes.end());
    std::vector<double> means;
    for (const auto& sample : samples) means.push_back(moments_of(sample).mean());
    const double level = how.joint_confidence();
    const PowerLaw fit = fit_power_law(
        x, samples, level, how.rng.fork(growth.reading + "/bootstrap"), resamples_for(level) / 4);
    const PowerLaw line = fit_power_law(x, means, how.confidence);
    const Interval e = wider(fit.exponent, line.exponent);
    r.verdict = decide(growth, e);
    r.measured = e.value;
    r.low = e.low;
    r.high = e.high;
    r.trials = trials;
    if (growth.claimed > 0) r.tightness = e.value / growth.claimed;
    r.note = fmt::format("exponent over {} = {}..{}, {} trials each", growth.size, sizes.front(),
                         sizes.back(), trials);
    if (r.verdict == Verdict::not_decided) {
        const double room = growth.claimed + exponent_resolution - e.value;
        const double half = (e.high - e.low) / 2;
        r.note += fmt::format("; about {:.2g} trials each, or a longer range, would decide it",
                              double(trials) * std::pow(half / std::max(std::abs(room), 1e-3), 2));
    }
    r.trace = trace_of(growth, how, x, samples);
    return r;
}

}  // namespace tsdiag::claim
