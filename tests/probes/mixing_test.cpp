#include "by_hand.hpp"

namespace tsdiag::test {
namespace {

Layer layer_of(std::vector<Matrix> heads, const Matrix& x, Type type = Type::f64) {
    return {.op = std::make_shared<Made>(std::move(heads), true, type), .input = tensor(x, type)};
}

/// The four metrics of one head by explicit projections.
struct Twin {
    double omega, mu1, mu2, m1, m2;
    Twin(const Matrix& p, const Matrix& x, const Matrix& r) {
        const Matrix px = naive::product(p, x), across = naive::product(p, naive::centred(x));
        const double length = squared(naive::mean_part(x));
        omega = std::sqrt(squared(naive::mean_part(across)) / length);
        mu1 = std::sqrt(squared(naive::mean_part(px)) / length);
        mu2 = std::sqrt(squared(naive::centred(px)) / squared(naive::centred(x)));
        m1 = squared(naive::mean_part(px)) / squared(naive::mean_part(r));
        m2 = squared(naive::centred(px)) / squared(naive::centred(r));
    }
};

TEST(Mixing, AgreesWithExplicitProjections) {
    const Matrix x = gaussian(7, 4, 1, 0.5), r = gaussian(7, 4, 2, 0.5);
    const std::vector<Matrix> heads = {random_attention(7, 3), random_attention(7, 4, true)};
    Layer layer = layer_of(heads, x);
    layer.residual = tensor(r);
    layer.a2 = 0.7;
    const Table t = measure("mixing", layer);
    double m1 = 0, m2 = 0;
    for (Index k = 0; k < 2; ++k) {
        const Twin twin(heads[std::size_t(k)], x, r);
        EXPECT_CLOSE(value(t, head(k), "omega"), twin.omega, rounding(1000));
        EXPECT_CLOSE(value(t, head(k), "mu1"), twin.mu1, rounding(1000));
        EXPECT_CLOSE(value(t, head(k), "mu2"), twin.mu2, rounding(1000));
        EXPECT_CLOSE(value(t, head(k), "est_mu"), (1 + 0.7 * twin.m1) / (1 + 0.7 * twin.m2) - 1,
                     rounding(1000));
        m1 += twin.m1 / 2;
        m2 += twin.m2 / 2;
    }
    EXPECT_CLOSE(value(t, head(), "est_mu"), (1 + 0.7 * m1) / (1 + 0.7 * m2) - 1, rounding(1000));
    EXPECT_CLOSE(value(t, head(), "mu2"), (value(t, head(0), "mu2") + value(t, head(1), "mu2")) / 2,
                 rounding(4));
}

/// Many heads with many columns: P X is computed in chunks of 128 columns, the last one shorter.
TEST(Mixing, OfManyColumnsIsTheSameByChunks) {
    const Index heads = 256, n = 64, d = 300;
    const std::vector<Matrix> two = {random_attention(n, 3), random_attention(n, 4)};
    std::vector<Matrix> all;
    for (Index k = 0; k < heads; ++k) all.push_back(two[std::size_t(k % 2)]);
    const Matrix x = gaussian(n, d, 1, 0.5);
    const Table t = measure("mixing", layer_of(all, x));
    const double expected[] = {Twin(two[0], x, x).mu2, Twin(two[1], x, x).mu2};
    for (Index k = 0; k < heads; ++k)
        EXPECT_CLOSE(value(t, head(k), "mu2"), expected[k % 2], rounding(1000));
}

TEST(Mixing, UniformAttentionLeavesTheMeanAlone) {
    const Table t = measure("mixing", layer_of({uniform(6)}, gaussian(6, 3, 5, 1)));
    for (const char* metric : {"omega", "mu2"})  // 0, but for the rounding of 1/6
        EXPECT_EQ(reason(t, head(0), metric), "below the rounding of float64") << metric;
    EXPECT_CLOSE(value(t, head(0), "mu1"), 1, rounding(64));
    EXPECT_CLOSE(value(t, head(0), "est_mu"), 1, rounding(64));  // a2 = m1 = 1, m2 = 0
}

TEST(Mixing, TheIdentityChangesNothing) {
    const Table t = measure("mixing", layer_of({identity(6)}, gaussian(6, 3, 5, 1)));
    EXPECT_CLOSE(value(t, head(0), "mu1"), 1, rounding(64));
    EXPECT_CLOSE(value(t, head(0), "mu2"), 1, rounding(64));
    EXPECT_CLOSE(value(t, head(0), "est_mu") + 1, 1, rounding(64));
}

/// For rows that sum to 1, Pi2 P X = Pi2 P Pi2 X: mu2 depends on the differences, however small.
TEST(Mixing, KeepsItsDigitsWhenTokensAreNearlyAlike) {
    const Matrix p = random_attention(8, 6);
    for (const auto& [type, size, digits] :
         {std::tuple{Type::f64, 1e-9, 1e-6}, std::tuple{Type::f32, 1e-3, 1e-3}}) {
        Matrix noise = gaussian(8, 5, 7), x = noise;
        for (double& v : x.a) v = 1 + size * v;
        const Table t = measure("mixing", layer_of({p}, x, type));
        const Twin twin(p, noise, noise);
        EXPECT_CLOSE(value(t, head(0), "mu2"), twin.mu2, stopped_at(digits)) << size;
        EXPECT_CLOSE(value(t, head(0), "mu1"), 1, stopped_at(10 * size));
        const Matrix exact = naive::product(p, naive::centred(noise));
        EXPECT_CLOSE(value(t, head(0), "omega"),
                     size * std::sqrt(squared(naive::mean_part(exact)) / (8 * 5)),
                     stopped_at(std::max(digits, 10 * size)));
    }
}

TEST(Mixing, RowsThatDoNotSumToOneStillMix) {
    Matrix p = gaussian(6, 6, 8), x = gaussian(6, 4, 9, 1);
    const Table t = measure("mixing", layer_of({p, uniform(6)}, x));
    const Twin twin(p, x, x);
    EXPECT_CLOSE(value(t, head(0), "mu1"), twin.mu1, rounding(1000));
    EXPECT_CLOSE(value(t, head(0), "mu2"), twin.mu2, rounding(1000));
    EXPECT_EQ(reason(t, head(0), "omega").substr(0, 23), "rows do not sum to 1 (o");
    EXPECT_EQ(reason(t, head(1), "omega"), "below the rounding of float64");
    EXPECT_CLOSE(value(t, head(1), "mu2") + 1, 1, rounding(1000));
}

TEST(Mixing, SaysWhyItIsUndefined) {
    const Matrix equal_tokens(3, 2, 1.0), opposite(3, 1, {1, 0, -1});
    const Table same = measure("mixing", layer_of({uniform(3)}, equal_tokens));
    EXPECT_EQ(reason(same, head(0), "mu2"), "Pi2 X = 0");
    EXPECT_EQ(reason(same, head(), "est_mu"), "Pi2 R = 0");
    EXPECT_CLOSE(value(same, head(0), "mu1"), 1, rounding(64));
    const Table none = measure("mixing", layer_of({uniform(3)}, opposite));
    EXPECT_EQ(reason(none, head(0), "mu1"), "Pi1 X = 0");
    EXPECT_EQ(reason(none, head(0), "omega"), "e^T X = 0");
    EXPECT_EQ(reason(none, head(0), "est_mu"), "Pi1 R = 0");
}

/// P of half precision, beside states of float64: what is left of it may be its rounding.
TEST(Mixing, IsNotKnownBelowTheRoundingOfP) {
    Matrix p = random_attention(6, 3);
    for (double& v : p.a) v = 1.0 / 6 + 1e-4 * (v - 1.0 / 6);
    const Layer layer = layer_of({p}, gaussian(6, 3, 5, 1));
    const Table finer = measure("mixing", layer);
    ProbeSettings half;
    half.map_rounding = 0x1p-11;
    const Table coarser = measure("mixing", layer, half);
    for (const char* metric : {"omega", "mu2"}) {
        EXPECT_GT(value(finer, head(0), metric), 0) << metric;
        EXPECT_EQ(reason(coarser, head(0), metric), "below the rounding of 11 bits") << metric;
    }
    EXPECT_CLOSE(value(coarser, head(0), "mu1"), value(finer, head(0), "mu1"), exactly);
}

/// One token is far from the others, as where a model has massive activations: the entries of its
/// column decide, so that omega is known where |Pi2 X| alone would not say so.
TEST(Mixing, OmegaIsKnownByTheErrorsOfTheEntries) {
    const Index n = 64;
    Matrix x = gaussian(n, 3, 5, 1);
    for (std::size_t c = 0; c < 3; ++c) x.a[c] += 1000;
    ProbeSettings half;
    half.map_rounding = 0x1p-11;
    const auto attention = [&](double more, bool rounded) {
        Matrix p(n, n);
        for (std::size_t i = 0; i < p.a.size(); ++i) {
            const bool first = i % std::size_t(n) == 0;
            double v = (first ? 1 + more : 1 - more / double(n - 1)) / double(n);
            if (rounded) v = std::nearbyint(v * 0x1p17) * 0x1p-17;  // 11 bits from 2^-7 on
            p.a[i] = v;
        }
        for (Index i = 0; i < n; ++i) {
            double sum = 0;
            for (Index j = 0; j < n; ++j) sum += p.a[std::size_t(i * n + j)];
            for (Index j = 0; j < n; ++j) p.a[std::size_t(i * n + j)] /= sum;
        }
        return p;
    };
    const double exact =
        value(measure("mixing", layer_of({attention(0.02, false)}, x)), head(0), "omega");
    const Layer saved = layer_of({attention(0.02, true)}, x);
    EXPECT_EQ(reason(measure("mixing", saved, half), head(0), "omega"),
              "below the rounding of 11 bits");
    half.saved_maps = true;
    // Above 8 u S, each entry is off by u for its rounding and u for the sum of its row.
    EXPECT_CLOSE(value(measure("mixing", saved, half), head(0), "omega"), exact, stopped_at(0.25));
    EXPECT_EQ(
        reason(measure("mixing", layer_of({attention(0.004, true)}, x), half), head(0), "omega"),
        "below the rounding of 11 bits");
}

/// All rows attend to two tokens that are far from each other: the errors of their columns add up
/// over the rows, to more than 8 u |Pi2 X|.
TEST(Mixing, OmegaOfErrorsThatAddUpIsNotKnown) {
    const Index n = 512;
    constexpr double step = 0x1p-12;  // of float16 from 1/4 to 1/2
    const auto attention = [&](double first, double second) {
        Matrix p(n, n);
        for (Index i = 0; i < n; ++i)
            for (Index j = 0; j < n; ++j)
                p.a[std::size_t(i * n + j)] = j == 0   ? first * step
                                              : j == 1 ? second * step
                                                       : (1 - (first + second) * step) / (n - 2);
        return p;
    };
    Matrix x = gaussian(n, 3, 5);
    for (double& v : x.a) v = 1 + 1e-3 * v;
    x.a[0] += 300;
    x.a[3] -= 300;
    ProbeSettings half;
    half.map_rounding = 0x1p-11;
    const Layer exact = layer_of({attention(2007.6, 2006.4)}, x);
    const Layer rounded = layer_of({attention(2008, 2006)}, x);
    const double wrong = value(measure("mixing", rounded, half), head(0), "omega");
    EXPECT_GT(wrong, 1.5 * value(measure("mixing", exact), head(0), "omega"));
    half.saved_maps = true;
    EXPECT_EQ(reason(measure("mixing", rounded, half), head(0), "omega"),
              "below the rounding of 11 bits");
}

/// So do the errors of the states of those two, which bfloat16 rounds to opposite numbers.
TEST(Mixing, OmegaOfErrorsOfStatesThatAddUpIsNotKnown) {
    const Index n = 512, d = 3;
    Matrix p(n, n);
    for (std::size_t i = 0; i < p.a.size(); ++i)
        p.a[i] = i % std::size_t(n) < 2 ? 0.49 : 0.02 / double(n - 2);
    const auto states = [&](double first, double second) {
        Matrix x(n, d);
        for (std::size_t i = 0; i < x.a.size(); ++i)
            x.a[i] = i < std::size_t(d) ? first : i < std::size_t(2 * d) ? second : 1;
        return x;
    };
    const double exact =
        value(measure("mixing", layer_of({p}, states(300.9, -299.1))), head(0), "omega");
    const Layer rounded = layer_of({p}, states(300, -300));
    EXPECT_GT(value(measure("mixing", rounded), head(0), "omega"), 5 * exact);
    ProbeSettings coarse;
    coarse.state_rounding = 0x1p-8;
    EXPECT_EQ(reason(measure("mixing", rounded, coarse), head(0), "omega"),
              "below the rounding of 8 bits");
}

/// [TSE] (11) and statements 3.5: |1 - omega| <= mu1 <= 1 + omega.
TEST(Mixing, OmegaBoundsWhatHappensToTheMean) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        const Table t = measure(
            "mixing", layer_of({random_attention(6, 100 + seed, true)}, gaussian(6, 2, seed, 0.5)));
        const double omega = value(t, head(0), "omega"), mu1 = value(t, head(0), "mu1");
        EXPECT_LE(std::abs(1 - omega), mu1 * (1 + 1e-12));
        EXPECT_LE(mu1, (1 + omega) * (1 + 1e-12));
    }
}

}  // namespace
}  // namespace tsdiag::test
