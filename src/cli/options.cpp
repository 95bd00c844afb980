#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "command_options.hpp"
#include "manual.hpp"
#include "settings_file.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/output.hpp"
#include "tsdiag/text.hpp"
#include "version.hpp"

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

constexpr const char* watch_examples = R"(Examples:
  tsdiag watch runs/a --samples 8 --out watched     open watched/report.html in a browser
  tsdiag watch runs/a --assert "t_sim@out:last < 0.9" --on-alarm 'mail -s "$TSDIAG_ALARM" me'
  tsdiag watch runs/a --once                        for cron; exits 4 where there is an alarm)";

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

constexpr const char* export_examples = R"(Examples:
  tsdiag export char-gpt.tsdiag --to jsonl --out char-gpt.jsonl
  tsdiag export result --to jsonl | head -n 1
  tsdiag export result --to parquet --out tables          metrics.parquet, curves.parquet
  tsdiag export run.tsdiag --to tensorboard --out logs    tensorboard --logdir logs)";

constexpr const char* compare_examples = R"(Examples:
  tsdiag compare before after                       what changed beyond scatter
  tsdiag compare run@100 run@500 --out compared     two checkpoints of a series, with a page
  tsdiag compare result:0 result:last               two layers
  tsdiag compare base new --heads all --metrics delta,row_max
  tsdiag compare run --assert "t_sim@out:last < 0.9"     exits 4 where that is false
  tsdiag compare base new --assert "B-A: t_sim@out:max < 0.05")";

constexpr const char* train_examples = R"(Examples:
  tsdiag train random:gpt2,layers=2,d=64,heads=4 --data copy --tokens 33 --steps 500 -o run
  tsdiag train random:gpt2,layers=4,d=128,heads=4 --data chars:book.txt --probe-every 100 -o run
  tsdiag train random:deit-tiny,layers=6,image=32,patch=4 --data patterns -o run
  tsdiag train MODEL --data ... -o run --resume       after an interruption)";
constexpr const char* figure_examples = R"(Examples:
  tsdiag figure --list
  tsdiag figure                                every figure, in about 15 minutes
  tsdiag figure tse.fig3 --scale paper         1000 draws, as in the paper
  tsdiag figure tse.fig2 --reading var_v=h/d --trials 50
  tsdiag figure devil.fig2b --model examples/char-gpt)";

constexpr const char* gradients_examples = R"(Examples:
  tsdiag gradients trainer_state.json
  tsdiag gradients vanilla.csv linear.csv norm.csv --from 1000
  tsdiag gradients runs/a runs/b --tag train/total_norm -o compared)";

constexpr const char* check_examples = R"(Examples:
  tsdiag check                            every statement, at its default sizes
  tsdiag check devil.eq59 --n 2 --d 1     one statement, at chosen sizes
  tsdiag check tse --dist rademacher --trials 10000 --out checked
  tsdiag check poly.thm4.2 --range 32:1024
  tsdiag check --list)";

constexpr const char* completion_examples = R"(Examples:
  source <(tsdiag completion bash)
  tsdiag completion fish | source)";

constexpr const char* manual_examples = R"(Examples:
  tsdiag manual probe | man -l -
  tsdiag manual --out man1              a file for every command)";

constexpr const char* merge_examples = R"(Example:
  tsdiag figure tse.fig3 --scale paper --part 1/8    on eight machines, 1/8 to 8/8
  tsdiag merge figures)";

constexpr const char* status_examples = R"(Example:
  tsdiag status figures)";

constexpr const char* trace_hook_examples = R"(Examples:
  tsdiag trace-hook                    for any module; says what to put in
  tsdiag trace-hook model.py >> run.py    with the names of its modules, guessed)";

constexpr const char* submit_examples = R"(Examples:
  tsdiag submit --nodes 8 --time 2:00:00 figure tse.fig3 --scale paper
  tsdiag submit --array 16 probe runs/a --samples 64 --out result
  tsdiag submit --dry-run --nodes 2 check          shows the script only)";

constexpr const char* program_footer = R"(Examples:
  tsdiag probe examples/char-gpt          every diagnostic, and a report
  tsdiag inspect model.safetensors        what a file contains, and what would be run
  tsdiag figure tse.fig2                  a figure of the papers, next to its claim
  tsdiag check tse                        check the statements of a paper
  tsdiag list random                      models that can be drawn

See tsdiag COMMAND --help for details.
Exit codes: 0 success, 1 invalid input, 2 usage error, 3 not available here,
4 a check or an assertion failed, 5 a strict check was not decided, 130 interrupted.)";

