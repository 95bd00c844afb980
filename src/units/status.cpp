#include <algorithm>
#include <cmath>
#include <set>

#include "layout.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "units_file.hpp"

namespace tsdiag {
namespace units {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> sorted_entries(const fs::path& folder) {
    std::error_code failed;
    std::vector<fs::path> out;
    for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed))
        out.push_back(at->path());
    std::ranges::sort(out);
    return out;
}

template <class Record>
Record record_in(const fs::path& file) {
    return read_fields<Record>(file_json(file, "a description of a job"), file.string());
}

/// What a worker says of itself; its stages go to `stages`.
WorkerStatus worker_of(const fs::path& file, std::map<Index, Index>& stages) {
    auto worker = record_in<WorkerFile>(file);
    worker.threads = std::max<Index>(1, worker.threads);
    worker.age = seconds_now() - worker.time;
    for (const std::vector<Index>& stage : worker.stages)
        if (stage.size() == 2) stages[stage[0]] = stage[1];
    return worker;
}

JobStatus status_of(const JobFile& job) {
    JobStatus status;
    status.digest = job.folder.filename().string();
    status.words = job.words;
    status.directory = job.directory;
    status.numerics = job.numerics;
    std::map<Index, Index> stages;
    std::set<std::pair<Index, Index>> done;
    double seconds = 0;
    for (const fs::path& file : sorted_entries(job.folder)) {
        try {
            if (file.extension() == worker_ending) {
                status.workers.push_back(worker_of(file, stages));
            } else if (file.extension() == file_ending) {
                std::string host;
                const std::string bytes = file_text(file, "finished units");
                for (const Unit& unit : parse(bytes, file.string(), status.digest, host))
                    if (unit.part < 0 && done.emplace(unit.stage, unit.unit).second &&
                        std::isfinite(unit.seconds))
                        seconds += unit.seconds;
            }
        } catch (const FormatError&) {  // half written by another version, or damaged
        }
    }
    status.done = Index(done.size());
    for (const auto& [stage, count] : stages) status.known += count;
    if (!done.empty()) status.unit_seconds = seconds / double(done.size());
    return status;
}

}  // namespace

double seconds_now() {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration<double>(now).count();
}

bool is_of_a_job(const fs::path& file) {
    const std::string name = file.filename().string();
    return name == job_file || file.extension() == file_ending ||
           file.extension() == worker_ending || name.ends_with(".tmp");
}

std::vector<JobFile> jobs_in(const fs::path& folder) {
    std::vector<JobFile> jobs;
    for (const fs::path& one : sorted_entries(folder)) {
        std::error_code failed;
        if (!fs::is_regular_file(one / job_file, failed)) continue;
        try {
            jobs.push_back(record_in<JobFile>(one / job_file));
            jobs.back().folder = one;
        } catch (const FormatError&) {
        }
    }
    return jobs;
}

}  // namespace units

std::vector<JobStatus> job_status(const std::filesystem::path& folder) {
    namespace fs = std::filesystem;
    std::vector<std::pair<fs::path, fs::path>> stores = {{units_folder(folder), folder}};
    for (const fs::path& entry : units::sorted_entries(folder)) {
        const std::string name = entry.filename().string();
        if (!name.starts_with('.') || !name.ends_with(units::ending)) continue;
        const std::size_t length = name.size() - std::string_view(units::ending).size();
        stores.emplace_back(entry, folder / name.substr(1, length - 1));
    }
    std::vector<JobStatus> all;
    for (const auto& [store, result] : stores)
        for (const units::JobFile& job : units::jobs_in(store)) {
            all.push_back(units::status_of(job));
            all.back().result = result.string();
        }
    return all;
}

}  // namespace tsdiag
