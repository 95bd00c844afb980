#include "similarity.hpp"

#include <cmath>

namespace tsdiag::claim {

double t_sim(const Matrix& x) { return mean_part(x).squaredNorm() / x.squaredNorm(); }
double t_div(const Matrix& x) { return centred(x).squaredNorm() / x.squaredNorm(); }

Step draw_step(const Rng& rng, const Check& how, double spread) {
    return {draw(rng, "X", how.n, how.d, how.distribution),
            softmax(draw(rng, "logits", how.n, how.n, Distribution::gaussian, spread * spread)), 1};
}

Variables draw_mixed(const Rng& rng, const Sizes& at, Distribution distribution) {
    return {{"X", draw(rng, "X", at.n, at.d, distribution)},
            {"logits", draw(rng, "logits", at.n, at.n, Distribution::gaussian)}};
}

Step mixed_step(const Variables& v, double alpha) { return {v("X"), softmax(v("logits")), alpha}; }

Matrix draw_alpha(const Rng& rng) {
    Rng stream = rng.fork("alpha");
    return Matrix::Constant(1, 1, 0.5 + stream.uniform());
}

Variables draw_mixed_by_alpha(const Rng& rng, const Sizes& at, Distribution distribution) {
    Variables v = draw_mixed(rng, at, distribution);
    v.set("alpha", draw_alpha(rng));
    return v;
}

Matrix attention_of(const Matrix& X, const Rng& rng, Index k) {
    const Index d = X.cols();
    const auto project = [&](const char* name) -> Matrix {
        return X * draw(rng, name, d, k, Distribution::uniform, 1 / (3 * double(d)));
    };
    const Matrix q = project("Wq");
    return softmax(q * project("Wk").transpose() / std::sqrt(double(k)));
}

Mixing mixing_without_delta(const Step& s) {
    const Matrix PX = s.P * s.X, rest = centred(s.X);
    Mixing m;
    m.mu1 = mean_part(PX).norm() / mean_part(s.X).norm();
    m.mu2 = centred(PX).norm() / rest.norm();
    m.omega = (s.P * rest).colwise().sum().norm() / s.X.colwise().sum().norm();
    return m;
}

double delta_of(const Matrix& P) { return spectral_norm(centred(P)); }

Mixing mixing_of(const Step& s) {
    Mixing m = mixing_without_delta(s);
    m.delta = delta_of(s.P);
    return m;
}

double rounding_of_mu1(const Matrix& X) {
    return 16 * double(X.rows() + 8) * ulp * X.norm() / mean_part(X).norm();
}

Gains gains_of(const Matrix& X, const Matrix& Y) {
    return {mean_part(Y).squaredNorm() / mean_part(X).squaredNorm(),
            centred(Y).squaredNorm() / centred(X).squaredNorm()};
}

Gains expected_gains(const Mixing& m, double a2) {
    return {1 + a2 * m.mu1 * m.mu1, 1 + a2 * m.mu2 * m.mu2};
}

bool has_both_parts(const Matrix& X) {
    const double least = 1e-8 * X.squaredNorm();
    return mean_part(X).squaredNorm() > least && centred(X).squaredNorm() > least;
}

std::vector<NamedMatrix> named(const Step& step) {
    std::vector<NamedMatrix> all{named("X", step.X), named("P", step.P)};
    if (step.alpha != 1) all.push_back(named("alpha", Matrix::Constant(1, 1, step.alpha)));
    return all;
}

}  // namespace tsdiag::claim