/// Names that the argument of a command accepts.
std::vector<Candidates> candidates() {
    std::vector<std::string> figures, checks, random;
    for (const ExperimentEntry* entry : experiments()) figures.emplace_back(entry->name);
    for (const Claim* claim : claims()) checks.emplace_back(claim->name);
    for (const ArchitectureEntry* entry : architectures())
        if (entry->random_names)
            for (const std::string_view name : entry->random_names())
                random.push_back(fmt::format("random:{}", name));
    std::vector<Candidates> all = {{"figure", figures},
                                   {"check", checks},
                                   {"list", listed()},
                                   {"completion", {"bash", "zsh", "fish"}}};
    for (const char* command : {"probe", "inspect", "init", "train"})
        all.push_back({command, random});
    return all;
}

CLI::App* add_command(CLI::App& program, const char* name, const char* description,
                      const char* examples) {
    CLI::App* app = program.add_subcommand(name, description)->group("Commands");
    app->footer(examples);
    app->allow_extras();
    app->set_help_flag("-h,--help", "print this help");
    return app;
}

/// "did you mean" for the first unrecognised word.
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
    throw UsageError(fmt::format("'{}' is not a known {} of {}; {}", word,
                                 is_command              ? "command"
                                 : word.starts_with('-') ? "option"
                                                         : "argument",
                                 where,
                                 near.empty() ? fmt::format("see {} --help.", where)
                                              : fmt::format("did you mean {}?", near)));
}

struct Parser {
    CLI::App program{"tsdiag " TSDIAG_VERSION ": diagnostics for transformers, with error bounds."};
    ProbeCommand probe;
    WatchCommand watch;
    InspectCommand inspect;
    InitCommand init;
    ListCommand list;
    ReportCommand report;
    ExportCommand exported;
    CheckCommand check;
    FigureCommand figure;
    CompareCommand compare;
    TrainCommand train;
    GradientsCommand gradients;
    MergeCommand merge;
    StatusCommand status;
    SubmitCommand submit;
    TraceHookCommand trace_hook;
    std::string shell, manual_of, manual_folder;
    bool print_settings = false, json = false;
    CLI::App *probe_app, *watch_app, *inspect_app, *init_app, *list_app, *info_app, *report_app,
        *check_app, *compare_app, *figure_app, *train_app, *gradients_app, *completion_app,
        *manual_app, *merge_app, *status_app, *submit_app, *export_app, *trace_hook_app;

