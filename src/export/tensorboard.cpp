#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <map>

#include "formats.hpp"
#include "tsdiag/checksum.hpp"

/// TensorBoard's event files: frames of TFRecord around protocol buffers of type Event.
///
///     frame: length (8 bytes), its checksum (4), data, checksum of the data (4); little-endian
///     Event: wall_time = 1 (double), step = 2 (varint), file_version = 3 or
///            summary = 5 { value = 1 { tag = 1, simple_value = 2 (float), histo = 5 } }
///     histo: min = 1, max = 2, num = 3, sum = 4, sum_squares = 5 (doubles),
///            bucket_limit = 6, bucket = 7 (packed doubles)
///
/// Metrics of a training are scalars over its steps, those of a single model over its layers;
/// metrics of heads are histograms over the heads as well.  Columns of other tables that have steps
/// are scalars over them.
namespace tsdiag::exports {
namespace {

using Step = Index;

void append_frame(std::string& out, const std::string& data) {
    std::string length;
    append_bytes(length, data.size(), 8);
    out += length;
    append_bytes(out, masked_crc32c(length), 4);
    out += data;
    append_bytes(out, masked_crc32c(data), 4);
}

/// A protocol buffer.
class Message {
  public:
    Message& number(int field, double value) {
        key(field, 1);
        append_bytes(bytes_, std::bit_cast<std::uint64_t>(value), 8);
        return *this;
    }
    Message& single(int field, float value) {
        key(field, 5);
        append_bytes(bytes_, std::bit_cast<std::uint32_t>(value), 4);
        return *this;
    }
    Message& integer(int field, Index value) {
        key(field, 0);
        varint(std::uint64_t(value));
        return *this;
    }
    Message& text(int field, std::string_view value) {
        key(field, 2);
        varint(value.size());
        bytes_ += value;
        return *this;
    }
    Message& numbers(int field, const std::vector<double>& values) {
        key(field, 2);
        varint(8 * values.size());
        for (const double value : values)
            append_bytes(bytes_, std::bit_cast<std::uint64_t>(value), 8);
        return *this;
    }
    const std::string& bytes() const { return bytes_; }

  private:
    void key(int field, int wire) { varint(std::uint64_t(field) << 3U | std::uint64_t(wire)); }
    void varint(std::uint64_t value) { append_varint(bytes_, value); }
    std::string bytes_;
};

/// What is written: in the order of steps, as TensorBoard expects it.
class Events {
  public:
    void scalar(Step step, const std::string& tag, double value) {
        // Beyond the range of float only infinity would be left.
        constexpr double most = std::numeric_limits<float>::max();
        Message one;
        one.text(1, tag).single(2, float(std::clamp(value, -most, most)));
        add(step, one);
    }
    /// Thirty bins of equal width.
    void histogram(Step step, const std::string& tag, const std::vector<double>& values) {
        constexpr std::size_t bins = 30;
        const auto [low, high] = std::ranges::minmax(values);
        const std::size_t used = high > low ? bins : 1;
        std::vector<double> limits, counts(used, 0.0);
        for (std::size_t i = 1; i < used; ++i)
            limits.push_back(low + (high - low) * (double(i) / double(used)));
        limits.push_back(high);
        double sum = 0, squares = 0;
        for (const double value : values) {
            sum += value;
            squares += value * value;
            const auto bin = std::ranges::lower_bound(limits, value) - limits.begin();
            ++counts[std::min(std::size_t(bin), used - 1)];
        }
        Message histo, one;
        histo.number(1, low).number(2, high).number(3, double(values.size()));
        histo.number(4, sum).number(5, squares).numbers(6, limits).numbers(7, counts);
        one.text(1, tag).text(5, histo.bytes());
        add(step, one);
    }
    std::string file() const {
        std::string out;
        append_frame(out, Message().number(1, 0).text(3, "brain.Event:2").bytes());
        for (const auto& [step, event] : events_) append_frame(out, event);
        return out;
    }
    Index count() const { return std::ssize(events_); }

