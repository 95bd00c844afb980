#pragma once
#include "listed.hpp"
#include "torch_tensors.hpp"

namespace tsdiag::checkpoint {

/// Walks what torch.save wrote: tensors go into `out` under the path of keys that leads to them,
/// everything else becomes its metadata.  Throws `FormatError` where the tree is too deep or,
/// through shared references, too large to be written out.
void list_objects(const Pickle& pickle, StorageSource source, ListedCheckpoint& out);

}  // namespace tsdiag::checkpoint
