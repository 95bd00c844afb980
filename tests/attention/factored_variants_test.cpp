#include <numbers>

#include "attention/features.hpp"
#include "attention/heads.hpp"
#include "attention/twins.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

using namespace test;

double phi(const std::string& name, double x) {
    if (name == "relu") return std::max(0.0, x);
    return (x > 0 ? x : std::exp(x) - 1) + (name == "1+elu" ? 1 : 0);
}

Matrix kernel(const AttentionInput& in, Index k, const std::string& name) {
    const Matrix q = naive::matrix_of(in.q, k), key = naive::matrix_of(in.k, k);
    return entries(in.causal, [&](Index i, Index j) {
        double s = 0;
        for (Index c = 0; c < width; ++c) s += phi(name, q(i, c)) * phi(name, key(j, c));
        return s;
    });
}

TEST(Linear, EqualsTheNaiveOne) {
    for (const char* name : {"1+elu", "relu"})
        expect_twin("linear", input({{"map", name}}), [&](const AttentionInput& in, Index k) {
            return divided_by_row_sums(kernel(in, k, name));
        });
}

TEST(Linear, DividesSignedFeaturesByTheirSum) {
    // Sums near 0 magnify rounding: rows are compared relative to the largest of each.
    const AttentionInput in = input({{"map", "elu"}});
    const auto op = attention("linear").make(in);
    for (Index k = 0; k < heads; ++k) {
        const Matrix s = kernel(in, k, "elu"), p = naive::matrix_of(op->matrix(), k);
        for (Index i = 0; i < n; ++i) {
            double z = 0, modulus = 0;
            for (Index j = 0; j < n; ++j) z += s(i, j), modulus += std::abs(s(i, j));
            for (Index j = 0; j < n; ++j)
                EXPECT_NEAR(p(i, j) * z, s(i, j), 1e-12 * modulus * modulus / std::abs(z));
        }
    }
}

TEST(NormAttention, EqualsTheNaiveOne) {
    for (const char* name : {"1+elu", "elu", "relu"})
        expect_twin("norm_attention", input({{"map", name}}),
                    [&](const AttentionInput& in, Index k) { return kernel(in, k, name); });
}

TEST(Cosformer, WeighsByTheCosineOfTheDistance) {
    expect_twin("cosformer", input(), [&](const AttentionInput& in, Index k) {
        Matrix s = kernel(in, k, "relu");
        for (Index i = 0; i < n; ++i)
            for (Index j = 0; j < n; ++j)
                s(i, j) *= std::cos(std::numbers::pi * double(i - j) / (2 * double(n)));
        return divided_by_row_sums(s);
    });
}

/// Causal products are computed in chunks of 256 rows, forwards and backwards.
TEST(Factored, ProductsEndWhereverTheirChunksDo) {
    for (const char* name : {"linear", "norm_attention", "cosformer", "performer"})
        for (const Index tokens : {255, 256, 257, 258, 512, 513}) {
            AttentionInput in = drawn_input(2, tokens, 4, Type::f64, 21);
            in.causal = true;
            const auto op = attention(name).make(in);
            const Tensor v = gaussian({2, tokens, 3}, Type::f64, 22);
            const Tolerance sums = rounding(64 * double(tokens));
            EXPECT_TENSOR_NEAR(op->apply(v, 64), matmul(op->matrix(), v), sums) << name << tokens;
            EXPECT_TENSOR_NEAR(op->apply_transpose(v, 64),
                               matmul(op->matrix(), v, Transpose::first), sums)
                << name << tokens;
        }
}

