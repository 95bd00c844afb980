#include "tsdiag/units.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <queue>
#include <random>

#include "tsdiag/run.hpp"

/// What units cost (keeping them, reading and replaying them), and how a cluster would share them.
///
///     units [FOLDER]
///
/// FOLDER: where units are kept during the measurement (default: a temporary folder).
namespace {

using namespace tsdiag;
using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

void speak(Index trial, Index values, Sink& out) {
    for (Index i = 0; i < values; ++i)
        out.scalar({.layer = i % 100, .stage = "out"}, i / 100 % 2 ? "t_sim" : "t_div",
                   double(trial) / double(i + 1));
}

/// `count` trials of so many values each: alone, kept, and merged by another process.
void measure(const std::string& folder, Index count, Index values) {
    const JobTitle title{{"figure"}, fmt::format("{} x {}", count, values), "none"};
    const auto trial = [&](Index i, Sink& out) { speak(i, values, out); };
    Clock::time_point start = Clock::now();
    Table alone;
    each_trial(count, alone, trial);
    const double without = since(start);
    start = Clock::now();
    {
        UnitStore store(folder, title);
        JobUnits units(store);
        Table table;
        each_trial(count, table, trial, {}, &units);
        store.flush("done");
    }
    const double with = since(start);
    start = Clock::now();
    UnitStore store(folder, title);
    store.read();
    const double reading = since(start);
    JobUnits units(store, true);
    Table merged;
    each_trial(count, merged, trial, {}, &units);
    const double merging = since(start);
    const bool equal = metrics_csv(alone.metrics()) == metrics_csv(merged.metrics());
    store.remove();
    fmt::print(
        "{:8} units of {:5} values: {:6.3f} s without units, kept {:6.3f} s ({:.1f} us a "
        "unit), merged {:.3f} s, of which reading {:.3f} s; tables {}\n",
        count, values, without, with, 1e6 * (with - without) / double(count), merging, reading,
        equal ? "equal" : "DIFFER");
}

/// Ranks that take units from one counter, which answers one request at a time.
struct Cluster {
    double service = 2e-6;   ///< seconds of the counter for a request
    double latency = 25e-5;  ///< until the answer arrives; the holder looks every 0.5 ms
    double start = 2;        ///< seconds to start a job
};

/// Share of the ranks' time that is spent on units which count, `dying` ranks failing at random:
/// each ends the job, which is started again with the units that are missing.
double efficiency(const Cluster& cluster, Index ranks, const std::vector<double>& costs,
                  Index dying, std::mt19937_64& random) {
    std::vector<bool> done(costs.size());
    double whole = 0, useful = 0;
    for (const double cost : costs) useful += cost;
    const double ideal = useful / double(ranks);
    for (Index death = dying; death >= 0; --death) {
        const double dies =
            death == 0 ? INFINITY
                       : std::uniform_real_distribution<double>(0, ideal / double(dying))(random);
        std::priority_queue<double, std::vector<double>, std::greater<>> free;  // when asked again
        for (Index r = 0; r < ranks; ++r) free.push(0);
        double counter = 0, last = 0;
        for (std::size_t unit = 0; unit < costs.size(); ++unit) {
            if (done[unit]) continue;
            const double asked = free.top();
            if (asked > dies) break;
            free.pop();
            counter = std::max(counter, asked) + cluster.service;
            const double finished = counter + cluster.latency + costs[unit];
            free.push(finished);
            if (finished > dies) continue;
            done[unit] = true;
            last = std::max(last, finished);
        }
        whole += cluster.start + (death == 0 ? last : std::min(dies, last));
    }
    return useful / (whole * double(ranks));
}

void simulate() {
    std::mt19937_64 random(1);
    fmt::print(
        "simulated: efficiency of the ranks, 100 units a rank (of which 1 % of the ranks "
        "die in brackets)\n{:>10}",
        "ranks");
    const std::vector<double> seconds = {0.001, 0.01, 0.1, 1, 10};
    for (const double s : seconds) fmt::print("{:>18}", fmt::format("units of {} s", s));
    fmt::print("\n");
    for (const Index ranks : {10, 100, 1000, 10000}) {
        fmt::print("{:10}", ranks);
        for (const double s : seconds) {
            // Trials of one model take alike; of several, not: a spread of a factor 2 both ways.
            std::lognormal_distribution<double> cost(std::log(s), std::log(2.0) / 2);
            auto costs = std::vector<double>(std::size_t(100 * ranks));
            for (double& c : costs) c = cost(random);
            Cluster cluster;
            cluster.start = 0;
            const double whole = efficiency(cluster, ranks, costs, 0, random);
            cluster.start = 2;
            // Each death restarts all: beyond a hundred, simulating them tells nothing more.
            const Index dying = std::min<Index>(ranks / 100, 100);
            const double broken =
                dying > 0 ? efficiency(cluster, ranks, costs, dying, random) : whole;
            fmt::print("{:>18}", fmt::format("{:.3f} ({:.3f})", whole, broken));
        }
        fmt::print("\n");
    }
}

}  // namespace

int main(int argc, char** argv) {
    const std::filesystem::path folder = argc > 1 ? std::filesystem::path(argv[1])
                                                  : std::filesystem::temp_directory_path() /
                                                        fmt::format("tsdiag-units-{}", getpid());
    measure(folder.string(), 1000, 1000);
    measure(folder.string(), 10000, 100);
    measure(folder.string(), 1000000, 1);
    simulate();
}
