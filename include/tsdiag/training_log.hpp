#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "tsdiag/run_record.hpp"
#include "tsdiag/series.hpp"
#include "tsdiag/table.hpp"

/// Series of numbers logged by a training.
namespace tsdiag {

/// One quantity over the steps, in ascending order of them.
struct LoggedSeries {
    std::string source = {}, name = {};  ///< the file as given; the column, key or tag
    std::vector<Index> steps = {};
    std::vector<double> values = {};
    std::vector<std::string> notes = {};  ///< what was replaced, missing or omitted
};

struct LogOptions {
    std::string column = {};       ///< of the values, or the tag of a long table; empty: by name
    std::string step_column = {};  ///< empty: by name; in a file without one lines are counted
    Index first = 0, last = -1;    ///< steps as they are counted on, both included; -1: to the end
    bool allow_nonfinite = false;  ///< NaN and infinity are skipped, and counted in the notes
    bool allow_truncated = false;  ///< a truncated last record is skipped
    double least = 0;              ///< smaller values are rejected
};

/// The series of a log, whose format is detected from the content:
///
///  - a TensorBoard event file (TFRecord frames with masked CRC-32C, each checked): scalars as
///    `simple_value` or as a tensor of one float or double;
///  - JSON lines, or a trainer_state.json with its `log_history`; nested keys are joined by '/';
///  - CSV with a header, RFC 4180, wide (a column a quantity) or long (a column that names the
///    quantity - metric, tag, name, key, variable - beside one called value).
///
/// A directory stands for the event files in it, in the order of their names, for its
/// trainer_state.json, for the last one of its checkpoints (`checkpoint-500`), or, where tsdiag
/// trained in it, for the gradients of all parameters and of those of each layer.
///
/// Without `column` every series is taken whose name denotes a gradient norm ("grad_norm",
/// "train/grad-norm", "gradients/norm", "gnorm"), except limits ("max_grad_norm", "..clip.."),
/// which the notes name.  An empty cell or an absent key means no value at that step.
///
/// Columns and keys such as run, layer and rank tell series apart: "grad_norm layer=3".  Equal
/// steps of the others are, in this order,
///
///  - those of epochs, where the steps go back as a column or key `epoch`, `ep` or `epochs`
///    grows: they are counted on;
///  - those of a resumed training, where the steps go back to one after the first tenth, or begin
///    again after at most a quarter of what follows: of equal steps the later record wins;
///  - those of several series, where any column or key is constant from one return of the steps to
///    the next, or occurs with the first step in each of its values: it belongs to the name.  Text
///    does so also where the steps are those of a resumption;
///  - else refused.
///
/// A step backwards without an equal one drops nothing.  All this, and gaps in the usual spacing of
/// steps, are recorded in `notes`.
///
/// Cost: O(file) time and memory.  Throws `FormatError` naming file and line (or byte) for a file
/// that is empty, damaged, truncated, or has no such series, for a cell that is no number, and for
/// a number below `least`; `NonFiniteError` for NaN and infinity.
std::vector<LoggedSeries> read_training_log(const std::filesystem::path& file,
                                            const LogOptions& options = {});

/// Summary of series: rows of metrics.csv and curves.csv, and their part of run.json.
struct LogSummary {
    Table table;
    RunRecord run;
};

/// Of which series ratios are formed: of one quantity in different logs (equal names, or the only
/// series of both), or of any two.
enum class Paired { logs, all };

/// `grad_rsd` (with its interval, standard error and count) and `grad_mean` of each series; the
/// ratios `grad_rsd_ratio` of pairs of up to four logs (series, where all are paired), else of each
/// to the first, with simultaneous intervals; the curves `grad_norm` and `grad_norm_mean`, a moving
/// mean over max(5, T / 25) neighbours.  Column `model` is the file, with the name of the series
/// where it has several. Cost: that of `dispersion`, a series and a pair.
LogSummary summarise_logs(const std::vector<LoggedSeries>& all,
                          const DispersionOptions& options = {}, Paired paired = Paired::logs);

/// Whether the name denotes a gradient norm: it contains `grad` and `norm`, or `gnorm`, and no word
/// that says that its numbers are limits, powers, logarithms, averages or the like of norms.
bool names_gradient_norm(std::string_view name);

}  // namespace tsdiag
