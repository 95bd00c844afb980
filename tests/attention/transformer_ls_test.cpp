#include "attention/twins.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

using namespace test;

struct LongShort {
    Index segment = 4, rank = 3, chunk = 5;
    bool norm = true;
};

AttentionOptions options_of(const LongShort& r) {
    return {{"segment", std::to_string(r.segment)},
            {"rank", std::to_string(r.rank)},
            {"chunk", std::to_string(r.chunk)},
            {"dual_ln", r.norm ? "1" : "0"}};
}

/// W of each head, (heads, width, rank).
std::vector<Matrix> projections(Index rank) {
    std::vector<Matrix> all;
    for (Index k = 0; k < heads; ++k) {
        all.emplace_back(width, rank);
        Rng(std::uint64_t(60 + k)).fill_normal(all.back().a, 0, 0.7);
    }
    return all;
}

AttentionInput input_of(const LongShort& reading, const std::vector<Matrix>& w) {
    AttentionInput in = input(options_of(reading));
    std::vector<Tensor> all;
    for (const Matrix& m : w) all.push_back(one_head(m));
    in.parameter = [t = concat_batches(all)](std::string_view name) {
        return name == "proj" ? t : Tensor();
    };
    return in;
}

/// The rows of all heads side by side, each of mean 0 and variance 1.
void normalise(std::vector<Matrix>& keys) {
    for (Index i = 0; i < keys[0].rows; ++i) {
        double mean = 0, square = 0;
        const double count = double(std::ssize(keys) * keys[0].cols);
        for (const Matrix& k : keys)
            for (Index c = 0; c < k.cols; ++c) mean += k(i, c) / count;
        for (const Matrix& k : keys)
            for (Index c = 0; c < k.cols; ++c) square += std::pow(k(i, c) - mean, 2) / count;
        for (Matrix& k : keys)
            for (Index c = 0; c < k.cols; ++c)
                k(i, c) = (k(i, c) - mean) / std::sqrt(square + 1e-5);
    }
}

/// Row by row: the visible keys, each with its contribution to P where it is attended to.
Matrix twin(const AttentionInput& in, Index head, const LongShort& reading,
            const std::vector<Matrix>& w) {
    const Index tokens = in.q.rows(), step = in.causal ? reading.chunk : tokens;
    std::vector<Matrix> local, projected, weights;
    for (Index k = 0; k < heads; ++k) local.push_back(naive::matrix_of(in.k, k));
    for (Index k = 0; k < heads; ++k) {
        const Matrix s = naive::product(local[std::size_t(k)], w[std::size_t(k)]);
        const Index chunks = (tokens + step - 1) / step;
        Matrix t(chunks * reading.rank, tokens);
        for (Index c = 0; c < chunks; ++c)
            for (Index r = 0; r < reading.rank; ++r) {
                double z = 0;
                const Index end = std::min(tokens, (c + 1) * step);
                for (Index j = c * step; j < end; ++j) z += std::exp(s(j, r));
                for (Index j = c * step; j < end; ++j)
                    t(c * reading.rank + r, j) = std::exp(s(j, r)) / z;
            }
        weights.push_back(t);
        projected.push_back(naive::product(t, local[std::size_t(k)]));
    }
    if (reading.norm) normalise(local), normalise(projected);
    const Matrix q = naive::matrix_of(in.q, head), &near = local[std::size_t(head)],
                 &far = projected[std::size_t(head)], &t = weights[std::size_t(head)];
    Matrix p(tokens, tokens);
    for (Index i = 0; i < tokens; ++i) {
        std::vector<double> logit;
        std::vector<std::vector<double>> adds;
        const auto see = [&](const Matrix& keys, Index row, std::vector<double> weight) {
            double s = 0;
            for (Index c = 0; c < width; ++c) s += in.scale * q(i, c) * keys(row, c);
            logit.push_back(s);
            adds.push_back(std::move(weight));
        };
        for (Index j = 0; j < tokens; ++j) {
            const Index home = i / reading.segment * reading.segment;
            const Index half = std::max<Index>(1, reading.segment / 2);
            if (in.causal ? j > i || j <= i - reading.segment
                          : j < home - half || j >= home + reading.segment + half)
                continue;
            std::vector<double> one(std::size_t(tokens), 0.0);
            one[std::size_t(j)] = 1;
            see(near, j, std::move(one));
        }
        for (Index r = 0; r < t.rows; ++r)
            if (!in.causal || (r / reading.rank + 1) * step <= i / step * step)
                see(far, r, {t.a.begin() + r * tokens, t.a.begin() + (r + 1) * tokens});
        double z = 0;
        for (const double s : logit) z += std::exp(s);
        for (std::size_t a = 0; a < logit.size(); ++a)
            for (Index j = 0; j < tokens; ++j)
                p(i, j) += std::exp(logit[a]) / z * adds[a][std::size_t(j)];
    }
    return p;
}

