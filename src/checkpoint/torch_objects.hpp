#pragma once
#include "listed.hpp"
#include "torch_tensors.hpp"

namespace tsdiag::checkpoint {

/// Traverses the objects of torch.save: tensors go into `out` under the path of their keys,
/// everything else becomes its metadata.  Throws `FormatError` where the tree is too deep or,
/// through shared references, larger than the budget of the file.
void list_objects(const Pickle& pickle, StorageSource source, Budget& budget,
                  ListedCheckpoint& out);

}  // namespace tsdiag::checkpoint
