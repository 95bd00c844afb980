#include "options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <functional>

#include "tsdiag/error.hpp"

namespace tsdiag::cli {
namespace {

constexpr const char* probe_examples = R"(Examples:
  tsdiag probe examples/char-gpt
  tsdiag probe model.safetensors --input ids:ids.txt --tokens 256 --out result
  tsdiag probe random:bert-base --tokens 512 --probes core
  tsdiag probe examples/char-gpt --loss lm
  tsdiag probe runs/a --samples 8         checkpoint-500, checkpoint-1000, ... in runs/a
  tsdiag probe random:post-norm,d=512,heads=8,layers=20 --tokens 64 --trials 50
  tsdiag probe trace.npz --attention softmax --maps 0:0,5:3)";

constexpr const char* inspect_examples = R"(Examples:
  tsdiag inspect model.safetensors
  tsdiag inspect checkpoint.pt --json > checkpoint.json
  tsdiag inspect random:gpt2,layers=2)";

constexpr const char* init_examples = R"(Examples:
  tsdiag init random:gpt2,layers=24 -o gpt2-24
  tsdiag init random:bert-base --seed 7 -o bert-seed7)";

constexpr const char* list_examples = R"(Examples:
  tsdiag list metrics
  tsdiag list random)";

constexpr const char* report_examples = R"(Example:
  tsdiag report char-gpt.tsdiag)";

constexpr const char* train_examples = R"(Examples:
  tsdiag train random:gpt2,layers=2,d=64,heads=4 --data copy --tokens 33 --steps 500 -o run
  tsdiag train random:gpt2,layers=4,d=128,heads=4 --data chars:book.txt --probe-every 100 -o run
  tsdiag train random:deit-tiny,layers=6,image=32,patch=4 --data patterns -o run
  tsdiag train MODEL --data ... -o run --resume       after an interruption)";
constexpr const char* figure_examples = R"(Examples:
  tsdiag figure --list
  tsdiag figure                                every figure, in a few minutes
  tsdiag figure tse.fig3 --scale paper         1000 draws, as in the paper
  tsdiag figure tse.fig2 --reading var_v=h/d --trials 50
  tsdiag figure devil.fig2b --model examples/char-gpt)";

constexpr const char* gradients_examples = R"(Examples:
  tsdiag gradients trainer_state.json
  tsdiag gradients vanilla.csv linear.csv norm.csv --from 1000
  tsdiag gradients runs/a runs/b --tag train/total_norm -o compared)";

constexpr const char* check_examples = R"(Examples:
  tsdiag check                            every statement, with its own sizes
  tsdiag check devil.eq59 --n 2 --d 1     one, at chosen sizes
  tsdiag check tse --dist rademacher --trials 10000 --out checked
  tsdiag check poly.thm4.2 --range 32:1024
  tsdiag check --list)";

constexpr const char* program_footer = R"(Examples:
  tsdiag probe examples/char-gpt          every diagnostic, and a report
  tsdiag inspect model.safetensors        what is in a file, and what would be run
  tsdiag figure tse.fig2                  a figure of the papers, beside its claim
  tsdiag check tse                        the statements of a paper, examined
  tsdiag list random                      models that can be drawn

tsdiag COMMAND --help says more.
Exit codes: 0 done, 1 the input is at fault, 2 usage, 3 not available here, 4 a check failed,
130 interrupted.)";

/// An option whose text `read` understands.
CLI::Option* value(CLI::App* app, const char* names, const char* metavariable,
                   const char* description, const std::function<void(const std::string&)>& read) {
    return app->add_option_function<std::string>(names, read, description)->type_name(metavariable);
}

CLI::Option* text(CLI::App* app, const char* names, std::string& out, const char* metavariable,
                  const char* description) {
    return app->add_option(names, out, description)->type_name(metavariable);
}

Type parse_dtype(const std::string& word) {
    if (word == "f32" || word == "float32") return Type::f32;
    if (word == "f64" || word == "float64") return Type::f64;
    throw UsageError(fmt::format("--dtype: '{}' is not f32 or f64.", word));
}

Products parse_products(const std::string& word) {
    if (word == "tf32") return Products::tf32;
    if (word == "bf16") return Products::bf16;
    throw UsageError(fmt::format("--fast: '{}' is not tf32 or bf16.", word));
}

CLI::Option* fast(CLI::App* app, Products& products) {
    return value(app, "--fast", "TYPE",
                 "tf32 or bf16: float32 products of a device from rounded factors",
                 [&](const std::string& t) { products = parse_products(t); });
}

