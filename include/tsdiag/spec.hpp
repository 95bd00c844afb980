#pragma once
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/backend.hpp"
#include "tsdiag/json.hpp"
#include "tsdiag/named_option.hpp"

/// A model as data.  The forward pass reads these fields and never a name.
namespace tsdiag {

enum class NormPlacement {
    post,
    pre,
    parallel,
    branch  ///< X + LN(SA(X)), then Y + LN(FFN(Y)) [OLMO2]
};
enum class NormKind {
    layer,
    rms,
    none,
    simple_rms,  ///< x / (|x| / sqrt(d) + 1e-8), without weights
    scale,       ///< g x / max(|x| / sqrt(d), eps), g one number
    plain_layer  ///< (x - mean) / sqrt(variance + eps), without weights
};
/// A norm without weights on P V, heads concatenated, before the output projection.  [DEVIL] (14)
enum class OutputNorm {
    none,
    rms,         ///< y / sqrt(mean(y^2) + eps)
    simple_rms,  ///< y / (|y| / sqrt(d) + 1e-8)
    layer        ///< (y - mean) / sqrt(variance + eps)
};
enum class Positions {
    none,        ///< none, or rotary inside the attention
    learned,     ///< a table `embed.position`, first row at `position_offset`
    sinusoidal,  ///< computed: sin and cos in alternate columns, added after `embed.map`
    sincos_2d,   ///< vit-pytorch SimpleViT
    sin_cos,     ///< computed: sin in the first half of the columns, cos in the second, at
                 ///< 10000^(-2i/d), times `embed.position_scale` (FLASH-pytorch)
    fourier,     ///< computed: 32 sines and cosines each of a patch's row and column, mapped to the
                 ///< width by `embed.position_map` [XCIT]
    fairseq      ///< computed: the halves of sin_cos, at 10000^(-i/(d/2 - 1)), the first token at
                 ///< `position_offset`; a padding token has none
};

/// Rotary position embedding.
struct Rotary {
    Index columns = 0;  ///< how many columns of a head rotate; 0: no rotary embedding
    double theta = 10000;
    bool interleaved = false;
    std::string
        scaling;  ///< "", "linear", "dynamic", "llama3", "yarn" [YARN], "longrope" [LONGROPE]
    double factor = 1, low_freq_factor = 1, high_freq_factor = 4;
    Index original_length = 0;  ///< tokens of the training before the scaling
    /// yarn: pairs that turn more than `beta_fast` times over the original length keep their
    /// frequency, those that turn less than `beta_slow` times are divided by `factor`.
    double beta_fast = 32, beta_slow = 1;
    bool truncate = true;  ///< the pairs between which they blend are whole numbers
    /// longrope: what each pair's frequency is divided by, up to the original length and beyond it.
    std::vector<double> short_factors = {}, long_factors = {};
    double magnitude = 1;    ///< the rotated columns of q and k are multiplied by it
    bool learned = false;    ///< the frequencies are the parameter `attn.lrpe.theta`
    bool reflected = false;  ///< x - 2 v (v . x) first, v the parameter `attn.lrpe.v`
    /// Inverse frequencies for a sequence of `n` tokens: columns / 2 values.
    std::vector<double> frequencies(Index n) const;
};

/// A parameter: its canonical name (weights.hpp) and shape, (1, out, in); vectors are (1, 1,
/// length).
struct Parameter {
    std::string name;
    Shape shape;
    bool vector = false;               ///< files store it with one dimension
    std::optional<double> start = {};  ///< a drawn model has it so; empty: as its family draws
};

/// The norms of a layer.
struct NormSpec {
    NormKind kind = NormKind::layer;
    double eps = 1e-5;
    bool bias = true;
};

/// Windows of side x side neighbouring patches, each of which attends to itself alone, after the
/// grid was turned up and left by `shift` rows and columns; of those that were no neighbours before
/// none sees another.  No shift where the grid is not larger than a window.  [SWIN] 3.2
struct WindowSpec {
    Index side = 0;  ///< 0: no windows
    Index shift = 0;
};

/// A second attention beside the first, of a layer's other heads.  [DEVIL] Table 12
struct SecondAttention {
    std::string variant;
    std::map<std::string, std::string> options;
    OutputNorm output_norm = OutputNorm::none;  ///< of its own heads, concatenated
    std::optional<Unary> qk_activation = {};
};

/// Keys and values of all heads from one vector of few columns, [DEEPSEEK-V2] 2.1:
///
///     [c', r] = A x,  c = RMS(c') w;   k = [r, K c],  v = V c,   q = Q x or Q RMS(A_q x) w_q
///
/// Each head has its K and V; r is that of all heads, and rotates.  Of q the columns that meet r
/// are the last ones of the parameter.  A, w, A_q and w_q are `attn.kv_low`, `attn.kv_low_norm`,
/// `attn.q_low` and `attn.q_low_norm`.
struct LatentSpec {
    Index rank = 0;        ///< columns of c; 0: keys and values are of x
    Index query_rank = 0;  ///< rows of A_q; 0: queries are of x
    double eps = 1e-6;     ///< of both norms
};

/// Queries that grow with their position: that of token i, at position p, is multiplied by
///
///     1 + scale ln(1 + floor((p + 1) / length))                                        [LLAMA4]
struct QueryGrowth {
    double scale = 0;     ///< 0: they do not
    Index length = 8192;  ///< tokens from one step to the next
    double at(double position) const;
};

/// The attention of a layer: heads, transformations of q, k and v, and the variant that makes P.
struct AttentionSpec {
    std::string variant = "softmax";
    std::map<std::string, std::string> options;  ///< of it, as given; see docs/attention.md
    std::vector<Parameter> own = {};  ///< those of the variant: NAME of layer.L.attn.NAME
    /// >= 0: of those that it lacks, it uses those of that layer, which are a table for all layers.
    Index own_of = -1;
    Index heads = 1, kv_heads = 1, head_dim = 0;
    Index value_dim = 0;  ///< columns of a head's values; 0: head_dim
    double scale = 1;     ///< of the logits
    bool causal = false;
    Index window = 0;  ///< > 0: sliding window
    /// P and everything about it has the tokens in the order of their windows, and in a window row
    /// by row (AttentionOver::order); logits have the bias `attn.relative`.
    WindowSpec windows;
    Rotary rotary;
    /// phi of q and k, before they rotate; empty: none, or inside the variant.
    std::optional<Unary> qk_activation;
    bool qk_norm = false;
    bool qk_norm_layer = false;  ///< q/k norm is a LayerNorm (timm), not RMS
    bool qk_norm_whole = false;  ///< q/k norm is of all heads, concatenated, not of each
    bool qk_norm_weight = true;  ///< false: the q/k norm has no weights (one of each head, RMS)
    double qk_eps = 1e-6;
    QueryGrowth growth;  ///< behind norm and rotation
    /// The gated attention unit of [FLASH]: z = silu(Z x); each q and k is z gamma + beta, rows of
    /// `attn.offset`; v = silu(V x); concatenated heads times silu(G x).
    bool gated_unit = false;
    bool token_shift = false;  ///< the first half of the columns is the previous token's
    OutputNorm output_norm = OutputNorm::none;
    /// Two attentions side by side, concatenated before the output projection: the first half of
    /// the heads has `variant`, `options`, `output_norm` and `qk_activation`, the other half these.
    std::optional<SecondAttention> second;
    /// No output projection: the branch is the concatenated heads [TSE Alg. 1].
    bool value_projection_only = false;
    /// Cross-covariance attention [XCIT] (2): P is head_dim x head_dim and mixes the columns of V,
    /// O^T = P V^T with S = t_k (Q^T K), each column of Q and K divided by its length over the
    /// tokens, t the parameter `attn.temperature` of each head, 1/tau of the paper.
    bool channels = false;
    bool qkv_bias = true, out_bias = true;
    bool k_bias = true;  ///< with qkv_bias: the keys have one too
    LatentSpec latent;   ///< the columns that rotate are those of r

