#include "tsdiag/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

std::string describe(const Place& at) {
    std::string text;
    if (at.step >= 0) text += fmt::format(" step {}", at.step);
    if (at.layer >= 0) text += fmt::format(" layer {}", at.layer);
    if (!at.stage.empty()) text += fmt::format(" stage '{}'", at.stage);
    if (at.head >= 0) text += fmt::format(" head {}", at.head);
    if (!at.tensor.empty()) text += fmt::format(" tensor '{}'", at.tensor);
    return text.empty() ? " the whole model" : text;
}

void require_finite(double v, std::string_view part, std::string_view name, const Place& at) {
    if (!std::isfinite(v))
        throw NonFiniteError(fmt::format("{}:{}: the {} is {}, expected a finite number.", name,
                                         describe(at), part, v));
}

/// `value`, or why it is undefined.
Value made_finite(Value value) {
    const auto bad = [](const std::optional<double>& v) { return v && !std::isfinite(*v); };
    if (bad(value.value) || bad(value.low) || bad(value.high))
        return undefined("its computation meets NaN or infinity");
    return value;
}

std::uint64_t mix(std::uint64_t h, std::uint64_t v) {
    h ^= v + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2);
    h *= 0xff51afd7ed558ccdu;
    return h ^ (h >> 33);
}

std::optional<double> standard_error(Index count, long double m2) {
    if (count < 2) return std::nullopt;
    const auto error = double(std::sqrt(m2 / (double(count - 1) * double(count))));
    return std::isfinite(error) ? std::optional(error) : std::nullopt;  // else it is unknown
}

}  // namespace

Value undefined(std::string reason) {
    Value v;
    v.note = std::move(reason);
    return v;
}

Value interval(double low, double high, std::string reason) {
    Value v;
    v.low = low;
    v.high = high;
    v.note = std::move(reason);
    return v;
}

std::size_t Table::KeyHash::operator()(const Key& key) const {
    std::uint64_t h = mix(key.name, (std::uint64_t(key.stage) << 32) | key.tensor);
    h = mix(h, (std::uint64_t(key.layer) << 32) ^ std::uint64_t(key.head));
    h = mix(h, (std::uint64_t(key.model) << 40) ^ std::uint64_t(key.step));
    return mix(h, std::bit_cast<std::uint64_t>(key.x));
}

Table::Moments& Table::Rows::at(const Key& key) {
    const auto [found, fresh] = index.try_emplace(key, keys.size());
    if (fresh) {
        keys.push_back(key);
        moments.emplace_back();
    }
    return moments[found->second];
}

Table::Table(std::string model) : model_(std::move(model)) {}

std::uint32_t Table::intern(std::string_view s) {
    if (const auto found = ids_.find(s); found != ids_.end()) return found->second;
    const auto id = std::uint32_t(names_.size());
    names_.emplace_back(s);
    ids_.emplace(names_.back(), id);
    return id;
}

Table::Key Table::key(const Place& at, std::string_view name, double x) {
    return {.model = intern(model_),
            .stage = intern(at.stage),
            .tensor = intern(at.tensor),
            .name = intern(name),
            .step = at.step,
            .layer = at.layer,
            .head = at.head,
            .x = x + 0.0};  // -0 and 0 are one key
}

Table::Key Table::translate(const Key& key, const Table& other) {
    Key own = key;
    own.model = intern(other.names_[key.model]);
    own.stage = intern(other.names_[key.stage]);
    own.tensor = intern(other.names_[key.tensor]);
    own.name = intern(other.names_[key.name]);
    return own;
}

Place Table::place(const Key& key) const {
    return {key.step, key.layer, names_[key.stage], key.head, names_[key.tensor]};
}

void Table::add(Moments& m, const Value& value) {
    m.seen += 1;
    if (m.note.empty()) m.note = value.note;
    if (value.value) {
        m.count += 1;
        const double step = *value.value - m.mean;
        m.mean += step / double(m.count);
        m.m2 += static_cast<long double>(step) * (*value.value - m.mean);
    }
    const std::optional<double> low = value.low ? value.low : value.value;
    const std::optional<double> high = value.high ? value.high : value.value;
    if (low && high) {
        m.known += 1;
        m.low += (*low - m.low) / double(m.known);
        m.high += (*high - m.high) / double(m.known);
    }
    m.bounded = m.bounded || value.low || value.high;
}

void Table::merge(Moments& into, const Moments& from) {
    if (into.note.empty()) into.note = from.note;
    const Index count = into.count + from.count, known = into.known + from.known;
    if (from.count > 0) {
        const double step = from.mean - into.mean, share = double(from.count) / double(count);
        into.mean += step * share;
        into.m2 += from.m2 + static_cast<long double>(step) * step * share * double(into.count);
    }
    if (from.known > 0) {
        const double share = double(from.known) / double(known);
        into.low += (from.low - into.low) * share;
        into.high += (from.high - into.high) * share;
    }
    into.seen += from.seen;
    into.count = count;
    into.known = known;
    into.bounded = into.bounded || from.bounded;
}

void Table::scalar(const Place& at, std::string_view metric, const Value& value) {
    const Key id = key(at, metric, 0);
    const Value finite = made_finite(value);
    add(metrics_.at(id), finite);
    if (keeps_samples_ && at.head < 0) keep_sample(id, finite.value);
}