/// A zero row: its denominator is 0.
TEST(Factored, ARowWithoutFeaturesIsZeroAndHasNoJacobian) {
    for (const char* name : {"linear", "cosformer"})
        for (const bool causal : {false, true}) {
            AttentionInput in = input({}, causal);
            if (name == std::string("linear")) in.options = {{"map", "relu"}};
            std::vector<double> q = in.q.to_host<double>();
            for (Index c = 0; c < width; ++c) q[std::size_t(2 * width + c)] = -1;  // head 0, row 2
            in.q =
                Tensor::from_host(cpu(), {heads, n, width}, std::span<const double>(q), Type::f64);
            const auto op = attention(name).make(in);
            EXPECT_FALSE(op->structure().row_stochastic);
            const RowBlock block = op->rows(0, n);
            EXPECT_EQ(block.why_no_slope, "a row of P is 0: its denominator is 0");
            EXPECT_EQ(row_statistics(block).modulus[2], 0);
            EXPECT_LT(first_nonfinite(op->matrix()), 0);
        }
}

TEST(Factored, SignedFeaturesThatSumToZeroAreAnError) {
    AttentionInput in = input({{"map", "elu"}});
    in.q = scale(in.q, 0);
    try {
        attention("linear").make(in);
        FAIL();
    } catch (const NonFiniteError& e) {
        EXPECT_STREQ(e.what(),
                     "attention 'linear': the features of row 0 of head 0 sum to 0, so the row "
                     "cannot be divided by its sum; use a positive feature map");
    }
}

Tensor given_parameter(const Matrix& m) { return one_head(m); }

TEST(Performer, EqualsTheNaiveOne) {
    const Index m = 9;
    Matrix w(m, width);
    Rng(5).fill_normal(w.a, 0, 1);
    for (const bool relu : {false, true}) {
        AttentionInput like = input({{"kernel", relu ? "relu" : "softmax"}});
        like.parameter = [&](std::string_view) { return given_parameter(w); };
        expect_twin("performer", like, [&](const AttentionInput& in, Index k) {
            const double root = std::sqrt(in.scale);
            // Rows of W x, and the shift before exp.
            const auto features = [&](const Tensor& t, bool over_tokens) {
                const Matrix x = naive::matrix_of(t, k);
                Matrix u(n, m);
                for (Index i = 0; i < n; ++i)
                    for (Index f = 0; f < m; ++f)
                        for (Index c = 0; c < width; ++c) u(i, f) += root * w(f, c) * x(i, c);
                Matrix out(n, m);
                const double all = *std::max_element(u.a.begin(), u.a.end());
                for (Index i = 0; i < n; ++i) {
                    double top = all, half = 0;
                    if (!over_tokens)
                        top = *std::max_element(u.a.begin() + i * m, u.a.begin() + (i + 1) * m);
                    for (Index c = 0; c < width; ++c) half += in.scale * x(i, c) * x(i, c) / 2;
                    for (Index f = 0; f < m; ++f)
                        out(i, f) =
                            relu ? std::max(0.0, u(i, f)) + 1e-3
                                 : (std::exp(u(i, f) - half - top) + 1e-4) / std::sqrt(double(m));
                }
                return out;
            };
            Matrix s =
                naive::product(features(in.q, false), naive::transposed(features(in.k, true)));
            for (Index i = 0; i < n; ++i)
                for (Index j = 0; j < n; ++j)
                    if (!naive::sees(i, j, in.causal)) s(i, j) = 0;
            return divided_by_row_sums(s);
        });
    }
}

TEST(Performer, ApproachesTheSoftmax) {
    // Small logits: each feature is exp(..) + 1e-4, and the constant must not dominate.
    AttentionInput in = input({{"features", "6000"}});
    in.q = scale(in.q, 0.3);
    in.k = scale(in.k, 0.3);
    const auto op = attention("performer").make(in);
    for (Index k = 0; k < heads; ++k) {
        const Matrix exact = naive::softmax(logits(in, k)), p = naive::matrix_of(op->matrix(), k);
        EXPECT_LT(naive::frobenius(naive::subtract(p, exact)), 0.1 * naive::frobenius(exact));
    }
    AttentionInput other = in;
    other.options["seed"] = "1";
    EXPECT_TENSOR_NEAR(attention("performer").make(in)->matrix(), op->matrix(), exactly);
    EXPECT_FALSE(tensor_near(attention("performer").make(other)->matrix(), op->matrix(), exactly));
}

