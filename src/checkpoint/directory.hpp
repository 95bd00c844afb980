#pragma once
#include <filesystem>
#include <memory>

#include "tsdiag/checkpoint.hpp"

namespace tsdiag::checkpoint {

/// Opens a file; its first bytes determine the format (formats.cpp).
std::unique_ptr<Checkpoint> open_file(const std::filesystem::path& path);

/// Opens the model in a directory: by the standard Hugging Face names, else the only checkpoint
/// file there.
std::unique_ptr<Checkpoint> open_directory(const std::filesystem::path& directory);

/// Opens all shards of an index (`{"weight_map": {tensor: file}}`) as one checkpoint.
std::unique_ptr<Checkpoint> open_shards(const std::filesystem::path& index);

}  // namespace tsdiag::checkpoint
