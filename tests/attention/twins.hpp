#pragma once
#include <gtest/gtest.h>

#include "attention/heads.hpp"
#include "attention/sizes.hpp"
#include "support/near.hpp"

/// Variants against formulas in loops.
namespace tsdiag::test {

using naive::Matrix;

constexpr Index n = 19;

inline AttentionInput input(AttentionOptions options = {}, bool causal = false) {
    AttentionInput in = drawn_input(heads, n, width, Type::f64, 3);
    in.options = std::move(options);
    in.causal = causal;
    return in;
}

inline Matrix logits(const AttentionInput& in, Index head) {
    Matrix s = naive::product(naive::matrix_of(in.q, head),
                              naive::transposed(naive::matrix_of(in.k, head)));
    for (double& e : s.a) e *= in.scale;
    return s;
}

/// P(i, j) = f(i, j) where row i sees column j.
template <class F>
Matrix entries(bool causal, F f) {
    Matrix p(n, n);
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < n; ++j)
            if (naive::sees(i, j, causal)) p(i, j) = f(i, j);
    return p;
}

inline Matrix divided_by_row_sums(Matrix p) {
    for (Index i = 0; i < p.rows; ++i) {
        double z = 0;
        for (Index j = 0; j < p.cols; ++j) z += p(i, j);
        for (Index j = 0; j < p.cols && z != 0; ++j) p(i, j) /= z;
    }
    return p;
}

/// Compares all heads, causal and not; `twin(in, head)` is the naive P.
template <class Twin>
void expect_twin(const char* name, const AttentionInput& like, Twin twin) {
    for (const bool causal : {false, true}) {
        AttentionInput in = like;
        in.causal = causal && attention(name).facts.causal();
        const auto op = attention(name).make(in);
        for (Index k = 0; k < heads; ++k)
            EXPECT_TENSOR_NEAR(op->matrix().batch_range(k, 1), twin(in, k).a, rounding(200))
                << name << (in.causal ? ", causal" : "");
    }
}

}  // namespace tsdiag::test
