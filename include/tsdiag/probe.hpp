#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/events.hpp"
#include "tsdiag/metric.hpp"
#include "tsdiag/table.hpp"

/// An observer of events that emits numbers.
namespace tsdiag {

/// Which events a probe wants.
enum class Needs : unsigned {
    hidden = 1,
    rows = 2,
    attention = 4,
    gradient = 8,
    attention_gradient = 16,
    /// The elements of AttentionRows::block.p, too: else a team shows them for its own rows only.
    entries = 32,
    routing = 64
};
constexpr Needs operator|(Needs a, Needs b) { return Needs(unsigned(a) | unsigned(b)); }
constexpr bool has(Needs set, Needs one) { return (unsigned(set) & unsigned(one)) != 0; }

/// A probe is deterministic, touches no file, clock, global or random source, keeps only small
/// state, and may be driven by hand:
///
///     probe->on_hidden(event, state_moments(event.x), sink);       // each state, in order
///     probe->on_attention_rows({layer, block, row_statistics(block)}, sink);
///     probe->on_routing(routing, sink);
///     probe->on_attention(attention, sink);                        // after the rows of its layer
///     probe->on_gradient(gradient, sink);                          // in a reverse sweep
///     probe->on_attention_gradient(attention_gradient, sink);
///     probe->finish_layer(layer, sink);
///
/// It computes only the requested metrics.  Its numbers depend neither on the row blocks nor
/// on the other probes.
class Probe {
  public:
    virtual ~Probe() = default;
    virtual void on_hidden(const Hidden&, const StateMoments&, Sink&) {}
    virtual void on_attention_rows(const AttentionRows&, Sink&) {}
    virtual void on_attention(const Attention&, Sink&) {}
    virtual void on_routing(const Routing&, Sink&) {}
    virtual void on_gradient(const Gradient&, Sink&) {}
    virtual void on_attention_gradient(const AttentionGradient&, Sink&) {}
    /// One sample's layer is complete.
    virtual void finish_layer(Index layer, Sink&) { (void)layer; }
};

/// Diagnostics of a probe's iterative results (for run.json).
struct Diagnostics {
    struct Entry {
        Place at;
        std::string metric;
        Estimate estimate;
    };
    std::vector<Entry> entries;
};

/// Stands for every layer and head.
inline constexpr std::pair<Index, Index> every_map{-1, -1};

/// What the user of a run chooses for its probes.
struct ProbeChoices {
    std::vector<Index> heads = {};                   ///< measured; empty: all
    std::vector<std::pair<Index, Index>> maps = {};  ///< (layer, head) of attention maps to keep;
                                                     ///< `every_map`: all of what is measured
    double tolerance = usual_accuracy;               ///< relative, of iterative results
    std::string spectra = "auto";  ///< the route to lambda2_abs and delta, see `spectral_routes`
    Index cross_check = 0;         ///< heads a layer whose lambda2_abs is cross-checked
};

struct ProbeSettings : ProbeChoices {
    std::vector<std::string> metrics = {};  ///< requested ones of the entry's; empty: all
    std::vector<std::string> by_name = {};  ///< requested by name (lifts limits of size)
    /// Flops a layer for jac_q_fro, and for jac_k_fro; beyond them, rows are sampled.
    double largest_work = 2e11;
    /// Relative rounding of the elements of a state and of P, where it is coarser than that of
    /// their type: of arrays that were saved in half precision, say.
    double state_rounding = 0, map_rounding = 0;
    Index longest = 0;                   ///< tokens of the longest sample; 0: all have equally many
    bool saved_maps = false;             ///< `map_rounding` is of entries of P that were saved
    Diagnostics* diagnostics = nullptr;  ///< may be null
    bool wants(std::string_view metric) const;
    bool wants_by_name(std::string_view metric) const;
    bool wants_head(Index head) const;
};

struct ProbeEntry {
    std::string_view name;
    std::span<const Metric> metrics;
    Needs needs;
    std::unique_ptr<Probe> (*make)(const ProbeSettings& settings);
};
std::span<const ProbeEntry* const> probes();

/// "core", "all", or names of metrics, curves or probes, as metrics and curves in the order of the
/// list.  Throws `UsageError` with the nearest name.
std::vector<std::string> resolve_metrics(std::span<const std::string> words);
/// Whether the metric exists only with a loss.
bool needs_loss(std::string_view metric);

}  // namespace tsdiag
