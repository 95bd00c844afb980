#include "tsdiag/train.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

#include "command.hpp"
#include "interruption.hpp"
#include "json_outputs.hpp"
#include "machine.hpp"
#include "result_files.hpp"
#include "summary.hpp"
#include "terminal.hpp"
#include "threads.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/output.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag::cli {
namespace {

namespace fs = std::filesystem;

struct TrainCommand final : Command {
    explicit TrainCommand(CLI::App& app);
    int run() const override;

    TrainOptions train;
    /// What only some schedules have.
    std::vector<std::pair<const CLI::Option*, std::vector<Schedule::Kind>>> of_schedules;
    CLI::Option *steps = nullptr, *epochs = nullptr, *probes = nullptr;
    std::string folder;
    Index threads = 0;
    bool force = false, quiet = false, verbose = false;
    FigureStyle look;
};

/// A line on standard error: the step, its loss and gradient norm, the time left.
class Live {
  public:
    Live(const TrainCommand& command) : command_(command) {}
    ~Live() { clear(); }
    Live(const Live&) = delete;
    Live& operator=(const Live&) = delete;

    void update(const TrainStep& step) {
        if (command_.quiet) return;
        const Clock::time_point now = Clock::now();
        if (first_ == 0) first_ = step.step - 1;
        const Index steps = command_.train.steps, done = step.step - first_;
        const bool known = command_.train.epochs == 0;  // what steps are, epochs do not tell
        const double seconds = std::chrono::duration<double>(now - start_).count();
        std::string text =
            fmt::format("step {}{}  loss {:.4f}  |g| {:.3g}", step.step,
                        known ? fmt::format("/{}", steps) : "", step.loss, step.grad_norm);
        if (known)
            text += fmt::format("  {} left",
                                duration(seconds * double(steps - step.step) / double(done)));
        if (error_is_terminal()) {
            if (now - last_ < std::chrono::milliseconds(100) && (!known || step.step < steps))
                return;
            std::fprintf(stderr, "\r%s\x1b[K", text.c_str());
            drawn_ = true;
        } else if (command_.verbose && now - last_ > std::chrono::seconds(10)) {
            say("tsdiag: " + text);
        } else {
            return;
        }
        last_ = now;
    }
    void clear() {
        if (drawn_) std::fputs("\r\x1b[K", stderr);
        drawn_ = false;
    }

  private:
    using Clock = std::chrono::steady_clock;
    const TrainCommand& command_;
    Clock::time_point start_ = Clock::now(), last_ = start_;
    Index first_ = 0;
    bool drawn_ = false;
};

/// "text:FILE, chars:FILE, ...", in lines of at most 60 characters.
std::string kinds_of_data() {
    std::string out;
    std::size_t line = 0;
    for (const DataKind& kind : data_kinds()) {
        const std::string one = fmt::format(
            "{}{}{}", kind.name, kind.argument.starts_with('[') ? "" : ":", kind.argument);
        if (!out.empty()) out += line + one.size() > 56 ? ",\n" : ", ";
        line = out.ends_with('\n') ? one.size() : line + 2 + one.size();
        out += one;
    }
    return out;
}

/// Refuses what the schedule does not have, and one that lacks its milestones.
void require_schedule(const TrainCommand& command) {
    const Schedule& schedule = command.train.schedule;
    for (const auto& [option, kinds] : command.of_schedules) {
        if (option->count() == 0 || std::ranges::find(kinds, schedule.kind) != kinds.end())
            continue;
        std::vector<std::string_view> names;
        for (const Schedule::Kind kind : kinds) names.push_back(name(kind));
        throw UsageError(fmt::format("{}: --schedule {} has none, expected {}.", option->get_name(),
                                     name(schedule.kind), fmt::join(names, " or ")));
    }
    if (schedule.kind != Schedule::Kind::multistep) return;
    if (schedule.milestones.empty())
        throw UsageError("--schedule multistep: expected --milestones, such as 500,750.");
    Index before = 0;
    for (const Index step : schedule.milestones) {
        if (step <= before)
            throw UsageError(fmt::format(
                "--milestones: {} is not above {}, expected steps from 1 on that increase.", step,
                before));
        before = step;
    }
}

/// Accepts a new or empty directory, one to resume in, or one that may be overwritten.
void prepare(const TrainCommand& command) {
    const fs::path out = command.folder;
    place_of_folder(out);
    if (command.train.resume) {
        if (!fs::is_directory(out))
            throw UsageError(fmt::format("--resume: {} is not a directory.", out.string()));
        return;
    }
    if (!fs::exists(out) || fs::is_empty(out)) return;
    if (!command.force)
        throw UsageError(fmt::format(
            "{}: is not empty; pass --resume to continue a run, or --force to start over.",
            out.string()));
}

}  // namespace

