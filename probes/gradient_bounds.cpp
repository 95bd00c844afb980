#include <algorithm>
#include <cmath>
#include <limits>

#include "support.hpp"
#include "tsdiag/ops.hpp"

/// max |dL/dS_ij| of each head, and the bounds of [DEVIL] (46), (48), (59), (61) for it.
namespace tsdiag::probe {
namespace {

/// The kind of attention, which determines the bound on dL/dS.
enum class Law {
    softmax,     ///< rows exp(S) / z
    linear,      ///< rows S / z, S > 0
    normalised,  ///< P = S, and a root-mean-square norm after P V
    none
};

/// Statistics of the rows of a head.
struct HeadExtremes {
    double largest = 0;                                      ///< max |dL/dS_ij|
    double least = std::numeric_limits<double>::infinity();  ///< min |S_ij|
    bool negative = false;                                   ///< some S_ij < 0
    bool identity = true;                                    ///< P = S
};

/// The largest entry of each batch.
std::vector<double> largest_entries(const Tensor& x) {
    const std::vector<double> rows = row_max(x).to_host<double>();
    std::vector<double> out;
    for (auto at = rows.begin(); at != rows.end(); at += x.rows())
        out.push_back(*std::max_element(at, at + x.rows()));
    return out;
}

/// max_i |x_i| of each batch.
std::vector<double> longest_rows(const Tensor& x) {
    const std::vector<double> norms = row_norms(x);
    std::vector<double> out;
    for (auto at = norms.begin(); at != norms.end(); at += x.rows())
        out.push_back(*std::max_element(at, at + x.rows()));
    return out;
}

class GradientBounds final : public Probe {
  public:
    explicit GradientBounds(const ProbeSettings& settings) : settings_(settings) {}

    void on_attention_gradient(const AttentionGradient& e, Sink& out) override {
        const Index h = e.op.heads();
        const bool norm = e.norm != OutputNorm::none;
        const std::vector<double> outputs = longest_rows(norm ? e.normed : e.output),
                                  values = longest_rows(e.v);
        const auto c1 = [&](std::size_t k) { return outputs[norm ? 0 : k]; };
        const auto c2 = [&](std::size_t k) { return values[k / (std::size_t(h) / values.size())]; };
        emit_each(out, settings_, e.layer, "c1", h, [&](std::size_t k) { return Value(c1(k)); });
        emit_each(out, settings_, e.layer, "c2", h, [&](std::size_t k) { return Value(c2(k)); });
        const RowBlock first = e.op.rows(0, 1);
        const std::string no_logits = why_no_logits(e, first);
        auto heads = std::vector<HeadExtremes>(std::size_t(h));
        if (first.slope.defined()) read_rows(e, no_logits.empty(), heads);
        const auto emit = [&](std::string_view metric, std::string why_not, auto value) {
            emit_each(out, settings_, e.layer, metric, h, [&](std::size_t k) {
                return why_not.empty() ? value(k) : undefined(why_not);
            });
        };
        emit("ds_max", no_slope(first), [&](std::size_t k) { return Value(heads[k].largest); });
        emit("c3", no_logits, [&](std::size_t k) { return Value(heads[k].least); });
        const auto bound = [&](bool sharp) {
            return [&, sharp](std::size_t k) {
                const Law law = law_of(e, first, heads[k]);
                return bound_of(e, law, heads[k], Wide(c1(k)) * c2(k), sharp);
            };
        };
        emit("ds_bound", no_slope(first), bound(false));
        emit("ds_sharp", no_slope(first), bound(true));
    }

  private:
    static std::string why_no_logits(const AttentionGradient& e, const RowBlock& block) {
        if (!block.slope.defined()) return no_slope(block);
        const Structure known = e.op.structure();
        if (known.factors) return {};
        if (!e.projections) return "no projections";
        return known.plain_logits ? "" : "the logits are not scale q k^T only";
    }

    /// dL/dS_ij = slope_ij (G_ij - sum_k G_ik P_ik), G = dL/dP = dL/dO V^T; without the sum where
    /// rows are not divided by theirs.
    static void read_rows(const AttentionGradient& e, bool logits,
                          std::vector<HeadExtremes>& heads) {
        const Index n = e.op.tokens(), step = block_rows(e.op);
        for (Index first = 0; first < n; first += step) {
            const Index count = std::min(step, n - first);
            const RowBlock block = e.op.rows(first, count);
            const Tensor slope = cast(block.slope, Type::f64);
            Tensor g =
                cast(matmul(e.output.row_range(first, count), e.v, Transpose::second), Type::f64);
            if (block.divided) g = subtract(g, row_sum(multiply(g, cast(block.p, Type::f64))));
            const auto largest = [&](const Tensor& x) {
                return largest_entries(hide(x, block.visible));
            };
            const std::vector<double> derivative = largest(modulus(multiply(slope, g))),
                                      from_one = largest(modulus(affine(slope, 1, -1)));
            for (std::size_t k = 0; k < heads.size(); ++k) {
                heads[k].largest = std::max(heads[k].largest, derivative[k]);
                heads[k].identity = heads[k].identity && !block.divided && from_one[k] == 0;
            }
            if (!logits) continue;
            const Tensor s = logits_of(e, block);
            const std::vector<double> inverse = largest(modulus(map(Unary::reciprocal, s))),
                                      below = largest(affine(s, -1));
            for (std::size_t k = 0; k < heads.size(); ++k) {
                heads[k].least = std::min(heads[k].least, 1 / inverse[k]);
                heads[k].negative = heads[k].negative || below[k] > 0;
            }
        }
    }

