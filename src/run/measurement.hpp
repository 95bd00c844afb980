#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "team_rows.hpp"
#include "tsdiag/events.hpp"
#include "tsdiag/ops.hpp"
#include "tsdiag/probe.hpp"
#include "tsdiag/profile.hpp"
#include "tsdiag/table.hpp"
#include "tsdiag/units.hpp"

namespace tsdiag {

/// Settings of a measurement.
struct MeasurementSettings {
    std::vector<std::string> metrics;           ///< resolved names of metrics and curves
    ProbeSettings probes;                       ///< of all, but for `metrics`
    std::vector<const ProbeEntry*> own_probes;  ///< in addition to the registered ones
    bool allow_nonfinite = false;
    Index first_heard = 0;  ///< layers before it are computed alike, but known: they say nothing
    Index layers = 0, samples = 1, trials = 1;                   ///< for progress
    std::function<void(double fraction, Index layer)> progress;  ///< may be empty
    std::function<void()> layer_done;                            ///< may be empty
    Profile* profile = nullptr;                                  ///< may be null
};

/// What a run says of itself beside its table, summed over samples and trials.
class Totals {
  public:
    void add_loss(double value);
    void add_gain(Index layer, double a2, Index count);
    void add(Diagnostics::Entry entry) { solver_.push_back(std::move(entry)); }
    /// Adds those of later samples or trials.
    void join(const Totals& later);

    /// Mean over samples and trials; empty without a reverse sweep.
    std::optional<double> loss() const;
    /// Mean of each layer's a2 over the trials; empty where no event had one.
    std::vector<std::optional<double>> branch_gains() const;
    /// Solver diagnostics of each iterative value of the first sample, and of later samples those
    /// that did not converge.
    const std::vector<Diagnostics::Entry>& solver() const { return solver_; }

    void write(RecordWriter& out) const;
    static Totals read(RecordReader& in);

  private:
    double losses_ = 0;
    Index loss_count_ = 0;
    std::map<Index, std::pair<double, Index>> gains_;  ///< layer -> sum, count
    std::vector<Diagnostics::Entry> solver_;
};

/// The observer that passes events and a sink to the probes.  Moments of a state and statistics
/// of a row block are computed once and shared; events that no probe needs are not requested.
/// On a device the states and rows of a layer wait, so that one copy has their numbers, for all
/// samples: probes hear of them before the attention, or at the end of the sample's layer.
class Measurement final : public Observer {
  public:
    Measurement(MeasurementSettings settings, Sink& out);
    ~Measurement() override;

    /// `first`: the number of its first sample, where it is a part of the trial's.
    void begin_trial(Index trial, Index first = 0);
    void begin_sample(Index sample) override;
    void end_sample(Index sample) override;
    void on_hidden(const Hidden& event) override;
    void on_states(Index first, const Hidden& states) override;
    bool wants_rows(Index layer) const override;
    bool wants_entries(Index layer) const override;
    void on_attention_rows(Index layer, const RowBlock& block) override;
    void on_rows_of_samples(Index first, Index samples, Index layer,
                            const RowBlock& block) override;
    void before_numbers_are_read() override;
    bool wants_attention(Index layer) const override;
    void on_attention(const Attention& event) override;
    void on_routing(const Routing& event) override;
    void on_loss(double value) override;
    void on_gradient(const Gradient& event) override;
    bool wants_attention_gradient(Index layer) const override;
    void on_attention_gradient(const AttentionGradient& event) override;
    void end_layer(Index layer) override;

    /// Is a reverse sweep needed?
    bool wants_gradients() const { return needs_gradient_ || needs_attention_gradient_; }
    const Totals& totals() const { return totals_; }
    /// Those since the last call.
    Totals take_totals() { return std::exchange(totals_, {}); }

  private:
    class ProfiledSink;
    struct Driven {
        const ProbeEntry* entry;
        std::unique_ptr<Probe> probe;
    };
    /// State of one sample until its layer is complete.
    struct Sample {
        std::vector<Driven> probes;
        Diagnostics diagnostics;
        Index layer = -1;         ///< of its events; -1: none yet
        bool finite_rows = true;  ///< of P, over the rows seen so far
        Index channels = 0;       ///< the side of P over channels; 0: P is over tokens
        std::optional<std::pair<Tensor, StateMoments>> last_state;
    };
    /// States of samples from `first` on, whose moments are asked for later.
    struct WaitingStates {
        Index layer, first;
        std::string stage, pred;
        Tensor x;
        std::size_t moments;  ///< of its first sample among those asked for
    };
    struct WaitingRows {
        Index layer, first, samples;
        RowBlock block;
        Later<RowStatistics> statistics;
    };
    bool is_known(Index layer) const { return layer < settings_.first_heard; }
    std::unique_ptr<Sample> make_sample() const;
    Sample& now();
    void hear(const Hidden& event, const StateMoments& moments);
    void hear(Index layer, const RowBlock& block, const RowStatistics& stats);
    void hear_what_waits();
    void finish(Index number, Sample& sample);
    void report_progress(Index layer);
    /// What was computed since the last mark belongs to `what`; `backend`: what is pending there,
    /// too.
    void spent(Cost cost, std::string_view what, Index layer, const Backend* backend = nullptr);
    template <class Drive>
    void drive(Needs event, Index layer, const Drive& drive);
    /// What the numbers of P that follow are of, by its rows.
    void note(const AttentionOver& over, Index side);
    const StateMoments& moments_of(const Tensor& x);
    bool spoiled(const Attention& event);

    MeasurementSettings settings_;
    std::unique_ptr<ProfiledSink> sink_;
    std::vector<std::pair<const ProbeEntry*, ProbeSettings>> wanted_;
    std::map<Index, std::unique_ptr<Sample>> open_;  ///< by number; layer not yet complete
    std::vector<std::unique_ptr<Sample>> idle_;      ///< free to be reused
    std::vector<WaitingStates> waiting_states_;
    std::vector<WaitingRows> waiting_rows_;
    std::optional<Later<std::vector<StateMoments>>> moments_;  ///< of the waiting states
    bool needs_hidden_ = false, needs_rows_ = false, needs_entries_ = false;
    bool needs_attention_ = false;
    TeamRows team_rows_;
    bool needs_gradient_ = false, needs_attention_gradient_ = false;
    Index trial_ = 0, first_ = 0, sample_ = 0;
    bool swept_ = false;   ///< a reverse sweep has begun
    double fraction_ = 0;  ///< as last reported
    Totals totals_;
};

}  // namespace tsdiag
