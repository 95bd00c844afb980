#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/linalg.hpp"
#include "tsdiag/ops.hpp"
#include "tsdiag/random.hpp"

/// A stack of h matrices P, each n x n, that need never exist in memory.
namespace tsdiag {

/// Sums over all rows of each head, where P has factors: what a sample of rows need not estimate.
struct RowTotals {
    std::vector<Wide> squares;      ///< |P|_F^2
    std::vector<Wide> jacobian;     ///< |dP/dS|_F^2; empty where there is no slope
    std::vector<double> deviation;  ///< max_i |sum_j P_ij - 1|
};

/// Rows [first, first + b) of P, for all heads at once.
struct RowBlock {
    Index first = 0;
    Tensor p;      ///< (h, b, n)
    Tensor slope;  ///< (h, b, n) a'(S)/z, what the Jacobian needs; empty if there are no logits
    bool divided = false;                          ///< rows were divided by their sum z
    Visible visible;                               ///< of these rows
    std::string_view why_no_slope = {};            ///< where there is none
    std::shared_ptr<const RowTotals> totals = {};  ///< where only a sample of rows is shown
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
    bool plain_logits = true;     ///< logits are scale q k^T, nothing is added
    std::optional<Factors> factors;
};

/// Options of a variant as text: "p" -> "3".
using AttentionOptions = std::map<std::string, std::string>;

/// What an attention is made of.  q (h, n, w), k (h', n, w), h' divides h.  The heads of
/// `samples` samples may stand one after the other; then h is that of all.
struct AttentionInput {
    Tensor q, k;
    Index samples = 1;
    double scale = 1;  ///< logits S = scale q k^T
    bool causal = false;
    /// > 0: only positions nearer than `window` (itself included): causal, before the row; else on
    /// either side.
    Index window = 0;
    std::vector<double> position = {};  ///< of each token, ascending; empty: 0, 1, 2, ...
    Tensor q2 = {}, k2 = {};        ///< of a second part of P (flash), as q and k; empty: q and k
    Tensor bias = {};               ///< added to the logits, (1 or h, n, n); empty: none
    AttentionOptions options = {};  ///< of the variant, as given; the others have their defaults
    Rng rng{0};                     ///< what a variant draws comes from here and its option `seed`
    /// The variant's own parameters by name; an empty tensor where there is none.  May be empty.
    std::function<Tensor(std::string_view name)> parameter = {};

    Index heads_of_a_sample() const { return q.batch() / samples; }
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
    /// Where nobody wants to see or keep the rows: by factors, in linear time, where P has them.
    /// A block that a device has no memory for is halved.
    /// P that has factors and more than `largest_seen_whole` tokens is never made whole: `visit`
    /// sees about 512 rows in blocks, one drawn from each of as many equal parts of P by a rule
    /// that depends on n and h alone, and `RowBlock::totals`.
    Tensor apply(const Tensor& v, Index block_rows, const RowVisitor& visit = {}) const;
    /// P^T w by row blocks or by factors.  w (h, n, c) -> (h, n, c).
    Tensor apply_transpose(const Tensor& w, Index block_rows) const;
    /// The whole of P, (h, n, n): made at the first call and kept for the life of the operator.
    const Tensor& matrix() const;
    /// Lets `apply` keep the rows that it makes, so that `matrix()` costs nothing afterwards.
    void keep_rows(bool keep) { keep_ = keep; }
    /// Where P has factors; cost O(n m^2).
    virtual std::optional<RowTotals> row_totals() const { return {}; }

    static constexpr Index largest_seen_whole = 16384;
    /// Bytes of P, whole.
    double bytes() const;
    /// Rows to be asked for at a time: P, its logits and its slope within `memory` bytes and the
    /// backend's working set, for each block is read several times; but as many as make a product
    /// worth reading its keys.
    Index rows_at_once(double memory) const;

  protected:
    /// P v and P^T w where they need no rows of P; empty: they do.
    virtual Tensor product(const Tensor& v) const;
    virtual Tensor transposed_product(const Tensor& w) const;

  private:
    bool sampled() const;
    void show_sample(const RowVisitor& visit) const;