    Index value_columns() const { return value_dim > 0 ? value_dim : head_dim; }
};

/// A mixture of experts: y = sum over the chosen e of p_e FFN_e(x), p = softmax(W x + b), W and b
/// the parameter `ffn.router`; chosen are the largest.  [SWITCH], [MIXTRAL]
struct ExpertsSpec {
    Index count = 0;            ///< 0: the step is one FFN
    Index chosen = 0;           ///< of a token
    bool renormalised = false;  ///< the p_e of the chosen are divided by their sum
    bool router_bias = false;   ///< b
    bool sigmoid = false;       ///< p = sigmoid(W x + b), of each expert by itself
    bool of_input = false;      ///< the chosen p_e multiply the input: FFN_e(p_e x) [LLAMA4]
    bool corrected = false;     ///< chosen by p + c, c the parameter `ffn.router.correction`
    /// The experts are chosen from `chosen_groups` of so many groups of neighbours: those of the
    /// largest p, [DEEPSEEK-V2] 2.2.2, or, corrected, of the largest sum of two p + c.
    Index groups = 1, chosen_groups = 1;
    double scale = 1;          ///< of the shares
    Index shared = 0;          ///< inner width of one more that all tokens have; 0: none
    bool shared_gate = false;  ///< its output is multiplied by sigmoid(w x)
};

/// The feed-forward step of a layer.
struct FeedForwardSpec {
    Index width = 0;  ///< the inner one; 0: the layer has no such step
    Unary activation = Unary::gelu;
    bool gated = false;  ///< down(act(gate x) * up x)
    bool bias = true;
    /// > 0, where it is gated: down(act(min(gate x, limit)) * (1 + u)), u = up x clipped to
    /// [-limit, limit].  [GPT-OSS]
    double limit = 0;
    ExpertsSpec experts;  ///< each of the width above
};

/// Local patch interaction [XCIT] 3.3: two depthwise convolutions of the patches on their grid, an
/// activation and a batch norm in inference between them.  A step of its own behind the attention.
struct LocalSpec {
    Index kernel = 0;  ///< rows and columns of a kernel; 0: the layer has no such step
    Unary activation = Unary::gelu;
    double eps = 1e-5;  ///< of the batch norm
};

/// Patch merging [SWIN] 3.1 behind a layer: four neighbours of the grid beside each other, 4 d
/// columns, upper left, lower left, upper right, lower right; their norm; a linear map.
struct MergeSpec {
    Index width = 0;  ///< columns of the next layer; 0: the layer has no such step
    double eps = 1e-5;

