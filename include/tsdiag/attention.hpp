#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/linalg.hpp"
#include "tsdiag/named_option.hpp"
#include "tsdiag/ops.hpp"
#include "tsdiag/random.hpp"
#include "tsdiag/team.hpp"

/// A stack of h matrices P, each n x n, or n x (m + n) with m keys of a memory, that need not be
/// materialised.
namespace tsdiag {

/// Exact sums over all rows of each head, where P has factors; not estimated from sampled rows.
struct RowTotals {
    std::vector<Wide> squares;      ///< |P|_F^2
    std::vector<Wide> jacobian;     ///< |dP/dS|_F^2; empty where there is no slope
    std::vector<double> deviation;  ///< max_i |sum_j P_ij - 1|
};

/// What the rows and columns of P stand for: token i, or channel i of a head, or token order[i].
struct AttentionOver {
    bool channels = false;  ///< P mixes the channels of a head (AttentionSpec::channels)
    std::shared_ptr<const std::vector<Index>> order = {};  ///< null: that of the sample
};

/// Rows [first, first + b) of P, for all heads at once.
struct RowBlock {
    Index first = 0;
    Tensor p;      ///< (h, b, m + n)
    Tensor slope;  ///< of the same shape, a'(S)/z, what the Jacobian needs; empty: no logits
    bool divided = false;                          ///< rows were divided by their sum z
    Visible visible;                               ///< of these rows
    std::string_view why_no_slope = {};            ///< the reason where `slope` is empty
    std::shared_ptr<const RowTotals> totals = {};  ///< set where only sampled rows are visited
    AttentionOver over = {};                       ///< of channels `n` is their number
    Index memory = 0;                              ///< m: the own column of row i is m + i

    bool ends_panel = true;  ///< the last of its panel (`Panels`)
    /// Set where each member of a team sees panels of its own.
    const Team* team = nullptr;
    /// > 0: this ends a round in which so many members saw a panel.  The others are shown row 0.
    int members = 0;
    bool ends_rounds = false;  ///< of the last round

    Index tokens() const { return p.cols() - memory; }  ///< n
    /// The block of heads [head, head + count); with `totals` only where those are all.
    RowBlock of_heads(Index head, Index count) const;
};
/// `RowStatistics::first` and `n` count columns: m + first, m + n.
RowStatistics row_statistics(const RowBlock& block);
Later<RowStatistics> row_totals_later(const RowBlock& block);  ///< folded
/// Of heads [head, head + count).
RowStatistics of_heads(const RowStatistics& all, Index head, Index count);

/// P = left * right^T, rank m << n; causal: its lower triangle.
struct Factors {
    Tensor left, right;  ///< (h, n, m)
};

/// Known structure of P: declared by the variant, verified by the tests.
struct Structure {
    bool row_stochastic = false;  ///< entries >= 0, rows sum to 1
    bool causal = false;          ///< lower triangular
    /// The end of each diagonal block of neighbouring tokens; empty: P is not block-diagonal.
    std::vector<Index> blocks = {};
    bool plain_logits = true;    ///< logits are scale q k^T, nothing is added
    bool constant_terms = true;  ///< what is added depends on neither q nor k
    std::optional<Factors> factors;
};

/// Windows of a grid of tokens: a token sees those of its own window, or of the part of it that a
/// shift left together.  [SWIN] 3.2
struct Windows {
    std::vector<Index> ends = {};   ///< of the parts, neighbouring tokens each; empty: no windows
    Index side = 0;                 ///< of a window
    std::vector<Index> place = {};  ///< of each token in its window, row * side + column
    /// Added to the logits of a sample's heads, by how far apart two places are: (1, (2 side -
    /// 1)^2, heads), row (r_i - r_j + side - 1)(2 side - 1) + c_i - c_j + side - 1.
    Tensor bias = {};
};

/// Options of a variant as text: "p" -> "3".
using AttentionOptions = OptionTexts;

/// Input of an attention.  q (h, n, w), k (h', m + n, w), h' divides h; the first m keys are those
/// of a memory.  The heads of `samples` samples may be concatenated; h is then their total.
struct AttentionInput {
    Tensor q, k;
    Index samples = 1;
    double scale = 1;  ///< logits S = scale q k^T
    bool causal = false;
    /// > 0: only positions at distance < `window` are visible: causal, before the row; else on
    /// either side.
    Index window = 0;
    std::vector<double> position = {};  ///< of each key, ascending; empty: 0, 1, 2, ...
    Windows windows = {};
    Tensor q2 = {}, k2 = {};        ///< of a second part of P (flash), as q and k; empty: q and k
    Tensor bias = {};               ///< added to the logits, (1 or h, n, m + n); empty: none
    AttentionOptions options = {};  ///< of the variant, as given; the others have their defaults
    Rng rng{0};                     ///< source of a variant's draws, with its option `seed`
    Index update = 0;               ///< updates of a training so far, for its option `redraw`
    /// The variant's own parameters by name; an empty tensor where there is none.  May be empty.
    std::function<Tensor(std::string_view name)> parameter = {};
    Tensor x = {};  ///< (samples, n, width): what q and k are maps of; empty: unknown

