#pragma once
#include <string>
#include <unordered_set>
#include <vector>

#include "tsdiag/families.hpp"

namespace tsdiag::families {

/// The language model of a file that has a tower of images beside it, whose states its projector
/// puts among those of the tokens (LLaVA): on text alone nothing else is run.
class LanguagePart final : public Checkpoint {
  public:
    /// Whether the file has both, by its names, and the configuration is of such a model, or of a
    /// language model, or absent.
    static bool there(const Checkpoint& file, const DetectOptions& options);

    LanguagePart(const Checkpoint& file, const DetectOptions& options);

    const std::vector<std::string>& names() const override { return names_; }
    bool has(std::string_view name) const override { return kept_.contains(name); }
    RawTensor tensor(std::string_view name) const override { return file_.tensor(name); }
    const Json& metadata() const override { return file_.metadata(); }
    std::string_view format() const override { return file_.format(); }
    std::string source() const override { return file_.source(); }

    /// Those of the language model: `text_config`, or the configuration without keys of images.
    const DetectOptions& options() const { return options_; }
    /// `found` with lines on what was left out.
    Architecture described(Architecture found) const;

  private:
    void use_text_config();
    void use_flat_config();

    const Checkpoint& file_;
    DetectOptions options_;
    std::vector<std::string> names_, left_out_, lines_;
    std::unordered_set<std::string_view> kept_;  ///< names_
};

}  // namespace tsdiag::families
