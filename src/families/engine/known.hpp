#pragma once
#include <string_view>

#include "tsdiag/checkpoint.hpp"
#include "tsdiag/json.hpp"

/// Tensors and keys that change no hidden state: the lists of docs/checkpoints.md.
namespace tsdiag::families {

/// A buffer that a family's code recomputes: indices, masks, counters.
bool is_buffer(std::string_view name, const RawTensor& tensor);
/// The inverse frequencies of a rotary embedding; the configuration determines them.
bool is_frequencies(std::string_view name);
/// A module after the last hidden state.
bool is_head(std::string_view name);
/// Whether `key` of a configuration changes no hidden state, for any value or for `value`.
bool is_harmless(std::string_view key, const Json& value);

}  // namespace tsdiag::families
