#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <tuple>

#include "device_backend.hpp"
#include "requests.hpp"
#include "runtime.hpp"
#include "support/near.hpp"
#include "tsdiag/attention.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/gradient.hpp"
#include "tsdiag/linalg.hpp"
#include "tsdiag/ops.hpp"
#include "tsdiag/random.hpp"

/// Every kernel, emulated or on a device, against the CPU's, at sizes that are no multiples of
/// warps or blocks.
namespace tsdiag {
namespace {

const Backend& device() {
    static const Backend& first = *gpu::make_backend(0).release();  // outlives every tensor
    return first;
}

/// The same numbers on both backends.
struct Both {
    Tensor host, device;
};

Both drawn(Shape shape, Type type, std::uint64_t stream, double deviation = 1) {
    std::vector<double> values(std::size_t(shape.count()));
    Rng(3, stream).fill_normal(std::span<double>(values), 0, deviation);
    return {Tensor::from_host(cpu(), shape, std::span<const double>(values), type),
            Tensor::from_host(device(), shape, std::span<const double>(values), type)};
}

/// Rounding of the type, for sums of some hundred terms.
double tolerance(Type type) { return type == Type::f32 ? 2e-5 : 1e-13; }

template <class T>
void expect_near(const std::vector<T>& found, const std::vector<T>& expected, double allowed,
                 const std::string& what) {
    ASSERT_EQ(found.size(), expected.size()) << what;
    for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_NEAR(found[i], expected[i], allowed * std::max<T>(1, std::abs(expected[i])))
            << what << ", element " << i;
}

void expect_same(const Tensor& found, const Tensor& expected, const std::string& what) {
    ASSERT_EQ(found.shape(), expected.shape()) << what;
    expect_near(found.to_host<double>(), expected.to_host<double>(), tolerance(expected.type()),
                what);
}

/// f on both backends.
template <class F>
void expect_same_of(F f, std::initializer_list<const Both*> inputs, const std::string& what) {
    std::vector<Tensor> host, on_device;
    for (const Both* b : inputs) {
        host.push_back(b->host);
        on_device.push_back(b->device);
    }
    expect_same(f(on_device), f(host), what);
}

class EveryKernel : public testing::TestWithParam<Type> {
    void SetUp() override {
        std::string why;
        if (gpu::count_devices(why) == 0) GTEST_SKIP() << why;
    }
};

/// Rows that are taken element by element, and by four.
constexpr Index widths[] = {37, 40};

TEST_P(EveryKernel, Unary) {
    for (const Index cols : widths)
        for (int op = 0; op <= int(Unary::normal_cdf); ++op) {
            const Both a = drawn({2, 7, cols}, GetParam(), 1);
            const auto f = [&](const std::vector<Tensor>& x) {
                const bool positive = Unary(op) == Unary::sqrt || Unary(op) == Unary::reciprocal ||
                                      Unary(op) == Unary::log;
                return map(Unary(op), positive ? affine(multiply(x[0], x[0]), 1, 0.5) : x[0]);
            };
            expect_same_of(f, {&a}, "unary " + std::to_string(op));
        }
}

TEST_P(EveryKernel, ColumnsThatBeginAnywhere) {
    const Both a = drawn({2, 7, 48}, GetParam(), 1), odd = drawn({2, 7, 47}, GetParam(), 2);
    for (const Index begin : {0, 1, 2, 3, 4, 8}) {
        const std::string what = "from column " + std::to_string(begin);
        expect_same_of([&](const auto& t) { return map(Unary::square, t[0].col_range(begin, 36)); },
                       {&a}, what);
        expect_same_of(
            [&](const auto& t) { return add(t[0].col_range(begin, 36), t[0].col_range(4, 36)); },
            {&a}, what + ", sum");
        expect_same_of([&](const auto& t) { return affine(t[0].col_range(begin, 36), 2, 1); },
                       {&odd}, what + ", odd rows");
        expect_same_of([&](const auto& t) { return cast(t[0].col_range(begin, 36), Type::f64); },
                       {&a}, what + ", cast");
        expect_same_of([&](const auto& t) { return split_heads(t[0].col_range(begin, 40), 5); },
                       {&a}, what + ", heads");
    }
}

TEST_P(EveryKernel, BinaryWithEveryBroadcast) {
    for (const Index n : widths) {
        const Both a = drawn({3, 5, n}, GetParam(), 1);
        for (const Shape& shape :
             {Shape{3, 5, n}, {1, 5, n}, {3, 1, n}, {3, 5, 1}, {1, 1, n}, {1, 1, 1}}) {
            Both b = drawn(shape, GetParam(), 2);
            b = {affine(map(Unary::square, b.host), 1, 0.5),
                 affine(map(Unary::square, b.device), 1, 0.5)};
            for (const Binary op :
                 {Binary::add, Binary::subtract, Binary::multiply, Binary::divide, Binary::maximum})
                expect_same_of([&](const auto& x) { return zip(op, x[0], x[1]); }, {&a, &b},
                               "binary " + std::to_string(int(op)));
        }
    }
}

TEST_P(EveryKernel, ProductsOfViewsAndGroups) {
    const Both x = drawn({1, 19, 36}, GetParam(), 1), kv = drawn({1, 23, 12}, GetParam(), 2);
    const Both q = drawn({1, 19, 24}, GetParam(), 3), k = drawn({2, 23, 6}, GetParam(), 4);
    expect_same_of(
        [](const auto& t) { return matmul(t[0].split_heads(4), t[1], Transpose::second, 0.5); },
        {&q, &k}, "groups");
    const Both w = drawn({1, 17, 36}, GetParam(), 5), bias = drawn({1, 1, 17}, GetParam(), 6);
    expect_same_of([](const auto& t) { return linear(t[0], t[1], t[2]); }, {&x, &w, &bias},
                   "linear");
    const Both y = drawn({1, 19, 8}, GetParam(), 7);
    expect_same_of([](const auto& t) { return matmul(t[0], t[1], Transpose::first); }, {&x, &y},
                   "first transposed");
    expect_same_of(
        [](const auto& t) { return matmul(t[0].col_range(3, 12), t[1], Transpose::second); },
        {&x, &kv}, "a view of columns");
}

TEST_P(EveryKernel, NormsAndSums) {
    for (const Index n : {131, 1100}) {  // kept in registers, read again
        const Both x = drawn({1, 3, n}, GetParam(), 1, 3), w = drawn({1, 1, n}, GetParam(), 2),
                   b = drawn({1, 1, n}, GetParam(), 3);
        expect_same_of([](const auto& t) { return layer_norm(t[0], t[1], t[2], 1e-5); },
                       {&x, &w, &b}, "layer norm");
        expect_same_of([](const auto& t) { return layer_norm(t[0], {}, {}, 1e-5); }, {&x},
                       "bare layer norm");
        expect_same_of([](const auto& t) { return rms_norm(t[0], t[1], 1e-6); }, {&x, &w},
                       "rms norm");
    }
    const Both x = drawn({2, 9, 131}, GetParam(), 1, 3);
    expect_same_of([](const auto& t) { return row_sum(t[0]); }, {&x}, "row sum");
    expect_same_of([](const auto& t) { return row_max(t[0]); }, {&x}, "row max");
    expect_same_of([](const auto& t) { return column_sum(t[0]); }, {&x}, "column sum");
    const Both tall =
        drawn({2, 1600, 35}, GetParam(), 4);  // of whose rows several blocks take some
    for (int again = 0; again < 2; ++again)
        expect_same_of([](const auto& t) { return column_sum(t[0]); }, {&tall}, "of tall columns");
    expect_same_of([](const auto& t) { return subtract_column_mean(t[0].col_range(2, 70)); }, {&x},
                   "centred");
    EXPECT_NEAR(squared_norm(x.device), squared_norm(x.host), 1e-12 * squared_norm(x.host));
}

TEST_P(EveryKernel, CopiesOfViews) {
    const Both x = drawn({1, 11, 24}, GetParam(), 1);
    expect_same_of([](const auto& t) { return contiguous(t[0].split_heads(3)); }, {&x}, "heads");
    expect_same_of([](const auto& t) { return merge_heads(t[0].split_heads(3)); }, {&x}, "merged");
    const Both samples = drawn({3, 11, 24}, GetParam(), 2);
    expect_same_of([](const auto& t) { return split_heads(t[0].col_range(4, 12), 4); }, {&samples},
                   "heads of samples");
    expect_same_of([](const auto& t) { return merge_heads(t[0].col_range(1, 7), 3); }, {&samples},
                   "merged samples");
    expect_same_of([](const auto& t) { return transpose(t[0]); }, {&x}, "transposed");
    expect_same_of([](const auto& t) { return cast(t[0], Type::f64); }, {&x}, "cast");
    const std::vector<Index> rows = {3, 3, 0, 10};
    expect_same_of([&](const auto& t) { return gather_rows(t[0], rows); }, {&x}, "gathered");
    expect_same_of([&](const auto& t) { return scatter_add_rows(t[0].row_range(0, 4), rows, 11); },
                   {&x}, "scattered");
    expect_same_of(
        [&](const auto& t) {
            return concat_rows({t[0].row_range(2, 3), t[0]});
        },
        {&x}, "joined");
}

TEST_P(EveryKernel, Rotation) {
    const Both x = drawn({3, 9, 14}, GetParam(), 1);
    std::vector<double> position(9);
    for (std::size_t i = 0; i < position.size(); ++i) position[i] = 100.0 * double(i);
    const std::vector<double> frequency = {1, 0.1, 0.01, 0.001, 0.0001};
    for (const bool interleaved : {false, true})
        expect_same_of(
            [&](const auto& t) { return rotate(t[0], position, frequency, interleaved); }, {&x},
            interleaved ? "interleaved" : "halves");
}

std::vector<Visible> visibles(Index rows, Index cols) {
    Visible causal, window, some;
    for (Index i = 0; i < rows; ++i) {
        causal.first.push_back(0), causal.last.push_back(std::min(cols, i + 5));
        window.first.push_back(std::max<Index>(0, i - 2)),
            window.last.push_back(std::min(cols, i + 3));
        some.first.push_back(i % 3 == 0 ? 4 : 0), some.last.push_back(i % 3 == 0 ? 4 : cols);
    }
    return {Visible(), causal, window, some};
}

TEST_P(EveryKernel, SoftmaxAndHiding) {
    for (const Index cols : {7, 300, 1100})
        for (const Visible& visible : visibles(4, cols)) {
            const Both s = drawn({2, 4, cols}, GetParam(), 1, 4);
            const auto fresh = [](const Tensor& t) { return affine(t, 1, 0); };
            expect_same_of([&](const auto& t) { return softmax_rows(fresh(t[0]), visible); }, {&s},
                           "softmax");
            expect_same_of([&](const auto& t) { return hide(fresh(t[0]), visible); }, {&s}, "hide");
        }
}

void expect_same_totals(const RowStatistics& a, const RowStatistics& b, double allowed) {
    EXPECT_TRUE(a.folded);
    expect_near(a.sum, b.sum, allowed, "sum farthest from 1");
    expect_near(a.modulus, b.modulus, allowed, "all moduli");
    expect_near(a.negative, b.negative, allowed, "all negative");
    expect_near(a.squares, b.squares, allowed, "all squares");
    expect_near(a.entropy, b.entropy, allowed, "all entropies");
    expect_near(a.max_modulus, b.max_modulus, allowed, "all largest");
    expect_near(a.diagonal, b.diagonal, allowed, "diagonal");
    expect_near(a.jacobian, b.jacobian, allowed, "all Jacobians");
    expect_near(a.jacobian_max, b.jacobian_max, allowed, "largest of Jacobians");
    expect_near(a.window, b.window, allowed, "window");
}

TEST_P(EveryKernel, StatisticsOfRows) {
    const Index n = 41, first = 5;
    const double allowed = GetParam() == Type::f32 ? 1e-5 : 1e-12;
    for (const Visible& visible : visibles(4, n))
        for (const int kind : {0, 1, 2}) {  // divided with slope; slope alone; no slope
            Both p = drawn({2, 4, n}, GetParam(), 1);
            const Both slope = drawn({2, 4, n}, GetParam(), 2);
            if (kind == 0)
                p = {softmax_rows(affine(p.host, 3, 0), visible),
                     softmax_rows(affine(p.device, 3, 0), visible)};
            else
                p = {hide(affine(p.host, 1, 0), visible), hide(affine(p.device, 1, 0), visible)};
            const auto of = [&](const Tensor& t, const Tensor& g) {
                return row_statistics(t,
                                      kind == 2   ? Tensor()
                                      : kind == 0 ? t
                                                  : g,
                                      kind == 0, first, visible);
            };
            const RowStatistics a = of(p.device, slope.device), b = of(p.host, slope.host);
            expect_near(a.sum, b.sum, allowed, "sum");
            expect_near(a.modulus, b.modulus, allowed, "modulus");
            expect_near(a.negative, b.negative, allowed, "negative");
            expect_near(a.squares, b.squares, allowed, "squares");
            expect_near(a.entropy, b.entropy, allowed, "entropy");
            expect_near(a.max_modulus, b.max_modulus, allowed, "max_modulus");
            expect_near(a.diagonal, b.diagonal, allowed, "diagonal");
            expect_near(a.jacobian, b.jacobian, allowed, "jacobian");
            expect_near(a.jacobian_max, b.jacobian_max, allowed, "jacobian_max");
            expect_near(a.window, b.window, allowed, "window");
            const auto totals = [&](const Tensor& t, const Tensor& g) {
                return t.backend()
                    .row_totals(t.view(),
                                kind == 2   ? nullptr
                                : kind == 0 ? &t.view()
                                            : &g.view(),
                                kind == 0, first, visible)
                    .get();
            };
            expect_same_totals(totals(p.device, slope.device), fold(b), allowed);
            expect_same_totals(totals(p.host, slope.host), fold(b), allowed);
        }
}

TEST_P(EveryKernel, MomentsOfStates) {
    const Both x = drawn({1, 70, 33}, GetParam(), 1);
    const StateMoments a = state_moments(x.device), b = state_moments(x.host);
    // The host divides each row once by its length, the device each entry: rounding in double.
    for (const auto& [found, expected] : {std::pair{a.squared, b.squared},
                                          {a.mean_part, b.mean_part},
                                          {a.centred, b.centred},
                                          {a.unit_sum, b.unit_sum}})
        EXPECT_NEAR(found, expected, 1e-12 * expected);
    EXPECT_FALSE(a.zero_row);
    const Both zero = {affine(x.host, 0), affine(x.device, 0)};
    EXPECT_TRUE(state_moments(zero.device).zero_row);
}

TEST_P(EveryKernel, SumsOverMoreRowsThanAChunk) {
    const Both x = drawn({2, 150, 33}, GetParam(), 1);
    const double allowed = GetParam() == Type::f32 ? 1e-5 : 1e-12;
    const auto statistics = [](const Tensor& p) {
        return row_statistics(p, Tensor(), false, 0, Visible());
    };
    expect_near(statistics(x.device).window, statistics(x.host).window, allowed, "window");
    expect_same_totals(
        x.device.backend().row_totals(x.device.view(), nullptr, false, 0, Visible()).get(),
        fold(statistics(x.host)), allowed);
}

TEST_P(EveryKernel, ASumThatIsNaNIsTheFarthest) {
    for (const Index bad : {0, 40, 149}) {
        std::vector<double> values(150 * 20, 0.05);
        values[std::size_t(bad * 20 + 3)] = std::numeric_limits<double>::quiet_NaN();
        const Tensor p =
            Tensor::from_host(device(), {1, 150, 20}, std::span<const double>(values), GetParam());
        EXPECT_TRUE(std::isnan(
            p.backend().row_totals(p.view(), nullptr, false, 0, Visible()).get().sum.front()))
            << bad;
    }
}

TEST_P(EveryKernel, ProductsWithVectors) {
    const Both a = drawn({2, 150, 37}, GetParam(), 1), x = drawn({2, 30, 1}, Type::f64, 2),
               y = drawn({2, 150, 1}, Type::f64, 3);
    expect_same_of([](const auto& t) { return matvec(t[0].col_range(4, 30), t[1]); }, {&a, &x},
                   "a x");
    expect_same_of([](const auto& t) { return matvec(t[0], t[1], true); }, {&a, &y}, "a^T y");
}

TEST_P(EveryKernel, ProductsOfKrylovIterations) {
    // Rows of a lane of 4, 16 and 32 columns, and longer ones; of parts of wider tensors.
    for (const auto& [m, n] :
         {std::pair<Index, Index>{5, 5}, {70, 41}, {33, 300}, {40, 900}, {37, 1100}}) {
        const std::string what = std::to_string(m) + " x " + std::to_string(n);
        const Both a = drawn({2, m, n + 3}, GetParam(), 1),
                   vectors = drawn({2, 2, n + 2}, Type::f64, 2);
        const auto parts = [n = n](const Tensor& whole, const Tensor& v) {
            return std::tuple{whole.col_range(3, n), v.row_range(0, 1).col_range(2, n),
                              v.row_range(1, 1).col_range(2, n)};
        };
        const auto [p, x, u] = parts(a.host, vectors.host);
        const auto as_column = [n = n](const Tensor& v) {
            return contiguous(v).reshape({2, n, 1});
        };
        const Tensor y = matvec(p, as_column(x)), v = subtract_column_mean(matvec(p, as_column(u)));
        const Tensor z = matvec(p, v, true);
        const auto [q, x1, u1] = parts(a.device, vectors.device);
        const Tensor ones = affine(zeros(device(), {2, m, 1}, Type::f64), 0, 1);
        const Tensor column = matvec(q, ones, true).reshape({2, 1, n});
        for (const bool both : {true, false}) {
            const Tensor y1 = Tensor::empty(device(), {2, 1, m}, Type::f64),
                         z1 = Tensor::empty(device(), {2, 1, n}, Type::f64);
            const View to_y = y1.view(), to_z = z1.view();
            device().krylov_products(&to_y, both ? &to_z : nullptr, q.view(), x1.view(), u1.view(),
                                     column.view());
            if (!both)
                device().krylov_products(nullptr, &to_z, q.view(), x1.view(), u1.view(),
                                         column.view());
            // Rounding of sums of float64, the entries of a being exact.
            expect_near(y1.to_host<double>(), y.to_host<double>(), 1e-12, what + ": a x");
            expect_near(z1.to_host<double>(), z.to_host<double>(), 1e-11, what + ": a^T v");
        }
    }
}

TEST_P(EveryKernel, SurveysOfMatrices) {
    for (const Backend* backend : {&device(), &cpu()}) {
        constexpr Index m = 7, n = 70;
        std::vector<double> values(4 * m * n, 0.5);  // of 2 and 3 an entry differs, of 1 a column
        values[2 * m * n - 1] = 0, values[3 * m * n - n] = 0.25;
        for (Index r = 0; r < m; ++r) values[std::size_t(r * n + 3)] = r % 2 == 0 ? 0.0 : -0.0;
        const Tensor a =
            Tensor::from_host(*backend, {4, m, n}, std::span<const double>(values), GetParam());
        const auto found = backend->survey(a.view()).get(),
                   inner = backend->survey(a.col_range(1, n - 2).view()).get();
        const double half = 0.25 * m * n;
        const double squares[] = {half - 0.25 * m, half - 0.25, half - 0.25 + 0.0625, half};
        for (std::size_t b = 0; b < 4; ++b) {
            EXPECT_EQ(found[b].squares, squares[b]) << b;  // exact: sums of multiples of 1/16
            EXPECT_EQ(found[b].has_zero, b < 2) << b;
            EXPECT_EQ(found[b].equal_rows, b == 0 || b == 3) << b;
            EXPECT_EQ(inner[b].has_zero, b == 0) << b;
            EXPECT_TRUE(inner[b].equal_rows) << b;
        }
    }
    // Large enough for several blocks.
    const Both a = drawn({2, 150, 90}, GetParam(), 1);
    const auto found = device().survey(a.device.view()).get(),
               expected = cpu().survey(a.host.view()).get();
    for (std::size_t b = 0; b < 2; ++b) {
        EXPECT_NEAR(found[b].squares, expected[b].squares, 1e-12 * expected[b].squares);
        EXPECT_FALSE(found[b].has_zero || found[b].equal_rows);
    }
}

TEST(KrylovBases, AreOrthonormalAndReproduceTheirImages) {
    std::string why;
    if (gpu::count_devices(why) == 0) GTEST_SKIP() << why;
    constexpr Index n = 70, capacity = 12, bases = 3;
    const Tensor rows = zeros(device(), {bases, capacity, n}, Type::f64);
    for (Index k = 0; k < 9; ++k) {
        std::vector<double> images(bases * n);
        Rng(5, std::uint64_t(k)).fill_normal(std::span<double>(images), 0.3, 1);
        const std::vector<double> before = rows.to_host<double>();
        const auto row = [&](const std::vector<double>& of, Index b, Index i) {
            return std::span(of).subspan(std::size_t((b * capacity + i) * n), n);
        };
        if (k == 5)  // nothing new: a row of the basis, all equal ones
            std::ranges::copy(row(before, 0, 2), images.begin()),
                std::fill_n(images.begin() + 2 * n, n, 7.0);
        const Tensor image = Tensor::from_host(device(), {bases, 1, n},
                                               std::span<const double>(images), Type::f64),
                     column = zeros(device(), {bases, 2, k + 1}, Type::f64);
        device().extend_basis(rows.row_range(0, k + 1).view(), column.row_range(1, 1).view(),
                              image.view(), 0);
        const std::vector<double> after = rows.to_host<double>(), found = column.to_host<double>();
        for (Index b = 0; b < bases; ++b) {
            const double* numbers = found.data() + (2 * b + 1) * (k + 1);
            for (Index j = 0; j < n; ++j) {
                double sum = numbers[k] * row(after, b, k)[std::size_t(j)];
                for (Index i = 0; i < k; ++i) sum += numbers[i] * row(after, b, i)[std::size_t(j)];
                EXPECT_NEAR(sum, images[std::size_t(b * n + j)], 1e-13 * 20) << b << ", " << k;
            }
            const bool nothing = k == 5 && b == 0;
            EXPECT_EQ(numbers[k] == 0, nothing);
            for (Index i = 0; i <= k; ++i) {
                double dot = 0;
                for (Index j = 0; j < n; ++j)
                    dot += row(after, b, i)[std::size_t(j)] * row(after, b, k)[std::size_t(j)];
                EXPECT_NEAR(dot, i == k && !nothing ? 1 : 0, 1e-14) << b << ", " << i << ", " << k;
            }
        }
    }
    // The first of these are centred; equal entries then leave nothing.
    std::vector<double> images(bases * n, 0.1);
    for (Index j = 0; j < n; ++j) images[std::size_t(n + j)] += double(j);
    const Tensor image = Tensor::from_host(device(), {bases, 1, n}, std::span<const double>(images),
                                           Type::f64),
                 first = zeros(device(), {bases, 1, n}, Type::f64),
                 column = zeros(device(), {bases, 1, 1}, Type::f64);
    device().extend_basis(first.view(), column.view(), image.view(), 2);
    const std::vector<double> found = column.to_host<double>(), row = first.to_host<double>();
    EXPECT_EQ(found[0], 0);
    EXPECT_NEAR(found[1], std::sqrt(n * (n * n - 1.0) / 12), 1e-11);
    EXPECT_NEAR(found[2], 0.1 * std::sqrt(double(n)), 1e-14);
    EXPECT_NEAR(row[n], -row[2 * n - 1], 1e-15);
    // As many vectors as there are dimensions leave no room.
    const Tensor full = zeros(device(), {1, 3, 2}, Type::f64),
                 all = zeros(device(), {1, 1, 3}, Type::f64);
    for (Index k = 0; k < 3; ++k) {
        const std::vector<double> next = {1.0 + double(k), 2.0 - double(k * k)};
        const Tensor w =
            Tensor::from_host(device(), {1, 1, 2}, std::span<const double>(next), Type::f64);
        device().extend_basis(full.row_range(0, k + 1).view(), all.col_range(0, k + 1).view(),
                              w.view(), 0);
        EXPECT_EQ(all.to_host<double>()[std::size_t(k)] > 0, k < 2);
    }
}

TEST_P(EveryKernel, DrawsTheSameStream) {
    for (const Index count : {1, 7, 900}) {
        const auto of = [&](const Backend& backend, Law law) {
            return random_tensor(backend, {1, 1, count}, GetParam(), law,
                                 Rng(7, std::uint64_t{5} << 40), -0.5, 2)
                .to_host<double>();
        };
        EXPECT_EQ(of(device(), Law::uniform), of(cpu(), Law::uniform));  // only exact operations
        // The logarithm and the cosine round differently.
        expect_near(of(device(), Law::normal), of(cpu(), Law::normal),
                    GetParam() == Type::f32 ? 2e-7 : 1e-14, "normal");
    }
}

TEST_P(EveryKernel, StepsOfAdamW) {
    Both w = drawn({1, 7, 41}, GetParam(), 1), m = drawn({1, 7, 41}, GetParam(), 2),
         v = drawn({1, 7, 41}, GetParam(), 3);
    const Both g = drawn({1, 7, 41}, GetParam(), 4);
    v = {map(Unary::square, v.host), map(Unary::square, v.device)};
    const AdamWStep step{.beta1 = 0.9,
                         .beta2 = 0.99,
                         .eps = 1e-8,
                         .factor = 0.3,
                         .rate = 0.1,
                         .unbias = 1.5,
                         .shrink = 0.98};
    const auto update = [&](Tensor Both::*on) {
        return AdamWUpdate{(w.*on).view(), (m.*on).view(), (v.*on).view(), (g.*on).view(), step};
    };
    const AdamWUpdate host[] = {update(&Both::host)}, on_device[] = {update(&Both::device)};
    cpu().adamw(host);
    device().adamw(on_device);
    expect_same(w.device, w.host, "w");
    expect_same(m.device, m.host, "m");
    expect_same(v.device, v.host, "v");
}

TEST_P(EveryKernel, DerivativesInOnePass) {
    const Both x = drawn({3, 9, 41}, GetParam(), 1), g = drawn({3, 9, 41}, GetParam(), 2),
               w = drawn({1, 1, 41}, GetParam(), 3), b = drawn({1, 1, 41}, GetParam(), 4);
    const auto same = [](const auto& f, std::initializer_list<const Both*> operands, std::size_t of,
                         const std::string& what) {
        expect_same_of(
            [&](const std::vector<Tensor>& given) {
                std::vector<Tensor> t = given;
                t[of] = variable(t[of]);
                const Tensor y = f(t);
                return grad(y, given.back(), std::span(&t[of], 1)).front();
            },
            operands, what);
    };
    for (int op = 0; op <= int(Unary::normal_cdf); ++op)
        same(
            [op](const auto& t) {
                const bool positive = Unary(op) == Unary::sqrt || Unary(op) == Unary::reciprocal ||
                                      Unary(op) == Unary::log;
                return map(Unary(op), positive ? affine(multiply(t[0], t[0]), 1, 0.5) : t[0]);
            },
            {&x, &g}, 0, "unary " + std::to_string(op));
    Visible causal;
    for (Index i = 0; i < 9; ++i) causal.first.push_back(0), causal.last.push_back(i + 5);
    same([&](const auto& t) { return softmax_rows(t[0], causal); }, {&x, &g}, 0, "softmax");
    for (const std::size_t of : {0U, 1U, 2U})
        same([](const auto& t) { return layer_norm(t[0], t[1], t[2], 1e-5); }, {&x, &w, &b, &g}, of,
             "layer norm by operand " + std::to_string(of));
    for (const std::size_t of : {0U, 1U})
        same([](const auto& t) { return rms_norm(t[0], t[1], 1e-5); }, {&x, &w, &g}, of,
             "rms norm by operand " + std::to_string(of));
    same([](const auto& t) { return layer_norm(t[0], {}, {}, 1e-5); }, {&x, &g}, 0,
         "layer norm without weight");
}

TEST_P(EveryKernel, ProductsWithWhatFollows) {
    const Both x = drawn({3, 7, 12}, GetParam(), 1), w = drawn({10, 12, 1}, GetParam(), 2),
               b = drawn({1, 1, 10}, GetParam(), 3), y = drawn({3, 7, 10}, GetParam(), 4);
    const auto weight = [](const Tensor& t) { return t.reshape({1, 10, 12}); };
    expect_same_of([&](const auto& t) { return linear_map(t[0], weight(t[1]), t[2], Unary::gelu); },
                   {&x, &w, &b}, "bias and activation");
    expect_same_of(
        [&](const auto& t) { return linear_map(t[0], weight(t[1]), {}, Unary::copy, t[2]); },
        {&x, &w, &y}, "sum");
    expect_same_of(
        [&](const auto& t) { return linear_map(t[0], weight(t[1]), t[2], Unary::silu, t[3]); },
        {&x, &w, &b, &y}, "all");
    expect_same_of([&](const auto& t) { return linear_heads(t[0], weight(t[1]), t[2], 5); },
                   {&x, &w, &b}, "heads");
    const Both heads = drawn({15, 7, 2}, GetParam(), 5);
    for (const std::size_t of : {0U, 1U, 2U})
        expect_same_of(
            [&](const std::vector<Tensor>& given) {
                std::vector<Tensor> t = given;
                t[1] = weight(t[1]);
                t[of] = variable(t[of]);
                const Tensor h = linear_heads(t[0], t[1], t[2], 5);
                return grad(h, given[3], std::span(&t[of], 1)).front();
            },
            {&x, &w, &b, &heads}, "heads by operand " + std::to_string(of));
}

/// Derivatives by each operand but the last, the cotangent.
template <class F>
void expect_same_derivatives(const F& f, std::initializer_list<const Both*> operands,
                             const std::string& what) {
    for (std::size_t of = 0; of + 1 < operands.size(); ++of)
        expect_same_of(
            [&](const std::vector<Tensor>& given) {
                std::vector<Tensor> t = given;
                t[of] = variable(t[of]);
                return grad(f(t), given.back(), std::span(&t[of], 1)).front();
            },
            operands, what + " by operand " + std::to_string(of));
}

/// How often the emulated device was asked for it.
std::size_t requests_of(const std::string& name) {
    const auto counts = gpu::requests();
    const auto at = counts.find(name);
    return at == counts.end() ? 0 : std::size_t(at->second.count);
}

TEST_P(EveryKernel, MapsOfOneInput) {
    const Type type = GetParam();
    for (const Index samples : {1, 3})
        for (const bool biased : {true, false}) {
            const Both x = drawn({samples, 7, 12}, type, 1), q = drawn({1, 8, 12}, type, 2),
                       k = drawn({1, 4, 12}, type, 3), v = drawn({1, 4, 12}, type, 4),
                       a = drawn({1, 1, 8}, type, 5), b = drawn({1, 1, 4}, type, 6),
                       c = drawn({1, 1, 4}, type, 7);
            const auto each = [&](const std::vector<Tensor>& t) {
                std::vector<Tensor> w(t.begin() + 1, t.begin() + 4),
                    s(t.begin() + 4, t.begin() + 7);
                const bool tracked =
                    std::ranges::any_of(t, [](const auto& one) { return one.tracked(); });
                if (!tracked) w = adjacent(w), s = adjacent(s);
                if (!biased) s = {{}, {}, {}};
                return linear_heads(
                    t[0], std::vector<HeadsMap>{{w[0], s[0], 4}, {w[1], s[1], 2}, {w[2], s[2], 2}});
            };
            const auto heads = [&](const std::vector<Tensor>& t) {
                return concat_batches(each(t));
            };
            const std::string what =
                std::to_string(samples) + " samples, bias " + std::to_string(int(biased));
            expect_same_of(heads, {&x, &q, &k, &v, &a, &b, &c}, what);
            // The weights of the device are adjacent before they are tracked.
            std::vector<Both> all{x, q, k, v, a, b, c};
            for (const std::size_t from : {1U, 4U}) {
                const auto own = adjacent(
                    std::vector{all[from].device, all[from + 1].device, all[from + 2].device});
                for (std::size_t i = 0; i < 3; ++i) all[from + i].device = own[i];
            }
            const Both g = drawn({8 * samples, 7, 2}, type, 8);
            const auto before = requests_of("product float32");
            expect_same_derivatives(
                heads, {&all[0], &all[1], &all[2], &all[3], &all[4], &all[5], &all[6], &g}, what);
            // Forward one, for the input one, for each weight one of all weights.
            if (gpu::emulated && type == Type::f32) {
                EXPECT_EQ(requests_of("product float32") - before, 7U + 4U) << what;
            }
            // Cotangents of q, k and v that lie apart are not joined before their heads are merged:
            // what is copied is the three results, once forward for each operand.
            const auto squares = [&](const std::vector<Tensor>& t) {
                std::vector<Tensor> parts = each(t);
                for (Tensor& part : parts) part = map(Unary::square, part);
                return concat_batches(parts);
            };
            const auto merged = requests_of("merge_kernel"), copied = requests_of("copy_kernel");
            expect_same_derivatives(
                squares, {&all[0], &all[1], &all[2], &all[3], &all[4], &all[5], &all[6], &g},
                what + ", squares");
            if (gpu::emulated && (samples > 1 || biased)) {
                EXPECT_EQ(requests_of("merge_kernel") - merged, biased ? 7U : 4U) << what;
                EXPECT_EQ(requests_of("copy_kernel") - copied, 7U) << what;
            }
        }
}

TEST_P(EveryKernel, SumsWithTheirNorms) {
    const Type type = GetParam();
    const Both x = drawn({3, 7, 12}, type, 1), w = drawn({1, 10, 12}, type, 2),
               b = drawn({1, 1, 10}, type, 3), y = drawn({3, 7, 10}, type, 4),
               u = drawn({1, 1, 10}, type, 5), s = drawn({1, 1, 10}, type, 6),
               g = drawn({3, 7, 10}, type, 7);
    for (const bool centre : {true, false})
        for (Tensor LinearSum::*part : {&LinearSum::branch, &LinearSum::sum, &LinearSum::normed}) {
            const auto found = [=](const auto& t) {
                const RowNorm norm{t[4], centre ? t[5] : Tensor(), 1e-5, centre};
                return linear_sum(t[0], t[1], t[2], t[3], &norm).*part;
            };
            const std::string what = "centre " + std::to_string(int(centre));
            expect_same_of(found, {&x, &w, &b, &y, &u, &s}, what);
            if (part != &LinearSum::normed) continue;
            expect_same_derivatives(found, {&x, &w, &b, &y, &u, &s, &g}, what);
        }
    // A state that is read beside its norm: its other cotangent is added by the norm's kernel.
    for (const bool centre : {true, false}) {
        const auto found = [=](const auto& t) {
            const RowNorm norm{t[4], centre ? t[5] : Tensor(), 1e-5, centre};
            const LinearSum all = linear_sum(t[0], t[1], t[2], t[3], &norm);
            return add(all.sum, all.normed);
        };
        const std::size_t before = requests_of("binary_kernel");
        expect_same_derivatives(found, {&x, &w, &b, &y, &u, &s, &g},
                                "beside its norm, centre " + std::to_string(int(centre)));
        if (gpu::emulated) {
            EXPECT_EQ(requests_of("binary_kernel") - before, 6U) << "forward alone";
        }
        const auto again = [=](const auto& t) {  // the cotangent of the norm itself is wanted, too
            const Tensor v = layer_norm(t[0], t[1], centre ? t[2] : Tensor(), 1e-5);
            return multiply(add(t[0], v), v);
        };
        const Both z = drawn({3, 7, 10}, type, 8);
        expect_same_derivatives(again, {&z, &u, &s, &g}, "a product with its norm");
    }
    expect_same_of([](const auto& t) { return linear_sum(t[0], t[1], {}, t[2], nullptr).sum; },
                   {&x, &w, &y}, "without bias and norm");
    for (const Unary op : {Unary::copy, Unary::gelu, Unary::tanh})
        expect_same_derivatives([op](const auto& t) { return linear_map(t[0], t[1], t[2], op); },
                                {&x, &w, &b, &g}, "map " + std::to_string(int(op)));
}

TEST_P(EveryKernel, ConcatenatesAtOnce) {
    const Type type = GetParam();
    const Both x = drawn({2, 5, 6}, type, 1), y = drawn({2, 5, 6}, type, 2),
               z = drawn({2, 5, 9}, type, 3), g = drawn({2, 5, 9}, type, 4),
               h = drawn({2, 5, 8}, type, 5);
    const auto parts = [](const auto& t) {
        return std::vector<Tensor>{t[0].col_range(1, 3), t[1]};
    };
    expect_same_of([&](const auto& t) { return concat_cols(parts(t)); }, {&x, &y}, "columns");
    expect_same_of([](const auto& t) { return concat_rows({t[0], t[1]}); }, {&x, &y}, "rows");
    expect_same_of([](const auto& t) { return repeat_batches(t[0], 3); }, {&x}, "repeated");
    expect_same_derivatives([&](const auto& t) { return concat_cols(parts(t)); }, {&x, &y, &g},
                            "columns");
    // Parts of nine columns that fill them, overlap in them, or leave a gap.
    for (const auto& [first, count] : {std::pair<Index, Index>{4, 5}, {3, 6}, {5, 4}, {2, 5}})
        expect_same_derivatives(
            [first, count](const auto& t) {
                return concat_cols(
                           std::vector<Tensor>{t[0].col_range(0, 4), t[0].col_range(first, count)})
                    .col_range(0, 8);
            },
            {&z, &h}, "parts");
}

TEST_P(EveryKernel, FillsAndRearranges) {
    const Both x = drawn({2, 70, 45}, GetParam(), 1), row = drawn({1, 1, 45}, GetParam(), 2),
               column = drawn({2, 70, 1}, GetParam(), 3), tall = drawn({2, 333, 45}, GetParam(), 4);
    expect_same_of([](const auto& t) { return transpose(t[0]); }, {&x}, "transpose");
    expect_same_of([](const auto& t) { return transpose(t[0].row_range(3, 61).col_range(2, 33)); },
                   {&x}, "transpose of a part");
    for (const Both* a : {&row, &column})
        expect_same_of([](const auto& t) { return expand(t[0], {2, 70, 45}); }, {a}, "expand");
    expect_same_of([](const auto& t) { return column_sum(t[0]); }, {&tall}, "column sum");
    for (const double value : {0.0, 3.0}) {
        const Tensor out = Tensor::empty(device(), {2, 9, 7}, GetParam());
        device().fill(out.view(), 1);
        device().fill(out.row_range(2, 3).view(), value);
        const std::vector<double> found = out.to_host<double>();
        for (Index i = 0; i < 126; ++i) {
            const Index r = i / 7 % 9;
            EXPECT_EQ(found[std::size_t(i)], r >= 2 && r < 5 ? value : 1) << i;
        }
    }
}

TEST_P(EveryKernel, RowsThatSeeAnyRange) {
    const Both x = drawn({2, 33, 37}, GetParam(), 1);
    for (const Index step : {0, 1, 3, 7}) {  // arrays from 3 on
        Visible v;
        for (Index i = 0; i < 33; ++i) {
            v.first.push_back(std::max<Index>(0, step * i / 2 - 4) / 3);
            v.last.push_back(std::min<Index>(37, v.first.back() + 2 + step * i));
        }
        expect_same_of([&](const auto& t) { return softmax_rows(t[0], v); }, {&x},
                       "softmax " + std::to_string(step));
        expect_same_of([&](const auto& t) { return hide(t[0], v); }, {&x}, "hide");
    }
}

TEST_P(EveryKernel, NumbersOfSeveralTensorsInOneCopy) {
    const std::vector<Both> x = {drawn({3, 70, 33}, GetParam(), 1),
                                 drawn({1, 70, 33}, GetParam(), 2),
                                 drawn({2, 300, 5}, GetParam(), 3)};
    std::vector<Tensor> host, on_device;
    for (const Both& b : x) {
        host.push_back(b.host);
        on_device.push_back(b.device);
    }
    const auto ask = [&] {
        return std::tuple(
            state_moments_later(on_device), first_nonfinite_later(on_device),
            device().squared_norms(std::vector{x[0].device.view(), x[2].device.view()}));
    };
    std::get<0>(ask()).get();  // memory for so many numbers is made when they have been read once
    const std::size_t before = gpu::requests()["download"].count;
    auto [moments, finite, norms] = ask();
    const std::vector<StateMoments>& found = moments.get();
    for (const Index at : finite.get()) EXPECT_EQ(at, -1);
    EXPECT_NEAR(norms.get()[1], double(squared_norm(x[2].host)), 1e-12 * norms.get()[1]);
    EXPECT_NEAR(norms.get()[0], double(squared_norm(x[0].host)), 1e-12 * norms.get()[0]);
    if (gpu::emulated && GetParam() == Type::f32) {  // float64 is also examined for overflow
        EXPECT_EQ(gpu::requests()["download"].count, before + 1);
    }
    ASSERT_EQ(found.size(), 6U);
    std::size_t k = 0;
    for (const Tensor& t : host)
        for (Index b = 0; b < t.batch(); ++b, ++k) {
            const StateMoments expected = state_moments(t.batch_range(b, 1));
            EXPECT_EQ(found[k].n, expected.n);
            EXPECT_NEAR(found[k].squared, expected.squared, 1e-12 * expected.squared);
            EXPECT_NEAR(found[k].mean_part, expected.mean_part, 1e-12 * expected.mean_part);
            EXPECT_NEAR(found[k].centred, expected.centred, 1e-12 * expected.centred);
            EXPECT_NEAR(found[k].unit_sum, expected.unit_sum, 1e-12 * expected.unit_sum);
            EXPECT_NEAR(found[k].least_row, expected.least_row, 1e-12 * expected.least_row);
        }
}

/// Tokens that differ little, all of them or all but the first, from which the sums start.
TEST(Moments, OfNearlyEqualTokensAreExact) {
    std::string why;
    if (gpu::count_devices(why) == 0) GTEST_SKIP() << why;
    const Index n = 100, d = 20;
    for (const double outlier : {0.0, 1000.0}) {
        std::vector<double> values(std::size_t(n * d));
        for (Index i = 0; i < n; ++i)
            for (Index j = 0; j < d; ++j)
                values[std::size_t(i * d + j)] =
                    3 + 1e-9 * std::sin(double(7 * i + j)) + (i == 0 ? outlier : 0);
        Wide expected = 0;
        for (Index j = 0; j < d; ++j) {
            Wide mean = 0;
            for (Index i = 0; i < n; ++i) mean += values[std::size_t(i * d + j)] / Wide(n);
            for (Index i = 0; i < n; ++i) {
                const Wide c = values[std::size_t(i * d + j)] - mean;
                expected += c * c;
            }
        }
        const Tensor x =
            Tensor::from_host(device(), {1, n, d}, std::span<const double>(values), Type::f64);
        EXPECT_NEAR(double(state_moments(x).centred), double(expected), 1e-12 * double(expected));
    }
}

TEST_P(EveryKernel, SquaresAndTraces) {
    const Both a = drawn({3, 41, 41}, GetParam(), 1);
    auto found = device().squares_and_traces(a.device.view()),
         expected = cpu().squares_and_traces(a.host.view());
    expect_near(found.get(), expected.get(), 1e-12, "squares and traces");
}

/// Sums of a pair are in the order of the CPU's.
TEST_P(EveryKernel, DistancesOfRowsAreThoseOfTheCpuToTheLastBit) {
    for (const Index rows : {1, 2, 31, 33, 70})
        for (const Index cols : {1, 3, 4, 31, 33, 67}) {
            const Both a = drawn({3, rows, cols}, GetParam(), 1);
            EXPECT_EQ(device().row_distances(a.device.view()).get(),
                      cpu().row_distances(a.host.view()).get())
                << rows << " x " << cols;
            if (cols <= 4 || rows <= 2) continue;
            const auto inner = [&](const Tensor& x) {
                const Tensor part = x.col_range(1, cols - 2).row_range(1, rows - 1);
                return part.backend().row_distances(part.view()).get();
            };
            EXPECT_EQ(inner(a.device), inner(a.host)) << rows << " x " << cols;
        }
    const Tensor equal = affine(zeros(device(), {2, 40, 9}, GetParam()), 0, 3);
    EXPECT_EQ(device().row_distances(equal.view()).get(), std::vector<double>(2, 0.0));
}

TEST_P(EveryKernel, ElementsAreCopiedWithOtherNumbers) {
    for (const Index cols : {1, 4, 7}) {
        const Both a = drawn({3, 5, cols}, GetParam(), 1), b = drawn({2, 1, 3}, GetParam(), 2);
        const Tensor part = a.device.row_range(1, 3);
        const auto ask = [&] {
            return std::tuple(to_host_later(part), to_host_later(b.device),
                              device().squared_norms(std::vector{b.device.view()}));
        };
        std::get<0>(ask()).get();  // as above
        const std::size_t before = gpu::requests()["download"].count;
        auto [some, all, norms] = ask();
        EXPECT_EQ(some.get(), a.host.row_range(1, 3).to_host<double>()) << cols;
        EXPECT_EQ(all.get(), b.host.to_host<double>()) << cols;
        EXPECT_NEAR(norms.get()[0], double(squared_norm(b.host)), 1e-12 * norms.get()[0]);
        if (gpu::emulated) {
            EXPECT_EQ(gpu::requests()["download"].count, before + 1);
        }
        EXPECT_EQ(to_host_later(a.host.row_range(1, 3)).get(), some.get());
    }
    EXPECT_TRUE(to_host_later(zeros(device(), {0, 2, 3}, GetParam())).get().empty());
}

TEST(SymmetricEigenvalues, OfAStackAreThoseOfTheCpu) {
    std::string why;
    if (gpu::count_devices(why) == 0) GTEST_SKIP() << why;
    for (const Index n : {1, 2, 3, 5, 32, 65, 130})
        for (const double scale : {1.0, 0x1p-400, 0x1p400}) {
            const auto size = std::size_t(n * n);
            std::vector<double> all(4 * size, 0.0);  // any, diagonal, of rank one, 0
            Rng(3, std::uint64_t(n)).fill_normal(std::span<double>(all).first(size), 0, 1);
            for (Index i = 0; i < n; ++i)
                for (Index j = 0; j <= i; ++j) {
                    const auto at = std::size_t(i * n + j), across = std::size_t(j * n + i);
                    all[at] = all[across] = scale * all[at];
                    all[2 * size + at] = all[2 * size + across] = scale;
                    if (i == j) all[size + at] = scale * double(i % 3);
                }
            const auto on = [&](const Backend& backend) {
                return Tensor::from_host(backend, {4, n, n}, std::span<const double>(all),
                                         Type::f64);
            };
            const auto found = symmetric_eigenvalues(on(device())),
                       expected = symmetric_eigenvalues(on(cpu()));
            ASSERT_EQ(found.size(), 4);
            for (std::size_t b = 0; b < 4; ++b) {
                const auto one = std::span(all).subspan(b * size, size);
                EXPECT_EQ(expected[b], symmetric_eigenvalues(one, n)) << b;
                double norm = 0;
                for (const double e : one) norm = std::hypot(norm, e);
                ASSERT_EQ(found[b].size(), std::size_t(n));
                for (std::size_t i = 0; i < std::size_t(n); ++i)
                    EXPECT_NEAR(found[b][i], expected[b][i],
                                double(n) * std::numeric_limits<double>::epsilon() * norm)
                        << b << ", n = " << n;
            }
        }
}

TEST(SymmetricEigenvalues, OfAMatrixThatIsNotFiniteAreNone) {
    std::string why;
    if (gpu::count_devices(why) == 0) GTEST_SKIP() << why;
    std::vector<double> all(3 * 9, 0.0);
    for (std::size_t i = 0; i < 27; i += 4) all[i] = double(i);
    const auto found = [&] {
        return symmetric_eigenvalues(
            Tensor::from_host(device(), {3, 3, 3}, std::span<const double>(all), Type::f64));
    };
    const auto before = found();
    all[10] = all[12] = NAN;
    const auto after = found();
    EXPECT_EQ(after[0], before[0]);
    EXPECT_TRUE(after[1].empty());
    EXPECT_EQ(after[2], before[2]);
    EXPECT_THROW(device().tridiagonals(
                     zeros(device(), {1, Backend::most_tridiagonal + 1, 1025}, Type::f64).view()),
                 BrokenInvariant);
}

TEST(Products, OfRoundedFactorsAreNearTheExactOnes) {
    std::string why;
    if (gpu::count_devices(why) == 0) GTEST_SKIP() << why;
    const Both a = drawn({1, 40, 300}, Type::f32, 1);
    const std::vector<double> exact = matmul(a.host, a.host, Transpose::second).to_host<double>();
    double before = 0;
    for (const auto& [products, bits] :
         {std::pair{Products::exact, 23}, {Products::tf32, 10}, {Products::bf16, 7}}) {
        static std::vector<std::unique_ptr<Backend>> backends;  // they outlive their tensors
        backends.push_back(gpu::make_backend(0, products));
        const Tensor x =
            Tensor::from_host(*backends.back(), a.host.shape(),
                              std::span<const double>(a.host.to_host<double>()), Type::f32);
        const std::vector<double> found = matmul(x, x, Transpose::second).to_host<double>();
        double largest = 0;
        for (std::size_t i = 0; i < exact.size(); ++i)
            largest = std::max(largest, std::abs(found[i] - exact[i]));
        // 300 products of numbers near 1, with factors and sums rounded to that many bits.
        EXPECT_LT(largest, 300 * 8 * std::ldexp(1.0, -bits)) << bits;
        // cuBLAS may round less than that.
        if (gpu::emulated) {
            EXPECT_GT(largest, before) << bits;
        }
        before = 3 * largest;
    }
}

TEST_P(EveryKernel, FirstNonFinite) {
    std::vector<double> values(5 * 40, 1.0);
    const auto first = [&] {
        return first_nonfinite(
            Tensor::from_host(device(), {1, 5, 40}, std::span<const double>(values), GetParam()));
    };
    EXPECT_EQ(first(), -1);
    values[199] = -std::numeric_limits<double>::infinity();
    EXPECT_EQ(first(), 199);
    values[83] = std::numeric_limits<double>::quiet_NaN();
    EXPECT_EQ(first(), 83);
}

INSTANTIATE_TEST_SUITE_P(Types, EveryKernel, testing::Values(Type::f32, Type::f64),
                         [](const auto& type) { return type.param == Type::f32 ? "f32" : "f64"; });

}  // namespace
}  // namespace tsdiag
