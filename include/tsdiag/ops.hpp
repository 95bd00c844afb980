#pragma once
#include <initializer_list>
#include <span>
#include <vector>

#include "tsdiag/backend.hpp"
#include "tsdiag/random.hpp"
#include "tsdiag/tensor.hpp"

/// Every function on tensors.  Shapes are (batch, rows, cols); `ShapeError` names op and shapes
/// that do not fit.  All that return tensors are differentiable (gradient.hpp).
namespace tsdiag {

/// alpha a b, alpha a^T b (first) or alpha a b^T (second).  a (h, n, k), b (h', k, m), h' divides
/// h: batch i of a meets batch i / (h/h') of b (grouped queries).  Cost: 2 h n k m flops.
Tensor matmul(const Tensor& a, const Tensor& b, Transpose t = Transpose::none, double alpha = 1);
/// op(a) x, x (b, k, 1) in float64: the sums and the result are in double for any type of a.
/// Not differentiable.
Tensor matvec(const Tensor& a, const Tensor& x, bool transposed = false);
/// x W^T + bias with W (1, out, in) as `nn.Linear` stores it; bias (1, 1, out) may be empty.  One
/// product of all batches where something is tracked, else one each: then a batch does not affect
/// the bits of another.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias);

/// op(x W^T + bias) + added; `added` may be empty.
Tensor linear_map(const Tensor& x, const Tensor& weight, const Tensor& bias, Unary op,
                  const Tensor& added = {});
/// split_heads(x W^T + bias, heads).
Tensor linear_heads(const Tensor& x, const Tensor& weight, const Tensor& bias, Index heads);
struct HeadsMap {
    Tensor weight, bias;
    Index heads;
};
/// split_heads(x W^T + bias, heads) of each map, (b heads, rows, out / heads): on a device by one
/// product, where the weights, and the biases, lie one behind another in memory (`adjacent`) and
/// the heads have one width.
std::vector<Tensor> linear_heads(const Tensor& x, std::span<const HeadsMap> maps);
/// Copies of the tensors, contiguous, one behind another in one memory.
std::vector<Tensor> adjacent(std::span<const Tensor> parts);

/// (x - mean) / sqrt(variance + eps) * weight + bias of each row, without the mean unless `centre`;
/// weight and bias may be empty.
struct RowNorm {
    Tensor weight, bias;
    double eps = 0;
    bool centre = true;
};
Tensor normalise(const Tensor& x, const RowNorm& norm);
/// branch = x W^T + bias, sum = added + branch and, where `norm` is not null, the norm of the sum:
/// on a device a product and one kernel.
struct LinearSum {
    Tensor branch, sum, normed;
};
LinearSum linear_sum(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& added,
                     const RowNorm* norm);

Tensor map(Unary op, const Tensor& a);
/// Extents of b equal those of a or are 1.
Tensor zip(Binary op, const Tensor& a, const Tensor& b);
inline Tensor add(const Tensor& a, const Tensor& b) { return zip(Binary::add, a, b); }
inline Tensor subtract(const Tensor& a, const Tensor& b) { return zip(Binary::subtract, a, b); }
inline Tensor multiply(const Tensor& a, const Tensor& b) { return zip(Binary::multiply, a, b); }
inline Tensor divide(const Tensor& a, const Tensor& b) { return zip(Binary::divide, a, b); }
Tensor affine(const Tensor& a, double alpha, double beta = 0);  ///< alpha a + beta
inline Tensor scale(const Tensor& a, double alpha) { return affine(a, alpha, 0); }

/// (x - mean) / sqrt(variance + eps) * weight + bias per row; weight, bias may be empty.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps);
/// x / sqrt(mean(x^2) + eps) * weight per row; weight may be empty.
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps);

Tensor row_sum(const Tensor& a);     ///< (b, r, 1)
Tensor row_max(const Tensor& a);     ///< (b, r, 1); the derivative is shared among equal maxima
Tensor column_sum(const Tensor& a);  ///< (b, 1, c)
Tensor column_mean(const Tensor& a);
Tensor subtract_column_mean(const Tensor& a);  ///< Pi2 X

