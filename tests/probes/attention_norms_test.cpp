#include <gmock/gmock.h>

#include "by_hand.hpp"

namespace tsdiag::test {
namespace {

Table norms(std::vector<Matrix> heads, bool logits = true, Type type = Type::f64) {
    return measure("attention_norms",
                   {.op = std::make_shared<Made>(std::move(heads), logits, type)});
}

/// diag(p) - p p^T of each row: sum of squares and largest modulus.
std::pair<double, double> softmax_jacobian(const Matrix& p) {
    double squares = 0, most = 0;
    for (Index i = 0; i < p.rows; ++i)
        for (Index j = 0; j < p.cols; ++j)
            for (Index k = 0; k < p.cols; ++k) {
                const double e = (j == k ? p(i, j) : 0) - p(i, j) * p(i, k);
                squares += e * e;
                most = std::max(most, std::abs(e));
            }
    return {std::sqrt(squares), most};
}

TEST(AttentionNorms, UniformAttentionHasItsKnownNumbers) {
    const double n = 6;
    const Table t = norms({uniform(6)});
    EXPECT_CLOSE(value(t, head(0), "attn_fro"), 1, rounding(36));
    EXPECT_CLOSE(value(t, head(0), "jac_fro"), std::sqrt(1 - 1 / n), rounding(36));
    EXPECT_CLOSE(value(t, head(0), "dp_ds_max"), (1 - 1 / n) / n, rounding(6));
    EXPECT_CLOSE(value(t, head(0), "row_sum_dev") + 1, 1, rounding(6));
}

TEST(AttentionNorms, OneHotRowsHaveNoDerivative) {
    const Table t = norms({identity(5)});
    EXPECT_CLOSE(value(t, head(0), "attn_fro"), std::sqrt(5.0), rounding(5));
    EXPECT_EQ(value(t, head(0), "jac_fro"), 0);
    EXPECT_EQ(value(t, head(0), "dp_ds_max"), 0);
}

TEST(AttentionNorms, AgreesWithTheWholeJacobian) {
    const std::vector<Matrix> heads = {random_attention(7, 1), random_attention(7, 2, true)};
    const Table t = norms(heads);
    for (Index k = 0; k < 2; ++k) {
        const Matrix& p = heads[std::size_t(k)];
        const auto [fro, most] = softmax_jacobian(p);
        EXPECT_CLOSE(value(t, head(k), "attn_fro"), naive::frobenius(p), rounding(49));
        EXPECT_CLOSE(value(t, head(k), "jac_fro"), fro, rounding(343));
        EXPECT_CLOSE(value(t, head(k), "dp_ds_max"), most, rounding(10));
    }
    EXPECT_CLOSE(value(t, head(), "jac_fro"),
                 (value(t, head(0), "jac_fro") + value(t, head(1), "jac_fro")) / 2, rounding(4));
}

TEST(AttentionNorms, RowSumsAreReportedAsTheyAre) {
    Matrix p = uniform(4);
    p(2, 1) += 0.5;
    p(3, 1) -= 0.75;
    EXPECT_CLOSE(value(norms({p}), head(0), "row_sum_dev"), 0.75, rounding(8));
}

TEST(AttentionNorms, AGivenPHasNoJacobian) {
    const Table t = norms({uniform(4)}, false);
    for (const char* metric : {"jac_fro", "dp_ds_max"})
        for (Index k : {0, -1})
            EXPECT_EQ(reason(t, head(k), metric), "P given without its logits or its activation");
    EXPECT_CLOSE(value(t, head(), "attn_fro"), 1, rounding(16));
}

TEST(AttentionNorms, OnlyTheWantedHeadsHaveRowsButAllCountInTheMean) {
    ProbeSettings settings;
    settings.heads = {1};
    const Layer layer{.op = std::make_shared<Made>(std::vector{identity(4), uniform(4)})};
    const Table t = measure("attention_norms", layer, settings);
    EXPECT_EQ(reason(t, head(0), "attn_fro"), "(no row)");
    EXPECT_CLOSE(value(t, head(1), "attn_fro"), 1, rounding(16));
    EXPECT_CLOSE(value(t, head(), "attn_fro"), 1.5, rounding(16));
}

TEST(AttentionNorms, OfNaNAreUndefinedWithThatReason) {
    Matrix p = uniform(3);
    p(1, 1) = NAN;
    for (const char* metric : {"attn_fro", "row_sum_dev"}) {
        ProbeSettings settings;
        settings.metrics = {metric};
        const Layer layer{.op = std::make_shared<Made>(std::vector{p})};
        EXPECT_THAT(reason(measure("attention_norms", layer, settings), head(0), metric),
                    testing::HasSubstr("NaN"))
            << metric;
    }
}

TEST(AttentionNorms, SomeRowsGiveAnEstimateWithItsError) {
    const Matrix p = random_attention(40, 3);
    const Table t = measure("attention_norms",
                            {.op = std::make_shared<Made>(std::vector{p}), .block = 4, .rows = 20});
    const auto row = *t.find(head(0), "attn_fro");
    ASSERT_TRUE(row.value && row.low && row.high);
    EXPECT_LT(*row.low, *row.value);
    EXPECT_LT(*row.value, *row.high);
    EXPECT_NE(row.note.find("from 20 of 40 rows"), std::string::npos);
    EXPECT_CLOSE(*row.value, naive::frobenius(p), sampling(20, 0.3));
    EXPECT_EQ(t.find(head(0), "dp_ds_max")->note, "over 20 of 40 rows");
}

/// A head of linear attention too long to be seen whole, presented as in a forward pass.
class LongHead : public testing::Test {
  protected:
    static constexpr Index n = 17000;
    LongHead() {
        AttentionInput in;
        in.q = tensor(gaussian(n, 4, 1, 0.5), Type::f32);
        in.k = tensor(gaussian(n, 4, 2), Type::f32);
        op = attention("linear").make(in);
    }
    Table table(std::string_view probe) const {
        Table out;
        const std::unique_ptr<Probe> p = entry(probe).make({});
        op->apply(op->rows(0, 1).p.reshape({1, n, 1}), 64, [&](const RowBlock& block) {
            p->on_attention_rows({0, block, row_statistics(block)}, out);
        });
        p->finish_layer(0, out);
        return out;
    }
    /// Calls f on the statistics of blocks that make up P.
    void each_block(const std::function<void(const RowStatistics&)>& f) const {
        for (Index first = 0; first < n; first += 500)
            f(row_statistics(op->rows(first, std::min<Index>(500, n - first))));
    }
    std::unique_ptr<AttentionOperator> op;
};

TEST_F(LongHead, HasExactNormsAndEstimatesWithTheirErrors) {
    double squares = 0, jacobian = 0, deviation = 0, entropy = 0, largest = 0;
    each_block([&](const RowStatistics& s) {
        for (std::size_t i = 0; i < s.sum.size(); ++i) {
            squares += s.squares[i];
            jacobian += s.jacobian[i];
            entropy += s.entropy[i] / double(n);
            largest += s.max_modulus[i] / double(n);
            deviation = std::max(deviation, std::abs(s.sum[i] - 1));
        }
    });
    const Table norms = table("attention_norms"), shape = table("attention_shape");
    // Entries in float32 against sums in double: roundings of P average out.
    const Tolerance exact = {.relative = 1e-6, .reason = "P in float32"};
    EXPECT_CLOSE(value(norms, head(0), "attn_fro"), std::sqrt(squares), exact);
    EXPECT_CLOSE(value(norms, head(0), "jac_fro"), std::sqrt(jacobian), exact);
    EXPECT_FALSE(norms.find(head(0), "attn_fro")->low);
    EXPECT_LE(value(norms, head(0), "row_sum_dev"), 1e-6);
    EXPECT_EQ(norms.find(head(0), "dp_ds_max")->note.substr(0, 5), "over ");
    for (const auto& [metric, expected] :
         {std::pair<const char*, double>{"entropy", entropy}, {"row_max", largest}}) {
        const auto row = *shape.find(head(0), metric);
        ASSERT_TRUE(row.value && row.low && row.high) << metric;
        // Five standard errors; the interval holds two.
        EXPECT_NEAR(*row.value, expected, 5 * (*row.high - *row.low) / 4) << metric;
        EXPECT_LT(*row.high - *row.low, 0.2 * expected) << metric;
        EXPECT_NE(row.note.find("of 17000 rows, standard error"), std::string::npos) << row.note;
    }
}

}  // namespace
}  // namespace tsdiag::test
