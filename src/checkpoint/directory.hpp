#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/checkpoint.hpp"

namespace tsdiag::checkpoint {

/// Opens a file; its first bytes determine the format (formats.cpp).
std::unique_ptr<Checkpoint> open_file(const std::filesystem::path& path);

/// Opens the model in a directory: by the standard Hugging Face names, else the only checkpoint
/// file there.
std::unique_ptr<Checkpoint> open_directory(const std::filesystem::path& directory);

/// Does a model of a standard Hugging Face name lie there?
bool has_known_name(const std::filesystem::path& directory);

/// Opens all shards of an index (`{"weight_map": {tensor: file}}`) as one checkpoint.
std::unique_ptr<Checkpoint> open_shards(const std::filesystem::path& index);

/// Opens what torch.distributed.checkpoint saved: `.metadata` and the files of the processes.
std::unique_ptr<Checkpoint> open_distributed(const std::filesystem::path& directory);

/// Are they consolidated.00.pth, consolidated.01.pth, ..., more than one, sorted?
bool are_consolidated(const std::vector<std::filesystem::path>& files);
/// Opens these as one checkpoint.
std::unique_ptr<Checkpoint> open_consolidated(const std::vector<std::filesystem::path>& files);

/// Are these the files of a folder of DeepSpeed?
bool are_deepspeed(const std::vector<std::filesystem::path>& files);
/// The model of these: of one file, or put together from the parts of stage 3 of ZeRO.  Throws
/// `FormatError` where it lies in other parts.
std::unique_ptr<Checkpoint> open_deepspeed(const std::vector<std::filesystem::path>& files);
/// Throws `FormatError` where `file` has one of these parts, by its name.
void refuse_deepspeed_part(const std::filesystem::path& file);

/// Opens a TensorFlow checkpoint (V2) by its index, PREFIX.index.
std::unique_ptr<Checkpoint> open_tensorflow(const std::filesystem::path& index);
inline constexpr std::string_view tensorflow_ending = ".index";
/// The indices of TensorFlow checkpoints in `directory`, sorted.
std::vector<std::filesystem::path> tensorflow_indices(const std::filesystem::path& directory);

/// Throws `FormatError` unless `shard` is the plain name of a file; `where` names the index.
void check_shard_name(const std::string& shard, const std::string& where);

}  // namespace tsdiag::checkpoint
