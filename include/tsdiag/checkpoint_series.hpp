#pragma once
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "tsdiag/run.hpp"
#include "tsdiag/table.hpp"

/// The checkpoints of one training, in the order of its steps.
namespace tsdiag {

struct SeriesMember {
    std::string path;           ///< file or directory
    Index step = -1;            ///< of the training, or its epoch
    std::string unit = "step";  ///< "step", "iteration" or "epoch"
    std::string origin;         ///< its source: "global_step of the file", "its name", "--steps"
    std::string contradiction = {};  ///< what is said where another source gives another step
};

struct CheckpointSeries {
    std::string name;  ///< of the whole, for column `model`: the directory that holds them
    std::string unit;  ///< of all members
    std::vector<SeriesMember> members;
    std::vector<std::string> notes;  ///< omitted copies and folders, contradictory steps
};

/// Whether the arguments are several checkpoints, or traces: more than one, or a directory that is
/// no model and holds several.  A sharded checkpoint is one model, and so is a directory with both
/// a model and checkpoints; a directory of batches is one trace.
bool is_series(const std::vector<std::string>& arguments);

/// Orders the checkpoints by step.  The step is, in this order: that of `steps`, one a checkpoint
/// in the order of the arguments; `global_step`, `step`, `iter_num`, `iteration` or `num_updates`
/// of the file's own metadata, or of a trainer_state.json beside it; a number in its name
/// ("checkpoint-500", "step_1000.safetensors", "iter_20.pt", "epoch=3-step=1000.ckpt"), else in
/// that of its directory; `epoch` of the metadata.
///
/// Of two with the same step and the same tensors the first is kept, with a note.  One without a
/// step, or whose name begins with last, latest, best or final, is a copy where it has the tensors
/// of any other.  Throws `UsageError` where a step is unknown, where two differ at the same step,
/// or where epochs and steps are mixed, and `FormatError` for what is no checkpoint and no trace;
/// opens files, reads the weights of two with the same step, and of those without or named so.
CheckpointSeries find_series(const std::vector<std::string>& arguments,
                             const std::vector<Index>& steps = {});

/// One checkpoint with its step, as `find_series` finds it.  Throws likewise.
SeriesMember find_member(const std::string& path);
/// The first contradiction of the members, and how many more there are; empty: none.
std::string contradictory_steps(std::span<const SeriesMember> members);

/// Throws `ShapeError` naming the first member whose architecture differs from the first's, and
/// how.  The longest input counts where positions are a learned table.
void require_one_architecture(const CheckpointSeries& series, const SubjectOptions& options);

/// 64-bit digest of the contents of a checkpoint's files (not of optimizer and scheduler files
/// beside it), as 16 hex digits.  Cost: reads them once.
std::string contents_digest(const std::filesystem::path& checkpoint);
/// Likewise of everything else that determines the results: all settings but model, memory and
/// threads, and the contents of the files that they name.
std::string settings_digest(const RunOptions& options);

/// Changes of every metric per layer, without head and tensor.  The intervals are Student's with
/// (fewest inputs - 1) degrees of freedom and hold together with `confidence`.  The inputs are the
/// same at each step: the error of a difference is taken as the sum of both, the most that it can
/// be.  Metrics with fewer than two inputs have no error and are never certain.
std::vector<RunRecord::Change> metric_changes(const Table& table, double confidence = 0.95);

}  // namespace tsdiag
