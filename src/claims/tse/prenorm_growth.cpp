#include <cmath>

#include "enumerated.hpp"
#include "expectation.hpp"
#include "hypotheses.hpp"

/// Growth of the states of a pre-norm transformer.  [TSE] (19), (20)
namespace tsdiag::claim {
namespace {

Matrix layer_normed(const Matrix& x) {
    Matrix y = x.colwise() - x.rowwise().mean();
    for (Index i = 0; i < y.rows(); ++i) y.row(i) *= std::sqrt(double(y.cols())) / y.row(i).norm();
    return y;
}

/// X, the attention branch without W, and one resulting Y.
struct Block {
    Matrix X, branch, Y;
};
Block draw_block(const Check& how) {
    const Rng rng = how.rng.fork("block");
    Block b;
    b.X = draw(rng, "X", how.n, how.d, how.distribution);
    const Matrix normed = layer_normed(b.X);
    b.branch = attention_of(normed, rng) * normed;
    b.Y = b.X + b.branch * draw(rng, "W", how.d, how.d, how.distribution, 1 / double(how.d));
    return b;
}

/// The branch, plus `along` times the state.
Mean attention_growth(const Check& how, const Block& b, double along) {
    const double variance = weight_variance(how.distribution, how.d, how.d, 1 / double(how.d));
    return {.reading = "attention step",
            .formula = "E|Y|_F^2 = |X|_F^2 + |P LN(X)|_F^2, Y = X + P LN(X) W",
            .claimed = b.X.squaredNorm() + b.branch.squaredNorm(),
            .sample = [&how, &b, variance, along](const Rng& rng) {
                const Matrix W = draw(rng, "W", how.d, how.d, how.distribution, variance);
                const Matrix state = (1 + along) * b.X, more = b.branch * W;
                return ((state + more).squaredNorm() + (state - more).squaredNorm()) / 2;
            }};
}

/// Hidden width; W1 and W2 have the variances 1/d and 1/q.
Index hidden(const Check& how) { return 2 * how.d; }

/// E|Z|_F^2 - |Y|_F^2: on average half of all hidden units are active, for any symmetric law.
double feed_forward_part(const Check& how, const Block& b) {
    const Index q = hidden(how);
    const double first = weight_variance(how.distribution, how.d, q, 1 / double(how.d));
    const double second = weight_variance(how.distribution, q, how.d, 1 / double(q));
    return double(how.d) * second * double(q) * first * layer_normed(b.Y).squaredNorm() / 2;
}

/// W2 of mean `offset`, added to `part` of the state.
Mean feed_forward_growth(const Check& how, const Block& b, double offset, double part) {
    return {.reading = "feed-forward step, exactly",
            .formula =
                "E|Z|_F^2 = |Y|_F^2 + d q s1^2 s2^2 |LN(Y)|_F^2/2, s1^2 and s2^2 the "
                "variances of W1 and W2, d x q and q x d",
            .role = Role::sharper,
            .claimed = b.Y.squaredNorm() + feed_forward_part(how, b),
            .sample = [&how, &b, offset, part](const Rng& rng) {
                const Index q = hidden(how);
                const Matrix W1 =
                    draw_weights(rng, "W1", how.d, q, how.distribution, 1 / double(how.d));
                const Matrix W2 =
                    draw_weights(rng, "W2", q, how.d, how.distribution, 1 / double(q));
                const Matrix H = (layer_normed(b.Y) * W1).cwiseMax(0);
                const Matrix more = H * W2;
                const Matrix state = part * b.Y + offset * H.rowwise().sum().replicate(1, how.d);
                return ((state + more).squaredNorm() + (state - more).squaredNorm()) / 2;
            }};
}

std::vector<Reading> check_prenorm(const Check& how) {
    const Block b = draw_block(how);
    const Mean exact = feed_forward_growth(how, b, 0, 1);
    Mean grows = exact;
    grows.reading = "feed-forward step";
    grows.formula = "E|Z|_F^2 > |Y|_F^2, Z = Y + relu(LN(Y) W1) W2";
    grows.role = Role::part;
    grows.relation = Relation::at_least;
    grows.claimed = b.Y.squaredNorm();
    grows.mutant = {.factor = 1.01 * exact.claimed / grows.claimed,
                    .why = "it grows by more than a hundredth"};
    return {examine_mean(attention_growth(how, b, 0), how), examine_mean(grows, how),
            examine_mean(exact, how)};
}

/// d = 2 and P = I: LN(X) has rows (1, -1), and the four W of entries +-1/sqrt(2) average exactly.
Attained attain_prenorm() {
    const Matrix X{{3.0, 1}}, normed = layer_normed(X);
    double sum = 0;
    for_each_sign(2, std::sqrt(0.5),
                  [&](const Matrix& W) { sum += (X + normed * W).squaredNorm() / 16; });
    return {sum, X.squaredNorm() + normed.squaredNorm(), 1e-14};
}

std::vector<Reading> violate_prenorm(const Check& how) {
    const Block b = draw_block(how);
    Mean along = attention_growth(how, b, 0.25);
    along.reading = "branch along the state";
    Reading attention = examine_mean(along, how);
    attention.of = "attention step";
    Mean shifted = feed_forward_growth(how, b, 1 / double(how.d), 1);
    shifted.reading = "W2 of a mean that is not 0";
    Reading feed = examine_mean(shifted, how);
    feed.of = "feed-forward step, exactly";
    Mean against = feed_forward_growth(how, b, 0, 0.5);
    against.reading = "W2 that takes a half of Y away";
    against.relation = Relation::at_least;
    against.claimed = b.Y.squaredNorm();
    Reading half = examine_mean(against, how);
    half.of = "feed-forward step";
    return {attention, feed, half};
}

}  // namespace

extern const Claim tse_eq20 = {
    .name = "tse.eq20",
    .statement =
        "States of a pre-norm transformer grow: Y = X + P LN(X) W has E|Y|_F^2 = |X|_F^2 + |P "
        "LN(X)|_F^2 > |X|_F^2, and Z = Y + relu(LN(Y) W1) W2 has E|Z|_F^2 > |Y|_F^2.",
    .words =
        "under the standard weight initializations, for the above pre-norm transformer block "
        "there hold (20)",
    .source = "[TSE] (19), (20)",
    .assumes =
        "entries of W, W1 and W2 independent, mean 0, d sigma^2 = 1 for W (otherwise that factor "
        "appears); P = P(LN(X)) by softmax (2), so P LN(X) is not 0; X, and Y for the second part, "
        "fixed",
    .hypotheses = {&standard_scale},
    .proof = "as Lemma 2.4; the term linear in W2 vanishes.",
    .n = 16,
    .d = 32,
    .trials = 1000,
    .least_n = 2,
    .least_d = 2,
    .chance = true,
    .check = check_prenorm,
    .tight = attain_prenorm,
    .violate = violate_prenorm};

}  // namespace tsdiag::claim
