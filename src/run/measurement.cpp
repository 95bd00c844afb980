#include "measurement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tsdiag/error.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag {
namespace {

/// The wanted ones among what `entry` declares.
std::vector<std::string> wanted(const ProbeEntry& entry, const std::vector<std::string>& metrics) {
    std::vector<std::string> list;
    for (const Metric& m : entry.metrics)
        if (std::ranges::find(metrics, m.name) != metrics.end()) list.emplace_back(m.name);
    return list;
}

constexpr std::string_view not_finite = "NaN or infinity in the data";

}  // namespace

/// Where non-finite data are allowed, their numbers become undefined values.
class Measurement::FiniteSink final : public Sink {
  public:
    FiniteSink(Sink& out, bool allow) : out_(out), allow_(allow) {}
    void scalar(const Place& at, std::string_view metric, const Value& value) override {
        out_.scalar(at, metric, made_finite(value));
    }
    void point(const Place& at, std::string_view curve, double x, const Value& y) override {
        out_.point(at, curve, x, made_finite(y));
    }
    void matrix(Map map) override { out_.matrix(std::move(map)); }

  private:
    Value made_finite(const Value& value) const {
        const auto bad = [](const std::optional<double>& v) { return v && !std::isfinite(*v); };
        if (allow_ && (bad(value.value) || bad(value.low) || bad(value.high)))
            return undefined(std::string(not_finite));
        return value;
    }
    Sink& out_;
    bool allow_;
};

Measurement::Measurement(MeasurementSettings settings, Sink& out)
    : settings_(std::move(settings)),
      sink_(std::make_unique<FiniteSink>(out, settings_.allow_nonfinite)) {
    ProbeSettings common;
    common.by_name = settings_.by_name;
    common.heads = settings_.heads;
    common.maps = settings_.maps;
    common.accuracy = settings_.accuracy;
    common.route = settings_.route;
    common.cross_check = settings_.cross_check;
    common.diagnostics = &diagnostics_;
    for (const ProbeEntry* entry : tsdiag::probes()) {
        ProbeSettings its = common;
        its.metrics = wanted(*entry, settings_.metrics);
        const bool keeps_maps = entry->name == "maps" && !settings_.maps.empty();
        if (!its.metrics.empty() || keeps_maps) add(*entry, std::move(its));
    }
    for (const ProbeEntry* entry : settings_.own_probes) add(*entry, common);
}

void Measurement::add(const ProbeEntry& entry, ProbeSettings settings) {
    probes_.push_back({&entry, entry.make(settings)});
    needs_hidden_ = needs_hidden_ || has(entry.needs, Needs::hidden);
    needs_rows_ = needs_rows_ || has(entry.needs, Needs::rows);
    needs_attention_ = needs_attention_ || has(entry.needs, Needs::attention);
    needs_gradient_ = needs_gradient_ || has(entry.needs, Needs::gradient);
    needs_attention_gradient_ =
        needs_attention_gradient_ || has(entry.needs, Needs::attention_gradient);
}

Measurement::~Measurement() = default;

void Measurement::begin_trial(Index trial) { trial_ = trial; }

void Measurement::join(const Measurement& later) {
    for (const auto& [layer, gain] : later.gains_) {
        auto& [sum, count] = gains_[layer];
        sum += gain.first;
        count += gain.second;
    }
    solver_.insert(solver_.end(), later.solver_.begin(), later.solver_.end());
    losses_ += later.losses_;
    loss_count_ += later.loss_count_;
}

void Measurement::begin_sample(Index sample) {
    finish_sample();
    sample_ = sample;
}

const StateMoments& Measurement::moments_of(const Tensor& x) {
    // A layer's `out` is its last stage: the same elements under a second name.
    const bool same = last_state_ && last_state_->first.view().data == x.view().data &&
                      last_state_->first.shape() == x.shape();
    if (!same) last_state_.emplace(x, state_moments(x));
    return last_state_->second;
}

void Measurement::on_hidden(const Hidden& event) {
    layer_ = event.layer;
    report_progress();
    if (!needs_hidden_) return;
    const StateMoments& moments = moments_of(event.x);
    for (const Driven& driven : probes_)
        if (has(driven.entry->needs, Needs::hidden))
            driven.probe->on_hidden(event, moments, *sink_);
}