    Index heads_of_a_sample() const { return q.batch() / samples; }
    Index memory() const { return k.rows() - q.rows(); }  ///< m
};

using RowVisitor = std::function<void(const RowBlock&)>;

class AttentionOperator {
  public:
    virtual ~AttentionOperator() = default;
    virtual RowBlock rows(Index first, Index count) const = 0;
    virtual Structure structure() const { return {}; }
    virtual Index heads() const = 0;
    virtual Index tokens() const = 0;                      ///< n, the rows of P
    virtual Index columns() const { return tokens(); }     ///< m + n
    Index memory() const { return columns() - tokens(); }  ///< m
    virtual Type type() const = 0;
    virtual const Backend& backend() const = 0;

    /// P v by row blocks, each passed to `visit` once.  v (h', m + n, w) -> (h, n, w).
    /// Without `visit` and `keep_rows`, a P with factors is applied through them, in linear time.
    /// A block for which a device has no memory is halved.
    /// A P with factors and more than `largest_seen_whole` tokens is never materialised: `visit`
    /// gets about 512 rows in blocks, one drawn from each of as many equal parts of P, and
    /// `RowBlock::totals`.
    Tensor apply(const Tensor& v, Index block_rows, const RowVisitor& visit = {}) const;
    /// P^T w by row blocks or by factors.  w (h, n, c) -> (h, m + n, c).
    Tensor apply_transpose(const Tensor& w, Index block_rows) const;
    /// The whole of P, (h, n, m + n); computed at the first call, then cached.
    const Tensor& matrix() const;
    /// The same in host memory: a copy where P is on a device, made at the first call, then cached.
    virtual Tensor matrix_on_host() const;
    /// Rows of P alone, (h, count, m + n): those that are cached where P is.  A view.
    Tensor entries(Index first, Index count) const;
    /// Lets `apply` cache the rows that it computes, so that `matrix()` is free afterwards.
    void keep_rows(bool keep) { keep_ = keep; }
    /// Where P has factors; cost O(n m^2).
    virtual std::optional<RowTotals> row_totals() const { return {}; }

    /// Lets a team share the work: `apply` computes and visits the rows of this process only, and
    /// completes its result by those of the others.  Null: this process computes alone.
    void share(const Team* team) { team_ = team; }
    const Team* team() const { return team_; }
    /// The source of the rows that `apply` visits where it visits a sample.
    void sample_rows_from(const Rng& rng) { rows_rng_ = rng; }

    static constexpr Index largest_seen_whole = 16384;
    /// Bytes of P, whole.
    double bytes() const;
    /// Rows of a block: P, its logits and its slope fit into `memory` bytes and the backend's
    /// working set, since each block is read several times; but enough rows to amortise reading the
    /// keys.
    Index rows_at_once(double memory) const;

  protected:
    /// P v and P^T w without rows of P; empty: rows are needed.
    virtual Tensor product(const Tensor& v) const;
    virtual Tensor transposed_product(const Tensor& w) const;

    void keep_matrix(Tensor p) { matrix_ = std::move(p); }

  private:
    bool sampled() const;
    void show_sample(const RowVisitor& visit) const;
    Tensor complete(const Tensor& own) const;

    bool keep_ = false;
    const Team* team_ = nullptr;
    Rng rows_rng_{0};
    mutable Tensor matrix_, on_host_;
};

/// The rows of P in panels, by the sizes alone.  What is summed over rows is summed over those of a
/// panel, then over the panels in their order; a team goes through them in rounds, in each of which
/// member r has one panel.  So its sums have the bits of those of one process.
class Panels {
  public:
    /// `whole`: one panel.  Without more than one, there is no team.
    explicit Panels(const AttentionOperator& p, bool whole = false);
    /// Of a matrix of n rows in host memory.
    explicit Panels(Index n);
    struct Range {
        Index first = 0, count = 0;
    };
    Index count() const { return (n_ + rows_ - 1) / rows_; }
    Range operator[](Index panel) const;
    const Team* team() const { return team_; }
    Index rounds() const { return (count() + size() - 1) / size(); }
    /// Of a round: the panels are first, first + 1, ..., of the members 0, 1, ...
    Index first(Index round) const { return round * size(); }
    int members(Index round) const { return int(std::min(size(), count() - first(round))); }
    /// The panel of this process; -1: it has none in this round.
    Index own(Index round) const;

