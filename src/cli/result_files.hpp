#pragma once
#include <filesystem>
#include <string>

#include "tsdiag/output.hpp"
#include "tsdiag/run.hpp"

/// What the commands leave in their folders.
namespace tsdiag::cli {

/// Tables, run.json, page and figures; in place of an earlier result, beside other files with
/// `force`.
OutputPlan result_plan(bool force);

/// `body` behind the version and the command line.
Json described(const Json& body);
/// run.json or its like into `folder`: `run`, and the digests of the tables that lie there, or in
/// `beside`, by which `report` knows them.
void write_description(Json run, const std::filesystem::path& folder, const char* name = "run.json",
                       const std::filesystem::path& beside = {});

/// run.json of a folder.  Throws `FormatError` where it is missing, or where a table beside it is
/// not the one that it speaks of.
Json read_description(const std::filesystem::path& folder);
/// The rows of its tables.
std::vector<MetricRow> read_metrics(const std::filesystem::path& folder);
std::vector<CurveRow> read_curves(const std::filesystem::path& folder);
/// All of that, and the maps.
RunResult read_result(const std::filesystem::path& folder);

}  // namespace tsdiag::cli
