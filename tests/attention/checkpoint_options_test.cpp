#include <algorithm>

#include "attention/twins.hpp"
#include "tsdiag/error.hpp"

/// Options and parameters that checkpoints use.
namespace tsdiag {
namespace {

using namespace test;

/// The sum of row i is z / (z + floor c_i): its reciprocal less 1 is proportional to the floor.
TEST(Performer, AddsItsFloorToEachDenominator) {
    const auto rows = [](const char* floor, bool causal) {
        return naive::matrix_of(attention("performer")
                                    .make(input({{"features", "9"}, {"floor", floor}}, causal))
                                    ->matrix());
    };
    for (const bool causal : {false, true}) {
        const Matrix none = rows("0", causal), one = rows("0.25", causal),
                     two = rows("0.5", causal);
        for (Index i = 0; i < n; ++i) {
            double sum = 0, twice = 0;
            for (Index j = 0; j < n; ++j) sum += one(i, j), twice += two(i, j);
            EXPECT_LT(sum, 1);
            EXPECT_CLOSE(1 / twice - 1, 2 * (1 / sum - 1), rounding(200));
            for (Index j = 0; j < n; ++j) EXPECT_CLOSE(one(i, j), sum * none(i, j), rounding(200));
        }
    }
}

/// Only denominators below the clamp are replaced by it.
TEST(Cosformer, ClampsItsDenominators) {
    const auto sums = [](const char* clamp) {
        const auto op = attention("cosformer").make(input({{"clamp", clamp}}, true));
        return std::pair(row_statistics(op->rows(0, n)).sum, op->structure().row_stochastic);
    };
    const std::vector<double> text =
        sums("0").first;  // sums of 1, or of 0 where a row has no features
    EXPECT_EQ(text, sums("1e-6").first);
    const auto [high, no_more] = sums("1");
    EXPECT_FALSE(no_more);
    const auto inside = [](double sum) { return sum > 1e-6 && sum < 1 - 1e-6; };
    EXPECT_TRUE(std::ranges::none_of(text, inside));
    EXPECT_TRUE(std::ranges::any_of(high, inside));
    EXPECT_CLOSE(*std::ranges::max_element(high), 1, rounding(100));
}

/// A softmax in chunks is what diag_attention makes, by heads and by rows, and none where all
/// tokens are in one chunk.
TEST(Softmax, InChunksSeesItsOwnAlone) {
    for (const bool causal : {false, true}) {
        const auto chunks = attention("softmax").make(input({{"chunk", "3"}}, causal)),
                   blocks = attention("diag_attention").make(input({{"block", "3"}}, causal)),
                   whole = attention("softmax").make(input({}, causal)),
                   one = attention("softmax").make(input({{"chunk", "1000"}}, causal));
        EXPECT_EQ(chunks->structure().blocks, blocks->structure().blocks);
        EXPECT_GT(chunks->structure().blocks.size(), 1U);
        EXPECT_TENSOR_NEAR(chunks->matrix(), blocks->matrix(), exactly);
        EXPECT_TENSOR_NEAR(one->matrix(), whole->matrix(), exactly);
        EXPECT_TRUE(one->structure().blocks.empty());
        const Tensor v = random_tensor(cpu(), {chunks->heads(), n, 5}, chunks->type(), Law::normal,
                                       Rng(7), 0, 1);
        const auto again = attention("softmax").make(input({{"chunk", "3"}}, causal));
        EXPECT_TENSOR_NEAR(again->apply(v, n), matmul(blocks->matrix(), v), exactly);
    }
    EXPECT_THROW(attention("softmax").make(input({{"chunk", "2.5"}})), UsageError);
}

/// E and F of each head, one below the other, are those of a Linformer of that head alone.
TEST(Linformer, MayHaveProjectionsOfEachHead) {
    constexpr Index length = 4, longest = n + 3;
    const Tensor e = test::gaussian({1, heads * longest, length}, Type::f64, 31),
                 f = test::gaussian({1, heads * longest, length}, Type::f64, 32);
    const auto made = [&](AttentionInput in, const Tensor& own_e, const Tensor& own_f) {
        in.parameter = [=](std::string_view name) {
            return name == "proj_k" ? own_e : name == "proj_v" ? own_f : Tensor();
        };
        return attention("linformer").make(in);
    };
    const AttentionInput in = input({{"per_head", "1"}});
    const auto all = made(in, e, f);
    for (Index k = 0; k < heads; ++k) {
        AttentionInput one = input();
        one.q = in.q.batch_range(k, 1);
        one.k = in.k.batch_range(k * in.k.batch() / heads, 1);
        ASSERT_EQ(in.k.batch(), heads);
        const auto alone =
            made(one, e.row_range(k * longest, longest), f.row_range(k * longest, longest));
        EXPECT_TENSOR_NEAR(all->matrix().batch_range(k, 1), alone->matrix(), rounding(50));
    }
}

TEST(Nystrom, OfAllTokensIsTheSoftmaxOrTheFormula) {
    const auto made = [](AttentionOptions options) {
        return attention("nystrom").make(input(std::move(options)));
    };
    const auto softmax = attention("softmax").make(input());
    EXPECT_TENSOR_NEAR(made({{"landmarks", "n"}})->matrix(), softmax->matrix(), exactly);
    const auto formula = made({{"landmarks", "n"}, {"whole", "inverse"}});
    EXPECT_TRUE(formula->structure().factors);
    EXPECT_GT(squared_norm(subtract(formula->matrix(), softmax->matrix())), 1e-6);
}

/// Zero keys have logits 0: they add exp(0) to the denominator, and nothing to the product.
TEST(DiagAttention, PaddedHasZeroKeysInItsLastChunk) {
    constexpr Index block = 8, missing = 3 * block - n;  // 5 of 8 in the last chunk
    for (const bool causal : {false, true}) {
        const AttentionInput in = input({{"block", "8"}, {"padded", "1"}}, causal);
        const auto op = attention("diag_attention").make(in);
        EXPECT_EQ(op->structure().row_stochastic, causal);
        for (Index k = 0; k < heads; ++k) {
            const Matrix s = logits(in, k);
            Matrix expected(n, n);
            for (Index i = 0; i < n; ++i) {
                double z = i / block == 2 && !causal ? double(missing) : 0;
                const auto seen = [&](Index j) {
                    return i / block == j / block && (j <= i || !causal);
                };
                for (Index j = 0; j < n; ++j) z += seen(j) ? std::exp(s(i, j)) : 0;
                for (Index j = 0; j < n; ++j) expected(i, j) = seen(j) ? std::exp(s(i, j)) / z : 0;
            }
            EXPECT_TENSOR_NEAR(op->matrix().batch_range(k, 1), expected.a, rounding(50));
        }
        for (const Index rows : {1, 3, 7})  // the same by blocks of rows
            for (Index first = 0; first < n; first += rows)
                EXPECT_TENSOR_NEAR(op->rows(first, std::min(rows, n - first)).p,
                                   op->matrix().row_range(first, std::min(rows, n - first)),
                                   rounding(50));
    }
    AttentionInput in = input({{"padded", "1"}});
    in.window = 3;
    EXPECT_THROW(attention("diag_attention").make(in), UsageError);
}

TEST(DiagAttention, PaddedWithoutAGapIsNotPadded) {
    const auto op = attention("diag_attention").make(input({{"block", "19"}, {"padded", "1"}}));
    EXPECT_TRUE(op->structure().row_stochastic);
}

TEST(Flash, MayHaveAnotherPairOfQueriesAndKeysForItsLinearPart) {
    constexpr Index group = 6;
    for (const bool causal : {false, true}) {
        AttentionInput in = input({{"group", "6"}}, causal), linear = in;
        in.q2 = linear.q = test::gaussian({heads, n, width}, Type::f64, 21);
        in.k2 = linear.k = test::gaussian({heads, n, width}, Type::f64, 22);
        const auto op = attention("flash").make(in);
        for (Index k = 0; k < heads; ++k) {
            const Matrix s = logits(in, k), t = logits(linear, k);
            Matrix p = entries(causal, [&](Index i, Index j) {
                const double far =
                    causal ? (j / group < i / group ? t(i, j) / group : 0) : t(i, j) / double(n);
                const double near = std::max(0.0, s(i, j) / group);
                return far + (i / group == j / group ? near * near : 0);
            });
            EXPECT_TENSOR_NEAR(op->matrix().batch_range(k, 1), p.a, rounding(50));
        }
        EXPECT_FALSE(op->rows(0, 1).slope.defined());
        EXPECT_EQ(op->rows(0, 1).why_no_slope, "P is a function of two pairs of queries and keys");
    }
    AttentionInput in = input();
    in.q2 = in.q;
    in.k2 = test::gaussian({heads, n, width + 1}, Type::f64, 3);
    EXPECT_THROW(attention("flash").make(in), ShapeError);
}

/// Where no rows are asked for, P v is computed group by group: with the learned bias, two pairs of
/// queries and keys, keys that heads share and a shorter last group; and it never holds P.
TEST(Flash, MultipliesByGroupsAsByRows) {
    for (const bool causal : {false, true})
        for (const Index group : {1, 5, 6}) {
            AttentionInput in = input({{"group", std::to_string(group)}}, causal);
            in.k = test::gaussian({1, n, width}, Type::f64, 23);
            in.q2 = test::gaussian({heads, n, width}, Type::f64, 21);
            in.k2 = test::gaussian({1, n, width}, Type::f64, 22);
            in.parameter = [](std::string_view name) {
                return name == "rel_pos_bias" ? test::gaussian({1, 32, 1}, Type::f64, 24)
                                              : Tensor();
            };
            const auto op = attention("flash").make(in);
            const Tensor v = test::gaussian({heads, n, 3}, Type::f64, 25);
            EXPECT_TENSOR_NEAR(op->apply(v, 4), matmul(op->matrix(), v), rounding(50 * double(n)))
                << group << (causal ? ", causal" : "");
        }
}

TEST(Flash, HoldsNoRowsOfPWhereNoneAreAskedFor) {
    const Index tokens = 4096;
    for (const bool causal : {false, true}) {
        AttentionInput in = drawn_input(1, tokens, width, Type::f32, 3);
        in.causal = causal;
        in.options = {{"group", "16"}};
        const auto op = attention("flash").make(in);
        const Tensor v = test::gaussian({1, tokens, 3}, Type::f32, 25);
        restart_cpu_peak();
        const std::size_t before = cpu_bytes().now;
        op->apply(v, tokens);
        EXPECT_LT(double(cpu_bytes().peak - before), op->bytes() / 16) << causal;
    }
}

/// With q = 0, P = bias^2 inside a group: sqrt(w) times the number of the bucket, squared.
TEST(Flash, HasALearnedBiasByBucketsOfDistance) {
    const Index tokens = 200;
    const auto bucket_of = [&](bool causal) {
        AttentionInput in;
        in.q = in.k =
            Tensor::from_host(cpu(), {1, tokens, 4},
                              std::span<const double>(std::vector<double>(800, 0.0)), Type::f64);
        in.causal = causal;
        in.options = {{"group", "200"}};
        in.parameter = [](std::string_view name) {
            std::vector<double> numbers(32);
            for (std::size_t b = 0; b < numbers.size(); ++b) numbers[b] = double(b);
            return name == "rel_pos_bias"
                       ? Tensor::from_host(cpu(), {1, 32, 1}, std::span<const double>(numbers),
                                           Type::f64)
                       : Tensor();
        };
        return naive::matrix_of(attention("flash").make(in)->matrix());
    };
    const Matrix both = bucket_of(false), before = bucket_of(true);
    // [T5]: 8 buckets a side of one step, then those from 8 * 16^(b/8) steps on.
    for (Index steps = 0; steps < tokens; ++steps) {
        Index b = steps;
        if (steps >= 8)
            for (b = 8; b < 15 && double(steps) >= 8 * std::exp2(double(b - 7) / 2) - 1e-9;) ++b;
        EXPECT_NEAR(both(steps, 0), 4 * double(b * b), 1e-9) << steps;
        if (steps > 0) {
            EXPECT_NEAR(both(0, steps), 4 * double((b + 16) * (b + 16)), 1e-9);
        }
        // Causal: 16 of one step, then from 16 * 8^(b/16) on.
        b = steps;
        if (steps >= 16)
            for (b = 16; b < 31 && double(steps) >= 16 * std::pow(8.0, double(b - 15) / 16) - 1e-9;)
                ++b;
        EXPECT_NEAR(before(steps, 0), 4 * double(b * b), 1e-9) << steps;
    }
    AttentionInput in = input();
    in.parameter = [](std::string_view) { return test::gaussian({1, 6, 1}, Type::f64, 1); };
    EXPECT_THROW(attention("flash").make(in), ShapeError);
}

}  // namespace
}  // namespace tsdiag
