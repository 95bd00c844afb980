#include <algorithm>
#include <array>
#include <limits>

#include "support.hpp"

/// The inverse curve that the pseudo-code of [DEVIL] appendix F computes, as it is printed.
namespace tsdiag::probe {
namespace {

constexpr Index thresholds = 100;
constexpr Index largest_by_default = 256;  ///< tokens; beyond, only if the curve is named

/// linspace(0, 1, 100) in float32 as torch computes it: from both ends.
std::array<double, thresholds> scores() {
    std::array<double, thresholds> out{};
    constexpr float step = 1.0F / float(thresholds - 1);
    for (Index j = 0; j < thresholds; ++j)
        out[std::size_t(j)] =
            j < thresholds / 2 ? step * float(j) : 1.0F - step * float(thresholds - 1 - j);
    return out;
}

using Lengths = std::array<double, thresholds>;

/// Adds to counts[j] the window that the code reports where row i has collected score j.
///
/// The window grows alternately, left first; a step is lost where a side is exhausted.  Its
/// borders l and r are the next ones to take, and its length is reported as r - l + 1, at most n.
/// Column 0 is never taken, except for the first row, whose first step to the left takes column
/// -1: the last one.
///
/// A score is collected where the sum is at most `slack` below it, the rounding of the sum: the
/// whole row of a stochastic P is at score 1, and rounding would decide on the tie.
void add_windows(const double* row, Index i, Index n, const std::array<double, thresholds>& score,
                 double slack, Lengths& counts) {
    Index left = i - 1, right = i + 1, length = 1;
    double sum = row[i];
    std::size_t j = 1;
    for (bool leftwards = true; length < n && j < score.size(); leftwards = !leftwards) {
        for (; j < score.size() && sum >= score[j] - slack; ++j) counts[j] += double(length);
        if (leftwards && left != 0) {
            sum += row[left < 0 ? n + left : left];
            left = std::max<Index>(left - 1, 0);
        } else if (!leftwards && right != n) {
            sum += row[right];
            ++right;
        }
        length = std::min(right - left + 1, n);
    }
    for (; j < score.size(); ++j) counts[j] += double(n);
}

class LocalityAppendix final : public Probe {
  public:
    explicit LocalityAppendix(const ProbeSettings& settings)
        : settings_(settings),
          named_(settings.wants_by_name("local_acc_appendix")),
          score_(scores()) {}

    void on_attention_rows(const AttentionRows& e, Sink&) override {
        const Index n = e.stats.n, h = e.stats.heads, rows = e.stats.rows;
        if (e.block.over.channels || (n > largest_by_default && !named_)) return;
        const double slack = double(n) * (e.block.p.type() == Type::f32
                                              ? double(std::numeric_limits<float>::epsilon())
                                              : std::numeric_limits<double>::epsilon());
        tokens_ = n;
        rows_ += rows;
        counts_.resize(std::size_t(h), Lengths{});
        for (Index k = 0; k < h; ++k) {
            const std::vector<double> p = e.block.p.batch_range(k, 1).to_host<double>();
            for (Index i = 0; i < rows; ++i)
                add_windows(p.data() + i * n, e.stats.first + i, n, score_, slack,
                            counts_[std::size_t(k)]);
        }
    }

    void finish_layer(Index layer, Sink& out) override {
        if (rows_ > 0) emit(layer, out);
        counts_.clear();
        rows_ = 0;
    }

  private:
    void emit(Index layer, Sink& out) const {
        Lengths mean{};
        const double all = double(rows_) * double(tokens_);
        for (std::size_t k = 0; k < counts_.size(); ++k) {
            Lengths share{};
            for (std::size_t j = 0; j < share.size(); ++j) {
                share[j] = counts_[k][j] / all;
                mean[j] += share[j] / double(counts_.size());
            }
            if (settings_.wants_head(Index(k))) write(attention_place(layer, Index(k)), share, out);
        }
        write(attention_place(layer), mean, out);
    }

    void write(const Place& at, const Lengths& share, Sink& out) const {
        for (std::size_t j = 0; j < share.size(); ++j)
            out.point(at, "local_acc_appendix", score_[j], share[j]);
    }

    ProbeSettings settings_;
    bool named_;
    std::array<double, thresholds> score_;
    Index tokens_ = 0, rows_ = 0;
    std::vector<Lengths> counts_;  ///< of each head, summed over the rows
};

constexpr Metric locality_appendix_metrics[] = {
    {.name = metric::local_acc_appendix,
     .symbol = "window",
     .definition = "x = a score s, y = the fraction of tokens in the window in which a row has "
                   "collected s, mean over rows",
     .source = "[DEVIL] App. F",
     .range = "[0, 1]",
     .undefined = "P is over channels, which have no order",
     .of = Of::curve}};

}  // namespace

extern const ProbeEntry locality_appendix = {.name = "locality_appendix",
                                             .metrics = locality_appendix_metrics,
                                             .needs = Needs::rows | Needs::entries,
                                             .make = make<LocalityAppendix>};

}  // namespace tsdiag::probe