TEST(Performer, DrawsDirectionsThatAreOrthogonalInGroups) {
    const Index m = 15;
    const Matrix w =
        naive::matrix_of(variants::orthogonal_features(Rng(3), m, width, cpu(), Type::f64));
    for (Index i = 0; i < m; ++i)
        for (Index j = 0; j < i; ++j) {
            double s = 0, a = 0, b = 0;
            for (Index c = 0; c < width; ++c)
                s += w(i, c) * w(j, c), a += w(i, c) * w(i, c), b += w(j, c) * w(j, c);
            if (i / width == j / width) {
                EXPECT_NEAR(s, 0, 1e-14 * std::sqrt(a * b));
            }
        }
}

TEST(Linformer, EqualsTheNaiveOne) {
    const Index length = 5;
    Matrix e(n + 2, length), f(n + 2, length);  // for longer samples: only the first rows are used
    Rng(5).fill_normal(e.a, 0, 0.4);
    Rng(6).fill_normal(f.a, 0, 0.4);
    AttentionInput like = input({{"length", "5"}});
    like.parameter = [&](std::string_view name) {
        return given_parameter(name == "proj_k" ? e : f);
    };
    expect_twin("linformer", like, [&](const AttentionInput& in, Index k) {
        const Matrix key = naive::matrix_of(in.k, k), q = naive::matrix_of(in.q, k);
        Matrix s(n, length), p(n, n);
        for (Index i = 0; i < n; ++i)
            for (Index t = 0; t < length; ++t)
                for (Index j = 0; j < n; ++j)
                    for (Index c = 0; c < width; ++c)
                        s(i, t) += in.scale * q(i, c) * e(j, t) * key(j, c);
        const Matrix a = naive::softmax(s);
        for (Index i = 0; i < n; ++i)
            for (Index j = 0; j < n; ++j)
                for (Index t = 0; t < length; ++t) p(i, j) += a(i, t) * f(j, t);
        return p;
    });
}

TEST(Linformer, RefusesLengthsThatDoNotFit) {
    EXPECT_THROW(attention("linformer").make(input({{"length", "20"}})), UsageError);
    AttentionInput in = input({{"length", "5"}});
    in.parameter = [&](std::string_view) { return given_parameter(Matrix(n - 1, 5)); };
    EXPECT_THROW(attention("linformer").make(in), UsageError);
}

/// K1 V K3, `kernel` of logits, V six steps from K2^T / `bound`(K2).
template <class Kernel, class Bound>
Matrix nystrom_twin(const AttentionInput& in, Index k, Index m, Kernel kernel, Bound bound) {
    const Index size = in.q.rows(), part = size / m;
    const Matrix q = naive::matrix_of(in.q, k), key = naive::matrix_of(in.k, k);
    const auto means = [&](const Matrix& x) {
        Matrix l(m, width);
        for (Index i = 0; i < m; ++i)
            for (Index t = 0; t < part; ++t)
                for (Index c = 0; c < width; ++c) l(i, c) += x(i * part + t, c) / double(part);
        return l;
    };
    const auto of = [&](const Matrix& a, const Matrix& b) {
        Matrix s = naive::product(a, naive::transposed(b));
        for (double& e : s.a) e *= in.scale;
        return kernel(s);
    };
    const auto minus = [&](double a, Matrix x) {
        for (double& e : x.a) e = -e;
        for (Index i = 0; i < m; ++i) x(i, i) += a;
        return x;
    };
    const Matrix lq = means(q), lk = means(key), k2 = of(lq, lk);
    Matrix v = naive::transposed(k2);
    const double start = bound(k2);
    for (double& e : v.a) e /= start;
    for (int step = 0; step < 6; ++step) {
        const Matrix kv = naive::product(k2, v);
        v = naive::product(
            v, minus(13, naive::product(kv, minus(15, naive::product(kv, minus(7, kv))))));
        for (double& e : v.a) e /= 4;
    }
    return naive::product(naive::product(of(q, lk), v), of(lq, key));
}

