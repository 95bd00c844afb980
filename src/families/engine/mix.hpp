#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/attention.hpp"
#include "tsdiag/spec.hpp"

/// The attention of each layer of a drawn model.
namespace tsdiag::families {

struct LayerAttention {
    std::string variant;
    AttentionOptions options;                   ///< as the text gives them
    AttentionOptions preset = {};               ///< of a plan: defaults that given options override
    OutputNorm output_norm = OutputNorm::none;  ///< of the variant or the plan
    std::vector<LayerAttention> second = {};    ///< the second of two side by side; else empty
};

/// The attention of each of `layers` layers as given by `text`: one variant with its options,
/// "polynomial:p=2"; two of them side by side, "diag_attention+norm_attention"; a plan
/// (attention.hpp), whose early attention is that of the first floor(layers / 2) layers; or a
/// partition into ranges of layers from 0 on, "0-5:diag_attention:block=32; 6-11:norm_attention".
/// Throws `UsageError`.
std::vector<LayerAttention> layer_attentions(std::string_view text, Index layers);

}  // namespace tsdiag::families
