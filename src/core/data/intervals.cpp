#include "tsdiag/intervals.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/non_central_t.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <boost/math/tools/toms748_solve.hpp>
#include <cmath>
#include <cstdint>
#include <numeric>

#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

void require_confidence(double confidence) {
    if (!(confidence > 0 && confidence < 1))
        throw UsageError(
            fmt::format("a confidence of {} is not between 0 and 1, both excluded.", confidence));
}

void require_count(std::size_t count, std::size_t least, std::string_view what) {
    if (count < least)
        throw UsageError(
            fmt::format("{} numbers are too few for an interval of {}, expected at least {}.",
                        count, what, least));
}

struct Line {
    double slope = 0, offset = 0, slope_error = 0;
};

/// Least squares; the error of the slope needs three points.
Line least_squares(std::span<const double> x, std::span<const double> y) {
    const Moments mx = moments_of(x), my = moments_of(y);
    double xx = 0, xy = 0, rest = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        xx += (x[i] - mx.mean()) * (x[i] - mx.mean());
        xy += (x[i] - mx.mean()) * (y[i] - my.mean());
    }
    Line line;
    line.slope = xy / xx;
    line.offset = my.mean() - line.slope * mx.mean();
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double r = y[i] - line.offset - line.slope * x[i];
        rest += r * r;
    }
    if (x.size() > 2) line.slope_error = std::sqrt(rest / double(x.size() - 2) / xx);
    return line;
}

std::vector<double> logarithms(std::span<const double> values, std::string_view what) {
    std::vector<double> logs;
    for (const double v : values) {
        if (!(v > 0) || !std::isfinite(v))
            throw UsageError(
                fmt::format("a power law of {} = {} cannot be fitted: it is not positive and "
                            "finite.",
                            what, v));
        logs.push_back(std::log(v));
    }
    return logs;
}

}  // namespace

void Moments::add(double x) {
    const double before = x - mean_;
    mean_ += before / double(++count_);
    m2_ += before * (x - mean_);
}

double Moments::variance() const { return count_ < 2 ? 0 : m2_ / double(count_ - 1); }

double Moments::standard_error() const {
    return count_ < 1 ? 0 : std::sqrt(variance() / double(count_));
}

Moments moments_of(std::span<const double> values) {
    Moments m;
    for (const double v : values) m.add(v);
    return m;
}

double student_quantile(double confidence, double freedom) {
    require_confidence(confidence);
    return boost::math::quantile(boost::math::students_t(freedom), (1 + confidence) / 2);
}

double student_tail(double t, double freedom) {
    return boost::math::cdf(complement(boost::math::students_t(freedom), t));
}

double seen_distance(double critical, double freedom, double power) {
    require_confidence(power);
    const auto beyond = [&](double distance) {
        const boost::math::non_central_t shifted(freedom, distance);
        return boost::math::cdf(complement(shifted, critical)) - power;
    };
    std::uintmax_t most = 100;
    const auto [low, high] = boost::math::tools::bracket_and_solve_root(
        beyond, critical + 1, 2.0, true, boost::math::tools::eps_tolerance<double>(20), most);
    return (low + high) / 2;
}

namespace {

/// a (1 - q^n) of polynomials in q, or its inverse: a / (1 - q^n), cut to the terms of a.
void times_one_less_power(std::vector<double>& a, std::size_t n) {
    for (std::size_t i = a.size(); i-- > n;) a[i] -= a[i - n];
}
void over_one_less_power(std::vector<double>& a, std::size_t n) {
    for (std::size_t i = n; i < a.size(); ++i) a[i] += a[i - n];
}

}  // namespace

