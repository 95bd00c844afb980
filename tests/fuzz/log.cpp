#include "fuzz.hpp"
#include "tsdiag/report.hpp"
#include "tsdiag/training_log.hpp"

/// The log of a training, as `gradients` reads it, and its page.

using namespace tsdiag;

void examine(std::string_view input) {
    const unsigned choice = fuzz::take_choice(input);
    const std::string name = (choice & 1) != 0 ? "events.out.tfevents.1" : "log";
    const std::string file = fuzz::folder().write(name, input);
    fuzz::accepts([&] {
        LogOptions options;
        options.allow_truncated = (choice & 2) != 0;
        options.allow_nonfinite = (choice & 4) != 0;
        if ((choice & 8) != 0) options.column = "loss";
        if ((choice & 16) != 0) options.step_column = "it";
        const std::vector<LoggedSeries> all = read_training_log(file, options);
        DispersionOptions dispersion;
        dispersion.resamples = 100;
        const LogSummary summary = summarise_logs(all, dispersion);
        metrics_csv(summary.table.metrics());
        curves_csv(summary.table.curves());
        log_verdict(summary.table, summary.run);
        write_log_report(summary.table, summary.run, fuzz::folder().path());
    });
}
