#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "block_sums.hpp"
#include "projection_derivative.hpp"
#include "row_spread.hpp"
#include "tsdiag/intervals.hpp"

/// |dP/dW_Q|_F and |dP/dW_K|_F at fixed input.  [POLY] Thm 4.4
namespace tsdiag::probe {
namespace {

/// Where all rows of a layer cost too much, evenly spaced blocks of this many rows are sampled.
constexpr Index sampled_block = 8;

/// Otherwise the largest number of entries of P in a block, over all heads of a sample; some ten
/// float64 copies of it are held.
constexpr Index largest_block = Index{1} << 17;

/// The selected rows.
struct Plan {
    std::vector<RowRange> blocks;
    bool all = false;
};

/// Of `heads` heads, by the sizes of one sample.
Plan plan(const AttentionOperator& op, Index heads, double work_per_row, double largest_work) {
    const Index n = op.tokens();
    const double seen = op.structure().causal ? 0.5 : 1;  // of the columns, on average
    const double rows = largest_work / (work_per_row * seen);
    const Index affordable = Index(std::max(1.0, std::min(double(n), rows)));
    Plan p;
    p.all = affordable >= n || n <= 4 * sampled_block;
    const Index block = p.all
                            ? std::clamp<Index>(largest_block / std::max<Index>(1, heads * n), 1, n)
                            : sampled_block;
    const Index count =
        p.all ? (n + block - 1) / block : std::clamp<Index>(affordable / block, 2, n / block - 1);
    for (Index t = 0; t < count; ++t) {
        const Index first = p.all ? t * block : (2 * t + 1) * (n - block) / (2 * count);
        p.blocks.push_back({first, std::min(block, n - first)});
    }
    return p;
}

/// Sums of one head over blocks of rows.
struct Sums {
    std::vector<Wide> blocks;
    double rows = 0;
    Wide gross = 0;
};

/// Root of the sum over all n rows, with its sampling and rounding errors.
Value root(const Sums& s, Index n, bool all) {
    Wide total = 0, squares = 0;
    for (const Wide b : s.blocks) total += b, squares += b * b;
    const double count = double(s.blocks.size()), share = s.rows / double(n);
    const Wide rounding = 16 * std::numeric_limits<double>::epsilon() * s.gross / share;
    const Wide spread =
        std::max<Wide>(0, squares - total * total / count) / std::max(1.0, count - 1);
    const Wide error = all ? 0 : std::sqrt(count * spread * (1 - share)) / share;
    total = total < 0 ? 0 : total / share;
    const Wide reach = all || count < 2 ? 0 : student_quantile(0.95, count - 1);
    const Wide value = std::sqrt(total), margin = reach * error + rounding;
    if (total == 0 || margin <= 1e-6 * total) return narrow(value);
    const auto root_of = [](Wide x) { return double(std::sqrt(std::max<Wide>(0, x))); };
    Value v = interval(root_of(total - margin), root_of(total + margin),
                       all ? "cancellation leaves few digits"
                           : fmt::format("from {} of {} rows, standard error {:.1e}", Index(s.rows),
                                         n, double(error / (2 * value))));
    if (rounding < total) v.value = narrow(value).value;
    return v;
}

struct OfQuery {
    static constexpr std::string_view name = "jac_q_fro";
    using Derivative = QueryDerivative;
    static constexpr auto sums_later = query_sums_later;
    static double work(const Attention& e, Index heads) {
        return query_work(*e.projections, heads, e.op.tokens());
    }
};

struct OfKey {
    static constexpr std::string_view name = "jac_k_fro";
    using Derivative = KeyDerivative;
    static constexpr auto sums_later = key_sums_later;
    static double work(const Attention& e, Index heads) {
        return key_work(*e.projections, heads, e.op.tokens(), e.input.cols());
    }
};

template <class Of>
std::vector<Sums> sums_of(const Attention& e, const Plan& chosen) {
    const Index h = e.op.heads(), n = e.op.tokens();
    const typename Of::Derivative derivative(e.input, *e.projections);
    auto heads = std::vector<Sums>(slot(h));
    if (const auto whole = chosen.all ? derivative.sums(e) : std::nullopt) {
        for (std::size_t k = 0; k < heads.size(); ++k)
            heads[k] = {{(*whole)[k].value}, double(n), (*whole)[k].gross};
        return heads;
    }
    for (const auto& [first, count] : chosen.blocks) {
        const RowNorms norms = derivative.norms(rows_of(e.op, first, count));
        for (std::size_t k = 0; k < heads.size(); ++k) {
            Wide sum = 0;
            for (std::size_t i = k * slot(count); i < (k + 1) * slot(count); ++i) {
                sum += norms.value[i];
                heads[k].gross += norms.gross[i];
            }
            heads[k].blocks.push_back(sum);
            heads[k].rows += double(count);
        }
    }
    return heads;
}

/// Of all samples of a device.
template <class Of>
struct SumsOfSamples {
    std::optional<BlockSums> sums;
};

/// Asks a device for them, and does not wait.
template <class Of>
std::pair<const SumsOfSamples<Of>*, Index> ask(const Attention& e, const Plan& chosen) {
    return of_all_samples<SumsOfSamples<Of>>(e, [&](const Attention& all) {
        return SumsOfSamples<Of>{Of::sums_later(all, chosen.blocks)};
    });
}

std::vector<Sums> own_sums(const BlockSums& all, Index sample, Index heads, const Plan& chosen) {
    const Index blocks = std::ssize(chosen.blocks);
    auto out = std::vector<Sums>(slot(heads));
    for (Index k = 0; k < heads; ++k)
        for (Index b = 0; b < blocks; ++b) {
            const RowSpread::Sum sum = all.of(sample * heads + k, b, blocks);
            Sums& own = out[slot(k)];
            own.blocks.push_back(sum.value);
            own.gross += sum.gross;
            own.rows += double(chosen.blocks[slot(b)].count);
        }
    return out;
}

/// Whether the heads of all samples are differentiated at once.
bool at_once(const Attention& e) { return !e.op.backend().host_memory(); }

/// P is 1, whatever its logit.
bool is_constant(const Attention& e) {
    return e.op.tokens() == 1 && e.op.structure().row_stochastic;
}

template <class Of>
std::vector<Value> jacobian_norms(const Attention& e, double largest_work) {
    const Index h = e.op.heads(), n = e.op.tokens();
    if (is_constant(e)) return std::vector<Value>(slot(h), Value(0));
    const Plan chosen = plan(e.op, h, Of::work(e, h), largest_work);
    std::vector<Sums> heads;
    if (at_once(e))
        if (const auto [found, sample] = ask<Of>(e, chosen); found->sums)
            heads = own_sums(*found->sums, sample, h, chosen);
    if (heads.empty()) heads = sums_of<Of>(e, chosen);
    std::vector<Value> values;
    for (const Sums& s : heads) values.push_back(root(s, n, chosen.all));
    return values;
}

struct WhyNoSlope {
    std::string reason;
};

class ProjectionJacobians final : public Probe {
  public:
    explicit ProjectionJacobians(const ProbeSettings& settings) : settings_(settings) {}

