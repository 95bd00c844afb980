#pragma once
#include <filesystem>
#include <string>

#include "tsdiag/output.hpp"
#include "tsdiag/run.hpp"

/// The files that the commands write.
namespace tsdiag::cli {

/// Tables, run.json, page and figures; replaces an earlier result, and is written beside other
/// files with `force`.
OutputPlan result_plan(bool force);

/// `body` after the version and the command line.
Json described(const Json& body);
/// Writes run.json or the like into `folder`: `run`, and the digests of the tables in it, or in
/// `tables_folder`, with which `report` verifies them.
void write_description(Json run, const std::filesystem::path& folder, const char* name = "run.json",
                       const std::filesystem::path& tables_folder = {});

/// Reads run.json of a folder.  Throws `FormatError` where it is missing, or where the digest of a
/// table differs.
Json read_description(const std::filesystem::path& folder);
/// The rows of its tables.
std::vector<MetricRow> read_metrics(const std::filesystem::path& folder);
std::vector<CurveRow> read_curves(const std::filesystem::path& folder);
/// Everything of a folder, with the maps.
RunResult read_result(const std::filesystem::path& folder);

}  // namespace tsdiag::cli
