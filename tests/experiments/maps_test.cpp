#include "experiments/poly/maps.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "support/near.hpp"
#include "tsdiag/random.hpp"

/// Scores of maps that are what a score looks for, and of maps without any order.
namespace tsdiag::test {
namespace {

using namespace experiment_list;

constexpr Index side = 5, n = side * side;

/// A class token, which is left out, and the patches.
PatchMap map_of(const std::function<double(Index i, Index j)>& entry) {
    Map map{.rows = n + 1, .cols = n + 1};
    for (Index i = 0; i <= n; ++i)
        for (Index j = 0; j <= n; ++j)
            map.values.push_back(i == 0 || j == 0 ? 1e6 : entry(i - 1, j - 1));
    return PatchMap(map);
}

TEST(MapScores, AreOneOfWhatTheyLookFor) {
    const auto is_one = [](const MapScore& score, const PatchMap& map) {
        EXPECT_CLOSE(score.of(map).value(), 1, rounding(n * n)) << score.name;
    };
    const PatchMap toeplitz = map_of([](Index i, Index j) { return std::sin(double(j - i)); });
    const PatchMap rows =
        map_of([](Index i, Index j) { return i / side == j / side ? 1.0 : -0.5; });
    const PatchMap keys = map_of([](Index, Index j) { return std::exp(-double(j)); });
    is_one(map_bands, toeplitz);
    is_one(map_row_bands, rows);
    is_one(map_columns, keys);
    EXPECT_LT(map_columns.of(toeplitz).value(), 0.5);
    EXPECT_LT(map_columns.of(rows).value(), 1e-10);
    EXPECT_LT(map_row_bands.of(toeplitz).value(), 0.5);
    EXPECT_LT(map_bands.of(keys).value(), 0.9);
}

TEST(MapScores, AreSharesOfTheVariance) {
    // Entries 0 but for one 1 of n^2: between columns lies (n - 1) / (n^2 - 1) of it.
    const PatchMap one = map_of([](Index i, Index j) { return i == 3 && j == 7 ? 1.0 : 0.0; });
    EXPECT_CLOSE(map_columns.of(one).value(), double(n - 1) / double(n * n - 1), rounding(n * n));
    EXPECT_FALSE(map_columns.of(map_of([](Index, Index) { return 0.25; })));
}

TEST(MapScores, HaveTheirChanceOnMapsWithoutOrder) {
    constexpr int draws = 400;
    for (const MapScore& score : {map_bands, map_row_bands, map_columns}) {
        double sum = 0, squares = 0;
        for (std::uint64_t seed = 0; seed < draws; ++seed) {
            Rng rng(seed);
            const double r = score.of(map_of([&](Index, Index) { return rng.normal(); })).value();
            sum += r, squares += r * r;
        }
        const double mean = sum / draws, error = std::sqrt((squares / draws - mean * mean) / draws);
        EXPECT_NEAR(mean, score.chance(side), 4 * error) << score.name;
    }
}

TEST(KeyOrder, IsTheCorrelationOfKeysWithTheirAttention) {
    EXPECT_CLOSE(key_order(map_of([](Index i, Index j) { return double(3 * j + i % 2); })).value(),
                 1, rounding(n * n));
    EXPECT_CLOSE(key_order(map_of([](Index, Index j) { return -double(j); })).value(), -1,
                 rounding(n * n));
    EXPECT_FALSE(key_order(map_of([](Index i, Index) { return double(i); })));
}

}  // namespace
}  // namespace tsdiag::test
