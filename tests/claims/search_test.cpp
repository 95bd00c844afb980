#include "claims/search.hpp"

#include <gtest/gtest.h>

#include <Eigen/SVD>
#include <cmath>

#include "claims/bound.hpp"
#include "claims/witness.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::claim {
namespace {

TEST(Search, ClimbsRosenbrocksValley) {
    const auto f = [](const std::vector<double>& x) {
        return -(100 * std::pow(x[1] - x[0] * x[0], 2) + std::pow(1 - x[0], 2));
    };
    const Best best = climb(f, {-1.2, 1}, 4000);
    EXPECT_NEAR(best.value, 0, 1e-8);
    EXPECT_NEAR(best.x[0], 1, 1e-3);  // the valley is flat: 1e-8 in value is 1e-4 in x
}

TEST(Search, StaysWhereTheFunctionIsDefined) {
    const auto f = [](const std::vector<double>& x) { return x[0] > 2 ? NAN : x[0] - x[1] * x[1]; };
    const Best best = climb(f, {0.3, 0.7}, 3000);
    EXPECT_NEAR(best.value, 2, 1e-4);
    EXPECT_LE(best.x[0], 2);
}

TEST(Variables, AreSetInPlaceOfThoseOfTheirName) {
    Variables v;
    v.set("x", Matrix{{1.0, 2}});
    v.set("y", Matrix{{3.0}});
    v.set("x", Matrix{{4.0}});
    EXPECT_EQ(v("x"), (Matrix{{4.0}}));
    EXPECT_EQ(v.count(), 2);
    EXPECT_EQ(v.flat(), (std::vector<double>{4, 3}));
}

TEST(Bounds, ScaledAreOfTheScaledVariable) {
    // d f(2 x)/dx = 2 f'(2 x), f' = x^2 here: 8 x^2
    Bound b;
    b.sides = [](const Variables& v) -> std::optional<BoundSides> {
        return BoundSides{v("x")(0) * v("x")(0), 5};
    };
    Variables v;
    v.set("x", Matrix{{3.0}});
    const std::optional<BoundSides> s = scaled(b, "x", 2).sides(v);
    ASSERT_TRUE(s);
    EXPECT_EQ(s->measured, 72);
    EXPECT_EQ(s->bound, 5);
}

TEST(Witness, IsMadePlain) {
    Variables v;
    v.set("x", Matrix{{2.0001, -0.3331}});
    const auto strength = [](const Variables& at) {
        const Matrix& x = at("x");
        return x(0, 0) / (1e-9 + x(0, 0) + 4 * std::abs(x(0, 1)));
    };
    const std::optional<Variables> plain = plain_witness(v, strength, 0.55);
    ASSERT_TRUE(plain);
    EXPECT_EQ((*plain)("x"), (Matrix{{1.0, 0.0}}));
}

TEST(Witness, ThatRoundingDestroysIsNone) {
    Variables v;
    v.set("x", Matrix{{1.0000001}});
    const auto strength = [](const Variables& at) { return at("x")(0, 0) > 1.00000005 ? 2.0 : 0; };
    EXPECT_FALSE(plain_witness(v, strength, 1));
}

TEST(Bounds, KnowWhichSideIsLarge) {
    EXPECT_DOUBLE_EQ(tightness({1, 2}, Relation::at_most), 0.5);
    EXPECT_DOUBLE_EQ(tightness({1, 2}, Relation::at_least), 2);
    EXPECT_EQ(tightness({0, 0}, Relation::at_most), 0);
    EXPECT_TRUE(std::isinf(tightness({1, 0}, Relation::at_most)));
    EXPECT_EQ(tightness({3, -1}, Relation::at_least), 0);
}

Bound square() {
    return {.reading = "square",
            .draw =
                [](const Rng& rng, const Sizes& at, Distribution distribution) {
                    Variables v;
                    v.set("x", draw(rng, "x", at.n, at.d, distribution));
                    return v;
                },
            .sides = [](const Variables& v) -> std::optional<BoundSides> {
                return BoundSides{v("x").sum(), v("x").squaredNorm()};
            },
            .search = {{1, 1}}};
}

TEST(Bounds, AreBrokenByTheSearchWhereDrawsDoNot) {
    // Rademacher draws of 1 x 1 have x <= x^2; x = 1/2 does not.
    Check how{.trials = 50, .n = 1, .d = 1, .distribution = Distribution::rademacher};
    const Reading r = examine_bound(square(), how);
    EXPECT_EQ(r.verdict, Verdict::false_as_stated);
    ASSERT_EQ(r.witness.size(), 1u);
    EXPECT_GT(r.witness[0].values[0], r.witness[0].values[0] * r.witness[0].values[0]);
    Bound unsearched = square();
    unsearched.search.clear();
    EXPECT_EQ(examine_bound(unsearched, how).verdict, Verdict::holds);
}

TEST(Bounds, AreSearchedFromEntriesFarLargerAndFarSmallerThanDraws) {
    // No climb leads there: one has to start there.
    for (const auto& [low, high] : {std::pair{0.0, 0.1}, {8.0, 1e6}}) {
        Bound far = square();
        far.sides = [low = low, high = high](const Variables& v) -> std::optional<BoundSides> {
            const double size = std::abs(v("x")(0));
            return BoundSides{size > low && size < high ? 2.0 : 0.5, 1};
        };
        const Reading r = examine_bound(
            far, {.trials = 2, .n = 1, .d = 1, .distribution = Distribution::rademacher});
        EXPECT_EQ(r.verdict, Verdict::false_as_stated) << high;
    }
}

TEST(Bounds, OfManyNumbersAreSearchedBeyondTheCornersOfASimplex) {
    // 24 starts; a simplex in 64 dimensions has 65 vertices before it moves.
    Bound many = square();
    many.search = {{8, 8}};
    const Index steps = examine_bound(many, {.trials = 2, .n = 1, .d = 1}).steps;
    EXPECT_GT(steps, 24 * 4 * 65);
    EXPECT_LT(examine_bound(many, {.trials = 2, .n = 1, .d = 1, .climbs = 4}).steps, steps / 3);
}

TEST(Bounds, NameTheTrialThatIsNotFinite) {
    Bound infinite = square();
    infinite.sides = [](const Variables&) -> std::optional<BoundSides> {
        return BoundSides{NAN, 1};
    };
    const Check how{.trials = 3, .n = 1, .d = 1, .claim = "some.claim"};
    try {
        examine_bound(infinite, how);
        FAIL();
    } catch (const NonFiniteError& e) {
        EXPECT_TRUE(std::string(e.what()).starts_with(
            "some.claim: trial 0 of 'square' with seed 0 gives nan"))
            << e.what();
    }
}

TEST(Bounds, WithoutMeaningAreNotDecided) {
    Bound none = square();
    none.search.clear();
    none.sides = [](const Variables&) -> std::optional<BoundSides> { return {}; };
    EXPECT_EQ(examine_bound(none, {.trials = 3, .n = 1, .d = 1}).verdict, Verdict::not_decided);
}

TEST(Bounds, AreNotBrokenByWhatADrawBecomesWhereItIsMadePlain) {
    // -1 and 1 violate it: no normal draw has them, but rounding of a witness would give them.
    Bound at_one = square();
    at_one.search.clear();
    at_one.sides = [](const Variables& v) -> std::optional<BoundSides> {
        return BoundSides{std::abs(v("x")(0)) == 1 ? 2.0 : 0.5, 1};
    };
    EXPECT_EQ(examine_bound(at_one, {.trials = 10, .n = 1, .d = 1}).verdict, Verdict::holds);
}

TEST(Bounds, CountTheDrawsWithoutMeaning) {
    Bound half = square();
    half.search.clear();
    half.sides = [](const Variables& v) -> std::optional<BoundSides> {
        if (v("x")(0) < 0) return {};
        return BoundSides{1, 2};
    };
    const Check how{
        .trials = 40, .n = 1, .d = 1, .distribution = Distribution::rademacher, .rng = Rng(3)};
    Index without = 0;
    for (Index t = 0; t < how.trials; ++t)
        if (draw(trial_rng(how, half.reading, t), "x", 1, 1, how.distribution)(0) < 0) ++without;
    ASSERT_GT(without, 0);
    ASSERT_LT(without, how.trials);
    const Reading r = examine_bound(half, how);
    EXPECT_EQ(r.trials, how.trials - without);
    EXPECT_EQ(r.note, "undefined in " + std::to_string(without) + " draws");
    EXPECT_EQ(examine_bound(square(), {.trials = 5, .n = 1, .d = 1}).note, "searched at n=1 d=1");
}

TEST(Bounds, ANegativeNumberIsNotAtLeastZero) {
    EXPECT_EQ(tightness({-0.5, 0}, Relation::at_least), INFINITY);
    EXPECT_EQ(tightness({0.5, 0}, Relation::at_least), 0);
    EXPECT_EQ(tightness({0, 0}, Relation::at_least), 0);
    EXPECT_EQ(tightness({0, -0.5}, Relation::at_most), INFINITY);
    Bound square;
    square.reading = "x^3 is not negative";
    square.relation = Relation::at_least;
    square.draw = [](const Rng& rng, const Sizes&, Distribution distribution) {
        Variables v;
        v.set("x", draw(rng, "x", 1, 1, distribution));
        return v;
    };
    square.sides = [](const Variables& v) -> std::optional<BoundSides> {
        return BoundSides{std::pow(v("x")(0), 3), 0};
    };
    Check how;
    how.trials = 50;
    EXPECT_EQ(examine_bound(square, how).verdict, Verdict::false_as_stated);
}

TEST(Variables, SpectralNormIsTheLargestSingularValue) {
    EXPECT_EQ(spectral_norm(Matrix::Zero(3, 2)), 0);
    EXPECT_NEAR(spectral_norm(Matrix{{3.0, 0, 0}, {0, -4, 0}}), 4, 1e-14);
    const Matrix a = draw(Rng(1), "a", 9, 5, Distribution::gaussian);
    for (const double scale : {1.0, 1e-200, 1e200})
        EXPECT_NEAR(spectral_norm(scale * a) / scale,
                    Eigen::JacobiSVD<Matrix>(a).singularValues()(0), 1e-13);
}

}  // namespace
}  // namespace tsdiag::claim
