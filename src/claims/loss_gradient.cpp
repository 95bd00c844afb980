#include "loss_gradient.hpp"

#include <cmath>

#include "bound.hpp"

namespace tsdiag::claim {
namespace {

Index label(Index row, const Matrix& O) { return row % O.cols(); }

Matrix rectified(const Matrix& x, double slope) { return slope * x.cwiseMax(0); }
Matrix active(const Matrix& x) { return (x.array() > 0).cast<double>(); }

}  // namespace

double loss(const Tail& t) {
    const Matrix O = rectified(rectified(t.X1 * t.W1, 1) * t.W2, 1) * t.W3, p = softmax(O);
    double sum = 0;
    for (Index i = 0; i < O.rows(); ++i) sum -= std::log(p(i, label(i, O)));
    return sum;
}

TailGradients gradients(const Tail& t, double slope) {
    TailGradients g;
    const Matrix first = t.X1 * t.W1, second = rectified(first, slope) * t.W2;
    const Matrix O = rectified(second, slope) * t.W3;
    g.O = softmax(O);
    for (Index i = 0; i < O.rows(); ++i) {
        const Index own = label(i, O);
        g.O(i, own) = 0;  // p - 1 = minus the sum of the others, without cancellation
        g.O(i, own) = -g.O.row(i).sum();
    }
    g.X3 = g.O * t.W3.transpose();
    g.X2 = slope * g.X3.cwiseProduct(active(second)) * t.W2.transpose();
    g.X1 = slope * g.X2.cwiseProduct(active(first)) * t.W1.transpose();
    return g;
}

namespace {

/// d1 = 2 d, m = d + 1 classes.
Variables draw_tail(const Rng& rng, const Sizes& at, Distribution distribution) {
    const Index d = at.d, d1 = 2 * at.d, m = at.d + 1;
    return {{"X1", draw(rng, "X1", at.n, d, distribution)},
            {"W1", draw(rng, "W1", d, d1, distribution)},
            {"W2", draw(rng, "W2", d1, d, distribution)},
            {"W3", draw(rng, "W3", d, m, distribution)}};
}

Tail tail_of(const Variables& v) { return {v("X1"), v("W1"), v("W2"), v("W3")}; }

/// a0 = 2, multiplied by sqrt(r) h(W) for each following weight, r the rows of W.
double grown(double a, const Matrix& W) { return std::sqrt(double(W.rows())) * a * largest_row(W); }
constexpr double a0 = 2;
double a1(const Tail& t) { return grown(a0, t.W3); }
double a2(const Tail& t) { return grown(a1(t), t.W2); }

using MeasuredGradient = double (*)(const TailGradients&);
using Allowed = double (*)(const Tail&);

Bound step(std::string reading, std::string formula, MeasuredGradient measured, Allowed allowed) {
    return {.reading = std::move(reading),
            .formula = std::move(formula),
            .mutant = {.factor = 0.7, .why = "nothing exceeds 1 / sqrt(2) of it"},
            .draw = draw_tail,
            .sides = [measured, allowed](const Variables& v) -> std::optional<BoundSides> {
                const Tail t = tail_of(v);
                return BoundSides{measured(gradients(t)), allowed(t)};
            },
            .search = {{1, 1}, {2, 1}}};
}

double of_output(const TailGradients& g) { return largest_row(g.O); }
double of_input(const TailGradients& g) { return largest_row(g.X1); }
double with_first(const Tail& t) { return grown(a2(t), t.W1); }
/// sqrt(d) is the number of rows of W1, as in the corrected form; only h differs.
double with_second(const Tail& t) {
    return std::sqrt(double(t.W1.rows())) * a2(t) * largest_row(t.W2);
}

Bound first_layer() {
    return step("first layer, h(W1)", "h(dL/dX1) <= sqrt(d) a2 h(W1)", of_input, with_first);
}

struct Link {
    const char *reading, *formula;
    MeasuredGradient measured;
    Allowed allowed;
};
const Link loss_link{"loss", "h(dL/dO) <= a0 = 2", of_output, [](const Tail&) { return a0; }};
const Link classifier_link{"classifier", "h(dL/dX3) <= sqrt(d) a0 h(W3) = a1",
                           [](const TailGradients& g) { return largest_row(g.X3); }, a1};
const Link second_link{"second layer", "h(dL/dX2) <= sqrt(d1) a1 h(W2) = a2",
                       [](const TailGradients& g) { return largest_row(g.X2); }, a2};

Bound step(const Link& link) {
    return step(link.reading, link.formula, link.measured, link.allowed);
}

const Link sharp_link{"loss, sharp", "h(dL/dO) <= sqrt(2)", of_output,
                      [](const Tail&) { return std::sqrt(2.0); }};
Bound sharp_loss() {
    Bound sharp = sharper(step(sharp_link));
    sharp.mutant = {};
    return sharp;
}

std::vector<Reading> check_tail(const Check& how) {
    Bound equality = step(loss_link);
    equality.reading = "loss, with the = of (63)";
    equality.formula = "h(dL/dO) = a0 = 2";
    equality.role = Role::interpretation;
    equality.relation = Relation::at_least;  // the other half of =
    Bound printed =
        step("first layer, as printed", "h(dL/dX1) <= sqrt(d) a2 h(W2)", of_input, with_second);
    printed.sides = [](const Variables& v) -> std::optional<BoundSides> {
        const Tail t = tail_of(v);
        // The ratio is unbounded: the search keeps to weights that can be checked by hand.
        if (largest_row(t.W2) < largest_row(t.W1) / 100) return {};
        return BoundSides{of_input(gradients(t)), with_second(t)};
    };
    return examine_bounds({step(loss_link), equality, step(classifier_link), step(second_link),
                           printed, sharper(first_layer()), sharp_loss()},
                          how);
}

/// Logits divided by a temperature of 1/4, which the bounds ignore.
Reading violate_link(const Link& link, const Check& how) {
    Bound broken = step(link);
    broken.sides = [link](const Variables& v) -> std::optional<BoundSides> {
        const Tail t = tail_of(v);
        Tail hot = t;
        hot.W3 *= 4;
        TailGradients g = gradients(hot);
        g.O *= 4;  // by the logits before division
        return BoundSides{link.measured(g), link.allowed(t)};
    };
    return control(broken, "a temperature of 1/4", how);
}

/// Activations of slope 10 instead of 1.
std::vector<Reading> violate_tail(const Check& how) {
    Bound broken = first_layer();
    broken.sides = [](const Variables& v) -> std::optional<BoundSides> {
        const Tail t = tail_of(v);
        return BoundSides{of_input(gradients(t, 10)), with_first(t)};
    };
    return {violate_link(loss_link, how), violate_link(classifier_link, how),
            violate_link(second_link, how), violate_link(sharp_link, how),
            control(broken, "activations of slope 10", how)};
}

}  // namespace

extern const Claim devil_propD5 = {
    .name = "devil.propD5",
    .statement =
        "The gradient that reaches attention is bounded by the weights after it: h(dL/dO) = max "
        "(|p|^2 - 2 p_1 + 1) = a0, h(dL/dX3) <= sqrt(d) a0 h(W3) = a1, h(dL/dX2) <= sqrt(d1) a1 "
        "h(W2) = a2 and h(dL/dX1) <= sqrt(d) a2 h(W2), h the largest norm of a row.",
    .words =
        "c1 < infinity. [...] So the gradient passed to XAttention module is bounded, i.e., c1 = "
        "a3 < infinity",
    .source = "[DEVIL] Prop. D.5, (63) to (66)",
    .assumes =
        "X2 = relu(X1 W1), X3 = relu(X2 W2), O = X3 W3, L the sum over rows of the cross-entropy; "
        "d1 = 2 d and d + 1 classes; the maximum a0 is 2, at p_1 = 0 and another weight of 1",
    .sharp =
        "h(dL/dX1) <= sqrt(d) a2 h(W1): the last step involves W1, not W2, so c1 is finite, as "
        "Prop. D.5 states, but not by the printed a3.  And h(dL/dO) <= sqrt(2), because 2 bounds "
        "its square.",
    .loose = "a0 = 2 bounds the square of h(dL/dO), so every step stays below 1 / sqrt(2).",
    .n = 4,
    .d = 3,
    .check = check_tail,
    .violate = violate_tail};

}  // namespace tsdiag::claim
