#pragma once
#include <optional>
#include <vector>

#include "one_matrix.hpp"

/// Spectra of a P on a device, by products there: it is kept where it fits into memory, else
/// recomputed in blocks for each product.  Only numbers leave the device.
namespace tsdiag::on_device {

/// The second largest eigenvalue modulus of each head, by Arnoldi on Pi2 P Pi2 where P is
/// stochastic, else on P.  Cost m n^2 a head, m some hundred.
std::vector<Estimate> second_eigenvalue(const AttentionOperator& p, double memory, bool stochastic,
                                        double accuracy = usual_accuracy);
/// |Pi2 P|_2 of each head, by Lanczos on P^T Pi2 P.
std::vector<Estimate> centred_norm(const AttentionOperator& p, double memory,
                                   double accuracy = usual_accuracy);
/// Both of these heads of a P that is kept on a device, or one of them, in step.
struct InStep {
    bool second, norm;
    one_matrix::Which which;
    std::vector<Index> heads;
    std::vector<double> rounding;  ///< of products of each of them with a unit vector
};
RadiiAndNorms in_step(const AttentionOperator& p, const InStep& sought, double memory,
                      double accuracy = usual_accuracy);
/// The 2-norm of what is wrong with P less its means, found in float64 from |P|_F^2 = `squares`.
double rounding_of_means(Index rows, Index cols, double squares);
/// P_ii of each head.
std::vector<std::vector<double>> diagonals(const AttentionOperator& p, double memory);
/// The same of one head (1, n, n) by the dense solver of its backend; none where that did not
/// converge.  Throws `OutOfMemory`.
std::optional<Estimate> dense_second(const Tensor& p, const one_matrix::Which& which,
                                     double accuracy);
std::optional<Estimate> dense_norm(const Tensor& p, double accuracy);

/// delta_pi of each P of a stack (count, n, n) without negative entries whose rows sum to 1: pi by
/// power iteration, and the norm by Lanczos, all in step.  None where an entry is 0, pi does not
/// converge fast or the norm is not certified.  Memory: four copies of P in float64.  Throws
/// `OutOfMemory`.
std::vector<std::optional<Estimate>> stationary_norms(const Tensor& p, double accuracy);

}  // namespace tsdiag::on_device