TEST(TransformerLs, EqualsTheNaiveOne) {
    for (const LongShort& reading :
         {LongShort{}, LongShort{.norm = false}, LongShort{.segment = 1, .rank = 1, .chunk = 1},
          LongShort{.segment = 7, .rank = 25, .chunk = 19}, LongShort{.segment = 50, .chunk = 4}}) {
        const std::vector<Matrix> w = projections(reading.rank);
        expect_twin("transformer_ls", input_of(reading, w),
                    [&](const AttentionInput& in, Index k) { return twin(in, k, reading, w); });
    }
}

/// Biases belong to positions, which projected keys lack.
TEST(TransformerLs, AddsABiasToTheLogitsOfKeys) {
    const LongShort reading{.segment = 100, .chunk = 100};
    AttentionInput in = input(options_of(reading), true);  // causal: no chunk is wholly before
    in.options["dual_ln"] = "0";
    in.bias = gaussian({heads, n, n}, Type::f64, 9);
    const auto op = attention("transformer_ls").make(in);
    for (Index k = 0; k < heads; ++k) {
        Matrix s = logits(in, k);
        const Matrix b = naive::matrix_of(in.bias, k);
        for (std::size_t i = 0; i < s.a.size(); ++i) s.a[i] += b.a[i];
        EXPECT_TENSOR_NEAR(op->matrix().batch_range(k, 1), naive::softmax(s, true).a, rounding(n));
    }
}

/// Segments and chunks are defined by positions: masked tokens leave gaps.
TEST(TransformerLs, HasSegmentsOfPositions) {
    for (const bool causal : {false, true}) {
        const LongShort reading{.segment = 4, .rank = 1, .chunk = 8};
        AttentionInput in = input(options_of(reading), causal);
        for (Index i = 0; i < n; ++i) in.position.push_back(double(i + 6 * (i > 2)));
        const auto op = attention("transformer_ls").make(in);
        // Positions 0 1 2 9 10 ...: row 3 is in segment 8 .. 11 and sees 6 .. 13, causal 6 .. 9,
        // and the projection of everything, causal of chunk 0 .. 7, tokens 0, 1 and 2.
        const std::vector<double> all = op->matrix().row_range(3, 1).to_host<double>();
        for (Index j = 0; j < n; ++j) EXPECT_EQ(all[std::size_t(j)] > 0, !causal || j <= 3) << j;
        in.options["rank"] = "1";
        in.options["chunk"] = "100";
        if (!causal) continue;
        const std::vector<double> near =
            attention("transformer_ls").make(in)->matrix().row_range(3, 1).to_host<double>();
        for (Index j = 0; j < n; ++j) EXPECT_EQ(near[std::size_t(j)] > 0, j == 3) << j;
    }
}

TEST(TransformerLs, DrawsTheSameForEachSampleAndNotForEachSeed) {
    for (const bool causal : {false, true}) {
        const AttentionInput in = input(options_of({}), causal);
        const Tensor p = attention("transformer_ls").make(in)->matrix();
        AttentionInput both = in;
        both.q = concat_batches(std::vector<Tensor>{scale(in.q, -1), in.q});
        both.k = concat_batches(std::vector<Tensor>{scale(in.k, 2), in.k});
        both.samples = 2;
        EXPECT_TENSOR_NEAR(
            attention("transformer_ls").make(both)->matrix().batch_range(heads, heads), p, exactly);
        AttentionInput other = in;
        other.options["seed"] = "1";
        EXPECT_FALSE(tensor_near(attention("transformer_ls").make(other)->matrix(), p, exactly));
    }
}

TEST(TransformerLs, IsFiniteForFewTokensAndLogitsOfAnySize) {
    for (const Type type : {Type::f32, Type::f64})
        for (const Index tokens : {1, 2, 3, 17})
            for (const double size : {0.0, 1e-30, 1e4, 1e15})
                for (const bool causal : {false, true}) {
                    AttentionInput in = drawn_input(2, tokens, width, type, 3, 1);
                    in.q = scale(in.q, size);
                    in.k = scale(in.k, size);
                    in.causal = causal;
                    in.options = {{"segment", "3"}, {"chunk", "2"}};
                    const auto op = attention("transformer_ls").make(in);
                    EXPECT_EQ(first_nonfinite(op->matrix()), -1);
                    for (const double sum : row_statistics(op->rows(0, tokens)).sum)
                        EXPECT_CLOSE(sum, 1, rounding(40), type);  // up to 17 + 32 terms
                }
}

TEST(TransformerLs, RefusesAProjectionThatDoesNotFit) {
    for (const Shape shape : {Shape{heads, width + 1, 3}, Shape{heads - 1, width, 3}}) {
        AttentionInput in = input();
        in.parameter = [&](std::string_view) { return zeros(cpu(), shape, Type::f64); };
        EXPECT_THROW(attention("transformer_ls").make(in), ShapeError);
    }
}

}  // namespace
}  // namespace tsdiag
