#include "support.hpp"

/// How the rows of P are spread over the tokens.
namespace tsdiag::probe {
namespace {

struct HeadShape {
    RowMean entropy, largest, negative, modulus;
    bool signed_entries = false;
};

class AttentionShape final : public Probe {
  public:
    explicit AttentionShape(const ProbeSettings& settings) : settings_(settings) {}

    void on_attention_rows(const AttentionRows& e, Sink&) override {
        const RowStatistics& s = e.stats;
        heads_.resize(std::size_t(s.heads));
        tokens_ = e.block.tokens();
        rounding_ = Rounding(e.block.p.type(), settings_.map_rounding);
        sums_.add(e);
        for (Index k = 0; k < s.heads; ++k) {
            HeadShape& head = heads_[std::size_t(k)];
            head.entropy.add(of_head(s.entropy, s, k), s.rows);
            head.largest.add(of_head(s.max_modulus, s, k), s.rows);
            head.negative.add(of_head(s.negative, s, k), s.rows);
            head.modulus.add(of_head(s.modulus, s, k), s.rows);
            for (const double negative : of_head(s.negative, s, k))
                head.signed_entries = head.signed_entries || negative > 0;
        }
    }

    void finish_layer(Index layer, Sink& out) override {
        const Index heads = Index(heads_.size());
        emit_each(out, settings_, layer, "entropy", heads,
                  [this](std::size_t k) { return entropy(k); });
        emit_each(out, settings_, layer, "row_max", heads,
                  [this](std::size_t k) { return heads_[k].largest.value(tokens_); });
        emit_each(out, settings_, layer, "neg_mass", heads,
                  [this](std::size_t k) { return negative_mass(heads_[k]); });
        heads_.clear();
        sums_.reset();
    }

  private:
    Value entropy(std::size_t k) const {
        if (heads_[k].signed_entries) return undefined("an entry of P is negative");
        if (!sums_.stochastic(Index(k))) return undefined(sums_.why_not(Index(k)));
        const Value value = heads_[k].entropy.value(tokens_);
        // Of 1 in each row.
        return value.value && rounding_.hides(Wide(*value.value) * *value.value, 1)
                   ? rounding_.undefined()
                   : value;
    }

    /// Sum of the negative entries' modulus / sum of all moduli.
    Value negative_mass(const HeadShape& head) const {
        const Value all = head.modulus.value(tokens_), part = head.negative.value(tokens_);
        if (*all.value == 0) return undefined("P = 0");
        return transform(part, [&](double x) { return std::clamp(x / *all.value, 0.0, 1.0); });
    }

    ProbeSettings settings_;
    std::vector<HeadShape> heads_;
    RowSums sums_;
    Index tokens_ = 0;
    Rounding rounding_{Type::f64, 0};
};

constexpr Metric attention_shape_metrics[] = {
    {.name = metric::entropy,
     .symbol = "entropy of a row",
     .definition = "mean entropy of a row",
     .range = "[0, ln n]",
     .undefined = "an entry is negative, rows do not sum to 1, or below the rounding of P",
     .core = true,
     .show = Show::everywhere,
     .unit = "nats"},
    {.name = metric::row_max,
     .symbol = "largest entry",
     .definition = "mean over rows of max_j |P_ij|",
     .range = ">= 0",
     .undefined = "never",
     .core = true,
     .show = Show::page | Show::trajectory},
    {.name = metric::neg_mass,
     .symbol = "share below zero",
     .definition = "modulus of the negative entries / modulus of all; 0 for softmax",
     .range = "[0, 1]",
     .undefined = "P = 0",
     .core = true,
     .show = Show::trajectory}};

}  // namespace

extern const ProbeEntry attention_shape = {.name = "attention_shape",
                                           .metrics = attention_shape_metrics,
                                           .needs = Needs::rows,
                                           .make = make<AttentionShape>};

}  // namespace tsdiag::probe
