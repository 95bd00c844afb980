#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/linalg.hpp"
#include "tsdiag/ops.hpp"

/// A stack of h matrices P, each n x n, that need never exist in memory.
namespace tsdiag {

/// Rows [first, first + b) of P, for all heads at once.
struct RowBlock {
    Index first = 0;
    Tensor p;      ///< (h, b, n)
    Tensor slope;  ///< (h, b, n) a'(S)/z, what the Jacobian needs; empty if there are no logits
    bool divided = false;  ///< rows were divided by their sum z
    Visible visible;       ///< of these rows
};
RowStatistics row_statistics(const RowBlock& block);

/// P = left * right^T, rank m << n; causal: its lower triangle.
struct Factors {
    Tensor left, right;  ///< (h, n, m)
};

/// What is known about P: declared by the variant, verified by the tests.
struct Structure {
    bool row_stochastic = false;  ///< entries >= 0, rows sum to 1
    bool causal = false;          ///< lower triangular
    Index block = 0;              ///< > 0: block-diagonal
    std::optional<Factors> factors;
};

/// What an attention is made of.  q (h, n, w), k and v (h', n, w), h' divides h.
struct AttentionInput {
    Tensor q, k;
    double scale = 1;  ///< logits S = scale q k^T
    bool causal = false;
    /// > 0: only positions nearer than `window` (itself included): causal, before the row; else on
    /// either side.
    Index window = 0;
    std::vector<double> position;  ///< of each token, ascending; empty: 0, 1, 2, ...
};

using RowVisitor = std::function<void(const RowBlock&)>;

class AttentionOperator {
  public:
    virtual ~AttentionOperator() = default;
    virtual RowBlock rows(Index first, Index count) const = 0;
    virtual Structure structure() const { return {}; }
    virtual Index heads() const = 0;
    virtual Index tokens() const = 0;
    virtual Type type() const = 0;
    virtual const Backend& backend() const = 0;

    /// P v by row blocks, each shown to `visit` once.  v (h', n, w) -> (h, n, w).
    Tensor apply(const Tensor& v, Index block_rows, const RowVisitor& visit = {}) const;
    /// P^T w by row blocks.  w (h, n, c) -> (h, n, c).
    Tensor apply_transpose(const Tensor& w, Index block_rows) const;
    /// The whole of P, (h, n, n): made at the first call and kept for the life of the operator.
    const Tensor& matrix() const;
    /// Lets `apply` keep the rows that it makes, so that `matrix()` costs nothing afterwards.
    void keep_rows(bool keep) { keep_ = keep; }

  private:
    bool keep_ = false;
    mutable Tensor matrix_;
};

/// A variant of attention: one file, one line in the list.
struct AttentionEntry {
    std::string_view name;         ///< "softmax"
    std::string_view description;  ///< formula and source
    std::unique_ptr<AttentionOperator> (*make)(AttentionInput input);
};
std::span<const AttentionEntry* const> attentions();
/// Throws `UsageError` suggesting the nearest name.
const AttentionEntry& attention(std::string_view name);

/// P given as it is, (h, n, n): a saved trace.  `activation`: "softmax" where P is known to be one,
/// else empty.
/// `row_stochastic` is what the rows show (within 1e-6 in float32, 1e-12 in float64); weight above
/// the diagonal of a causal P is a `UsageError`.
std::unique_ptr<AttentionOperator> given_attention(Tensor p, bool causal,
                                                   std::string_view activation);

/// |lambda_2(P)| of each head, n >= 2, by the method that the structure allows.  [TSE] Cor. 2.7
///
/// - "diagonal": P is causal, or triangular after a permutation of the tokens: max_{i >= 2} |P_ii|.
/// - "blocks": P is block-diagonal and stochastic: 1.
/// - "classes": exact zeros make P reducible: union of the spectra of the communicating classes.
/// - "period": P is stochastic, irreducible and periodic: 1.
/// - "dense", "arnoldi": else the spectral radius of Pi2 P (stochastic P), or the second eigenvalue
///   modulus of P: dense for small n, Arnoldi for large n, dense if that fails and n <= 2048.
///
/// `converged`: right to 1e-6 relative as far as residual, rounding and the condition numbers of
/// the leading eigenvalues tell (first order, no proof).  Else `low` is an estimate and `high` a
/// bound: the smaller of 1 and |Pi2 P|_F.  Where P takes more than `memory` bytes, blocks of its
/// rows are made anew for every product, and exact zeros and the dense method are not tried.
std::vector<Estimate> second_eigenvalue(const AttentionOperator& p, double memory = 2e9);
/// The same from the diagonal of one head of a causal P, e.g. RowStatistics::diagonal: no second
/// pass.
Estimate second_eigenvalue(std::span<const double> diagonal);
/// delta = |Pi2 P|_2 of each head, by Lanczos on (Pi2 P)^T (Pi2 P).  [TSE] (12)
std::vector<Estimate> centred_norm(const AttentionOperator& p, double memory = 2e9);
/// |P - 1 pi^T| in l2(pi) of each head, pi the stationary vector; not a value where pi is not
/// unique or not positive, or P is not stochastic.  Range [0, 1].  pi by power iteration, else by
/// the elimination of Grassmann, Taksar and Heyman, both right in every entry; then Lanczos.
/// Not there either where P takes more than `memory` bytes.
struct Contraction {
    std::optional<Estimate> estimate;
    std::string why_not;
};
std::vector<Contraction> stationary_norm(const AttentionOperator& p, double memory = 2e9);
/// The stationary vector of one irreducible row-stochastic matrix in host memory.
std::vector<double> stationary_vector(const View& p);
/// Dobrushin coefficient 1/2 max_ij sum_k |P_ik - P_jk| of each head, over all pairs; n^3/2 work.
std::vector<double> dobrushin(const AttentionOperator& p);

}  // namespace tsdiag
