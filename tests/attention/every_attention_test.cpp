#include <gtest/gtest.h>

#include <algorithm>

#include "attention/settings.hpp"
#include "support/near.hpp"
#include "tsdiag/error.hpp"

/// Laws that hold for every entry of the list.
namespace tsdiag {
namespace {

std::vector<double> narrowed(const std::vector<Wide>& all) { return {all.begin(), all.end()}; }

using namespace test;

std::vector<Setting> settings(bool only_f64) {
    std::vector<Setting> all;
    for (const Case& variant : cases())
        for (bool causal : {false, true}) {
            const AttentionFacts& facts = variant.entry->facts;
            if (causal && !facts.causal()) continue;
            all.push_back({variant, Type::f64, causal});
            if (!variant.is_default() || only_f64) continue;
            all.push_back({variant, Type::f32, causal});
            all.push_back({variant, Type::f32, causal, 0, heads / 2});
            if (facts.window) all.push_back({variant, Type::f64, causal, 5, heads / 2});
        }
    return all;
}

std::string typed_title(const testing::TestParamInfo<Setting>& info) {
    return title(info.param, info.param.type == Type::f32 ? "_f32" : "_f64");
}

class EveryAttention : public testing::TestWithParam<Setting> {
  protected:
    /// The Jacobian of rows S or S / sum(S), by differences at the S derived from p and slope.
    void check_kernel(const RowBlock& block) const {
        if (block.divided && GetParam().variant.entry->facts.factors == Holds::sometimes) return;
        const naive::Matrix p = naive::matrix_of(block.p), slope = naive::matrix_of(block.slope);
        const double h = 5e-4;  // of z
        std::vector<double> squares, largest;
        for (Index i = 0; i < n; ++i) {
            std::vector<double> s;
            for (Index j = 0; j < n && naive::sees(i, j, GetParam().causal); ++j)
                s.push_back(p(i, j) / slope(i, j));
            double total = 0, most = 0;
            const double z = block.divided ? 1 / slope(i, 0) : 1;
            for (std::size_t k = 0; k < s.size(); ++k)
                for (std::size_t j = 0; j < s.size(); ++j) {
                    const auto at = [&](double step) {
                        const double moved = s[j] + (j == k ? step * z : 0);
                        return moved / (block.divided ? z + step * z : 1);
                    };
                    const double d = derivative(at, h) / z;
                    total += d * d;
                    most = std::max(most, std::abs(d));
                }
            squares.push_back(total);
            largest.push_back(most);
        }
        RowStatistics found = row_statistics(block);
        found.jacobian.resize(std::size_t(n));
        found.jacobian_max.resize(std::size_t(n));
        const Tolerance near = squared_differences(h, largest_logit);
        EXPECT_ALL_CLOSE(narrowed(found.jacobian), squares, near);
        EXPECT_ALL_CLOSE(found.jacobian_max, largest, near);
    }

