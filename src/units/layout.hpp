#pragma once
#include <filesystem>
#include <string>
#include <vector>

/// The names in a folder of units: ".NAME.tsdiag-units/DIGEST/{job.json, WORKER-K.units,
/// WORKER.worker}".
namespace tsdiag::units {

constexpr const char* ending = ".tsdiag-units";
constexpr const char* file_ending = ".units";
constexpr const char* worker_ending = ".worker";
constexpr const char* job_file = "job.json";

/// What job.json says.
struct JobFile {
    std::filesystem::path folder;
    std::vector<std::string> words;
    std::string directory, settings, numerics;  ///< `directory`: in which the command was given
};
/// Those below a folder of units, by digest; damaged ones are omitted.
std::vector<JobFile> jobs_in(const std::filesystem::path& folder);

/// Is it a file that a process of a job writes, or what is left of one?
bool is_of_a_job(const std::filesystem::path& file);

}  // namespace tsdiag::units
