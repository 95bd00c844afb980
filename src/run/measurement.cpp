#include "measurement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "tsdiag/error.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag {
namespace {

/// The requested metrics among those that `entry` declares.
std::vector<std::string> wanted(const ProbeEntry& entry, const std::vector<std::string>& metrics) {
    std::vector<std::string> list;
    for (const Metric& m : entry.metrics)
        if (std::ranges::find(metrics, m.name) != metrics.end()) list.emplace_back(m.name);
    return list;
}

constexpr std::string_view not_finite = "NaN or infinity in the data";

}  // namespace

/// Turns non-finite values into undefined ones where non-finite data are allowed, and says of a
/// number of P over channels that it is one.
class Measurement::ProfiledSink final : public Sink {
  public:
    ProfiledSink(Sink& out, const MeasurementSettings& settings)
        : out_(out), profile_(settings.profile) {}
    void scalar(const Place& at, std::string_view metric, const Value& value) override {
        const Metric* known = channels_ > 0 ? find_metric(metric) : nullptr;
        out_.scalar(at, metric, known && known->of == Of::head ? of_channels(value) : value);
        if (profile_) profile_->mark(Cost::metric, metric, at.layer);
    }
    void point(const Place& at, std::string_view curve, double x, const Value& y) override {
        out_.point(at, curve, x, y);
        if (profile_) profile_->mark(Cost::metric, curve, at.layer);
    }
    void matrix(Map map) override {
        const Index layer = map.at.layer;
        out_.matrix(std::move(map));
        if (profile_) profile_->mark(Cost::metric, "maps", layer);
    }
    /// The channels of a head in the layer that is measured; 0: P is over tokens.
    void set_channels(Index count) { channels_ = count; }

  private:
    Value of_channels(Value value) const {
        if (!value.value && !value.low) return value;
        const std::string said = fmt::format("P is over {} channels", channels_);
        value.note = value.note.empty() ? said : said + "; " + value.note;
        return value;
    }
    Sink& out_;
    Profile* profile_;
    Index channels_ = 0;
};

Measurement::Measurement(MeasurementSettings settings, Sink& out)
    : settings_(std::move(settings)), sink_(std::make_unique<ProfiledSink>(out, settings_)) {
    for (const ProbeEntry* entry : tsdiag::probes()) {
        ProbeSettings its = settings_.probes;
        its.metrics = wanted(*entry, settings_.metrics);
        const bool keeps_maps = entry->name == "maps" && !settings_.probes.maps.empty();
        if (!its.metrics.empty() || keeps_maps) wanted_.emplace_back(entry, std::move(its));
    }
    for (const ProbeEntry* entry : settings_.own_probes)
        wanted_.emplace_back(entry, settings_.probes);
    const auto needed = [&](Needs one) {
        return std::ranges::any_of(wanted_,
                                   [&](const auto& w) { return has(w.first->needs, one); });
    };
    needs_hidden_ = needed(Needs::hidden);
    needs_rows_ = needed(Needs::rows);
    needs_entries_ = needed(Needs::entries) || !settings_.own_probes.empty();
    needs_attention_ = needed(Needs::attention);
    needs_gradient_ = needed(Needs::gradient);
    needs_attention_gradient_ = needed(Needs::attention_gradient);
}

std::unique_ptr<Measurement::Sample> Measurement::make_sample() const {
    auto made = std::make_unique<Sample>();
    for (const auto& [entry, settings] : wanted_) {
        ProbeSettings its = settings;
        its.diagnostics = &made->diagnostics;
        made->probes.push_back({entry, entry->make(its)});
    }
    return made;
}

Measurement::~Measurement() = default;

void Measurement::begin_trial(Index trial, Index first) {
    trial_ = trial;
    first_ = first;
    swept_ = false;
}

void Measurement::begin_sample(Index sample) { sample_ = sample; }

Measurement::Sample& Measurement::now() {
    std::unique_ptr<Sample>& sample = open_[sample_];
    if (sample) return *sample;
    if (idle_.empty()) idle_.push_back(make_sample());
    sample = std::move(idle_.back());
    idle_.pop_back();
    return *sample;
}

void Measurement::end_sample(Index sample) {
    hear_what_waits();
    const auto at = open_.find(sample);
    if (at == open_.end()) return;
    finish(sample, *at->second);
    idle_.push_back(std::move(at->second));
    open_.erase(at);
}

const StateMoments& Measurement::moments_of(const Tensor& x) {
    // A layer's `out` is its last stage: the same elements under a second name.
    auto& last = now().last_state;
    const bool same =
        last && last->first.view().data == x.view().data && last->first.shape() == x.shape();
    if (!same) last.emplace(x, state_moments(x));
    return last->second;
}

void Measurement::spent(Cost cost, std::string_view what, Index layer, const Backend* backend) {
    if (!settings_.profile) return;
    if (backend) backend->synchronise();  // else it is borne by what waits for it
    settings_.profile->mark(cost, what, layer);
}