    bool keep_ = false;
    mutable Tensor matrix_;
};

/// Rows of P in one product on a processor: 12 to 96, by the bytes of a row of all heads with its
/// logits and slope alone, so that no bit follows the blocks that memory allows, which are
/// multiples of it.
Index rows_of_a_product(double row_bytes);

/// An option of a variant: a number, a ratio ("1/14") or one of the words.
struct AttentionOption {
    std::string_view name;        ///< "p"
    std::string_view fallback;    ///< "3"
    std::string_view words = {};  ///< "none 1/sqrt(N)"; empty: a number only
    bool numbers = false;         ///< a number may be given
    bool whole = false;           ///< and must be a whole one
    double least = 0, most = 1e8;
    std::string_view description = {};
};

/// Whether something is so for every P of a variant, for none, or for some options and inputs.
enum class Holds { never, sometimes, always };

/// What is known of every P that a variant makes; the tests hold it against what it makes.
struct AttentionFacts {
    Holds row_stochastic = Holds::never;
    Holds negative_entries = Holds::never;
    Holds factors = Holds::never;  ///< P, or its lower triangle, is left * right^T
    Holds blocks = Holds::never;   ///< block-diagonal
    Holds slope = Holds::always;   ///< rows are a function of logits with a derivative
    bool causal = true;            ///< may be causal
    bool window = true;            ///< may look at a window only
};
/// "rows sum to 1; no negative entry; ...", one clause a fact.
std::string describe(const AttentionFacts& facts);

/// A variant of attention: one file, one line in the list.
struct AttentionEntry {
    std::string_view name;         ///< "softmax"
    std::string_view description;  ///< the formula
    std::string_view source;       ///< whose it is; keys of docs/references.md
    std::span<const AttentionOption> options = {};
    AttentionFacts facts = {};
    std::string_view output_norm = "none";  ///< what a model applies to P V unless told otherwise
    /// What the number of tokens must be a multiple of.  Null: any number will do.
    Index (*token_multiple)(const AttentionOptions& options) = nullptr;
    /// Throws `UsageError` or `ShapeError` for an input that the variant cannot be made of.
    std::unique_ptr<AttentionOperator> (*make)(AttentionInput input) = nullptr;
};
std::span<const AttentionEntry* const> attentions();
/// Throws `UsageError` suggesting the nearest name.
const AttentionEntry& attention(std::string_view name);

/// Attentions that change with the layers: the first half of them is `early`, the second `late`.
struct AttentionPlan {
    struct Half {
        std::string_view attention;
        AttentionOptions options;
        std::string_view output_norm = "none";
    };
    std::string_view name;         ///< "transnormer1"
    std::string_view description;  ///< what both halves are
    std::string_view source;
    Half early, late;
};
std::span<const AttentionPlan> attention_plans();
/// Null where no plan has that name.
const AttentionPlan* attention_plan(std::string_view name);

/// Throws `UsageError` for an option that the variant does not have, with the nearest that it has,
/// or a value that the option cannot have.
void check_options(const AttentionEntry& entry, const AttentionOptions& options);
/// docs/attention.md: every variant and plan with its formula, source, structure and options.
std::string attention_markdown();

/// P given as it is, (h, n, n): a saved trace.  `activation`: "softmax" where P is known to be one,
/// else empty.
/// `row_stochastic` is what the rows show (within 1e-6 in float32, 1e-12 in float64); weight above
/// the diagonal of a causal P is a `UsageError`.
std::unique_ptr<AttentionOperator> given_attention(Tensor p, bool causal,
                                                   std::string_view activation);

/// A way to |lambda_2| and delta.
struct SpectralRoute {
    std::string_view name;       ///< also `Estimate::method`, but for the parts of a matrix
    std::string_view applies;    ///< to which P
    std::string_view certifies;  ///< what makes it sure of a value
    std::string_view cost;       ///< of one head
    bool on_request = false;     ///< `second_eigenvalue` and `centred_norm` take its name
};
/// In the order in which they are tried, each for the heads that no route before it was sure of.
std::vector<SpectralRoute> spectral_routes();

/// |lambda_2(P)| of each head, n >= 2.  [TSE] Cor. 2.7  Pi2 P Pi2 is looked at where rows of P sum
/// to 1.
///
/// `converged`: right to `accuracy`, relative, as far as residual, rounding and the condition
/// numbers of the leading eigenvalues tell (first order, no proof).  Else `low` is an estimate and
/// `high` a bound: the smaller of 1 and |Pi2 P|_F.  Where P takes more than `memory` bytes, blocks
/// of its rows are made anew for every product, and exact zeros and the dense method are not tried.
///
/// `route`: "auto", or one that is used in place of "arnoldi" and "dense" where structure alone
/// does not tell; "diagonal", "blocks" and "classes" are exact and stay.  Throws `UsageError` where
/// it needs a P that fits into memory and P does not.
std::vector<Estimate> second_eigenvalue(const AttentionOperator& p, double memory = 2e9,
                                        double accuracy = usual_accuracy,
                                        std::string_view route = "auto");
/// The same from the diagonal of one head of a causal P, e.g. RowStatistics::diagonal: no second
/// pass.
Estimate second_eigenvalue(std::span<const double> diagonal);
/// delta = |Pi2 P|_2 of each head, by Lanczos on (Pi2 P)^T (Pi2 P), or "factors": the root of the
/// largest eigenvalue of the product of the Gram matrices of Pi2 left and right.  Right to
/// accuracy/10, or an interval.  [TSE] (12)
std::vector<Estimate> centred_norm(const AttentionOperator& p, double memory = 2e9,
                                   double accuracy = usual_accuracy,
                                   std::string_view route = "auto");
/// How far the library Spectra, which looks at no structure, is from |lambda_2| of head `head`,
/// relative to the larger of the two: a second opinion.  None where P is causal (its diagonal is
/// exact, and nothing that iterates is right there), where it is not kept or too small, where
/// `found` is not certified and where Spectra does not converge: `why_not` says which.
struct SecondOpinion {
    std::optional<double> difference;
    std::string why_not = {};
};
SecondOpinion second_opinion(const AttentionOperator& p, Index head, const Estimate& found,
                             double memory = 2e9);
/// |P - 1 pi^T| in l2(pi) of each head, pi the stationary vector; not a value where pi is not
/// unique or not positive, or P is not stochastic.  Range [0, 1].  pi by power iteration, else by
/// the elimination of Grassmann, Taksar and Heyman, both right in every entry; then Lanczos.
/// Not there either where P takes more than `memory` bytes.
struct Contraction {
    std::optional<Estimate> estimate;
    std::string why_not;
};
std::vector<Contraction> stationary_norm(const AttentionOperator& p, double memory = 2e9,
                                         double accuracy = usual_accuracy);
/// The stationary vector of one irreducible row-stochastic matrix in host memory.
std::vector<double> stationary_vector(const View& p);
/// Dobrushin coefficient 1/2 max_ij sum_k |P_ik - P_jk| of each head, over all pairs; n^3/2 work.
std::vector<double> dobrushin(const AttentionOperator& p);

}  // namespace tsdiag
