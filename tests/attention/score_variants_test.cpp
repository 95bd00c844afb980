#include "attention/twins.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/gradient.hpp"

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

/// Softmax over the columns and one more, which is then dropped.
Matrix with_sink(const Matrix& s, double t, bool causal, Index window) {
    Matrix out(s.rows, s.cols);
    for (Index i = 0; i < s.rows; ++i) {
        const auto seen = [&](Index j) {
            return (!causal || j <= i) && (window == 0 || std::abs(double(i - j)) < double(window));
        };
        double top = t, sum = 0;
        for (Index j = 0; j < s.cols; ++j)
            if (seen(j)) top = std::max(top, s(i, j));
        sum = std::exp(t - top);
        for (Index j = 0; j < s.cols; ++j)
            if (seen(j)) sum += std::exp(s(i, j) - top);
        for (Index j = 0; j < s.cols; ++j) out(i, j) = seen(j) ? std::exp(s(i, j) - top) / sum : 0;
    }
    return out;
}

TEST(Sink, IsSoftmaxWithAColumnThatIsLeftOut) {
    std::vector<double> sinks{-3, 0.5, 2, 40};
    for (const std::size_t count : {std::size_t{0}, std::size_t{1}, sinks.size()})
        for (const Index window : {0, 4})
            for (const bool causal : {false, true}) {
                AttentionInput in = input({{"start", "1.25"}}, causal);
                in.window = window;
                ASSERT_EQ(heads, std::ssize(sinks));
                if (count > 0)
                    in.parameter = [&](std::string_view name) {
                        EXPECT_EQ(name, "sinks");
                        return Tensor::from_host(cpu(), {1, 1, Index(count)},
                                                 std::span<const double>(sinks).first(count),
                                                 Type::f64);
                    };
                const auto op = attention("sink").make(in);
                EXPECT_FALSE(op->structure().row_stochastic);
                for (Index k = 0; k < heads; ++k) {
                    const double t = count == 0 ? 1.25 : sinks[count == 1 ? 0 : std::size_t(k)];
                    EXPECT_TENSOR_NEAR(op->matrix().batch_range(k, 1),
                                       with_sink(logits(in, k), t, causal, window).a,
                                       rounding(n + 40));  // exp of a difference near 40
                }
            }
}

/// Rows without a sink are those of softmax, and far above it too: nothing overflows.
TEST(Sink, ThatNoTokenMindsIsSoftmax) {
    for (const double shift : {-1e4, 0.0, 1e4}) {
        AttentionInput in = input();
        in.bias = affine(zeros(cpu(), {1, n, n}, Type::f64), 1, shift);
        const auto softmax = attention("softmax").make(in);
        in.options = {{"start", "-1e7"}};
        EXPECT_TENSOR_NEAR(attention("sink").make(in)->matrix(), softmax->matrix(), rounding(n));
    }
}

/// dP/dt = -P_ij (1 - sum of the row).
TEST(Sink, HasADerivativeByItsLogits) {
    const AttentionInput plain = input({}, true);
    const std::vector<double> sinks{-1, 0.5, 2, 0};
    const Tensor t = variable(
        Tensor::from_host(cpu(), {1, 1, heads}, std::span<const double>(sinks), Type::f64));
    AttentionInput in = plain;
    in.parameter = [&](std::string_view) { return t; };
    const Tensor weight = gaussian({heads, n, n}, Type::f64, 4);
    const Tensor p = attention("sink").make(in)->rows(0, n).p;
    const std::vector<double> found = grad(p, weight, std::vector<Tensor>{t})[0].to_host<double>();
    const std::vector<double> rows = p.to_host<double>(), w = weight.to_host<double>();
    for (Index k = 0; k < heads; ++k) {
        double expected = 0;
        for (Index i = 0; i < n; ++i) {
            double mass = 0, along = 0;
            for (Index j = 0; j < n; ++j) {
                const auto at = std::size_t((k * n + i) * n + j);
                mass += rows[at];
                along += rows[at] * w[at];
            }
            expected -= along * (1 - mass);
        }
        EXPECT_CLOSE(found[std::size_t(k)], expected, rounding(n * n));
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

/// Unobserved, softmax is applied head by head; its blocks of all heads are the reference.
TEST(Softmax, HasTheBitsOfItsBlocksHeadByHead) {
    const Index tokens = 203;  // more than two parts of a product
    for (const Type type : {Type::f32, Type::f64})
        for (const bool causal : {false, true})
            for (const Index window : {0, 60})
                for (const Index kv : {2, 4}) {
                    AttentionInput in = drawn_input(4, tokens, width, type, 5);
                    in.k = in.k.batch_range(0, kv);
                    in.causal = causal;
                    in.window = window;
                    const Tensor v = gaussian({kv, tokens, width}, type, 6);
                    const auto op = attention("softmax").make(in);
                    Index blocks = 0;
                    const Tensor seen =
                        op->apply(v, tokens, [&blocks](const RowBlock&) { ++blocks; });
                    EXPECT_EQ(blocks, 1);
                    EXPECT_TENSOR_NEAR(op->apply(v, tokens), seen, exactly);
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
