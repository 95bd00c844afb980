#include "measurement.hpp"

namespace tsdiag {

void Totals::add_loss(double value) {
    losses_ += value;
    loss_count_ += 1;
}

void Totals::add_gain(Index layer, double a2, Index count) {
    auto& [sum, all] = gains_[layer];
    sum += a2;
    all += count;
}

void Totals::join(const Totals& later) {
    for (const auto& [layer, gain] : later.gains_) add_gain(layer, gain.first, gain.second);
    solver_.insert(solver_.end(), later.solver_.begin(), later.solver_.end());
    losses_ += later.losses_;
    loss_count_ += later.loss_count_;
}

std::optional<double> Totals::loss() const {
    if (loss_count_ == 0) return std::nullopt;
    return losses_ / double(loss_count_);
}

std::vector<std::optional<double>> Totals::branch_gains() const {
    std::vector<std::optional<double>> gains;
    if (gains_.empty()) return gains;
    gains.resize(std::size_t(gains_.rbegin()->first) + 1);
    for (const auto& [layer, sum] : gains_)
        if (sum.second > 0) gains[std::size_t(layer)] = sum.first / double(sum.second);
    return gains;
}

void Totals::write(RecordWriter& out) const {
    out.real(losses_);
    out.index(loss_count_);
    out.count(gains_.size());
    for (const auto& [layer, gain] : gains_) {
        out.index(layer);
        out.real(gain.first);
        out.index(gain.second);
    }
    out.count(solver_.size());
    for (const Diagnostics::Entry& entry : solver_) {
        for (const Index i : {entry.at.step, entry.at.layer, entry.at.head}) out.index(i);
        for (const std::string* text : {&entry.at.stage, &entry.at.tensor, &entry.metric})
            out.text(*text);
        const Estimate& e = entry.estimate;
        out.text(e.method);
        out.real(e.value);
        out.real(e.residual);
        out.index(e.iterations);
        out.flag(e.converged);
        out.real(e.low);
        out.real(e.high);
        out.flag(e.on_host);
    }
}

Totals Totals::read(RecordReader& in) {
    constexpr Index most_layers = 1 << 20;
    constexpr std::size_t least_gain = 10, least_entry = 28;  // bytes
    Totals out;
    out.losses_ = in.real();
    out.loss_count_ = in.index();
    for (std::size_t left = in.length(least_gain); left > 0; --left) {
        const Index layer = in.index();
        if (layer < 0 || layer >= most_layers) in.refuse("has a layer beyond all models");
        const double sum = in.real();
        out.gains_[layer] = {sum, in.index()};
    }
    for (std::size_t left = in.length(least_entry); left > 0; --left) {
        Diagnostics::Entry entry;
        entry.at.step = in.index();
        entry.at.layer = in.index();
        entry.at.head = in.index();
        entry.at.stage = in.text();
        entry.at.tensor = in.text();
        entry.metric = in.text();
        Estimate& e = entry.estimate;
        e.method = in.text();
        e.value = in.real();
        e.residual = in.real();
        e.iterations = in.index();
        e.converged = in.flag();
        e.low = in.maybe_real();
        e.high = in.maybe_real();
        e.on_host = in.flag();
        out.solver_.push_back(std::move(entry));
    }
    return out;
}

}  // namespace tsdiag
