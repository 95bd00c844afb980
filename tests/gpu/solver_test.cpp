#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdlib>
#include <functional>
#include <numbers>
#include <string>
#include <vector>

#include "device_backend.hpp"
#include "runtime.hpp"
#include "support/naive.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/linalg.hpp"
#include "tsdiag/random.hpp"

/// Dense eigenvalue problems by the solver of a device, emulated or not, against the CPU's.
namespace tsdiag {
namespace {

using naive::Matrix;
using Complex = std::complex<double>;
constexpr double ulp = std::numeric_limits<double>::epsilon();

const Backend& device() {
    static const Backend& first = *gpu::make_backend(0).release();  // outlives every tensor
    return first;
}
Tensor on(const Backend& backend, const Matrix& a) {
    return Tensor::from_host(backend, {1, a.rows, a.cols}, std::span<const double>(a.a), Type::f64);
}

Matrix gaussian(Index n, std::uint64_t seed) {
    Matrix a(n, n);
    Rng(seed).fill_normal(a.a, 0, 1);
    return a;
}

struct Kind {
    const char* name;
    Matrix (*of)(Index n);
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

const std::vector<Kind> kinds = {
    {"symmetric",
     [](Index n) {
         Matrix a = gaussian(n, 1);
         for (Index i = 0; i < n; ++i)
             for (Index j = 0; j < i; ++j) a(i, j) = a(j, i);
         return a;
     }},
    {"not_normal", [](Index n) { return gaussian(n, 2); }},
    {"stochastic", [](Index n) { return naive::softmax(gaussian(n, 3)); }},
    {"cyclic",
     [](Index n) {
         Matrix a(n, n);
         for (Index i = 0; i < n; ++i) a(i, (i + 1) % n) = 1;
         return a;
     }},
    {"identity",
     [](Index n) {
         Matrix a(n, n);
         for (Index i = 0; i < n; ++i) a(i, i) = 1;
         return a;
     }},
    {"rank_one", [](Index n) { return Matrix(n, n, 1 / double(n)); }},
    {"zero", [](Index n) { return Matrix(n, n); }},
    // Of sizes 1, 2, 4, ..., which a library may balance.
    {"graded",
     [](Index n) {
         Matrix a = gaussian(n, 4);
         for (Index i = 0; i < n; ++i)
             for (Index j = 0; j < n; ++j) a(i, j) = std::ldexp(a(i, j), int((i - j) % 16));
         return a;
     }},
    // One block of Jordan, seen from a skew basis: the eigenvalue is lost to rounding.
    {"defective", [](Index n) {
         Matrix a(n, n);
         for (Index i = 0; i < n; ++i) {
             a(i, i) = 0.5;
             if (i + 1 < n) a(i, i + 1) = 1;
         }
         for (Index k = 0; k + 1 < n; ++k) {  // rotations of neighbours
             const double c = 0.6, s = 0.8;
             for (Index j = 0; j < n; ++j) {
                 const double x = a(k, j), y = a(k + 1, j);
                 a(k, j) = c * x + s * y, a(k + 1, j) = c * y - s * x;
             }
             for (Index i = 0; i < n; ++i) {
                 const double x = a(i, k), y = a(i, k + 1);
                 a(i, k) = c * x + s * y, a(i, k + 1) = c * y - s * x;
             }
         }
         return a;
     }}};

constexpr Index sizes[] = {1, 2, 3, 17, 48};

class EverySolver : public testing::TestWithParam<Kind> {
    void SetUp() override {
        std::string why;
        if (gpu::count_devices(why) == 0) GTEST_SKIP() << why;
    }
};

/// How far two backward stable methods may differ: the rounding of both, n ulp |A|_F with a factor
/// for what a constant 10 n^3 operations have, times the condition number; at most Elsner's bound.
double allowed(const Matrix& a, double condition) {
    const double n = double(a.rows), norm = naive::frobenius(a), rounding = 4 * n * ulp * norm;
    if (norm == 0) return 0;
    return std::min(rounding * condition, 2 * norm * std::pow(rounding / (2 * norm), 1 / n));
}

TEST_P(EverySolver, FindsTheEigenvaluesOfTheCpu) {
    for (const Index n : sizes) {
        const Matrix a = GetParam().of(n);
        const Tensor here = on(cpu(), a), there = on(device(), a);
        const auto expected = cpu().eigenvalues(here.view());
        const auto found = device().eigenvalues(there.view());
        ASSERT_TRUE(expected && found) << n;
        ASSERT_EQ(found->size(), std::size_t(n));
        std::vector<Complex> left = *found;
        for (const Complex value : *expected) {
            const auto nearest = std::ranges::min_element(
                left, {}, [&](Complex theta) { return std::abs(theta - value); });
            EXPECT_LE(std::abs(*nearest - value),
                      allowed(a, cpu().sensitivity(here.view(), value).condition))
                << n << ": " << value;
            left.erase(nearest);
        }
        EXPECT_EQ(there.to_host<double>(), a.a) << n;  // not overwritten
    }
}

TEST_P(EverySolver, KnowsHowWellTheyAreDetermined) {
    for (const Index n : sizes) {
        const Matrix a = GetParam().of(n);
        const Tensor here = on(cpu(), a), there = on(device(), a);
        const double norm = naive::frobenius(a);
        const auto values = cpu().eigenvalues(here.view());
        ASSERT_TRUE(values) << n;
        for (std::size_t i = 0; i < values->size(); i += 7) {
            const Complex theta = (*values)[i];
            const Sensitivity expected = cpu().sensitivity(here.view(), theta),
                              found = device().sensitivity(there.view(), theta);
            EXPECT_GE(found.condition, 1 - 1e-12) << n;
            // Of a factorisation with growth of some n^(2/3).
            EXPECT_LE(found.residual, 8 * double(n) * ulp * norm + 1e-300) << n << ": " << theta;
            double gap = norm;  // to the next eigenvalue
            for (std::size_t j = 0; j < values->size(); ++j)
                if (j != i) gap = std::min(gap, std::abs((*values)[j] - theta));
            // Vectors are known up to condition |E| / gap, E the rounding; a repeated eigenvalue
            // has no vectors of its own.
            const double error = 100 * double(n) * ulp * norm * expected.condition / gap;
            if (error < 1e-3) {
                EXPECT_NEAR(found.condition, expected.condition,
                            (error + 1e-12) * expected.condition)
                    << n << ": " << theta;
            }
        }
    }
}

TEST_P(EverySolver, IsAsSureAsTheCpu) {
    for (const Index n : sizes)
        for (Index rank = 1; rank <= std::min<Index>(2, n); ++rank) {
            const Matrix a = GetParam().of(n);
            const Estimate expected = dense_eigenvalue(a.a, n, rank);
            const auto found = dense_eigenvalue(on(device(), a), rank);
            ASSERT_TRUE(found) << n;
            EXPECT_EQ(found->method, "dense");
            // A defective eigenvalue that one of them hits exactly has no condition number there.
            if (GetParam().name != std::string("defective")) {
                EXPECT_EQ(found->converged, expected.converged) << n << ", rank " << rank;
            }
            if (found->converged) {
                EXPECT_NEAR(found->value, expected.value, 1e-6 * expected.value + 1e-15) << n;
            } else {
                EXPECT_LE(*found->low, expected.value) << n;
                EXPECT_GE(*found->high, expected.value) << n;
            }
        }
}

TEST_P(EverySolver, FindsTheNormOfTheCpu) {
    for (const Index n : sizes) {
        const Matrix a = GetParam().of(n);
        const double expected = singular_values(a.a, n, n).front();
        const auto found = dense_norm(on(device(), a));
        ASSERT_TRUE(found) << n;
        EXPECT_TRUE(found->converged) << n;
        // n ulp |A|_F^2 of the squares, |A|_F^2 <= n |A|_2^2.
        EXPECT_NEAR(found->value, expected, double(n * n) * ulp * expected) << n;
    }
}

INSTANTIATE_TEST_SUITE_P(Matrices, EverySolver, testing::ValuesIn(kinds),
                         [](const auto& test) { return test.param.name; });

class Solver : public testing::Test {
    void SetUp() override {
        std::string why;
        if (gpu::count_devices(why) == 0) GTEST_SKIP() << why;
    }
};

TEST_F(Solver, FindsSymmetricEigenvaluesInClosedForm) {
    for (const Index n : sizes) {
        Matrix a(n, n);  // second differences: 2 - 2 cos(k pi / (n + 1))
        for (Index i = 0; i < n; ++i) {
            a(i, i) = 2;
            if (i > 0) a(i - 1, i) = a(i, i - 1) = -1;
        }
        const auto found = device().symmetric_eigenvalues(on(device(), a).view());
        ASSERT_TRUE(found);
        ASSERT_EQ(found->size(), std::size_t(n));
        for (Index k = 1; k <= n; ++k)
            EXPECT_NEAR((*found)[std::size_t(k - 1)],
                        2 - 2 * std::cos(double(k) * std::numbers::pi / double(n + 1)),
                        8 * double(n) * ulp);
    }
}

TEST_F(Solver, FindsConditionNumbersInClosedForm) {
    for (const double c : {0.0, 1.0, 100.0, -1e4}) {
        const Matrix a(2, 2, {1, c, 0, 0.25});
        for (const double theta : {1.0, 0.25}) {
            const Sensitivity found = device().sensitivity(on(device(), a).view(), theta);
            EXPECT_NEAR(found.condition, std::hypot(1, c / 0.75), 1e-10 * std::hypot(1, c / 0.75))
                << c << ", " << theta;
        }
    }
    // Of a normal matrix the residual is the distance to the next eigenvalue.
    const Matrix turn(3, 3, {0, -1, 0, 1, 0, 0, 0, 0, 3});
    const Sensitivity off = device().sensitivity(on(device(), turn).view(), Complex(0.003, 1.004));
    EXPECT_NEAR(off.condition, 1, 1e-10);  // (0.005 / 2)^4: two steps
    EXPECT_NEAR(off.residual, 0.005, 1e-5 * 0.005);
}

TEST_F(Solver, ReadsViews) {
    const Index n = 9;
    const Matrix a = gaussian(n + 4, 6);
    Matrix inner(n, n);
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < n; ++j) inner(i, j) = a(i + 1, j + 3);
    const Tensor view = on(device(), a).row_range(1, n).col_range(3, n);
    EXPECT_EQ(*device().eigenvalues(view.view()),
              *device().eigenvalues(on(device(), inner).view()));
    const Complex theta = device().eigenvalues(view.view())->front();
    EXPECT_EQ(device().sensitivity(view.view(), theta).condition,
              device().sensitivity(on(device(), inner).view(), theta).condition);
    EXPECT_EQ(*device().symmetric_eigenvalues(view.view()),
              *device().symmetric_eigenvalues(on(device(), inner).view()));
}

/// Imitates a failure of the emulated library.
class Failing {
  public:
    explicit Failing(const char* how) { setenv("TSDIAG_EMULATED_SOLVER", how, 1); }
    ~Failing() { unsetenv("TSDIAG_EMULATED_SOLVER"); }
};

class FailingLibrary : public testing::Test {
    void SetUp() override {
        if (!gpu::emulated) GTEST_SKIP() << "a library does not fail at will";
    }
};

TEST_F(FailingLibrary, TakesTheWorkspaceThatIsPlanned) {
    for (const Index n : {2, 9, 40}) {
        const Tensor inside = on(device(), gaussian(n + 1, 7)).row_range(1, n).col_range(1, n);
        const auto solve = [&] {
            device().eigenvalues(inside.view());
            device().symmetric_eigenvalues(inside.view());
            device().sensitivity(inside.view(), 0.5);
        };
        solve();
        const std::size_t planned = *device().dense_workspace(n);
        const auto with = [&](std::size_t bytes) {
            const std::size_t taken = gpu::free_bytes() - bytes;
            setenv("TSDIAG_EMULATED_TAKEN", std::to_string(taken).c_str(), 1);
            bool enough = true;
            try {
                solve();
            } catch (const OutOfMemory&) {
                enough = false;
            }
            unsetenv("TSDIAG_EMULATED_TAKEN");
            return enough;
        };
        EXPECT_TRUE(with(planned)) << n;
        EXPECT_FALSE(with(planned - sizeof(int))) << n;
    }
}

TEST_F(FailingLibrary, IsNoticed) {
    const Tensor a = on(device(), gaussian(12, 7));
    ASSERT_TRUE(dense_eigenvalue(a)->converged);
    {
        const Failing unsolved("unsolved");
        EXPECT_FALSE(device().eigenvalues(a.view()));
        EXPECT_FALSE(device().symmetric_eigenvalues(a.view()));
        EXPECT_FALSE(dense_eigenvalue(a));
        EXPECT_FALSE(dense_norm(a));
    }
    {
        const Failing full("full");
        EXPECT_THROW(dense_eigenvalue(a), OutOfMemory);
        EXPECT_THROW(dense_norm(a), OutOfMemory);
    }
    {
        const Failing missing("missing");
        EXPECT_FALSE(device().dense_workspace(12));
        EXPECT_THROW(dense_eigenvalue(a), NotAvailable);
        EXPECT_THROW(dense_norm(a), NotAvailable);
    }
    // Eigenvalues that are off are not eigenvalues: the residual tells.
    const Failing rough("rough");
    const Estimate found = *dense_eigenvalue(a);
    EXPECT_FALSE(found.converged);
    EXPECT_NEAR(found.residual, 1e-4 * found.value, 1e-4 * found.value);
    EXPECT_GT(found.residual, 1e-6 * found.value);
}

}  // namespace
}  // namespace tsdiag
