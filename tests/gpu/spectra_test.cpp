#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "attention/heads.hpp"
#include "attention/spectra/on_device.hpp"
#include "attention/spectra/squaring.hpp"
#include "device_case.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/linalg.hpp"

/// |lambda_2| and delta on a device against the CPU's, and the bytes that they copy to the host.
namespace tsdiag {
namespace {

using namespace test;

using Spectra = OnADevice;

void expect_same(const std::vector<Estimate>& found, const std::vector<Estimate>& expected,
                 const std::string& what) {
    ASSERT_EQ(found.size(), expected.size()) << what;
    for (std::size_t k = 0; k < found.size(); ++k) {
        // Rounding of cuBLAS decides borderline cases.
        if (gpu::emulated) {
            EXPECT_EQ(found[k].converged, expected[k].converged) << what;
        }
        // The guarantee of both where they converged; below 1e-9 everything is rounding of P.
        if (found[k].converged && expected[k].converged) {
            EXPECT_NEAR(found[k].value, expected[k].value, 1e-6 * expected[k].value + 1e-9)
                << what << " by " << found[k].method << " and " << expected[k].method;
        }
    }
}

TEST_F(Spectra, OfEveryAttentionAreThoseOfTheCpu) {
    std::set<std::string_view> seen;  // with its first options: the routes are the same
    for (const Case& variant : cases()) {
        const std::string_view name = variant.entry->name;
        if (!seen.insert(name).second) continue;
        for (const bool causal : {false, true}) {
            if (causal && name != "softmax" && name != "linear") continue;
            const bool fits_few = name != "nystrom";
            const Index n = fits_few ? std::min<Index>(variant.n, 7) : variant.n;
            AttentionInput in = drawn_input(1, n, 6, Type::f64, 17);
            in.causal = causal;
            in.options = variant.options;
            const auto host = variant.entry->make(in);
            in.q = moved(in.q), in.k = moved(in.k);
            const auto there = variant.entry->make(in);
            const std::string what = variant.title + (causal ? " causal" : "");
            for (const char* route : {"auto", "arnoldi"}) {
                const auto second = [&](const AttentionOperator& p) {
                    return second_eigenvalue(p, 2e9, usual_accuracy, route);
                };
                const auto delta = [&](const AttentionOperator& p) {
                    return centred_norm(p, 2e9, usual_accuracy, route);
                };
                const std::string by = what + " by " + route;
                expect_same(second(*there), second(*host), by + " lambda_2");
                expect_same(delta(*there), delta(*host), by + " delta");
            }
        }
    }
}

TEST_F(Spectra, OfHeadsLikeTrainedOnesAreTheSameByEveryRoute) {
    const Index n = gpu::emulated ? 24 : 384;
    std::size_t compared = 0;
    for (const Family& family : families()) {
        const naive::Matrix p = naive::softmax(family.logits(n, 5));
        const Tensor there = moved(one_head(p));
        const auto op = given_attention(there, false, "");
        const double expected = dense_eigenvalue(p.a, n, 2).value;
        for (const Estimate& found :
             {second_eigenvalue(*op).front(), second_eigenvalue(*op, 1e9, 1e-6, "arnoldi").front(),
              squaring::second_eigenvalue(there).front(),
              on_device::second_eigenvalue(*op, 1e9, true).front(),
              second_eigenvalue(*op, 1e9, 1e-6, "dense").front()}) {
            EXPECT_TRUE(found.converged && !found.on_host) << family.name << " by " << found.method;
            EXPECT_NEAR(found.value, expected, 1e-6 * expected)
                << family.name << " by " << found.method;
            ++compared;
        }
        const double delta = centred_norm(*given(p), 2e9, 1e-6, "dense").front().value;
        for (const Estimate& found :
             {centred_norm(*op).front(), centred_norm(*op, 1e9, 1e-6, "arnoldi").front(),
              squaring::centred_norm(there).front(), on_device::centred_norm(*op, 1e9).front(),
              centred_norm(*op, 1e9, 1e-6, "dense").front()}) {
            EXPECT_TRUE(found.converged && !found.on_host) << family.name << " by " << found.method;
            EXPECT_NEAR(found.value, delta, 1e-7 * delta) << family.name << " by " << found.method;
            ++compared;
        }
    }
    EXPECT_EQ(compared, 10 * families().size());
}

/// Not stochastic, so that it is not squared, without zeros, and too small for Arnoldi.
naive::Matrix signed_head(Index n) { return noise(n, 1 / std::sqrt(double(n)), 3); }

TEST_F(Spectra, OfASmallSignedHeadAreFoundThere) {
    for (const Type type : {Type::f64, Type::f32})
        for (const Index n : {2, 3, 33, 128}) {
            const naive::Matrix p = signed_head(n);
            const auto here = given(p, type),
                       there = given_attention(moved(one_head(p, type)), false, "");
            const Estimate expected = second_eigenvalue(*here).front();
            const std::size_t before = gpu::bytes_to_host();
            const Estimate found = second_eigenvalue(*there, 2e9, 1e-6, "dense").front();
            const std::size_t copied = gpu::bytes_to_host() - before;
            EXPECT_EQ(found.method, "dense") << n;
            EXPECT_FALSE(found.on_host) << n;
            EXPECT_EQ(found.converged, expected.converged) << n;
            EXPECT_NEAR(found.value, expected.value, 1e-12 * std::max(1.0, expected.value)) << n;
            // Eigenvalues, and eight vectors of complex numbers for each of at most three.
            if (n > 100) {
                EXPECT_LT(copied, std::size_t(n * n) * 8);
            }
            EXPECT_LE(copied, 16 * std::size_t(n) * (3 * 8 + 4) + 200) << n;
        }
}

TEST_F(Spectra, OfSmallHeadsAreThoseOfTheCpuToTheLastBitAndTakeOneCopy) {
    for (const Type type : {Type::f64, Type::f32})
        for (const Index n : {2, 12, 64, 65}) {
            AttentionInput in = drawn_input(3, n, 6, type, 3);
            const auto softmax = attention("softmax").make(in);
            const auto here = given_attention(softmax->matrix(), false, "");
            const auto there = given_attention(moved(softmax->matrix()), false, "");
            const std::size_t before = gpu::bytes_to_host();
            const auto found = second_eigenvalue_and_norm(*there),
                       expected = second_eigenvalue_and_norm(*here);
            const std::size_t copied = gpu::bytes_to_host() - before,
                              whole = std::size_t(3 * n * n) * bytes_of(type);
            for (std::size_t k = 0; k < 3; ++k)
                for (const auto& [a, b] : {std::pair{found.second[k], expected.second[k]},
                                           std::pair{found.norm[k], expected.norm[k]}}) {
                    EXPECT_EQ(a.method == "dense", n <= 64) << n;
                    EXPECT_TRUE(a.converged && !a.on_host) << n;
                    if (n <= 64) {
                        EXPECT_EQ(a.value, b.value) << n;
                    }
                }
            if (n <= 64) {  // P, and where it is not finite: a number a head, or a row
                EXPECT_GE(copied, whole) << n;
                EXPECT_LE(copied, whole + std::size_t(3 * n) * sizeof(double)) << n;
            }
        }
}

/// delta_pi of one head, where a device of more than 64 tokens iterates, is the CPU's to the
/// accuracy of both, and where the host finds it, to the last bit.
Contraction expect_same_contraction(const naive::Matrix& p, Type type, const std::string& what) {
    const auto here = given(p, type), there = given_attention(moved(one_head(p, type)), false, "");
    const Contraction found = stationary_norm(*there).front(),
                      expected = stationary_norm(*here).front();
    EXPECT_EQ(found.why_not, expected.why_not) << what;
    EXPECT_EQ(found.estimate.has_value(), expected.estimate.has_value()) << what;
    if (!found.estimate || !expected.estimate) return found;
    EXPECT_EQ(found.estimate->converged, expected.estimate->converged) << what;
    EXPECT_NEAR(found.estimate->value, expected.estimate->value,
                found.estimate->on_host ? 0 : 2e-8 * expected.estimate->value)
        << what << " by " << found.estimate->method;
    return found;
}

TEST_F(Spectra, StationaryNormsOfHeadsLikeTrainedOnesAreThoseOfTheCpu) {
    const Index n = gpu::emulated ? 70 : 120;
    Index there = 0;
    for (const Type type : {Type::f64, Type::f32})
        for (const Family& family : families()) {
            const Contraction found =
                expect_same_contraction(naive::softmax(family.logits(n, 5)), type, family.name);
            there += found.estimate && found.estimate->method == "golub-kahan" &&
                     !found.estimate->on_host;
        }
    EXPECT_GT(there, 0);
}

TEST_F(Spectra, StationaryNormsOfHostileHeadsAreThoseOfTheCpu) {
    constexpr Index n = 70;
    const naive::Matrix drawn = naive::softmax(noise(n, 1, 3));
    std::vector<std::pair<std::string, naive::Matrix>> all;
    const auto add = [&](const char* name, const auto& entry) {
        naive::Matrix p(n, n);
        for (Index i = 0; i < n; ++i)
            for (Index j = 0; j < n; ++j) p(i, j) = entry(i, j);
        all.emplace_back(name, std::move(p));
    };
    const auto next = [](Index i) { return (i + 1) % n; };
    add("one-hot rows", [&](Index i, Index j) { return double(j == next(i)); });
    add("one-hot rows and dust",
        [&](Index i, Index j) { return 0.99 * double(j == next(i)) + 0.01 / n; });
    add("rows that are hot in few columns",
        [&](Index i, Index j) { return 0.9 * double(j == i / 24) + 0.1 * drawn(i, j); });
    add("identity", [](Index i, Index j) { return double(i == j); });
    add("nearly the identity",
        [&](Index i, Index j) { return 0.9999 * double(i == j) + 1e-4 * drawn(i, j); });
    add("two clusters", [](Index i, Index j) {
        return i % 2 == j % 2 ? (1 - 1e-9) * 2 / double(n) : 2e-9 / double(n);
    });
    add("a sink", [&](Index i, Index j) { return 0.95 * double(j == 0) + 0.05 * drawn(i, j); });
    add("equal rows", [](Index, Index) { return 1 / double(n); });
    add("nearly equal rows", [](Index i, Index j) {
        return 1 / double(n) + ((i + j) % 2 == 0 ? 1 : -1) * std::ldexp(1.0, -40);
    });
    add("a prefix", [](Index i, Index j) { return j <= i ? 1 / double(i + 1) : 0; });
    std::set<std::string> there;
    for (const auto& [name, p] : all)
        for (const Type type : {Type::f64, Type::f32}) {
            const Contraction found = expect_same_contraction(p, type, name);
            if (found.estimate && !found.estimate->on_host) there.insert(name);
        }
    for (const char* name :
         {"one-hot rows and dust", "rows that are hot in few columns", "a sink", "equal rows"})
        EXPECT_TRUE(there.contains(name)) << name;
    for (const char* name : {"one-hot rows", "two clusters"})
        EXPECT_FALSE(there.contains(name)) << name;
}

TEST_F(Spectra, StationaryNormsOfSeveralSamplesAreFoundAtOnce) {
    constexpr Index n = 70, samples = 3, heads = 2;
    for (const Type type : {Type::f64, Type::f32}) {
        const AttentionInput in = drawn_input(samples * heads, n, 6, type, 3);
        const Tensor p = attention("softmax").make(in)->matrix();
        const auto expected = stationary_norm(*given_attention(p, false, ""));
        const auto each = of_each_sample(given_attention(moved(p), false, ""), samples);
        const std::size_t whole = std::size_t(samples * heads * n * n) * bytes_of(type);
        std::size_t before = gpu::bytes_to_host();
        for (Index s = 0; s < samples; ++s) {
            const auto found = stationary_norm(*each[std::size_t(s)]);
            const std::size_t copied = gpu::bytes_to_host() - before;
            EXPECT_TRUE(s == 0 ? copied < whole : copied == 0) << copied << " of " << whole;
            before += copied;
            ASSERT_EQ(found.size(), std::size_t(heads));
            for (std::size_t k = 0; k < std::size_t(heads); ++k) {
                ASSERT_TRUE(found[k].estimate) << found[k].why_not;
                const Estimate& one = *found[k].estimate;
                const Estimate& other = *expected[std::size_t(s * heads) + k].estimate;
                EXPECT_TRUE(one.converged && !one.on_host);
                EXPECT_EQ(one.method, "golub-kahan");
                EXPECT_NEAR(one.value, other.value, 2e-8 * other.value);
            }
        }
    }
}

TEST_F(Spectra, StationaryNormsOfSmallHeadsTakeTheCopyOfTheirSpectra) {
    constexpr Index n = 12, samples = 3, heads = 2;
    const AttentionInput in = drawn_input(samples * heads, n, 6, Type::f32, 3);
    const auto softmax = attention("softmax").make(in);
    const auto whole = given_attention(softmax->matrix(), false, "");
    const auto expected = stationary_norm(*whole);
    const auto each = of_each_sample(given_attention(moved(softmax->matrix()), false, ""), samples);
    second_eigenvalue_and_norm(*each[0]);
    const std::size_t before = gpu::bytes_to_host();
    for (Index s = 0; s < samples; ++s) {
        const auto found = stationary_norm(*each[std::size_t(s)]);
        for (std::size_t k = 0; k < std::size_t(heads); ++k) {
            const Estimate& one = found[k].estimate.value();
            EXPECT_EQ(one.value, expected[std::size_t(s * heads) + k].estimate->value);
            EXPECT_TRUE(one.method == "dense" && one.converged && !one.on_host);
        }
    }
    EXPECT_EQ(gpu::bytes_to_host(), before);
}

TEST_F(Spectra, OfHeadsSideBySideAreTheirOwn) {
    constexpr Index n = 20, heads = 7;
    std::vector<double> all(std::size_t(heads * n * n));
    Rng(5).fill_normal(all, 0, 1);
    const Tensor p =
        Tensor::from_host(cpu(), {heads, n, n}, std::span<const double>(all), Type::f64);
    for (const double memory : {2e9, 8.0 * heads * n * n}) {  // side by side, and one by one
        const auto found =
            second_eigenvalue(*given_attention(moved(p), false, ""), memory, 1e-6, "dense");
        const auto expected = second_eigenvalue(*given_attention(p, false, ""));
        for (std::size_t k = 0; k < std::size_t(heads); ++k) {
            EXPECT_TRUE(found[k].method == "dense" && !found[k].on_host);
            EXPECT_NEAR(found[k].value, expected[k].value, 1e-12 * expected[k].value) << k;
        }
    }
}

/// One of them is known beforehand, and the others are iterated together without it.
TEST_F(Spectra, OfHeadsBesideOneOfEqualRowsAreTheirOwn) {
    constexpr Index n = 24;
    naive::Matrix equal(n, n);
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < n; ++j) equal(i, j) = double(1 + j) / 300;
    const std::vector<naive::Matrix> heads = {naive::softmax(families()[0].logits(n, 5)), equal,
                                              naive::softmax(families()[3].logits(n, 5))};
    std::vector<double> all;
    for (const naive::Matrix& p : heads) all.insert(all.end(), p.a.begin(), p.a.end());
    const auto there = given_attention(
        moved(Tensor::from_host(cpu(), {3, n, n}, std::span<const double>(all), Type::f64)), false,
        "");
    const auto second = second_eigenvalue(*there, 2e9, 1e-6, "arnoldi"),
               delta = centred_norm(*there, 2e9, 1e-6, "arnoldi");
    for (std::size_t k = 0; k < heads.size(); ++k) {
        EXPECT_TRUE(second[k].converged && delta[k].converged) << k;
        const auto op = given(heads[k]);
        const double lambda = k == 1 ? 0 : second_eigenvalue(*op, 2e9, 1e-6, "dense").front().value,
                     norm = k == 1 ? 0 : centred_norm(*op, 2e9, 1e-6, "dense").front().value;
        EXPECT_NEAR(second[k].value, lambda, 1e-6 * lambda) << k;  // the guarantees of both
        EXPECT_NEAR(delta[k].value, norm, 1e-7 * norm) << k;
    }
}

/// 1 1^T / n + U B U^T, U an orthonormal basis of the vectors of mean 0: rows sum to 1, and the
/// other eigenvalues are those of B.  B = (rho) + a Jordan block of 0 with 0.1 above it, whose
/// powers hide those of rho from squaring.
naive::Matrix hidden_head(double rho) {
    constexpr Index n = 8;
    const auto u = [](Index i, Index k) {  // cosines
        return std::sqrt(2.0 / n) * std::cos((double(i) + 0.5) * double(k) * M_PI / n);
    };
    naive::Matrix p(n, n, 1.0 / n);
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < n; ++j) {
            p(i, j) += rho * u(i, 1) * u(j, 1);
            for (Index k = 2; k < 6; ++k) p(i, j) += 0.1 * u(i, k) * u(j, k + 1);
        }
    return p;
}