  private:
    Index size() const { return team_ ? team_->size() : 1; }
    Index n_ = 0, rows_ = 1;
    const Team* team_ = nullptr;
};

/// use(first, count) for blocks of at most `block` rows of the panel of this process.
template <class Use>
void each_block(const Panels& panels, Index round, Index block, const Use& use) {
    const Index own = panels.own(round);
    if (own < 0) return;
    const auto [begin, rows] = panels[own];
    for (Index i = 0; i < rows; i += block) use(begin + i, std::min(block, rows - i));
}

/// The sum over all rows of P: add(first, count, sum) adds that of a block to `size` numbers.
template <class Add>
std::vector<double> sum_over_rows(const Panels& panels, Index block, std::size_t size,
                                  const Add& add) {
    TeamSum sum(panels.team(), size);
    std::vector<double> own;
    for (Index round = 0; round < panels.rounds(); ++round) {
        own.assign(size, 0.0);
        each_block(panels, round, block,
                   [&](Index first, Index count) { add(first, count, std::span(own)); });
        sum.add(own, panels.members(round));
    }
    return sum.total();
}

/// Completes x, (h, n, width) values of which each member of the team has those of its own rows.
void complete_rows(const AttentionOperator& p, std::size_t row_bytes, std::span<char> x);
template <class T>
void complete_rows(const AttentionOperator& p, std::span<T> x) {
    const auto rows = std::size_t(p.heads() * p.tokens());
    complete_rows(p, x.size_bytes() / rows,
                  std::span(reinterpret_cast<char*>(x.data()), x.size_bytes()));
}
/// x of the rows of this process, by use(first, count), and of those of the others.
template <class T, class Use>
void each_row_block(const AttentionOperator& p, Index block, std::span<T> x, const Use& use) {
    const Panels panels(p);
    for (Index round = 0; round < panels.rounds(); ++round) each_block(panels, round, block, use);
    complete_rows(p, x);
}

/// Rows of P in one product on a CPU: 12 to 96, from the bytes of a row of all heads with its
/// logits and slope alone.  Blocks are multiples of it, so results are bitwise independent of the
/// memory.
Index rows_of_a_product(double row_bytes);

/// An option of a variant.
using AttentionOption = NamedOption;

/// Whether a property holds for every P of a variant, for none, or for some options and inputs.
enum class Holds { never, sometimes, always };

/// Properties of every P that a variant makes, verified by the tests.
struct AttentionFacts {
    Holds row_stochastic = Holds::never;
    Holds negative_entries = Holds::never;
    Holds factors = Holds::never;  ///< P, or its lower triangle, is left * right^T; takes no bias
    Holds blocks = Holds::never;   ///< block-diagonal
    Holds slope = Holds::always;   ///< rows are a function of logits with a derivative
    std::string_view never_causal = {};  ///< why it supports no causal mask; empty: it does
    bool window = true;                  ///< supports a sliding window
    bool channels = false;               ///< P may be over channels (AttentionSpec::channels)
    bool memory = false;                 ///< supports keys of a memory, where it is causal
    bool windows = false;                ///< supports windows of a grid (AttentionSpec::windows)

    bool causal() const { return never_causal.empty(); }
};
/// "rows sum to 1; no negative entry; ...", one clause per fact.
std::string describe(const AttentionFacts& facts);

/// What a model learns for its attention: the parameter layer.L.attn.NAME.  A number is one for all
/// heads of the layer, and a file may have one a head.
struct LearnedParameter {
    std::string_view name;
    double start = 0;       ///< of a number: its value in a model that is drawn
    bool matrix = false;    ///< else it is a number
    Shape shape{1, 1, 1};   ///< (1, rows, cols) of a matrix
    Law law = Law::normal;  ///< of a matrix in a model that is drawn: N(0, spread^2) or
    double spread = 0;      ///< U(-spread, spread)
};
/// The model that learns it.
struct LearnedFor {
    Index tokens = 0;  ///< N, the tokens of its longest input, of images the patches; 0: any number
    Index longest = 0;  ///< with class tokens and their like
    Index width = 1, heads = 1, kv_heads = 1, head_dim = 1;
    bool causal = false;
    bool drawn = true;  ///< else it is read, and needs no values
};

/// The attention of a layer on one sample, by its sizes.
struct AttentionSizes {
    Index tokens = 1;  ///< n, rows and columns of P
    Index width = 1, heads = 1, kv_heads = 1, head_dim = 1;
    bool causal = false;
    bool second_pair = false;  ///< q2 and k2 are there
    Type type = Type::f32;
    /// The layer's own parameters of the variant; (0, 0, 0) where there is none.
    std::function<Shape(std::string_view name)> parameter = {};
    bool parameters_of_another = false;  ///< it uses those of another layer, too

