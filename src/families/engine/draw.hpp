#pragma once
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mix.hpp"
#include "tsdiag/families.hpp"

/// Random models: sizes from `random:NAME,key=value`, laws of their weights.
namespace tsdiag::families {

/// The keys after a name.  A message names `random:NAME`.
class KeyReader {
  public:
    KeyReader(std::string_view name, const Keys& keys) : name_(name), keys_(keys) {}

    std::optional<std::string> text(std::string_view key);
    /// From 1 to `most`; the default keeps products of two sizes far from overflow.
    Index count(std::string_view key, Index fallback, Index most = 100'000'000);
    double number(std::string_view key, double fallback);
    bool flag(std::string_view key, bool fallback);  ///< 0 or 1
    bool has(std::string_view key) const;
    /// Reserves a key of the family: an attention's option of that name is given after a colon.
    void keep(std::string_view key) { kept_.emplace(key); }
    bool kept(std::string_view key) const { return kept_.contains(std::string(key)); }
    /// Throws `UsageError` for a key that was never read, with the nearest known one.
    void finish() const;
    [[noreturn]] void refuse(const std::string& what) const;

  private:
    std::string name_;
    const Keys& keys_;
    std::set<std::string> asked_, kept_;
};

/// Sizes common to all families.
struct Sizes {
    Index layers = 12, d = 768, heads = 12, kv_heads = 0, head_dim = 0, ffn = 3072;
    Index tokens = 512, vocab = 30522;
    double eps = 1e-5;
    Unary act = Unary::gelu;
    std::string attention = "softmax";       ///< as `layer_attentions` reads it
    std::vector<LayerAttention> attentions;  ///< of each layer, fully specified
    bool causal = false;
    std::vector<StepSpec> steps;  ///< of each layer
};
/// Sizes of a named model; ffn is 4 d.
struct NamedSizes {
    std::string_view name;
    Index layers = 0, d = 0, heads = 0;
};
/// `rest` with the sizes of `name`.
Sizes sizes_of(std::string_view name, std::span<const NamedSizes> named, Sizes rest);
/// The names of a list of models.
std::vector<std::string_view> names_of(const auto& named) {
    std::vector<std::string_view> out;
    for (const auto& one : named) out.push_back(one.name);
    return out;
}

/// `preset` with the keys layers, d, heads, kv_heads, head_dim, ffn, tokens, vocab, eps, act,
/// attention, causal, output_norm, step, and the options of the attention.  Where d is given and
/// ffn is not, ffn keeps its ratio to d; likewise kv_heads to heads. Throws `UsageError` where the
/// sizes do not fit together.
Sizes read_sizes(KeyReader& keys, Sizes preset);

/// Whether deesc_at names the input of the feed-forward step (ffn), not the end of the layer (end).
/// Throws `UsageError` for another value.
bool deescalates_before_ffn(std::string_view place);
/// Whether deesc_mean names the mean over the tokens so far (past), not over all of them (all).
/// Throws `UsageError` for another value.
bool deescalates_by_the_past(std::string_view mean);
/// Throws `UsageError` where a layer lacks the feed-forward input that deesc_at names.
void require_place_to_deescalate(const ModelSpec& spec);
/// Throws `UsageError` where an attention over channels or in windows of a grid is of a variant
/// that is none, causal, or of logits that depend on positions, and where a layer with a local step
/// is not pre-norm.
void require_fitting_steps(const ModelSpec& spec);
/// The keys deesc (tau), deesc_at, deesc_learned (0 or 1) and deesc_mean.
Deescalation read_deescalation(KeyReader& keys);

/// The block that `sizes` describe, with the first layer's attention, scale 1/sqrt(head_dim).
BlockSpec block(const Sizes& sizes);
/// The spec shared by all token families: width, vocabulary, longest input, the blocks, each with
/// its layer's attention.
ModelSpec token_model(std::string_view family, const Sizes& sizes, const BlockSpec& block);

using Law = std::function<Draw(const Parameter&)>;
/// Biases 0, norms 1 and 0, all else N(0, deviation^2); row `padding` of the token embedding is 0.
Draw normal_law(const Parameter& parameter, double deviation, Index padding = -1);
/// A learned tau of de-escalation is initialised to the layer's, what attentions learn as they say
/// (`AttentionEntry::learned`); logits of an unscaled attention have the scale 1.  `how`: the laws
/// in words, for the user.
RandomModel drawn(ModelSpec spec, const Law& law, std::string_view how);
/// By `normal_law` of 0.02.
RandomModel drawn_normal(ModelSpec spec,
                         std::string_view how = "weights N(0, 0.02^2), biases 0, norms 1 and 0");

}  // namespace tsdiag::families
