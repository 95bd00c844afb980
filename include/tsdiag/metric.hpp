#pragma once
#include <cstdint>
#include <span>
#include <string_view>

/// Definitions of the numbers in the tables.  A probe declares its metrics; docs/metrics.md,
/// `tsdiag list metrics`, the summaries, axes and tooltips, the schema of run.json and the
/// estimates of time and memory are generated from the declarations.
namespace tsdiag {

/// What a metric describes, which determines its `Place`.
enum class Of {
    state,  ///< layer and stage
    step,   ///< layer and stage: from the stage before it (docs/metrics.md, "Stages") to this one
    layer,  ///< layer, at stage `out`
    head,   ///< layer, stage `attn`, head; without a head the mean over the heads
    gradient,  ///< a state (layer, stage), a parameter (tensor), or all parameters of a layer
    curve,     ///< points (x, y) of a head or of a series
    series     ///< a series of numbers that a training logged
};

/// Where a metric is shown, beside the figures that name it.
enum class Show : unsigned {
    nowhere = 0,
    page = 1,        ///< a column of the report's table of layers
    terminal = 2,    ///< a column of the table that `probe` prints
    trajectory = 4,  ///< a figure over the steps of a training
    everywhere = 7
};
constexpr Show operator|(Show a, Show b) { return Show(unsigned(a) | unsigned(b)); }
constexpr bool has(Show set, Show one) { return (unsigned(set) & unsigned(one)) != 0; }

/// The sizes of a layer that decide how much memory a metric needs.
struct MetricSizes {
    double tokens = 1, side = 1;               ///< side: rows of P
    double width = 0, heads = 1, columns = 0;  ///< columns: of the queries of all heads
    double element = 4;                        ///< bytes of a number of the model
    double rows = 0;                           ///< bytes of a block of rows of P
    bool rotated = false, normed = false;      ///< queries and keys
};
/// Bytes that a metric holds.
struct MetricBytes {
    /// While it is computed, with MetricSizes::rows where it reads P in blocks; as much as those
    /// are counted anyway.  Metrics are computed one after another.
    double work = 0;
    /// Of all metrics that have this, while the attention of a layer is measured.
    double shared = 0;
    /// Of each sample of a batch on a device, where all of them are computed at once; of one sample
    /// at most `work`.
    double of_sample = 0;
    double vectors = 0;  ///< of an iteration, where P is not kept
};

struct Metric {
    std::string_view name = {};        ///< in the tables: [a-z0-9_]
    std::string_view symbol = {};      ///< on an axis: "|λ₂(P)|"
    std::string_view definition = {};  ///< Markdown, in the symbols of docs/metrics.md
    std::string_view source = {};      ///< "[TSE] Def. 1.1"; empty: tsdiag's own
    std::string_view range = {};       ///< "[0, 1]"
    std::string_view undefined = {};   ///< when there is none
    Of of = Of::head;
    std::string_view stage = "attn";  ///< at which summaries read it; of a gradient: its parameters
    bool core = false;                ///< part of `--probes core`
    Show show = Show::nowhere;
    std::string_view unit = {};  ///< empty: dimensionless, or that of its arguments
    /// Seconds of one core for an entry of P beyond the shared pass, and for n of them, measured at
    /// 512 tokens and 64 columns a head.  Metrics of one probe share their work.
    double seconds = 0, seconds_times_tokens = 0;
    std::int64_t most_tokens = 0;  ///< beyond, computed only on request by name; 0: no limit
    MetricBytes (*bytes)(const MetricSizes& sizes) = nullptr;  ///< null: none
};

/// All metrics: those of the probes in their order, then those of logged series.
std::span<const Metric* const> metrics();
/// Those of `summarise_logs` for series of gradient norms.
std::span<const Metric> series_metrics();
/// Null for an unknown name.
const Metric* find_metric(std::string_view name);

/// How the note of a number begins that rounding alone can make; the type follows.
inline constexpr std::string_view below_rounding = "below the rounding of ";

/// Names of those that figures, verdicts and commands use.
namespace metric {
inline constexpr std::string_view t_sim = "t_sim", t_div = "t_div", t_cos = "t_cos", fro = "fro",
                                  stable_rank = "stable_rank", effective_rank = "effective_rank";
inline constexpr std::string_view xi_ratio = "xi_ratio", r = "r", r_layer = "r_layer";
inline constexpr std::string_view lambda2_abs = "lambda2_abs", lambda2_check = "lambda2_check",
                                  delta = "delta", spectral_gap = "spectral_gap", gap = "gap",
                                  omega = "omega", mu1 = "mu1", mu2 = "mu2", est1 = "est1",
                                  est2 = "est2", est_mu = "est_mu", dobrushin = "dobrushin";
inline constexpr std::string_view attn_fro = "attn_fro", jac_fro = "jac_fro",
                                  jac_q_fro = "jac_q_fro", jac_k_fro = "jac_k_fro";
inline constexpr std::string_view entropy = "entropy", row_max = "row_max", neg_mass = "neg_mass",
                                  local_auc = "local_auc", local_acc = "local_acc",
                                  local_acc_appendix = "local_acc_appendix";
inline constexpr std::string_view expert_load = "expert_load", expert_unused = "expert_unused",
                                  expert_entropy = "expert_entropy",
                                  routing_entropy = "routing_entropy",
                                  routing_dropped = "routing_dropped";
inline constexpr std::string_view grad_norm = "grad_norm", ds_max = "ds_max", ds_bound = "ds_bound",
                                  ds_sharp = "ds_sharp";
inline constexpr std::string_view grad_rsd = "grad_rsd", grad_mean = "grad_mean",
                                  grad_rsd_ratio = "grad_rsd_ratio",
                                  grad_norm_mean = "grad_norm_mean";
}  // namespace metric

}  // namespace tsdiag