double largest_column_sum(const AttentionInput& in, Index k, Index m) {
    AttentionInput coarse = in;
    const Index part = in.q.rows() / m;
    const auto means = [&](const Tensor& t) {
        return column_mean(t.batch_range(k, 1).reshape({m, part, width})).reshape({1, m, width});
    };
    coarse.q = means(in.q), coarse.k = means(in.k), coarse.options = {};
    const Matrix k2 = naive::matrix_of(attention("softmax").make(coarse)->matrix());
    double largest = 0;
    for (Index j = 0; j < m; ++j) {
        double s = 0;
        for (Index i = 0; i < m; ++i) s += k2(i, j);
        largest = std::max(largest, s);
    }
    return largest;
}

TEST(Nystrom, EqualsTheNaiveOne) {
    AttentionInput in = drawn_input(heads, 20, width, Type::f64, 3);
    double all = 0;
    for (Index k = 0; k < heads; ++k) all = std::max(all, largest_column_sum(in, k, 5));
    for (const bool exact : {false, true}) {
        in.options = {{"landmarks", "5"}, {"init", exact ? "exact" : "original"}};
        const auto op = attention("nystrom").make(in);
        for (Index k = 0; k < heads; ++k) {
            const double bound = exact ? largest_column_sum(in, k, 5) : all;
            const Matrix twin = nystrom_twin(
                in, k, 5, [](const Matrix& s) { return naive::softmax(s); },
                [&](const Matrix&) { return bound; });
            EXPECT_TENSOR_NEAR(op->matrix().batch_range(k, 1), twin.a, rounding(2000));
        }
    }
}

/// The largest sum of moduli of a row times that of a column.
double product_of_norms(const Matrix& x) {
    double rows = 0, columns = 0;
    for (Index i = 0; i < x.rows; ++i) {
        double row = 0, column = 0;
        for (Index j = 0; j < x.cols; ++j) row += std::abs(x(i, j)), column += std::abs(x(j, i));
        rows = std::max(rows, row), columns = std::max(columns, column);
    }
    return rows * columns;
}

TEST(Nystrom, OfAPolynomialEqualsTheNaiveOne) {
    AttentionInput in = drawn_input(heads, 20, width, Type::f64, 3);
    for (const int p : {1, 2, 3, 6})
        for (const char* c : {"none", "1/sqrt(N)", "-0.5"}) {
            in.options = {{"landmarks", "5"},
                          {"activation", "polynomial"},
                          {"p", std::to_string(p)},
                          {"scale", c}};
            const double factor = c == std::string("none")   ? 1
                                  : c == std::string("-0.5") ? -0.5
                                                             : 1 / std::sqrt(20.0);
            const auto op = attention("nystrom").make(in);
            for (Index k = 0; k < heads; ++k) {
                const Matrix twin = nystrom_twin(
                    in, k, 5,
                    [&](Matrix s) {
                        for (double& e : s.a) e = factor * std::pow(e, p);
                        return s;
                    },
                    product_of_norms);
                EXPECT_TENSOR_NEAR(op->matrix().batch_range(k, 1), twin.a, rounding(2000))
                    << "p = " << p << ", c = " << c;
            }
        }
}

/// Of orthogonal landmarks K2 is +-I, whose inverse the iteration has from the start.
TEST(Nystrom, OfAPolynomialOfOrthogonalTokensIsThatPolynomial) {
    std::vector<double> one(std::size_t(width * width), 0.0);
    for (Index i = 0; i < width; ++i) one[std::size_t(i * width + i)] = 1;
    AttentionInput in;
    in.q = in.k =
        Tensor::from_host(cpu(), {1, width, width}, std::span<const double>(one), Type::f64);
    for (const double sign : {1.0, -1.0}) {
        in.scale = sign;
        in.options = {{"landmarks", "n"}, {"whole", "inverse"}, {"activation", "polynomial"}};
        const auto formula = attention("nystrom").make(in);
        EXPECT_TRUE(formula->structure().factors);
        in.options.erase("whole");
        const auto exact = attention("nystrom").make(in);
        EXPECT_FALSE(exact->structure().factors);
        in.options = {};
        const Tensor expected = attention("polynomial").make(in)->matrix();
        EXPECT_TENSOR_NEAR(formula->matrix(), expected, rounding(100));
        EXPECT_TENSOR_NEAR(exact->matrix(), expected, exactly);
    }
}

