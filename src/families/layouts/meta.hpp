#pragma once
#include "renamed.hpp"

namespace tsdiag::families {

/// Whether `file` names its tensors as Meta's code does (LLaMA, Mistral's and llama2.c's files), or
/// torchtune's.
bool is_meta(const Checkpoint& file);

/// Such a file as LLaMA's or Mistral's safetensors have it, with a configuration from params.json
/// or the arguments that the file holds.  `file` must outlive it.
class MetaModel {
  public:
    /// Throws `FormatError` for a tensor that the model does not have, `UsageError` where no
    /// configuration is known.
    MetaModel(const Checkpoint& file, const DetectOptions& options);

    const Checkpoint& file() const { return renamed_; }
    const DetectOptions& options() const { return options_; }
    /// What was read from `file()`, as it is to be read from Meta's file.
    Architecture restored(Architecture found) const {
        renamed_.restore(found, true);
        return found;
    }

  private:
    Renamed renamed_;
    DetectOptions options_;
};

}  // namespace tsdiag::families