void add_subject_options(CLI::App* app, SubjectOptions& subject) {
    const auto group = [](CLI::Option* option) { option->group("Model"); };
    group(text(app, "--config", subject.config, "FILE", "config.json where it lies elsewhere"));
    group(value(app, "--n-heads", "N", "heads, where the file does not say",
                [&](const std::string& t) { subject.heads = parse_count(t, "--n-heads", 1); }));
    group(value(app, "--width", "N", "width, to accept a pruned file",
                [&](const std::string& t) { subject.width = parse_count(t, "--width", 1); }));
}

void add_subject(CLI::App* app, SubjectOptions& subject) {
    app->add_option("MODEL", subject.model,
                    "HF directory, checkpoint, trace, or random:NAME[,key=value...]")
        ->required()
        ->type_name("");
    add_subject_options(app, subject);
}

void add_input(CLI::App* app, RunOptions& run) {
    const auto group = [](CLI::Option* option) { option->group("Input"); };
    group(text(
        app, "--input", run.input, "KIND",
        "gaussian, ids:random, ids:FILE, embeddings:FILE.npy,\nhidden:FILE.npy or image:FILE.npy"));
    group(value(app, "--tokens", "N", "default: the model's longest, at most 512",
                [&](const std::string& t) { run.tokens = parse_count(t, "--tokens", 1); }));
    group(value(app, "--samples", "S", "inputs for the same weights",
                [&](const std::string& t) { run.samples = parse_count(t, "--samples", 1); }));
    group(value(app, "--trials", "T", "draws of a random model, each with new inputs",
                [&](const std::string& t) { run.trials = parse_count(t, "--trials", 1); }));
    group(value(app, "--seed", "K", "of everything drawn (default 0)",
                [&](const std::string& t) { run.seed = parse_seed(t, "--seed"); }));
    group(text(app, "--loss", run.loss, "LOSS",
               "adds gradients: lm, mlm[:ID], classify[:C], square or vjp"));
    group(text(app, "--labels", run.labels, "FILE", "of --loss classify, one a sample"));
    group(text(app, "--mask", run.mask, "FILE.npy", "(n) or (S, n), 1 = keep"));
}

void add_measurement(CLI::App* app, RunOptions& run) {
    const auto group = [](CLI::Option* option) { option->group("Measurement"); };
    group(
        value(app, "--layers", "A:B", "measured layers, both included", [&](const std::string& t) {
            std::tie(run.first_layer, run.last_layer) = parse_layers(t, "--layers");
        }));
    group(value(app, "--heads", "LIST", "measured heads, such as 0,3,8:11",
                [&](const std::string& t) { run.heads = parse_indices(t, "--heads"); }));
    group(value(app, "--probes", "NAMES", "core, all (default), or names (tsdiag list metrics)",
                [&](const std::string& t) { run.probes = split(t, ','); }));
    group(value(app, "--maps", "L:H,...", "attention maps to keep and draw",
                [&](const std::string& t) { run.maps = parse_maps(t, "--maps"); }));
    group(app->add_flag("--allow-nonfinite", run.allow_nonfinite, "NaN in the data become notes"));
}

void add_trace(CLI::App* app, TraceOptions& trace) {
    const auto group = [](CLI::Option* option) { option->group("Trace"); };
    group(text(app, "--attention", trace.attention, "NAME",
               "forms P from queries and keys, or says what P is"));
    group(app->add_flag("--causal", trace.causal, "queries see keys up to their own position"));
    group(value(app, "--scale", "X", "of the logits (default 1/sqrt(columns of a head))",
                [&](const std::string& t) { trace.scale = parse_number(t, "--scale"); }));
    group(value(app, "--a2", "X", "alpha^2 |W_V W_O|_F^2 / d (default 1)",
                [&](const std::string& t) { trace.a2 = parse_number(t, "--a2"); }));
}

void add_machine(CLI::App* app, ProbeCommand& probe) {
    const auto group = [](CLI::Option* option) { option->group("Machine"); };
    group(value(app, "--dtype", "TYPE", "f32 or f64 (default f32; a trace: its own)",
                [&](const std::string& t) { probe.run.dtype = parse_dtype(t); }));
    group(text(app, "--device", probe.run.device, "NAME", "auto, cpu, cuda or cuda:N"));
    group(fast(app, probe.run.products));
    group(value(app, "--memory", "SIZE", "such as 512M or 2G (default: half of the machine's)",
                [&](const std::string& t) { probe.run.memory = parse_size(t, "--memory"); }));
    group(value(app, "--threads", "N", "default: one a core", [&](const std::string& t) {
        probe.threads = parse_count(t, "--threads", 1, 1024);
    }));
}