    void on_attention(const Attention& e, Sink& out) override {
        const std::string why_not = reason(e);
        if (why_not.empty() && at_once(e) && !is_constant(e)) {
            ask_moments(e);
            ask_for<OfQuery>(e);
            ask_for<OfKey>(e);
        }
        emit<OfQuery>(e, why_not, out);
        emit<OfKey>(e, why_not, out);
    }

  private:
    /// Why there is no derivative; empty where there is.
    static std::string reason(const Attention& e) {
        if (e.over.channels) return over_channels;
        if (!e.projections) return "no projections";
        if (e.projections->norm_of_all_heads) return "q and k are normalised across heads";
        const Structure known = e.op.structure();
        if (known.factors || !known.constant_terms)
            return "P is not a function of the logits scale q k^T only";
        const auto [found, sample] = of_all_samples<WhyNoSlope>(
            e, [](const Attention& all) { return WhyNoSlope{no_slope(all.op.rows(0, 1))}; });
        return found->reason;
    }

    template <class Of>
    void ask_for(const Attention& e) const {
        if (!settings_.wants(Of::name)) return;
        const Index h = e.op.heads();
        ask<Of>(e, plan(e.op, h, Of::work(e, h), settings_.largest_work));
    }

    template <class Of>
    void emit(const Attention& e, const std::string& why_not, Sink& out) const {
        if (!settings_.wants(Of::name)) return;
        const auto all = [&](const Value& value) {
            return std::vector<Value>(std::size_t(e.op.heads()), value);
        };
        std::vector<Value> heads;
        if (!why_not.empty()) {
            heads = all(undefined(why_not));
        } else {
            // Both are of differences of tokens.
            const StateMoments& x = input_moments(e);
            const Rounding errors(e.input.type(), settings_.state_rounding);
            heads = errors.hides(x.centred, x.squared)
                        ? all(errors.undefined())
                        : jacobian_norms<Of>(e, settings_.largest_work);
        }
        emit_heads(out, settings_, e.layer, Of::name, heads);
    }

