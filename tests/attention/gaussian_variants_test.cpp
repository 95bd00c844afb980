#include <gmock/gmock.h>

#include "attention/inverse.hpp"
#include "attention/twins.hpp"
#include "tsdiag/error.hpp"

/// kernelized and skyformer against exp(-scale |q - k|^2 / 2) in loops.
namespace tsdiag {
namespace {

using namespace test;

double kernel(const Matrix& a, Index i, const Matrix& b, Index j, double scale) {
    double d = 0;
    for (Index c = 0; c < a.cols; ++c) d += (a(i, c) - b(j, c)) * (a(i, c) - b(j, c));
    return std::exp(-scale * d / 2);
}

Matrix kernels(const Matrix& a, const Matrix& b, double scale) {
    Matrix out(a.rows, b.rows);
    for (Index i = 0; i < a.rows; ++i)
        for (Index j = 0; j < b.rows; ++j) out(i, j) = kernel(a, i, b, j, scale);
    return out;
}

TEST(Kernelized, EqualsTheNaiveOne) {
    for (const bool biased : {false, true}) {
        AttentionInput like = input();
        if (biased) like.bias = gaussian({1, n, n}, Type::f64, 9);
        expect_twin("kernelized", like, [&](const AttentionInput& in, Index k) {
            const Matrix q = naive::matrix_of(in.q, k), key = naive::matrix_of(in.k, k);
            const Matrix b = biased ? naive::matrix_of(in.bias) : Matrix(n, n);
            return entries(in.causal, [&](Index i, Index j) {
                return kernel(q, i, key, j, in.scale) * std::exp(b(i, j));
            });
        });
    }
}

/// Multiples of 2^-6 below 8 in modulus, to which 2^12 is added without rounding, in float32 too.
Tensor on_a_grid(const Tensor& x, double offset) {
    std::vector<double> values = x.to_host<double>();
    for (double& v : values) v = std::clamp(std::round(64 * v) / 64, -7.0, 7.0) + offset;
    return Tensor::from_host(cpu(), x.shape(), std::span<const double>(values), Type::f32);
}

TEST(Kernelized, DoesNotSeeWhatAllTokensHaveInCommon) {
    for (const char* name : {"kernelized", "skyformer"}) {
        AttentionInput in = input();
        const Tensor q = in.q, k = in.k;
        in.q = on_a_grid(q, 0), in.k = on_a_grid(k, 0);
        const Tensor expected = attention(name).make(in)->matrix();
        in.q = on_a_grid(q, 4096), in.k = on_a_grid(k, 4096);
        EXPECT_TENSOR_NEAR(attention(name).make(in)->matrix(), expected, exactly) << name;
    }
}

TEST(Kernelized, IsAtMostOneHoweverLargeItsTokensAre) {
    for (const double size : {1e-12, 1.0, 1e6}) {
        AttentionInput in = input();
        in.q = in.k = cast(scale(in.k, size), Type::f32);
        const Matrix p = naive::matrix_of(attention("kernelized").make(in)->matrix());
        for (Index i = 0; i < n; ++i)
            for (Index j = 0; j < n; ++j) {
                EXPECT_LE(p(i, j), 1);
                EXPECT_GE(p(i, j), 0);
            }
        if (size <= 1) {  // distance 0 to itself, up to rounding of |k|^2
            for (Index i = 0; i < n; ++i) EXPECT_CLOSE(p(i, i), 1, rounding(200), Type::f32);
        }
    }
}

TEST(Kernelized, RefusesAScaleThatIsNotPositive) {
    for (const char* name : {"kernelized", "skyformer"})
        for (const double scale : {0.0, -1.0, double(NAN)}) {
            AttentionInput in = input();
            in.scale = scale;
            EXPECT_THROW(attention(name).make(in), UsageError) << name;
        }
}

/// The sampled rows of a head: m/2 queries and then keys, or queries and keys alike.
Matrix landmarks(const AttentionInput& in, Index k, Index m, bool halves) {
    const Matrix q = naive::matrix_of(in.q, k), key = naive::matrix_of(in.k, k);
    Rng rng = in.rng.fork(0);
    Matrix out(m, width);
    for (Index i = 0; i < m; ++i) {
        const Index row = Index(rng.below(std::uint64_t(halves ? n : 2 * n)));
        const bool of_keys = halves ? i >= m / 2 : row >= n;
        for (Index c = 0; c < width; ++c) out(i, c) = of_keys ? key(row % n, c) : q(row % n, c);
    }
    return out;
}

double largest_column_sum(const Matrix& a) {
    double largest = 0;
    for (Index j = 0; j < a.cols; ++j) {
        double sum = 0;
        for (Index i = 0; i < a.rows; ++i) sum += a(i, j);
        largest = std::max(largest, sum);
    }
    return largest;
}

/// D^-1/2 (k(L, L) + gamma I) D^-1/2 and the diagonal of D^-1/2.
struct Middle {
    Matrix scaled;
    std::vector<double> root;
};
Middle middle(const Matrix& l, double scale, double gamma) {
    Middle out{kernels(l, l, scale), {}};
    for (Index i = 0; i < l.rows; ++i) {
        out.scaled(i, i) += gamma;
        double sum = 0;
        for (Index j = 0; j < l.rows; ++j) sum += out.scaled(i, j);
        out.root.push_back(1 / std::sqrt(sum));
    }
    for (Index i = 0; i < l.rows; ++i)
        for (Index j = 0; j < l.rows; ++j)
            out.scaled(i, j) *= out.root[std::size_t(i)] * out.root[std::size_t(j)];
    return out;
}

/// V (13 I - 15 KV + 7 (KV)^2 - (KV)^3) / 4, `steps` times.
Matrix iterated(const Matrix& k, double bound, int steps) {
    Matrix v = naive::transposed(k);
    for (double& e : v.a) e /= bound;
    for (int step = 0; step < steps; ++step) {
        const Matrix kv = naive::product(k, v), square = naive::product(kv, kv),
                     cube = naive::product(square, kv);
        Matrix factor(k.rows, k.rows);
        for (std::size_t i = 0; i < factor.a.size(); ++i)
            factor.a[i] = (-15 * kv.a[i] + 7 * square.a[i] - cube.a[i]) / 4;
        for (Index i = 0; i < k.rows; ++i) factor(i, i) += 13.0 / 4;
        v = naive::product(v, factor);
    }
    return v;
}

TEST(Skyformer, EqualsTheNaiveOne) {
    struct Setting {
        Index landmarks;
        bool halves, each_head;
        double gamma;
        int iterations;
    };
    for (const Setting& s : {Setting{19, true, false, 0.1, 6}, Setting{7, true, true, 0.01, 3},
                             Setting{8, false, false, 0.1, 6}, Setting{1, true, false, 0, 2},
                             Setting{50, false, true, 0.5, 1}}) {
        AttentionInput in = input({{"landmarks", std::to_string(s.landmarks)},
                                   {"draw", s.halves ? "halves" : "all"},
                                   {"init", s.each_head ? "exact" : "original"},
                                   {"gamma", std::to_string(s.gamma)},
                                   {"iterations", std::to_string(s.iterations)}});
        const auto op = attention("skyformer").make(in);
        double all = 0;
        for (Index k = 0; k < heads; ++k)
            all = std::max(
                all,
                largest_column_sum(
                    middle(landmarks(in, k, s.landmarks, s.halves), in.scale, s.gamma).scaled));
        for (Index k = 0; k < heads; ++k) {
            const Matrix l = landmarks(in, k, s.landmarks, s.halves);
            const Middle m = middle(l, in.scale, s.gamma);
            Matrix inverse =
                iterated(m.scaled, s.each_head ? largest_column_sum(m.scaled) : all, s.iterations);
            for (Index i = 0; i < inverse.rows; ++i)
                for (Index j = 0; j < inverse.cols; ++j)
                    inverse(i, j) *= m.root[std::size_t(i)] * m.root[std::size_t(j)];
            const Matrix p = naive::product(
                naive::product(kernels(naive::matrix_of(in.q, k), l, in.scale), inverse),
                kernels(l, naive::matrix_of(in.k, k), in.scale));
            EXPECT_TENSOR_NEAR(op->matrix().batch_range(k, 1), p.a, rounding(2000));
        }
    }
}

TEST(Skyformer, ApproachesTheKernelWithMoreLandmarksAndSteps) {
    const AttentionInput in = drawn_input(1, 8, width, Type::f64, 3);
    const Matrix exact = naive::matrix_of(attention("kernelized").make(in)->matrix());
    const auto error = [&](const char* m, const char* gamma, const char* steps) {
        AttentionInput of = in;
        of.options = {{"landmarks", m}, {"gamma", gamma}, {"iterations", steps}};
        return naive::frobenius(naive::subtract(
                   naive::matrix_of(attention("skyformer").make(of)->matrix()), exact)) /
               naive::frobenius(exact);
    };
    // 100 draws miss one of 8 queries and 8 keys with a probability of 2 %.  The remaining error is
    // about gamma over the smallest eigenvalue of the kernel, some hundredths.
    EXPECT_LT(error("100", "1e-6", "40"), 1e-4);
    EXPECT_GT(error("4", "1e-6", "40"), 0.1);
    EXPECT_GT(error("100", "1e-6", "1"), 0.01);
}

TEST(Skyformer, SaysThatAnIterationDiverges) {
    AttentionInput in = drawn_input(heads, 3, width, Type::f64, 5);
    in.options = {{"landmarks", "100"}, {"gamma", "0"}, {"iterations", "100"}};
    EXPECT_THAT([&] { attention("skyformer").make(in); },
                testing::ThrowsMessage<UsageError>(
                    "attention 'skyformer': with gamma=0 the kernel of the landmarks is too close "
                    "to singular for iterations=100; raise gamma or lower iterations"));
    in.options["iterations"] = "10";  // rounding errors grow by (13/4)^10 and remain small
    EXPECT_NO_THROW(attention("skyformer").make(in));
}

TEST(IteratedInverse, IsTheInverseWhereItHasConverged) {
    Matrix k(5, 5);
    for (Index i = 0; i < 5; ++i)
        for (Index j = 0; j < 5; ++j) k(i, j) = std::exp(-double((i - j) * (i - j)));
    const Tensor found = variants::iterated_inverse(one_head(k), 40, 1, true);
    Matrix identity(5, 5);
    for (Index i = 0; i < 5; ++i) identity(i, i) = 1;
    EXPECT_TENSOR_NEAR(matmul(one_head(k), found), identity.a, rounding(200));
}

}  // namespace
}  // namespace tsdiag