TEST_F(Spectra, ThatSquaringDoesNotFindAreIterated) {
    constexpr double rho = 1e-3;
    const Tensor there = moved(one_head(hidden_head(rho)));
    EXPECT_FALSE(squaring::second_eigenvalue(there).front().converged);
    const Estimate found =
        second_eigenvalue(*given_attention(there, false, ""), 2e9, 1e-6, "arnoldi").front();
    EXPECT_EQ(found.method, "arnoldi");
    EXPECT_TRUE(found.converged && !found.on_host);
    EXPECT_NEAR(found.value, rho, 1e-6 * rho);
}

TEST_F(Spectra, OfADefectiveHeadWithoutZerosAreAnIntervalThere) {
    // P = J / 2 + E: one Jordan block of 0.5, and entries of a rounding that hide its zeros.
    const Index n = 70;
    naive::Matrix p(n, n, 1e-17);
    for (Index i = 0; i < n; ++i) p(i, i) += 0.5, p(i, std::min(i + 1, n - 1)) += 0.5;
    p(n - 1, n - 1) = 0.5;
    const Estimate found =
        second_eigenvalue(*given_attention(moved(one_head(p)), false, "")).front();
    EXPECT_EQ(found.method, "dense");
    EXPECT_FALSE(found.converged || found.on_host);
    EXPECT_LE(*found.low, 0.5);
    EXPECT_GE(*found.high, 0.5);
}

