#include <gmock/gmock.h>

#include <numeric>
#include <set>

#include "attention/twins.hpp"
#include "tsdiag/error.hpp"

/// bigbird and informer: most rows see some tokens, a few see all.
namespace tsdiag {
namespace {

using namespace test;

AttentionInput bigbird_input(Index tokens, AttentionOptions options, Index count = heads) {
    AttentionInput in = drawn_input(count, tokens, width, Type::f64, 3);
    in.options = std::move(options);
    return in;
}

/// exp(S) over its row sums where `sees`.
template <class Sees>
Matrix softmax_where(const AttentionInput& in, Index k, Sees sees) {
    const Matrix s = logits(in, k);
    Matrix p(s.rows, s.cols);
    for (Index i = 0; i < s.rows; ++i)
        for (Index j = 0; j < s.cols; ++j)
            if (naive::sees(i, j, in.causal, in.window) && sees(i, j)) p(i, j) = std::exp(s(i, j));
    return divided_by_row_sums(p);
}

TEST(BigBird, SeesTheEndsAndTheNeighbours) {
    for (const Index block : {1, 4, 7, 19, 64})
        for (const Index ends : {0, 1, 2})
            for (const Index neighbours : {0, 1, 2}) {
                const AttentionInput like = input({{"block", std::to_string(block)},
                                                   {"global", std::to_string(ends)},
                                                   {"neighbours", std::to_string(neighbours)},
                                                   {"random", "0"}});
                expect_twin("bigbird", like, [&](const AttentionInput& in, Index k) {
                    const Index last = (n - 1) / block;
                    const auto end = [&](Index b) { return b < ends || b > last - ends; };
                    return softmax_where(in, k, [&](Index i, Index j) {
                        const Index a = i / block, b = j / block;
                        return end(a) || end(b) || std::abs(a - b) <= neighbours;
                    });
                });
            }
}

TEST(BigBird, HasBlocksOfPositions) {
    AttentionInput in = input({{"block", "4"}, {"random", "0"}});
    for (Index i = 0; i < n; ++i) in.position.push_back(double(i + 3 * (i > 7) + 10 * (i > 12)));
    const auto block = [&](Index i) { return Index(in.position[std::size_t(i)]) / 4; };
    const auto op = attention("bigbird").make(in);
    for (Index k = 0; k < heads; ++k) {
        const Matrix expected = softmax_where(in, k, [&](Index i, Index j) {
            const Index a = block(i), b = block(j), last = block(n - 1);
            return a == 0 || b == 0 || a == last || b == last || std::abs(a - b) <= 1;
        });
        EXPECT_TENSOR_NEAR(op->matrix().batch_range(k, 1), expected.a, rounding(n));
    }
}

/// The blocks that rows of block `b` of head k see; all of its rows see the same.
std::set<Index> seen_blocks(const Tensor& p, Index k, Index b, Index block) {
    const Matrix rows = naive::matrix_of(p, k);
    std::set<Index> out;
    for (Index i = b * block; i < std::min((b + 1) * block, rows.rows); ++i) {
        std::set<Index> row;
        for (Index j = 0; j < rows.cols; ++j)
            if (rows(i, j) != 0) row.insert(j / block);
        EXPECT_TRUE(out.empty() || row == out);
        out = row;
    }
    return out;
}

TEST(BigBird, DrawsBlocksThatItDoesNotSeeAlready) {
    const Index tokens = 58, block = 4, blocks = 15;  // the last has 2 tokens
    const AttentionInput in = bigbird_input(tokens, {{"block", "4"}, {"random", "2"}});
    const Tensor p = attention("bigbird").make(in)->matrix();
    bool heads_differ = false;
    for (Index b = 1; b + 1 < blocks; ++b) {
        for (Index k = 0; k < heads; ++k) {
            std::set<Index> seen = seen_blocks(p, k, b, block);
            for (const Index known : {Index{0}, b - 1, b, b + 1, blocks - 1}) seen.erase(known);
            EXPECT_EQ(seen.size(), 2U) << "block " << b;
            heads_differ = heads_differ || seen_blocks(p, k, b, block) != seen_blocks(p, 0, b, 4);
        }
    }
    EXPECT_TRUE(heads_differ);
    for (Index k = 0; k < heads; ++k) {
        EXPECT_EQ(seen_blocks(p, k, 0, block).size(), 15U);
        EXPECT_EQ(seen_blocks(p, k, 14, block).size(), 15U);
        const Matrix drawn = naive::matrix_of(p, k);
        EXPECT_TENSOR_NEAR(
            p.batch_range(k, 1),
            softmax_where(in, k, [&](Index i, Index j) { return drawn(i, j) != 0; }).a,
            rounding(double(tokens)));
    }
}

TEST(BigBird, DrawsEachBlockAsOften) {
    // Of 9 blocks the one in the middle sees five: two of 1, 2, 6 and 7 are drawn.
    const Index trials = 500;
    std::map<Index, double> found;
    for (Index seed = 0; seed < trials; ++seed) {
        const AttentionInput in =
            bigbird_input(9, {{"block", "1"}, {"random", "2"}, {"seed", std::to_string(seed)}}, 1);
        for (const Index b : seen_blocks(attention("bigbird").make(in)->matrix(), 0, 4, 1))
            found[b] += 1 / double(trials);
    }
    for (const Index b : {0, 3, 4, 5, 8}) EXPECT_NEAR(found[b], 1, 1e-12) << b;  // a sum of 500
    for (const Index b : {1, 2, 6, 7}) EXPECT_CLOSE(found[b], 0.5, sampling(trials, 0.5)) << b;
}

TEST(BigBird, MayCountTheFirstBlockAgain) {
    for (const Index ends : {0, 1}) {
        const AttentionInput like = input({{"block", "3"},
                                           {"random", "2"},
                                           {"choice", "first"},
                                           {"global", std::to_string(ends)}});
        expect_twin("bigbird", like, [&](const AttentionInput& in, Index k) {
            const Matrix s = logits(in, k);
            const Index last = (n - 1) / 3;
            return divided_by_row_sums(entries(in.causal, [&](Index i, Index j) {
                const Index a = i / 3, b = j / 3;
                const bool whole = ends > 0 && (a == 0 || a == last);
                const bool end = ends > 0 && (b == 0 || b == last);
                const int times =
                    (whole || end || std::abs(a - b) <= 1 ? 1 : 0) + (!whole && b == 0 ? 2 : 0);
                return times * std::exp(s(i, j));
            }));
        });
    }
}

TEST(BigBird, LooksAtShortSamplesInFull) {
    for (const Index full : {n - 1, n}) {
        AttentionInput in = input({{"block", "2"}, {"random", "0"}});
        in.options["full"] = std::to_string(full);
        const Matrix p = naive::matrix_of(attention("bigbird").make(in)->matrix());
        EXPECT_EQ(p(8, 16) != 0, full == n);
    }
}

TEST(BigBird, IsTheSoftmaxWhereItSeesAllBlocks) {
    for (const AttentionOptions& options :
         {AttentionOptions{}, AttentionOptions{{"block", "2"}, {"random", "100"}},
          AttentionOptions{{"block", "3"}, {"neighbours", "100"}},
          AttentionOptions{{"block", "3"}, {"global", "100"}}})
        expect_twin("bigbird", input(options), [&](const AttentionInput& in, Index k) {
            return naive::softmax(logits(in, k), in.causal);
        });
}

/// M by the definition, of keys drawn in order, sample by sample, query by query.
std::vector<double> measures(const AttentionInput& in, const Matrix& s, Index samples,
                             double divisor) {
    Rng rng = in.rng.fork(0);
    std::vector<double> top(std::size_t(s.rows), -INFINITY), sum(top.size(), 0.0);
    for (Index sample = 0; sample < samples; ++sample)
        for (Index i = 0; i < s.rows; ++i) {
            const double e = s(i, Index(rng.below(std::uint64_t(s.cols))));
            top[std::size_t(i)] = std::max(top[std::size_t(i)], e);
            sum[std::size_t(i)] += e;
        }
    for (std::size_t i = 0; i < top.size(); ++i) top[i] -= sum[i] / divisor;
    return top;
}

Matrix informer_twin(const AttentionInput& in, Matrix s, bool by_u, bool mean) {
    const Index u = std::min<Index>(n, 2 * 3);  // 2 ceil(ln 19)
    const std::vector<double> m = measures(in, s, u, double(by_u ? u : n));
    std::vector<Index> order(std::size_t(n), 0);
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, [&](Index i) { return std::pair(-m[std::size_t(i)], i); });
    const Matrix full = naive::softmax(s, in.causal);
    Matrix p = entries(in.causal, [&](Index i, Index) {
        return !in.causal ? 1 / double(n) : mean ? 1 / double(i + 1) : 1.0;
    });
    for (Index r = 0; r < u; ++r)
        for (Index j = 0; j < n; ++j) p(order[std::size_t(r)], j) = full(order[std::size_t(r)], j);
    return p;
}

TEST(Informer, EqualsTheNaiveOne) {
    for (const bool by_u : {false, true})
        for (const bool mean : {false, true})
            for (const bool biased : {false, true}) {
                AttentionInput like = input({{"factor", "2"},
                                             {"divisor", by_u ? "u" : "n"},
                                             {"lazy", mean ? "mean" : "sum"}});
                if (biased) like.bias = gaussian({heads, n, n}, Type::f64, 9);
                expect_twin("informer", like, [&](const AttentionInput& in, Index k) {
                    Matrix s = logits(in, k);
                    if (biased) {
                        const Matrix b = naive::matrix_of(in.bias, k);
                        for (std::size_t i = 0; i < s.a.size(); ++i) s.a[i] += b.a[i];
                    }
                    return informer_twin(in, s, by_u, mean);
                });
            }
}

TEST(Informer, SaysWhetherItsRowsSumToOne) {
    const auto stochastic = [](AttentionOptions options, bool causal) {
        return attention("informer")
            .make(input(std::move(options), causal))
            ->structure()
            .row_stochastic;
    };
    EXPECT_TRUE(stochastic({{"factor", "1"}}, false));
    EXPECT_FALSE(stochastic({{"factor", "1"}}, true));
    EXPECT_TRUE(stochastic({{"factor", "1"}, {"lazy", "mean"}}, true));
    EXPECT_TRUE(stochastic({{"factor", "100"}}, true));  // no query is lazy
}

TEST(Informer, OfEqualTokensLooksFromTheFirstOnes) {
    AttentionInput in = input({{"factor", "1"}}, true);
    in.q = in.k = affine(in.q, 0, 1);
    const Matrix p = naive::matrix_of(attention("informer").make(in)->matrix());
    for (Index i = 0; i < n; ++i) EXPECT_CLOSE(p(i, 0), i < 3 ? 1 / double(i + 1) : 1, rounding(n));
}

TEST(Informer, LooksFromAQueryThatIsNotFinite) {
    AttentionInput in = input({{"factor", "1"}});
    for (const double bad : {double(INFINITY), double(NAN)}) {
        std::vector<double> q = in.q.to_host<double>();
        q[std::size_t(7 * width)] = bad;
        in.q = Tensor::from_host(cpu(), {heads, n, width}, std::span<const double>(q), Type::f64);
        EXPECT_EQ(first_nonfinite(attention("informer").make(in)->matrix()) / n, 7);
    }
}

}  // namespace
}  // namespace tsdiag
