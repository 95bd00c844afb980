#pragma once

/// Exact moments of polynomial attention at initialisation: X (N x D) ~ N(0, 1), Q, K (D x d) ~
/// N(0, variance), i.i.d.; S = X Q K^T X^T / sqrt(d), powers entry by entry.
namespace tsdiag::experiment_list {

/// The law's sizes: tokens N, features D, columns d of a head, power p.
struct PowerLaw {
    double N = 1, D = 1, d = 1, variance = 1;
    int p = 1;
};

/// E |S^p|_F^2 = d^-p variance^2p (2p-1)!! d(d+2)..(d+2p-2)
///               (N(N-1) [D(D+2)..(D+2p-2)]^2 + N D(D+2)..(D+4p-2)).
/// Given X, q_i and k_j are independent Gaussians, so the moment holds with one X on both sides.
double mean_squared_norm(const PowerLaw& law);

/// E |d S^p / dQ|_F^2 = d^-p p^2 (2p-3)!! d(d+2)..(d+2p-2) variance^(2p-1)
///                      (N(N-1) [D(D+2)..(D+2p-2)]^2 + N D(D+2)..(D+4p-2)), (-1)!! = 1.
double mean_squared_derivative(const PowerLaw& law);

}  // namespace tsdiag::experiment_list
