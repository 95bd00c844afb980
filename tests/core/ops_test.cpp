#include "tsdiag/ops.hpp"

#include <gtest/gtest.h>
#include <omp.h>

#include <array>
#include <cmath>
#include <vector>

#include "support/near.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

Tensor make(Shape shape, Type type = Type::f64, double phase = 0) {
    std::vector<double> v(std::size_t(shape.count()));
    for (std::size_t i = 0; i < v.size(); ++i) v[i] = std::sin(1.3 * double(i) + phase);
    return Tensor::from_host(cpu(), shape, std::span<const double>(v), type);
}

double at(const Tensor& t, Index b, Index r, Index c) {
    return t.to_host<double>()[std::size_t((b * t.rows() + r) * t.cols() + c)];
}

TEST(Ops, ViewsShareElementsAndKeepTheirPlace) {
    const Tensor x = make({1, 5, 12});
    const Tensor heads = x.split_heads(3);
    EXPECT_EQ(heads.shape(), (Shape{3, 5, 4}));
    EXPECT_EQ(at(heads, 2, 3, 1), at(x, 0, 3, 9));
    EXPECT_EQ(merge_heads(heads).to_host<double>(), x.to_host<double>());
    EXPECT_EQ(at(x.row_range(2, 2).col_range(3, 4), 0, 1, 2), at(x, 0, 3, 5));
    EXPECT_THROW(x.row_range(4, 2), ShapeError);
    EXPECT_THROW(x.split_heads(5), ShapeError);
}

TEST(Ops, HeadsOfSamplesAreThoseOfEach) {
    const Tensor x = make({3, 5, 12});
    const Tensor heads = split_heads(x, 4);
    EXPECT_EQ(heads.shape(), (Shape{12, 5, 3}));
    for (Index s = 0; s < 3; ++s)
        EXPECT_EQ(heads.batch_range(4 * s, 4).to_host<double>(),
                  contiguous(x.batch_range(s, 1).split_heads(4)).to_host<double>());
    EXPECT_EQ(merge_heads(heads, 3).to_host<double>(), x.to_host<double>());
    EXPECT_THROW(split_heads(x, 5), ShapeError);
    EXPECT_THROW(merge_heads(heads, 5), ShapeError);
    const Tensor parts[] = {x.batch_range(2, 1), x.batch_range(0, 2)};
    EXPECT_EQ(at(concat_batches(parts), 1, 3, 7), at(x, 0, 3, 7));
}

/// Queries, keys and values of one product have unequal numbers of heads.
TEST(Ops, HeadsOfPartsAreThoseOfTheirColumns) {
    const Index samples = 2, n = 3, w = 2;
    const std::vector<Index> heads = {3, 1, 2, 1};
    const Tensor x = make({samples, n, 7 * w}), bias = make({1, 1, 7 * w}, Type::f64, 0.7);
    Tensor out = make({samples * 7, n, w});
    cpu().split_heads(out.view(), x.view(), &bias.view(), heads);
    Index batch = 0, column = 0;
    std::vector<View> parts;
    for (const Index own : heads) {
        parts.push_back(out.batch_range(batch, samples * own).view());
        for (Index i = 0; i < samples; ++i)
            for (Index k = 0; k < own; ++k, ++batch)
                for (Index r = 0; r < n; ++r)
                    for (Index c = 0; c < w; ++c) {
                        const Index from = column + k * w + c;
                        EXPECT_EQ(at(out, batch, r, c), at(x, i, r, from) + at(bias, 0, 0, from))
                            << own << " heads, sample " << i << ", head " << k;
                    }
        column += own * w;
    }
    const Tensor merged = make({samples, n, 7 * w}, Type::f64, 2);
    cpu().merge_heads(merged.view(), parts);
    EXPECT_EQ(merged.to_host<double>(), add(x, bias).to_host<double>());
}

