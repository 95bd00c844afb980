#include "moments.hpp"

#include <cmath>

namespace tsdiag::experiment_list {
namespace {

/// a (a+2) .. (a + 2(count-1))
double rising(double a, int count) {
    double product = 1;
    for (int k = 0; k < count; ++k) product *= a + 2 * k;
    return product;
}

double pairs(const PowerLaw& l) {
    const double one = rising(l.D, l.p);
    return l.N * (l.N - 1) * one * one + l.N * rising(l.D, 2 * l.p);
}

}  // namespace

double mean_squared_norm(const PowerLaw& l) {
    return std::pow(l.d, -l.p) * std::pow(l.variance, 2 * l.p) * rising(1, l.p) * rising(l.d, l.p) *
           pairs(l);
}

double mean_squared_derivative(const PowerLaw& l) {
    return std::pow(l.d, -l.p) * l.p * l.p * rising(1, l.p - 1) * rising(l.d, l.p) *
           std::pow(l.variance, 2 * l.p - 1) * pairs(l);
}

}  // namespace tsdiag::experiment_list
