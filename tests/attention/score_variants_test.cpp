#include "attention/twins.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

using namespace test;

TEST(Softmax, EqualsTheNaiveOne) {
    for (const Index window : {0, 1, 4})
        for (const bool causal : {false, true}) {
            AttentionInput in = input({}, causal);
            in.window = window;
            const auto op = attention("softmax").make(in);
            for (Index k = 0; k < heads; ++k)
                EXPECT_TENSOR_NEAR(op->matrix().batch_range(k, 1),
                                   naive::softmax(logits(in, k), causal, window).a, rounding(n));
        }
}

TEST(Softmax, HasTheSlopesOfAlibi) {
    const std::vector<double> four{1.0 / 4, 1.0 / 16, 1.0 / 64, 1.0 / 256};
    expect_twin("softmax", input({{"alibi", "1"}}), [&](const AttentionInput& in, Index k) {
        Matrix s = logits(in, k);
        for (Index i = 0; i < n; ++i)
            for (Index j = 0; j < n; ++j) s(i, j) -= four[std::size_t(k)] * std::abs(double(i - j));
        return naive::softmax(s, in.causal);
    });
}

TEST(Softmax, HasTheSlopesOfAlibiForThreeHeads) {
    AttentionInput in = drawn_input(3, n, width, Type::f64, 3);
    in.options = {{"alibi", "1"}};
    in.position.resize(n);
    for (Index i = 0; i < n; ++i) in.position[std::size_t(i)] = double(i + 2 * (i > 4));
    const auto op = attention("softmax").make(in);
    const double slopes[] = {1.0 / 16, 1.0 / 256, 1.0 / 4};
    for (Index k = 0; k < 3; ++k) {
        Matrix s = logits(in, k);
        for (Index i = 0; i < n; ++i)
            for (Index j = 0; j < n; ++j)
                s(i, j) -=
                    slopes[k] * std::abs(in.position[std::size_t(i)] - in.position[std::size_t(j)]);
        EXPECT_TENSOR_NEAR(op->matrix().batch_range(k, 1), naive::softmax(s).a, rounding(n));
    }
}

TEST(Softmax, AddsABiasOfAllHeadsOrOfEach) {
    for (const Index batch : {Index{1}, heads}) {
        AttentionInput in = input();
        EXPECT_TRUE(attention("softmax").make(in)->structure().plain_logits);
        in.bias = gaussian({batch, n, n}, Type::f64, 9);
        EXPECT_FALSE(attention("softmax").make(in)->structure().plain_logits);
        expect_twin("softmax", in, [&](const AttentionInput& of, Index k) {
            Matrix s = logits(of, k);
            const Matrix b = naive::matrix_of(in.bias, batch > 1 ? k : 0);
            for (std::size_t i = 0; i < s.a.size(); ++i) s.a[i] += b.a[i];
            return naive::softmax(s, of.causal);
        });
    }
}

TEST(Polynomial, EqualsTheNaiveOne) {
    const std::pair<const char*, double> scales[] = {
        {"none", 1}, {"1/sqrt(N)", 1 / std::sqrt(double(n))}, {"1/14", 1.0 / 14}, {"-0.5", -0.5}};
    for (int p = 1; p <= 6; ++p)
        for (const auto& [text, c] : scales)
            expect_twin("polynomial", input({{"p", std::to_string(p)}, {"scale", text}}),
                        [&, c = c](const AttentionInput& in, Index k) {
                            const Matrix s = logits(in, k);
                            return entries(in.causal, [&](Index i, Index j) {
                                return c * std::pow(s(i, j), p);
                            });
                        });
}