TEST(Ops, MatmulSharesKeysAmongGroupsOfQueries) {
    for (const Type type : {Type::f32, Type::f64}) {
        const Tensor q = make({4, 7, 5}, type), k = make({2, 9, 5}, type, 1);
        const Tensor s = matmul(q, k, Transpose::second, 0.5);
        ASSERT_EQ(s.shape(), (Shape{4, 7, 9}));
        std::vector<double> expected;
        for (Index b = 0; b < 4; ++b)
            for (Index i = 0; i < 7; ++i)
                for (Index j = 0; j < 9; ++j) {
                    double sum = 0;
                    for (Index l = 0; l < 5; ++l) sum += at(q, b, i, l) * at(k, b / 2, j, l);
                    expected.push_back(0.5 * sum);
                }
        EXPECT_TENSOR_NEAR(s, expected, test::rounding(5));
    }
}

TEST(Ops, MatmulReadsTransposedAndStridedOperands) {
    const Tensor x = make({1, 6, 8}), y = make({1, 6, 8}, Type::f64, 2);
    const Tensor a = x.split_heads(2), b = y.split_heads(2);
    const Tensor s = matmul(a, b, Transpose::first);
    ASSERT_EQ(s.shape(), (Shape{2, 4, 4}));
    double sum = 0;
    for (Index l = 0; l < 6; ++l) sum += at(a, 1, l, 2) * at(b, 1, l, 3);
    EXPECT_CLOSE(at(s, 1, 2, 3), sum, test::rounding(6));
    EXPECT_THROW(matmul(a, b), ShapeError);
}

/// Sizes at which the library behind float32 products, left to itself, sums in an order that
/// depends on the number of threads: 128 of 2872 products drawn from such sizes differed.
TEST(Ops, ProductsHaveTheSameBitsOnAnyNumberOfThreadsAndInAnyBatch) {
    struct Threads {
        ~Threads() { omp_set_num_threads(omp_get_num_procs()); }
    } restored;
    const Rng rng(5);
    const auto bits = [](const Tensor& x) {
        return std::pair(x.to_host<float>(), x.to_host<double>());
    };
    for (const Type type : {Type::f32, Type::f64})
        for (const auto [m, k, n] : {std::array<Index, 3>{17, 1024, 640},
                                     {64, 1280, 512},
                                     {256, 1024, 200},
                                     {33, 2048, 500},
                                     {300, 4096, 70},
                                     {5, 768, 768},
                                     {257, 64, 193},
                                     {2, 100, 50}}) {
            const Tensor a = random_tensor(cpu(), {3, m, k}, type, Law::normal, rng, 0, 1);
            const Tensor b = random_tensor(cpu(), {1, n, k}, type, Law::normal, rng.fork(1), 0, 1);
            omp_set_num_threads(1);
            const auto expected = bits(matmul(a, b, Transpose::second));
            for (const int threads : {2, 3, 8}) {
                omp_set_num_threads(threads);
                EXPECT_EQ(bits(matmul(a, b, Transpose::second)), expected)
                    << m << " x " << k << " x " << n << ", " << threads << " threads";
                EXPECT_EQ(bits(matmul(a.batch_range(1, 1), b, Transpose::second)),
                          bits(matmul(a, b, Transpose::second).batch_range(1, 1)));
            }
        }
}

TEST(Ops, LayerNormHasZeroMeanAndUnitVariance) {
    const Tensor x = make({1, 4, 33});
    const Tensor y = layer_norm(x, {}, {}, 0);
    const std::vector<double> sums = row_sum(y).to_host<double>();
    for (const double s : sums) EXPECT_NEAR(s, 0, 33 * 0x1p-50);
    EXPECT_CLOSE(squared_norm(y), 4.0 * 33, test::rounding(33));
    const Tensor w = make({1, 1, 33}, Type::f64, 1), c = make({1, 1, 33}, Type::f64, 2);
    EXPECT_TENSOR_NEAR(layer_norm(x, w, c, 0), add(multiply(y, w), c), test::rounding(4));
}

TEST(Ops, RmsNormDividesByTheRootMeanSquare) {
    const std::vector<double> v = {3, 4};
    const Tensor y =
        rms_norm(Tensor::from_host(cpu(), {1, 1, 2}, std::span(v), Type::f64), {}, 0.5);
    EXPECT_ALL_CLOSE(y.to_host<double>(),
                     std::vector<double>({3 / std::sqrt(13.0), 4 / std::sqrt(13.0)}),
                     test::rounding(4));
}

