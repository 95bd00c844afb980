#pragma once
#include <string>
#include <vector>

#include "listed.hpp"
#include "pickle.hpp"

namespace tsdiag::checkpoint {

/// "os.system": callables that unpickling would import or call, except those that tensors, arrays
/// and containers need; sorted, without duplicates.  Those whose results are unused are included,
/// as Python would have called them.
std::vector<std::string> foreign_callables(const Pickle& pickle);

/// Adds them to the metadata as `__callables__`, if there are any.
void list_callables(const Pickle& pickle, ListedCheckpoint& out);

/// The error message for a pickle with such calls that is no checkpoint; empty for other files.
std::string foreign_pickle(Bytes file, const std::string& path);

}  // namespace tsdiag::checkpoint
