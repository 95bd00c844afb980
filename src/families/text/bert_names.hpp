#pragma once
#include <array>

#include "engine/names.hpp"

namespace tsdiag::families {

/// The names of BERT's tensors, which other families share.
inline constexpr std::array bert_pairs{
    NamePair{"embed.token", "embeddings.word_embeddings.weight"},
    NamePair{"embed.position", "embeddings.position_embeddings.weight"},
    NamePair{"embed.type", "embeddings.token_type_embeddings.weight"},
    NamePair{"embed.task", "embeddings.task_type_embeddings.weight"},
    NamePair{"embed.norm", "embeddings.LayerNorm"},
    NamePair{"embed.map", "embeddings_project"},
    NamePair{"layer.*.attn.q", "encoder.layer.*.attention.self.query"},
    NamePair{"layer.*.attn.k", "encoder.layer.*.attention.self.key"},
    NamePair{"layer.*.attn.v", "encoder.layer.*.attention.self.value"},
    NamePair{"layer.*.attn.distance", "encoder.layer.*.attention.self.distance_embedding.weight"},
    NamePair{"layer.*.attn.o", "encoder.layer.*.attention.output.dense"},
    NamePair{"layer.*.norm1", "encoder.layer.*.attention.output.LayerNorm"},
    NamePair{"layer.*.ffn.up", "encoder.layer.*.intermediate.dense"},
    NamePair{"layer.*.ffn.down", "encoder.layer.*.output.dense"},
    NamePair{"layer.*.norm2", "encoder.layer.*.output.LayerNorm"},
};

}  // namespace tsdiag::families
