#pragma once
#include "tsdiag/model.hpp"

namespace tsdiag::families {

/// The output head of the file, by the names of known libraries: sets `spec.head` and returns its
/// parameters.  A matrix with the rows of the token embedding is tied to it.
Names output_head(const Checkpoint& file, const Names& names, ModelSpec& spec);

}  // namespace tsdiag::families
