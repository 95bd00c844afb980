#pragma once
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tsdiag/families.hpp"
#include "tsdiag/input.hpp"
#include "tsdiag/model.hpp"
#include "tsdiag/probe.hpp"
#include "tsdiag/profile.hpp"
#include "tsdiag/run_record.hpp"
#include "tsdiag/table.hpp"
#include "tsdiag/units.hpp"

/// run(): the only function that joins model and probes.
///
///     RunOptions options;
///     options.subject.model = "random:post-norm,d=64,heads=4,layers=6";
///     options.tokens = 32;
///     RunResult result = run(options);
///     write_tables(result, "out");
namespace tsdiag {

/// The model to be diagnosed, and settings that its file lacks.
struct SubjectOptions {
    std::string model;   ///< a path, a name (`local_model`), or `random:NAME[,key=value...]`
    std::string config;  ///< path of a config.json; empty: the one beside the weights
    std::optional<Index> heads;  ///< of the model, where it cannot be inferred
    std::optional<Index> width;  ///< of the model, to accept a pruned file
    Index memory_tokens = 0;     ///< ModelSpec::memory_tokens; 0: as the model says
    /// Tensors and keys of the configuration to be treated as absent (DetectOptions).
    std::vector<std::string> ignore = {};
    std::string map = {};      ///< path of a map of names (apply_map); empty: those of the file
    std::string adapter = {};  ///< path or name of an adapter that changes it (apply_adapter)
    std::string base = {};     ///< path or name of the model, where `model` is an adapter
};

/// The resolved model argument.
struct Subject {
    enum class Kind { checkpoint, random, trace };
    Kind kind = Kind::checkpoint;
    std::string argument;
    std::shared_ptr<const Checkpoint> file;  ///< without wrappers; a trace as it is; random: null
    Architecture architecture;               ///< of a checkpoint
    RandomModel random;
    std::vector<std::string> notes;  ///< what was stripped, omitted or found beside the file

