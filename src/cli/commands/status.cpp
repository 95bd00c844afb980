#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "command.hpp"
#include "json_outputs.hpp"
#include "terminal.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/json.hpp"
#include "tsdiag/units.hpp"

/// `status`: how far the processes of a command are.
namespace tsdiag::cli {
namespace {

struct StatusCommand final : Command {
    explicit StatusCommand(CLI::App& app);
    int run() const override;

    std::string directory;
};

constexpr double silent = 120;  // seconds without a word: a process that has ended unheard

std::string state_of(const WorkerStatus& worker) {
    return worker.state == "running" && worker.age > silent ? "silent" : worker.state;
}

/// Seconds until the known units are finished; none where nobody works.
std::optional<double> seconds_left(const JobStatus& job) {
    double threads = 0;
    for (const WorkerStatus& worker : job.workers)
        if (state_of(worker) == "running") threads += double(worker.threads);
    if (threads == 0 || job.done == 0) return std::nullopt;
    return double(std::max<Index>(job.known - job.done, 0)) * job.unit_seconds / threads;
}

Json json_of(const JobStatus& job) {
    Json out;
    Json::Array words, workers;
    for (const std::string& word : job.words) words.emplace_back(word);
    for (const WorkerStatus& worker : job.workers) {
        Json one;
        one.set("host", worker.host).set("pid", worker.pid).set("state", state_of(worker));
        one.set("units", worker.units).set("seconds", worker.busy).set("age", worker.age);
        workers.push_back(std::move(one));
    }
    const std::optional<double> left = seconds_left(job);
    out.set("result", job.result).set("command", std::move(words)).set("numerics", job.numerics);
    out.set("done", job.done).set("known", job.known).set("unit_seconds", job.unit_seconds);
    out.set("seconds_left", left ? Json(*left) : Json());
    return out.set("workers", std::move(workers));
}

void print_job(const JobStatus& job) {
    print(fmt::format("{}\n  tsdiag {}\n  {}\n", styled(printable(job.result), Style::bold),
                      printable(fmt::format("{}", fmt::join(job.words, " "))),
                      printable(job.numerics)));
    const std::optional<double> left = seconds_left(job);
    print(fmt::format("  {} of {} units of the stages begun so far, {:.3g} s each{}\n", job.done,
                      std::max(job.known, job.done), job.unit_seconds,
                      left ? fmt::format("; about {} left", duration(*left)) : ""));
    std::vector<std::vector<std::string>> rows{{"  host", "process", "state", "units", "seconds"}};
    for (const WorkerStatus& worker : job.workers)
        rows.push_back({"  " + worker.host, std::to_string(worker.pid), state_of(worker),
                        std::to_string(worker.units), fmt::format("{:.1f}", worker.busy)});
    print(aligned(rows, 3));
}

}  // namespace

StatusCommand::StatusCommand(CLI::App& app) {
    app.add_option("DIR", directory, "--out of that command")->required()->type_name("");
}

int StatusCommand::run() const {
    const std::vector<JobStatus> jobs = job_status(directory);
    Json::Array all;
    for (const JobStatus& job : jobs) all.push_back(json_of(job));
    print_json_list("status", std::move(all));
    if (jobs.empty())
        print(fmt::format("{}: no command is under way there, and none was interrupted.\n",
                          printable(directory)));
    for (const JobStatus& job : jobs) print_job(job);
    return 0;
}

extern const CommandEntry status_command = {.name = "status",
                                            .about = "progress of a command of several processes",
                                            .examples = R"(Example:
  tsdiag status figures)",
                                            .make = made<StatusCommand>,
                                            .rewrites_folder = true};

}  // namespace tsdiag::cli
