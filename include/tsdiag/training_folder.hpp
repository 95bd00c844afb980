#pragma once
#include <filesystem>
#include <string>
#include <vector>

/// A directory that a training writes checkpoints to, while it does.
namespace tsdiag {

/// The checkpoints in it, as `checkpoints_in` finds them; but a model of Hugging Face's names in
/// the directory itself, an adapter there and shards are no checkpoint beside the others, and a
/// single file is one.
std::vector<std::filesystem::path> checkpoints_below(const std::filesystem::path& directory);

/// The files of a checkpoint as they are now.
struct Written {
    double age = 0;     ///< seconds since the last of them was written, at least 0
    std::string state;  ///< their names, sizes and times
};
Written written(const std::filesystem::path& checkpoint);

}  // namespace tsdiag