    Parser() {
        program.name("tsdiag");
        program.footer(program_footer);
        program.allow_extras();
        program.require_subcommand(0, 1);  // a second name of a command is an argument of the first
        program.set_help_flag("-h,--help", "print this help");
        program.set_version_flag("--version", version(), "print the version");
        const std::shared_ptr<CLI::FormatterBase> formatter = program.get_formatter();
        formatter->column_width(26);
        for (const auto& [from, to] : {std::pair{"OPTIONS", "options"},
                                       {"SUBCOMMAND", "COMMAND"},
                                       {"REQUIRED", ""},
                                       {"Positionals", "Arguments"}})
            formatter->label(from, to);

        probe_app =
            add_command(program, "probe", "measure every diagnostic of a model and write a report",
                        probe_examples);
        probe_app
            ->add_option("MODEL", probe.models,
                         "Hugging Face directory, checkpoint, trace,\nrandom:NAME[,key=value...]; "
                         "several checkpoints\nof one training, or a directory of them")
            ->required()
            ->type_name("");
        add_subject_options(probe_app, probe.run.subject);
        value(probe_app, "--steps", "LIST", "steps of several checkpoints, if the files do not say",
              [&](const std::string& t) { probe.steps = parse_steps(t, "--steps"); })
            ->group("Model");
        add_input(probe_app, probe.run);
        add_measurement(probe_app, probe.run);
        add_trace(probe_app, probe.run.trace);
        add_machine(probe_app, probe);
        add_split(probe_app, probe.split, "Machine");
        add_output(probe_app, probe);

        watch_app = add_command(program, "watch", "measure checkpoints as they appear, with alarms",
                                watch_examples);
        add_watch(watch_app, watch);

        figure_app = add_command(program, "figure",
                                 "figures of the papers, each claim next to the measurement",
                                 figure_examples);
        add_figure(figure_app, figure);

        train_app = add_command(program, "train", "train a small model, with probes on a schedule",
                                train_examples);
        add_train(train_app, train);

        gradients_app =
            add_command(program, "gradients", "how much gradient norms vary during training",
                        gradients_examples);
        add_gradients(gradients_app, gradients);

        inspect_app =
            add_command(program, "inspect", "list the tensors of a file, and what would be run",
                        inspect_examples);
        add_subject(inspect_app, inspect.subject);
        value(inspect_app, "--seed", "K", "random seed of a random model (default 0)",
              [&](const std::string& t) { inspect.seed = parse_seed(t, "--seed"); });

        init_app = add_command(program, "init", "write a random model as a Hugging Face directory",
                               init_examples);
        init_app->add_option("MODEL", init.model, "random:NAME[,key=value...]")
            ->required()
            ->type_name("");
        text(init_app, "-o,--out", init.out, "DIR", "output directory")->required();
        value(init_app, "--seed", "K", "random seed of the weights (default 0)",
              [&](const std::string& t) { init.seed = parse_seed(t, "--seed"); });
        init_app->add_flag("--force", init.force,
                           "write into a directory that contains other files");

        list_app =
            add_command(program, "list", "list the names that options accept", list_examples);
        list_app->add_option("WHAT", list.what, fmt::format("{}", fmt::join(listed(), ", ")))
            ->required()
            ->type_name("");
        info_app = add_command(program, "info", "show version, build and devices", "");
        report_app = add_command(
            program, "report", "rebuild report.html and figures/ from the tables", report_examples);
        report_app->add_option("DIR", report.directory, "directory written by tsdiag probe")
            ->required()
            ->type_name("");
        add_paper(report_app, report.look);
        export_app = add_command(
            program, "export", "write the numbers of a result for other programs", export_examples);
        export_app->add_option("DIR", exported.directory, "directory written by tsdiag")
            ->required()
            ->type_name("");
        text(export_app, "--to", exported.to, "FORMAT",
             "jsonl, parquet or tensorboard (docs/export.md)")
            ->required();
        text(export_app, "-o,--out", exported.out, "PATH",
             "output file of jsonl (default: standard output), or the directory");
        export_app->add_flag("--force", exported.force, "replace an existing file");
        compare_app =
            add_command(program, "compare", "what differs between results, and assertions on them",
                        compare_examples);
        add_compare(compare_app, compare);
        check_app =
            add_command(program, "check", "check the statements of the papers", check_examples);
        add_check(check_app, check);
        merge_app = add_command(program, "merge", "make the result of a command run by --part",
                                merge_examples);
        merge_app->add_option("DIR", merge.directory, "--out of that command")
            ->required()
            ->type_name("");
        status_app = add_command(program, "status", "progress of a command of several processes",
                                 status_examples);
        status_app->add_option("DIR", status.directory, "--out of that command")
            ->required()
            ->type_name("");
        submit_app =
            add_command(program, "submit", "run a command as a job of Slurm", submit_examples);
        add_submit(submit_app, submit);
        trace_hook_app = add_command(
            program, "trace-hook", "print lines of Python that save a trace of any PyTorch module",
            trace_hook_examples);
        trace_hook_app
            ->add_option("FILE", trace_hook.file,
                         "Python source of the module, whose names are guessed")
            ->type_name("");
        completion_app =
            add_command(program, "completion", "print a script that completes commands in a shell",
                        completion_examples);
        completion_app->add_option("SHELL", shell, "bash, zsh or fish")->required()->type_name("");
        manual_app = add_command(program, "manual", "print a manual page", manual_examples);
        manual_app->add_option("COMMAND", manual_of, "a command (default: tsdiag itself)")
            ->type_name("");
        text(manual_app, "-o,--out", manual_folder, "DIR", "write all pages into a directory");
        for (CLI::App* app : {probe_app, watch_app, check_app, figure_app, train_app, gradients_app,
                              inspect_app, init_app})
            add_settings(app, print_settings);
        for (CLI::App* app : program.get_subcommands([](const CLI::App*) { return true; }))
            app->add_flag("--json", json, "print JSON (docs/json.md)");
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

    std::string completion_script() const {
        const std::string script = completion(program, candidates(), shell);
        if (script.empty()) throw UsageError(fmt::format("'{}' is not bash, zsh or fish.", shell));
        return script;
    }

    /// One page, or the files that hold all of them, and their names.
    PrintCommand manual() const {
        const std::vector<const CLI::App*> commands =
            program.get_subcommands([](const CLI::App*) { return true; });
        PrintCommand out{.text = {}, .of = "manual", .folder = manual_folder, .files = {}};
        const auto add = [&](const CLI::App& app, const std::string& name) {
            out.files.emplace_back(name + ".1", manual_page(app, program));
            out.text +=
                (std::filesystem::path(manual_folder) / out.files.back().first).string() + "\n";
        };
        if (!manual_folder.empty()) {
            add(program, "tsdiag");
            for (const CLI::App* command : commands) add(*command, "tsdiag-" + command->get_name());
            return out;
        }
        const auto found = std::ranges::find(
            commands, manual_of, [](const CLI::App* command) { return command->get_name(); });
        if (!manual_of.empty() && found == commands.end())
            throw UsageError(
                fmt::format("'{}' is not a command of tsdiag; see tsdiag --help.", manual_of));
        out.text = manual_page(manual_of.empty() ? program : **found, program);
        return out;
    }

    Command command() const {
        const CLI::App& app = chosen();
        refuse_extras(program, app);
        if (print_settings) return PrintCommand{.text = settings_text(app)};
        if (&app == probe_app) return probe;
        if (&app == watch_app) return watch;
        if (&app == inspect_app) return inspect;
        if (&app == init_app) return init;
        if (&app == list_app) return list;
        if (&app == info_app) return InfoCommand{};
        if (&app == report_app) return report;
        if (&app == export_app) return exported;
        if (&app == check_app) return check;
        if (&app == compare_app) return compare;
        if (&app == figure_app) return figure;
        if (&app == train_app) return train;
        if (&app == gradients_app) return gradients;
        if (&app == merge_app) return merge;
        if (&app == status_app) return status;
        if (&app == submit_app) return submit;
        if (&app == trace_hook_app) return trace_hook;
        if (&app == completion_app)
            return PrintCommand{.text = completion_script(), .of = "completion"};
        if (&app == manual_app) return manual();
        std::vector<std::string> names;
        for (const CLI::App* one : program.get_subcommands([](const CLI::App*) { return true; }))
            names.push_back(one->get_name());
        throw UsageError(
            fmt::format("expected a command: {}; see tsdiag --help.", fmt::join(names, ", ")));
    }
};

/// What exists of that which the options of a command name to be read.  `report`, `merge` and
/// `status` take the folder that they write.
std::vector<std::filesystem::path> inputs_of(const CLI::App& app) {
    constexpr std::string_view kinds[] = {"MODEL", "DIR",    "FILE", "FILE.npy",
                                          "KIND",  "RESULT", "PATH"};
    std::vector<std::filesystem::path> found;
    std::error_code failed;
    for (const std::string_view own : {"report", "merge", "status"})
        if (app.get_name() == own) return found;
    for (const CLI::Option* option : app.get_options()) {
        const std::string kind =
            option->get_positional() ? option->get_single_name() : option->get_type_name();
        if (option->check_lname("out") || std::ranges::find(kinds, kind) == std::end(kinds))
            continue;
        for (std::string name : option->results()) {
            if (kind == "KIND" && !std::filesystem::exists(name, failed))
                name.erase(0, name.find(':') + 1);  // of text:FILE
            while (kind == "RESULT" && !name.empty() && !std::filesystem::exists(name, failed))
                name.resize(name.find_last_of("@:") == name.npos ? 0 : name.find_last_of("@:"));
            if (!name.empty() && std::filesystem::exists(name, failed)) found.emplace_back(name);
        }
    }
    return found;
}

}  // namespace