/// Logits of 1e-9 have cubes of 1e-27, whose products float32 does not hold.
TEST(Nystrom, OfSmallPowersStaysFinite) {
    AttentionInput in = drawn_input(heads, 20, width, Type::f32, 3);
    in.options = {{"landmarks", "5"}, {"activation", "polynomial"}, {"scale", "none"}};
    const Tensor large = attention("nystrom").make(in)->matrix();
    in.scale *= 1e-9;
    const Tensor small = attention("nystrom").make(in)->matrix();
    EXPECT_EQ(first_nonfinite(small), -1);
    // The inverse undoes one of the three factors 1e-27; six steps magnify rounding.
    EXPECT_TENSOR_NEAR(scale(small, 1e27), large, rounding(2000));
}

TEST(Nystrom, RefusesOptionsOfAnotherActivation) {
    for (const char* name : {"p", "scale", "start"})
        EXPECT_THROW(attention("nystrom").make(input({{"landmarks", "19"}, {name, "2"}})),
                     UsageError);
    EXPECT_THROW(attention("nystrom").make(input(
                     {{"landmarks", "19"}, {"activation", "polynomial"}, {"scale", "learned"}})),
                 UsageError);
}

TEST(Nystrom, OfAsManyLandmarksAsTokensIsTheSoftmax) {
    AttentionInput in = input({{"landmarks", "19"}});
    const auto op = attention("nystrom").make(in);
    EXPECT_TRUE(op->structure().row_stochastic);
    for (Index k = 0; k < heads; ++k)
        EXPECT_TENSOR_NEAR(op->matrix().batch_range(k, 1), naive::softmax(logits(in, k)).a,
                           rounding(n));
}

TEST(Nystrom, AddsAConvolution) {
    for (const Index width : {1, 3, 5, 7}) {
        AttentionInput in = input({{"landmarks", "19"}});
        std::vector<double> kernel(std::size_t(heads * width));
        Rng(8).fill_normal(kernel, 0, 1);
        in.parameter = [&](std::string_view) {
            return Tensor::from_host(cpu(), {1, heads, width}, std::span<const double>(kernel),
                                     Type::f64);
        };
        const auto op = attention("nystrom").make(in);
        EXPECT_FALSE(op->structure().row_stochastic);
        for (Index k = 0; k < heads; ++k) {
            Matrix p = naive::softmax(logits(in, k));
            for (Index i = 0; i < n; ++i)
                for (Index t = 0; t < width; ++t) {
                    const Index j = i + t - (width - 1) / 2;
                    if (j >= 0 && j < n) p(i, j) += kernel[std::size_t(width * k + t)];
                }
            EXPECT_TENSOR_NEAR(op->matrix().batch_range(k, 1), p.a, rounding(n));
        }
    }
}

TEST(Nystrom, RefusesAConvolutionThatIsNoOddWidthAHead) {
    for (const Index count :
         {heads, 3 * heads, 5 * heads, 2 * heads, 4 * heads, 3 * heads + 1, 3 * heads - 1}) {
        AttentionInput in = input({{"landmarks", "19"}});
        in.parameter = [&](std::string_view name) {
            return name == "conv" ? zeros(cpu(), {1, 1, count}, Type::f64) : Tensor();
        };
        if (count % heads == 0 && count / heads % 2 == 1) {
            EXPECT_NO_THROW(attention("nystrom").make(in)) << count;
        } else {
            EXPECT_THROW(attention("nystrom").make(in), ShapeError) << count;
        }
    }
}

TEST(Nystrom, RefusesSizesThatDoNotFit) {
    for (const char* m : {"4", "20"})
        EXPECT_THROW(attention("nystrom").make(input({{"landmarks", m}})), UsageError);
    EXPECT_THROW(attention("nystrom").make(input({{"landmarks", "19"}, {"conv", "4"}})),
                 UsageError);
}

}  // namespace
}  // namespace tsdiag
