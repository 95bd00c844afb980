#include "command_options.hpp"
#include "tsdiag/change_test.hpp"
#include "tsdiag/text.hpp"

/// Options of `watch`: its own, and those by which `probe` measures a checkpoint.
namespace tsdiag::cli {

void add_watch(CLI::App* app, WatchCommand& watch) {
    app->add_option("DIR", watch.directory, "the directory that a training writes checkpoints to")
        ->required()
        ->type_name("");
    const auto group = [](CLI::Option* option) { option->group("Watching"); };
    const auto seconds = [&](const char* name, const char* words, double& out) {
        group(value(app, name, "SECONDS", words, [&out, name](const std::string& t) {
            constexpr Index a_day = 86400;
            out = double(parse_count(t, name, 0, a_day));
        }));
    };
    seconds("--every", "time between looks at DIR (default 30)", watch.every);
    seconds("--settle",
            "a checkpoint is complete when nothing was written to it for so\n"
            "long (default 10)",
            watch.settle);
    group(app->add_flag("--once", watch.once,
                        "measure what is there and end; exits with code 4 if there is an alarm"));
    group(value(app, "--numbers", "LIST",
                "numbers that are tested for changes: METRIC@STAGE:LAYER.HEAD, as in\n--assert "
                "(default: t_sim@out:last, effective_rank@out:last,\nlambda2_abs:mean, delta:mean)",
                [&](const std::string& t) {
                    for (const std::string& name : split(t, ','))
                        watch.alarms.numbers.push_back(parse_number_name(name, "--numbers"));
                }));
    group(value(app, "--false-alarms", "RATE",
                "expected number of false alarms per checkpoint, all numbers\ntogether (default "
                "0.01)",
                [&](const std::string& t) {
                    watch.alarms.rate = parse_number(t, "--false-alarms");
                    const ChangeTest refuses_it(watch.alarms.rate);
                }));
    group(app->add_option_function<std::vector<std::string>>(
                 "--assert",
                 [&](const std::vector<std::string>& all) {
                     for (const std::string& t : all)
                         watch.alarms.assertions.push_back(parse_assertion(t, 1));
                 },
                 "alarm where it becomes false, such as \"t_sim@out:last < 0.9\"\n(repeatable)")
              ->type_name("TEXT")
              ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
              ->expected(1));
    group(text(app, "--on-alarm", watch.on_alarm, "CMD",
               "shell command for each alarm, once; TSDIAG_ALARM is its sentence"));
    ProbeCommand& probe = watch.probe;
    add_subject_options(app, probe.run.subject);
    add_input(app, probe.run);
    add_measurement(app, probe.run);
    add_machine(app, probe);
    add_output(app, probe);
}

}  // namespace tsdiag::cli