/// Passes an event to the probes that need it; what belongs to no single metric of a probe is the
/// probe's.
template <class Drive>
void Measurement::drive(Needs event, Index layer, const Drive& drive) {
    for (const Driven& driven : now().probes) {
        if (!has(driven.entry->needs, event)) continue;
        drive(*driven.probe);
        spent(Cost::metric, driven.entry->name, layer);
    }
}

void Measurement::on_hidden(const Hidden& event) {
    if (is_known(event.layer)) return;
    if (!event.x.backend().host_memory()) return on_states(sample_, event);
    now().layer = event.layer;
    spent(Cost::forward, event.stage, event.layer, &event.x.backend());
    report_progress(event.layer);
    if (needs_hidden_) hear(event, moments_of(event.x));
}

void Measurement::on_states(Index first, const Hidden& states) {
    if (is_known(states.layer)) return;
    if (states.x.backend().host_memory()) return Observer::on_states(first, states);
    if (moments_) hear_what_waits();  // this state is behind the layer whose numbers were asked for
    spent(Cost::forward, states.stage, states.layer, &states.x.backend());
    waiting_states_.push_back({states.layer, first, std::string(states.stage),
                               std::string(states.pred), states.x.detached(), 0});
}

void Measurement::hear(const Hidden& event, const StateMoments& moments) {
    spent(Cost::shared, "moments of states", event.layer);
    drive(Needs::hidden, event.layer,
          [&](Probe& probe) { probe.on_hidden(event, moments, *sink_); });
}

void Measurement::before_numbers_are_read() {
    if (moments_ || !needs_hidden_ || waiting_states_.empty()) return;
    std::vector<Tensor> all;
    std::size_t states = 0;
    for (WaitingStates& w : waiting_states_) {
        // A layer's `out` is its last stage: the same elements under a second name.
        const bool same = !all.empty() && all.back().view().data == w.x.view().data &&
                          all.back().shape() == w.x.shape();
        if (!same) {
            all.push_back(w.x);
            states += std::size_t(w.x.batch());
        }
        w.moments = states - std::size_t(w.x.batch());
    }
    moments_ = state_moments_later(std::move(all));
}

void Measurement::hear_what_waits() {
    if (waiting_states_.empty() && waiting_rows_.empty()) return;
    before_numbers_are_read();
    const Index sample = sample_;
    const auto states = std::exchange(waiting_states_, {});
    auto rows = std::exchange(waiting_rows_, {});
    auto moments = std::exchange(moments_, {});
    for (const WaitingStates& w : states) {
        StatesTogether together{w.x};
        for (Index s = 0; s < w.x.batch(); ++s) {
            sample_ = w.first + s;
            now().layer = w.layer;
            report_progress(w.layer);
            const Tensor x = w.x.batch_range(s, 1);
            if (moments)
                hear({w.layer, w.stage, w.pred, x, &together, s},
                     moments->get()[w.moments + std::size_t(s)]);
        }
    }
    for (WaitingRows& w : rows) {
        const Index heads = w.block.p.batch() / w.samples;
        for (Index s = 0; s < w.samples; ++s) {
            sample_ = w.first + s;
            hear(w.layer, w.block.of_heads(s * heads, heads),
                 of_heads(w.statistics.get(), s * heads, heads));
        }
    }
    sample_ = sample;
}

void Measurement::note(const AttentionOver& over, Index side) {
    now().channels = over.channels ? side : 0;
    sink_->set_channels(now().channels);
}

bool Measurement::wants_rows(Index) const { return needs_rows_; }
bool Measurement::wants_entries(Index) const { return needs_entries_; }

void Measurement::on_attention_rows(Index layer, const RowBlock& block) {
    if (is_known(layer)) return;
    if (!block.p.backend().host_memory() && !block.team)
        return on_rows_of_samples(sample_, 1, layer, block);
    now().layer = layer;
    spent(Cost::forward, "rows of P", layer, block.p.defined() ? &block.p.backend() : nullptr);
    report_progress(layer);
    if (!needs_rows_) return;
    if (!block.team) return hear(layer, block, row_statistics(block));
    team_rows_.see(
        block, [&](const RowBlock& one, const RowStatistics& stats) { hear(layer, one, stats); });
}

/// Only a whole P waits: it is in memory anyway.
void Measurement::on_rows_of_samples(Index first, Index samples, Index layer,
                                     const RowBlock& block) {
    if (is_known(layer)) return;
    if (block.p.backend().host_memory())
        return Observer::on_rows_of_samples(first, samples, layer, block);
    spent(Cost::forward, "rows of P", layer, &block.p.backend());
    if (!needs_rows_) return;
    waiting_rows_.push_back({layer, first, samples, block, row_totals_later(block)});
    if (block.p.rows() < block.tokens()) hear_what_waits();
}

