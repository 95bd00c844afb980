#pragma once
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "tsdiag/units.hpp"

/// Units of several processes, in one.
namespace tsdiag::test {

using KeptUnits = std::map<std::pair<Index, Index>, std::string>;

/// The part `part` (from 1) of `parts`; of 0 parts, all units and the result.
class OnePart final : public Units {
  public:
    explicit OnePart(KeptUnits& kept, Index part = 1, Index parts = 0)
        : kept_(kept), parts_(parts), tickets_(tickets_of_part(part, parts > 0 ? parts : 1)) {}
    void begin(Index count) override {
        ++stage_;
        count_ = count;
    }
    std::optional<std::string_view> find(Index unit) const override {
        const std::lock_guard lock(mutex_);
        const auto at = kept_.find({stage_, unit});
        if (at == kept_.end()) return std::nullopt;
        return at->second;
    }
    void keep(Index unit, std::string_view record, double) override {
        const std::lock_guard lock(mutex_);
        kept_[{stage_, unit}] = record;
        ++computed;
    }
    std::optional<std::string_view> find_part(Index unit, Index part) const override {
        const auto at = layers.find({unit, part});
        if (at == layers.end()) return std::nullopt;
        return at->second;
    }
    void keep_part(Index unit, Index part, std::string_view record) override {
        if (on_part) on_part(part);
        layers[{unit, part}] = record;
    }
    bool begun() const override { return true; }
    bool hands_out() const override { return parts_ > 0; }
    Index next() override {
        const Index ticket = tickets_(stage_, count_);
        return ticket < count_ ? ticket : -1;
    }
    Index computed = 0;
    KeptUnits layers;                    ///< by unit and part
    std::function<void(Index)> on_part;  ///< may throw: the process dies before it keeps this one

  private:
    KeptUnits& kept_;
    Index parts_, stage_ = -1, count_ = 0;
    JobUnits::Tickets tickets_;
    mutable std::mutex mutex_;
};

}  // namespace tsdiag::test
