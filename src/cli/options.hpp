#pragma once
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tsdiag/claim.hpp"
#include "tsdiag/cluster.hpp"
#include "tsdiag/comparison.hpp"
#include "tsdiag/experiment.hpp"
#include "tsdiag/report.hpp"
#include "tsdiag/run.hpp"
#include "tsdiag/train.hpp"
#include "tsdiag/training_log.hpp"
#include "tsdiag/watch.hpp"

namespace tsdiag::cli {

/// Of a command whose units several processes compute.
struct SplitOptions {
    Index part = 1, parts = 0;  ///< 0: not by --part
    bool mixed = false;         ///< of machines with different instruction sets
};

struct ProbeCommand {
    std::vector<std::string> models;  ///< several: checkpoints of one training
    std::vector<Index> steps;         ///< of the checkpoints; empty: read from them
    RunOptions run;
    SplitOptions split;
    std::string out;  ///< empty: derived from the name of the model
    Index threads = 0;
    bool force = false, no_report = false, quiet = false, verbose = false;
    bool profile = false;  ///< tell what the time was spent on
    FigureStyle look;
};
struct WatchCommand {
    std::string directory;
    ProbeCommand probe;  ///< how each checkpoint is measured
    WatchOptions alarms;
    std::string on_alarm;  ///< of a shell; empty: none
    double every = 30;     ///< seconds between looks
    double settle = 10;    ///< seconds without a write, after which a checkpoint is complete
    bool once = false;
};
struct InspectCommand {
    SubjectOptions subject;
    std::uint64_t seed = 0;
};
struct InitCommand {
    std::string model, out;
    std::uint64_t seed = 0;
    bool force = false;
};
struct ListCommand {
    std::string what;
};
struct InfoCommand {};
struct ReportCommand {
    std::string directory;
    FigureStyle look;
};
struct ExportCommand {
    std::string directory;
    std::string to, out;  ///< `out` empty: standard output
    bool force = false;
};
struct CompareCommand {
    std::vector<std::string> results, assertions;
    ComparisonOptions options;
    std::string out;  ///< empty: no files
    bool force = false, quiet = false;
    FigureStyle look;
};
struct FigureCommand {
    std::vector<std::string> names;  ///< empty: all
    bool list = false;
    ExperimentScale scale = ExperimentScale::quick;
    std::map<std::string, std::string> readings;
    SplitOptions split;
    std::string model, data, device = "auto", out = "figures";
    std::uint64_t seed = 0;
    Index threads = 0;
    bool force = false, quiet = false, verbose = false;
    FigureStyle look;
};
struct GradientsCommand {
    std::vector<std::string> files;
    LogOptions log;
    DispersionOptions dispersion;
    std::string out = "gradients.tsdiag";
    bool force = false, no_report = false, quiet = false;
    FigureStyle look;
};
struct CheckCommand {
    std::vector<std::string> names;
    CheckSettings settings;
    SplitOptions split;
    std::string out;  ///< empty: no files
    Index threads = 0;
    bool list = false, markdown = false, strict = false, force = false, quiet = false;
    FigureStyle look;
};
struct TrainCommand {
    TrainOptions train;
    Index threads = 0;
    bool force = false, quiet = false, verbose = false;
    FigureStyle look;
};
struct MergeCommand {
    std::string directory;
};
struct StatusCommand {
    std::string directory;
};
struct SubmitCommand {
    std::vector<std::string> words;  ///< the command, with its options
    SubmitOptions slurm;
    bool dry_run = false;
};
struct TraceHookCommand {
    std::string file;  ///< a Python source with the modules; empty: none
};
struct PrintCommand {
    std::string text;
    std::string of = {};  ///< the command that prints it; empty: help or version
    std::string folder = {};
    std::vector<std::pair<std::string, std::string>> files = {};  ///< in `folder`: name and text
};

using Command =
    std::variant<ProbeCommand, WatchCommand, InspectCommand, InitCommand, ListCommand, InfoCommand,
                 ReportCommand, ExportCommand, CheckCommand, CompareCommand, FigureCommand,
                 TrainCommand, GradientsCommand, MergeCommand, StatusCommand, SubmitCommand,
                 TraceHookCommand, PrintCommand>;

/// The only parser of argv.  Throws `UsageError` with the nearest command or option.  `json`, where
/// given, receives whether --json is among the words.
Command parse(int argc, const char* const* argv, bool* json = nullptr);

/// The arguments of `tsdiag list`.
const std::vector<std::string>& listed();

// Values of options; each throws `UsageError` naming `option`.
constexpr Index no_limit = std::numeric_limits<Index>::max();
constexpr Index most_draws = 10'000'000;  ///< of samples and trials: vectors of them fit in memory
Index parse_count(const std::string& text, std::string_view option, Index least,
                  Index most = no_limit);
std::uint64_t parse_seed(const std::string& text, std::string_view option);
double parse_number(const std::string& text, std::string_view option);
Index parse_size(const std::string& text, std::string_view option);  ///< "512M": powers of 1024
/// "A:B", "A:", ":B", "A": inclusive; -1 for a missing last one.
std::pair<Index, Index> parse_layers(const std::string& text, std::string_view option);
std::vector<Index> parse_steps(const std::string& text, std::string_view option);    ///< "100,200"
std::vector<Index> parse_indices(const std::string& text, std::string_view option);  ///< "0,3,8:11"
std::vector<std::pair<Index, Index>> parse_maps(const std::string& text, std::string_view option);
std::pair<std::string, std::string> parse_reading(const std::string& text,
                                                  std::string_view option);  ///< "KEY=VALUE"
/// "I/N": part I of N.
std::pair<Index, Index> parse_fraction(const std::string& text, std::string_view option);
/// "A:B": A, 2 A, 4 A, ... up to B.
std::vector<Index> parse_doubling(const std::string& text, std::string_view option);

}  // namespace tsdiag::cli
