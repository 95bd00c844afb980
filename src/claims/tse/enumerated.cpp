#include "enumerated.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tsdiag::claim {
namespace {

/// nullopt where alpha or sigma is not positive, or a part of X vanishes.
std::optional<Heads> heads_of(const Variables& v) {
    const Index n = v("X").rows();
    const Matrix& logits = v("logits");
    Heads heads{v("X"), {}, v("alpha")(0)};
    if (!(heads.alpha > 0 && v("sigma")(0) > 0) || !has_both_parts(heads.X)) return {};
    for (Index first = 0; first < logits.rows(); first += n)
        heads.P.push_back(softmax(logits.middleRows(first, n)));
    return heads;
}

}  // namespace

Matrix Heads::apply(const Matrix& W) const {
    Matrix Y = X;
    const Index width = X.cols() / Index(P.size());
    for (std::size_t k = 0; k < P.size(); ++k) {
        const Index first = Index(k) * width;
        Y.middleCols(first, width) += alpha * P[k] * (X * W.middleCols(first, width));
    }
    return Y;
}

Heads draw_heads(const Rng& rng, const Check& how, Index count) {
    Heads heads{draw(rng, "X", how.n, how.d, how.distribution), {}, draw_alpha(rng)(0)};
    for (Index k = 0; k < count; ++k)
        heads.P.push_back(softmax(
            draw(rng.fork(std::uint64_t(k)), "logits", how.n, how.n, Distribution::gaussian)));
    return heads;
}

std::vector<NamedMatrix> named(const Heads& heads) {
    std::vector<NamedMatrix> all{named("X", heads.X)};
    for (std::size_t k = 0; k < heads.P.size(); ++k)
        all.push_back(named(heads.P.size() == 1 ? "P" : fmt::format("P{}", k + 1), heads.P[k]));
    all.push_back(named("alpha", Matrix::Constant(1, 1, heads.alpha)));
    return all;
}

HeadMeans means_of(const Heads& heads) {
    HeadMeans sum;
    const double part = 1 / double(heads.P.size());
    for (const Matrix& P : heads.P) {
        const Mixing m = mixing_without_delta({heads.X, P, heads.alpha});
        sum.mu1 += part * m.mu1 * m.mu1;
        sum.mu2 += part * m.mu2 * m.mu2;
        sum.least += part * (1 - m.omega) * (1 - m.omega);
    }
    return sum;
}

double printed_ratio(const HeadMeans& m, double a2) {
    return 1 + a2 / (1 + a2 * m.mu2) * (m.mu1 - m.mu2);
}

Gains paired_gains(const Heads& heads, const Matrix& W) {
    const Gains one = gains_of(heads.X, heads.apply(W)), other = gains_of(heads.X, heads.apply(-W));
    return {(one.xi1 + other.xi1) / 2, (one.xi2 + other.xi2) / 2};
}

void for_each_sign(Index d, double sigma, const std::function<void(const Matrix&)>& visit) {
    Matrix W(d, d);
    for (int signs = 0; signs < 1 << (d * d); ++signs) {
        for (Index k = 0; k < d * d; ++k) W(k) = (signs >> k) & 1 ? sigma : -sigma;
        visit(W);
    }
}

std::optional<Enumerated> enumerate(const Heads& heads, double sigma) {
    const Index d = heads.X.cols();
    const double part = std::pow(0.5, double(d * d));
    Enumerated e;
    bool defined = true;
    for_each_sign(d, sigma, [&](const Matrix& W) {
        const Matrix Y = heads.apply(W);
        defined = defined && has_both_parts(Y);
        const Gains g = gains_of(heads.X, Y);
        e.xi1 += g.xi1 * part;
        e.xi2 += g.xi2 * part;
        e.r += t_div(heads.X) / t_div(Y) * part;
        e.inverse += g.xi1 / g.xi2 * part;
        e.worst = std::max(e.worst, 1 / t_div(Y));
    });
    if (!defined) return {};
    return e;
}

Variables draw_enumerated(const Rng& rng, const Sizes& at, Distribution distribution, Index heads) {
    return {{"X", draw(rng, "X", at.n, heads > 1 ? heads : std::min<Index>(at.d, 2), distribution)},
            {"logits", draw(rng, "logits", heads * at.n, at.n, Distribution::gaussian)},
            {"alpha", draw_alpha(rng)},
            {"sigma", draw_alpha(rng.fork("sigma"))}};
}

Bound enumerated_bound(const EnumeratedEquation& equation) {
    return {.reading = equation.reading,
            .formula = equation.formula,
            .relation = Relation::equal,
            .accuracy = 0,
            .hypotheses = Hypotheses{},  // of any sigma
            .draw = [count = equation.heads](
                        const Rng& rng, const Sizes& at,
                        Distribution d) { return draw_enumerated(rng, at, d, count); },
            .sides = [sides = equation.sides,
                      scale = equation.deviation](const Variables& v) -> std::optional<BoundSides> {
                const std::optional<Heads> heads = heads_of(v);
                if (!heads) return {};
                const double sigma = v("sigma")(0), a = heads->alpha * sigma;
                const std::optional<Enumerated> e = enumerate(*heads, scale * sigma);
                if (!e) return {};
                BoundSides s = sides(*heads, a * a * double(heads->X.cols()), *e);
                s.room *= 64 * ulp * double(v("X").size() + v("logits").size()) *
                          (1 / t_sim(heads->X) + 1 / t_div(heads->X));
                return s;
            },
            .shown =
                [](const Variables& v) {
                    const std::optional<Heads> heads = heads_of(v);
                    std::vector<NamedMatrix> all = heads ? named(*heads) : v.named();
                    if (heads) all.push_back(named("sigma", v("sigma")));
                    return all;
                }};
}

Bound enumerated_gain(std::string reading, std::string formula, bool similar, Index heads,
                      double deviation) {
    return enumerated_bound({.reading = std::move(reading),
                             .formula = std::move(formula),
                             .heads = heads,
                             .sides =
                                 [similar](const Heads& all, double a2, const Enumerated& e) {
                                     const HeadMeans m = means_of(all);
                                     const double claimed = 1 + a2 * (similar ? m.mu1 : m.mu2);
                                     return BoundSides{similar ? e.xi1 : e.xi2, claimed, claimed};
                                 },
                             .deviation = deviation});
}

FixedHeads fixed_heads(const Check& how, Index count) {
    FixedHeads f{draw_heads(how.rng.fork("step"), how, count),
                 weight_variance(how.distribution, how.d, how.d, 1.5 / double(how.d))};
    f.a2 = f.heads.alpha * f.heads.alpha * double(how.d) * f.variance;
    return f;
}

Mean drawn_ratio(const Check& how, const FixedHeads& fixed, std::string reading,
                 std::string formula, double scale) {
    return {.reading = std::move(reading),
            .formula = std::move(formula),
            .claimed = printed_ratio(means_of(fixed.heads), fixed.a2),
            .ratio = [&how, &fixed, scale](const Rng& rng) -> std::array<double, 2> {
                const Matrix W =
                    draw(rng, "W", how.d, how.d, how.distribution, scale * fixed.variance);
                const Gains g = paired_gains(fixed.heads, W);
                return {g.xi1, g.xi2};
            },
            .fixed = named(fixed.heads)};
}

}  // namespace tsdiag::claim