Tensor gather_rows(const Tensor& table, std::span<const Index> rows);  ///< (1, rows.size(), c)
/// (1, count, c): row i of a (1, r, c) is added to row rows[i] of zeros.
Tensor scatter_add_rows(const Tensor& a, std::span<const Index> rows, Index count);
/// a_(i, columns[i]) of each row i of a (1, r, c), as (1, r, 1).
Tensor pick(const Tensor& a, std::span<const Index> columns);
Tensor concat_rows(std::span<const Tensor> parts);
inline Tensor concat_rows(std::initializer_list<Tensor> parts) {
    return concat_rows(std::span(parts.begin(), parts.size()));
}
Tensor concat_cols(std::span<const Tensor> parts);
Tensor concat_batches(std::span<const Tensor> parts);
/// Zeros of `shape` with `a` placed at (batch, row, col).
Tensor place(const Tensor& a, Shape shape, Index batch, Index row, Index col);
Tensor zeros(const Backend& backend, Shape shape, Type type);
/// (1, 1, 1).
Tensor constant(const Backend& backend, double value, Type type);
/// offset + scale u, u the elements of this stream from its beginning: uniform in (0, 1) or
/// standard normal.
Tensor random_tensor(const Backend& backend, Shape shape, Type type, Law law, const Rng& rng,
                     double offset, double scale);
/// Extents of a that are 1 become those of `shape`.
Tensor expand(const Tensor& a, Shape shape);
/// Sums over the axes that are 1 in `shape`, and over groups of batches: the derivative of `expand`
/// and of a grouped product.
Tensor reduce_to(const Tensor& a, Shape shape);
/// Each batch `times` times in a row.
Tensor repeat_batches(const Tensor& a, Index times);
Tensor contiguous(const Tensor& a);  ///< a copy where needed
Tensor cast(const Tensor& a, Type type);
Tensor transpose(const Tensor& a);  ///< (b, c, r), a copy
/// (s, n, h w) -> (s h, n, w): the heads of each sample in turn.  A view where s = 1.
Tensor split_heads(const Tensor& a, Index heads);
/// (s h, n, w) -> (s, n, h w): heads concatenated.  The inverse of `split_heads`.
Tensor merge_heads(const Tensor& a, Index samples = 1);

/// Rotary embedding: see Backend::rotate.
Tensor rotate(const Tensor& a, std::span<const double> position, std::span<const double> frequency,
              bool interleaved);

/// Softmax over the visible columns; consumes `s` (in place where its memory is not shared).
Tensor softmax_rows(Tensor s, const Visible& visible);
Tensor hide(Tensor p, const Visible& visible);
Tensor log_sum_exp(const Tensor& a);  ///< of each row, (b, r, 1)

// Where squares of float64 would overflow or underflow, sums are those of 2^-e x times 2^2e:
// scaling by a power of two is exact.

RowStatistics row_statistics(const Tensor& p, const Tensor& slope, bool divided, Index first,
                             const Visible& visible);
StateMoments state_moments(const Tensor& x);
Wide squared_norm(const Tensor& x);
/// `row_statistics`, whose rows are folded, without waiting for a device; `state_moments` and
/// `squared_norm` of each batch of each of `xs`, which are kept until a device has read them.
Later<RowStatistics> row_totals_later(const Tensor& p, const Tensor& slope, bool divided,
                                      Index first, const Visible& visible);
Later<std::vector<StateMoments>> state_moments_later(std::vector<Tensor> xs);
std::vector<Wide> squared_norms(std::span<const Tensor> xs);
Later<std::vector<double>> to_host_later(const Tensor& x);  ///< its elements, as `to_host`
std::vector<double> largest_moduli(const Tensor& x);        ///< max |x| of each batch
/// e with 2^e <= max |x| < 2^(e + 1), -1000 <= e <= 1000: 2^-e x is safe to square.  0 where x = 0
/// or is not finite.
int exponent_of(double largest);
/// `exponent_of` the largest |x| of each batch, and of all batches together; 0 for float32, whose
/// squares double holds.
std::vector<int> exponents_of(const Tensor& x);
int exponent_of(const Tensor& x);
/// 2^-exponents[b] x_b, of each batch; 2^-exponent x.
Tensor without_exponents(const Tensor& x, std::span<const int> exponents);
Tensor without_exponent(const Tensor& x, int exponent);
/// |x_i| of each row, (b * r), without overflow or underflow.
std::vector<double> row_norms(const Tensor& x);
double dot(const Tensor& a, const Tensor& b);                ///< sum of products, in double
std::vector<double> dots(const Tensor& a, const Tensor& b);  ///< the same of each batch
Index first_nonfinite(const Tensor& x);                      ///< row-major index; -1: all finite
Later<std::vector<Index>> first_nonfinite_later(std::span<const Tensor> xs);  ///< of each

}  // namespace tsdiag
