#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/tensor.hpp"

/// The parameters of a model by name, read from a file or drawn (families.hpp) when they are asked
/// for: a model need not be in memory whole.
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

}  // namespace tsdiag