void Measurement::hear(Index layer, const RowBlock& block, const RowStatistics& stats) {
    Sample& sample = now();
    sample.layer = layer;
    report_progress(layer);
    note(block.over, block.p.cols());
    spent(Cost::shared, "statistics of rows", layer);
    for (const double modulus : stats.modulus)
        sample.finite_rows = sample.finite_rows && std::isfinite(modulus);
    const AttentionRows event{layer, block, stats};
    drive(Needs::rows, layer, [&](Probe& probe) { probe.on_attention_rows(event, *sink_); });
}

bool Measurement::wants_attention(Index) const { return needs_attention_; }

/// A matrix with NaN has no spectrum, and solvers might not terminate on it.
bool Measurement::spoiled(const Attention& event) {
    if (now().finite_rows) return false;
    for (const auto& [entry, settings] : wanted_) {
        if (!has(entry->needs, Needs::attention)) continue;
        for (const std::string& metric : wanted(*entry, settings_.metrics))
            sink_->scalar({.layer = event.layer, .stage = "attn"}, metric,
                          undefined(std::string(not_finite)));
    }
    return true;
}

void Measurement::on_attention(const Attention& event) {
    if (is_known(event.layer)) return;
    hear_what_waits();
    now().layer = event.layer;
    spent(Cost::forward, "P V", event.layer, &event.op.backend());
    report_progress(event.layer);
    const bool gain = first_ + sample_ == 0 && std::isfinite(event.a2);
    totals_.add_gain(event.layer, gain ? event.a2 : 0, gain ? 1 : 0);
    if (!needs_attention_ || spoiled(event)) return;
    note(event.over, event.op.tokens());
    drive(Needs::attention, event.layer, [&](Probe& probe) { probe.on_attention(event, *sink_); });
}

void Measurement::on_routing(const Routing& event) {
    if (is_known(event.layer)) return;
    hear_what_waits();  // experts were chosen on the host, which has waited for the states
    now().layer = event.layer;
    spent(Cost::forward, "routing", event.layer);
    drive(Needs::routing, event.layer, [&](Probe& probe) { probe.on_routing(event, *sink_); });
}

void Measurement::on_loss(double value) {
    totals_.add_loss(value);
    swept_ = true;
    spent(Cost::backward, "loss", -1);
}

void Measurement::on_gradient(const Gradient& event) {
    if (event.layer >= 0) now().layer = event.layer;
    spent(Cost::backward, "gradients", event.layer, &event.g.backend());
    drive(Needs::gradient, event.layer, [&](Probe& probe) { probe.on_gradient(event, *sink_); });
}

bool Measurement::wants_attention_gradient(Index) const { return needs_attention_gradient_; }

void Measurement::on_attention_gradient(const AttentionGradient& event) {
    now().layer = event.layer;
    spent(Cost::backward, "gradients of P", event.layer, &event.op.backend());
    note(event.over, event.op.tokens());
    drive(Needs::attention_gradient, event.layer,
          [&](Probe& probe) { probe.on_attention_gradient(event, *sink_); });
}

void Measurement::finish(Index number, Sample& sample) {
    if (sample.layer < 0) return;
    sink_->set_channels(sample.channels);
    spent(swept_ ? Cost::backward : Cost::forward, "rest", sample.layer);
    for (const Driven& driven : sample.probes) {
        driven.probe->finish_layer(sample.layer, *sink_);
        spent(Cost::metric, driven.entry->name, sample.layer);
    }
    const bool first = trial_ == 0 && first_ + number == 0;
    for (Diagnostics::Entry& entry : sample.diagnostics.entries)
        if ((first && entry.estimate.iterations > 0) || !entry.estimate.converged ||
            entry.estimate.on_host)
            totals_.add(std::move(entry));
    sample.diagnostics.entries.clear();
    sample.last_state.reset();
    sample.finite_rows = true;
    sample.channels = 0;
    sample.layer = -1;
}

void Measurement::end_layer(Index layer) {
    if (is_known(layer)) return;
    hear_what_waits();
    sample_ = 0;
    report_progress(layer + 1);
    if (settings_.layer_done) settings_.layer_done();
    spent(swept_ ? Cost::backward : Cost::forward, "rest", layer);
}

void Measurement::report_progress(Index layer) {
    if (!settings_.progress) return;
    const double samples = double(std::max<Index>(settings_.samples, 1));
    const double layers = double(std::max<Index>(settings_.layers, 1));
    const double in_layer = std::min(double(layer) + double(sample_) / samples, layers) / layers;
    // Samples of one batch alternate, so the fraction could decrease.
    fraction_ = std::max(fraction_, (double(trial_) + in_layer) / double(settings_.trials));
    settings_.progress(fraction_, std::min(layer, settings_.layers - 1));
}

}  // namespace tsdiag