    /// Behind the layer, of its n tokens and of its columns.
    template <class N>
    N tokens_behind(N n) const {
        return width > 0 ? n / 4 : n;
    }
    Index width_behind(Index d) const { return width > 0 ? width : d; }
};

/// Class attention [XCIT] 3.4, behind the layers: a class token is put before the patches, and its
/// query alone attends.  X + gamma1 (SA of the class token, LN(X) of the others), then a norm of
/// all or of the class token, then X + (gamma2 FFN of the class token, X of the others).  The last
/// state that a loss sees is the class token.
struct ClassSpec {
    Index layers = 0, heads = 1, ffn = 0;
    Unary activation = Unary::gelu;
    double eps = 1e-6;
    bool all_normed = true;  ///< the second norm is of all tokens
    bool qkv_bias = true, layer_scale = true;
};

/// X - tau 1 mean(X)^T, the mean over tokens.  [TSE (21)]
struct Deescalation {
    double tau = 0;           ///< 0: the layer has no such step
    bool before_ffn = false;  ///< of the input of the feed-forward step [TSE 3.4]; else of the
                              ///< layer's output [TSE 3.3]
    bool learned = false;     ///< tau is the parameter `deesc.tau` [TSE 3.5], whatever `tau` says
    bool past = false;  ///< of row i the mean over the tokens up to i: no token sees later ones

    bool there() const { return learned || tau != 0; }
};

/// A step of `further_steps()` in a layer.
struct StepSpec {
    std::string name;
    OptionTexts options = {};  ///< as given
    /// It changes the input of the feed-forward step; else the layer's output.
    bool before_ffn = false;
};

/// One layer.
struct BlockSpec {
    NormPlacement placement = NormPlacement::post;
    NormSpec norm;
    AttentionSpec attention;
    LocalSpec local;
    FeedForwardSpec ffn;
    double alpha = 1;      ///< X + alpha SA(X)
    double ffn_alpha = 1;  ///< Y + ffn_alpha FFN(Y)
    /// Each branch has a norm of its own before it is added, `branch1`, `branch2`, beside those of
    /// the placement [GEMMA2].
    bool branch_norms = false;
    bool one_norm = false;       ///< parallel: `norm1` is the norm of both steps
    bool attention_norm = true;  ///< pre: `norm1` is there [MODERNBERT]
    Deescalation deesc;
    std::vector<StepSpec> steps;  ///< in this order, behind `deesc`
    bool layer_scale = false;     ///< each branch is multiplied by a vector: `scale1`, `scale2`,
                                  ///< `local.scale`
    Index shares = -1;            ///< >= 0: uses the parameters of that layer (ALBERT)
    MergeSpec merge;
};

/// A vocabulary in clusters, the frequent words first; the vectors of cluster i have
/// width / divisor^i columns, which a matrix of its own maps to those of the model.  [ADAPTIVE]
struct Clusters {
    std::vector<Index> ends;  ///< cluster i holds the ids from the end of the one before to ends[i]
    Index width = 0, divisor = 1;