    bool is_trace() const { return kind == Kind::trace; }
    /// Of a checkpoint or a random model; a trace has none (an empty spec).
    const ModelSpec& spec() const;
    /// The argument of a random model with de-escalation in addition; empty where it takes no such
    /// key, or has it.
    std::string deescalated() const;
};
std::string_view name(Subject::Kind kind);  ///< "checkpoint", "random", "trace"

/// Opens and detects; reads no weights.  Throws `FormatError` for an unrecognised file,
/// `UsageError` for an unknown random model or a size that must be given.
Subject open_subject(const SubjectOptions& options);

/// The path of a model that the user named: `name` where that exists, or is drawn; else the folder
/// in the cache of the Hub of a model of that name (`bert-base-uncased`, `google/bert`), at its
/// branch `main`; else `name`.  The cache is where huggingface_hub has it (HF_HUB_CACHE, HF_HOME);
/// nothing is downloaded.
std::string local_model(const std::string& name);

/// open_checkpoint of a path that the user gave: an unsupported format is a `FormatError`.
std::unique_ptr<Checkpoint> open_file(const std::string& path);

/// Does `file` hold arrays `hidden_states.L`, `attentions.L` or `queries.L` with `keys.L`?
bool is_trace(const Checkpoint& file);

/// Is `folder` one of batches: several files, all of them named batch-0.pt, batch-1.pt, ... (or
/// batch_N, batchN, with any ending of a trace)?  Their samples are those of one trace.
bool is_batches(const std::string& folder);

/// Of one layer; none: not known.
struct LayerSizes {
    Index layer = 0;
    std::optional<Index> tokens = {}, width = {}, heads = {};
    std::optional<Index> kv_heads = {};  ///< heads of keys and values
};
/// Those of a model: tokens are known of one that takes images.
std::vector<LayerSizes> layer_sizes(const ModelSpec& spec);

/// Contents of a trace.
struct TraceSummary {
    Index layers = 0, samples = 1, tokens = 0, width = 0, heads = 0;
    bool has_states = false, has_attention = false, float64 = false;
    bool has_maps = false, has_queries = false;
    /// Where tokens merge, `tokens` and `width` are those of the first layer, `heads` are the most
    /// of any, and so many of the first have as many entries of P as any layer.
    Index full_heads = 0;
    Index last_tokens = 0, last_width = 0;  ///< behind the last layer
    std::vector<LayerSizes> sizes = {};     ///< of the layers of which there is an array
    /// Relative rounding of the coarsest array of states, and of those that P is made of.
    double state_rounding = 0, map_rounding = 0;
};
/// Throws `ShapeError` naming the array that does not fit the others.
TraceSummary summarise_trace(const Checkpoint& file);

/// How a trace is to be interpreted.
struct TraceOptions {
    std::string attention;  ///< forms P from queries and keys; of bare attentions: what they are;
                            ///< empty: softmax for queries and keys, nothing for attentions
    bool causal = false;    ///< with queries and keys
    std::optional<double> scale;  ///< of the logits; none: 1/sqrt(columns of a head)
    std::optional<double>
        a2;  ///< alpha^2 sum_k |W_V^k W_O^k|_F^2 / d; none: measured, see `replay`
    /// The layout of the layers; none: found from the arrays, needed where these fit several.
    std::optional<NormPlacement> placement = {};
    bool given() const { return !attention.empty() || causal || scale || a2 || placement; }
};

/// Progress of a run.  `fraction` is that of the phase, in [0, 1].
struct Progress {
    std::string_view phase;  ///< "open", "inputs", "measure", "gradients"
    double fraction = 0;
    Index layer = -1;  ///< the current one; -1: none
    std::optional<double> estimate =
        {};  ///< seconds of the whole phase, reported once before it begins
};

/// The id of the symbol-th of a list of symbols: ids without the model's padding id, which the
/// models that have one do not count as a position.
Index symbol_id(const ModelSpec& spec, Index symbol);

/// Samples supplied by the caller.
struct OwnInput {
    std::string kind;    ///< of run.json: "held out"
    std::string origin;  ///< what they are, in words
    std::string digest;  ///< of what determines them
    Index tokens = 0;    ///< of a sample, by default; 0: the model decides
    Index samples = 1;   ///< number of samples by default
    Index most = 1;      ///< number of samples that exist
    std::function<Input(Index sample, Index tokens, const ModelSpec&, const Backend&, Type)> make;
};

struct RunOptions : ProbeChoices {
    SubjectOptions subject;
    TraceOptions trace;
    /// "" (by the model), "gaussian", "ids:random", "ids:FILE", "embeddings:FILE", "hidden:FILE",
    /// "image:FILE"
    std::string input;
    std::string text;        ///< to be tokenized, in place of `input`; empty: none
    std::string text_file;   ///< the same, in a file
    std::string text_lines;  ///< texts in a file, a sample a line; none is padded
    std::string tokenizer;   ///< a tokenizer.json, or its folder; empty: the one of the model
    /// The option that gives a text; empty: none does.
    std::string_view text_option() const {
        if (!text.empty()) return "--text";
        if (!text_file.empty()) return "--text-file";
        return text_lines.empty() ? "" : "--text-lines";
    }
    bool has_text() const { return !text_option().empty(); }
    std::string images;        ///< a picture, or a folder of them, in place of `input`; empty: none
    std::string preprocessor;  ///< a preprocessor_config.json, or its folder; empty: of the model
    bool has_input() const { return !input.empty() || has_text() || !images.empty(); }
    std::optional<OwnInput> own_input = {};  ///< taken where there is none of these
    Index tokens = 0;                        ///< 0: the model's longest, at most 512
    Index samples = 0;  ///< inputs for the same weights; 0: all that a file holds, else 1
    Index batch = 0;    ///< samples that may form a batch; 0: as many as pay and fit
    Index trials = 1;   ///< draws of a random model, each with its own inputs
    /// Trials draw only the tensors whose names end so ("attn.v.weight"); inputs and all other
    /// weights are those of the first trial.  Empty: everything is drawn.
    std::string redraw;
    /// Adds values to the metrics of one trial, from its own table.  Called concurrently.
    std::function<void(const Table& trial, Sink& out)> derive = {};
    std::uint64_t seed = 0;
    /// What attentions draw; else by the seed, as in the first update of a training.
    std::optional<Draws> draws = {};
    /// lm, mlm[:ID], classify[:C], square or vjp, see docs/metrics.md; empty: no gradients
    std::string loss;
    std::string
        labels;        ///< of `classify`, a text or .npy file with one label a sample; empty: drawn
    std::string mask;  ///< a .npy file, 1 = keep; empty: none
    Index first_layer = 0, last_layer = -1;     ///< measured, inclusive; -1: to the end
    std::vector<std::string> probes = {"all"};  ///< see resolve_metrics
    std::vector<const ProbeEntry*>
        own_probes;  ///< beside those of the list, with all their metrics; made for each trial
    std::optional<Type> dtype;  ///< none: float32; of a trace: float64 where an array of it is
    std::string device = "auto";
    Products products = Products::exact;  ///< of a device
    Index memory = 0;                     ///< bytes available to the run; 0: half of the machine's
    bool allow_nonfinite = false;
    /// Of this run, computed by several processes or kept from an earlier one: its trials, or where
    /// there is one, blocks of its samples.  Null: none.
    Units* units = nullptr;
    /// Receives what the time was spent on; not with `units`, nor with trials side by side, whose
    /// threads share the processor seconds.  Null: nothing is recorded.
    Profile* profile = nullptr;
    /// Called often and from one thread; an exception ends the run.
    std::function<void(const Progress&)> progress = {};
};

struct RunResult {
    Table table;
    Json run;  ///< the content of run.json, except `tsdiag` and `command`
};

/// Throws `UsageError` for options that are wrong whatever the model is: malformed, or two that
/// exclude each other.  `run` begins with it; it reads nothing.
void require_well_formed(const RunOptions& options);

/// Runs the model (or replays the trace), hands its events to the probes, aggregates their numbers.
/// A function of the options, bit for bit, on one machine with one number of threads.
/// At least as many trials as threads are run in parallel, each on one thread.
RunResult run(const RunOptions& options);

/// Measures as `run` does, with a model and samples of the caller.  `losses`: one a sample, for
/// metrics of gradients; empty: there are none.  Of the options it reads probes, heads, layers,
/// maps, memory and allow_nonfinite.
void measure(const Model& model, std::span<const Input> inputs, std::span<const Loss> losses,
             const RunOptions& options, const Backend& backend, Type type, Sink& out);

/// Several runs of models as one job: the trials of all run in parallel, each on one thread, so
/// that results do not depend on the number of threads.  `progress` covers the whole job; that of
/// the options is not called.
/// The trials of all are units of one stage of `units`.
std::vector<RunResult> run_together(std::span<const RunOptions> runs,
                                    const std::function<void(const Progress&)>& progress = {},
                                    Units* units = nullptr);

/// Calls work(i) for i = 0 .. count - 1 in parallel, each on one thread; the functions it returns
/// are called serially in the order of i.  `order`: in which to begin; empty: 0, 1, ...  An
/// exception ends the work and is rethrown.
void in_order(Index count, const std::function<std::function<void()>(Index)>& work,
              std::span<const Index> order = {});

/// trial(i, sink) for i = 0 .. count - 1 by `in_order`; its results go to `out` in that order, so
/// that they do not depend on the number of threads.  `done`: called from the calling thread with
/// the finished fraction.  Each trial is a unit of one stage of `units`.
void each_trial(Index count, Sink& out, const std::function<void(Index, Sink&)>& trial,
                const std::function<void(double)>& done = {}, Units* units = nullptr);

/// The stream that the weights of a random model are drawn from in trial `trial` (the first is 0),
/// and what its attentions draw.
Rng weights_rng(std::uint64_t seed, Index trial);

/// metrics.csv, curves.csv, samples.csv where samples were kept and, if maps were requested,
/// maps.npz in an existing `directory`.
void write_tables(const RunResult& result, const std::filesystem::path& directory);

/// Whether a number of a table depends on an option of `probe`, "cross-check"; none: it is no
/// setting of a run.
std::optional<bool> decides_numbers(std::string_view option);

/// Definition of a metric, for `schema` of run.json and `tsdiag list metrics --json`.
Json metric_schema(const Metric& metric);

/// Parts of the work with their seconds and peak memory: `phases` of run.json.
class Phases {
  public:
    Phases() = default;
    /// Goes on after those.
    explicit Phases(std::vector<RunRecord::Phase> before) : done_(std::move(before)) {}
    void begin(std::string name);  ///< ends the one before
    void end();
    const std::vector<RunRecord::Phase>& ended() const { return done_; }

  private:
    std::vector<RunRecord::Phase> done_;
    std::string name_;
    std::chrono::steady_clock::time_point start_;
};

}  // namespace tsdiag
