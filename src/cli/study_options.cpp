#include <fmt/format.h>

#include <tuple>

#include "command_options.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/text.hpp"

/// Options of the commands that study papers and logs: figure, check, compare, gradients.
namespace tsdiag::cli {
namespace {

ExperimentScale parse_scale(const std::string& word) {
    if (word == "quick") return ExperimentScale::quick;
    if (word == "paper") return ExperimentScale::paper;
    throw UsageError(fmt::format("--scale: '{}' is not quick or paper.", word));
}

}  // namespace

void add_figure(CLI::App* app, FigureCommand& figure) {
    app->add_option("NAME", figure.names,
                    "names from --list, or tse, devil, poly, law (default: all)")
        ->type_name("");
    app->add_flag("--list", figure.list, "list the figures and their papers");
    value(app, "--scale", "SCALE", "quick (default) or paper: sizes and number of trials",
          [&](const std::string& t) { figure.scale = parse_scale(t); });
    app->add_option_function<std::vector<std::string>>(
           "--reading",
           [&](const std::vector<std::string>& all) {
               for (const std::string& t : all) {
                   const auto [key, text] = parse_reading(t, "--reading");
                   if (!figure.readings.emplace(key, text).second)
                       throw UsageError(fmt::format("--reading: '{}' was given twice.", key));
               }
           },
           "a size or an interpretation (docs/experiments.md)")
        ->type_name("KEY=VALUE")
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->expected(1);
    value(app, "--trials", "T", "the same as --reading trials=T", [&](const std::string& t) {
        figure.readings["trials"] = std::to_string(parse_count(t, "--trials", 1, most_draws));
    });
    text(app, "--model", figure.model, "PATH", "a checkpoint, for figures that use one");
    text(app, "--data", figure.data, "KIND",
         "data for figures that train, as in tsdiag train (images:DIR,\nor a folder)");
    value(app, "--seed", "K", "random seed (default 0)",
          [&](const std::string& t) { figure.seed = parse_seed(t, "--seed"); });
    text(app, "--device", figure.device, "NAME", "auto, cpu, cuda or cuda:N");
    value(app, "--threads", "N", "threads (default: one per core); results do not depend on it",
          [&](const std::string& t) { figure.threads = parse_count(t, "--threads", 1, 1024); });
    add_split(app, figure.split);
    text(app, "-o,--out", figure.out, "DIR",
         "output directory, one folder per figure (default: figures)");
    add_paper(app, figure.look);
    app->add_flag("--force", figure.force, "write into directories that contain other files");
    app->add_flag("-q,--quiet", figure.quiet, "print errors only");
    app->add_flag("-v,--verbose", figure.verbose, "print the comparisons of every figure");
}

void add_compare(CLI::App* app, CompareCommand& compare) {
    RowChoice& choice = compare.options.choice;
    app->add_option(
           "RESULT", compare.results,
           "folders of tsdiag probe or train, the first is what the others are compared\n"
           "with; DIR@STEP, DIR:LAYER and DIR:LAYER.HEAD are parts (LAYER: a number, last)")
        ->required()
        ->type_name("");
    app->add_option("--assert", compare.assertions,
                    "exit with code 4 unless it holds: METRIC@STAGE:LAYER.HEAD < NUMBER, with\n"
                    "LAYER a number, last, max, min or mean; B: or B-A: in front (repeatable)")
        ->type_name("TEXT")
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->expected(1);
    value(app, "--layers", "A:B", "compare these layers only", [&](const std::string& t) {
        choice.layers = true;
        std::tie(choice.first_layer, choice.last_layer) = parse_layers(t, "--layers");
    });
    value(app, "--heads", "LIST", "compare these heads (0,3,8:11 or all), not means over heads",
          [&](const std::string& t) {
              choice.all_heads = t == "all";
              if (!choice.all_heads) choice.heads = parse_indices(t, "--heads");
          });
    value(app, "--metrics", "LIST", "compare these metrics only",
          [&](const std::string& t) { choice.metrics = split(t, ','); });
    value(app, "--fdr", "Q", "false-discovery rate (default 0.05)",
          [&](const std::string& t) { compare.options.rate = parse_number(t, "--fdr"); });
    const auto output = [](CLI::Option* option) { option->group("Output"); };
    output(text(app, "-o,--out", compare.out, "DIR",
                "output directory for compare.csv, run.json and a report"));
    add_paper(app, compare.look);
    output(app->add_flag("--force", compare.force,
                         "write into a directory that contains other files"));
    output(app->add_flag("-q,--quiet", compare.quiet, "print failed assertions and errors only"));
}

void add_gradients(CLI::App* app, GradientsCommand& gradients) {
    LogOptions& log = gradients.log;
    app->add_option("FILE", gradients.files,
                    "CSV, JSON lines, trainer_state.json, TensorBoard event file or\ndirectory")
        ->required()
        ->type_name("");
    text(app, "--column,--tag", log.column, "NAME", "column of the series (default: by name)");
    text(app, "--step-column", log.step_column, "NAME", "column of the steps (default: by name)");
    value(app, "--from", "STEP", "first step to use",
          [&](const std::string& t) { log.first = parse_count(t, "--from", 0); });
    value(app, "--to", "STEP", "last step to use",
          [&](const std::string& t) { log.last = parse_count(t, "--to", 0); });
    app->add_flag("--allow-nonfinite", log.allow_nonfinite, "skip NaN and infinity");
    app->add_flag("--allow-truncated", log.allow_truncated, "skip a truncated record at the end");
    value(app, "--confidence", "C", "confidence of the intervals (default 0.95)",
          [&](const std::string& t) {
              gradients.dispersion.confidence = parse_number(t, "--confidence");
          });
    value(app, "--resamples", "B", "resamples of the bootstrap (default 2000)",
          [&](const std::string& t) {
              gradients.dispersion.resamples = parse_count(t, "--resamples", 100, 1000000);
          });
    value(app, "--seed", "K", "random seed of the bootstrap (default 0)",
          [&](const std::string& t) { gradients.dispersion.seed = parse_seed(t, "--seed"); });
    const auto output = [](CLI::Option* option) { option->group("Output"); };
    output(text(app, "-o,--out", gradients.out, "DIR",
                "output directory (default: gradients.tsdiag)"));
    add_paper(app, gradients.look);
    output(app->add_flag("--no-report", gradients.no_report, "write tables only, no report"));
    output(app->add_flag("--force", gradients.force,
                         "write into a directory that contains other files"));
    output(app->add_flag("-q,--quiet", gradients.quiet, "print errors only"));
}

void add_check(CLI::App* app, CheckCommand& check) {
    CheckSettings& s = check.settings;
    app->add_option("NAME", check.names, "claims, or prefixes such as tse (default: all)")
        ->type_name("");
    app->add_flag("--list", check.list, "list names, statements, sources and sharp forms");
    app->add_flag("--markdown", check.markdown, "print docs/statements.md");
    const auto group = [](CLI::Option* option) { option->group("Examination"); };
    group(
        value(app, "--trials", "T", "draws per claim (default: the claim's own)",
              [&](const std::string& t) { s.trials = parse_count(t, "--trials", 1, most_draws); }));
    group(value(app, "--seed", "K", "random seed (default 0)",
                [&](const std::string& t) { s.seed = parse_seed(t, "--seed"); }));
    group(value(app, "--n", "N", "tokens",
                [&](const std::string& t) { s.n = parse_count(t, "--n", 1); }));
    group(value(app, "--d", "D", "width",
                [&](const std::string& t) { s.d = parse_count(t, "--d", 1); }));
    group(value(app, "--heads", "H", "number of heads, a divisor of the width",
                [&](const std::string& t) { s.heads = parse_count(t, "--heads", 1); }));
    group(value(app, "--dist", "NAME",
                "distribution of the entries: gaussian, uniform, rademacher, torch\nor xavier",
                [&](const std::string& t) { s.distribution = distribution(t); }));
    group(value(app, "--range", "A:B", "sizes A, 2A, ... B to fit exponents over",
                [&](const std::string& t) { s.range = parse_doubling(t, "--range"); }));
    group(value(app, "--confidence", "C", "joint confidence of all intervals (default 0.95)",
                [&](const std::string& t) { s.confidence = parse_number(t, "--confidence"); }));
    group(value(app, "--trial", "T", "run only this trial, to reproduce a result",
                [&](const std::string& t) { s.only = parse_count(t, "--trial", 0); }));
    group(
        value(app, "--threads", "N", "number of threads (default: one per core)",
              [&](const std::string& t) { check.threads = parse_count(t, "--threads", 1, 1024); }));
    add_split(app, check.split, "Examination");
    const auto output = [](CLI::Option* option) { option->group("Output"); };
    output(text(app, "-o,--out", check.out, "DIR",
                "output directory for claims.csv, claims.json and a report"));
    add_paper(app, check.look);
    output(app->add_flag("--strict", check.strict,
                         "exit with code 4 if a statement is false,\n5 if one is not decided"));
    output(
        app->add_flag("--force", check.force, "write into a directory that contains other files"));
    output(app->add_flag("-q,--quiet", check.quiet, "print errors only"));
}
}  // namespace tsdiag::cli
