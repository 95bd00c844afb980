#pragma once
#include "engine/draw.hpp"
#include "engine/reader.hpp"

/// TransNormer with the names of its repository, a branch of fairseq: shared by reading and
/// drawing.
namespace tsdiag::families {

/// Parameters that distinguish TransNormers.
struct Transnormer {
    bool language = true;           ///< causal, pre-norm; else masked, post-norm
    bool softmax = false;           ///< of early layers; else relu, followed by simple_rms
    Unary linear_map = Unary::elu;  ///< phi of late layers
    Index block = 64;               ///< positions a chunk
    bool gated = true;              ///< a gated feed-forward step
    bool padded = true;             ///< zeros pad the last chunk where they are visible
};

/// Makes `b` a layer of chunks (early) or of NormAttention.
void set_transnormer_attention(BlockSpec& b, const Transnormer& kind, bool early);

RandomModel draw_transnormer(std::string_view name, const Keys& keys);
std::vector<std::string_view> transnormer_random_names();
Json transnormer_config(const ModelSpec& spec);

}  // namespace tsdiag::families