TrainCommand::TrainCommand(CLI::App& app) {
    TrainOptions& o = train;
    add_subject(app, o.subject);
    const auto group = [](const char* name) {
        return [name](CLI::Option* option) { option->group(name); };
    };
    const auto count = [&](const char* names, const char* letter, const char* words, Index& out,
                           Index least, Index most = no_limit) {
        return value(app, names, letter, words, [&out, names, least, most](const std::string& t) {
            out = parse_count(t, names, least, most);
        });
    };
    const auto number = [&](const char* names, const char* words, double& out) {
        return value(app, names, "X", words,
                     [&out, names](const std::string& t) { out = parse_number(t, names); });
    };
    const auto data = group("Data");
    const std::string kinds =
        kinds_of_data() + ",\nor a folder with the layout of one (docs/train.md)";
    data(text(app, "--data", o.data, "KIND", kinds.c_str()));
    data(text(app, "--loss", o.loss, "LOSS", "lm, mlm or classify (default: depends on the data)"));
    data(count("--tokens", "N", "tokens per sample (default: the model's maximum, up to 128)",
               o.tokens, 1));
    data(count("--batch", "B", "samples per step (default 8)", o.batch, 1, most_draws));
    const auto rule = group("Optimiser");
    rule(steps = count("--steps", "T", "number of updates (default 1000)", o.steps, 1));
    rule(epochs = value(app, "--epochs", "X", "instead of --steps: passes over a finite data set",
                        [&](const std::string& t) {
                            o.epochs = parse_number(t, "--epochs");
                            if (!(o.epochs > 0))
                                throw UsageError(
                                    fmt::format("--epochs {}: expected a number above 0.", t));
                        }));
    rule(number("--rate", "learning rate (default 1e-3)", o.schedule.rate));
    rule(value(app, "--schedule", "NAME",
               "cosine (default), linear, constant,\ninverse-sqrt or multistep",
               [&](const std::string& t) { o.schedule.kind = schedule_named(t); }));
    rule(count("--warmup", "T", "steps of linear warmup (default 0)", o.schedule.warmup, 0));
    using enum Schedule::Kind;
    const auto of = [&](const std::vector<Schedule::Kind>& some, CLI::Option* option) {
        rule(option);
        of_schedules.emplace_back(option, some);
    };
    of({cosine, linear},
       number("--floor", "for cosine and linear: final fraction of the rate", o.schedule.floor));
    of({multistep}, value(app, "--milestones", "LIST", "for multistep: steps, separated by commas",
                          [&](const std::string& t) {
                              o.schedule.milestones = parse_steps(t, "--milestones");
                          }));
    of({multistep}, number("--factor", "for multistep: factor at each milestone (default 0.1)",
                           o.schedule.factor));
    rule(number("--weight-decay", "weight decay of matrices (default 0.01)", o.adam.decay));
    rule(number("--beta1", "decay of AdamW's mean gradient (default 0.9)", o.adam.beta1));
    rule(number("--beta2", "decay of its mean square (default 0.999)", o.adam.beta2));
    rule(number("--eps", "added to the root of that square (default 1e-8)", o.adam.eps));
    rule(number("--clip", "maximum norm of the gradient (default 1; 0: no clipping)", o.clip));
    rule(number("--dropout", "dropout of the embedding and each branch (default 0)", o.dropout));
    rule(value(app, "--seed", "K", "random seed of weights, samples and dropout (default 0)",
               [&](const std::string& t) { o.seed = parse_seed(t, "--seed"); }));
    const auto watch = group("Watching");
    watch(count("--eval-every", "T", "steps between evaluations (default: at the end)",
                o.eval_every, 1));
    watch(count("--eval-samples", "S", "held-out samples for evaluation (default 64)",
                o.eval_samples, 0, most_draws));
    watch(
        count("--probe-every", "T", "steps between probes (default: no probes)", o.probe_every, 1));
    watch(count("--probe-samples", "S", "held-out samples for probes (default 1)", o.probe_samples,
                1, most_draws));
    watch(probes =
              value(app, "--probes", "LIST", "core (default), all, or names (tsdiag list metrics)",
                    [&](const std::string& t) { o.probes = split(t, ','); }));
    const auto machine = group("Machine");
    machine(text(app, "--device", o.device, "NAME", "auto, cpu, cuda or cuda:N"));
    machine(value(app, "--threads", "N",
                  "threads (default: one per core); results do not depend on it",
                  [&](const std::string& t) { threads = parse_count(t, "--threads", 1, 1024); }));
    const auto output = group("Output");
    output(place(app, folder, "DIR", "logs, checkpoints, report")->required());
    add_paper(app, look);
    output(count("--save-every", "T",
                 "steps between checkpoints (default: as --probe-every);\nalso at the end",
                 o.save_every, 1));
    output(app.add_flag("--resume", o.resume, "resume from the last checkpoint in DIR"));
    output(app.add_flag("--force", force, "start over in a directory that contains files"));
    output(app.add_flag("-q,--quiet", quiet, "print errors only"));
    output(app.add_flag("-v,--verbose", verbose, "print progress even without a terminal"));
}

