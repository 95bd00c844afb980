#include "attention/factors.hpp"

#include <gtest/gtest.h>

#include "attention/heads.hpp"
#include "support/near.hpp"

/// Spectra of factored and block-diagonal attentions against those of the whole matrix.
namespace tsdiag {
namespace {

using namespace test;

std::unique_ptr<AttentionOperator> drawn(const char* name, AttentionOptions options, Index n,
                                         Type type, bool causal = false, double spread = 1) {
    AttentionInput in = drawn_input(2, n, 8, type, 11);
    in.q = scale(in.q, spread);
    in.k = scale(in.k, spread);
    in.options = std::move(options);
    in.causal = causal;
    return attention(name).make(in);
}

/// The same P without its structure.
std::unique_ptr<AttentionOperator> bare(const AttentionOperator& op) {
    return given_attention(op.matrix(), false, "");
}

struct Variant {
    const char* name;
    AttentionOptions options;
};
const std::vector<Variant> variants{{"linear", {}},
                                    {"linear", {{"map", "relu"}}},
                                    {"performer", {}},
                                    {"performer", {{"kernel", "relu"}}},
                                    {"cosformer", {}},
                                    {"norm_attention", {}},
                                    {"norm_attention", {{"map", "elu"}}},
                                    {"linformer", {{"length", "9"}}},
                                    {"nystrom", {{"landmarks", "8"}}}};

TEST(Factors, GiveTheSpectrumOfTheWholeMatrix) {
    for (const Variant& v : variants)
        for (const Type type : {Type::f32, Type::f64}) {
            const auto op = drawn(v.name, v.options, 96, type, false, 0.7);
            const std::vector<Estimate> second = second_eigenvalue(*op),
                                        second_bare = second_eigenvalue(*bare(*op)),
                                        delta = centred_norm(*op),
                                        delta_bare = centred_norm(*bare(*op));
            const double tolerance = type == Type::f32 ? 1e-4 : 1e-6;
            for (std::size_t k = 0; k < second.size(); ++k) {
                EXPECT_EQ(second[k].method, "factors") << v.name;
                EXPECT_TRUE(second[k].converged) << v.name;
                EXPECT_NEAR(second[k].value, second_bare[k].value, tolerance * second_bare[k].value)
                    << v.name;
                EXPECT_EQ(delta[k].method, "factors") << v.name;
                EXPECT_NEAR(delta[k].value, delta_bare[k].value, tolerance * delta_bare[k].value)
                    << v.name;
            }
        }
}

TEST(Factors, AreLeftAsideWhereTheyAreNotSmall) {
    const auto op = drawn("linear", {}, 24, Type::f64);
    EXPECT_NE(second_eigenvalue(*op)[0].method, "factors");
    EXPECT_NE(centred_norm(*op)[0].method, "factors");
}

TEST(Factors, OfACausalHeadGiveItsDiagonal) {
    for (const Variant& v : variants) {
        if (!attention(v.name).facts.causal) continue;
        const auto op = drawn(v.name, v.options, 64, Type::f64, true);
        const RowStatistics s = row_statistics(op->rows(0, 64));
        for (Index k = 0; k < 2; ++k) {
            const std::span diagonal = std::span(s.diagonal).subspan(std::size_t(64 * k), 64);
            const Estimate found = second_eigenvalue(*op)[std::size_t(k)];
            EXPECT_EQ(found.method, "diagonal");
            EXPECT_CLOSE(found.value, second_eigenvalue(diagonal).value, rounding(64));
        }
        EXPECT_NE(centred_norm(*op)[0].method, "factors");
    }
}

/// Each token `times` times: P becomes P / times in every copy, and no spectrum changes.
Tensor repeated(const Tensor& x, Index times) {
    std::vector<double> out;
    const std::vector<double> rows = x.to_host<double>();
    for (std::size_t at = 0; at < rows.size(); at += std::size_t(x.cols()))
        for (Index t = 0; t < times; ++t)
            out.insert(out.end(), rows.begin() + Index(at), rows.begin() + Index(at) + x.cols());
    return Tensor::from_host(cpu(), {x.batch(), x.rows() * times, x.cols()},
                             std::span<const double>(out), x.type());
}

TEST(Factors, OfALongSampleCostLinearTime) {
    for (const char* name : {"linear", "norm_attention"}) {
        AttentionInput in = drawn_input(1, 50, 8, Type::f64, 2);
        const auto small = attention(name).make(in);
        const double times = name == std::string("linear") ? 1 : 1000;
        in.q = repeated(in.q, 1000);
        in.k = repeated(in.k, 1000);
        const auto large = attention(name).make(in);  // P would take 20 GB
        const Estimate second = second_eigenvalue(*large)[0], delta = centred_norm(*large)[0];
        EXPECT_TRUE(second.converged && delta.converged);
        EXPECT_NEAR(second.value / times, second_eigenvalue(*small)[0].value, 1e-8);
        EXPECT_NEAR(delta.value / times, centred_norm(*small)[0].value, 1e-7);
        in.causal = true;
        const auto causal = attention(name).make(in);
        EXPECT_EQ(second_eigenvalue(*causal)[0].method, "diagonal");
        const Tensor v = gaussian({1, 50000, 2}, Type::f64, 3);
        const Tensor y = causal->apply(v, 16);
        EXPECT_TENSOR_NEAR(y.row_range(40000, 3), matmul(causal->rows(40000, 3).p, v),
                           (Tolerance{.relative = 1e-9, .reason = "sums of 50000 terms"}));
    }
}

TEST(Factors, WithoutDigitsLeftAreAnInterval) {
    // One feature: a stochastic P is of rank one, and lambda_2 = 0 drowns in rounding.
    AttentionInput in = drawn_input(1, 40, 1, Type::f64, 5);
    const auto op = attention("linear").make(in);
    const Structure known = op->structure();
    const Estimate e = factors::second_eigenvalue(*known.factors, true)[0];
    EXPECT_TRUE(e.converged ? e.value == 0 : *e.low == 0 && *e.high < 1e-10);
    EXPECT_LT(second_eigenvalue(*op)[0].value, 1e-12);
}

TEST(Blocks, GiveTheSpectrumOfTheWholeMatrix) {
    for (const char* block : {"7", "1", "39"}) {
        const auto op =
            drawn("diag_attention", {{"block", block}, {"activation", "rela"}}, 40, Type::f64);
        const std::vector<Estimate> found = second_eigenvalue(*op),
                                    expected = second_eigenvalue(*bare(*op));
        for (std::size_t k = 0; k < 2; ++k) {
            EXPECT_EQ(found[k].method, "blocks");
            EXPECT_NEAR(found[k].value, expected[k].value, 1e-9 * expected[k].value);
        }
    }
    EXPECT_EQ(second_eigenvalue(*drawn("diag_attention", {{"block", "7"}}, 40, Type::f64))[0].value,
              1);
}

}  // namespace
}  // namespace tsdiag
