#pragma once
#include <string>
#include <unordered_set>
#include <vector>

#include "tsdiag/families.hpp"

namespace tsdiag::families {

/// A file without the tensors that --ignore names.
class Ignoring final : public Checkpoint {
  public:
    /// Throws `UsageError` for a pattern that matches no tensor and no key of the configuration or
    /// of the file's metadata in its place.
    Ignoring(const Checkpoint& file, const DetectOptions& options);

    const std::vector<std::string>& names() const override { return names_; }
    bool has(std::string_view name) const override { return kept_.contains(name); }
    RawTensor tensor(std::string_view name) const override { return file_.tensor(name); }
    const Json& metadata() const override { return metadata_; }
    std::string_view format() const override { return file_.format(); }
    std::string source() const override { return file_.source(); }

    /// The options without the keys that --ignore names.
    const DetectOptions& options() const { return options_; }
    /// One sentence on what was ignored; empty: nothing.
    std::string warning() const;

  private:
    const Checkpoint& file_;
    DetectOptions options_;
    Json metadata_;
    std::vector<std::string> names_, left_out_;
    std::unordered_set<std::string_view> kept_;  ///< names_
};

/// Throws `FormatError` where the weights are quantised, by the configuration or by their names:
/// tensors beside them define their values.
void refuse_quantised(const Checkpoint& file, const DetectOptions& options);

}  // namespace tsdiag::families
