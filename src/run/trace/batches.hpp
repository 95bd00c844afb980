#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trace.hpp"
#include "tsdiag/checkpoint.hpp"

namespace tsdiag {

/// The traces of several batches as one: their samples, in the order of the numbers of their files.
/// An array is named FILE/NAME.
class TraceBatches final : public Checkpoint {
  public:
    TraceBatches(std::string folder, std::vector<std::unique_ptr<Checkpoint>> batches);

    const std::vector<std::string>& names() const override { return names_; }
    RawTensor tensor(std::string_view name) const override;
    const Json& metadata() const override { return batches_.front()->metadata(); }
    std::string_view format() const override { return batches_.front()->format(); }
    std::string source() const override { return folder_; }

    std::span<const std::unique_ptr<Checkpoint>> batches() const { return batches_; }

  private:
    std::string folder_;
    std::vector<std::unique_ptr<Checkpoint>> batches_;
    std::vector<std::string> names_;
    std::vector<std::pair<std::size_t, std::string>> places_;  ///< of each name: batch and array
};

/// Opens the folder where it is one of batches (`is_batches`); else null.  Throws `FormatError` for
/// a file in it that is no trace.
std::unique_ptr<TraceBatches> open_batches(const std::string& folder);

/// The traces of a file: one, or those of its batches.  Throws as `SavedTrace`, and `ShapeError`
/// for batches that differ in more than the number of their samples.
std::vector<SavedTrace> saved_traces(const Checkpoint& file);

}  // namespace tsdiag
