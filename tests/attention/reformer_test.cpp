#include <array>
#include <numeric>

#include "attention/twins.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

using namespace test;

struct Hashing {
    Index chunk = 4;
    bool across = false, wrap = false, duplicates = false;
    double key_length = 1;
};

/// The rotations of all rounds, (rounds, width, buckets / 2), and the parameter with them.
struct Rotations {
    std::vector<Matrix> rounds;

    Rotations(Index count, Index buckets) {
        for (Index r = 0; r < count; ++r) {
            rounds.emplace_back(width, buckets / 2);
            Rng(std::uint64_t(40 + r)).fill_normal(rounds.back().a, 0, 1);
        }
    }
    Tensor tensor() const {
        std::vector<Tensor> all;
        for (const Matrix& m : rounds) all.push_back(one_head(m));
        return concat_batches(all);
    }
};

AttentionInput input_of(const Hashing& reading, const Rotations& rotations) {
    AttentionInput in = input({{"chunk", std::to_string(reading.chunk)},
                               {"across", reading.across ? "1" : "0"},
                               {"wrap", reading.wrap ? "1" : "0"},
                               {"duplicates", reading.duplicates ? "1" : "0"}});
    in.parameter = [r = rotations.tensor()](std::string_view name) {
        return name == "rotations" ? r : Tensor();
    };
    return in;
}

/// [REFORMER] appendix A literally: a softmax in each round, of logits less 1e5 on the diagonal
/// and less log N elsewhere, N the rounds that contain the pair; rounds weighted by exp(z_r - z).
Matrix twin(const AttentionInput& in, Index head, const Hashing& reading,
            const Rotations& rotations) {
    const Index tokens = in.q.rows();
    const Matrix q = naive::matrix_of(in.q, head);
    Matrix s(tokens, tokens);
    for (Index i = 0; i < tokens; ++i)
        for (Index j = 0; j < tokens; ++j) {
            double length = 0;
            for (Index c = 0; c < width; ++c) length += q(j, c) * q(j, c);
            for (Index c = 0; c < width; ++c)
                s(i, j) += in.scale * q(i, c) * q(j, c) * reading.key_length / std::sqrt(length);
        }
    using Sorted = std::vector<std::pair<Index, Index>>;  // bucket and token
    std::vector<Sorted> orders;
    for (const Matrix& rotation : rotations.rounds) {
        Sorted& by_bucket = orders.emplace_back();
        for (Index i = 0; i < tokens; ++i) {
            Index best = 0;
            double largest = -INFINITY;
            for (Index b = 0; b < 2 * rotation.cols; ++b) {
                double x = 0;
                for (Index c = 0; c < width; ++c)
                    x += (b < rotation.cols ? 1 : -1) * q(i, c) * rotation(c, b % rotation.cols);
                if (x > largest) largest = x, best = b;
            }
            by_bucket.emplace_back(best, i);
        }
        std::sort(by_bucket.begin(), by_bucket.end());
    }
    std::vector<Matrix> sees;  // how often
    Matrix shown(tokens, tokens);
    const Index last = (tokens - 1) / reading.chunk;
    for (std::size_t r = 0; r < orders.size(); ++r) {
        sees.emplace_back(tokens, tokens);
        const std::size_t previous = (r + orders.size() - 1) % orders.size();
        const auto look = [&](Index a, std::size_t at, Index b) {
            const auto [of_i, i] = orders[r][std::size_t(a)];
            const auto [of_j, j] = orders[at][std::size_t(b)];
            if ((reading.across || (at == r && of_i == of_j)) && naive::sees(i, j, in.causal))
                sees.back()(i, j) += 1, shown(i, j) += 1;
        };
        for (Index a = 0; a < tokens; ++a)
            for (Index b = 0; b < tokens; ++b) {
                const Index here = a / reading.chunk, there = b / reading.chunk;
                if (there == here || there == here - 1) look(a, r, b);
                if (reading.wrap && last > 0 && here == 0 && there == last) look(a, previous, b);
            }
    }
    Matrix p(tokens, tokens);
    for (Index i = 0; i < tokens; ++i) {
        const auto logit = [&](Index j) {
            if (i == j) return s(i, j) - 1e5;
            return s(i, j) - (reading.duplicates ? 0 : std::log(shown(i, j)));
        };
        const auto log_sum = [&](const Matrix& of) {
            double top = -INFINITY, sum = 0;
            for (Index j = 0; j < tokens; ++j)
                if (of(i, j) > 0) top = std::max(top, logit(j));
            for (Index j = 0; j < tokens; ++j)
                if (of(i, j) > 0) sum += of(i, j) * std::exp(logit(j) - top);
            return top + std::log(sum);
        };
        std::vector<double> z;
        for (const Matrix& round : sees) z.push_back(log_sum(round));
        const double top = *std::max_element(z.begin(), z.end());
        double all = 0;
        for (const double one : z) all += std::exp(one - top);
        for (std::size_t r = 0; r < z.size(); ++r)
            for (Index j = 0; j < tokens; ++j)
                if (sees[r](i, j) > 0)
                    p(i, j) +=
                        sees[r](i, j) * std::exp(z[r] - top) / all * std::exp(logit(j) - z[r]);
    }
    return p;
}