void add_output(CLI::App* app, ProbeCommand& probe) {
    const auto group = [](CLI::Option* option) { option->group("Output"); };
    group(text(app, "-o,--out", probe.out, "DIR", "default: NAME.tsdiag"));
    group(app->add_flag("--no-report", probe.no_report, "tables alone"));
    group(app->add_flag("--force", probe.force, "write into a directory that holds other files"));
    group(app->add_flag("-q,--quiet", probe.quiet, "nothing but errors"));
    group(app->add_flag("-v,--verbose", probe.verbose,
                        "all that was recognised, ignored and assumed"));
}

ExperimentScale parse_scale(const std::string& word) {
    if (word == "quick") return ExperimentScale::quick;
    if (word == "paper") return ExperimentScale::paper;
    throw UsageError(fmt::format("--scale: '{}' is not quick or paper.", word));
}

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
        figure.readings["trials"] = std::to_string(parse_count(t, "--trials", 1));
    });
    text(app, "--model", figure.model, "PATH", "a checkpoint, for figures that take one");
    text(app, "--data", figure.data, "KIND",
         "for figures that train, as of tsdiag train (images:DIR)");
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
    value(app, "--block", "L", "neighbours drawn together (default: by the data)",
          [&](const std::string& t) { gradients.dispersion.block = parse_count(t, "--block", 1); });
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
    group(value(app, "--trials", "T", "draws of each (default: the claim's own)",
                [&](const std::string& t) { s.trials = parse_count(t, "--trials", 1); }));
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

void add_train(CLI::App* app, TrainCommand& train) {
    TrainOptions& o = train.train;
    add_subject(app, o.subject);
    const auto group = [](const char* name) {
        return [name](CLI::Option* option) { option->group(name); };
    };
    const auto count = [&](const char* names, const char* letter, const char* words, Index& out,
                           Index least) {
        return value(app, names, letter, words, [&out, names, least](const std::string& t) {
            out = parse_count(t, names, least);
        });
    };
    const auto number = [&](const char* names, const char* words, double& out) {
        return value(app, names, "X", words,
                     [&out, names](const std::string& t) { out = parse_number(t, names); });
    };
    const auto data = group("Data");
    data(text(
        app, "--data", o.data, "KIND",
        "text:FILE (bytes), chars:FILE (characters), images:DIR\n(CIFAR-10, CIFAR-100, MNIST), "
        "patterns[:CLASSES],\nmarkov[:SYMBOLS], copy[:SYMBOLS] or reverse[:SYMBOLS]"));
    data(text(app, "--loss", o.loss, "LOSS", "lm, mlm or classify; default: by the data"));
    data(count("--tokens", "N", "a sample's; default: the model's longest, at most 128", o.tokens,
               1));
    data(count("--batch", "B", "samples a step (default 8)", o.batch, 1));
    const auto rule = group("Optimiser");
    rule(count("--steps", "T", "updates (default 1000)", o.steps, 1));
    rule(number("--rate", "learning rate (default 1e-3)", o.schedule.rate));
    rule(value(app, "--schedule", "NAME", "cosine (default), constant, inverse-sqrt or multistep",
               [&](const std::string& t) { o.schedule.kind = schedule_named(t); }));
    rule(count("--warmup", "T", "steps of linear warm-up (default 0)", o.schedule.warmup, 0));
    rule(number("--floor", "of the cosine: share of the rate at its end", o.schedule.floor));
    rule(value(
        app, "--milestones", "LIST", "of multistep: steps, apart by commas",
        [&](const std::string& t) { o.schedule.milestones = parse_indices(t, "--milestones"); }));
    rule(number("--factor", "of multistep: at each milestone (default 0.1)", o.schedule.factor));
    rule(number("--weight-decay", "of matrices (default 0.01)", o.adam.decay));
    rule(number("--beta1", "default 0.9", o.adam.beta1));
    rule(number("--beta2", "default 0.999", o.adam.beta2));
    rule(number("--eps", "default 1e-8", o.adam.eps));
    rule(number("--clip", "greatest norm of the gradient (default 1; 0: none)", o.clip));
    rule(number("--dropout", "of the embedding and each branch (default 0)", o.dropout));
    rule(value(app, "--seed", "K", "of weights, samples and dropout (default 0)",
               [&](const std::string& t) { o.seed = parse_seed(t, "--seed"); }));
    const auto watch = group("Watching");
    watch(count("--eval-every", "T", "steps; default: at the end", o.eval_every, 1));
    watch(count("--eval-samples", "S", "held out (default 64)", o.eval_samples, 0));
    watch(count("--probe-every", "T", "steps; default: no probes", o.probe_every, 1));
    watch(count("--probe-samples", "S", "held out (default 1)", o.probe_samples, 1));
    watch(value(app, "--probes", "LIST", "core (default), all, or names (tsdiag list metrics)",
                [&](const std::string& t) { o.probes = split(t, ','); }));
    const auto machine = group("Machine");
    machine(text(app, "--device", o.device, "NAME", "auto, cpu, cuda or cuda:N"));
    machine(fast(app, o.products));
    machine(
        value(app, "--threads", "N", "default: one a core; results do not depend on it",
              [&](const std::string& t) { train.threads = parse_count(t, "--threads", 1, 1024); }));
    const auto output = group("Output");
    output(app->add_option_function<std::string>(
                  "-o,--out", [&](const std::string& t) { o.directory = t; },
                  "logs, checkpoints, report")
               ->type_name("DIR")
               ->required());
    output(count("--save-every", "T", "steps; default: at the end", o.save_every, 1));
    output(app->add_flag("--resume", o.resume, "go on from the last checkpoint of DIR"));
    output(app->add_flag("--force", train.force, "begin anew in a directory that holds files"));
    output(app->add_flag("-q,--quiet", train.quiet, "nothing but errors"));
    output(app->add_flag("-v,--verbose", train.verbose, "progress where there is no terminal"));
}

