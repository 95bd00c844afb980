#include "derivatives.hpp"

#include <cmath>

namespace tsdiag::claim {
namespace {

/// sum_k w_k <g, v_j - v_k>, 1 x n
Matrix apart_from_mean(const Matrix& w, const Matrix& V, const Matrix& g) {
    const Vector along = V * g.transpose();
    const Index n = along.size();
    const Matrix apart = along.replicate(1, n) - along.transpose().replicate(n, 1);
    return (apart * w.transpose()).transpose();
}

ComplexRow normalised(const ComplexRow& f) { return f / f.sum(); }

}  // namespace

const Weights softmax_weights{
    [](const ComplexRow& s) -> ComplexRow { return normalised(s.array().exp()); },
    [](const Matrix& s) -> Matrix { return Matrix::Ones(1, s.cols()); }};
const Weights linear_weights{normalised,
                             [](const Matrix& s) -> Matrix { return s.cwiseInverse(); }};
const Weights parabola_weights{
    [](const ComplexRow& s) -> ComplexRow { return normalised(1 + s.array().square()); },
    [](const Matrix& s) -> Matrix { return 2 * s.array() / (1 + s.array().square()); }};

Matrix weight_derivative(const Matrix& p, const Matrix& slope) {
    return (Matrix(p.row(0).asDiagonal()) - p.transpose() * p) * slope.row(0).asDiagonal();
}

Matrix softmax_derivative(const Matrix& p) {
    Matrix derivative = -p.transpose() * p;
    const Index n = p.cols();
    double before = 0;
    Matrix others(1, n);  // sums from both ends: 1 - p_j cancels for p_j near 1
    for (Index j = 0; j < n; ++j) {
        others(j) = before;
        before += p(j);
    }
    double after = 0;
    for (Index j = n - 1; j >= 0; --j) {
        derivative(j, j) = p(j) * (others(j) + after);
        after += p(j);
    }
    return derivative;
}

Matrix linear_derivative(const Matrix& s) {
    const Index n = s.cols();
    const Matrix p = s / s.sum();
    return (Matrix::Identity(n, n) - p.transpose() * Matrix::Ones(1, n)) / s.sum();
}

Matrix softmax_gradient(const Matrix& s, const Matrix& V, const Matrix& g) {
    const Matrix p = softmax(s);
    return p.cwiseProduct(apart_from_mean(p, V, g));
}

Matrix linear_gradient(const Matrix& s, const Matrix& V, const Matrix& g) {
    return apart_from_mean(s, V, g) / (s.sum() * s.sum());
}

Variables draw_signed_scores(const Rng& rng, const Sizes& at, Distribution distribution) {
    return {{"s", draw(rng, "s", 1, at.n, distribution)}};
}

Variables draw_scores(const Rng& rng, const Sizes& at, Distribution distribution) {
    return {{"s", draw(rng, "s", 1, at.n, distribution).cwiseAbs()}};
}

Variables draw_row(const Rng& rng, const Sizes& at, Distribution distribution) {
    Variables v = draw_signed_scores(rng, at, distribution);
    v.set("V", draw(rng, "V", at.n, at.d, distribution));
    v.set("g", draw(rng, "g", 1, at.d, distribution));
    return v;
}

Matrix draw_eps(const Rng& rng) {
    return draw(rng, "eps", 1, 1, Distribution::gaussian).cwiseAbs();
}
double eps_of(const Variables& v) { return v("eps")(0); }

double one(double) { return 1; }
double three_halves_d(double d) { return 1.5 * d; }

double rms_square(const Matrix& t, double eps) { return t.squaredNorm() / double(t.cols()) + eps; }

Matrix rms_norm_derivative(const Matrix& t, double eps) {
    const Index d = t.cols();
    const double v = rms_square(t, eps);
    return (Matrix::Identity(d, d) - t.transpose() * t / (double(d) * v)) / std::sqrt(v);
}

Matrix norm_attention_gradient(const Matrix& s, const Matrix& V, const Matrix& g, double eps) {
    const Matrix t = s * V;
    const double v = rms_square(t, eps);
    const double along = (g * t.transpose())(0) / (double(t.cols()) * v);
    return (g - along * t) * V.transpose() / std::sqrt(v);
}

BoundSides worst_entry(const Matrix& measured, const Matrix& bound) {
    BoundSides worst{std::abs(measured(0)), bound(0)};
    for (Index i = 1; i < measured.size(); ++i) {
        const BoundSides next{std::abs(measured(i)), bound(i)};
        if (tightness(next, Relation::at_most) > tightness(worst, Relation::at_most)) worst = next;
    }
    return worst;
}

BoundSides worst_difference(const Matrix& measured, const Matrix& claimed, const Matrix& room) {
    BoundSides worst, largest;
    for (Index i = 0; i < measured.size(); ++i) {
        const BoundSides next{measured(i), claimed(i), room(i)};
        if (i == 0 || tightness(next, Relation::equal) > tightness(worst, Relation::equal))
            worst = next;
        if (i == 0 || std::abs(next.bound) * largest.room > std::abs(largest.bound) * next.room)
            largest = next;
    }
    return tightness(worst, Relation::equal) > 1 ? worst : largest;
}

}  // namespace tsdiag::claim