TEST(Reformer, IsTheSumOverRoundsOfThePaper) {
    for (const Index rounds : {1, 3})
        for (const Hashing& reading :
             {Hashing{}, Hashing{.chunk = 3, .across = true}, Hashing{.duplicates = true},
              Hashing{.chunk = 5, .across = true, .duplicates = true},
              Hashing{.across = true, .wrap = true, .duplicates = true},
              Hashing{.chunk = 10, .wrap = true}, Hashing{.chunk = 20, .wrap = true}}) {
            const Rotations rotations(rounds, 4);
            expect_twin(
                "reformer", input_of(reading, rotations),
                [&](const AttentionInput& in, Index k) { return twin(in, k, reading, rotations); });
        }
}

TEST(Reformer, HasLongerKeysInTheReleasedCode) {
    // 1e-6 in the root changes a key by at most 1e-6 / (2 |q|^2 / d), relative.
    const Hashing reading{.key_length = std::sqrt(double(width))};
    const Rotations rotations(2, 4);
    AttentionInput in = input_of(reading, rotations);
    in.options["keys"] = "rms";
    const auto op = attention("reformer").make(in);
    for (Index k = 0; k < heads; ++k)
        EXPECT_TENSOR_NEAR(op->matrix().batch_range(k, 1), twin(in, k, reading, rotations).a,
                           (Tolerance{.absolute = 1e-5, .reason = "1e-6 in the root"}));
}

TEST(Reformer, OfOneBucketAndChunkIsTheSoftmaxWithoutItself) {
    AttentionInput in = input({{"chunk", "19"}, {"across", "1"}, {"rounds", "1"}});
    const auto op = attention("reformer").make(in);
    for (Index k = 0; k < heads; ++k) {
        const Matrix p = naive::matrix_of(op->matrix(), k);
        for (Index i = 0; i < n; ++i) {
            EXPECT_EQ(p(i, i), 0);
            for (Index j = 0; j < n; ++j) EXPECT_EQ(p(i, j) > 0, i != j);
        }
    }
}

/// By rows, and without any rows requested: the path by chunks ignores biases.
TEST(Reformer, AddsABiasToTheLogits) {
    AttentionInput in = input({{"chunk", "2"}, {"rounds", "1"}, {"buckets", "2"}});
    const Matrix without = naive::matrix_of(attention("reformer").make(in)->matrix());
    in.bias = gaussian({1, n, n}, Type::f64, 9);
    const Matrix b = naive::matrix_of(in.bias);
    const auto op = attention("reformer").make(in);
    EXPECT_TENSOR_NEAR(
        op->matrix().batch_range(0, 1),
        divided_by_row_sums(
            entries(false, [&](Index i, Index j) { return without(i, j) * std::exp(b(i, j)); }))
            .a,
        rounding(200));
    const Tensor v = gaussian({heads, n, 3}, Type::f64, 5);
    EXPECT_TENSOR_NEAR(op->apply(v, n), matmul(op->matrix(), v), rounding(double(n)));
}

