#include <algorithm>

#include "support.hpp"

/// Locality of attention: the locally accumulated attention score.  [DEVIL] 3.2
namespace tsdiag::probe {
namespace {

constexpr Index most_points = 256;

/// The values of L at which C(L) is written: all, or 256 of them including n.
std::vector<Index> lengths(Index n) {
    const Index points = std::min(n, most_points);
    std::vector<Index> list;
    for (Index t = 1; t <= points; ++t) list.push_back((t * n + points / 2) / points);
    return list;
}

class Locality final : public Probe {
  public:
    explicit Locality(const ProbeSettings& settings) : settings_(settings) {}

    void on_attention_rows(const AttentionRows& e, Sink&) override {
        const RowStatistics& s = e.stats;
        channels_ = e.block.over.channels;
        heads_ = s.heads;
        columns_ = s.n;
        tokens_ = e.block.tokens();
        rows_ += s.rows;
        window_.resize(std::size_t(s.heads * s.n), 0.0);
        panel_.resize(window_.size(), 0.0);
        for (std::size_t i = 0; i < s.window.size(); ++i) panel_[i] += s.window[i];
        if (!e.block.ends_panel) return;
        for (std::size_t i = 0; i < window_.size(); ++i) window_[i] += panel_[i];
        panel_.clear();
    }

    void finish_layer(Index layer, Sink& out) override {
        if (channels_)
            emit_each(out, settings_, layer, "local_auc", heads_,
                      [](std::size_t) { return undefined(over_channels); });
        else if (rows_ > 0)
            emit(layer, out);
        window_.clear();
        panel_.clear();
        rows_ = heads_ = 0;
    }

  private:
    void emit(Index layer, Sink& out) const {
        std::vector<double> mean(std::size_t(columns_), 0.0);
        std::vector<Value> area;
        for (Index k = 0; k < heads_; ++k) {
            const std::vector<double> curve = accumulated(k);
            double sum = 0;
            for (std::size_t l = 0; l < curve.size(); ++l) {
                sum += curve[l];
                mean[l] += curve[l] / double(heads_);
            }
            area.push_back(note(sum / double(columns_)));
            if (settings_.wants_head(k)) write(attention_place(layer, k), curve, out);
        }
        write(attention_place(layer), mean, out);
        if (settings_.wants("local_auc")) emit_heads(out, settings_, layer, "local_auc", area);
    }

    /// C(L) for L = 1 .. m + n: the mean over the rows of the attention inside the window of L
    /// tokens.
    std::vector<double> accumulated(Index head) const {
        std::vector<double> curve;
        double sum = 0;
        for (Index l = 0; l < columns_; ++l) {
            sum += window_[std::size_t(head * columns_ + l)];
            curve.push_back(sum / double(rows_));
        }
        return curve;
    }

    /// At the L/n of the longest sample: points of others would be means over other samples.
    void write(const Place& at, const std::vector<double>& curve, Sink& out) const {
        if (!settings_.wants("local_acc")) return;
        const Index n = std::max(settings_.longest, columns_);
        for (const Index length : lengths(n))
            out.point(at, "local_acc", double(length) / double(n),
                      note(between(curve, double(length * columns_) / double(n))));
    }

    /// C at a length between whole ones, on the line from C(0) = 0.
    static double between(const std::vector<double>& curve, double length) {
        const auto whole = std::size_t(length);
        const double low = whole == 0 ? 0 : curve[whole - 1];
        const double rest = length - double(whole);
        return rest == 0 ? low : low + rest * (curve[whole] - low);
    }

    Value note(double value) const {
        Value v = value;
        if (rows_ < tokens_)
            v.note = "from " + std::to_string(rows_) + " of " + std::to_string(tokens_) + " rows";
        return v;
    }

    ProbeSettings settings_;
    Index heads_ = 0, columns_ = 0, tokens_ = 0, rows_ = 0;
    bool channels_ = false;
    std::vector<double>
        window_,  ///< (heads, m + n): attention gained when the window grows to L + 1
        panel_;   ///< the same of the rows of one panel
};

constexpr Metric locality_metrics[] = {
    {.name = metric::local_auc,
     .symbol = "locality",
     .definition = "mean over L of the curve `local_acc`",
     .source = "[DEVIL] 3.2",
     .range = "[0, 1] for rows that sum to 1 without negative entries",
     .undefined = "P is over channels, which have no order",
     .core = true,
     .show = Show::page | Show::trajectory},
    {.name = metric::local_acc,
     .symbol = "C(L)",
     .definition = "x = L/n, y = C(L), the mean over rows of the attention inside the nested "
                   "window of L tokens around the row's own token",
     .source = "[DEVIL] 3.2",
     .range = "[0, 1] for rows that sum to 1 without negative entries",
     .undefined = "P is over channels, which have no order",
     .of = Of::curve,
     .core = true}};

}  // namespace

extern const ProbeEntry locality = {
    .name = "locality", .metrics = locality_metrics, .needs = Needs::rows, .make = make<Locality>};

}  // namespace tsdiag::probe
