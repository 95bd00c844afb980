#pragma once
#include <string>
#include <string_view>

#include "bytes.hpp"

namespace tsdiag::checkpoint {

/// What the first bytes of a file that is no checkpoint look like, and what to do: the second half
/// of a sentence that begins with its name.
std::string looks_like(Bytes head);

/// A map of MessagePack whose first key is text, as Flax writes.
bool begins_as_msgpack(std::string_view head);

/// A file of llama2.c.  Those before its version 1 have no magic: seven consistent sizes of a
/// LLaMA.
bool begins_as_llama2c(std::string_view head);

}  // namespace tsdiag::checkpoint
