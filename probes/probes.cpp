#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "tsdiag/error.hpp"
#include "tsdiag/probe.hpp"

/// The probes, one line each, in the order in which they run.
#define TSDIAG_PROBES(X)    \
    X(similarity)           \
    X(escalation)           \
    X(spectrum)             \
    X(mixing)               \
    X(attention_norms)      \
    X(projection_jacobians) \
    X(attention_shape)      \
    X(locality)             \
    X(locality_appendix)    \
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

std::span<const std::string_view> core_metrics() {
    static constexpr std::array<std::string_view, 20> core = {
        "t_sim",   "t_div",   "t_cos",       "fro",          "xi1",       "xi2",      "xi_ratio",
        "r",       "r_layer", "lambda2_abs", "spectral_gap", "delta",     "attn_fro", "jac_fro",
        "entropy", "row_max", "neg_mass",    "row_sum_dev",  "local_auc", "local_acc"};
    return core;
}

namespace {

std::vector<std::string> words_of(std::string_view text) {
    std::istringstream in{std::string(text)};
    std::vector<std::string> words;
    for (std::string word; in >> word;) words.push_back(word);
    return words;
}

/// Metrics and curves of one probe.
std::vector<std::string> declared(const ProbeEntry& entry) {
    std::vector<std::string> names = words_of(entry.metrics);
    for (std::string& curve : words_of(entry.curves)) names.push_back(std::move(curve));
    return names;
}

bool contains(const std::vector<std::string>& list, std::string_view word) {
    return std::find(list.begin(), list.end(), word) != list.end();
}

/// What one word stands for; empty where it is unknown.  A metric comes before a probe of its name.
std::vector<std::string> expand(const std::string& word, const std::vector<std::string>& all) {
    if (word == "all") return all;
    if (word == "core") return {core_metrics().begin(), core_metrics().end()};
    if (contains(all, word)) return {word};
    for (const ProbeEntry* entry : probes())
        if (entry->name == word) return declared(*entry);
    return {};
}

[[noreturn]] void unknown(const std::string& word, std::vector<std::string> known) {
    known.insert(known.end(), {"core", "all"});
    for (const ProbeEntry* entry : probes()) known.emplace_back(entry->name);
    const std::string near = nearest(word, known);
    throw UsageError(
        fmt::format("'{}' is no metric, curve or probe.{} Names are in docs/metrics.md.", word,
                    near.empty() ? "" : fmt::format(" Did you mean '{}'?", near)));
}

}  // namespace

std::vector<std::string> resolve_metrics(std::span<const std::string> words) {
    std::vector<std::string> all, wanted, result;
    for (const ProbeEntry* entry : probes())
        for (std::string& name : declared(*entry)) all.push_back(std::move(name));
    for (const std::string& word : words) {
        const std::vector<std::string> names = expand(word, all);
        const bool maps = word == probe::attention_maps.name;
        if (names.empty() && !maps) unknown(word, all);
        wanted.insert(wanted.end(), names.begin(), names.end());
    }
    for (const std::string& name : all)
        if (contains(wanted, name)) result.push_back(name);
    return result;
}

bool needs_loss(std::string_view metric) {
    for (const ProbeEntry* entry : probes())
        if (has(entry->needs, Needs::gradient) || has(entry->needs, Needs::attention_gradient))
            if (contains(declared(*entry), metric)) return true;
    return false;
}

bool ProbeSettings::wants(std::string_view metric) const {
    return metrics.empty() || contains(metrics, metric);
}

bool ProbeSettings::wants_head(Index head) const {
    return heads.empty() || std::find(heads.begin(), heads.end(), head) != heads.end();
}

}  // namespace tsdiag