bool Measurement::wants_rows(Index) const { return needs_rows_; }

void Measurement::on_attention_rows(Index layer, const RowBlock& block) {
    layer_ = layer;
    report_progress();
    if (!needs_rows_) return;
    const RowStatistics stats = row_statistics(block);
    for (const double modulus : stats.modulus)
        finite_rows_ = finite_rows_ && std::isfinite(modulus);
    const AttentionRows event{layer, block, stats};
    for (const Driven& driven : probes_)
        if (has(driven.entry->needs, Needs::rows)) driven.probe->on_attention_rows(event, *sink_);
}

bool Measurement::wants_attention(Index) const { return needs_attention_; }

/// A matrix with NaN has no spectrum, and solvers need not end on one.
bool Measurement::spoiled(const Attention& event) {
    if (finite_rows_) return false;
    for (const Driven& driven : probes_) {
        if (!has(driven.entry->needs, Needs::attention)) continue;
        for (const std::string& metric : wanted(*driven.entry, settings_.metrics))
            sink_->scalar({.layer = event.layer, .stage = "attn"}, metric,
                          undefined(std::string(not_finite)));
    }
    return true;
}

void Measurement::on_attention(const Attention& event) {
    layer_ = event.layer;
    report_progress();
    auto& [sum, count] = gains_[event.layer];
    if (sample_ == 0 && std::isfinite(event.a2)) {
        sum += event.a2;
        count += 1;
    }
    if (!needs_attention_ || spoiled(event)) return;
    for (const Driven& driven : probes_)
        if (has(driven.entry->needs, Needs::attention)) driven.probe->on_attention(event, *sink_);
}

void Measurement::on_loss(double value) {
    losses_ += value;
    loss_count_ += 1;
}

std::optional<double> Measurement::loss() const {
    if (loss_count_ == 0) return std::nullopt;
    return losses_ / double(loss_count_);
}

void Measurement::on_gradient(const Gradient& event) {
    if (event.layer >= 0) layer_ = event.layer;
    for (const Driven& driven : probes_)
        if (has(driven.entry->needs, Needs::gradient)) driven.probe->on_gradient(event, *sink_);
}

bool Measurement::wants_attention_gradient(Index) const { return needs_attention_gradient_; }

void Measurement::on_attention_gradient(const AttentionGradient& event) {
    layer_ = event.layer;
    for (const Driven& driven : probes_)
        if (has(driven.entry->needs, Needs::attention_gradient))
            driven.probe->on_attention_gradient(event, *sink_);
}

void Measurement::finish_sample() {
    if (layer_ < 0) return;
    for (const Driven& driven : probes_) driven.probe->finish_layer(layer_, *sink_);
    const bool first = trial_ == 0 && sample_ == 0;
    for (Diagnostics::Entry& entry : diagnostics_.entries)
        if ((first && entry.estimate.iterations > 0) || !entry.estimate.converged)
            solver_.push_back(std::move(entry));
    diagnostics_.entries.clear();
    last_state_.reset();
    finite_rows_ = true;
    layer_ = -1;
}

void Measurement::end_layer(Index layer) {
    finish_sample();
    sample_ = 0;
    layer_ = layer + 1;
    report_progress();
    layer_ = -1;
}

void Measurement::report_progress() {
    if (!settings_.progress) return;
    const double samples = double(std::max<Index>(settings_.samples, 1));
    const double layers = double(std::max<Index>(settings_.layers, 1));
    const double in_layer = std::min(double(layer_) + double(sample_) / samples, layers) / layers;
    settings_.progress((double(trial_) + in_layer) / double(settings_.trials),
                       std::min(layer_, settings_.layers - 1));
}

std::vector<std::optional<double>> Measurement::branch_gains() const {
    std::vector<std::optional<double>> gains;
    if (gains_.empty()) return gains;
    gains.resize(std::size_t(gains_.rbegin()->first) + 1);
    for (const auto& [layer, sum] : gains_)
        if (sum.second > 0) gains[std::size_t(layer)] = sum.first / double(sum.second);
    return gains;
}

}  // namespace tsdiag
