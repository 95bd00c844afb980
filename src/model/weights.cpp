#include "tsdiag/weights.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "tsdiag/ops.hpp"

/// Weights made of other weights, and those that are applied together.
namespace tsdiag {
namespace {

class ResidentWeights final : public Weights {
  public:
    explicit ResidentWeights(std::shared_ptr<const Weights> all) : all_(std::move(all)) {}
    bool has(std::string_view name) const override { return all_->has(name); }
    std::vector<std::string> names() const override { return all_->names(); }
    Tensor get(std::string_view name) const override {
        const std::lock_guard lock(mutex_);
        const auto found = held_.find(name);
        if (found != held_.end()) return found->second;
        std::vector<Tensor> values;
        const std::vector<std::string> names = applied_together(*all_, name);
        for (const std::string& n : names) values.push_back(all_->get(n));
        if (values.front().backend().fuses()) values = adjacent(values);
        values.front().backend().synchronise();  // also for use by other threads
        for (std::size_t i = 0; i < names.size(); ++i) held_.emplace(names[i], values[i]);
        return held_.find(name)->second;
    }
    Tensor rows(std::string_view name, std::span<const Index> rows) const override {
        const std::lock_guard lock(mutex_);
        return all_->rows(name, rows);
    }

  private:
    std::shared_ptr<const Weights> all_;
    mutable std::mutex mutex_;
    mutable std::map<std::string, Tensor, std::less<>> held_;
};

class SplicedWeights final : public Weights {
  public:
    SplicedWeights(std::shared_ptr<const Weights> kept, std::shared_ptr<const Weights> redrawn,
                   std::string ending)
        : kept_(std::move(kept)), redrawn_(std::move(redrawn)), ending_(std::move(ending)) {}
    bool has(std::string_view name) const override { return of(name).has(name); }
    std::vector<std::string> names() const override { return kept_->names(); }
    Tensor get(std::string_view name) const override { return of(name).get(name); }
    Tensor rows(std::string_view name, std::span<const Index> rows) const override {
        return of(name).rows(name, rows);
    }
    void release() const override { redrawn_->release(); }

  private:
    const Weights& of(std::string_view name) const {
        return name.ends_with(ending_) ? *redrawn_ : *kept_;
    }
    std::shared_ptr<const Weights> kept_, redrawn_;
    std::string ending_;
};

}  // namespace

Tensor Weights::rows(std::string_view name, std::span<const Index> rows) const {
    return gather_rows(get(name), rows);
}

std::vector<std::string> applied_together(const Weights& weights, std::string_view name) {
    const std::string stem = ".attn.";
    const std::size_t at = name.rfind(stem);
    if (at == name.npos) return {std::string(name)};
    const std::string before(name.substr(0, at + stem.size()));
    const std::string_view map = name.substr(before.size());
    std::vector<std::string> all;
    for (const char* letter : {"q", "k", "v"})
        all.push_back(before + letter +
                      std::string(map.substr(std::min<std::size_t>(1, map.size()))));
    const bool one = std::ranges::find(all, name) != all.end() &&
                     !weights.has(before + "kv_low.weight") &&  // q is applied to something else
                     std::ranges::all_of(all, [&](const auto& n) { return weights.has(n); });
    return one ? all : std::vector{std::string(name)};
}

std::unique_ptr<Weights> resident_weights(std::shared_ptr<const Weights> all) {
    return std::make_unique<ResidentWeights>(std::move(all));
}

std::unique_ptr<Weights> spliced_weights(std::shared_ptr<const Weights> kept,
                                         std::shared_ptr<const Weights> redrawn,
                                         std::string ending) {
    return std::make_unique<SplicedWeights>(std::move(kept), std::move(redrawn), std::move(ending));
}

}  // namespace tsdiag
