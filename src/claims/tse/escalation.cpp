#include "escalation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <complex>

#include "tsdiag/linalg.hpp"

namespace tsdiag::claim {

double theorem_bound(const Step& step, const Mixing& m) {
    const double a2 = step.alpha * step.alpha, least = (1 - m.omega) * (1 - m.omega);
    return 1 + a2 / (1 + a2 * m.delta * m.delta) * (least - m.delta * m.delta) * t_sim(step.X);
}

double theorem_bound(const Step& step) { return theorem_bound(step, mixing_of(step)); }

double estimate(const Step& step, double lambda) {
    return 1 + (2 / (1 + lambda * lambda) - 1) * t_sim(step.X);
}

double limit_rate(const Step& step) {
    const Gains mean = expected_gains(mixing_without_delta(step), step.alpha * step.alpha);
    return 1 + (mean.xi1 / mean.xi2 - 1) * t_sim(step.X);
}

double condition_of(const Mixing& m) {
    return std::max(m.mu1 * m.mu1 - (1 - m.omega) * (1 - m.omega),
                    m.delta * m.delta - m.mu2 * m.mu2);
}

double theorem_miss(const Mixing& m) {
    return std::max({0.0, m.omega + m.delta - 1, least_gap - condition_of(m)});
}

std::optional<double> exact_rate(const Step& step) {
    double sum = 0;
    for (const double w : {-1.0, 1.0}) {
        const Matrix Y = step.apply(Matrix{{w}});
        if (centred(Y).squaredNorm() <= 1e-12 * step.X.squaredNorm()) return {};
        sum += t_div(step.X) / t_div(Y) / 2;
    }
    return sum;
}

double drawn_rate(const Step& step, const Rng& rng, Distribution distribution, double variance) {
    const Index d = step.X.cols();
    const Matrix Y = step.apply(draw(rng, "W", d, d, distribution, variance));
    const Gains g = gains_of(step.X, Y);
    const Gains m =
        expected_gains(mixing_without_delta(step), step.alpha * step.alpha * double(d) * variance);
    const double first = (g.xi1 - m.xi1) / m.xi2 - m.xi1 * (g.xi2 - m.xi2) / (m.xi2 * m.xi2);
    return t_div(step.X) / t_div(Y) - first * t_sim(step.X);
}

namespace {

constexpr std::uint64_t steps_drawn = 6, attempts = 64;

}  // namespace

Steps steps_of(const Check& how, const std::function<std::optional<Step>(const Rng&)>& make) {
    Steps steps;
    for (std::uint64_t k = 0; k < steps_drawn; ++k)
        for (std::uint64_t attempt = 0; attempt < attempts; ++attempt) {
            const std::optional<Step> step = make(how.rng.fork("steps").fork(k).fork(attempt));
            if (!step || !has_both_parts(step->X) || theorem_miss(mixing_of(*step)) > 0) continue;
            steps.all.push_back(*step);
            break;
        }
    const std::string unmet =
        steps.all.empty() ? fmt::format("no step with n = {} and d = {} was found", how.n, how.d)
                          : "";
    steps.given = {{"omega + delta < 1", unmet},
                   {fmt::format("the left side of (15) is {} at least", least_gap), unmet}};
    return steps;
}

Reading examine_rates(const Check& how, const Steps& steps, const Mean& like, double variance,
                      const std::function<double(const Step&)>& bound) {
    Mean mean = like;
    mean.relation = Relation::at_least;
    mean.given = steps.given;
    Check part = how;
    const double count = double(std::max<std::size_t>(steps.all.size(), 1));
    part.trials = std::max<Index>(Index(double(how.trials) / count), 2);
    part.confidence = 1 - (1 - how.confidence) / count;
    const auto rank = [](const Reading& r) {  // failures first, then undecided readings
        return r.verdict == Verdict::false_as_stated ? 2 : r.verdict == Verdict::not_decided;
    };
    std::optional<Reading> worst;
    for (std::size_t k = 0; k < steps.all.size(); ++k) {
        const Step& step = steps.all[k];
        mean.claimed = bound(step);
        mean.fixed = step.X.size() <= 64 ? named(step) : std::vector<NamedMatrix>{};
        mean.sample = [&, k](const Rng& rng) {
            return drawn_rate(step, rng.fork(k), how.distribution, variance);
        };
        Reading r = examine_mean(mean, part);
        const bool closer = !worst || rank(r) > rank(*worst) ||
                            (rank(r) == rank(*worst) && r.tightness > worst->tightness);
        if (closer) worst = std::move(r);
    }
    if (!worst) return examine_mean(mean, part);  // reports that its hypotheses are not met
    worst->note += fmt::format("; the closest of {} draws of X and P", steps.all.size());
    return *worst;
}

double second_eigenvalue(const Matrix& P) {
    const NamedMatrix rows = named("P", P);
    std::vector<double> moduli;
    for (const std::complex<double>& value : eigenvalues(rows.values, rows.rows))
        moduli.push_back(std::abs(value));
    std::sort(moduli.rbegin(), moduli.rend());
    return moduli.size() < 2 ? 0 : moduli[1];
}

Matrix map_matrix(const std::vector<double>& map) {
    const Index n = Index(map.size());
    Matrix P = Matrix::Zero(n, n);
    for (Index i = 0; i < n; ++i) P(i, Index(map[std::size_t(i)])) = 1;
    return P;
}

}  // namespace tsdiag::claim