TEST_F(Spectra, OfAGivenDefectiveHeadGoToTheHost) {
    // One Jordan block, whose powers grow beyond its eigenvalue: squaring does not converge.
    const Index n = 70;
    naive::Matrix p(n, n);
    for (Index i = 0; i < n; ++i) p(i, i) = p(i, std::min(i + 1, n - 1)) = 0.5;
    p(n - 1, n - 1) = 1;
    const Estimate found =
        second_eigenvalue(*given_attention(moved(one_head(p)), false, "")).front();
    EXPECT_EQ(found.method, "diagonal");
    EXPECT_TRUE(found.on_host);  // for its graph
    EXPECT_NEAR(found.value, 0.5, 1e-15);
}

TEST_F(Spectra, CopyNumbersAndNotP) {
    constexpr Index n = 160, heads = 1;
    for (const bool causal : {false, true}) {
        AttentionInput in = drawn_input(heads, n, 6, Type::f32, 3);
        in.q = moved(in.q), in.k = moved(in.k);
        in.causal = causal;
        const auto p = attention("softmax").make(in);
        p->matrix();
        const std::size_t before = gpu::bytes_to_host();
        second_eigenvalue(*p);
        centred_norm(*p);
        const std::size_t copied = gpu::bytes_to_host() - before;
        // Ten numbers a row (the fields of its statistics), and the coefficients of at most 64
        // products for each number, rows of which are padded to the last of eight.
        const std::size_t coefficients = 64 * (64 + 10) / 2;
        EXPECT_LE(copied, heads * 8 * (10 * n + 2 * coefficients)) << causal;
        EXPECT_LT(copied, std::size_t(heads * n * n) * 4) << causal;
    }
}