TEST(Ops, RotationKeepsNormsAndTurnsByThePosition) {
    const std::vector<double> v = {1, 0, 0, 1, 5}, position = {2}, frequency = {0.25, 0.5};
    const Tensor x = Tensor::from_host(cpu(), {1, 1, 5}, std::span(v), Type::f64);
    EXPECT_ALL_CLOSE(
        rotate(x, position, frequency, false).to_host<double>(),
        std::vector<double>({std::cos(0.5), -std::sin(1.0), std::sin(0.5), std::cos(1.0), 5}),
        test::rounding(4));
    EXPECT_ALL_CLOSE(
        rotate(x, position, frequency, true).to_host<double>(),
        std::vector<double>({std::cos(0.5), std::sin(0.5), -std::sin(1.0), std::cos(1.0), 5}),
        test::rounding(4));
}

TEST(Ops, BroadcastingRepeatsSingleExtents) {
    const Tensor a = make({2, 3, 4}), column = make({2, 3, 1}, Type::f64, 1),
                 row = make({1, 1, 4}, Type::f64, 2);
    EXPECT_EQ(at(add(a, column), 1, 2, 3), at(a, 1, 2, 3) + at(column, 1, 2, 0));
    EXPECT_EQ(at(multiply(a, row), 1, 0, 3), at(a, 1, 0, 3) * at(row, 0, 0, 3));
    EXPECT_THROW(add(row, a), ShapeError);
    EXPECT_THROW(add(a, cast(a, Type::f32)), ShapeError);
}

TEST(Ops, SoftmaxReusesMemoryOnlyWhereNobodyElseHoldsIt) {
    const Tensor s = make({1, 3, 3});
    const std::vector<double> before = s.to_host<double>();
    const Visible causal{{0, 0, 0}, {1, 2, 3}};
    const Tensor p = softmax_rows(s, causal);
    EXPECT_EQ(s.to_host<double>(), before);
    EXPECT_EQ(at(p, 0, 0, 0), 1);
    EXPECT_EQ(at(p, 0, 0, 1), 0);
    EXPECT_EQ(at(p, 0, 1, 2), 0);
    EXPECT_CLOSE(at(p, 0, 1, 0) + at(p, 0, 1, 1), 1, test::rounding(2));
    EXPECT_THROW(softmax_rows(s, {{0}, {1}}), ShapeError);
}

TEST(Ops, StateMomentsAgreeWithTheDefinitions) {
    for (const Index n : {1, 2, 63, 64, 65, 200}) {
        const Tensor x = add(make({1, n, 19}), make({1, 1, 19}, Type::f64, 3));
        const StateMoments m = state_moments(x);
        const Tensor centred = subtract_column_mean(x);
        EXPECT_CLOSE(m.squared, squared_norm(x), test::rounding(double(n) * 19));
        EXPECT_NEAR(m.centred, squared_norm(centred), double(n) * 19 * 0x1p-52 * m.squared);
        EXPECT_CLOSE(m.mean_part + m.centred, m.squared, test::rounding(double(n) * 19));
        double unit = 0;
        std::vector<double> total(19, 0.0);
        for (Index i = 0; i < n; ++i) {
            const double norm = std::sqrt(squared_norm(x.row_range(i, 1)));
            for (Index j = 0; j < 19; ++j) total[std::size_t(j)] += at(x, 0, i, j) / norm;
        }
        for (const double t : total) unit += t * t;
        EXPECT_CLOSE(m.unit_sum, unit, test::rounding(double(n) * 19));
    }
}

TEST(Ops, DiversityOfNearlyEqualRowsKeepsItsRelativeAccuracy) {
    // Rows (1, 1 + e) and (1, 1 - e): the centred part is 2 e^2, which 1 - t_sim could not show.
    const double e = 0x1p-40;
    const std::vector<double> v = {1, 1 + e, 1, 1 - e};
    const StateMoments m =
        state_moments(Tensor::from_host(cpu(), {1, 2, 2}, std::span(v), Type::f64));
    EXPECT_CLOSE(m.centred, 2 * e * e, test::rounding(8));
}

