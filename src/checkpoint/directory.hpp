#pragma once
#include <filesystem>
#include <memory>

#include "tsdiag/checkpoint.hpp"

namespace tsdiag::checkpoint {

/// A file by its first bytes (formats.cpp).
std::unique_ptr<Checkpoint> open_file(const std::filesystem::path& path);

/// The model in a directory: by the names that Hugging Face gives, else the only checkpoint file
/// there.
std::unique_ptr<Checkpoint> open_directory(const std::filesystem::path& directory);

/// All shards that an index (`{"weight_map": {tensor: file}}`) names, as one checkpoint.
std::unique_ptr<Checkpoint> open_shards(const std::filesystem::path& index);

}  // namespace tsdiag::checkpoint
