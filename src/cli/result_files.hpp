#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "tsdiag/output.hpp"
#include "tsdiag/run.hpp"
#include "tsdiag/run_record.hpp"

/// The files that the commands write.
namespace tsdiag::cli {

/// Tables, run.json, page and figures; replaces an earlier result, and is written beside other
/// files with `force`.
OutputPlan result_plan(bool force);

/// `run` with the version and the command line.
Json headed(RunRecord run);
/// Also when and where it was measured, where it does not say so: as `began`, else now and here.
Json described(RunRecord run, const RunRecord::Measured& began = {});
/// Writes run.json or the like into `folder`: `run`, and the digests of the tables in it, or in
/// `tables_folder`, with which `report` verifies them.
void write_description(RunRecord run, const std::filesystem::path& folder,
                       const char* name = "run.json",
                       const std::filesystem::path& tables_folder = {});

/// A result while it is written: its tables, its page, its description, then all of it at once in
/// its place.
class ResultWriter {
  public:
    /// Refuses what is in the way.
    ResultWriter(const std::filesystem::path& out, bool force);

    const std::filesystem::path& place() const { return folder_.folder(); }
    /// What is written before `commit` stands here.
    const std::filesystem::path& folder() const { return folder_.temporary(); }
    void write_tables(const RunResult& result) const;
    /// Writes page and figures into a folder; returns what could not be drawn.
    using Draw = std::function<std::vector<std::string>(const std::filesystem::path& folder)>;
    /// Says what could not be drawn, unless `quiet`, and adds it to the warnings of `run`.
    void write_page(Json& run, const Draw& draw, bool quiet) const;
    /// Throws where a file that was read has changed since.
    void commit(const Json& run);
    /// Of files that were compared when they had been read.
    void commit_compared(const Json& run);
    /// Tables, page and `commit`; `draw` may be empty.
    void write(RunResult& result, const Draw& draw, bool quiet);

  private:
    OutputFolder folder_;
};
/// The names of the files that were written into a folder, as `files` of --json.
Json files_json(const std::filesystem::path& folder);
/// Where the reader begins.
void print_place(const std::filesystem::path& out, bool has_page);

/// Reads run.json of a folder.  Throws `FormatError` where it is missing, or where the digest of a
/// table differs.
Json read_description(const std::filesystem::path& folder);
/// The rows of its tables.
std::vector<MetricRow> read_metrics(const std::filesystem::path& folder);
/// Adds the values of the samples to the rows of a step, where `run` says that they were kept.
void add_samples(const std::filesystem::path& folder, const RunRecord& run, Index step,
                 std::vector<MetricRow>& rows);
std::vector<CurveRow> read_curves(const std::filesystem::path& folder);
/// Everything of a folder, with the maps.
RunResult read_result(const std::filesystem::path& folder);

}  // namespace tsdiag::cli