    const double largest_logit = 8;
    const Index n = GetParam().variant.n;
    const AttentionFacts& facts() const { return GetParam().variant.entry->facts; }
    std::unique_ptr<AttentionOperator> make(AttentionInput in) const {
        return GetParam().variant.entry->make(std::move(in));
    }
    AttentionInput input() const {
        AttentionInput in = drawn_input(heads, n, width, GetParam().type, 5, GetParam().key_heads);
        in.options = GetParam().variant.options;
        in.causal = GetParam().causal;
        in.window = GetParam().window;
        return in;
    }
    std::unique_ptr<AttentionOperator> make() const { return make(input()); }
    /// Rounding of a product: the terms may be larger than their sum.
    Tolerance noise(const AttentionOperator& op) const {
        double largest = 0;
        for (const double e : op.matrix().to_host<double>())
            largest = std::max(largest, std::abs(e));
        return {.absolute = 8 * double(n) * epsilon(GetParam().type) * std::max(largest, 1e-3),
                .reason = "rounding"};
    }
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
    const Tensor dense = matmul(op->matrix(), v),
                 transposed = matmul(op->matrix(), w, Transpose::first);
    const Tolerance tolerance = noise(*op);
    for (Index block : {1, 4, 16, 100}) {
        EXPECT_TENSOR_NEAR(op->apply(v, block), dense, tolerance);
        EXPECT_TENSOR_NEAR(op->apply(v, block, [](const RowBlock&) {}), dense, tolerance);
        EXPECT_TENSOR_NEAR(op->apply_transpose(w, block), transposed, tolerance);
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
        EXPECT_TENSOR_NEAR(op->matrix(), make()->matrix(), noise(*op));
    }
}

TEST_P(EveryAttention, TransposeIsAdjoint) {
    const auto op = make();
    const Tensor v = values(1), w = values(2);
    const double left = dot(op->apply(v, 4), w), right = dot(v, op->apply_transpose(w, 4));
    const auto scale = double(std::sqrt(squared_norm(v) * squared_norm(w)) *
                              std::max<Wide>(1, std::sqrt(squared_norm(op->matrix()))));
    EXPECT_NEAR(left, right, rounding(double(n)).allowed(epsilon(GetParam().type), scale));
}

TEST_P(EveryAttention, ValuesMayHaveFewerHeads) {
    const auto op = make();
    const Tensor v = gaussian({heads / 2, n, 3}, GetParam().type, 3);
    const Tensor y = op->apply(v, 7);
    for (Index k = 0; k < heads; ++k)
        EXPECT_TENSOR_NEAR(y.batch_range(k, 1),
                           matmul(op->matrix().batch_range(k, 1), v.batch_range(k / 2, 1)),
                           noise(*op));
}

Index block_of(const Structure& known, Index token) {
    return std::ranges::upper_bound(known.blocks, token) - known.blocks.begin();
}

void agrees(Holds claimed, bool found, const char* what) {
    if (claimed != Holds::sometimes) {
        EXPECT_EQ(found, claimed == Holds::always) << what;
    }
}

TEST_P(EveryAttention, DeclaredStructureIsTrue) {
    const auto op = make();
    const Structure known = op->structure();
    agrees(facts().row_stochastic, known.row_stochastic, "row_stochastic");
    agrees(facts().factors, known.factors.has_value(), "factors");
    agrees(facts().blocks, !known.blocks.empty(), "blocks");
    EXPECT_EQ(known.causal, GetParam().causal);
    bool negative = false;
    for (Index k = 0; k < heads; ++k) {
        const naive::Matrix p = naive::matrix_of(op->matrix(), k);
        for (Index i = 0; i < n; ++i) {
            double sum = 0;
            for (Index j = 0; j < n; ++j) {
                sum += p(i, j);
                negative = negative || p(i, j) < 0;
                if (known.row_stochastic) {
                    EXPECT_GE(p(i, j), 0);
                }
                if (!naive::sees(i, j, GetParam().causal, GetParam().window)) {
                    EXPECT_EQ(p(i, j), 0);
                }
                if (!known.blocks.empty() && block_of(known, i) != block_of(known, j)) {
                    EXPECT_EQ(p(i, j), 0);
                }
            }
            if (known.row_stochastic) {
                EXPECT_CLOSE(sum, 1, rounding(double(n)), GetParam().type);
            }
        }
    }
    if (facts().negative_entries == Holds::never) {
        EXPECT_FALSE(negative);
    }
    if (!known.factors) return;
    Tensor product = matmul(known.factors->left, known.factors->right, Transpose::second);
    if (known.causal) product = hide(product, op->rows(0, n).visible);
    EXPECT_TENSOR_NEAR(product, op->matrix(), noise(*op));
}

TEST_P(EveryAttention, RowTotalsAreThoseOfAllItsRows) {
    const auto op = make();
    const auto totals = op->row_totals();
    EXPECT_EQ(totals.has_value(), op->structure().factors.has_value());
    if (!totals) return;
    const RowBlock all = op->rows(0, n);
    const RowStatistics s = row_statistics(all);
    EXPECT_EQ(totals->jacobian.empty(), s.jacobian.empty());
    const double entry = noise(*op).absolute;  // of P
    const std::vector<double> slope =
        s.jacobian.empty() ? std::vector<double>() : all.slope.to_host<double>();
    for (Index k = 0; k < heads; ++k) {
        double squares = 0, jacobian = 0, deviation = 0, error = 0, jacobian_error = 0;
        for (Index i = 0; i < n; ++i) {
            const auto at = std::size_t(k * n + i);
            squares += s.squares[at];
            deviation = std::max(deviation, std::abs(s.sum[at] - 1));
            error += 2 * entry * s.modulus[at];
            if (slope.empty()) continue;
            const double g = slope[std::size_t((k * n + i) * n + i)];
            jacobian += s.jacobian[at];
            jacobian_error += 2 * entry * double(n) * g * g * (1 + s.modulus[at]);
        }
        const auto head = std::size_t(k);
        const double relative = 64 * double(n) * epsilon(GetParam().type);
        EXPECT_NEAR(totals->squares[head], squares, error + relative * squares);
        EXPECT_NEAR(totals->deviation[head], deviation, double(n) * entry);
        if (!slope.empty()) {
            EXPECT_NEAR(totals->jacobian[head], jacobian, jacobian_error + relative * jacobian);
        }
    }
}

TEST_P(EveryAttention, RowsAreThoseOfTheirWindow) {
    // Positions with gaps: visibility depends on positions, not on the order.
    AttentionInput in = input();
    for (Index i = 0; i < n; ++i) in.position.push_back(double(i + 3 * (i > 7) + 10 * (i > 12)));
    const auto op = make(in);
    const Index window = GetParam().window;
    const naive::Matrix p = naive::matrix_of(op->matrix());
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < n; ++j) {
            const double away = std::abs(in.position[std::size_t(i)] - in.position[std::size_t(j)]);
            if ((GetParam().causal && j > i) || (window > 0 && away >= double(window))) {
                EXPECT_EQ(p(i, j), 0);
            }
        }
    EXPECT_TENSOR_NEAR(op->rows(9, 5).p, op->matrix().row_range(9, 5), noise(*op));
}

TEST_P(EveryAttention, HasAMemoryWhereItSaysSo) {
    const Index m = n / 3;
    AttentionInput in = input();
    in.q = contiguous(in.q.row_range(m, n - m));
    if (!facts().memory) {
        EXPECT_THROW(make(in), ShapeError);
        return;
    }
    if (!GetParam().causal) {
        EXPECT_THROW(make(in), UsageError);
        return;
    }
    // What is causal sees the keys before as it sees those of its own segment.
    const auto op = make(in);
    EXPECT_EQ(op->memory(), m);
    EXPECT_EQ(op->tokens(), n - m);
    const Tensor whole = make()->matrix().row_range(m, n - m);
    EXPECT_TENSOR_NEAR(op->matrix(), whole, noise(*op));
    EXPECT_TENSOR_NEAR(op->rows(2, 5).p, whole.row_range(2, 5), noise(*op));
    EXPECT_EQ(op->rows(2, 5).memory, m);
    EXPECT_TENSOR_NEAR(op->apply(values(1), 4), matmul(whole, values(1)), noise(*op));
    const Tensor w = values(2).row_range(0, n - m);
    EXPECT_TENSOR_NEAR(op->apply_transpose(w, 4), matmul(whole, w, Transpose::first), noise(*op));
    EXPECT_THROW(op->apply(w, 4), ShapeError);
}

class EveryJacobian : public EveryAttention {};

TEST_P(EveryJacobian, MatchesDifferences) {
    const RowBlock block = make()->rows(0, n);
    agrees(facts().slope, block.slope.defined(), "slope");
    EXPECT_EQ(block.slope.defined(), block.why_no_slope.empty());
    if (!block.slope.defined()) return;
    const bool factors = make()->structure().factors.has_value();
    if (factors || (block.divided && facts().factors != Holds::never)) return check_kernel(block);
    // Logits are moved one by one through k = e_j: q k^T with k the identity is q itself.
    const double h = 1e-3;
    AttentionInput in = input();
    std::vector<double> logits = gaussian({1, n, n}, Type::f64, 8).to_host<double>();
    for (double& s : logits) s += std::copysign(4 * h, s);  // off the kink of a relu
    in.q = Tensor::from_host(cpu(), {1, n, n}, std::span<const double>(logits), Type::f64);
    naive::Matrix identity(n, n);
    for (Index i = 0; i < n; ++i) identity(i, i) = 1;
    in.k = one_head(identity);
    in.scale = 1;
    const bool by_bias = !make(in)->structure().constant_terms;  // q has more than one use
    if (by_bias) in.bias = zeros(cpu(), {1, n, n}, Type::f64);
    const auto matrix_at = [&](Index j, double step) {
        AttentionInput moved = in;
        std::vector<double> s = (by_bias ? in.bias : in.q).to_host<double>();
        for (Index i = 0; i < n; ++i) s[std::size_t(i * n + j)] += step;
        (by_bias ? moved.bias : moved.q) =
            Tensor::from_host(cpu(), {1, n, n}, std::span<const double>(s), Type::f64);
        return naive::matrix_of(make(moved)->matrix());
    };
    std::vector<double> squares(std::size_t(n), 0.0), largest(std::size_t(n), 0.0);
    for (Index j = 0; j < n; ++j) {  // row i of P depends on row i of S only
        auto slopes = std::vector<double>(std::size_t(n * n));
        for (const auto& [at, weight] : fourth_order) {
            const std::vector<double> p = matrix_at(j, at * h).a;
            for (std::size_t i = 0; i < p.size(); ++i) slopes[i] += weight * p[i] / h;
        }
        for (Index i = 0; i < n; ++i)
            for (Index k = 0; k < n; ++k) {
                const double d = slopes[std::size_t(i * n + k)];
                squares[std::size_t(i)] += d * d;
                largest[std::size_t(i)] = std::max(largest[std::size_t(i)], std::abs(d));
            }
    }
    const RowStatistics found = row_statistics(make(in)->rows(0, n));
    ASSERT_EQ(found.jacobian.size(), std::size_t(n));
    const Tolerance near = squared_differences(h, largest_logit);
    EXPECT_ALL_CLOSE(narrowed(found.jacobian), squares, near);
    EXPECT_ALL_CLOSE(found.jacobian_max, largest, near);
}

TEST_P(EveryAttention, RefusesWhatDoesNotFit) {
    AttentionInput in = input();
    in.k = gaussian({heads, n - 1, width}, GetParam().type, 1);
    EXPECT_THROW(make(in), ShapeError);
    in.k = gaussian({heads, n, width + 1}, GetParam().type, 1);
    EXPECT_THROW(make(in), ShapeError);
    in.k = gaussian({3, n, width}, GetParam().type, 1);
    EXPECT_THROW(make(in), ShapeError);
    in.k = gaussian({heads, n, width}, GetParam().type == Type::f32 ? Type::f64 : Type::f32, 1);
    EXPECT_THROW(make(in), ShapeError);
    in = input();
    in.position = {0, 1};
    EXPECT_THROW(make(in), ShapeError);
    in.position.assign(std::size_t(n), 0);
    in.position[0] = 1;
    EXPECT_THROW(make(in), UsageError);
    in = input();
    in.window = -1;
    EXPECT_THROW(make(in), UsageError);
    EXPECT_THROW(make()->apply(gaussian({heads, n + 1, 3}, GetParam().type, 1), 4), ShapeError);
    EXPECT_THROW(make()->apply(gaussian({3, n, 3}, GetParam().type, 1), 4), ShapeError);
    EXPECT_THROW(make()->apply(values(1), 0), ShapeError);
    EXPECT_THROW(make()->apply_transpose(gaussian({1, n, 3}, GetParam().type, 1), 4), ShapeError);
}

TEST_P(EveryAttention, RefusesWhatItCannotDo) {
    AttentionInput in = input();
    if (!facts().causal()) {
        in.causal = true;
        EXPECT_THROW(make(in), UsageError);
        in.causal = false;
    }
    if (!facts().window) {
        in.window = 3;
        EXPECT_THROW(make(in), UsageError);
        in.window = 0;
    }
    in.bias = gaussian({1, n, n}, GetParam().type, 2);
    if (facts().factors != Holds::never) {
        EXPECT_THROW(make(in), UsageError);
    } else {
        EXPECT_NO_THROW(make(in)->rows(0, n));
        in.bias = gaussian({2, n, n}, GetParam().type, 2);
        EXPECT_THROW(make(in), ShapeError);
    }
}

INSTANTIATE_TEST_SUITE_P(List, EveryAttention, testing::ValuesIn(settings(false)), typed_title);
INSTANTIATE_TEST_SUITE_P(List, EveryJacobian, testing::ValuesIn(settings(true)), typed_title);

}  // namespace
}  // namespace tsdiag
