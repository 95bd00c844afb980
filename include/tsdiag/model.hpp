#pragma once
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/checkpoint.hpp"
#include "tsdiag/events.hpp"
#include "tsdiag/random.hpp"
#include "tsdiag/spec.hpp"

/// A spec and its weights; runs forward and emits events.
namespace tsdiag {

/// Parameters by canonical name, materialised on demand:
///   embed.token [V, e]  embed.position [N, d]  embed.type [T, d]  embed.norm.{weight,bias}
///   embed.cluster.I [rows of the cluster, e_I]  embed.cluster.I.map [d, e_I]
///   embed.map.{weight,bias} embed.patch.{weight [d, p], bias}
///   embed.patch.norm1/norm2.{weight,bias}  embed.prefix [t, d]  embed.pre_norm.*
///   layer.L.attn.{q,k,v,o}.{weight [out, in], bias}   layer.L.attn.{q_norm,k_norm}.{weight,bias}
///   layer.L.{norm1,norm2}.{weight,bias}   layer.L.ffn.{up,gate,down}.{weight,bias}
///   layer.L.{scale1,scale2} final_norm.{weight,bias}   layer.L.{branch1,branch2}.{weight,bias}
///   layer.L.ffn.router.{weight [E, d], bias}  layer.L.ffn.expert.I.{up,gate,down}.{weight,bias}
///   layer.L.ffn.shared.{up,gate,down}.weight  layer.L.ffn.shared_gate.weight [1, d]
///   embed.position_scale   layer.L.attn.lrpe.{theta,v}   layer.L.norm1.g of NormKind::scale
///   layer.L.attn.{z,gate}.{weight,bias}   layer.L.attn.offset.{gamma,beta} of a gated unit
///   layer.L.attn.NAME of the attention's own (AttentionSpec::own)
///   layer.L.attn.{q_low,kv_low,q_low_norm,kv_low_norm}.weight  layer.L.ffn.router.correction [E]
///   embed.patch.K.weight [out, 9 in]  embed.patch.K.norm.*  embed.position_map.{weight,bias}
///   layer.L.attn.temperature  layer.L.norm3.*  layer.L.local.{conv1,conv2}.{weight [d, 9], bias}
///   layer.L.local.{norm.*,scale}  a batch norm: {weight,bias,mean,variance}
///   layer.L.attn.relative [(2 side - 1)^2, heads] of windows
///   layer.L.merge.norm.{weight,bias}  layer.L.merge.map.weight [d of the next layer, 4 d]
///   class.token [1, d]  class.L.attn.{q,k,v,o}.*  class.L.{norm1,norm2,ffn.up,ffn.down}.*
///   class.L.{scale1,scale2}
///   head.cluster.{weight [C, e], bias} head.bias.I head.map [d, e]   of an adaptive softmax
///   head.{weight [V, e], bias} head.transform.{weight [e, d], bias} head.norm.{weight,bias}
/// norm1 belongs to the attention step and norm2 to the feed-forward step, for any placement.
class Weights {
  public:
    virtual ~Weights() = default;
    virtual bool has(std::string_view name) const = 0;
    /// (1, out, in); vectors are (1, 1, length).  Throws `FormatError` for a missing tensor or a
    /// wrong shape, `NonFiniteError` naming the tensor and the first bad index.
    virtual Tensor get(std::string_view name) const = 0;
    /// The rows of `get(name)` with these indices, (1, rows.size(), in), without touching the
    /// others.
    virtual Tensor rows(std::string_view name, std::span<const Index> rows) const;
    /// Hint: the tensors read since the last call are not needed for now.
    virtual void release() const {}
    virtual std::vector<std::string> names() const = 0;
};

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
    bool config_given = false;      ///< by --config: precedes what the file says of itself
    std::optional<Index> heads;     ///< --n-heads
    std::optional<Index> width;     ///< --width: accept pruned files
    Index memory_tokens = 0;        ///< --memory-tokens: ModelSpec::memory_tokens
    /// --ignore: names of tensors and of keys of the configuration, '*' for any characters.
    /// Matches are treated as absent.
    std::vector<std::string> ignore = {};
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
/// The parameters that are applied to the same input as `name`, itself among them: q, k and v of an
/// attention.
std::vector<std::string> applied_together(const Weights& weights, std::string_view name);
/// Caches each tensor of `all` in memory, `applied_together` ones one behind another on a device.
/// Thread-safe.
std::unique_ptr<Weights> resident_weights(std::shared_ptr<const Weights> all);
/// The tensors whose names end with `ending` come from `redrawn`, all others from `kept`.
std::unique_ptr<Weights> spliced_weights(std::shared_ptr<const Weights> kept,
                                         std::shared_ptr<const Weights> redrawn,
                                         std::string ending);

/// Writes config.json and model.safetensors (float32; numbered shards of at most `shard_bytes`, one
/// of which is in memory at a time) with the names of the spec's family into `directory`, which
/// exists, so that `detect` reads them back.  Throws `NotAvailable` for a family that cannot be
/// written.
void write_model(const ModelSpec& spec, const Weights& weights,
                 const std::filesystem::path& directory, Index shard_bytes = Index{2} << 30);

/// One sample.  Exactly one of ids, embeddings, hidden, image is given.  Where the model has a
/// memory, its tokens come first (of `hidden`: their states at layer 0).
struct Input {
    std::vector<Index> ids;
    Tensor embeddings;       ///< (1, n, e): where token embeddings would enter
    Tensor hidden;           ///< (1, n, d): layer 0's `in`
    Tensor image;            ///< (channels, height, width)
    std::vector<bool> keep;  ///< the mask, true = keep; empty: all
};

/// Tokens that `input` makes, those of the memory among them, at least 1.
Index tokens_of(const ModelSpec& spec, const Input& input);
/// The largest number of tokens, at most `most`, that the model supports and its attentions accept;
/// `most` or the model's longest where no number fits them.
Index fitting_tokens(const ModelSpec& spec, Index most);
/// What the attentions remark on samples of so many tokens (`AttentionEntry::remark`), each
/// sentence once, with the first layer that it is said of.
std::vector<std::string> remarks_on_attention(const ModelSpec& spec, Index tokens);

struct RunSettings {
    Index memory = 0;  ///< bytes for row blocks, and P where it is kept, of one sample; 0: no limit
    Index batch = 1;   ///< samples that may go through a layer together
    Index first_layer = 0, last_layer = -1;  ///< events only for these (inclusive; -1: to the end)
    bool allow_nonfinite = false;
    const Team* team = nullptr;  ///< shares the rows and heads of P; each member has the result
    Rng rng{0};                  ///< source of what attentions draw, the same for all samples
    Index update = 0;            ///< of the training, by which some of them draw again
    std::function<void(Index done, Index total)> progress = {};  ///< layers
};

/// A loss L of a sample's last state Y (n, d), after the final norm where there is one; behind
/// class attention Y is the class token, (1, d).
struct Loss {
    enum class Kind {
        tokens,   ///< mean over k of the cross-entropy of id targets[k] at row rows[k] of Y
        classes,  ///< cross-entropy of `label`, the logits are classifier times the mean row of Y
        pairs,   ///< the same of two samples in turn, which share a label, with [a, b, a b, a - b],
                 ///< a and b their mean rows, a b by elements; only `Model::step` takes it
        square,  ///< |Y|_F^2 / 2
        product  ///< <cotangent, Y>
    };
    Kind kind = Kind::square;
    /// Rows count all tokens of the sample; those of a memory have no part in the loss.
    std::vector<Index> rows = {}, targets = {};
    Tensor classifier = {};  ///< (1, C, d); pairs: (1, C, 4 d)
    Index label = 0;
    Tensor cotangent = {};  ///< (1, n, d); (1, 1, d) where a class token is what a loss sees
};

/// The loss of some samples, and its derivatives for training.
struct StepSettings {
    bool gradients = true;
    bool hits = false;   ///< count predictions whose target has the greatest logit
    double dropout = 0;  ///< probability p, in [0, 1): entries of the embedding and of each branch
                         ///< are zeroed, the others divided by 1 - p
    std::vector<Rng> rngs = {};  ///< of the dropout, one a sample
    Rng attention_rng{0};        ///< source of what attentions draw, the same for all samples
    Index update = 0;  ///< updates of the training so far: some attentions draw again as it grows
};
struct StepResult {
    double loss = 0;  ///< summed over the samples, or pairs of them
    Index predictions = 0, correct = 0;
    std::vector<bool> hit = {};  ///< of each prediction that was counted: whether it is correct
    /// By parameter name, each of its shape; "classifier": that of the loss.  Parameters that the
    /// loss does not depend on are omitted, and those that are read on the host (the angles of
    /// LRPE).
    std::vector<std::pair<std::string, Tensor>> gradients = {};
};

/// The one forward pass, and the reverse sweep through it.
class Model {
  public:
    Model(ModelSpec spec, std::shared_ptr<const Weights> weights, const Backend& backend,
          Type type);
    const ModelSpec& spec() const { return spec_; }

