#pragma once
#include <optional>
#include <vector>

#include "row_spread.hpp"

/// The squared norms of dP_i/dW_Q and dP_i/dW_K, row by row of P, in float64.
///
/// With S = scale q k^T, q_i = R_i N(W_Q x_i), k_j = R_j N(W_K x_j) (N the q/k norm, R the
/// rotation) and dP_i/dS_i = diag(slope) - p slope^T (rows divided by their sum) or diag(slope)
/// (not):
///
///     |dP_i/dW_Q|^2 = scale^2 |x_i|^2 sum_j |(R_i DN_i)^T (slope_j k_j - p_j sum_l slope_l k_l)|^2
///     |dP_i/dW_K|^2 = scale^2 sum_j |slope_j y_ij x_j^T - p_j sum_l slope_l y_il x_l^T|_F^2,
///         y_ij = (R_j DN_j)^T q_i,
///
/// where DN = diag(g) (I - u u^T / w [- 1 1^T / w])/s for u = N's input centred if N is a
/// LayerNorm, over s.
namespace tsdiag::probe {

/// Rows [first, first + count) of P, and of its slope, cut to the columns that they may see;
/// float64.
struct Rows {
    Index first = 0, count = 0, cols = 0;
    Tensor p, slope;  ///< (h, count, cols); the slope of head k is 2^exponents[k] times this
    bool divided = false;
    std::vector<int> exponents = {};
};
Rows rows_of(const AttentionOperator& op, Index first, Index count);

/// One number per head and row, (h, count).  `gross` is the sum of the moduli of its terms: the
/// rounding error is some eps * gross.
struct RowNorms {
    std::vector<Wide> value, gross;
};

/// One of the two factors of the logits Q K^T, on the host: the map from a projection, by its norm
/// and rotation, to that factor.
struct LogitFactor {
    Index heads = 0, n = 0, w = 0;
    bool normed = false, layer = false;
    std::vector<double> gain;     ///< g, (w)
    std::vector<double> unit;     ///< u, (heads, n, w)
    std::vector<double> inverse;  ///< 2^-exponent / s, (heads, n)
    int exponent = 0;
    std::vector<double> shadow;  ///< R (g o u), (heads, n, w)
    std::vector<double> ones;    ///< R g, (heads, n, w), of a LayerNorm
    Index pairs = 0;             ///< rotated pairs of columns
    bool interleaved = false;
    std::vector<double> cosine, sine;  ///< (n, pairs)
    bool consecutive = false;          ///< the positions are p, p + 1, p + 2, ...

    std::pair<Index, Index> columns(Index pair) const;
    /// The pair of column c and whether c is its second; pair -1: not rotated.
    std::pair<Index, bool> pair_of(Index column) const;
};
LogitFactor query_factor(const Projections& projections);
LogitFactor key_factor(const Projections& projections);

/// Tokens up to which rotated keys are differentiated by a Gram matrix of the tokens.
constexpr Index most_distances = 4096;

/// Whether jac_k_fro of n tokens of d features is found by their Gram matrix.
bool uses_gram(const Projections& projections, Index n, Index d);
/// Flops of one row of all heads, by the sizes alone, so that every device selects the same rows.
double query_work(const Projections& projections, Index heads, Index n);
double key_work(const Projections& projections, Index heads, Index n, Index d);

/// |dP_i/dW_Q|^2 of rows.
class QueryDerivative {
  public:
    QueryDerivative(const Tensor& input, const Projections& projections);
    /// Of all rows of each head where P = softmax(S) in float32, by products in float32; none where
    /// a norm or a rotation stands between.
    std::optional<std::vector<RowSpread::Sum>> sums(const Attention& e) const;
    RowNorms norms(const Rows& rows) const;

  private:
    LogitFactor factor_;
    double scale_;
    int exponent_;  ///< of the members below and of the factor: the squares are 2^(2 exponent)
                    ///< times theirs
    Tensor k_, features_, shadow_, ones_;  ///< (h', n, w), (h', n, f), (h, n, w) twice
    std::vector<double> input_squares_;    ///< |x_i|^2
};

/// |dP_i/dW_K|^2 of rows.
class KeyDerivative {
  public:
    KeyDerivative(const Tensor& input, const Projections& projections);
    std::optional<std::vector<RowSpread::Sum>> sums(const Attention& e) const;
    RowNorms norms(const Rows& rows) const;

  private:
    struct Weighted;
    bool by_distance() const;
    const Tensor& gram() const;
    Tensor over_distances(const std::vector<double>& q, Index total, Index cols) const;
    RowNorms without_norm(const Rows& rows) const;
    RowNorms with_norm(const Rows& rows) const;
    Tensor column(const Tensor& q, Index head, Index c, const Tensor& shadow, const Tensor& mean,
                  Index cols) const;
    Tensor quadratic(const Tensor& a, const Tensor& weight) const;
    Tensor quadratic(const Tensor& a, const Tensor& weight, Index pair) const;
    Tensor host_row(const std::vector<double>& values) const;

    LogitFactor factor_;
    double scale_;
    int exponent_;   ///< of the members below, and of the factor
    Tensor q_, x_;   ///< (h, n, w), (1, n, d)
    bool has_gram_;  ///< X X^T is small
    mutable Tensor gram_made_;
    Tensor input_squares_;  ///< |x_j|^2, (1, 1, n)
    Tensor shadow_, ones_;  ///< (h', n, w)
};

}  // namespace tsdiag::probe