/// Leaves that many bytes of an emulated device.
class MemoryLeft {
  public:
    explicit MemoryLeft(std::size_t bytes) {
        setenv("TSDIAG_EMULATED_TAKEN", std::to_string(gpu::free_bytes() - bytes).c_str(), 1);
    }
    ~MemoryLeft() { unsetenv("TSDIAG_EMULATED_TAKEN"); }
};

class FullDevice : public testing::Test {
    void SetUp() override {
        if (!gpu::emulated) GTEST_SKIP() << "a device is not filled";
    }
};

TEST_F(FullDevice, HalvesBlocksAndSeesEachRowOnce) {
    constexpr Index n = 20;
    AttentionInput in = drawn_input(2, n, 6, Type::f64, 3);
    const Tensor v = gaussian({2, n, 3}, Type::f64, 4);
    const Tensor expected = attention("softmax").make(in)->apply(v, n);
    in.q = moved(in.q), in.k = moved(in.k);
    const Tensor there = moved(v);
    const auto p = attention("softmax").make(in);
    p->keep_rows(true);
    Index seen = 0, blocks = 0;
    const auto count = [&](const RowBlock& rows) {
        EXPECT_EQ(rows.first, seen);
        seen += rows.p.rows();
        ++blocks;
    };
    Tensor found;
    {
        const MemoryLeft half(8 * 2 * n * (n / 2 + 3) + 600);
        found = p->apply(there, n, count);
    }
    EXPECT_EQ(seen, n);
    EXPECT_GT(blocks, 1);
    const std::vector<double> a = found.to_host<double>(), b = expected.to_host<double>();
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-14);  // rounding
    const MemoryLeft nothing(40);
    try {
        p->apply(there, n, count);
        FAIL() << "nothing was thrown";
    } catch (const OutOfMemory& error) {
        EXPECT_NE(std::string(error.what()).find("bytes were requested"), std::string::npos);
    }
}