CLI::App* add_command(CLI::App& program, const char* name, const char* description,
                      const char* examples) {
    CLI::App* app = program.add_subcommand(name, description)->group("Commands");
    app->footer(examples);
    app->allow_extras();
    app->set_help_flag("-h,--help", "this text");
    return app;
}

/// "did you mean" for the first word that no option or argument took.
void refuse_extras(const CLI::App& program, const CLI::App& app) {
    const std::vector<std::string> extras = app.remaining();
    if (extras.empty()) return;
    const std::string word = extras.front().substr(0, extras.front().find('='));
    std::vector<std::string> known;
    const bool is_command = &app == &program && !word.starts_with('-');
    if (is_command)
        for (const CLI::App* sub : program.get_subcommands([](const CLI::App*) { return true; }))
            known.push_back(sub->get_name());
    else
        for (const CLI::Option* option : app.get_options()) {
            for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
            for (const std::string& name : option->get_snames()) known.push_back("-" + name);
        }
    const std::string near = word.size() > 2 ? nearest(word, known) : "";
    const std::string where = &app == &program ? "tsdiag" : "tsdiag " + app.get_name();
    throw UsageError(fmt::format("'{}' is no {} of {}; {}", word,
                                 is_command              ? "command"
                                 : word.starts_with('-') ? "option"
                                                         : "argument",
                                 where,
                                 near.empty() ? fmt::format("see {} --help.", where)
                                              : fmt::format("did you mean {}?", near)));
}

struct Parser {
    CLI::App program{"tsdiag " TSDIAG_VERSION
                     ": diagnoses transformers, in numbers that can be defended."};
    ProbeCommand probe;
    InspectCommand inspect;
    InitCommand init;
    ListCommand list;
    ReportCommand report;
    CheckCommand check;
    FigureCommand figure;
    TrainCommand train;
    GradientsCommand gradients;
    CLI::App *probe_app, *inspect_app, *init_app, *list_app, *info_app, *report_app, *check_app,
        *figure_app, *train_app, *gradients_app;