    Shape shape_of(std::string_view name) const { return parameter ? parameter(name) : Shape{}; }
    /// FLOPs of X Y^T for each head, X and Y of n rows: 2 n^2 columns a head.
    double pairs(Index columns) const {
        return 2 * double(tokens) * double(tokens) * double(columns) * double(heads);
    }
};
/// What a variant computes and holds for the rows of P, of all heads.
struct AttentionCost {
    /// Of all matrix products up to P, which is formed whole: entries that a mask hides are
    /// counted.
    double flops = 0;
    /// Of what is added to the logits of an entry of a row, all heads together; P, logits and slope
    /// are counted anyway.
    double bytes_of_entry = 0;
};

/// A variant of attention: one file, one line in the list.
struct AttentionEntry {
    std::string_view name;         ///< "softmax"
    std::string_view description;  ///< the formula
    std::string_view source;       ///< keys of docs/references.md
    std::span<const AttentionOption> options = {};
    AttentionFacts facts = {};
    std::string_view output_norm = "none";  ///< what a model applies to P V by default
    /// The number of tokens must be a multiple of it.  Null: any number.
    Index (*token_multiple)(const AttentionOptions& options) = nullptr;
    /// What a model with these options learns; no matrix whose size follows from N where that is 0.
    /// Throws `UsageError` where a start needs N.  Null: nothing.
    std::vector<LearnedParameter> (*learned)(const AttentionOptions& options,
                                             const LearnedFor& model) = nullptr;
    /// S = q k^T: the scale of a model's logits is 1, not 1/sqrt(d).
    bool unscaled = false;
    bool second_pair = false;  ///< a gated attention unit makes q2 and k2 for it
    /// Null: that of S = q k^T, 2 n^2 w a head.
    AttentionCost (*cost)(const AttentionOptions& options, const AttentionSizes& sizes) = nullptr;
    /// What P cannot be on samples of so many tokens, in one sentence; empty: nothing is to be
    /// said. Null: nothing.
    std::string (*remark)(const AttentionOptions& options, Index tokens) = nullptr;
    /// Throws `UsageError` or `ShapeError` for an input that the variant does not accept.
    std::unique_ptr<AttentionOperator> (*make)(AttentionInput input) = nullptr;
};
std::span<const AttentionEntry* const> attentions();
/// Throws `UsageError` suggesting the nearest name.
const AttentionEntry& attention(std::string_view name);

/// Throws `UsageError` for options that the variant does not have.
AttentionCost cost_of(const AttentionEntry& entry, const AttentionOptions& options,
                      const AttentionSizes& sizes);

/// Attention that differs between layers: `early` in the first half, `late` in the second.
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

/// Throws `UsageError` for an unknown option (suggests the nearest) or an invalid value.
void check_options(const AttentionEntry& entry, const AttentionOptions& options);
/// docs/attention.md: every variant and plan with its formula, source, structure and options.
std::string attention_markdown();

/// P given explicitly, (h, n, n), as by a saved trace.  `activation`: "softmax" where P is known to
/// be one, else empty.
/// `row_stochastic` is measured on the rows (within 1e-6 in float32, 1e-12 in float64); weight
/// above the diagonal of a causal P is a `UsageError`.
std::unique_ptr<AttentionOperator> given_attention(Tensor p, bool causal,
                                                   std::string_view activation);

/// The heads of `first`, then those of `second`: equal in tokens, heads and type, without memory.
std::unique_ptr<AttentionOperator> side_by_side(std::unique_ptr<AttentionOperator> first,
                                                std::unique_ptr<AttentionOperator> second);

/// Each sample's own heads of the attention of `samples` samples, whose P is then in memory.
/// Spectra are found for the heads of all of them when the first is asked for its own.
std::vector<std::unique_ptr<AttentionOperator>> of_each_sample(
    std::unique_ptr<AttentionOperator> all, Index samples);

/// Why a P with a memory has no eigenvalues.
inline constexpr const char* not_square = "P is n x (m + n), because it has m keys of a memory";

/// A method for |lambda_2| and delta.
struct SpectralRoute {
    std::string_view name;       ///< also `Estimate::method`, except for parts of a matrix
    std::string_view applies;    ///< to which P
    std::string_view certifies;  ///< when a value is certified
    std::string_view cost;       ///< of one head
    bool on_request = false;     ///< `second_eigenvalue` and `centred_norm` take its name
};
/// In the order in which they are tried, each for the heads that no earlier route certified.
std::vector<SpectralRoute> spectral_routes();

/// |lambda_2(P)| of each head, n >= 2, of a P without memory.  [TSE] Cor. 2.7  Uses Pi2 P Pi2 where
/// rows of P sum to 1.
///
/// `converged`: relative error at most `accuracy`.  That is proven for up to 128 tokens on a CPU,
/// 64 on a device, and by the route "dense" of a CPU (`dense_eigenvalue`); else it is a test of
/// first order: residual, rounding and condition numbers of the leading eigenvalues.  Otherwise low
/// and high hold the value: 0, and the smaller of 1 and |Pi2 P|_F, where nothing more is known.
/// Where P takes more than `memory` bytes, blocks of its rows are recomputed for every product, and
/// exact zeros and the dense method are not tried.
///
/// `route`: "auto", or one to use in place of "arnoldi" and "dense" where structure alone does not
/// decide; "diagonal", "blocks" and "classes" are exact and always used.  Throws `UsageError` where
/// the route needs P in memory and P does not fit.
std::vector<Estimate> second_eigenvalue(const AttentionOperator& p, double memory = 2e9,
                                        double accuracy = usual_accuracy,
                                        std::string_view route = "auto");
/// |lambda_2| of one head of a causal P, whose eigenvalues are its diagonal, e.g.
/// RowStatistics::diagonal: exact, without a second pass over P.
Estimate second_eigenvalue(std::span<const double> diagonal);
/// delta = |Pi2 P|_2 of each head: proven up to 128 columns, as the root of the largest eigenvalue
/// of a Gram matrix; beyond by Lanczos on (Pi2 P)^T (Pi2 P), whose residual proves a singular value
/// but not that it is the largest; or "factors".  Accurate to accuracy/10, or an interval.  [TSE]
/// (12)
std::vector<Estimate> centred_norm(const AttentionOperator& p, double memory = 2e9,
                                   double accuracy = usual_accuracy,
                                   std::string_view route = "auto");
/// Both, each equal to the last bit to the call of its own.  Where both are iterated on a CPU, one
/// pass over P gives a product for each.
struct Spectra {
    std::vector<Estimate> second, norm;
};
Spectra second_eigenvalue_and_norm(const AttentionOperator& p, double memory = 2e9,
                                   double accuracy = usual_accuracy,
                                   std::string_view route = "auto");
/// Cross-check: the relative difference, to the larger of the two, between `found` and |lambda_2|
/// of head `head` by the library Spectra, which uses no structure.  None where P is causal (its
/// diagonal is exact, iterative methods are not), not kept or too small, where `found` is not
/// certified and where Spectra does not converge: `why_not` says which.
struct SecondOpinion {
    std::optional<double> difference;
    std::string why_not = {};
};
SecondOpinion second_opinion(const AttentionOperator& p, Index head, const Estimate& found,
                             double memory = 2e9);
/// |P - 1 pi^T| in l2(pi) of each head, pi the stationary vector; undefined where pi is not unique
/// or not positive, P is not stochastic or P takes more than `memory` bytes.  Range [0, 1], but for
/// sums of rows that are 1 only to rounding.  Accurate to accuracy/100, or an interval.  Up to 128
/// tokens (64 on a device) pi comes from the elimination of Grassmann, Taksar and Heyman in
/// extended precision, with entries of any size, and the value is proven as that of `centred_norm`;
/// beyond, pi from power iteration where that converges fast, and the value from Lanczos.  A device
/// does this for all heads at once; those with a zero, a slow power iteration or a value near
/// rounding go to the host (`Estimate::on_host`).
struct Contraction {
    std::optional<Estimate> estimate;
    std::string why_not;
};
/// `sums_to_one`: which heads were seen to have rows that sum to 1, where the structure says it not
/// of all; those without negative entries are stochastic.
std::vector<Contraction> stationary_norm(const AttentionOperator& p, double memory = 2e9,
                                         double accuracy = usual_accuracy,
                                         const std::function<bool(Index)>& sums_to_one = {});
/// The stationary vector of one irreducible row-stochastic matrix in host memory.
std::vector<double> stationary_vector(const View& p);
/// Dobrushin coefficient 1/2 max_ij sum_k |P_ik - P_jk| of each head, over all pairs; n^3/2 work.
std::vector<double> dobrushin(const AttentionOperator& p);

}  // namespace tsdiag