    ProbeSettings settings_;
};

constexpr double jacobian_seconds = 2.9e-7;  ///< seconds of one core for an entry of P

/// Sums of a block of rows of all heads.
double block_bytes(const MetricSizes& s) {
    return 12 * std::max(double(1 << 17), 8 * s.heads * s.tokens) * sizeof(double);
}
/// Of each sample of a batch: a block has no more rows than it.
double block_of_sample(const MetricSizes& s) {
    return std::min(block_bytes(s), 12 * s.heads * s.tokens * s.tokens * sizeof(double));
}
MetricBytes query_bytes(const MetricSizes& s) {
    const double queries = 6 * s.tokens * s.columns * sizeof(double);
    return {.work = queries + block_bytes(s), .of_sample = queries + block_of_sample(s)};
}
MetricBytes key_bytes(const MetricSizes& s) {
    const double n = s.tokens, d = s.width;
    const bool gram = n < 2 * d || (s.rotated && !s.normed && n <= double(most_distances));
    const double grams = !gram ? 0 : s.rotated && s.normed ? 3 : 1;
    // On a device cosines and their product with the Gram matrix are held, and more factors of a
    // norm.
    const double grams_there = !gram ? 0 : s.rotated && !s.normed ? 3 : 1;
    const auto bytes = [&](double keys, double matrices) {
        return (keys * n * s.columns + 2 * n * d + matrices * n * n) * sizeof(double);
    };
    return {.work = bytes(4, grams) + block_bytes(s),
            .shared = token_spread_bytes(s),
            .of_sample = bytes(s.normed ? 8 : 4, grams_there) + block_of_sample(s)};
}

constexpr Metric projection_jacobians_metrics[] = {
    {.name = "jac_q_fro",
     .symbol = "|dP/dW_Q|_F",
     .definition = "|dP/dW_Q|_F at fixed input, through rotary embedding and q/k norm if present; "
                   "W the rows of the head, without biases",
     .source = "[POLY] Thm 4.4",
     .range = ">= 0",
     .undefined = "there are no projections, P is not a function of scale q k^T only, q and k are "
                  "normalised across heads, or P is over channels",
     .seconds = jacobian_seconds,
     .bytes = query_bytes},
    {.name = "jac_k_fro",
     .symbol = "|dP/dW_K|_F",
     .definition = "|dP/dW_K|_F at fixed input, as jac_q_fro; W the rows of the head (of its "
                   "group, for shared keys)",
     .source = "[POLY] Thm 4.4",
     .range = ">= 0",
     .undefined = "as jac_q_fro",
     .seconds = jacobian_seconds,
     .bytes = key_bytes}};

}  // namespace

extern const ProbeEntry projection_jacobians = {.name = "projection_jacobians",
                                                .metrics = projection_jacobians_metrics,
                                                .needs = Needs::attention,
                                                .make = make<ProjectionJacobians>};

}  // namespace tsdiag::probe