TEST(Ops, WindowCurveOfUniformAndCausalAttentionIsTheExactOne) {
    // docs/references.md: exact curves of the uniform and the causal uniform 8 x 8 matrix.
    const Index n = 8;
    std::vector<double> uniform(64, 1.0 / 8), causal(64, 0.0);
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j <= i; ++j) causal[std::size_t(i * n + j)] = 1.0 / double(i + 1);
    const auto curve = [&](const std::vector<double>& p, const Visible& v) {
        const Tensor t = Tensor::from_host(cpu(), {1, n, n}, std::span(p), Type::f64);
        std::vector<double> c = row_statistics(t, {}, true, 0, v).window;
        for (std::size_t i = 1; i < c.size(); ++i) c[i] += c[i - 1];
        for (double& x : c) x /= double(n);
        return c;
    };
    EXPECT_ALL_CLOSE(curve(uniform, {}),
                     std::vector<double>({.125, .25, .375, .5, .625, .75, .875, 1}),
                     test::rounding(8));
    const std::vector<double> expected = {.339732, .554464, .570089, .722321,
                                          .755804, .866369, .920685, 1};
    Visible triangle;
    for (Index i = 0; i < n; ++i) {
        triangle.first.push_back(0);
        triangle.last.push_back(i + 1);
    }
    const test::Tolerance printed{.absolute = 5e-7, .reason = "printed with six digits"};
    EXPECT_ALL_CLOSE(curve(causal, {}), expected, printed);
    EXPECT_ALL_CLOSE(curve(causal, triangle), expected, printed);
}

TEST(Ops, StatisticsDoNotDependOnTheRowBlock) {
    for (const Index n : {37, 130}) {  // windows of 130 rows are summed by groups of rows
        const Tensor p = softmax_rows(make({3, n, n}), {});
        const RowStatistics whole = row_statistics(p, p, true, 0, {});
        std::vector<double> window(whole.window.size(), 0.0);
        for (Index first = 0; first < n; first += 10) {
            const Index count = std::min<Index>(10, n - first);
            const Tensor block = p.row_range(first, count);
            const RowStatistics part = row_statistics(block, block, true, first, {});
            for (std::size_t i = 0; i < window.size(); ++i) window[i] += part.window[i];
            EXPECT_EQ(part.entropy[1], whole.entropy[std::size_t(first + 1)]);
            EXPECT_EQ(part.diagonal[0], whole.diagonal[std::size_t(first)]);
        }
        EXPECT_ALL_CLOSE(window, whole.window, test::rounding(double(n)));
    }
}

TEST(Ops, AStepOfAdamIsThatOfItsFormula) {
    const AdamWStep s{.beta1 = 0.7,
                      .beta2 = 0.9,
                      .eps = 1e-3,
                      .factor = 0.5,
                      .rate = 0.02,
                      .unbias = 1.6,
                      .shrink = 0.99};
    for (const Type type : {Type::f32, Type::f64}) {
        const Shape shape{2, 3, 5};
        const Tensor w = make(shape, type, 1), m = make(shape, type, 2), g = make(shape, type, 4),
                     v = map(Unary::square, make(shape, type, 3));
        std::vector<double> first = m.to_host<double>(), second = v.to_host<double>(),
                            weight = w.to_host<double>();
        const std::vector<double> gradient = g.to_host<double>();
        for (std::size_t i = 0; i < weight.size(); ++i) {
            const double x = 0.5 * gradient[i];
            first[i] = 0.7 * first[i] + 0.3 * x;
            second[i] = 0.9 * second[i] + 0.1 * x * x;
            weight[i] = 0.99 * weight[i] - 0.02 * first[i] / (std::sqrt(1.6 * second[i]) + 1e-3);
        }
        const AdamWUpdate update{w.view(), m.view(), v.view(), g.view(), s};
        cpu().adamw(std::span(&update, 1));
        EXPECT_TENSOR_NEAR(m, first, test::rounding(8));
        EXPECT_TENSOR_NEAR(v, second, test::rounding(8));
        EXPECT_TENSOR_NEAR(w, weight, test::rounding(16));
    }
}

