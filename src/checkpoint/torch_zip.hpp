#pragma once
#include "listed.hpp"
#include "zip.hpp"

namespace tsdiag::checkpoint {

/// The tensors of an archive of torch.save.  Throws `FormatError`.
std::unique_ptr<ListedCheckpoint> read_torch_zip(ZipArchive archive);

}  // namespace tsdiag::checkpoint
