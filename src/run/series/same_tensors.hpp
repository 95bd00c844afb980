#pragma once
#include <string>

namespace tsdiag {

/// Whether two checkpoints, or traces, hold the same tensors: names, shapes, types and values bit
/// for bit.  Of a model these are its own tensors (`unwrap`), in whatever layout and order its file
/// has them; what else the files say is not compared.  Cost: reads both, up to the first
/// difference.  Throws as `open_file` and `unwrap`.
bool same_tensors(const std::string& a, const std::string& b);

}  // namespace tsdiag