/// Equal tokens share every bucket: they are ordered by position.
TEST(Reformer, ShowsEqualTokensTheirChunkAndTheOneBefore) {
    for (const double size : {0.0, 1e-30, 1.0, 1e30}) {
        AttentionInput in = input({{"chunk", "4"}});
        in.q = affine(zeros(cpu(), in.q.shape(), Type::f64), 1, size);
        const Matrix p = naive::matrix_of(attention("reformer").make(in)->matrix());
        for (Index i = 0; i < n; ++i) {
            const Index from = std::max<Index>(0, (i / 4 - 1) * 4), to = std::min(n, i / 4 * 4 + 4);
            for (Index j = 0; j < n; ++j)
                EXPECT_CLOSE(p(i, j), j >= from && j < to && j != i ? 1 / double(to - from - 1) : 0,
                             rounding(double(n)))
                    << size;
        }
    }
}

TEST(Reformer, LeavesItselfToATokenThatSeesNoOther) {
    const AttentionInput in = input({}, true);
    const Matrix p = naive::matrix_of(attention("reformer").make(in)->matrix());
    EXPECT_EQ(p(0, 0), 1);
    AttentionInput alone = input();
    alone.q = in.q.row_range(0, 1), alone.k = in.k.row_range(0, 1);
    for (const double e : attention("reformer").make(alone)->matrix().to_host<double>())
        EXPECT_EQ(e, 1);
}

/// Keys are the queries: P depends neither on the given keys nor on other samples of the batch,
/// but on the seed.
TEST(Reformer, FollowsQueriesAndSeedAlone) {
    const AttentionInput in = input({{"chunk", "4"}});
    const Tensor p = attention("reformer").make(in)->matrix();
    AttentionInput other = in;
    other.k = scale(in.k, -2);
    EXPECT_TENSOR_NEAR(attention("reformer").make(other)->matrix(), p, exactly);
    other.q = concat_batches(std::vector<Tensor>{scale(in.q, -1), in.q});
    other.k = concat_batches(std::vector<Tensor>{in.k, in.k});
    other.samples = 2;
    EXPECT_TENSOR_NEAR(attention("reformer").make(other)->matrix().batch_range(heads, heads), p,
                       exactly);
    other = in;
    other.options["seed"] = "1";
    EXPECT_FALSE(tensor_near(attention("reformer").make(other)->matrix(), p, exactly));
}

TEST(Reformer, IsFiniteForLogitsOfAnySize) {
    for (const Type type : {Type::f32, Type::f64})
        for (const double size : {1e-30, 1e-4, 1e4, 1e15})
            for (const bool causal : {false, true}) {
                AttentionInput in = drawn_input(2, n, width, type, 3);
                in.q = scale(in.q, size);
                in.causal = causal;
                in.options = {{"chunk", "5"}};
                const auto op = attention("reformer").make(in);
                EXPECT_EQ(first_nonfinite(op->matrix()), -1);
                for (const double sum : row_statistics(op->rows(0, n)).sum)
                    EXPECT_CLOSE(sum, 1, rounding(double(n)), type);
            }
}

/// Twice the 6 whole chunks of 19 tokens, down to a power of two; 2n/m rounds 19/3 up.
TEST(Reformer, HasAPowerOfTwoOfBucketsInTheReleasedCode) {
    const auto p = [](const char* buckets) {
        return attention("reformer").make(input({{"chunk", "3"}, {"buckets", buckets}}))->matrix();
    };
    EXPECT_TENSOR_NEAR(p("power"), p("8"), exactly);
    EXPECT_TENSOR_NEAR(p("2n/m"), p("14"), exactly);
}

TEST(Reformer, RefusesOddBucketsAndRotationsOfAnotherWidth) {
    EXPECT_THROW(attention("reformer").make(input({{"buckets", "3"}})), UsageError);
    EXPECT_NO_THROW(attention("reformer").make(input({{"buckets", "6"}})));
    AttentionInput in = input();
    in.parameter = [](std::string_view) { return one_head(Matrix(width + 1, 2)); };
    EXPECT_THROW(attention("reformer").make(in), ShapeError);
}

}  // namespace
}  // namespace tsdiag