TEST(Ops, DerivativesAtAKinkAreThoseFromTheLeft) {
    const std::vector<double> around{-1, 0, 1};
    for (const Type type : {Type::f32, Type::f64}) {
        const Tensor x = Tensor::from_host(cpu(), {1, 1, 3}, std::span<const double>(around), type);
        EXPECT_EQ(map(Unary::step, x).to_host<double>(), (std::vector<double>{0, 0, 1}));
    }
}

TEST(Ops, GatherAndConcatenateRows) {
    const Tensor t = make({1, 4, 3});
    const std::vector<Index> rows = {3, 0, 3};
    const Tensor g = concat_rows({gather_rows(t, rows), t.row_range(1, 1)});
    EXPECT_EQ(g.rows(), 4);
    EXPECT_EQ(at(g, 0, 2, 1), at(t, 0, 3, 1));
    EXPECT_EQ(at(g, 0, 3, 2), at(t, 0, 1, 2));
    const std::vector<Index> bad = {4};
    EXPECT_THROW(gather_rows(t, bad), ShapeError);
    EXPECT_EQ(at(transpose(t), 0, 2, 3), at(t, 0, 3, 2));
}

TEST(Ops, NonFiniteEntriesAreFoundInRowMajorOrder) {
    std::vector<double> v(50, 1.0);
    EXPECT_EQ(first_nonfinite(
                  Tensor::from_host(cpu(), {1, 5, 10}, std::span<const double>(v), Type::f32)),
              -1);
    v[41] = v[23] = NAN;
    EXPECT_EQ(first_nonfinite(
                  Tensor::from_host(cpu(), {1, 5, 10}, std::span<const double>(v), Type::f32)),
              23);
}

TEST(Backends, AnUnknownDeviceIsRefusedByName) {
    EXPECT_EQ(open_backend("auto").name(), "cpu");
    EXPECT_THROW(open_backend("tpu"), UsageError);
    EXPECT_THROW(open_backend("cuda:1"), NotAvailable);
}

TEST(Ops, PickTakesAnEntryOfEachRow) {
    const std::vector<double> values{0, 1, 2, 10, 11, 12, 20, 21, 22, 30, 31, 32};
    const Tensor a =
        Tensor::from_host(cpu(), {1, 4, 3}, std::span<const double>(values), Type::f64);
    const Tensor picked = pick(a, std::vector<Index>{2, 0, 1, 1});
    EXPECT_EQ(picked.shape(), (Shape{1, 4, 1}));
    EXPECT_EQ(picked.to_host<double>(), (std::vector<double>{2, 10, 21, 31}));
}

TEST(Ops, MatvecRefusesWhatIsNoFloat64VectorOfItsSize) {
    const Tensor a = zeros(cpu(), {2, 3, 4}, Type::f32);
    EXPECT_EQ(matvec(a, zeros(cpu(), {2, 4, 1}, Type::f64), false).shape(), (Shape{2, 3, 1}));
    EXPECT_EQ(matvec(a, zeros(cpu(), {2, 3, 1}, Type::f64), true).shape(), (Shape{2, 4, 1}));
    EXPECT_THROW(matvec(a, zeros(cpu(), {2, 4, 1}, Type::f32), false), ShapeError);
    EXPECT_THROW(matvec(a, zeros(cpu(), {2, 3, 1}, Type::f64), false), ShapeError);
    EXPECT_THROW(matvec(a, zeros(cpu(), {1, 4, 1}, Type::f64), false), ShapeError);
    EXPECT_THROW(matvec(a, zeros(cpu(), {2, 4, 2}, Type::f64), false), ShapeError);
    EXPECT_THROW(matvec(a, zeros(cpu(), {2, 4, 1}, Type::f64), true), ShapeError);
}

}  // namespace
}  // namespace tsdiag