    bool there() const { return !ends.empty(); }
    Index first(std::size_t i) const { return i == 0 ? 0 : ends[i - 1]; }
    Index size(std::size_t i) const { return ends[i] - first(i); }
    Index columns(std::size_t i) const { return i == 0 ? width : columns(i - 1) / divisor; }
};

/// Images as tokens: patches, row by row.
struct ImageSpec {
    Index channels = 0;  ///< 0: the model takes no images
    Index height = 0, width = 0, patch_height = 0, patch_width = 0;
    bool channels_last = false;  ///< (p1 p2 c) order of a flattened patch: vit-pytorch
    bool norms = false;          ///< LayerNorm before and after the patch projection
    bool bias = true;
    /// > 0: patches are made by so many 3 x 3 convolutions of stride 2, each with a batch norm in
    /// inference, GELU between them, from the width / 2^(k-1) up to the width [XCIT].
    Index convolutions = 0;
    double norm_eps = 1e-5;  ///< of those batch norms, and of `embed.norm` of patches

    Index patches() const;  ///< of an image
};

/// What makes the first state of tokens, features or images.
struct EmbeddingSpec {
    Index width = 0;       ///< where it differs from that of the layers (ALBERT); else equal
    bool map = false;      ///< to the width of the layers (ALBERT; features that enter by a Linear)
    Index vocabulary = 0;  ///< 0: no token embedding
    Clusters clusters;     ///< of the vocabulary: `embed.cluster.I` and `.map`, not `embed.token`
    Index max_tokens = 0;  ///< the longest input it was made for; 0: any
    Positions positions = Positions::none;
    Index position_offset = 0;
    Index padding_id = -1;     ///< >= 0: positions count non-padding tokens (RoBERTa)
    bool token_types = false;  ///< type 0 is added everywhere
    Index type_rows = 2;       ///< rows of the table of types
    Index task_rows = 0;       ///< > 0: of the table of tasks; task 0 is added everywhere [ERNIE]
    bool norm = false;
    NormKind norm_kind = NormKind::layer;
    double scale = 1;
    ImageSpec image;
    Index prefix_tokens = 0;          ///< cls, distillation, register tokens: `embed.prefix` rows
    bool prefix_has_position = true;  ///< positions are added to the prefix too
    bool norm_before_layers = false;  ///< timm norm_pre, CLIP

    Index position_rows() const;  ///< of the table `embed.position`
    Index hard_limit() const;     ///< of the tokens, where a table of positions ends; 0: none
};

/// Maps the last state to logits of ids, where a file has it; used by losses only.
struct OutputHead {
    bool matrix = false;  ///< `head.weight` [V, e]; else the token embedding
    bool bias = false;    ///< `head.bias` [V]
    bool transform =
        false;  ///< norm(act(W x + b)) before the matrix: `head.transform`, `head.norm`
    bool transform_bias = true;  ///< W and the norm have one
    /// Adaptive softmax: p(w) = p(cluster of w) p(w | cluster), the tables those of the embedding.
    /// Words of the first cluster stand beside the others, `head.cluster.{weight,bias}`, in one
    /// softmax; `head.bias.I` is of the words of cluster I.  [ADAPTIVE]
    std::vector<Index> cluster_ends = {};
    bool first_map = false;  ///< the first cluster's map is `head.map`, not the embedding's
    double scale = 1;        ///< of the logits
    double cap = 0;          ///< > 0: then cap tanh(logit / cap) [GEMMA2]
};

/// What the attentions of a checkpoint drew at random: features, hashes, blocks, samples.
struct Draws {
    std::uint64_t seed = 0;  ///< of `weights_rng`, trial 0
    Index updates = 0;       ///< of the training so far; some draw again as it grows
    /// The update whose draws the weights have last met, from 0.
    Index last() const { return updates > 0 ? updates - 1 : 0; }
};

/// Where a model comes from, and what a reader of its numbers is told of it.
struct Provenance {
    bool trained = true;         ///< read from a file, not drawn
    std::optional<Draws> draws;  ///< where the file tells them; else those of the run's seed
    std::vector<std::string> recognised, ignored, defaults;  ///< lines for the user and run.json
    /// Sentences: what was assumed, and what was ignored on request.
    std::vector<std::string> warnings;
};

struct ModelSpec {
    std::string family;  ///< "bert", "gpt2", ...
    std::string name;    ///< for display: "BERT, 12 layers, d = 768, 12 heads"
    Index width = 0;     ///< of the first layer, and of all where no patches merge
    EmbeddingSpec embedding;
    /// m: the first tokens of a sample are a segment of their own, without gradient, whose states
    /// are the memory of the others: keys and values of every layer.  The model's states, P's rows
    /// and losses are those of the others alone.  [TRANSFORMER-XL]
    Index memory_tokens = 0;
    std::vector<BlockSpec> blocks;
    bool final_norm = false;
    std::optional<NormKind> final_norm_kind;  ///< empty: that of the layers
    ClassSpec class_attention;
    OutputHead head;
    Provenance provenance;

