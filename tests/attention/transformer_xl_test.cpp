#include <functional>

#include "attention/twins.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag {
namespace {

using namespace test;

constexpr Index sines = 10;  // columns of R

/// u, v and W of each head.
struct Parameters {
    Matrix u{heads, width}, v{heads, width}, w{heads * width, sines};

    Parameters() {
        Rng(71).fill_normal(u.a, 0, 0.6);
        Rng(72).fill_normal(v.a, 0, 0.6);
        Rng(73).fill_normal(w.a, 0, 0.4);
    }
    std::function<Tensor(std::string_view)> source() const {
        return [*this](std::string_view name) {
            return one_head(name == "content_bias" ? u : name == "position_bias" ? v : w);
        };
    }
};

double at(const AttentionInput& in, Index i) {
    return in.position.empty() ? double(i) : in.position[std::size_t(i)];
}

/// Logit by logit; row i of P is token m + i of the keys.
Matrix twin(const AttentionInput& in, Index head, const Parameters& own, double clamp = 1e9) {
    const Index m = in.k.rows() - in.q.rows();
    const Matrix q = naive::matrix_of(in.q, head),
                 k = naive::matrix_of(in.k, head / (in.q.batch() / in.k.batch()));
    Matrix p(q.rows, k.rows);
    for (Index i = 0; i < q.rows; ++i) {
        double z = 0;
        for (Index j = 0; j < k.rows; ++j) {
            const double t = at(in, m + i) - at(in, j), near = std::clamp(t, -clamp, clamp);
            if ((in.causal && j > m + i) || (in.window > 0 && std::abs(t) >= double(in.window)))
                continue;
            double s = 0;
            for (Index c = 0; c < width; ++c) {
                double r = 0;
                for (Index e = 0; e < sines; ++e) {
                    const double f = std::pow(10000.0, -double(e % (sines / 2)) * 2 / sines);
                    r += own.w(head * width + c, e) *
                         (e < sines / 2 ? std::sin(near * f) : std::cos(near * f));
                }
                s += (q(i, c) + own.u(head, c)) * k(j, c) + (q(i, c) + own.v(head, c)) * r;
            }
            z += p(i, j) = std::exp(in.scale * s);
        }
        for (Index j = 0; j < k.rows; ++j) p(i, j) /= z;
    }
    return p;
}

AttentionInput input_of(const Parameters& own, AttentionOptions options = {}) {
    AttentionInput in = input(std::move(options));
    in.parameter = own.source();
    return in;
}

/// The last n - m tokens, with the m before them as a memory.
AttentionInput with_memory(AttentionInput in, Index m) {
    in.causal = true;
    in.q = contiguous(in.q.row_range(m, in.q.rows() - m));
    return in;
}

void expect_twins(const AttentionInput& in, const Parameters& own, double clamp = 1e9) {
    const auto op = attention("transformer_xl").make(in);
    for (Index k = 0; k < heads; ++k) {
        const std::vector<double> expected = twin(in, k, own, clamp).a;
        EXPECT_TENSOR_NEAR(op->matrix().batch_range(k, 1), expected, rounding(200));
        // Every block shifts its own rows.
        for (const Index first : {0, 3})
            for (const Index count : {1, 2, 4})
                EXPECT_TENSOR_NEAR(op->rows(first, count).p.batch_range(k, 1),
                                   op->matrix().batch_range(k, 1).row_range(first, count),
                                   rounding(200));
    }
}

TEST(TransformerXl, EqualsTheNaiveOne) {
    const Parameters own;
    for (const bool causal : {false, true})
        for (const Index window : {0, 4})
            for (const bool gaps : {false, true}) {
                AttentionInput in = input_of(own);
                in.causal = causal;
                in.window = window;
                if (gaps)
                    for (Index i = 0; i < n; ++i)
                        in.position.push_back(double(i + 5 * (i > 2)) + 0.5 * double(i > 9));
                expect_twins(in, own);
                in.k = contiguous(in.k.batch_range(0, heads / 2));
                expect_twins(in, own);
            }
}

TEST(TransformerXl, EqualsTheNaiveOneWithAMemory) {
    const Parameters own;
    for (const Index m : {1, 7, 12})
        for (const Index window : {0, 9}) {
            AttentionInput in = with_memory(input_of(own), m);
            in.window = window;
            expect_twins(in, own);
            for (Index i = 0; i < n; ++i) in.position.push_back(double(2 * i + (i > 8)));
            expect_twins(in, own);
        }
}

TEST(TransformerXl, ClampsDistances) {
    const Parameters own;
    for (const bool causal : {false, true}) {
        AttentionInput in = input_of(own, {{"clamp", "3"}});
        in.causal = causal;
        expect_twins(in, own, 3);
        for (Index i = 0; i < n; ++i) in.position.push_back(double(2 * i));
        expect_twins(in, own, 3);
    }
}

TEST(TransformerXl, IsSoftmaxWithoutPositionsAndBiases) {
    AttentionInput in = input({}, true);
    in.parameter = [](std::string_view name) {
        return name == "position" ? zeros(cpu(), {1, heads * width, 4}, Type::f64)
                                  : zeros(cpu(), {1, heads, width}, Type::f64);
    };
    AttentionInput plain = in;
    EXPECT_TENSOR_NEAR(attention("transformer_xl").make(in)->matrix(),
                       attention("softmax").make(plain)->matrix(), rounding(n));
}

TEST(TransformerXl, DrawsTheSameForEachSampleAndNotForEachSeed) {
    const AttentionInput in = input({}, true);
    const Tensor p = attention("transformer_xl").make(in)->matrix();
    AttentionInput both = in;
    both.q = concat_batches(std::vector<Tensor>{scale(in.q, -1), in.q});
    both.k = concat_batches(std::vector<Tensor>{scale(in.k, 2), in.k});
    both.samples = 2;
    EXPECT_TENSOR_NEAR(attention("transformer_xl").make(both)->matrix().batch_range(heads, heads),
                       p, exactly);
    AttentionInput other = in;
    other.options["seed"] = "1";
    EXPECT_FALSE(tensor_near(attention("transformer_xl").make(other)->matrix(), p, exactly));
}

/// Row statistics know which column is a row's own.
TEST(TransformerXl, HasTheStatisticsOfItsRowsWithAMemory) {
    const Index m = 8;
    const AttentionInput in = with_memory(input_of(Parameters()), m);
    const auto op = attention("transformer_xl").make(in);
    EXPECT_EQ(op->memory(), m);
    const RowBlock block = op->rows(2, 4);
    EXPECT_EQ(block.tokens(), n - m);
    const RowStatistics s = row_statistics(block);
    for (Index k = 0; k < heads; ++k) {
        const Matrix p = naive::matrix_of(block.p, k);
        Matrix window(1, n);
        for (Index i = 0; i < 4; ++i) {
            EXPECT_EQ(s.diagonal[std::size_t(k * 4 + i)], p(i, m + 2 + i));
            for (Index length = 1; length <= n; ++length) {
                const Index start = naive::window_start(m + 2 + i, n, length);
                for (Index j = start; j < start + length; ++j) window(0, length - 1) += p(i, j);
            }
        }
        double sum = 0;
        for (Index l = 0; l < n; ++l) {
            sum += s.window[std::size_t(k * n + l)];
            EXPECT_CLOSE(sum, window(0, l), rounding(100));
        }
    }
}

/// |Pi2 P|_2 is a singular value, which any matrix has; eigenvalues are those of square ones.
TEST(TransformerXl, HasACentredNormWithAMemoryAndNoEigenvalues) {
    const Index m = 6;
    AttentionInput in = with_memory(input_of(Parameters()), m);
    in.q = scale(in.q, 3);
    const auto op = attention("transformer_xl").make(in);
    std::vector<double> expected;
    for (Index k = 0; k < heads; ++k) {
        const Matrix p = naive::centred(naive::matrix_of(op->matrix(), k));
        expected.push_back(singular_values(p.a, p.rows, p.cols).front());
    }
    const double streamed = op->bytes() / 2;
    for (const double memory : {2e9, streamed})
        for (const char* route : {"auto", "arnoldi", "dense", "spectra"}) {
            if (memory == streamed && (route == std::string("dense") || route[0] == 's')) continue;
            const std::vector<Estimate> found = centred_norm(*op, memory, 1e-9, route);
            for (Index k = 0; k < heads; ++k) {
                EXPECT_TRUE(found[std::size_t(k)].converged) << route;
                EXPECT_CLOSE(found[std::size_t(k)].value, expected[std::size_t(k)],
                             (Tolerance{.relative = 1e-8, .reason = "ten times the accuracy"}))
                    << route;
            }
        }
    EXPECT_THROW(second_eigenvalue(*op), Error);
    for (const Contraction& c : stationary_norm(*op)) EXPECT_EQ(c.why_not, not_square);
    for (Index k = 0; k < heads; ++k)
        EXPECT_CLOSE(dobrushin(*op)[std::size_t(k)],
                     naive::dobrushin(naive::matrix_of(op->matrix(), k)), rounding(n));
}

TEST(TransformerXl, IsFiniteForFewTokensAndLogitsOfAnySize) {
    for (const Type type : {Type::f32, Type::f64})
        for (const Index tokens : {1, 2, 3, 17})
            for (const double size : {0.0, 1e-30, 1e4, 1e15})
                for (const bool causal : {false, true}) {
                    AttentionInput in = drawn_input(2, tokens, width, type, 3, 1);
                    in.q = scale(in.q, size);
                    in.causal = causal;
                    const auto op = attention("transformer_xl").make(in);
                    EXPECT_EQ(first_nonfinite(op->matrix()), -1);
                    for (const double sum : row_statistics(op->rows(0, tokens)).sum)
                        EXPECT_CLOSE(sum, 1, rounding(40), type);  // of up to 17 terms
                }
}

TEST(TransformerXl, RefusesParametersThatDoNotFit) {
    for (const char* wrong : {"content_bias", "position_bias", "position"})
        for (const Shape shape :
             {Shape{1, heads * width + 1, 4}, Shape{2, heads, width}, Shape{1, heads * width, 5}}) {
            AttentionInput in = input();
            in.parameter = [&](std::string_view name) {
                return name == wrong ? zeros(cpu(), shape, Type::f64) : Tensor();
            };
            EXPECT_THROW(attention("transformer_xl").make(in), ShapeError);
        }
}

}  // namespace
}  // namespace tsdiag