TEST(Polynomial, TakesALearnedScale) {
    const double c[] = {0.5, -1, 2, 3};
    AttentionInput in = input({{"scale", "learned"}});
    EXPECT_THROW(attention("polynomial").make(in), UsageError);
    in.parameter = [&](std::string_view name) {
        return name == "scale"
                   ? Tensor::from_host(cpu(), {1, 1, heads}, std::span<const double>(c), Type::f64)
                   : Tensor();
    };
    expect_twin("polynomial", in, [&](const AttentionInput& of, Index k) {
        const Matrix s = logits(of, k);
        return entries(of.causal, [&](Index i, Index j) { return c[k] * std::pow(s(i, j), 3); });
    });
}

TEST(Relu, EqualsTheNaiveOne) {
    for (const bool divide : {false, true})
        expect_twin("relu", input({{"scale", divide ? "1/n" : "none"}}),
                    [&](const AttentionInput& in, Index k) {
                        const Matrix s = logits(in, k);
                        return entries(in.causal, [&](Index i, Index j) {
                            return std::max(0.0, s(i, j)) / (divide ? double(n) : 1);
                        });
                    });
}

TEST(DiagAttention, IsSoftmaxOrReluInsideItsBlocks) {
    const Index block = 5;
    for (const bool softmax : {false, true})
        expect_twin("diag_attention",
                    input({{"block", "5"}, {"activation", softmax ? "softmax" : "rela"}}),
                    [&](const AttentionInput& in, Index k) {
                        const Matrix s = logits(in, k);
                        const Matrix p = entries(in.causal, [&](Index i, Index j) {
                            if (i / block != j / block) return 0.0;
                            return softmax ? std::exp(s(i, j)) : std::max(0.0, s(i, j));
                        });
                        return softmax ? divided_by_row_sums(p) : p;
                    });
}

TEST(DiagAttention, HasRowsOfZerosWhereReluLeavesNothing) {
    AttentionInput in = input({{"activation", "rela"}});
    in.q = Tensor::from_host(cpu(), {heads, n, width},
                             std::vector<double>(std::size_t(heads * n * width), -1.0), Type::f64);
    in.k = scale(in.q, -1);
    const RowStatistics s = row_statistics(attention("diag_attention").make(in)->rows(0, n));
    for (std::size_t i = 0; i < s.sum.size(); ++i) {
        EXPECT_EQ(s.sum[i], 0);
        EXPECT_EQ(s.jacobian[i], 0);
    }
}

TEST(DiagAttention, HasBlocksOfPositions) {
    AttentionInput in = input({{"block", "5"}});
    for (Index i = 0; i < n; ++i) in.position.push_back(double(i + 3));
    const auto op = attention("diag_attention").make(in);
    EXPECT_TRUE(op->structure().blocks.empty());
    const Matrix p = naive::matrix_of(op->matrix());
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < n; ++j) EXPECT_EQ(p(i, j) > 0, (i + 3) / 5 == (j + 3) / 5);
}

TEST(Flash, IsQuadraticInsideAGroupAndLinearOutside) {
    const Index group = 6;
    for (const bool biased : {false, true}) {
        AttentionInput like = input({{"group", "6"}});
        if (biased) like.bias = gaussian({heads, n, n}, Type::f64, 4);
        expect_twin("flash", like, [&](const AttentionInput& in, Index k) {
            const Matrix s = logits(in, k);
            const Matrix b = biased ? naive::matrix_of(in.bias, k) : Matrix(n, n);
            return entries(in.causal, [&](Index i, Index j) {
                const bool same = i / group == j / group;
                const double r = std::max(0.0, s(i, j) / double(group) + b(i, j));
                const double far =
                    in.causal ? (same ? 0 : s(i, j) / double(group)) : s(i, j) / double(n);
                return (same ? r * r : 0) + far;
            });
        });
    }
}

TEST(FlashQuad, EqualsTheNaiveOne) {
    expect_twin("flash_quad", input(), [&](const AttentionInput& in, Index k) {
        const Matrix s = logits(in, k);
        return entries(in.causal, [&](Index i, Index j) {
            return std::pow(std::max(0.0, s(i, j) / double(n)), 2);
        });
    });
}

}  // namespace
}  // namespace tsdiag
