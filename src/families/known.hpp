#pragma once
#include <string_view>

#include "tsdiag/checkpoint.hpp"
#include "tsdiag/json.hpp"

/// What stands in files and configurations and changes no hidden state: the lists of
/// docs/checkpoints.md.
namespace tsdiag::families {

/// A buffer that the code of a family makes again when it runs: indices, masks, counters.
bool is_buffer(std::string_view name, const RawTensor& tensor);
/// The inverse frequencies of a rotary embedding; they follow from the configuration.
bool is_frequencies(std::string_view name);
/// A module behind the last hidden state.
bool is_head(std::string_view name);
/// Is `key` of a configuration one that changes no hidden state whatever it says, or does it say
/// what every model here does?
bool is_harmless(std::string_view key, const Json& value);

}  // namespace tsdiag::families