TEST_F(FullDevice, TakesAsManyHeadsAtOnceAsFit) {
    constexpr Index n = 9, heads = 4;
    AttentionInput in = drawn_input(heads, n, 6, Type::f64, 3);
    const auto expected = second_eigenvalue(*attention("softmax").make(in));
    in.q = moved(in.q), in.k = moved(in.k);
    const auto p = attention("softmax").make(in);
    p->matrix();
    {
        const MemoryLeft one_head(5 * 8 * n * n + 1000);
        const auto found = second_eigenvalue(*p, 2e9, 1e-6, "arnoldi");
        for (std::size_t k = 0; k < heads; ++k) {
            EXPECT_EQ(found[k].method, "arnoldi");
            EXPECT_NEAR(found[k].value, expected[k].value, 1e-6 * expected[k].value);
        }
    }
}

TEST_F(FullDevice, SolvesDenselyWhatTooFewVectorsOfArnoldiLeave) {
    // All eigenvalues but one lie on a circle, so that Arnoldi takes n steps; there are no zeros.
    constexpr Index n = 140;
    naive::Matrix p(n, n, 0.2 / double(n));
    for (Index i = 0; i < n; ++i) p(i, (i + 1) % n) += 1.8;
    setenv("TSDIAG_EMULATED_MEMORY", "200000", 1);  // by which the vectors are counted
    static const Backend& small = *gpu::make_backend(0).release();
    unsetenv("TSDIAG_EMULATED_MEMORY");
    const Tensor there =
        Tensor::from_host(small, {1, n, n}, std::span<const double>(p.a), Type::f64);
    const auto op = given_attention(there, false, "");
    EXPECT_FALSE(second_eigenvalue(*op, 2e9, 1e-6, "arnoldi").front().converged);
    const Estimate found = second_eigenvalue(*op).front();
    EXPECT_EQ(found.method, "dense");
    EXPECT_TRUE(found.converged && !found.on_host);
    EXPECT_NEAR(found.value, 1.8, 1e-11);
}

