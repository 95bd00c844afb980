#pragma once
#include <optional>
#include <span>
#include <vector>

#include "support.hpp"
#include "tsdiag/linalg.hpp"

/// Spreads of tokens under the rows of a row-stochastic P, by products in float32 whose rounding is
/// guarded.
namespace tsdiag::probe {

/// The relative error allowed by rounding in float32, of a sum of spreads.  Its root, which is what
/// is told, has half of it.
constexpr double allowed_rounding = 2e-5;

/// v_i = sum_j p_ij^2 |x_j - z_i|^2 with z_i = sum_j p_ij x_j, of all rows of all heads, for P in
/// float32 in host memory.  It is sum_j p_ij^2 (|x_j|^2 - 2 t_ij + p_i . t_i), t = P G and G = X
/// X^T, or t = (P X) X^T where X has fewer columns; both do not change when X is centred.
///
/// What the moduli of the terms tell of rounding is `rounding` times float32's: a sum of n random
/// roundings of float32 products is that of a few of them.  Rows whose terms cancel are done again
/// in float64.
class RowSpread {
  public:
    /// x (h', n, f) in float64 with entries near 1, h' divides the heads of P.  Where P is not
    /// causal `column_sums` (1, h, n) are its own in float64: the mean row is taken from P before
    /// the product, and `moved` is found.
    /// Cost: 2 h n^2 min(n, 2 f) flops.
    RowSpread(const AttentionOperator& op, const Tensor& x, const Tensor& column_sums = {});

    /// Whether P is of this kind.
    static bool fits(const AttentionOperator& op);
    /// Flops, of all heads.
    static double work(Index heads, Index n, Index columns);

    struct Sum {
        Wide value = 0, gross = 0;  ///< `gross`: the float64 rounding error is some eps of it
    };
    /// sum_i weight_i v_i of each head, the weights (h, n) or (1, n).
    std::vector<Sum> sums(const AttentionOperator& op, std::span<const double> weights) const;
    /// With `column_sums`: |Pi2 P X|_F^2 of each head; none where rounding may be more than
    /// `allowed_rounding` of it.
    std::vector<std::optional<Wide>> moved() const;

  private:
    std::vector<SpreadSums> of_block(const Tensor& p) const;
    void again(const AttentionOperator& op, const std::vector<bool>& rows,
               std::vector<SpreadSums>& sums) const;
    void remove_mean(const Tensor& column_sums);

    Index heads_, n_;
    bool causal_;
    Tensor wide_, squares_;           ///< X centred, and |x_j|^2 (h', 1, n), in float64
    Tensor narrow_, gram_;            ///< X or G in float32, of which one is used
    Tensor mean_, shift_;             ///< r (h, 1, n) in float32 and G r in float64
    std::vector<double> mean_moved_;  ///< n |(1^T P / n - r) X|^2, of each head
    std::vector<SpreadSums> found_;   ///< (h, n)
};

/// Of the tokens X, the input of the attention.
struct TokenSpread {
    RowSpread spread;
    int exponent = 0;  ///< X is 2^exponent times what the spread is of
};
/// Whether P and X are of the kind, and the cost is less than 2e11 flops.
bool has_token_spread(const Attention& e);
const TokenSpread& token_spread(const Attention& e);
/// Of float32: tokens in two types, their Gram matrix, and six sums a row, twice.
double token_spread_bytes(const MetricSizes& sizes);

}  // namespace tsdiag::probe
