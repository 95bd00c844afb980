#pragma once
#include <string>
#include <vector>

#include "listed.hpp"
#include "pickle.hpp"

namespace tsdiag::checkpoint {

/// "os.system": what a pickle would import to call it, or calls already, but for what tensors,
/// arrays and containers are made of; sorted, each once.  Whether what comes of it is kept does not
/// matter: Python would have called it.
std::vector<std::string> foreign_callables(const Pickle& pickle);

/// Puts them into the metadata as `__callables__`, where there are any.
void list_callables(const Pickle& pickle, ListedCheckpoint& out);

/// The sentence on a pickle that is no checkpoint and calls any; empty: it does not.
std::string foreign_pickle(Bytes file, const std::string& path);

}  // namespace tsdiag::checkpoint
