#pragma once
#include "variables.hpp"

/// Polynomial attention: the power p of the logits S = X Q K^T X^T / sqrt(w), X (N x D), Q and K
/// (D x w), entry by entry or as a matrix.
namespace tsdiag::claim {

/// S = A B^T with A = X Q / sqrt(w) and B = X K, N x w.
struct Logits {
    Matrix X, A, B;
};
/// sigma_x^2 and sigma_t^2 of [POLY] Thm 4.2: distinct and not 1, so that their powers are visible.
struct Scales {
    double tokens = 2, weights = 0.5;
};
/// Entries of mean 0; X of variance `scales.tokens`, Q and K of variance `scales.weights` unless
/// their distribution brings its own.  D = `how.d`, w = D / `how.heads`.
Logits draw_logits(const Check& how, Index N, const Rng& rng, const Scales& scales = {});

/// |S^p|_F, entry by entry: O(N^2 (w + p)).
double elementwise_norm(const Logits& s, int p);
/// |S^p|_F of the power of the matrix, never N x N: O(N w^2).
double matrix_norm(const Logits& s, int p);
/// |d(S^p)/dQ|_F, the norm of an N^2 x D w matrix, in the same two readings.
double elementwise_gradient_norm(const Logits& s, int p);
double matrix_gradient_norm(const Logits& s, int p);
/// The spectral norm of that N^2 x D w matrix, entry by entry: the power method.
double elementwise_gradient_spectral_norm(const Logits& s, int p);
/// S^T: its gradient by Q has the norms of the gradient of S by K.
Logits by_keys(const Logits& s);

/// 1 * 3 * ... * m; 1 for m < 1.
double double_factorial(int m);
/// E |x|^(2p) of k independent standard normal numbers: k (k + 2) ... (k + 2p - 2).
double norm_moment(Index k, int p);

/// Sizes, and the variances of an entry of X and of the weights; entries are normal.
struct LogitSizes {
    Index N = 0, D = 0, w = 0;
    double x = 1, weights = 1;
};
LogitSizes logit_sizes(const Check& how);

/// E |(X Q K^T X^T)^p|_F^2 entry by entry, exact at every size: given X, Q^T x_i and K^T x_j are
/// independent normal vectors.
double logit_square(const LogitSizes& s, int p);
/// E |d((X Q K^T X^T)^p)/dQ|_F^2 entry by entry, exact at every size.
double gradient_square(const LogitSizes& s, int p);

}  // namespace tsdiag::claim