    /// Runs all samples, layer by layer: one layer's weights are resident at a time.  Adjacent
    /// samples of equal length and mask are batched; on the CPU results do not depend on the
    /// batch, bit for bit.  A masked sample is run on its kept tokens alone, at their own
    /// positions: the same numbers as with masked keys.  Throws `UsageError` for inputs that do not
    /// fit, `NonFiniteError` naming layer and stage where a NaN arose.
    void run(std::span<const Input> inputs, Observer& observer,
             const RunSettings& settings = {}) const;

    /// Emits the derivatives of each sample's loss with respect to every state and parameter, last
    /// layer first.  Of the forward pass only layer inputs are kept, layers n d numbers a sample,
    /// as many samples at once as half of `settings.memory` holds; the rest of a layer is
    /// recomputed, with P whole.  A shared parameter is emitted at its owner, summed over its uses.
    /// Cost: about four forward passes.  Throws `UsageError` for a loss that the model does not
    /// support.
    void differentiate(std::span<const Input> inputs, std::span<const Loss> losses,
                       Observer& observer, const RunSettings& settings = {}) const;

    /// The derivatives of the sum of the losses with respect to the parameters, with all
    /// activations kept: about three forward passes.  Adjacent samples of equal length and mask are
    /// batched from the embedding to the loss.  Throws `NonFiniteError` naming layer and stage
    /// where a NaN arose.
    StepResult step(std::span<const Input> inputs, std::span<const Loss> losses,
                    const StepSettings& settings = {}) const;
    StepResult step(const Input& input, const Loss& loss, const StepSettings& settings = {}) const {
        return step(std::span(&input, 1), std::span(&loss, 1), settings);
    }

    /// alpha^2 sum_k |W_V^k W_O^k|_F^2 / d of one layer.
    double branch_gain(Index layer) const;

  private:
    /// Emits the states of class attention and of the final norm.
    void after_layers(const Tensor& x, Observer& observer, Index first, bool allow_nonfinite) const;

    ModelSpec spec_;
    std::shared_ptr<const Weights> weights_;
    const Backend* backend_;
    Type type_;
};

/// Numbers that a layer of `width` columns holds inside its steps, besides states, queries, keys
/// and values.
struct HeldNumbers {
    double of_token = 0, of_pair = 0;  ///< for each token, for each pair of tokens
};
HeldNumbers held_numbers(const BlockSpec& block, Index width);
/// FLOPs of the forward pass on `n` tokens: the matrix products.
double forward_flops(const ModelSpec& spec, Index n);

}  // namespace tsdiag
