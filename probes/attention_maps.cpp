#include <fmt/format.h>

#include <algorithm>

#include "support.hpp"
#include "tsdiag/error.hpp"

/// Complete attention maps of selected heads, in the order of the sample's tokens.
namespace tsdiag::probe {
namespace {

class AttentionMaps final : public Probe {
  public:
    explicit AttentionMaps(const ProbeSettings& settings) : settings_(settings) {}

    void on_attention_rows(const AttentionRows& e, Sink&) override {
        if (layer_ != e.layer) maps_.clear();
        layer_ = e.layer;
        over_ = e.block.over;
        for (const auto& one : settings_.maps) {
            if (one.first == e.layer) copy_rows(e, one.second);
            for (Index head = 0; one == every_map && head < e.block.p.batch(); ++head)
                if (settings_.wants_head(head)) copy_rows(e, head);
        }
    }

    void finish_layer(Index, Sink& out) override {
        for (Map& map : maps_) out.matrix(std::move(map));
        if (over_.order && !maps_.empty()) out.matrix(order());
        maps_.clear();
    }

  private:
    void copy_rows(const AttentionRows& e, Index head) {
        const Index n = e.block.tokens(), columns = e.block.p.cols();
        if (e.block.totals)
            throw UsageError(
                fmt::format("--maps {}:{}: P of {} tokens is too large for a map, expected at most "
                            "{}; pass fewer --tokens.",
                            e.layer, head, n, AttentionOperator::largest_seen_whole));
        if (head < 0 || head >= e.block.p.batch())
            throw UsageError(
                fmt::format("--maps {}:{}: layer {} has {} heads, expected a head from 0 to {}.",
                            e.layer, head, e.layer, e.block.p.batch(), e.block.p.batch() - 1));
        auto map = std::find_if(maps_.begin(), maps_.end(),
                                [&](const Map& m) { return m.at.head == head; });
        if (map == maps_.end())
            map = maps_.insert(maps_.end(),
                               Map{.at = attention_place(e.layer, head),
                                   .name = over_.channels ? "channels" : "attention",
                                   .rows = n,
                                   .cols = columns,
                                   .values = std::vector<double>(std::size_t(n * columns))});
        const std::vector<double> rows = e.block.p.batch_range(head, 1).to_host<double>();
        if (!over_.order) {
            std::copy(rows.begin(), rows.end(), map->values.begin() + e.block.first * columns);
            return;
        }
        const std::vector<Index>& token = *over_.order;
        for (std::size_t i = 0; i < rows.size(); ++i) {
            const Index row = e.block.first + Index(i) / columns, column = Index(i) % columns;
            map->values[std::size_t(token[std::size_t(row)] * columns +
                                    token[std::size_t(column)])] = rows[i];
        }
    }
    /// The token of each row of P as its metrics have it.
    Map order() const {
        return {.at = attention_place(layer_),
                .name = "windows",
                .rows = 1,
                .cols = std::ssize(*over_.order),
                .values = {over_.order->begin(), over_.order->end()}};
    }

    ProbeSettings settings_;
    Index layer_ = -1;
    AttentionOver over_;
    std::vector<Map> maps_;
};

}  // namespace

extern const ProbeEntry attention_maps = {.name = "maps",
                                          .metrics = {},
                                          .needs = Needs::rows | Needs::entries,
                                          .make = make<AttentionMaps>};

}  // namespace tsdiag::probe
