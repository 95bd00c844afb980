#pragma once
#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tsdiag/report.hpp"
#include "tsdiag/run.hpp"

/// Options that several commands have, and the values of options.
namespace tsdiag::cli {

/// Of a command whose units several processes compute.
struct SplitOptions {
    Index part = 1, parts = 0;  ///< 0: not by --part
    bool mixed = false;         ///< of machines with different instruction sets
};

/// Of `probe`, and of each checkpoint of `watch`.
struct ProbeOptions {
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

/// An option whose text is parsed by `read`.
CLI::Option* value(CLI::App& app, const char* names, const char* metavariable,
                   const char* description, const std::function<void(const std::string&)>& read);
CLI::Option* text(CLI::App& app, const char* names, std::string& out, const char* metavariable,
                  const char* description);

/// --out: where a command writes.
CLI::Option* place(CLI::App& app, std::string& out, const char* metavariable,
                   const char* description);

// Groups of options that several commands have.

/// --part and --mixed; those of a `group`, unless it is null.
void add_split(CLI::App& app, SplitOptions& split, const char* group = nullptr);
/// How MODEL is opened: its configuration, heads, layout and the like.
void add_subject_options(CLI::App& app, SubjectOptions& subject);
/// MODEL, and how it is opened.
void add_subject(CLI::App& app, SubjectOptions& subject);
void add_input(CLI::App& app, RunOptions& run);
void add_measurement(CLI::App& app, RunOptions& run);
void add_trace(CLI::App& app, TraceOptions& trace);
void add_machine(CLI::App& app, ProbeOptions& probe);
void add_output(CLI::App& app, ProbeOptions& probe);
/// --style, and --figure-width or another name: how figures are drawn on paper.
void add_paper(CLI::App& app, FigureStyle& look, const char* width = "--figure-width");

// Values of options; each throws `UsageError` naming `option`.
constexpr Index no_limit = std::numeric_limits<Index>::max();
constexpr Index most_draws = 10'000'000;  ///< of samples and trials: vectors of them fit in memory
Index parse_count(const std::string& text, std::string_view option, Index least,
                  Index most = no_limit);
std::uint64_t parse_seed(const std::string& text, std::string_view option);
double parse_number(const std::string& text, std::string_view option);
/// Between 0 and 1, both excluded.
double parse_probability(const std::string& text, std::string_view option);
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
