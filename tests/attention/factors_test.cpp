#include "attention/spectra/factors.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "attention/heads.hpp"
#include "attention/spectra/one_matrix.hpp"
#include "support/near.hpp"

/// Spectra of factored and block-diagonal attentions against those of the whole matrix.
namespace tsdiag {
namespace {

using namespace test;

std::unique_ptr<AttentionOperator> drawn_operator(const char* name, AttentionOptions options,
                                                  Index n, Type type, bool causal = false,
                                                  double spread = 1) {
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
                                    {"nystrom", {{"landmarks", "8"}}},
                                    {"skyformer", {{"landmarks", "12"}}}};

TEST(Factors, GiveTheSpectrumOfTheWholeMatrix) {
    for (const Variant& v : variants)
        for (const Type type : {Type::f32, Type::f64}) {
            const auto op = drawn_operator(v.name, v.options, 96, type, false, 0.7);
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
    const auto op = drawn_operator("linear", {}, 24, Type::f64);
    EXPECT_NE(second_eigenvalue(*op)[0].method, "factors");
    EXPECT_NE(centred_norm(*op)[0].method, "factors");
}

TEST(Factors, OfACausalHeadGiveItsDiagonal) {
    for (const Variant& v : variants) {
        if (!attention(v.name).facts.causal()) continue;
        const auto op = drawn_operator(v.name, v.options, 64, Type::f64, true);
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

/// Repeats each token `times` times: P becomes P / times in every copy, and no spectrum changes.
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

TEST(Factors, OfACausalHeadGiveItsCentredNorm) {
    for (const Variant& v : variants) {
        if (!attention(v.name).facts.causal()) continue;
        for (const Type type : {Type::f32, Type::f64}) {
            const auto op = drawn_operator(v.name, v.options, 70, type, true);
            const std::vector<Estimate> found =
                factors::causal_centred_norm(*op->structure().factors, 1e-8, 640);
            const std::vector<Estimate> expected = centred_norm(*bare(*op));
            for (std::size_t k = 0; k < found.size(); ++k) {
                EXPECT_TRUE(found[k].converged);
                EXPECT_NEAR(found[k].value, expected[k].value,
                            (type == Type::f32 ? 1e-5 : 1e-7) * expected[k].value)
                    << v.name;
            }
            // By the public function, where P does not fit.
            EXPECT_EQ(centred_norm(*op, 1e4)[0].method, "prefix sums");
        }
    }
}

TEST(Factors, OfALongHeadShowASampleOfRows) {
    const Index n = 20000;
    for (const bool causal : {false, true}) {
        AttentionInput in = drawn_input(2, n, 4, Type::f32, 6);
        in.causal = causal;
        const auto op = attention("linear").make(in);
        op->keep_rows(true);  // without effect on so large a P
        std::vector<Index> seen, again;
        const Tensor v = gaussian({2, n, 1}, Type::f32, 8);
        const auto note = [n](std::vector<Index>& list) {
            return [&list, n](const RowBlock& block) {
                ASSERT_TRUE(block.totals);
                EXPECT_EQ(block.totals->squares.size(), 2U);
                for (Index i = 0; i < block.p.rows(); ++i) list.push_back(block.first + i);
                EXPECT_LE(block.first + block.p.rows(), n);
            };
        };
        const Tensor y = op->apply(v, 64, note(seen));
        op->apply(v, 1000, note(again));
        EXPECT_EQ(seen, again);  // independent of the row blocks
        std::vector<Index> others;
        op->sample_rows_from(Rng(1));
        op->apply(v, 64, note(others));
        EXPECT_NE(seen, others);  // other trials see other rows
        op->sample_rows_from(Rng(0));
        EXPECT_GE(seen.size(), 500U);
        EXPECT_LE(seen.size(), 512U);
        EXPECT_TRUE(std::ranges::is_sorted(seen));
        EXPECT_EQ(std::ranges::adjacent_find(seen), seen.end());
        // One block in each twentieth: the sample covers all parts.
        for (Index part = 0; part < 20; ++part)
            EXPECT_TRUE(std::ranges::any_of(seen, [&](Index i) { return i * 20 / n == part; }));
        const Tensor rows = matmul(op->rows(12345, 2).p, v);
        EXPECT_TENSOR_NEAR(y.row_range(12345, 2), rows, rounding(double(n)));
    }
}

TEST(Factors, WithoutDigitsLeftAreAnInterval) {
    // One feature: a stochastic P has rank one, and lambda_2 = 0 up to rounding.
    AttentionInput in = drawn_input(1, 40, 1, Type::f64, 5);
    const auto op = attention("linear").make(in);
    const Structure known = op->structure();
    const Estimate e = factors::second_eigenvalue(*known.factors, true)[0];
    EXPECT_TRUE(e.converged ? e.value == 0 : *e.low == 0 && *e.high < 1e-10);
    EXPECT_LT(second_eigenvalue(*op)[0].value, 1e-12);
}

/// P = l r^T, l = (c + 1, c - 1), r = (1, -1): lambda_2 = r^T Pi2 l = 2 and |Pi2 P|_2 = |Pi2 l| |r|
/// = 2, but the rounding of sums of |l| |r| hides digits of both where c is large.
TEST(Factors, HaveTheDigitsThatTheirSumsKeep) {
    for (const double c : {10.0, 1e8, 1e11}) {
        const std::vector<double> l{c + 1, c - 1}, r{1, -1};
        const Factors p{Tensor::from_host(cpu(), {1, 2, 1}, std::span<const double>(l), Type::f64),
                        Tensor::from_host(cpu(), {1, 2, 1}, std::span<const double>(r), Type::f64)};
        const double hidden = 1e-16 * 2 * c;  // u |l| |r|
        for (const Estimate& e :
             {factors::second_eigenvalue(p, true)[0], factors::centred_norm(p)[0]}) {
            EXPECT_EQ(e.converged, c < 1e11);
            EXPECT_NEAR(e.value, 2, std::max(1e-15, 8 * hidden));
            if (e.converged) continue;
            EXPECT_LT(*e.low, 2 - hidden);
            EXPECT_GT(*e.low, 2 - 100 * hidden);
            EXPECT_GT(*e.high, 2 + hidden);
            EXPECT_LT(*e.high, 2 + 100 * hidden);
        }
    }
}

TEST(Factors, OfAHeadThatIsZeroAreCertainlyZero) {
    const std::vector<double> l(8, 0.0), r{1, -1, 2, 3, -2, 1, 0, 4};
    const Factors p{Tensor::from_host(cpu(), {1, 4, 2}, std::span<const double>(l), Type::f64),
                    Tensor::from_host(cpu(), {1, 4, 2}, std::span<const double>(r), Type::f64)};
    for (const Estimate& e :
         {factors::second_eigenvalue(p, false)[0], factors::centred_norm(p)[0]}) {
        EXPECT_TRUE(e.converged);
        EXPECT_EQ(e.value, 0);
    }
}

/// (left D) (right D^-1)^T is P for any diagonal D: its spectra keep their digits.
TEST(Factors, TheScalesOfTheirColumnsDoNotMatter) {
    constexpr Index n = 24, m = 3;
    std::vector<double> left(n * m), right(n * m);
    Rng(3).fill_normal(left, 0, 1);
    Rng(4).fill_normal(right, 0, 1);
    const auto found = [&](int exponent) {
        std::vector<double> l = left, r = right;
        for (std::size_t i = 0; i < l.size(); ++i) {
            const int power = exponent * (int(i % m) - 1);
            l[i] = std::ldexp(l[i], power);
            r[i] = std::ldexp(r[i], -power);
        }
        const Factors p{Tensor::from_host(cpu(), {1, n, m}, std::span<const double>(l), Type::f64),
                        Tensor::from_host(cpu(), {1, n, m}, std::span<const double>(r), Type::f64)};
        std::vector<Estimate> all;
        for (const bool stochastic : {true, false})
            all.push_back(factors::second_eigenvalue(p, stochastic)[0]);
        all.push_back(factors::centred_norm(p)[0]);
        return all;
    };
    const std::vector<Estimate> plain = found(0);
    for (const int exponent : {-20, 4, 20, 200}) {
        const std::vector<Estimate> scaled = found(exponent);
        for (std::size_t i = 0; i < plain.size(); ++i) {
            EXPECT_TRUE(plain[i].converged);
            EXPECT_TRUE(scaled[i].converged) << i << ": columns times 2^" << exponent;
            EXPECT_NEAR(scaled[i].value, plain[i].value, 1e-12 * plain[i].value);
        }
    }
}

TEST(Blocks, GiveTheSpectrumOfTheWholeMatrix) {
    for (const char* block : {"7", "1", "39"}) {
        const auto op = drawn_operator("diag_attention", {{"block", block}, {"activation", "rela"}},
                                       40, Type::f64);
        const std::vector<Estimate> found = second_eigenvalue(*op),
                                    expected = second_eigenvalue(*bare(*op));
        for (std::size_t k = 0; k < 2; ++k) {
            EXPECT_EQ(found[k].method, "blocks");
            EXPECT_NEAR(found[k].value, expected[k].value, 1e-9 * expected[k].value);
        }
    }
    EXPECT_EQ(
        second_eigenvalue(*drawn_operator("diag_attention", {{"block", "7"}}, 40, Type::f64))[0]
            .value,
        1);
}

/// Small eigenvalues of other blocks, which are all rounding, do not affect the result.
TEST(Blocks, AreAsCertainAsTheTwoThatLead) {
    for (const Type type : {Type::f32, Type::f64})
        for (std::uint64_t seed = 0; seed < 24; ++seed) {
            AttentionInput in = drawn_input(4, 64, 8, type, seed);
            in.options = {{"block", "16"}, {"activation", "rela"}};
            const auto op = attention("diag_attention").make(in);
            const std::vector<double> p = op->matrix().to_host<double>();
            const std::vector<Estimate> found = second_eigenvalue(*op);
            for (std::size_t k = 0; k < found.size(); ++k) {
                std::vector<double> moduli;
                for (const auto& e : eigenvalues(std::span(p).subspan(k * 64 * 64, 64 * 64), 64))
                    moduli.push_back(std::abs(e));
                std::ranges::sort(moduli, std::greater());
                EXPECT_TRUE(found[k].converged) << seed << " " << k;
                EXPECT_NEAR(found[k].value, moduli[1], 1e-6 * moduli[1]);
            }
        }
}

/// Two numbers and an interval: the second largest is known if the interval cannot contain it.
TEST(Blocks, TheSecondLargestLiesBetweenThoseOfTheBounds) {
    const auto of = [](double value, bool converged = true, double low = 0, double high = 0) {
        Estimate e = one_matrix::exact(value, "");
        e.converged = converged;
        if (!converged) e.low = low, e.high = high;
        return e;
    };
    const auto second = [](const std::vector<Estimate>& all) {
        return one_matrix::second_largest(all, 1e-6, "blocks");
    };
    EXPECT_TRUE(second({of(3), of(2), of(1e-17, false, 0, 0.5)}).converged);
    EXPECT_EQ(second({of(3), of(2), of(1e-17, false, 0, 0.5)}).value, 2);
    const Estimate open = second({of(3), of(2), of(1, false, 0, 2.5)});
    EXPECT_FALSE(open.converged);
    // Certified numbers, too, are right to the accuracy only.
    EXPECT_EQ(open.low, 2 * (1 - 1e-6));
    EXPECT_EQ(open.high, 2.5 * (1 + 1e-6));
    EXPECT_EQ(second({of(3), of(2, false, 1, 4)}).low, 1 - 1e-6);
    EXPECT_EQ(second({of(3), of(2, false, 1, 4)}).high, 3 * (1 + 1e-6));
    EXPECT_EQ(second({of(3)}).value, 0);
    EXPECT_EQ(second({}).value, 0);
}

TEST(Tolerance, DecidesWhatIsCertified) {
    const Tensor p = attention("softmax").make(drawn_input(1, 200, 8, Type::f64, 3))->matrix();
    const auto op = given_attention(p, false, "");
    const Estimate usual = second_eigenvalue(*op)[0], fine = second_eigenvalue(*op, 2e9, 1e-12)[0];
    const double exact = dense_eigenvalue(p.to_host<double>(), 200, 2).value;
    ASSERT_TRUE(usual.converged && fine.converged);
    EXPECT_GT(fine.iterations, usual.iterations);
    EXPECT_NEAR(usual.value, exact, 1e-6 * exact);
    EXPECT_NEAR(fine.value, exact, 1e-12 * exact);
    const auto dense_edge = given(noise(200, 1, 3));
    EXPECT_GT(centred_norm(*dense_edge, 2e9, 1e-12)[0].iterations,
              centred_norm(*dense_edge, 2e9, 1e-2)[0].iterations);
}

TEST(Centring, LeavesNothingOfWhatIsFourUnitsOfRoundingOrLess) {
    // The mean of 1 and 1 + 2 k eps is 1 + k eps, k eps away from both, and all of it exact.
    constexpr double eps = std::numeric_limits<double>::epsilon();
    for (const int k : {1, 2, 4}) {
        std::vector<double> x{1, 1 + 2 * k * eps};
        one_matrix::centre(x);
        EXPECT_EQ(x, (std::vector<double>{0, 0})) << k;
    }
    for (const int k : {5, 6, 1000}) {
        std::vector<double> x{1, 1 + 2 * k * eps};
        one_matrix::centre(x);
        EXPECT_EQ(x, (std::vector<double>{-k * eps, k * eps})) << k;
    }
}

}  // namespace
}  // namespace tsdiag
