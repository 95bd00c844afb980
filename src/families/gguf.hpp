#pragma once
#include <memory>

#include "tsdiag/model.hpp"

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
    ~GgufModel();
    GgufModel(const GgufModel&) = delete;
    GgufModel& operator=(const GgufModel&) = delete;

    const Checkpoint& file() const;
    const DetectOptions& options() const { return options_; }
    /// What was read from `file()`, as it is to be read from the GGUF file.
    Architecture restored(Architecture found) const;

  private:
    class Renamed;
    std::unique_ptr<Renamed> renamed_;
    DetectOptions options_;
    bool paired_ = false, fused_in_parts_ = false;
    std::string assumed_activation_;  ///< empty: that of all models of its kind
};

}  // namespace tsdiag::families