/// Imitates a failure of the emulated library.
class Failing {
  public:
    explicit Failing(const char* how) { setenv("TSDIAG_EMULATED_SOLVER", how, 1); }
    ~Failing() { unsetenv("TSDIAG_EMULATED_SOLVER"); }
};

TEST_F(FullDevice, LeavesToTheHostWhatTheLibraryDoesNotFind) {
    const naive::Matrix p = signed_head(20);
    const auto op = given_attention(moved(one_head(p)), false, "");
    for (const char* how : {"unsolved", "full"}) {
        restart_shortages();
        const Failing failing(how);
        const Estimate second = second_eigenvalue(*op, 2e9, 1e-6, "dense").front(),
                       delta = centred_norm(*op, 2e9, 1e-6, "dense").front();
        for (const Estimate& found : {second, delta}) {
            EXPECT_EQ(found.method, "dense") << how;
            EXPECT_TRUE(found.converged && found.on_host) << how;
        }
        EXPECT_EQ(second.value, dense_eigenvalue(p.a, 20, 2).value);
        EXPECT_NEAR(delta.value, centred_norm(*given(p)).front().value, 1e-7);
        const std::vector<std::string> said = shortages();
        EXPECT_EQ(said.empty(), std::string_view(how) == "unsolved");
        if (!said.empty()) {
            EXPECT_NE(said.front().find("a dense spectrum was found on the host, 2 times"),
                      std::string::npos)
                << said.front();
        }
    }
    restart_shortages();
}

TEST_F(FullDevice, SolvesDenselyOnTheHost) {
    constexpr Index n = 24;
    const naive::Matrix p = signed_head(n);
    const auto op = given_attention(moved(one_head(p)), false, "");
    restart_shortages();
    const MemoryLeft little(std::size_t(2 * 8 * n * n + 1200));  // P, but no workspace
    const Estimate found = second_eigenvalue(*op, 2e9, 1e-6, "dense").front();
    EXPECT_EQ(found.method, "dense");
    EXPECT_TRUE(found.on_host);
    EXPECT_EQ(found.value, dense_eigenvalue(p.a, n, 2).value);
    EXPECT_EQ(shortages().size(), 1U);
    restart_shortages();
}

