#pragma once
#include <memory>

#include "gguf_dialects.hpp"
#include "layouts/renamed.hpp"

namespace tsdiag::families {

/// Whether `file` names and stores its tensors as llama.cpp does.
bool is_gguf(const Checkpoint& file);

/// A GGUF file as its family has it: under the names of its safetensors, with a configuration from
/// the metadata (or that of `options`, where there is one).  `file` must outlive it.
class GgufModel {
  public:
    /// Throws `FormatError` for an architecture that is not supported, and for a tensor that it
    /// does not have.
    GgufModel(const Checkpoint& file, const DetectOptions& options);

    const Checkpoint& file() const;
    const DetectOptions& options() const { return options_; }
    /// What was read from `file()`, as it is to be read from the GGUF file.
    Architecture restored(Architecture found) const;

  private:
    const GgufDialect& dialect_;
    DetectOptions options_;
    std::unique_ptr<Renamed> renamed_;
    std::string assumed_activation_;  ///< empty: that of all models of its kind
};

}  // namespace tsdiag::families