CLI::Option* value(CLI::App* app, const char* names, const char* metavariable,
                   const char* description, const std::function<void(const std::string&)>& read) {
    return app->add_option_function<std::string>(names, read, description)->type_name(metavariable);
}

CLI::Option* text(CLI::App* app, const char* names, std::string& out, const char* metavariable,
                  const char* description) {
    return app->add_option(names, out, description)->type_name(metavariable);
}

namespace {

/// Of `submit [options] COMMAND ...`, the number of words before the command; else all.
int words_of_submit(int argc, const char* const* argv) {
    if (argc < 2 || std::string_view(argv[1]) != "submit") return argc;
    int at = 2;
    for (; at < argc && argv[at][0] == '-'; ++at) {
        const std::string_view word = argv[at];
        const bool flag = word == "--dry-run" || word == "-h" || word == "--help";
        if (!flag && word.find('=') == word.npos) ++at;  // its value
    }
    return std::min(at, argc);
}

}  // namespace

Command parse(int argc, const char* const* argv, bool* json) {
    Parser parser;
    const int own = words_of_submit(argc, argv);
    parser.submit.words.assign(argv + own, argv + argc);
    try {
        std::vector<std::string> words =
            with_settings(parser.program, {argv + std::min(own, 1), argv + own});
        std::ranges::reverse(words);  // the library takes them from the end
        parser.program.parse(std::move(words));
    } catch (const CLI::CallForHelp&) {
        return PrintCommand{.text = parser.help()};
    } catch (const CLI::CallForVersion& version) {
        return PrintCommand{.text = std::string(version.what()) + "\n"};
    } catch (const CLI::ParseError& error) {
        const CLI::App& app = parser.chosen();
        refuse_extras(parser.program, app);  // reports the likelier cause, if there is one
        const std::string where = &app == &parser.program ? "tsdiag" : "tsdiag " + app.get_name();
        std::string what = error.what();
        if (what.find("At Most 1 required") != std::string::npos)
            what = what.substr(0, what.find(':')) + " was given more than once";
        throw UsageError(fmt::format("{}; see {} --help.", what, where));
    }
    if (json) *json = parser.json;
    set_inputs(inputs_of(parser.chosen()));
    return parser.command();
}

}  // namespace tsdiag::cli
