#pragma once
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "tsdiag/families.hpp"

namespace tsdiag::families {

/// One part of a LLaVA, which puts the states of a tower of images, by its projector, among those
/// of the tokens of a language model: the language model, all that is run on text alone, or, where
/// --ignore leaves that out, the tower.  So of a CLIP without its tower of text.
class PartOfLlava final : public Checkpoint {
  public:
    /// Whether the file is one, by its names, and the configuration is of one, or of a part of it,
    /// or absent.
    static bool there(const Checkpoint& file, const DetectOptions& options);

    PartOfLlava(const Checkpoint& file, const DetectOptions& options);

    const std::vector<std::string>& names() const override { return names_; }
    bool has(std::string_view name) const override { return kept_.contains(name); }
    RawTensor tensor(std::string_view name) const override { return file_.tensor(name); }
    const Json& metadata() const override { return file_.metadata(); }
    std::string_view format() const override { return file_.format(); }
    std::string source() const override { return file_.source(); }

    /// Those of the part: `text_config`, or the configuration without keys of images;
    /// `vision_config`.
    const DetectOptions& options() const { return options_; }
    /// `found` with lines on what was left out.
    Architecture described(Architecture found) const;

  private:
    void use_text_config();
    void use_flat_config();
    void use_vision_config();
    /// Where the configuration of the part leaves a key out, as Transformers does of its defaults.
    void use_default(const std::string& key, const Json& value, std::string_view part);

    const Checkpoint& file_;
    DetectOptions options_;
    bool language_ = false;  ///< it is the part
    std::vector<std::string> names_, left_out_, lines_;
    std::unordered_set<std::string_view> kept_;  ///< names_
};

}  // namespace tsdiag::families
