#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "options.hpp"

/// The options of each command.
namespace tsdiag::cli {

/// An option whose text is parsed by `read`.
CLI::Option* value(CLI::App* app, const char* names, const char* metavariable,
                   const char* description, const std::function<void(const std::string&)>& read);
CLI::Option* text(CLI::App* app, const char* names, std::string& out, const char* metavariable,
                  const char* description);

// split_options.cpp
/// --part and --mixed; those of a `group`, unless it is null.
void add_split(CLI::App* app, SplitOptions& split, const char* group = nullptr);
void add_submit(CLI::App* app, SubmitCommand& submit);

// model_options.cpp
void add_subject_options(CLI::App* app, SubjectOptions& subject);
void add_subject(CLI::App* app, SubjectOptions& subject);
void add_input(CLI::App* app, RunOptions& run);
void add_measurement(CLI::App* app, RunOptions& run);
void add_trace(CLI::App* app, TraceOptions& trace);
void add_machine(CLI::App* app, ProbeCommand& probe);
void add_output(CLI::App* app, ProbeCommand& probe);
void add_train(CLI::App* app, TrainCommand& train);
void add_watch(CLI::App* app, WatchCommand& watch);

// paper_options.cpp
/// --style and --figure-width: how figures/ is drawn.
void add_paper(CLI::App* app, FigureStyle& look);

// study_options.cpp
void add_compare(CLI::App* app, CompareCommand& compare);
void add_figure(CLI::App* app, FigureCommand& figure);
void add_gradients(CLI::App* app, GradientsCommand& gradients);
void add_check(CLI::App* app, CheckCommand& check);

}  // namespace tsdiag::cli
