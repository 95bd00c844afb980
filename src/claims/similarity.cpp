#include "similarity.hpp"

namespace tsdiag::claim {

double t_sim(const Matrix& x) { return mean_part(x).squaredNorm() / x.squaredNorm(); }
double t_div(const Matrix& x) { return centred(x).squaredNorm() / x.squaredNorm(); }

Step draw_step(const Rng& rng, const Check& how, double spread) {
    return {draw(rng, "X", how.n, how.d, how.distribution),
            softmax(draw(rng, "logits", how.n, how.n, Distribution::gaussian, spread * spread)), 1};
}

Mixing mixing_of(const Step& s) {
    const Matrix PX = s.P * s.X, rest = centred(s.X);
    Mixing m;
    m.mu1 = mean_part(PX).norm() / mean_part(s.X).norm();
    m.mu2 = centred(PX).norm() / rest.norm();
    m.omega = (s.P * rest).colwise().sum().norm() / s.X.colwise().sum().norm();
    m.delta = spectral_norm(centred(s.P));
    return m;
}

Gains gains_of(const Matrix& X, const Matrix& Y) {
    return {mean_part(Y).squaredNorm() / mean_part(X).squaredNorm(),
            centred(Y).squaredNorm() / centred(X).squaredNorm()};
}

std::vector<NamedMatrix> named(const Step& step) {
    return {named("X", step.X), named("P", step.P)};
}

}  // namespace tsdiag::claim