double kendall_probability(Index s, std::span<const Index> groups) {
    Index total = 0, pairs = 0;
    for (const Index group : groups) {
        pairs += total * group;
        total += group;
    }
    check(std::abs(s) <= pairs, "S is of untied pairs");
    constexpr Index most = 18;  // 18! < 2^53
    check(total <= most, "an exact order is of 18 values at most");
    // [total]!_q / prod [group]!_q, factor by factor, so that its counts stay integers
    std::vector<double> counts(std::size_t(pairs) + 1, 0.0);
    counts[0] = 1;
    Index top = 0;
    for (const Index group : groups)
        for (Index i = 1; i <= group; ++i) {
            times_one_less_power(counts, std::size_t(++top));
            over_one_less_power(counts, std::size_t(i));
        }
    double extreme = 0, all = 0;
    for (Index inversions = 0; inversions <= pairs; ++inversions) {
        const double count = counts[std::size_t(inversions)];
        all += count;
        if (std::abs(pairs - 2 * inversions) >= std::abs(s)) extreme += count;
    }
    return extreme / all;
}

double welch_freedom(double error_a, double freedom_a, double error_b, double freedom_b) {
    // of shares of the sum, so that no fourth power leaves the range
    const double both = std::hypot(error_a, error_b);
    const double share = (error_a / both) * (error_a / both),
                 rest = (error_b / both) * (error_b / both);
    const auto term = [](double part, double freedom) {
        return part > 0 ? part * part / freedom : 0;  // no error, no degrees of freedom
    };
    return 1 / (term(share, freedom_a) + term(rest, freedom_b));
}

std::vector<bool> holm(std::span<const double> probabilities, double level) {
    std::vector<std::size_t> order(probabilities.size());
    std::iota(order.begin(), order.end(), std::size_t(0));
    std::ranges::sort(order, {}, [&](std::size_t i) { return probabilities[i]; });
    std::vector<bool> falls(order.size(), false);
    for (std::size_t k = 0; k < order.size(); ++k) {
        if (!(probabilities[order[k]] <= level / double(order.size() - k))) break;
        falls[order[k]] = true;
    }
    return falls;
}

Interval student_interval(const Moments& moments, double confidence) {
    require_confidence(confidence);
    require_count(std::size_t(moments.count()), 2, "a mean");
    const double half =
        student_quantile(confidence, double(moments.count() - 1)) * moments.standard_error();
    return {moments.mean(), moments.mean() - half, moments.mean() + half};
}

Interval skewed_interval(std::span<const double> values, double confidence) {
    const Moments m = moments_of(values);
    const Interval student = student_interval(m, confidence);
    const double count = double(values.size()), deviation = std::sqrt(m.variance());
    if (deviation == 0) return student;
    double cubes = 0;
    for (const double v : values) cubes += std::pow((v - m.mean()) / deviation, 3);
    const double skew = cubes / count / std::sqrt(count);
    if (std::abs(skew) < 1e-6) return student;
    // The inverse of g(t) = t + skew t^2/3 + skew^2 t^3/27 + skew/6.
    const auto inverse = [&](double y) {
        return 3 / skew * (std::cbrt(1 + skew * (y - skew / 6)) - 1);
    };
    const double quantile = student_quantile(confidence, count - 1), error = m.standard_error();
    return {m.mean(), m.mean() - error * inverse(quantile), m.mean() - error * inverse(-quantile)};
}

Interval binomial_interval(Index happened, Index count, double confidence) {
    require_confidence(confidence);
    require_count(std::size_t(count), 1, "a probability");
    using Binomial = boost::math::binomial_distribution<double>;
    const double n = double(count), k = double(happened), tail = (1 - confidence) / 2;
    return {k / n, Binomial::find_lower_bound_on_p(n, k, tail),
            Binomial::find_upper_bound_on_p(n, k, tail)};
}

PowerLaw fit_power_law(std::span<const double> x, std::span<const double> y, double confidence) {
    require_confidence(confidence);
    require_count(std::min(x.size(), y.size()), 3, "an exponent");
    check(x.size() == y.size(), "a fit is of pairs");
    const Line line = least_squares(logarithms(x, "x"), logarithms(y, "y"));
    const double half = student_quantile(confidence, double(x.size() - 2)) * line.slope_error;
    return {{line.slope, line.slope - half, line.slope + half}, line.offset};
}

}  // namespace tsdiag
