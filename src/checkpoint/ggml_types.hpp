#pragma once
#include <cstdint>

#include "tsdiag/checkpoint.hpp"

namespace tsdiag::checkpoint {

/// An element type of GGUF files: plain, or stored in blocks.
struct GgmlType {
    std::uint32_t id;
    DType dtype;  ///< `other`: the values of its codebook are not known here
    BlockType blocks;
};

/// Null for an id that no type has, or that was withdrawn.
const GgmlType* ggml_type(std::uint32_t id);

}  // namespace tsdiag::checkpoint
