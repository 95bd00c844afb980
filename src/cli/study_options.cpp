#include <fmt/format.h>

#include "command_options.hpp"
#include "tsdiag/error.hpp"

/// Options of the commands that study papers and logs: figure, check, gradients.
namespace tsdiag::cli {
namespace {

ExperimentScale parse_scale(const std::string& word) {
    if (word == "quick") return ExperimentScale::quick;
    if (word == "paper") return ExperimentScale::paper;
    throw UsageError(fmt::format("--scale: '{}' is not quick or paper.", word));
}

}  // namespace

void add_figure(CLI::App* app, FigureCommand& figure) {
    app->add_option("NAME", figure.names, "names of --list; default: all")->type_name("");
    app->add_flag("--list", figure.list, "what can be drawn, and from which paper");
    value(app, "--scale", "SCALE", "quick (default) or paper: sizes and numbers of trials",
          [&](const std::string& t) { figure.scale = parse_scale(t); });
    app->add_option_function<std::vector<std::string>>(
           "--reading",
           [&](const std::vector<std::string>& all) {
               for (const std::string& t : all) {
                   const auto [key, text] = parse_reading(t, "--reading");
                   if (!figure.readings.emplace(key, text).second)
                       throw UsageError(fmt::format("--reading: '{}' is given twice.", key));
               }
           },
           "a size or an interpretation (docs/experiments.md)")
        ->type_name("KEY=VALUE")
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->expected(1);
    value(app, "--trials", "T", "the same as --reading trials=T", [&](const std::string& t) {
        figure.readings["trials"] = std::to_string(parse_count(t, "--trials", 1, most_draws));
    });
    text(app, "--model", figure.model, "PATH", "a checkpoint, for figures that take one");
    text(app, "--data", figure.data, "KIND",
         "for figures that train, as of tsdiag train (images:DIR, or a folder)");
    value(app, "--seed", "K", "of everything drawn (default 0)",
          [&](const std::string& t) { figure.seed = parse_seed(t, "--seed"); });
    text(app, "--device", figure.device, "NAME", "auto, cpu, cuda or cuda:N");
    value(app, "--threads", "N", "default: one a core; results do not depend on it",
          [&](const std::string& t) { figure.threads = parse_count(t, "--threads", 1, 1024); });
    text(app, "-o,--out", figure.out, "DIR", "a folder a figure in it (default: figures)");
    app->add_flag("--force", figure.force, "write into directories that hold other files");
    app->add_flag("-q,--quiet", figure.quiet, "nothing but errors");
    app->add_flag("-v,--verbose", figure.verbose, "comparisons of every figure");
}

void add_gradients(CLI::App* app, GradientsCommand& gradients) {
    LogOptions& log = gradients.log;
    app->add_option("FILE", gradients.files,
                    "CSV, JSON lines, trainer_state.json, TensorBoard event file or\ndirectory")
        ->required()
        ->type_name("");
    text(app, "--column,--tag", log.column, "NAME", "of the series (default: by name)");
    text(app, "--step-column", log.step_column, "NAME", "of the steps (default: by name)");
    value(app, "--from", "STEP", "first step that counts",
          [&](const std::string& t) { log.first = parse_count(t, "--from", 0); });
    value(app, "--to", "STEP", "last step that counts",
          [&](const std::string& t) { log.last = parse_count(t, "--to", 0); });
    app->add_flag("--allow-nonfinite", log.allow_nonfinite, "NaN and infinity are left out");
    app->add_flag("--allow-truncated", log.allow_truncated,
                  "a record that is cut off at the end is left out");
    value(app, "--confidence", "C", "of the intervals (default 0.95)", [&](const std::string& t) {
        gradients.dispersion.confidence = parse_number(t, "--confidence");
    });
    value(app, "--resamples", "B", "of the bootstrap (default 2000)", [&](const std::string& t) {
        gradients.dispersion.resamples = parse_count(t, "--resamples", 100, 1000000);
    });
    value(app, "--seed", "K", "of the bootstrap (default 0)",
          [&](const std::string& t) { gradients.dispersion.seed = parse_seed(t, "--seed"); });
    const auto output = [](CLI::Option* option) { option->group("Output"); };
    output(text(app, "-o,--out", gradients.out, "DIR", "default: gradients.tsdiag"));
    output(app->add_flag("--no-report", gradients.no_report, "tables alone"));
    output(
        app->add_flag("--force", gradients.force, "write into a directory that holds other files"));
    output(app->add_flag("-q,--quiet", gradients.quiet, "nothing but errors"));
}

void add_check(CLI::App* app, CheckCommand& check) {
    CheckSettings& s = check.settings;
    app->add_option("NAME", check.names, "claims, or prefixes such as tse; default: all")
        ->type_name("");
    app->add_flag("--list", check.list, "names, statements, sources, sharp forms");
    app->add_flag("--markdown", check.markdown, "the list as docs/statements.md");
    const auto group = [](CLI::Option* option) { option->group("Examination"); };
    group(
        value(app, "--trials", "T", "draws of each (default: the claim's own)",
              [&](const std::string& t) { s.trials = parse_count(t, "--trials", 1, most_draws); }));
    group(value(app, "--seed", "K", "of everything drawn (default 0)",
                [&](const std::string& t) { s.seed = parse_seed(t, "--seed"); }));
    group(value(app, "--n", "N", "tokens",
                [&](const std::string& t) { s.n = parse_count(t, "--n", 1); }));
    group(value(app, "--d", "D", "width",
                [&](const std::string& t) { s.d = parse_count(t, "--d", 1); }));
    group(value(app, "--heads", "H", "heads; divides the width",
                [&](const std::string& t) { s.heads = parse_count(t, "--heads", 1); }));
    group(value(app, "--dist", "NAME", "gaussian, uniform, rademacher, torch or xavier",
                [&](const std::string& t) { s.distribution = distribution(t); }));
    group(value(app, "--range", "A:B", "sizes A, 2A, ... B that exponents are fitted over",
                [&](const std::string& t) { s.range = parse_doubling(t, "--range"); }));
    group(value(app, "--confidence", "C", "of all intervals together (default 0.95)",
                [&](const std::string& t) { s.confidence = parse_number(t, "--confidence"); }));
    group(value(app, "--trial", "T", "this trial alone, to see again what was found",
                [&](const std::string& t) { s.only = parse_count(t, "--trial", 0); }));
    group(value(app, "--threads", "N", "default: one a core", [&](const std::string& t) {
        check.threads = parse_count(t, "--threads", 1, 1024);
    }));
    const auto output = [](CLI::Option* option) { option->group("Output"); };
    output(text(app, "-o,--out", check.out, "DIR", "claims.csv, claims.json and a report"));
    output(app->add_flag("--strict", check.strict, "exit code 4 where something is violated"));
    output(app->add_flag("--force", check.force, "write into a directory that holds other files"));
    output(app->add_flag("-q,--quiet", check.quiet, "nothing but errors"));
}
}  // namespace tsdiag::cli
