#pragma once
#include <string>

#include "bytes.hpp"

namespace tsdiag::checkpoint {

/// What the first bytes of a file that is no checkpoint look like, and what to do: the second half
/// of a sentence that begins with its name.
std::string looks_like(Bytes head);

}  // namespace tsdiag::checkpoint