  private:
    void add(Step step, const Message& value) {
        Message summary, event;
        summary.text(1, value.bytes());
        event.number(1, double(step)).integer(2, step).text(5, summary.bytes());
        events_.emplace(step, event.bytes());
    }
    std::multimap<Step, std::string> events_;
};

std::string layer_name(Index layer) { return fmt::format("/layer {:02}", layer); }

/// The cells of metrics, by row.
struct Metrics {
    explicit Metrics(const ExportTable& table)
        : rows(std::size_t(table.rows)),
          model(table.column("model")->texts),
          stage(table.column("stage")->texts),
          tensor(table.column("tensor")->texts),
          metric(table.column("metric")->texts),
          step(table.column("step")->integers),
          layer(table.column("layer")->integers),
          head(table.column("head")->integers),
          value(table.column("value")->numbers) {
        stepped = std::ranges::any_of(step, [](const auto& s) { return s.has_value(); });
        several = std::ranges::any_of(model, [&](const auto& m) { return m != model.front(); });
    }
    /// "t_sim@out", "t_sim@out/layer 03" where the steps are those of a training.
    std::string tag(std::size_t r) const {
        std::string out = several ? model[r].value_or("") + "/" : "";
        out += metric[r].value_or("");
        if (stage[r]) out += "@" + *stage[r];
        if (tensor[r]) out += "/" + *tensor[r];
        if (stepped && layer[r]) out += layer_name(*layer[r]);
        return out;
    }
    Step at(std::size_t r) const { return (stepped ? step[r] : layer[r]).value_or(0); }

    std::size_t rows;
    const std::vector<std::optional<std::string>>&model, &stage, &tensor, &metric;
    const std::vector<std::optional<Index>>&step, &layer, &head;
    const std::vector<std::optional<double>>& value;
    bool stepped = false, several = false;
};

void add_metrics(const ExportTable& table, Events& events) {
    const Metrics all(table);
    std::map<std::pair<std::string, Step>, std::vector<double>> heads;
    for (std::size_t r = 0; r < all.rows; ++r) {
        if (!all.value[r]) continue;
        if (all.head[r])
            heads[{all.tag(r), all.at(r)}].push_back(*all.value[r]);
        else
            events.scalar(all.at(r), all.tag(r), *all.value[r]);
    }
    for (const auto& [place, values] : heads)
        events.histogram(place.second, place.first + "/heads", values);
}

void add_columns(const ExportTable& table, Events& events) {
    const ExportColumn* step = table.column("step");
    if (!step || step->type != ExportColumn::Type::number) return;
    const ExportColumn* layer = table.column("layer");
    if (layer && layer->type != ExportColumn::Type::number) layer = nullptr;
    for (const ExportColumn& column : table.columns) {
        if (column.type != ExportColumn::Type::number || &column == step || &column == layer)
            continue;
        for (std::size_t r = 0; r < std::size_t(table.rows); ++r) {
            if (!step->numbers[r] || !column.numbers[r]) continue;
            std::string tag = table.name + "/" + column.name;
            if (layer && layer->numbers[r]) tag += layer_name(Index(*layer->numbers[r]));
            events.scalar(Index(*step->numbers[r]), tag, *column.numbers[r]);
        }
    }
}

std::vector<ExportedFile> write(std::span<const ExportTable> tables) {
    Events events;
    for (const ExportTable& table : tables) {
        if (table.name == "metrics")
            add_metrics(table, events);
        else if (table.name != "curves")
            add_columns(table, events);
    }
    return {{"events.out.tfevents.0.tsdiag", events.file(), "", events.count()}};
}

}  // namespace

const ExportFormat tensorboard = {"tensorboard", "an event file with scalars and histograms",
                                  "events.out.tfevents.*", write};

}  // namespace tsdiag::exports
