#pragma once
#include <span>
#include <vector>

#include "tsdiag/table.hpp"

/// Confidence intervals of means and exponents, and what tests see.
namespace tsdiag {

/// A value with its lower and upper bound.
struct Interval {
    double value = 0, low = 0, high = 0;
};

/// Mean and variance of a stream of numbers in one pass (Welford).
class Moments {
  public:
    void add(double x);
    Index count() const { return count_; }
    double mean() const { return mean_; }
    double variance() const;        ///< unbiased; 0 below two numbers
    double standard_error() const;  ///< sqrt(variance / count)

  private:
    Index count_ = 0;
    double mean_ = 0, m2_ = 0;
};
Moments moments_of(std::span<const double> values);

/// mean -+ t sd/sqrt(count), t the quantile of Student's t with count - 1 degrees of freedom.
/// Exact for normal numbers.  Throws `UsageError` below two numbers or for a confidence outside (0,
/// 1).
Interval student_interval(const Moments& moments, double confidence);

/// Student's t corrected for the skewness of the values: the interval of the mean by Hall's cubic
/// transformation, accurate to order 1/count where Student's is to 1/sqrt(count).  Equals it where
/// the skewness is 0.  Source: P. Hall, On the removal of skewness by transformation, J. R. Stat.
/// Soc. B 54 (1992), 221-228.  Throws as `student_interval`.
Interval skewed_interval(std::span<const double> values, double confidence);

/// The Clopper-Pearson interval (1934) of a probability from `happened` of `count` > 0 independent
/// trials: coverage at least `confidence`, none and all included.  Throws as `student_interval` for
/// a confidence outside (0, 1).
Interval binomial_interval(Index happened, Index count, double confidence);

/// The quantile of Student's t at (1 + confidence) / 2, with `freedom` > 0 degrees of freedom.
double student_quantile(double confidence, double freedom);

/// P(T > t) for Student's t with `freedom` > 0 degrees of freedom.
double student_tail(double t, double freedom);

/// The distance of a mean from 0, in standard errors, at which Student's t with `freedom` degrees
/// of freedom exceeds `critical` > 0 with probability `power`: the noncentrality of t, by bisection
/// to a relative 1e-6.
double seen_distance(double critical, double freedom, double power);

/// P(|S| >= |s|) for Kendall's S, concordant less discordant pairs, between an order of
/// `groups` tied values (group sizes) and a random order without ties: exact, from the counts of
/// inversions of permutations of a multiset (Gaussian multinomial).  |s| is at most
/// the number of untied pairs, and of values there are at most 18.  1 where all are tied.
double kendall_probability(Index s, std::span<const Index> groups);

/// Degrees of freedom of sqrt(error_a^2 + error_b^2), of two independent standard errors [Welch
/// 1947, Satterthwaite 1946].  Needs one error above 0.
double welch_freedom(double error_a, double freedom_a, double error_b, double freedom_b);

/// Which of several hypotheses are rejected, from their p-values, by Holm's procedure: the
/// family-wise error rate is at most `level`.
std::vector<bool> holm(std::span<const double> probabilities, double level);

/// y = exp(offset) x^exponent by least squares of log y on log x.
struct PowerLaw {
    Interval exponent;
    double offset = 0;
};
/// The interval is that of the regression (Student's t with points - 2 degrees of freedom): it
/// covers the scatter about the line.  Throws `UsageError` below three points or where one is not
/// positive.
PowerLaw fit_power_law(std::span<const double> x, std::span<const double> y, double confidence);

}  // namespace tsdiag
