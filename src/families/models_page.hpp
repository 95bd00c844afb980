#pragma once
#include <string>

namespace tsdiag::families {

/// docs/models.md: every family of the list with its `random:` names and what is not measured.
std::string models_markdown();

}  // namespace tsdiag::families