    Parser() {
        program.name("tsdiag");
        program.footer(program_footer);
        program.allow_extras();
        program.set_help_flag("-h,--help", "this text");
        program.set_version_flag("--version", std::string("tsdiag " TSDIAG_VERSION), "the version");
        const std::shared_ptr<CLI::FormatterBase> formatter = program.get_formatter();
        formatter->column_width(26);
        for (const auto& [from, to] : {std::pair{"OPTIONS", "options"},
                                       {"SUBCOMMAND", "COMMAND"},
                                       {"REQUIRED", ""},
                                       {"Positionals", "Arguments"}})
            formatter->label(from, to);

        probe_app = add_command(program, "probe", "every diagnostic of a model, and a report",
                                probe_examples);
        probe_app
            ->add_option("MODEL", probe.models,
                         "HF directory, checkpoint, trace, random:NAME[,key=value...];\nseveral "
                         "checkpoints of one training, or a directory of them")
            ->required()
            ->type_name("");
        add_subject_options(probe_app, probe.run.subject);
        value(probe_app, "--steps", "LIST", "of several checkpoints, where they do not say",
              [&](const std::string& t) { probe.steps = parse_steps(t, "--steps"); })
            ->group("Model");
        add_input(probe_app, probe.run);
        add_measurement(probe_app, probe.run);
        add_trace(probe_app, probe.run.trace);
        add_machine(probe_app, probe);
        add_output(probe_app, probe);

        figure_app = add_command(program, "figure",
                                 "figures of the papers, the claim beside what is measured",
                                 figure_examples);
        add_figure(figure_app, figure);

        train_app = add_command(program, "train", "a small training run, with probes on a schedule",
                                train_examples);
        add_train(train_app, train);

        gradients_app =
            add_command(program, "gradients", "how much the gradient norms of a training vary",
                        gradients_examples);
        add_gradients(gradients_app, gradients);

        inspect_app = add_command(program, "inspect", "tensors of a file, and what would be run",
                                  inspect_examples);
        add_subject(inspect_app, inspect.subject);
        value(inspect_app, "--seed", "K", "of a random model (default 0)",
              [&](const std::string& t) { inspect.seed = parse_seed(t, "--seed"); });
        inspect_app->add_flag("--json", inspect.json, "as JSON");

        init_app =
            add_command(program, "init", "writes a random model as a HF directory", init_examples);
        init_app->add_option("MODEL", init.model, "random:NAME[,key=value...]")
            ->required()
            ->type_name("");
        text(init_app, "-o,--out", init.out, "DIR", "the directory")->required();
        value(init_app, "--seed", "K", "of the weights (default 0)",
              [&](const std::string& t) { init.seed = parse_seed(t, "--seed"); });
        init_app->add_flag("--force", init.force, "write into a directory that holds other files");

        list_app = add_command(program, "list", "names that options take", list_examples);
        list_app->add_option("WHAT", list.what, fmt::format("{}", fmt::join(listed(), ", ")))
            ->required()
            ->type_name("");
        info_app = add_command(program, "info", "version, build, devices", "");
        report_app =
            add_command(program, "report", "makes report.html and figures/ again from the tables",
                        report_examples);
        report_app->add_option("DIR", report.directory, "what tsdiag probe wrote")
            ->required()
            ->type_name("");
        check_app =
            add_command(program, "check", "examines the statements of the papers", check_examples);
        add_check(check_app, check);
    }

    const CLI::App& chosen() const {
        const std::vector<CLI::App*> used = program.get_subcommands();
        return used.empty() ? program : *used.front();
    }

    std::string help() const {
        const CLI::App& app = chosen();
        std::string text = app.help(&app == &program ? "" : "tsdiag");
        for (std::size_t at; (at = text.find("\n\n\n")) != std::string::npos;) text.erase(at, 1);
        return text;
    }

    Command command() const {
        const CLI::App& app = chosen();
        refuse_extras(program, app);
        if (&app == probe_app) return probe;
        if (&app == inspect_app) return inspect;
        if (&app == init_app) return init;
        if (&app == list_app) return list;
        if (&app == info_app) return InfoCommand{};
        if (&app == report_app) return report;
        if (&app == check_app) return check;
        if (&app == figure_app) return figure;
        if (&app == train_app) return train;
        if (&app == gradients_app) return gradients;
        throw UsageError(
            fmt::format("a command is expected: probe, check, figure, train, gradients, inspect, "
                        "init, list, info or "
                        "report; "
                        "see tsdiag --help."));
    }
};

}  // namespace

Command parse(int argc, const char* const* argv) {
    Parser parser;
    try {
        parser.program.parse(argc, argv);
    } catch (const CLI::CallForHelp&) {
        return PrintCommand{parser.help()};
    } catch (const CLI::CallForVersion& version) {
        return PrintCommand{std::string(version.what()) + "\n"};
    } catch (const CLI::ParseError& error) {
        const CLI::App& app = parser.chosen();
        refuse_extras(parser.program, app);  // the likelier cause, where there is one
        const std::string where = &app == &parser.program ? "tsdiag" : "tsdiag " + app.get_name();
        throw UsageError(fmt::format("{}; see {} --help.", error.what(), where));
    }
    return parser.command();
}

}  // namespace tsdiag::cli