    /// The fields that decide the numbers, and no words: two models with equal ones are of one
    /// architecture.
    Json computation() const;
    Json json() const;                  ///< these, its names, and the lines for the user
    Index width_of(Index layer) const;  ///< d of that layer; of the number of layers: behind them
    Index last_width() const { return width_of(Index(blocks.size())); }
    NormKind last_norm() const;    ///< the kind of `final_norm`
    bool draws_at_random() const;  ///< does an attention?
};

/// A state that layers emit, and the one that xi and r at it are measured from; empty: none.
struct Stage {
    std::string_view name, from = {};
    bool operator==(const Stage&) const = default;
};
/// Those of a layer in the order of computation, from `in` to `out` and what follows it.
std::vector<Stage> stages_of(const BlockSpec& block);
/// The names of all stages, `embed` before those of the layers, `class` and `final_norm` behind
/// them.
std::vector<std::string_view> all_stages();

class FurtherStep;  // src/model/steps/step.hpp
/// A step that a layer of any family may have besides attention and feed-forward: x -> step(x),
/// which the layer emits as the stage `name`.
struct StepEntry {
    std::string_view name, description, source;
    std::span<const NamedOption> options = {};
    /// Throws `UsageError` where `block` cannot have it.
    std::unique_ptr<FurtherStep> (*make)(const BlockSpec& block, const StepSpec& spec) = nullptr;
};
std::span<const StepEntry* const> further_steps();
/// NAME:OPTION=VALUE, some of them with "+" between; at=ffn or at=end is an option of each.  Throws
/// `UsageError`.
std::vector<StepSpec> steps_named(std::string_view text);
/// The text that `steps_named` reads.
std::string steps_text(const BlockSpec& block);
std::string steps_markdown();  ///< docs/steps.md
/// Throws `UsageError` where `block` cannot have its steps.
void check_steps(const BlockSpec& block);

/// All parameters of a model in the order of their use; what layers share is listed once.
std::vector<Parameter> parameters(const ModelSpec& spec);
/// Those of the output head.
std::vector<Parameter> head_parameters(const ModelSpec& spec);

/// Numbers that a layer of `width` columns holds inside its steps, besides states, queries, keys
/// and values.
struct HeldNumbers {
    double of_token = 0, of_pair = 0;  ///< for each token, for each pair of tokens
};
HeldNumbers held_numbers(const BlockSpec& block, Index width);
struct AttentionCost;  // attention.hpp
/// Of the rows of P on one sample of so many tokens, of a layer of `width` columns.
AttentionCost attention_cost(const AttentionSpec& spec, Index width, Index tokens, Type type);
/// FLOPs of the forward pass on `n` tokens: the matrix products, of P those by which a run makes
/// its rows to measure them.
double forward_flops(const ModelSpec& spec, Index n);

std::string_view name(Unary op);
std::string_view name(NormPlacement placement);
NormPlacement placement_named(std::string_view text);  ///< throws `UsageError`
std::string_view name(NormKind kind);
std::string_view name(Positions positions);
std::string_view name(OutputNorm norm);
/// none, rms, simple_rms or layer; throws `UsageError` for another text.
OutputNorm output_norm_named(std::string_view text);

}  // namespace tsdiag
