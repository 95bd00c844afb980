#include "tsdiag/watch.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <thread>

#include "command.hpp"
#include "json_outputs.hpp"
#include "machine.hpp"
#include "probing.hpp"
#include "result_files.hpp"
#include "series_parts.hpp"
#include "summary.hpp"
#include "terminal.hpp"
#include "threads.hpp"
#include "tsdiag/change_test.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/report.hpp"
#include "tsdiag/text.hpp"
#include "tsdiag/training_folder.hpp"

extern char** environ;

/// `watch`: measures the checkpoints of a training as they appear.
namespace tsdiag::cli {
namespace {

namespace fs = std::filesystem;

struct WatchCommand final : Command {
    explicit WatchCommand(CLI::App& app);
    int run() const override;

    std::string directory;
    ProbeOptions probe;  ///< how each checkpoint is measured
    WatchOptions alarms;
    std::string on_alarm;  ///< of a shell; empty: none
    double every = 30;     ///< seconds between looks
    double settle = 10;    ///< seconds without a write, after which a checkpoint is complete
    bool once = false;
};

constexpr int alarmed = 4;
constexpr const char* reported_folder = "told";  // beside the parts: the alarms that were told
constexpr const char* reported_file = "alarms.json";

bool are_same(const Alarm& a, const Alarm& b) {
    return a.kind == b.kind && a.step == b.step && a.number == b.number;
}

/// Runs `command` in a shell with variables that describe the alarm, and waits for it.
void run_shell(const std::string& command, const Alarm& alarm, const fs::path& out) {
    std::vector<std::string> own = {
        "TSDIAG_ALARM=" + alarm.sentence, "TSDIAG_NUMBER=" + alarm.number,
        "TSDIAG_STEP=" + std::to_string(alarm.step), "TSDIAG_OUT=" + fs::absolute(out).string()};
    std::vector<char*> variables;
    for (std::string& one : own) variables.push_back(one.data());
    for (char** e = environ; *e; ++e) variables.push_back(*e);
    variables.push_back(nullptr);
    std::string shell = "/bin/sh", option = "-c", words = command;
    char* argv[] = {shell.data(), option.data(), words.data(), nullptr};
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    pid_t child = 0;
    const int error = posix_spawn(&child, argv[0], nullptr, &attributes, argv, variables.data());
    posix_spawnattr_destroy(&attributes);
    if (error != 0)
        return say(
            fmt::format("tsdiag: --on-alarm: cannot be started ({}).", std::strerror(error)));
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (code != 0) say(fmt::format("tsdiag: --on-alarm: the command ended with code {}.", code));
}

class Watch {
  public:
    explicit Watch(const WatchCommand& command)
        : command_(command),
          out_(command.probe.out.empty() ? default_directory(command.directory)
                                         : command.probe.out),
          lock_(out_) {
        refuse_options_of_one(command.probe);
        finish_output(fs::path(out_) / parts_folder);
        read_reported();
    }

    /// Measures what is complete and new, and brings the page up to date.
    void look();
    bool has_alarm() const { return !alarms_.empty(); }

  private:
    struct Measured {
        SeriesMember member;
        std::string state = {};  ///< of its files when it was measured
        SeriesPart part = {};
    };

    std::vector<SeriesMember> complete_members();
    void restore(const std::string& settings);
    bool take(const SeriesMember& member, const ProbeOptions& probe, const std::string& settings);
    SeriesPart measure(const SeriesMember& member, const ProbeOptions& probe,
                       const std::string& digest);
    void publish();
    void report(Index last);
    void pass_over(const std::string& path, const std::string& why);
    void report_waiting() const;
    void read_reported();
    void write_reported();

