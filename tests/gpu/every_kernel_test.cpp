#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>

#include "device_backend.hpp"
#include "runtime.hpp"
#include "support/near.hpp"
#include "tsdiag/attention.hpp"
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

TEST_P(EveryKernel, Unary) {
    const Both a = drawn({2, 7, 37}, GetParam(), 1);
    for (int op = 0; op <= int(Unary::normal_cdf); ++op) {
        const auto f = [&](const std::vector<Tensor>& x) {
            const bool positive = Unary(op) == Unary::sqrt || Unary(op) == Unary::reciprocal ||
                                  Unary(op) == Unary::log;
            return map(Unary(op), positive ? affine(multiply(x[0], x[0]), 1, 0.5) : x[0]);
        };
        expect_same_of(f, {&a}, "unary " + std::to_string(op));
    }
}

TEST_P(EveryKernel, BinaryWithEveryBroadcast) {
    const Both a = drawn({3, 5, 41}, GetParam(), 1);
    for (const Shape& shape :
         {Shape{3, 5, 41}, {1, 5, 41}, {3, 1, 41}, {3, 5, 1}, {1, 1, 41}, {1, 1, 1}}) {
        Both b = drawn(shape, GetParam(), 2);
        b = {affine(map(Unary::square, b.host), 1, 0.5),
             affine(map(Unary::square, b.device), 1, 0.5)};
        for (const Binary op :
             {Binary::add, Binary::subtract, Binary::multiply, Binary::divide, Binary::maximum})
            expect_same_of([&](const auto& x) { return zip(op, x[0], x[1]); }, {&a, &b},
                           "binary " + std::to_string(int(op)));
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
    const Both x = drawn({2, 9, 131}, GetParam(), 1, 3), w = drawn({1, 1, 131}, GetParam(), 2),
               b = drawn({1, 1, 131}, GetParam(), 3);
    expect_same_of([](const auto& t) { return layer_norm(t[0], t[1], t[2], 1e-5); }, {&x, &w, &b},
                   "layer norm");
    expect_same_of([](const auto& t) { return layer_norm(t[0], {}, {}, 1e-5); }, {&x},
                   "bare layer norm");
    expect_same_of([](const auto& t) { return rms_norm(t[0], t[1], 1e-6); }, {&x, &w}, "rms norm");
    expect_same_of([](const auto& t) { return row_sum(t[0]); }, {&x}, "row sum");
    expect_same_of([](const auto& t) { return row_max(t[0]); }, {&x}, "row max");
    expect_same_of([](const auto& t) { return column_sum(t[0]); }, {&x}, "column sum");
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
    for (const Index cols : {7, 300})
        for (const Visible& visible : visibles(4, cols)) {
            const Both s = drawn({2, 4, cols}, GetParam(), 1, 4);
            const auto fresh = [](const Tensor& t) { return affine(t, 1, 0); };
            expect_same_of([&](const auto& t) { return softmax_rows(fresh(t[0]), visible); }, {&s},
                           "softmax");
            expect_same_of([&](const auto& t) { return hide(fresh(t[0]), visible); }, {&s}, "hide");
        }
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
}

TEST_P(EveryKernel, ProductsWithVectors) {
    const Both a = drawn({2, 150, 37}, GetParam(), 1), x = drawn({2, 30, 1}, Type::f64, 2),
               y = drawn({2, 150, 1}, Type::f64, 3);
    expect_same_of([](const auto& t) { return matvec(t[0].col_range(4, 30), t[1]); }, {&a, &x},
                   "a x");
    expect_same_of([](const auto& t) { return matvec(t[0], t[1], true); }, {&a, &y}, "a^T y");
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
    cpu().adamw(w.host.view(), m.host.view(), v.host.view(), g.host.view(), step);
    device().adamw(w.device.view(), m.device.view(), v.device.view(), g.device.view(), step);
    expect_same(w.device, w.host, "w");
    expect_same(m.device, m.host, "m");
    expect_same(v.device, v.host, "v");
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
