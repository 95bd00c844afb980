#include <gtest/gtest.h>

#include "attention/heads.hpp"
#include "support/near.hpp"
#include "tsdiag/error.hpp"

/// Laws that hold for every entry of the list.
namespace tsdiag {
namespace {

using namespace test;

constexpr Index heads = 4, n = 19, width = 6;

struct Setting {
    const AttentionEntry* entry;
    Type type;
    bool causal;
    Index window;
    Index key_heads;
};

std::vector<Setting> settings(const std::vector<Type>& types) {
    std::vector<Setting> all;
    for (const AttentionEntry* entry : attentions())
        for (Type type : types)
            for (bool causal : {false, true})
                for (Index window : {0, 5})
                    for (Index key_heads : {heads, heads / 2})
                        all.push_back({entry, type, causal, window, key_heads});
    return all;
}

std::string title(const testing::TestParamInfo<Setting>& info) {
    const Setting& s = info.param;
    return std::string(s.entry->name) + (s.type == Type::f32 ? "_f32" : "_f64") +
           (s.causal ? "_causal" : "") + (s.window ? "_window" : "") +
           (s.key_heads < heads ? "_grouped" : "");
}

class EveryAttention : public testing::TestWithParam<Setting> {
  protected:
    AttentionInput input() const {
        AttentionInput in = drawn_input(heads, n, width, GetParam().type, 5, GetParam().key_heads);
        in.causal = GetParam().causal;
        in.window = GetParam().window;
        return in;
    }
    std::unique_ptr<AttentionOperator> make() const { return GetParam().entry->make(input()); }
    Tensor values(std::uint64_t seed) const {
        return gaussian({heads, n, 3}, GetParam().type, seed);
    }
};

TEST_P(EveryAttention, SaysItsSizes) {
    const auto op = make();
    EXPECT_EQ(op->heads(), heads);
    EXPECT_EQ(op->tokens(), n);
    EXPECT_EQ(op->type(), GetParam().type);
    EXPECT_EQ(op->matrix().shape(), (Shape{heads, n, n}));
}

TEST_P(EveryAttention, StreamedEqualsDense) {
    const auto op = make();
    const Tensor v = values(1), w = values(2);
    const Tensor dense = op->apply(v, n), transposed = op->apply_transpose(w, n);
    EXPECT_TENSOR_NEAR(dense, matmul(op->matrix(), v), rounding(n));
    for (Index block : {1, 4, 16, 100}) {
        EXPECT_TENSOR_NEAR(op->apply(v, block), dense, rounding(n));
        EXPECT_TENSOR_NEAR(op->apply_transpose(w, block), transposed, rounding(n));
    }
}

TEST_P(EveryAttention, VisitsEachRowOnceAndKeepsWhatItMade) {
    for (Index block : {4, 100}) {
        const auto op = make();
        op->keep_rows(true);
        Index next = 0;
        Tensor seen;
        op->apply(values(1), block, [&](const RowBlock& rows) {
            EXPECT_EQ(rows.first, next);
            EXPECT_EQ(rows.p.cols(), n);
            next += rows.p.rows();
        });
        EXPECT_EQ(next, n);
        EXPECT_TENSOR_NEAR(op->matrix(), make()->matrix(), rounding(n));
    }
}

TEST_P(EveryAttention, TransposeIsAdjoint) {
    const auto op = make();
    const Tensor v = values(1), w = values(2);
    const double left = dot(op->apply(v, 4), w), right = dot(v, op->apply_transpose(w, 4));
    const double scale = std::sqrt(squared_norm(v) * squared_norm(w));
    EXPECT_NEAR(left, right, rounding(n).allowed(epsilon(GetParam().type), scale));
}

TEST_P(EveryAttention, ValuesMayHaveFewerHeads) {
    const auto op = make();
    const Tensor v = gaussian({heads / 2, n, 3}, GetParam().type, 3);
    const Tensor y = op->apply(v, 7);
    for (Index k = 0; k < heads; ++k)
        EXPECT_TENSOR_NEAR(y.batch_range(k, 1),
                           matmul(op->matrix().batch_range(k, 1), v.batch_range(k / 2, 1)),
                           rounding(n));
}

TEST_P(EveryAttention, DeclaredStructureIsTrue) {
    const auto op = make();
    const Structure known = op->structure();
    EXPECT_EQ(known.causal, GetParam().causal);
    for (Index k = 0; k < heads; ++k) {
        const naive::Matrix p = naive::matrix_of(op->matrix(), k);
        for (Index i = 0; i < n; ++i) {
            double sum = 0;
            for (Index j = 0; j < n; ++j) {
                sum += p(i, j);
                const bool other_block = known.block > 0 && i / known.block != j / known.block;
                if (other_block || !naive::sees(i, j, GetParam().causal, GetParam().window)) {
                    EXPECT_EQ(p(i, j), 0);
                }
                EXPECT_TRUE(p(i, j) >= 0 || !known.row_stochastic);
            }
            if (known.row_stochastic) {
                EXPECT_CLOSE(sum, 1, rounding(n), GetParam().type);
            }
        }
    }
}

TEST_P(EveryAttention, RowsAreThoseOfTheirWindow) {
    // Positions with gaps: what a row sees follows the positions, not the order.
    AttentionInput in = input();
    for (Index i = 0; i < n; ++i) in.position.push_back(double(i + 3 * (i > 7) + 10 * (i > 12)));
    const auto op = GetParam().entry->make(in);
    const Index window = GetParam().window;
    const naive::Matrix p = naive::matrix_of(op->matrix());
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < n; ++j) {
            const double away = std::abs(in.position[std::size_t(i)] - in.position[std::size_t(j)]);
            if ((GetParam().causal && j > i) || (window > 0 && away >= double(window))) {
                EXPECT_EQ(p(i, j), 0);
            }
        }
    EXPECT_TENSOR_NEAR(op->rows(9, 5).p, op->matrix().row_range(9, 5), rounding(n));
}

class EveryJacobian : public EveryAttention {};

TEST_P(EveryJacobian, MatchesDifferences) {
    // Logits are moved one by one through k = e_j: q k^T with k the identity is q itself.
    AttentionInput in = input();
    in.q = gaussian({1, n, n}, Type::f64, 8);
    naive::Matrix identity(n, n);
    for (Index i = 0; i < n; ++i) identity(i, i) = 1;
    in.k = one_head(identity);
    in.scale = 1;
    const auto matrix_at = [&](Index j, double step) {
        AttentionInput moved = in;
        std::vector<double> q = in.q.to_host<double>();
        for (Index i = 0; i < n; ++i) q[std::size_t(i * n + j)] += step;
        moved.q = Tensor::from_host(cpu(), {1, n, n}, std::span<const double>(q), Type::f64);
        return naive::matrix_of(GetParam().entry->make(moved)->matrix());
    };
    const double h = 1e-5;
    std::vector<double> squares(std::size_t(n), 0.0), largest(std::size_t(n), 0.0);
    for (Index j = 0; j < n; ++j) {  // row i of P depends on row i of S only
        const naive::Matrix up = matrix_at(j, h), down = matrix_at(j, -h);
        for (Index i = 0; i < n; ++i)
            for (Index k = 0; k < n; ++k) {
                const double d = (up(i, k) - down(i, k)) / (2 * h);
                squares[std::size_t(i)] += d * d;
                largest[std::size_t(i)] = std::max(largest[std::size_t(i)], std::abs(d));
            }
    }
    const RowStatistics found = row_statistics(GetParam().entry->make(in)->rows(0, n));
    ASSERT_EQ(found.jacobian.size(), std::size_t(n));
    EXPECT_ALL_CLOSE(found.jacobian, squares, finite_difference(h));
    EXPECT_ALL_CLOSE(found.jacobian_max, largest, finite_difference(h));
}

TEST_P(EveryAttention, RefusesWhatDoesNotFit) {
    AttentionInput in = input();
    in.k = gaussian({heads, n + 1, width}, GetParam().type, 1);
    EXPECT_THROW(GetParam().entry->make(in), ShapeError);
    in.k = gaussian({heads, n, width + 1}, GetParam().type, 1);
    EXPECT_THROW(GetParam().entry->make(in), ShapeError);
    in.k = gaussian({3, n, width}, GetParam().type, 1);
    EXPECT_THROW(GetParam().entry->make(in), ShapeError);
    in.k = gaussian({heads, n, width}, GetParam().type == Type::f32 ? Type::f64 : Type::f32, 1);
    EXPECT_THROW(GetParam().entry->make(in), ShapeError);
    in = input();
    in.position = {0, 1};
    EXPECT_THROW(GetParam().entry->make(in), ShapeError);
    in.position.assign(std::size_t(n), 0);
    in.position[0] = 1;
    EXPECT_THROW(GetParam().entry->make(in), UsageError);
    in = input();
    in.window = -1;
    EXPECT_THROW(GetParam().entry->make(in), UsageError);
    EXPECT_THROW(make()->apply(gaussian({heads, n + 1, 3}, GetParam().type, 1), 4), ShapeError);
    EXPECT_THROW(make()->apply(gaussian({3, n, 3}, GetParam().type, 1), 4), ShapeError);
    EXPECT_THROW(make()->apply(values(1), 0), ShapeError);
    EXPECT_THROW(make()->apply_transpose(gaussian({1, n, 3}, GetParam().type, 1), 4), ShapeError);
}

INSTANTIATE_TEST_SUITE_P(List, EveryAttention, testing::ValuesIn(settings({Type::f32, Type::f64})),
                         title);
INSTANTIATE_TEST_SUITE_P(List, EveryJacobian, testing::ValuesIn(settings({Type::f64})), title);

TEST(Attentions, AreFoundByNameOrSuggested) {
    EXPECT_EQ(attention("softmax").name, "softmax");
    try {
        attention("sofmax");
        FAIL();
    } catch (const UsageError& e) {
        EXPECT_STREQ(e.what(), "no attention is called 'sofmax'. Did you mean 'softmax'?");
    }
    EXPECT_THROW(attention(""), UsageError);
}

TEST(Softmax, EqualsTheNaiveOne) {
    for (bool causal : {false, true})
        for (Index window : {0, 1, 4}) {
            AttentionInput in = drawn_input(2, n, width, Type::f64, 3);
            in.causal = causal;
            in.window = window;
            const auto op = attention("softmax").make(in);
            for (Index k = 0; k < 2; ++k) {
                naive::Matrix s = naive::product(naive::matrix_of(in.q, k),
                                                 naive::transposed(naive::matrix_of(in.k, k)));
                for (double& e : s.a) e *= in.scale;
                EXPECT_TENSOR_NEAR(op->matrix().batch_range(k, 1),
                                   naive::softmax(s, causal, window).a, rounding(n));
            }
        }
}

TEST(Given, SeesWhetherRowsSumToOne) {
    const naive::Matrix p = naive::softmax(noise(12, 1, 1));
    EXPECT_TRUE(given(p)->structure().row_stochastic);
    EXPECT_TRUE(given(p, Type::f32)->structure().row_stochastic);
    naive::Matrix half = p, negative = p;
    for (double& e : half.a) e /= 2;
    EXPECT_FALSE(given(half)->structure().row_stochastic);
    negative(3, 4) -= 1;
    negative(3, 5) += 1;
    EXPECT_FALSE(given(negative)->structure().row_stochastic);
    naive::Matrix coarse = p;
    coarse(0, 0) += 1e-9;
    EXPECT_FALSE(given(coarse)->structure().row_stochastic);
    EXPECT_TRUE(given(coarse, Type::f32)->structure().row_stochastic);
}

TEST(Given, RefusesAMapThatIsNotWhatItIsSaidToBe) {
    const naive::Matrix p = naive::softmax(noise(12, 1, 1)),
                        tril = naive::softmax(noise(12, 1, 1), true);
    EXPECT_THROW(given_attention(one_head(p), true, ""), UsageError);
    EXPECT_TRUE(given_attention(one_head(tril), true, "")->structure().causal);
    EXPECT_THROW(given_attention(one_head(p), false, "relu"), UsageError);
    EXPECT_THROW(given_attention(gaussian({1, 3, 4}, Type::f32, 1), false, ""), ShapeError);
}

TEST(Given, HasAJacobianOnlyWhereItIsKnownToBeASoftmax) {
    const Tensor p = one_head(naive::softmax(noise(9, 1, 1)));
    EXPECT_TRUE(row_statistics(given_attention(p, false, "")->rows(0, 9)).jacobian.empty());
    EXPECT_EQ(row_statistics(given_attention(p, false, "softmax")->rows(0, 9)).jacobian.size(), 9U);
}

}  // namespace
}  // namespace tsdiag
