#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "tsdiag/error.hpp"
#include "tsdiag/probe.hpp"
#include "tsdiag/text.hpp"

/// The probes, one per line, in the order in which they run.
#define TSDIAG_PROBES(X)    \
    X(similarity)           \
    X(effective_rank)       \
    X(escalation)           \
    X(spectrum)             \
    X(mixing)               \
    X(attention_norms)      \
    X(projection_jacobians) \
    X(attention_shape)      \
    X(locality)             \
    X(locality_appendix)    \
    X(experts)              \
    X(attention_maps)       \
    X(gradients)            \
    X(gradient_bounds)

namespace tsdiag {
namespace probe {
#define TSDIAG_DECLARE(name) extern const ProbeEntry name;
TSDIAG_PROBES(TSDIAG_DECLARE)
#undef TSDIAG_DECLARE
}  // namespace probe

std::span<const ProbeEntry* const> probes() {
#define TSDIAG_ADDRESS(name) &probe::name,
    static constexpr std::array list = {TSDIAG_PROBES(TSDIAG_ADDRESS)};
#undef TSDIAG_ADDRESS
    return list;
}

std::span<const Metric* const> metrics() {
    static const std::vector<const Metric*> list = [] {
        std::vector<const Metric*> all;
        for (const ProbeEntry* entry : probes())
            for (const Metric& m : entry->metrics) all.push_back(&m);
        for (const Metric& m : series_metrics()) all.push_back(&m);
        return all;
    }();
    return list;
}

const Metric* find_metric(std::string_view name) {
    const auto found = std::ranges::find(metrics(), name, &Metric::name);
    return found == metrics().end() ? nullptr : *found;
}

namespace {

bool contains(const std::vector<std::string>& list, std::string_view word) {
    return std::find(list.begin(), list.end(), word) != list.end();
}

/// Does the word select the metric: by its name, its probe, or a set?
bool stands_for(std::string_view word, const Metric& m, const ProbeEntry& entry) {
    return word == m.name || word == "all" || (word == "core" && m.core) || word == entry.name;
}

[[noreturn]] void unknown(const std::string& word, const std::vector<std::string>& known) {
    const std::string near = nearest(word, known);
    throw UsageError(
        fmt::format("unknown metric, curve or probe '{}'.{} See docs/metrics.md for the names.",
                    word, near.empty() ? "" : fmt::format(" Did you mean '{}'?", near)));
}

}  // namespace

std::vector<std::string> resolve_metrics(std::span<const std::string> words) {
    std::vector<std::string> result, known;
    for (const ProbeEntry* entry : probes()) {
        known.emplace_back(entry->name);
        for (const Metric& m : entry->metrics) {
            known.emplace_back(m.name);
            if (std::ranges::any_of(words, [&](auto& w) { return stands_for(w, m, *entry); }))
                result.emplace_back(m.name);
        }
    }
    known.insert(known.end(), {"core", "all"});
    for (const std::string& word : words)
        if (!contains(known, word)) unknown(word, known);
    return result;
}

bool needs_loss(std::string_view metric) {
    return std::ranges::any_of(probes(), [&](const ProbeEntry* entry) {
        return (has(entry->needs, Needs::gradient) ||
                has(entry->needs, Needs::attention_gradient)) &&
               std::ranges::find(entry->metrics, metric, &Metric::name) != entry->metrics.end();
    });
}

bool ProbeSettings::wants(std::string_view metric) const {
    return metrics.empty() || contains(metrics, metric);
}

bool ProbeSettings::wants_by_name(std::string_view metric) const {
    return contains(by_name, metric);
}

bool ProbeSettings::wants_head(Index head) const {
    return heads.empty() || std::find(heads.begin(), heads.end(), head) != heads.end();
}

}  // namespace tsdiag
