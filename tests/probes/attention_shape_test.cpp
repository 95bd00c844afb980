#include "by_hand.hpp"

namespace tsdiag::test {
namespace {

Table shape(std::vector<Matrix> heads, Type type = Type::f64) {
    return measure("attention_shape", {.op = std::make_shared<Made>(std::move(heads), true, type)});
}

TEST(AttentionShape, UniformAndOneHotAreTheExtremes) {
    const Table t = shape({uniform(5), identity(5)});
    EXPECT_CLOSE(value(t, head(0), "entropy"), std::log(5.0), rounding(5));
    EXPECT_CLOSE(value(t, head(0), "row_max"), 0.2, rounding(5));
    EXPECT_EQ(value(t, head(1), "entropy"), 0);
    EXPECT_EQ(value(t, head(1), "row_max"), 1);
    EXPECT_EQ(value(t, head(1), "neg_mass"), 0);
    EXPECT_CLOSE(value(t, head(), "entropy"), std::log(5.0) / 2, rounding(5));
}

TEST(AttentionShape, AgreesWithSums) {
    const Matrix p = random_attention(9, 1, true);
    double entropy = 0, most = 0;
    for (Index i = 0; i < 9; ++i) {
        double top = 0;
        for (Index j = 0; j < 9; ++j) {
            if (p(i, j) > 0) entropy -= p(i, j) * std::log(p(i, j)) / 9;
            top = std::max(top, p(i, j));
        }
        most += top / 9;
    }
    const Table t = shape({p});
    EXPECT_CLOSE(value(t, head(0), "entropy"), entropy, rounding(81));
    EXPECT_CLOSE(value(t, head(0), "row_max"), most, rounding(9));
}

TEST(AttentionShape, SignedEntriesHaveMassAndNoEntropy) {
    const Matrix p(2, 2, {1.5, -0.5, 0.5, 0.5});
    const Table t = shape({p, uniform(2)});
    EXPECT_CLOSE(value(t, head(0), "neg_mass"), 0.5 / 3, rounding(4));
    EXPECT_CLOSE(value(t, head(0), "row_max"), 1, rounding(4));
    EXPECT_EQ(reason(t, head(0), "entropy"), "an entry of P is negative");
    EXPECT_CLOSE(value(t, head(), "entropy"), std::log(2.0), rounding(4));
    EXPECT_EQ(t.find(head(), "entropy")->note, "undefined in head 0: an entry of P is negative");
}

TEST(AttentionShape, EntropyNeedsRowsThatSumToOneWithinTheTolerance) {
    const auto off_by = [](double error, Type type) {
        Matrix p = uniform(4);
        p(1, 2) += error;
        return shape({p}, type);
    };
    EXPECT_EQ(reason(off_by(1e-3, Type::f64), head(0), "entropy"),
              "rows do not sum to 1 (off by 1.0e-03)");
    EXPECT_EQ(reason(off_by(2e-12, Type::f64), head(0), "entropy"),
              "rows do not sum to 1 (off by 2.0e-12)");
    EXPECT_CLOSE(value(off_by(5e-13, Type::f64), head(0), "entropy"), std::log(4.0),
                 stopped_at(1e-12));
    EXPECT_CLOSE(value(off_by(5e-7, Type::f32), head(0), "entropy"), std::log(4.0),
                 stopped_at(1e-6));
}

TEST(AttentionShape, NothingHasNoMass) {
    const Table t = shape({Matrix(3, 3)});
    EXPECT_EQ(reason(t, head(0), "neg_mass"), "P = 0");
    EXPECT_EQ(value(t, head(0), "row_max"), 0);
}

}  // namespace
}  // namespace tsdiag::test
