#include <cmath>

#include "support.hpp"

/// Sizes of P and of its derivative by the logits.  [POLY] Thm 4.1; [DEVIL] (9), (11)
namespace tsdiag::probe {
namespace {

struct HeadNorms {
    RowMean squares, jacobian;
    double jacobian_max = 0;
};

class AttentionNorms final : public Probe {
  public:
    explicit AttentionNorms(const ProbeSettings& settings) : settings_(settings) {}

    void on_attention_rows(const AttentionRows& e, Sink&) override {
        const RowStatistics& s = e.stats;
        heads_.resize(std::size_t(s.heads));
        tokens_ = e.block.tokens();
        why_no_logits_ = no_slope(e.block);
        sums_.add(e);
        totals_ = e.block.totals;
        for (Index k = 0; k < s.heads; ++k) {
            HeadNorms& head = heads_[std::size_t(k)];
            head.squares.add(of_head(s.squares, s, k), s.rows);
            if (!why_no_logits_.empty()) continue;
            head.jacobian.add(of_head(s.jacobian, s, k), s.rows);
            for (const double largest : of_head(s.jacobian_max, s, k))
                head.jacobian_max = std::max(head.jacobian_max, largest);
        }
    }

    void finish_layer(Index layer, Sink& out) override {
        const Index heads = Index(heads_.size());
        const bool has_logits = why_no_logits_.empty();
        const Value no_logits = undefined(why_no_logits_);
        emit_each(out, settings_, layer, "attn_fro", heads, [&](std::size_t k) {
            return totals_ ? narrow(std::sqrt(totals_->squares[k]))
                           : heads_[k].squares.root_of_sum(tokens_);
        });
        emit_each(out, settings_, layer, "jac_fro", heads, [&](std::size_t k) {
            return !has_logits ? no_logits
                   : totals_   ? narrow(std::sqrt(totals_->jacobian[k]))
                               : heads_[k].jacobian.root_of_sum(tokens_);
        });
        emit_each(out, settings_, layer, "dp_ds_max", heads, [&](std::size_t k) {
            return has_logits ? largest(heads_[k].jacobian_max, k) : no_logits;
        });
        emit_each(out, settings_, layer, "row_sum_dev", heads, [&](std::size_t k) {
            const double deviation = sums_.deviation(Index(k));
            return totals_ ? Value(deviation) : largest(deviation, k);
        });
        heads_.clear();
        sums_.reset();
        totals_.reset();
    }

  private:
    /// A maximum over the rows seen, with a note where those are not all.
    Value largest(double value, std::size_t head) const {
        Value v = value;
        const Index rows = heads_[head].squares.rows();
        if (rows < tokens_)
            v.note = "over " + std::to_string(rows) + " of " + std::to_string(tokens_) + " rows";
        return v;
    }

    ProbeSettings settings_;
    std::vector<HeadNorms> heads_;
    RowSums sums_;
    std::shared_ptr<const RowTotals> totals_;  ///< exact where only a sample of rows was seen
    Index tokens_ = 0;
    std::string why_no_logits_;
};

constexpr Metric attention_norms_metrics[] = {
    {.name = metric::attn_fro,
     .symbol = "|P|_F",
     .definition = "|P|_F",
     .source = "[POLY] Thm 4.1",
     .range = ">= 0",
     .undefined = "never",
     .core = true,
     .show = Show::page | Show::trajectory},
    {.name = metric::jac_fro,
     .symbol = "|dP/dS|_F",
     .definition = "|dP/dS|_F",
     .source = "[POLY] (7)",
     .range = ">= 0",
     .undefined = "P was given without logits or activation, or is not a function of logits",
     .core = true,
     .show = Show::everywhere},
    {.name = "dp_ds_max",
     .symbol = "max |dP/dS|",
     .definition = "max_ijk |dP_ij/dS_ik|",
     .source = "[DEVIL] (9), (11)",
     .range = ">= 0",
     .undefined = "as jac_fro"},
    {.name = "row_sum_dev",
     .symbol = "max |P1 - 1|",
     .definition = "max_i |sum_j P_ij - 1|",
     .range = ">= 0",
     .undefined = "never",
     .core = true}};

}  // namespace

extern const ProbeEntry attention_norms = {.name = "attention_norms",
                                           .metrics = attention_norms_metrics,
                                           .needs = Needs::rows,
                                           .make = make<AttentionNorms>};

}  // namespace tsdiag::probe