    const WatchCommand& command_;
    std::string out_;
    FolderLock lock_;
    std::map<Index, Measured> measured_;          ///< by step, also of checkpoints that are gone
    std::map<std::string, std::string> refused_;  ///< state of the files, by path
    std::vector<Alarm> alarms_;
    std::vector<Finding> findings_;  ///< of what is published
    std::vector<Alarm> reported_;
    std::size_t waiting_ = 0;  ///< checkpoints that are written to, in this look
    bool restored_ = false, published_ = false;
};

/// Says once, until its files change, why a checkpoint is not measured.
void Watch::pass_over(const std::string& path, const std::string& why) {
    const std::string state = written(path).state;
    if (std::exchange(refused_[path], state) != state) say("tsdiag: " + printable(why));
}

/// The checkpoints that nobody writes to, by step.
std::vector<SeriesMember> Watch::complete_members() {
    std::vector<SeriesMember> found;
    waiting_ = 0;
    for (const fs::path& path : checkpoints_below(command_.directory)) {
        if (path.filename().string().starts_with("tmp")) continue;  // renamed when it is complete
        const Written files = written(path);
        const auto refused = refused_.find(path.string());
        if (refused != refused_.end() && refused->second == files.state) continue;
        if (files.age < command_.settle) {
            ++waiting_;
            continue;
        }
        try {
            found.push_back(find_member(path.string()));
        } catch (const Error& error) {
            pass_over(path.string(), error.what());
        }
    }
    std::ranges::stable_sort(found, {}, &SeriesMember::step);
    return found;
}

/// With --once nobody looks again.
void Watch::report_waiting() const {
    if (waiting_ > 0)
        say(fmt::format(
            "tsdiag: {} in {} {} written to less than {} s ago and {} measured yet; "
            "--settle SECONDS changes that.",
            counted(waiting_, "checkpoint"), printable(command_.directory),
            waiting_ == 1 ? "was" : "were", command_.settle, waiting_ == 1 ? "is not" : "are not"));
}

/// The parts of an earlier command with these settings, whether or not their checkpoints exist.
void Watch::restore(const std::string& settings) {
    const fs::path file = fs::path(out_) / "run.json";
    std::error_code failed;
    if (std::exchange(restored_, true) || !fs::exists(file, failed)) return;
    const RunRecord run = read_description(out_);
    if (!run.checkpoints) return;
    for (const RunRecord::Checkpoint& one : *run.checkpoints) {
        if (!one.digest.ends_with("-" + settings)) continue;
        const SeriesMember member{one.path, one.step, run.unit, one.origin, one.contradiction};
        std::optional<SeriesPart> part = finished_part(part_folder(out_, one.step), one.digest);
        if (part) measured_[member.step] = {.member = member, .part = std::move(*part)};
    }
}

/// Whether `member` has numbers now that it had not before.
bool Watch::take(const SeriesMember& member, const ProbeOptions& probe,
                 const std::string& settings) {
    const auto before = measured_.find(member.step);
    const std::string state = written(member.path).state;
    if (before != measured_.end()) {
        const Measured& one = before->second;
        if (one.member.path == member.path && one.state == state) return false;
        if (one.member.path != member.path && fs::exists(one.member.path))
            throw UsageError(fmt::format("{}: has {} {}, as does {}; it is passed over.",
                                         member.path, member.unit, member.step, one.member.path));
    }
    if (!measured_.empty() && measured_.begin()->second.member.unit != member.unit)
        throw UsageError(
            fmt::format("{}: gives its {}, expected its {}, as {} does; it is passed "
                        "over.",
                        member.path, member.unit, measured_.begin()->second.member.unit,
                        measured_.begin()->second.member.path));
    const std::string digest = contents_digest(member.path) + "-" + settings;
    if (before != measured_.end() && before->second.part.run.digest == digest) {
        before->second.member = member;
        before->second.state = state;
        return false;
    }
    std::optional<SeriesPart> part = finished_part(part_folder(out_, member.step), digest);
    if (!part) part = measure(member, probe, digest);
    if (written(member.path).state != state) return false;  // written to meanwhile: the next look
    set_place(*part, command_.directory, member.step);
    measured_[member.step] = {.member = member, .state = state, .part = std::move(*part)};
    return true;
}

SeriesPart Watch::measure(const SeriesMember& member, const ProbeOptions& probe,
                          const std::string& digest) {
    if (const auto other = std::ranges::find_if(
            measured_, [](const auto& one) { return fs::exists(one.second.member.path); });
        other != measured_.end())
        require_one_architecture(
            {.name = {}, .unit = {}, .members = {other->second.member, member}, .notes = {}},
            probe.run.subject);
    if (!probe.quiet) say(fmt::format("tsdiag: measures {}.", printable(member.path)));
    if (!probe.quiet && !member.contradiction.empty())
        say(fmt::format("tsdiag: {}.", printable(member.contradiction)));
    ProgressBar bar(probe.quiet, probe.verbose);
    RunOptions options = probe.run;
    options.subject.model = member.path;
    options.progress = [&bar](const Progress& at) { bar.update(at); };
    return measured_part(options, part_folder(out_, member.step), digest, command_.directory,
                         member.step, measured_now());
}

void Watch::look() {
    const std::vector<SeriesMember> members = complete_members();
    if (command_.once && !command_.probe.quiet) report_waiting();
    if (members.empty()) return;
    ProbeOptions probe = command_.probe;
    probe.models = {command_.directory};
    probe = with_held_out(std::move(probe));
    const std::string settings = settings_digest(probe.run);
    restore(settings);
    constexpr std::chrono::seconds page_life(60);
    auto last = std::chrono::steady_clock::now();
    bool news = !published_;
    for (const SeriesMember& member : members) {
        try {
            news |= take(member, probe, settings);
        } catch (const CannotKeep&) {
            throw;
        } catch (const Error& error) {
            pass_over(member.path, error.what());
        }
        if (news && std::chrono::steady_clock::now() - last > page_life) {
            publish();
            news = false;
            last = std::chrono::steady_clock::now();
        }
    }
    if (news) publish();
}

/// Writes tables, run.json and page of all parts; tells new alarms.
void Watch::publish() {
    if (measured_.empty()) return;
    CheckpointSeries series{.name = command_.directory,
                            .unit = measured_.begin()->second.member.unit,
                            .members = {},
                            .notes = {}};
    std::vector<SeriesPart> parts;
    Table table(series.name);
    std::vector<MeasuredResult> results;
    for (const auto& [step, one] : measured_) {
        series.members.push_back(one.member);
        parts.push_back(one.part);
        table.append(one.part.metrics, one.part.curves);
        results.push_back(select(one.member.path, one.part.metrics, one.part.run, {}));
    }
    if (std::string said = contradictory_steps(series.members); !said.empty())
        series.notes.push_back(std::move(said));
    alarms_ = alarms(results, command_.alarms, series.unit);
    RunRecord run = series_run(series, parts, table);
    run.watch = RunRecord::Watch{.alarms = alarms_, .false_alarms = command_.alarms.rate};
    if (!command_.once) run.watch->refresh = Index(std::max(command_.every, 1.0));
    findings_ = series_verdict(table, run);
    Json description = with_findings(run, findings_);
    RunResult result{std::move(table), std::move(description)};
    ResultWriter writer(out_, command_.probe.force);
    writer.write_tables(result);
    if (!command_.probe.no_report)
        writer.write_page(
            result.run,
            [&](const fs::path& folder) {
                return write_report(result.table, result.run, folder, command_.probe.look);
            },
            command_.probe.quiet);
    writer.commit_compared(result.run);
    if (!std::exchange(published_, true) && !command_.probe.quiet) {
        const char* made = command_.probe.no_report ? "metrics.csv" : "report.html";
        print(
            fmt::format("{}\n", styled(printable((fs::path(out_) / made).string()), Style::bold)));
    }
    report(results.back().step);
}

void Watch::report(Index last) {
    const auto was_reported = [&](const Alarm& alarm) {
        return std::ranges::any_of(reported_, [&](auto& one) { return are_same(one, alarm); });
    };
    Json::Array all, unreported;
    for (const Alarm& alarm : alarms_) {
        all.push_back(alarm.json());
        if (!was_reported(alarm)) unreported.push_back(all.back());
    }
    print_json("watch",
               Json()
                   .set("out", out_)
                   .set("unit", measured_.begin()->second.member.unit)
                   .set("step", last)
                   .set("checkpoints", std::ssize(measured_))
                   .set("findings", findings_json(findings_))
                   .set("alarms", std::move(all))
                   .set("new", std::move(unreported)),
               true);
    if (!command_.probe.quiet)
        print(fmt::format("{} {}: {} measured, {}\n", measured_.begin()->second.member.unit, last,
                          counted(measured_.size(), "checkpoint"),
                          alarms_.empty() ? "no alarm" : counted(alarms_.size(), "alarm")));
    for (const Alarm& alarm : alarms_) {
        if (was_reported(alarm)) continue;
        print("! " + wrapped(printable(alarm.sentence), terminal_width(), 2) + "\n");
        if (!command_.on_alarm.empty()) run_shell(command_.on_alarm, alarm, out_);
        reported_.push_back(alarm);
        write_reported();  // after the command: an alarm may be told twice, but is not lost
    }
}

void Watch::read_reported() {
    const fs::path file = fs::path(out_) / parts_folder / reported_folder / reported_file;
    std::error_code failed;
    if (!fs::exists(file, failed)) return;
    const Json all = file_json(file, "a file written by tsdiag");
    try {
        for (const Json& one : all.array())
            reported_.push_back(Alarm::of(one, fmt::format("alarm {}", reported_.size())));
    } catch (const FormatError& error) {
        std::string why = error.what();
        if (why.ends_with('.')) why.pop_back();
        throw FormatError(
            fmt::format("{}: is not a list of alarms ({}); remove it, and alarms are told again.",
                        file.string(), why));
    }
}

void Watch::write_reported() {
    OutputFolder directory(fs::path(out_) / parts_folder / reported_folder,
                           {.writes = {reported_file}, .force = true});
    Json::Array all;
    for (const Alarm& alarm : reported_) all.push_back(alarm.json());
    write_atomically(directory.temporary() / reported_file, Json(all).dump(2) + "\n");
    directory.commit();
}

}  // namespace

WatchCommand::WatchCommand(CLI::App& app) {
    app.add_option("DIR", directory, "the directory that a training writes checkpoints to")
        ->required()
        ->type_name("");
    const auto group = [](CLI::Option* option) { option->group("Watching"); };
    const auto seconds = [&](const char* name, const char* words, double& out) {
        group(value(app, name, "SECONDS", words, [&out, name](const std::string& t) {
            constexpr Index a_day = 86400;
            out = double(parse_count(t, name, 0, a_day));
        }));
    };
    seconds("--every", "time between looks at DIR (default 30)", every);
    seconds("--settle",
            "a checkpoint is complete when nothing was written to it for so\n"
            "long (default 10)",
            settle);
    group(app.add_flag("--once", once,
                       "measure what is there and end; exits with code 4 if there is an alarm"));
    group(value(app, "--numbers", "LIST",
                "numbers that are tested for changes: METRIC@STAGE:LAYER.HEAD, as in\n--assert "
                "(default: t_sim@out:last, effective_rank@out:last,\nlambda2_abs:mean, delta:mean)",
                [&](const std::string& t) {
                    for (const std::string& name : split(t, ','))
                        alarms.numbers.push_back(parse_number_name(name, "--numbers"));
                }));
    group(value(app, "--false-alarms", "RATE",
                "expected number of false alarms per checkpoint, all numbers\ntogether (default "
                "0.01)",
                [&](const std::string& t) {
                    alarms.rate = parse_number(t, "--false-alarms");
                    const ChangeTest refuses_it(alarms.rate);
                }));
    group(app.add_option_function<std::vector<std::string>>(
                 "--assert",
                 [&](const std::vector<std::string>& all) {
                     for (const std::string& t : all)
                         alarms.assertions.push_back(parse_assertion(t, 1));
                 },
                 "alarm where it becomes false, such as \"t_sim@out:last < 0.9\"\n(repeatable)")
              ->type_name("TEXT")
              ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
              ->expected(1));
    group(text(app, "--on-alarm", on_alarm, "CMD",
               "shell command for each alarm, once; TSDIAG_ALARM is its sentence"));
    add_subject_options(app, probe.run.subject);
    add_input(app, probe.run);
    add_measurement(app, probe.run);
    add_machine(app, probe);
    add_output(app, probe);
}

int WatchCommand::run() const {
    if (probe.threads > 0) use_threads(probe.threads);
    require_well_formed(probe.run);
    std::error_code failed;
    if (!fs::is_directory(directory, failed))
        throw FormatError(fmt::format(
            "{}: is not a directory, expected the one that a training writes checkpoints to.",
            directory));
    Watch watch(*this);
    for (;;) {
        watch.look();
        if (once) return watch.has_alarm() ? alarmed : 0;
        std::this_thread::sleep_for(std::chrono::duration<double>(std::max(every, 0.1)));
    }
}

extern const CommandEntry watch_command = {
    .name = "watch",
    .about = "measure checkpoints as they appear, with alarms",
    .examples = R"(Examples:
  tsdiag watch runs/a --samples 8 --out watched     open watched/report.html in a browser
  tsdiag watch runs/a --assert "t_sim@out:last < 0.9" --on-alarm 'mail -s "$TSDIAG_ALARM" me'
  tsdiag watch runs/a --once                        for cron; exits 4 where there is an alarm)",
    .make = made<WatchCommand>,
    .has_settings = true,
    .runs_models = true};

}  // namespace tsdiag::cli
