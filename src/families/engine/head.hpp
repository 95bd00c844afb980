#pragma once
#include "tsdiag/families.hpp"

namespace tsdiag::families {

/// The output head of the file, by the names of known libraries: sets `spec.head` and returns its
/// parameters.
/// `tied`: whether the matrix is the token embedding, whatever the file has; none: it is where some
/// of its rows are those of the embedding, and never where it is among `trained`.  `who`: who says
/// that it is, for the line about a matrix that is then not used.  The embedding is that before an
/// adapter trained it (`before_adapter`).
Names output_head(const Checkpoint& file, const Names& names, std::optional<bool> tied,
                  std::string_view who, const std::vector<std::string>& trained, ModelSpec& spec);

/// Whether some rows of both agree, to the rounding of the coarser type where they differ in it;
/// those of independent matrices never do.  Rows that one has behind those of the other are not
/// compared.
bool same_rows(const Checkpoint& file, const std::string& a, const std::string& b);

/// Whether Transformers ties the head of that family where the configuration does not say.
bool ties_by_default(std::string_view family);

}  // namespace tsdiag::families
