#pragma once
#include <string>
#include <string_view>

#include "relabelled.hpp"

/// Layouts of other libraries, each of which tells whether a file has it and renames its tensors.
namespace tsdiag::families {

struct Layout {
    std::string_view title;  ///< for docs/formats.md
    bool (*matches)(const Checkpoint& file);
    /// Adds all tensors of `file` to `out`, and to `config` what the layout tells.  Returns what it
    /// is, for notes.
    std::string (*rename)(const Checkpoint& file, Relabelled& out, Json& config);
};

extern const Layout flax_names;
extern const Layout google_vit;
extern const Layout gpt_oss_names;
extern const Layout transformer_lens_names;
extern const Layout tensorflow_bert;

}  // namespace tsdiag::families
