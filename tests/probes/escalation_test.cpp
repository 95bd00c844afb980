#include "by_hand.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::test {
namespace {

double diversity(const Matrix& x) { return squared(naive::centred(x)) / squared(x); }

Table step(const Matrix& x, const Matrix& y) {
    return measure("escalation", {.states = {{"in", "", tensor(x)}, {"attn", "in", tensor(y)}}});
}

TEST(Escalation, AgreesWithExplicitProjections) {
    const Matrix x = gaussian(5, 4, 1, 0.3), y = gaussian(5, 4, 2, 0.7);
    const Table t = step(x, y);
    const double xi1 = squared(naive::mean_part(y)) / squared(naive::mean_part(x));
    const double xi2 = squared(naive::centred(y)) / squared(naive::centred(x));
    EXPECT_CLOSE(value(t, state("attn"), "xi1"), xi1, rounding(100));
    EXPECT_CLOSE(value(t, state("attn"), "xi2"), xi2, rounding(100));
    EXPECT_CLOSE(value(t, state("attn"), "xi_ratio"), xi1 / xi2, rounding(100));
    EXPECT_CLOSE(value(t, state("attn"), "r"), diversity(x) / diversity(y), rounding(100));
    EXPECT_EQ(reason(t, state("in"), "r"), "(no row)");
}

TEST(Escalation, OddsOfSimilarityGrowByTheRatio) {  // statements 3.4: odds(Y) = (xi1/xi2) odds(X)
    const Matrix x = gaussian(6, 3, 3, 0.2), y = gaussian(6, 3, 4, 1);
    const Table t = step(x, y);
    const auto odds = [](const Matrix& m) { return (1 - diversity(m)) / diversity(m); };
    EXPECT_CLOSE(value(t, state("attn"), "xi_ratio"), odds(y) / odds(x), rounding(1000));
}

TEST(Escalation, ALayerGoesFromInToOut) {
    const Matrix a = gaussian(4, 3, 5), b = gaussian(4, 3, 6), c = gaussian(4, 3, 7);
    const Table t = measure("escalation", {.states = {{"in", "", tensor(a)},
                                                      {"attn", "in", tensor(b)},
                                                      {"ffn", "attn", tensor(c)},
                                                      {"out", "", tensor(c)}}});
    EXPECT_CLOSE(value(t, state("ffn"), "r"), diversity(b) / diversity(c), rounding(100));
    EXPECT_CLOSE(value(t, state("out"), "r_layer"), diversity(a) / diversity(c), rounding(100));
    EXPECT_EQ(reason(t, state("out"), "r"), "(no row)");
    EXPECT_EQ(reason(t, state("ffn"), "r_layer"), "(no row)");
}

TEST(Escalation, SamplesDoNotSeeEachOther) {
    Table table;
    const auto probe = entry("escalation").make({});
    for (const std::uint64_t seed : {10, 20}) {
        const Matrix x = gaussian(4, 3, seed), y = gaussian(4, 3, seed + 1);
        drive(*probe, Needs::hidden, {.states = {{"in", "", tensor(x)}, {"out", "in", tensor(y)}}},
              table);
    }
    EXPECT_EQ(table.find(state("out"), "r")->count, 2);
    EXPECT_THROW(
        drive(*probe, Needs::hidden, {.states = {{"out", "in", tensor(gaussian(4, 3, 1))}}}, table),
        Error);
}

TEST(Escalation, SaysWhyItIsUndefined) {
    const Matrix equal_tokens(2, 2, 1.0), opposite(2, 2, {1, 0, -1, 0}), zero(2, 2),
        any = gaussian(2, 2, 8);
    EXPECT_EQ(reason(step(equal_tokens, any), state("attn"), "xi2"), "Pi2 X = 0");
    EXPECT_EQ(reason(step(equal_tokens, any), state("attn"), "xi_ratio"), "Pi2 X = 0");
    EXPECT_EQ(reason(step(opposite, any), state("attn"), "xi1"), "Pi1 X = 0");
    EXPECT_EQ(reason(step(any, equal_tokens), state("attn"), "xi_ratio"), "xi2 = 0");
    EXPECT_EQ(reason(step(any, equal_tokens), state("attn"), "r"), "t_div(Y) = 0");
    EXPECT_EQ(reason(step(zero, any), state("attn"), "r"), "X = 0");
    EXPECT_EQ(reason(step(any, zero), state("attn"), "r"), "Y = 0");
    const Table alone = measure("escalation", {.states = {{"out", "", tensor(any)}}});
    EXPECT_EQ(reason(alone, state("out"), "r_layer"), "the layer's input is missing");
}

}  // namespace
}  // namespace tsdiag::test
