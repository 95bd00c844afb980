#include "escalation.hpp"

#include <algorithm>
#include <cmath>
#include <complex>

#include "tsdiag/linalg.hpp"

namespace tsdiag::claim {

double theorem_bound(const Step& step) {
    const Mixing m = mixing_of(step);
    const double least = (1 - m.omega) * (1 - m.omega);
    return 1 + ((1 + least) / (1 + m.delta * m.delta) - 1) * t_sim(step.X);
}

double estimate(const Step& step, double lambda) {
    return 1 + (2 / (1 + lambda * lambda) - 1) * t_sim(step.X);
}

double limit_rate(const Step& step) {
    const Mixing m = mixing_of(step);
    return 1 + ((1 + m.mu1 * m.mu1) / (1 + m.mu2 * m.mu2) - 1) * t_sim(step.X);
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
    return t_div(step.X) / t_div(step.apply(draw(rng, "W", d, d, distribution, variance)));
}

double second_eigenvalue(const Matrix& P) {
    const NamedMatrix rows = named("P", P);
    std::vector<double> moduli;
    for (const std::complex<double>& value : eigenvalues(rows.values, rows.rows))
        moduli.push_back(std::abs(value));
    std::sort(moduli.rbegin(), moduli.rend());
    return moduli.size() < 2 ? 0 : moduli[1];
}

bool for_each_tuple(std::size_t count, const std::vector<double>& values,
                    const std::function<bool(const std::vector<double>&)>& visit) {
    std::vector<std::size_t> at(count, 0);
    std::vector<double> tuple(count);
    for (;;) {
        for (std::size_t i = 0; i < count; ++i) tuple[i] = values[at[i]];
        if (visit(tuple)) return true;
        std::size_t digit = 0;
        while (digit < count && ++at[digit] == values.size()) at[digit++] = 0;
        if (digit == count) return false;
    }
}

Matrix map_matrix(const std::vector<double>& map) {
    const Index n = Index(map.size());
    Matrix P = Matrix::Zero(n, n);
    for (Index i = 0; i < n; ++i) P(i, Index(map[std::size_t(i)])) = 1;
    return P;
}

}  // namespace tsdiag::claim