void Table::keep_sample(const Key& key, std::optional<double> value) {
    if (++samples_kept_ > most_samples_kept) return forget_samples();
    samples_.resize(metrics_.keys.size());
    samples_[metrics_.index.at(key)].push_back(value);
}

void Table::forget_samples() {
    keeps_samples_ = false;
    samples_ = {};
}

void Table::point(const Place& at, std::string_view curve, double x, const Value& y) {
    require_finite(x, "abscissa", curve, at);
    add(curves_.at(key(at, curve, x)), made_finite(y));
}

void Table::matrix(Map map) {
    check(map.rows >= 0 && map.cols >= 0 && std::size_t(map.rows * map.cols) == map.values.size(),
          "a map holds rows x cols values");
    for (const Map& kept : maps_)
        if (kept.at == map.at && kept.name == map.name) return;
    maps_.push_back(std::move(map));
}

MetricRow Table::metric_row(const Key& key, const Moments& m) const {
    MetricRow row;
    row.model = names_[key.model];
    row.at = place(key);
    row.metric = names_[key.name];
    row.count = m.count;
    row.standard_error = standard_error(m.count, m.m2);
    Value mean = undefined(m.note);
    if (m.count > 0) mean.value = m.mean;
    if (m.bounded && m.known > 0) {
        mean.low = m.low;
        mean.high = m.high;
    }
    mean = made_finite(std::move(mean));
    row.value = mean.value;
    row.low = mean.low;
    row.high = mean.high;
    row.note = std::move(mean.note);
    return row;
}

std::vector<MetricRow> Table::metrics() const {
    std::vector<MetricRow> rows;
    rows.reserve(metrics_.keys.size());
    for (std::size_t i = 0; i < metrics_.keys.size(); ++i) {
        rows.push_back(metric_row(metrics_.keys[i], metrics_.moments[i]));
        if (i < samples_.size()) rows.back().samples = samples_[i];
    }
    return rows;
}

std::vector<CurveRow> Table::curves() const {
    std::vector<CurveRow> rows;
    rows.reserve(curves_.keys.size());
    for (std::size_t i = 0; i < curves_.keys.size(); ++i) {
        const Key& k = curves_.keys[i];
        const Moments& m = curves_.moments[i];
        CurveRow& row = rows.emplace_back();
        row.model = names_[k.model];
        row.at = place(k);
        row.curve = names_[k.name];
        row.x = k.x;
        if (m.count > 0) row.y = made_finite(m.mean).value;
        row.standard_error = standard_error(m.count, m.m2);
        row.count = m.count;
    }
    return rows;
}

void Table::append(const Table& other) {
    if (&other == this) return append(Table(other));
    forget_samples();
    for (std::size_t i = 0; i < other.metrics_.keys.size(); ++i)
        merge(metrics_.at(translate(other.metrics_.keys[i], other)), other.metrics_.moments[i]);
    for (std::size_t i = 0; i < other.curves_.keys.size(); ++i)
        merge(curves_.at(translate(other.curves_.keys[i], other)), other.curves_.moments[i]);
    for (const Map& map : other.maps_) maps_.push_back(map);
}

Table::Moments Table::moments_of(const MetricRow& row) {
    Moments m;
    m.seen = std::max<Index>(row.count, 1);
    m.count = row.value ? std::max<Index>(row.count, 1) : 0;
    m.mean = row.value.value_or(0);
    // Without a standard error the spread of several numbers is unknown, not 0.
    const double unknown = m.count > 1 ? std::numeric_limits<double>::quiet_NaN() : 0;
    const long double error = row.standard_error.value_or(unknown);
    m.m2 = error * error * double(m.count) * double(m.count - 1);
    m.bounded = row.low && row.high;
    m.known = m.bounded ? m.seen : m.count;
    m.low = m.bounded ? *row.low : m.mean;
    m.high = m.bounded ? *row.high : m.mean;
    m.note = row.note;
    return m;
}

void Table::append(const std::vector<MetricRow>& metrics, const std::vector<CurveRow>& curves) {
    const auto key_of = [this](const std::string& model, const Place& at, const std::string& name,
                               double x) {
        Key own = key(at, name, x);
        own.model = intern(model);
        return own;
    };
    forget_samples();
    for (const MetricRow& row : metrics)
        merge(metrics_.at(key_of(row.model, row.at, row.metric, 0)), moments_of(row));
    for (const CurveRow& row : curves) {
        MetricRow as_metric;
        as_metric.value = row.y;
        as_metric.standard_error = row.standard_error;
        as_metric.count = row.count;
        merge(curves_.at(key_of(row.model, row.at, row.curve, row.x)), moments_of(as_metric));
    }
}

std::optional<MetricRow> Table::find(const Place& at, std::string_view metric) const {
    const auto id = [&](std::string_view s) {
        const auto found = ids_.find(s);
        return found == ids_.end() ? std::uint32_t(names_.size()) : found->second;
    };
    const Key wanted{.model = id(model_),
                     .stage = id(at.stage),
                     .tensor = id(at.tensor),
                     .name = id(metric),
                     .step = at.step,
                     .layer = at.layer,
                     .head = at.head};
    const auto found = metrics_.index.find(wanted);
    if (found == metrics_.index.end()) return std::nullopt;
    return metric_row(wanted, metrics_.moments[found->second]);
}

}  // namespace tsdiag
