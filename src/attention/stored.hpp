#pragma once
#include <span>
#include <vector>

#include "tsdiag/attention.hpp"
#include "tsdiag/parallel.hpp"

/// P of every head in host memory, and work over heads in parallel.
namespace tsdiag::stored {

inline bool fits(const AttentionOperator& p, double memory) { return p.bytes() <= memory; }

/// Throws `NonFiniteError` where an entry of rows first, first + 1, ... of P is not finite.
void require_finite(const Tensor& rows, Index first);

/// Rows of P of every head on the host: the tensor itself where accessible, else a copy.  Throws
/// `NonFiniteError` where an entry is not finite.
class Heads {
  public:
    explicit Heads(const Tensor& rows, Index first = 0);
    /// Of rows that are known to be finite.
    static Heads of_finite(const Tensor& rows);
    View operator[](Index head) const;
    Index count() const { return view_.shape.batch; }

  private:
    struct Finite {};
    Heads(const Tensor& rows, Finite);

    Tensor rows_;
    View view_;
    std::vector<float> narrow_;
    std::vector<double> wide_;
};

/// out[k] = function(k) for k in [0, count) on all threads.
template <class Out, class Function>
std::vector<Out> for_each_head(Index count, const Function& function) {
    auto out = std::vector<Out>(std::size_t(count));
    in_parallel(count, [&](Index k) { out[std::size_t(k)] = function(k); });
    return out;
}

/// out[k] = function(k) for each head k of `shared`, on all threads; synchronises its backend
/// first, so that the function may read tensors.
template <class Out, class Function>
std::vector<Out> for_each_head(const Tensor& shared, const Function& function) {
    shared.backend().synchronise();
    return for_each_head<Out>(shared.batch(), function);
}

View row_range(const View& a, Index first, Index count);

/// A^T 1 and |Pi2 A|_F of a matrix in host memory; of some of its n rows, their part of the square,
/// where columns beyond those of `rows` are 0.
std::vector<double> column_sums(const View& a);
double centred_frobenius(const View& a, std::span<const double> column_sums);
/// An upper bound of |A|_2: the root of the sum `squares` of its squared entries, and what rounding
/// may have taken from it, A (rows, cols) being P less its column means, whose squares sum to
/// `means`.
double norm_bound(double squares, double means, Index rows, Index cols);
/// y = (Pi2 A)^T (Pi2 A) x: the mean of A x is known beforehand up to rounding, and what rounding
/// leaves of it is subtracted afterwards.
/// Where `also` is given, image = A also in the same pass.
void centred_normal(const View& a, std::span<const double> column_sums, std::span<const double> x,
                    std::span<double> y, std::span<const double> also = {},
                    std::span<double> image = {});
double add_centred_squares(const View& rows, std::span<const double> column_sums, Index n,
                           double sum);

}  // namespace tsdiag::stored
