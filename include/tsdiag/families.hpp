#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tsdiag/checkpoint.hpp"
#include "tsdiag/random.hpp"
#include "tsdiag/spec.hpp"
#include "tsdiag/weights.hpp"

/// Families of models: which one a checkpoint is of, with its spec and its weights; models of a
/// family that are drawn at random; and how a model is written.
namespace tsdiag {

/// Location of a canonical tensor in a file: rows of the (out, in) matrix, in groups.
struct TensorSource {
    std::string file_name;
    bool transposed = false;  ///< stored (in, out): GPT-2's Conv1D
    /// Output rows taken: group g = 0.. of `groups` gives rows g*stride + first .. + length.
    /// length 0: all rows.
    Index groups = 1, stride = 0, first = 0, length = 0;
    /// Rows of each head of so many rows are stored in pairs: rows i and i + head / 2 at 2 i and
    /// 2 i + 1 (LLaMA in GGUF).  0: in order.
    Index paired_head = 0;
    Index slice = -1;  ///< of a tensor that stacks several along its first axis (experts in GGUF)
    Index total = 0;   ///< rows that the file's tensor has; 0: those of the canonical tensor
    double plus = 0;   ///< added to the file's values: norms that multiply by 1 + w
    /// Further tensors stacked below (prefix tokens: cls, distillation).
    std::vector<std::string> concat;
    /// The shape in the file where that is no matrix: conv kernels, leading ones.
    std::vector<Index> shape;
};
/// Canonical names and their locations.
using Names = std::vector<std::pair<std::string, TensorSource>>;

/// Result of detection: the spec and the table of names.
struct Architecture {
    ModelSpec spec;
    Names tensors;
};

struct DetectOptions {
    Json config;                              ///< config.json, or null
    std::string config_name = "config.json";  ///< for messages
    bool config_of_script = false;  ///< all arguments of a training, most not about the model
    /// Other sources of `config`, with their names, which must not contradict it.
    std::vector<std::pair<std::string, Json>> also_said = {};
    bool config_given = false;   ///< by --config: precedes what the file says of itself
    std::optional<Index> heads;  ///< --n-heads
    std::optional<Index> width;  ///< --width: accept pruned files
    Index memory_tokens = 0;     ///< --memory-tokens: ModelSpec::memory_tokens
    /// --ignore: names of tensors and of keys of the configuration, '*' for any characters.
    /// Matches are treated as absent.
    std::vector<std::string> ignore = {};
    /// Tensors that an adapter trained for themselves: a head among them is not tied, whatever the
    /// configuration says of the model.
    std::vector<std::string> trained = {};
};

/// Whether a key of a configuration changes no hidden state, whatever it says.
bool changes_no_state(std::string_view key, const Json& value);

/// How a tensor of a random model is drawn.
struct Draw {
    enum class Law { zero, one, normal, truncated, uniform, unit, constant } law = Law::zero;
    double spread = 0;    ///< standard deviation, or the bound of the uniform law, or the
                          ///< constant; unit: a normal vector over its length; truncated: of the
                          ///< normal law that is drawn again outside of two deviations
    Index zero_row = -1;  ///< the padding row of an embedding
};
struct DrawnTensor {
    std::string name;
    Shape shape;
    Draw draw;
};
/// `random:NAME[,key=value...]` without the `random:`.
struct RandomModel {
    ModelSpec spec;
    std::vector<DrawnTensor> tensors;
};
using Keys = std::vector<std::pair<std::string, std::string>>;

/// One family: recognises itself by config or by names and shapes.
struct ArchitectureEntry {
    std::string_view name;   ///< of `ModelSpec::family`: "gpt2"
    std::string_view title;  ///< for display: "GPT-2"
    std::string_view description;
    /// Whether this family owns the file.  By `model_type` where there is a config, else by names.
    bool (*matches)(const Checkpoint& file, const Json& config);
    Architecture (*read)(const Checkpoint& file, const DetectOptions& options);
    /// A model of the family with random weights, for `random:NAME,key=value`.  Null: it cannot be
    /// drawn.
    RandomModel (*draw)(std::string_view name, const Keys& keys) = nullptr;
    std::vector<std::string_view> (*random_names)() = nullptr;  ///< names for `random:`; null: none
    /// The family's names for the parameters of `spec`, and its config.json.  Null: cannot be
    /// written.
    Names (*names)(const ModelSpec& spec) = nullptr;
    Json (*config)(const ModelSpec& spec) = nullptr;
    /// Of a second layout, where the family has two.
    std::string_view other_name = {}, other_title = {};
};
std::span<const ArchitectureEntry* const> architectures();

/// The architecture of `file`.  A family must find its tensors and account for all others: a model
/// tensor or a configuration key that no rule reads and that is not listed as
/// harmless (docs/checkpoints.md) is refused.  Throws `FormatError` saying so, or which layout was
/// found where none is known; `UsageError` where a size must be given.
Architecture detect(const Checkpoint& file, const DetectOptions& options);
std::unique_ptr<Weights> checkpoint_weights(std::shared_ptr<const Checkpoint> file,
                                            const Architecture& architecture,
                                            const Backend& backend, Type type,
                                            bool allow_nonfinite);

/// Throws `UsageError` naming the unknown name or key and the nearest known one.
RandomModel random_model(std::string_view text);
/// Each tensor is drawn from `rng.fork(name)` when it is asked for.
std::unique_ptr<Weights> random_weights(const RandomModel& model, Rng rng, const Backend& backend,
                                        Type type);
/// Writes config.json and model.safetensors (float32; numbered shards of at most `shard_bytes`, one
/// of which is in memory at a time) with the names of the spec's family into `directory`, which
/// exists, so that `detect` reads them back.  Throws `NotAvailable` for a family that cannot be
/// written.
void write_model(const ModelSpec& spec, const Weights& weights,
                 const std::filesystem::path& directory, Index shard_bytes = Index{2} << 30);

}  // namespace tsdiag
