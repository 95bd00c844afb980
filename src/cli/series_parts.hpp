#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "options.hpp"
#include "tsdiag/checkpoint_series.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/output.hpp"
#include "tsdiag/run.hpp"
#include "tsdiag/run_record.hpp"

/// The results of single checkpoints that a series consists of, each in a folder of its own, so
/// that an interrupted command can continue.
namespace tsdiag::cli {

/// Throws `UsageError` for options of a single model.
void refuse_options_of_one(const ProbeOptions& probe);
/// Where they lie in the folder of the result.
constexpr const char* parts_folder = "checkpoints";
std::filesystem::path part_folder(const std::filesystem::path& out, Index step);
OutputPlan part_plan();

/// The result of one checkpoint, and whether it is from an earlier run.
struct SeriesPart {
    std::vector<MetricRow> metrics = {};
    std::vector<CurveRow> curves = {};
    RunRecord run = {};
    bool kept = false;
};

/// The tables of an earlier run, if complete and of this digest.
std::optional<SeriesPart> finished_part(const std::filesystem::path& from,
                                        const std::string& digest);
/// A part's tables cannot be written: nothing is wrong with the checkpoint.
class CannotKeep : public Error {
    using Error::Error;
};
/// Measures one checkpoint and keeps its tables; throws `CannotKeep` where it cannot.  `began`: for
/// its description.
SeriesPart measured_part(const RunOptions& options, const std::filesystem::path& to,
                         const std::string& digest, const std::string& model, Index step,
                         const RunRecord::Measured& began);
/// Names the place of the checkpoint in the lines of a part that was measured in another folder.
void set_path(SeriesPart& part, const std::string& path);
void set_place(SeriesPart& part, const std::string& model, Index step);

/// run.json of all: that of the last checkpoint, with the properties of the series.
Json series_run(const CheckpointSeries& series, const std::vector<SeriesPart>& parts,
                const Table& table);

}  // namespace tsdiag::cli