    static Tensor modulus(const Tensor& x) { return zip(Binary::maximum, x, affine(x, -1)); }

    static Tensor logits_of(const AttentionGradient& e, const RowBlock& block) {
        if (!e.op.structure().factors)
            return cast(matmul(e.projections->q.row_range(block.first, block.p.rows()),
                               e.projections->k, Transpose::second, e.projections->scale),
                        Type::f64);
        // P is S or S / z, the slope 1 or 1 / z; masked entries become 0 / 0 and are masked again.
        return divide(cast(block.p, Type::f64), cast(block.slope, Type::f64));
    }

    static Law law_of(const AttentionGradient& e, const RowBlock& block, const HeadExtremes& head) {
        const bool exponential =
            block.divided && block.slope.view().data == block.p.view().data;  // a' = a
        const bool norm = e.norm != OutputNorm::none;
        if (exponential && !norm) return Law::softmax;
        if (block.divided && e.op.structure().factors && !norm) return Law::linear;
        return head.identity && e.norm == OutputNorm::rms ? Law::normalised : Law::none;
    }

    /// `c12`: c1 c2.  The sharp bounds: docs/metrics.md.
    static Value bound_of(const AttentionGradient& e, Law law, const HeadExtremes& head, Wide c12,
                          bool sharp) {
        const double n = double(e.op.columns());
        switch (law) {
            case Law::softmax:
                return narrow(sharp ? c12 / 2 : std::sqrt(n) * c12 / 4);
            case Law::linear: {
                if (head.negative) return undefined("logits of both signs have no bound");
                if (head.least == 0) return undefined("a logit is 0");
                if (!sharp) return narrow(std::sqrt(n) * c12 / (4 * head.least));
                // For a row of m tokens 2 (m - 1) / m^2, which is largest at m = 2.
                const double m = e.op.structure().causal ? std::min(n, 2.0) : n;
                return narrow(2 * (m - 1) / (m * m) * c12 / head.least);
            }
            case Law::normalised: {
                const double root = std::sqrt(e.norm_eps);
                if (root == 0) return undefined("the norm has no eps");
                return narrow(sharp ? c12 / root : 1.5 * double(e.normed.cols()) * c12 / root);
            }
            case Law::none:
                break;
        }
        return undefined("no bound is known for this attention");
    }

    ProbeSettings settings_;
};

constexpr Metric gradient_bounds_metrics[] = {
    {.name = metric::ds_max,
     .symbol = "max |dL/dS|",
     .definition = "max_ij |dL/dS_ij|",
     .range = ">= 0",
     .undefined = "as jac_fro"},
    {.name = "c1",
     .symbol = "c₁",
     .definition = "max_i |dL/dO_i|",
     .source = "[DEVIL] (40)",
     .range = ">= 0",
     .undefined = "never"},
    {.name = "c2",
     .symbol = "c₂",
     .definition = "max_i |V_i|",
     .source = "[DEVIL] (40)",
     .range = ">= 0",
     .undefined = "never"},
    {.name = "c3",
     .symbol = "c₃",
     .definition = "min_ij |S_ij| over the entries that a row attends to",
     .source = "[DEVIL] (40)",
     .range = ">= 0",
     .undefined = "as jac_fro, or S is not scale q k^T only"},
    {.name = metric::ds_bound,
     .symbol = "bound of |dL/dS|",
     .definition =
         "the paper's bound on ds_max, n the columns of P: sqrt(n) c1 c2 / 4 for softmax (59), "
         "sqrt(n) c1 c2 / (4 c3) for linear attention (46), (48), unbounded as c3 goes to 0 by "
         "(60), 3 c1 c2 d / (2 sqrt eps) for norm_attention with an RMS norm (61)",
     .source = "[DEVIL]",
     .range = ">= 0",
     .undefined = "the paper gives none; for linear attention c3 = 0 or logits of both signs"},
    {.name = metric::ds_sharp,
     .symbol = "attained bound",
     .definition = "a bound that is attained: c1 c2 / 2, 2 (n - 1) c1 c2 / (n^2 c3) (causal: at "
                   "most c1 c2 / (2 c3)), c1 c2 / sqrt eps",
     .range = ">= 0",
     .undefined = "as ds_bound"}};

}  // namespace

extern const ProbeEntry gradient_bounds = {.name = "gradient_bounds",
                                           .metrics = gradient_bounds_metrics,
                                           .needs = Needs::attention_gradient,
                                           .make = make<GradientBounds>};

}  // namespace tsdiag::probe
