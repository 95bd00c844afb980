#pragma once
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "tsdiag/checkpoint.hpp"

namespace tsdiag::checkpoint {

/// f16, bf16, f32 or f64, without scales.
bool is_plain_float(const RawTensor& raw);

/// A tensor of an adapter's file.
struct AdapterTensor {
    std::string name;
    RawTensor tensor;
};

/// What an adapter holds of a module.
struct LowRankTensors {
    std::optional<AdapterTensor> a, b, magnitude, bias;
    bool embedding = false;  ///< of lora_embedding_A and _B
};

/// Is it one of the layer that LoRA wraps: `query.base_layer.bias`?
bool is_of_wrapped_layer(std::string_view name);

/// The tensors of an adapter by what they are of, under the names of the model that it was trained
/// on: `bert.encoder.layer.0.attention.self.query`.
struct AdapterTensors {
    /// Throws `FormatError` for a tensor of LoRA that is not known, two of one place, those of
    /// several adapters, and numbers that are no floats.
    explicit AdapterTensors(const Checkpoint& file);

    std::map<std::string, LowRankTensors> modules;
    std::map<std::string, AdapterTensor> whole;  ///< in the place of a tensor of the model
};

}  // namespace tsdiag::checkpoint
