#pragma once
#include "tsdiag/model.hpp"

namespace tsdiag::families {

/// The output head that the file has, by the names that libraries give it: sets `spec.head` and
/// returns its parameters.  A matrix with the rows of the token embedding is that embedding.
Names output_head(const Checkpoint& file, const Names& names, ModelSpec& spec);

}  // namespace tsdiag::families
