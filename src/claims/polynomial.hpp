#pragma once
#include "variables.hpp"

/// Polynomial attention: the power p of the logits S = X Q K^T X^T / sqrt(w), X (N x D), Q and K
/// (D x w), entry by entry or as a matrix.
namespace tsdiag::claim {

/// S = A B^T with A = X Q / sqrt(w) and B = X K, N x w.
struct Logits {
    Matrix X, A, B;
};
/// Entries of mean 0; X of variance 1, Q and K of variance `weights` unless their distribution
/// brings its own.  D = `how.d`, w = D / `how.heads`.
Logits draw_logits(const Check& how, Index N, const Rng& rng, double weights = 1);

/// |S^p|_F, entry by entry: O(N^2 (w + p)).
double elementwise_norm(const Logits& s, int p);
/// |S^p|_F of the power of the matrix, never N x N: O(N w^2).
double matrix_norm(const Logits& s, int p);
/// |d(S^p)/dQ|_F, the norm of an N^2 x D w matrix, in the same two readings.
double elementwise_gradient_norm(const Logits& s, int p);
double matrix_gradient_norm(const Logits& s, int p);

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
