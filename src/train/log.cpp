#include "log.hpp"

#include <fmt/format.h>

#include <limits>

#include "tsdiag/csv.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"

namespace tsdiag {
namespace {

constexpr const char* steps_header = "step,loss,grad_norm,rate";
constexpr const char* gradients_header = "step,layer,grad_norm";
constexpr const char* evaluations_header = "step,loss,accuracy,predictions";

std::string line(const TrainStep& s) {
    std::string out;
    CsvLine(out).index(s.step).number(s.loss).number(s.grad_norm).number(s.rate).end();
    return out;
}
std::string layer_lines(const TrainStep& s) {
    std::string out;
    for (std::size_t l = 0; l < s.layer_norms.size(); ++l)
        CsvLine(out)
            .index(s.step)
            .index(l + 1 < s.layer_norms.size() ? Index(l) : -1)
            .number(s.layer_norms[l])
            .end();
    return out;
}
std::string line(const Evaluation& e) {
    std::string out;
    CsvLine(out).index(e.step).number(e.loss).number(e.accuracy).index(e.predictions).end();
    return out;
}

}  // namespace

std::string steps_csv(const std::vector<TrainStep>& steps) {
    std::string out = std::string(steps_header) + "\n";
    for (const TrainStep& s : steps) out += line(s);
    return out;
}
std::string gradients_csv(const std::vector<TrainStep>& steps) {
    std::string out = std::string(gradients_header) + "\n";
    for (const TrainStep& s : steps) out += layer_lines(s);
    return out;
}
std::string evaluations_csv(const std::vector<Evaluation>& evaluations) {
    std::string out = std::string(evaluations_header) + "\n";
    for (const Evaluation& e : evaluations) out += line(e);
    return out;
}

namespace training {
namespace {

void append(std::ofstream& out, const std::string& text, const std::filesystem::path& directory) {
    if (!out.is_open()) return;
    out << text << std::flush;
    if (!out)
        throw Error(fmt::format("{}: cannot be written (is the disk full?).", directory.string()));
}

/// Steps 1, 2, 3, ... up to `step`.
void read_steps(const std::string& text, Index step, std::vector<TrainStep>& out) {
    for (CsvReader in(text, "steps.csv", steps_header); in.next();) {
        if (in.integer(0) > step) break;
        if (in.integer(0) != std::ssize(out) + 1) in.fail("the steps are not consecutive");
        out.push_back({.step = in.integer(0),
                       .loss = in.required(1),
                       .grad_norm = in.required(2),
                       .rate = in.required(3)});
    }
}

/// The norms of layers 0, 1, 2, ... of every step and last that of no layer, as many of each.
void read_gradients(const std::string& text, std::vector<TrainStep>& steps) {
    std::size_t at = 0;
    bool ended = false;  // the norm of no layer was read
    for (CsvReader in(text, "gradients.csv", gradients_header); in.next();) {
        if (ended) ++at;
        ended = false;
        if (at == steps.size()) break;
        std::vector<double>& norms = steps[at].layer_norms;
        const Index expected = steps[at].step, layer = in.index(1);
        if (in.integer(0) != expected)
            in.fail(fmt::format("is of step {}, expected step {}", in.integer(0), expected));
        if (layer >= 0 ? layer != std::ssize(norms)
                       : at > 0 && norms.size() + 1 != steps[0].layer_norms.size())
            in.fail(fmt::format("layer '{}' follows {} layers of step {}", in.text(1), norms.size(),
                                expected));
        norms.push_back(in.required(2));
        ended = layer < 0;
    }
    if (ended) ++at;
    if (at < steps.size())
        throw FormatError(fmt::format("gradients.csv: ends within step {}, and steps.csv has {}.",
                                      steps[at].step, steps.size()));
}

void read_evaluations(const std::string& text, Index step, std::vector<Evaluation>& out) {
    for (CsvReader in(text, "evaluations.csv", evaluations_header); in.next();) {
        if (in.integer(0) > step) break;
        if (!out.empty() && in.integer(0) <= out.back().step) in.fail("the steps do not ascend");
        out.push_back({.step = in.integer(0),
                       .loss = in.required(1),
                       .accuracy = in.required(2),
                       .predictions = in.integer(3)});
    }
}

}  // namespace

void Log::begin(const TrainResult& result) {
    if (directory_.empty()) return;
    const auto open = [&](std::ofstream& file, const char* name, const std::string& text) {
        write_atomically(directory_ / name, text);
        file.open(directory_ / name, std::ios::app | std::ios::binary);
    };
    open(steps_, "steps.csv", steps_csv(result.steps));
    open(gradients_, "gradients.csv", gradients_csv(result.steps));
    open(evaluations_, "evaluations.csv", evaluations_csv(result.evaluations));
    write(result.table);
}

void Log::add(const TrainStep& step) {
    append(steps_, line(step), directory_);
    append(gradients_, layer_lines(step), directory_);
}
void Log::add(const Evaluation& evaluation) { append(evaluations_, line(evaluation), directory_); }

void Log::write(const Table& table) const {
    if (directory_.empty()) return;
    write_atomically(directory_ / "metrics.csv", metrics_csv(table.metrics()));
    write_atomically(directory_ / "curves.csv", curves_csv(table.curves()));
}

void Log::read(Index step, TrainResult& result) const {
    const auto text = [&](const char* name) {
        return file_text(directory_ / name, "a table that tsdiag train wrote");
    };
    const std::string steps = text("steps.csv"), gradients = text("gradients.csv"),
                      evaluations = text("evaluations.csv"), metrics = text("metrics.csv"),
                      curves = text("curves.csv");
    read_steps(steps, step, result.steps);
    if (step < std::numeric_limits<Index>::max() && std::ssize(result.steps) != step)
        throw FormatError(
            fmt::format("{}/steps.csv: has {} steps, and the checkpoint is of step {}.",
                        directory_.string(), result.steps.size(), step));
    read_gradients(gradients, result.steps);
    read_evaluations(evaluations, step, result.evaluations);
    std::vector<MetricRow> rows = read_metrics_csv(metrics, "metrics.csv");
    std::vector<CurveRow> points = read_curves_csv(curves, "curves.csv");
    std::erase_if(rows, [&](const MetricRow& row) { return row.at.step > step; });
    std::erase_if(points, [&](const CurveRow& row) { return row.at.step > step; });
    result.table.append(rows, points);
}

}  // namespace training
}  // namespace tsdiag