int TrainCommand::run() const {
    if (threads > 0) use_threads(threads);
    require_schedule(*this);
    if (steps->count() > 0 && epochs->count() > 0)
        throw UsageError(
            fmt::format("--epochs {} and --steps {}: each says how long the training "
                        "is, expected one of both.",
                        train.epochs, train.steps));
    // A training that an earlier version began may have been given them.
    if (probes->count() > 0 && train.probe_every == 0 && !train.resume)
        throw UsageError("--probes: nothing is probed without --probe-every, expected both.");
    prepare(*this);
    const FolderLock lock(folder);  // held until the page is written
    TrainOptions options = train;
    options.directory = folder;
    options.measured = measured_now();
    Live live(*this);
    options.progress = [&](const TrainStep& step) {
        live.update(step);
        return !is_interrupted();
    };
    defer_interruption();
    TrainResult result = tsdiag::train(options);
    live.clear();
    if (!result.finished && is_interrupted()) {
        ignore_interruptions();
        say(
            fmt::format("tsdiag: interrupted after step {}, which is saved; the same command with "
                        "--resume, without --force, goes on.",
                        result.steps.back().step));
        return 130;
    }
    result.run = headed(result.run);
    const PlainPage page = training_page(result);
    OutputFolder directory(
        options.directory,
        {.writes = {"run.json", "report.html", "figures/*"}, .force = true, .in_place = true});
    for (const std::string& line : write_plain_page(page, directory.temporary(), look))
        if (!quiet) say("tsdiag: " + printable(line));
    write_description(with_findings(result.run, page.findings), directory.temporary(), "run.json",
                      lock.folder());
    directory.commit();
    print_json("train", Json()
                            .set("out", options.directory.string())
                            .set("findings", findings_json(page.findings))
                            .set("files", files_json(options.directory)));
    if (quiet) return 0;
    print(findings_text(page.findings, verbose));
    print(fmt::format("\n{}\n", printable((options.directory / "report.html").string())));
    return 0;
}

extern const CommandEntry train_command = {
    .name = "train",
    .about = "train a small model, with probes on a schedule",
    .examples = R"(Examples:
  tsdiag train random:gpt2,layers=2,d=64,heads=4 --data copy --tokens 33 --steps 500 -o run
  tsdiag train random:gpt2,layers=4,d=128,heads=4 --data chars:book.txt --probe-every 100 -o run
  tsdiag train random:deit-tiny,layers=6,image=32,patch=4 --data patterns -o run
  tsdiag train MODEL --data ... -o run --resume       after an interruption)",
    .make = made<TrainCommand>,
    .names = random_models,
    .has_settings = true};

}  // namespace tsdiag::cli