/// Heads with zeros, which lie between others, go to the host whatever is left of the device.
TEST_F(FullDevice, CopiesHeadsOfStationaryNormsOneByOne) {
    constexpr Index n = 70, heads = 24;
    std::vector<double> all;
    for (Index k = 0; k < heads; ++k) {
        naive::Matrix p = naive::softmax(noise(n, 1, std::uint64_t(k)));
        if (k % 3 > 0) p(0, 0) += std::exchange(p(0, 1), 0);
        all.insert(all.end(), p.a.begin(), p.a.end());
    }
    const Tensor here =
        Tensor::from_host(cpu(), {heads, n, n}, std::span<const double>(all), Type::f64);
    const auto expected = stationary_norm(*given_attention(here, false, ""));
    const auto p = given_attention(moved(here), false, "");
    gpu::trim();
    restart_shortages();
    const MemoryLeft some(std::size_t(14 * 8 * n * n));
    const auto found = stationary_norm(*p);
    for (std::size_t k = 0; k < heads; ++k)
        EXPECT_NEAR(found[k].estimate->value, expected[k].estimate->value, 1e-8) << k;
    restart_shortages();
}

TEST_F(FullDevice, FindsStationaryNormsOnTheHost) {
    constexpr Index n = 70;
    const naive::Matrix p = naive::softmax(noise(n, 1, 3));
    const auto op = given_attention(moved(one_head(p)), false, "");
    const Estimate there = stationary_norm(*op).front().estimate.value();
    EXPECT_FALSE(there.on_host);
    restart_shortages();
    const MemoryLeft little(std::size_t(8 * n * n - 8));
    const Estimate found = stationary_norm(*op).front().estimate.value();
    EXPECT_TRUE(found.on_host);
    EXPECT_EQ(found.value, stationary_norm(*given(p)).front().estimate->value);
    ASSERT_EQ(shortages().size(), 1U);
    EXPECT_NE(shortages().front().find("delta_pi of some heads was found on the host"),
              std::string::npos);
    restart_shortages();
}

TEST_F(FullDevice, MakesPByBlocksWhereItDoesNotFit) {
    constexpr Index n = 80;
    AttentionInput in = drawn_input(1, n, 6, Type::f64, 3);
    const double expected = second_eigenvalue(*attention("softmax").make(in)).front().value;
    in.q = moved(in.q), in.k = moved(in.k);
    const auto p = attention("softmax").make(in);
    const MemoryLeft no_matrix(8 * n * n - 8);
    const Estimate found = second_eigenvalue(*p).front();
    EXPECT_EQ(found.method, "arnoldi");
    // With as many vectors as fit into memory.
    EXPECT_LE(found.low.value_or(found.value), expected * (1 + 1e-6));
    EXPECT_GE(found.high.value_or(found.value), expected * (1 - 1e-6));
}

TEST_F(Spectra, OfAHeadThatIsNotFiniteAreRefused) {
    AttentionInput in = drawn_input(1, 5, 2, Type::f64, 3);
    std::vector<double> q = in.q.to_host<double>();
    q[4] = std::nan("");
    in.q = moved(Tensor::from_host(cpu(), in.q.shape(), std::span<const double>(q), Type::f64));
    in.k = moved(in.k);
    const auto op = attention("softmax").make(in);
    EXPECT_THROW(second_eigenvalue(*op), NonFiniteError);
    EXPECT_THROW(centred_norm(*op), NonFiniteError);
}

/// Its library finds those of a matrix beyond what a kernel reduces.
TEST_F(OnADevice, FindsEigenvaluesOfALongSymmetricMatrix) {
    const Index n = Backend::most_tridiagonal + 1;
    const Tensor x = random_tensor(cpu(), {1, n, 20}, Type::f64, Law::uniform, Rng(3), -1, 2);
    const Tensor gram = matmul(x, x, Transpose::second);
    const std::vector<double> expected = symmetric_eigenvalues(gram).front(),
                              found = symmetric_eigenvalues(moved(gram)).front();
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_NEAR(found[i], expected[i],
                    double(n) * std::numeric_limits<double>::epsilon() * expected.back());
}

}  // namespace
}  // namespace tsdiag
