#include "claims/derivatives.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "claims/loss_gradient.hpp"

namespace tsdiag::claim {
namespace {

using Vectors = std::function<Matrix(const Matrix&)>;

/// df_j/dx_k by central differences.
Matrix differences(const Vectors& f, const Matrix& x, double h) {
    Matrix derivative(f(x).size(), x.size());
    for (Index k = 0; k < x.size(); ++k) {
        Matrix up = x, down = x;
        up(k) += h;
        down(k) -= h;
        derivative.col(k) = (f(up) - f(down)).reshaped() / (2 * h);
    }
    return derivative;
}

constexpr double step = 1e-5;
/// Truncation step^2 times third derivatives of order 10, and rounding eps / step.
constexpr double near = 1e-8;

Matrix normal(std::string_view name, Index rows, Index cols) {
    return draw(Rng(11), name, rows, cols, Distribution::gaussian);
}

TEST(ComplexStep, IsRightToRounding) {
    const auto cube = [](const ComplexRow& x) -> ComplexRow { return x.array().cube(); };
    const Matrix derivative = complex_step(cube, Matrix{{2.0, -0.5}});
    EXPECT_NEAR(derivative(0, 0), 12, 1e-14 * 12);  // some units of rounding
    EXPECT_NEAR(derivative(1, 1), 0.75, 1e-14);
    EXPECT_EQ(derivative(0, 1), 0);
}

TEST(Derivatives, OfSoftmaxEqualDifferences) {
    const Matrix s = normal("s", 1, 5);
    EXPECT_LT((differences(softmax, s, step) - softmax_derivative(softmax(s))).norm(), near);
}

TEST(Derivatives, OfSoftmaxKeepSmallWeights) {
    // 1 - p_1 is below rounding of 1: it is computed as the sum of the others.
    const Matrix p{{1.0, 1e-20, 2e-20}};
    EXPECT_DOUBLE_EQ(softmax_derivative(p)(0, 0), 3e-20);
}

TEST(Derivatives, OfLinearAttentionEqualDifferences) {
    const auto normalised = [](const Matrix& s) -> Matrix { return s / s.sum(); };
    const Matrix s{{0.7, 0.0, 1.3, 0.2}};
    EXPECT_LT((differences(normalised, s, step) - linear_derivative(s)).norm(), near);
}

TEST(Derivatives, OfTheRootMeanSquareNormEqualDifferences) {
    const double eps = 0.3;
    const auto normed = [&](const Matrix& t) -> Matrix {
        return t / std::sqrt(t.squaredNorm() / 4 + eps);
    };
    const Matrix t = normal("t", 1, 4);
    EXPECT_LT((differences(normed, t, step) - rms_norm_derivative(t, eps)).norm(), near);
}

TEST(Derivatives, OfTheRootMeanSquareNormHaveKnownNorms) {
    const double eps = 0.3;
    for (const Index d : {1, 2, 5}) {
        const Matrix t = normal("t", 1, d), R = rms_norm_derivative(t, eps);
        const double v = rms_square(t, eps), ratio = eps / v;
        // |R|_F^2 = (d - 1 + (eps / v)^2) / v: d - 1 eigenvalues 1 / sqrt(v), one eps / v^(3/2)
        EXPECT_NEAR(R.squaredNorm(), (double(d - 1) + ratio * ratio) / v, 1e-14 * double(d) / v);
        EXPECT_NEAR(spectral_norm(R), (d == 1 ? ratio : 1) / std::sqrt(v), 1e-13 / std::sqrt(v));
    }
}

TEST(Gradients, OfAttentionEqualDifferences) {
    const Matrix V = normal("V", 5, 3), g = normal("g", 1, 3);
    const double eps = 0.2;
    const auto vanilla = [&](const Matrix& s) -> Matrix { return softmax(s) * V * g.transpose(); };
    const auto linear = [&](const Matrix& s) -> Matrix { return s / s.sum() * V * g.transpose(); };
    const auto norm = [&](const Matrix& s) -> Matrix {
        const Matrix t = s * V;
        return t * g.transpose() / std::sqrt(t.squaredNorm() / 3 + eps);
    };
    const Matrix s = normal("s", 1, 5).cwiseAbs();
    EXPECT_LT((differences(vanilla, s, step) - softmax_gradient(s, V, g)).norm(), near);
    EXPECT_LT((differences(linear, s, step) - linear_gradient(s, V, g)).norm(), near);
    EXPECT_LT((differences(norm, s, step) - norm_attention_gradient(s, V, g, eps)).norm(), near);
}

TEST(Gradients, HaveTheirInvariants) {
    const Matrix V = normal("V", 6, 3), g = normal("g", 1, 3), s = normal("s", 1, 6).cwiseAbs();
    const double eps = 0.2;
    EXPECT_NEAR(softmax_gradient(s, V, g).sum(), 0,
                1e-14);  // a shift of the logits changes nothing
    // sum_j s_j dL/ds_j: 0 by homogeneity, eps <g, t> / v^(3/2) where eps breaks homogeneity
    EXPECT_NEAR(linear_gradient(s, V, g).cwiseProduct(s).sum(), 0, 1e-14);
    const Matrix t = s * V;
    EXPECT_NEAR(norm_attention_gradient(s, V, g, eps).cwiseProduct(s).sum(),
                eps * (g * t.transpose())(0) / std::pow(rms_square(t, eps), 1.5), 1e-13);
}

TEST(Gradients, OfEqualValuesAreExactlyZero) {
    const Matrix V = normal("v", 1, 3).replicate(4, 1), s = normal("s", 1, 4).cwiseAbs();
    EXPECT_EQ(linear_gradient(s, V, normal("g", 1, 3)).cwiseAbs().maxCoeff(), 0);
}

TEST(LossGradient, EqualsDifferences) {
    const Tail tail{normal("X1", 4, 2), normal("W1", 2, 5), normal("W2", 5, 2), normal("W3", 2, 3)};
    const auto of_input = [&](const Matrix& X1) -> Matrix {
        Tail moved = tail;
        moved.X1 = X1;
        return Matrix::Constant(1, 1, loss(moved));
    };
    const TailGradients g = gradients(tail);
    EXPECT_LT((differences(of_input, tail.X1, step) - g.X1.reshaped().transpose()).norm(),
              10 * near);  // the loss is a sum over rows
}

TEST(LossGradient, OfThePapersSmallestCase) {
    // n = d = d1 = 1, the label second in the paper, first here: logits (-1, 1)
    const Tail tail{Matrix{{1.0}}, Matrix{{10.0}}, Matrix{{0.1}}, Matrix{{-1.0, 1.0}}};
    const double other = 1 / (1 + std::exp(-2.0));
    EXPECT_NEAR(gradients(tail).X1(0), 2 * other, 1e-14);  // 1.7616 > 0.0283 = sqrt(2) 2 0.1^2
}

TEST(LossGradient, StopsAtASecondLayerThatIsOff) {
    // W2 < 0 switches the second activation off: the gradient is 0, whatever W1 is
    const Tail tail{Matrix{{1.0}}, Matrix{{10.0}}, Matrix{{-0.02}}, Matrix{{-1.0, 1.0}}};
    EXPECT_EQ(gradients(tail).X1(0), 0);
    EXPECT_EQ(loss(tail), std::log(2.0));
}

TEST(BoundSides, OfEntriesThatAreEquallyTightAreThoseOfTheFirst) {
    const BoundSides first = worst_entry(Matrix{{1.0, 2, 3}}, Matrix{{4.0, 4, 6}});
    EXPECT_EQ(first.measured, 2);
    const BoundSides apart =
        worst_difference(Matrix{{1.0, 3, 5}}, Matrix{{0.0, 1, 3}}, Matrix{{0.5, 0.5, 0.5}});
    EXPECT_EQ(apart.measured, 3);
    const BoundSides together =
        worst_difference(Matrix{{1.0, 4, -4}}, Matrix{{1.0, 4, -4}}, Matrix{{0.5, 0.5, 0.5}});
    EXPECT_EQ(together.measured, 4);
}

TEST(BoundSides, OfADifferenceBeyondRoundingAreItsOwnAndElseThoseOfTheLargestNumber) {
    const auto shown = [](double apart) {
        return worst_difference(Matrix{{apart, 10}}, Matrix{{0.0, 10}}, Matrix{{1.0, 1}}).measured;
    };
    for (const double within : {0.0, 0.5, 1.0}) EXPECT_EQ(shown(within), 10);
    for (const double beyond : {1.001, 1.5, 3.0}) EXPECT_EQ(shown(beyond), beyond);
}

TEST(BoundSides, AreThoseOfTheTightestEntry) {
    const BoundSides worst = worst_entry(Matrix{{1.0, -3, 5}}, Matrix{{2.0, 4, 100}});
    EXPECT_EQ(worst.measured, 3);
    EXPECT_EQ(worst.bound, 4);
}

}  // namespace
}  // namespace tsdiag::claim
