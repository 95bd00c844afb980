#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "tsdiag/fields.hpp"
#include "tsdiag/units.hpp"

/// The names in a folder of units: ".NAME.tsdiag-units/DIGEST/{job.json, WORKER-K.units,
/// WORKER.worker}".
namespace tsdiag::units {

constexpr const char* ending = ".tsdiag-units";
constexpr const char* file_ending = ".units";
constexpr const char* worker_ending = ".worker";
constexpr const char* job_file = "job.json";

/// What job.json says.
struct JobFile {
    std::filesystem::path folder = {};
    std::string version = {};
    std::vector<std::string> words = {};
    std::string directory = {}, settings = {}, numerics = {};  ///< `directory`: of the command
    JobBegin begun = {};
};
void fields(auto& io, Is<JobFile> auto& job) {
    io.key("tsdiag", job.version).key("command", job.words).key("directory", job.directory);
    io.key("settings", job.settings).key("numerics", job.numerics);
    io.some("date", job.begun.date).some("processor", job.begun.processor);
}

/// What WORKER.worker says.
struct WorkerFile : WorkerStatus {
    double time = 0;                              ///< `seconds_now` when it wrote
    std::vector<std::vector<Index>> stages = {};  ///< each its number and that of its units
};
void fields(auto& io, Is<WorkerFile> auto& worker) {
    io.key("host", worker.host).key("pid", worker.pid).key("state", worker.state);
    io.key("units", worker.units).key("busy", worker.busy).key("threads", worker.threads);
    io.key("time", worker.time).key("stages", worker.stages);
}

/// Those below a folder of units, by digest; damaged ones are omitted.
std::vector<JobFile> jobs_in(const std::filesystem::path& folder);

double seconds_now();  ///< since the epoch

/// Is it a file that a process of a job writes, or what is left of one?
bool is_of_a_job(const std::filesystem::path& file);

}  // namespace tsdiag::units
