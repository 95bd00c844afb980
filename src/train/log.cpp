#include "log.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

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

enum File { steps_file, gradients_file, evaluations_file, metrics_file, curves_file };

/// The header of each file.
std::array<std::string, 5> headers() {
    return {steps_csv({}), gradients_csv({}), evaluations_csv({}), metrics_csv({}), curves_csv({})};
}

std::string without_header(const std::string& csv) { return csv.substr(csv.find('\n') + 1); }

[[noreturn]] void cannot_write(const std::filesystem::path& file, int error) {
    throw Error(fmt::format("{}: cannot be written ({}).{}", file.string(), std::strerror(error),
                            error == ENOSPC ? " Free some space and pass --resume." : ""));
}

/// Steps 1, 2, 3, ...
void read_steps(const std::string& text, std::vector<TrainStep>& out) {
    for (CsvReader in(text, "steps.csv", steps_header); in.next();) {
        if (in.integer(0) != std::ssize(out) + 1) in.fail("the steps are not consecutive");
        out.push_back({.step = in.integer(0),
                       .loss = in.required(1),
                       .grad_norm = in.required(2),
                       .rate = in.required(3)});
    }
}

/// The norms of layers 0, 1, 2, ... of every step, then that without a layer; equally many a step.
void read_gradients(const std::string& text, std::vector<TrainStep>& steps) {
    std::size_t at = 0;
    bool ended = false;  // the norm without a layer was read
    for (CsvReader in(text, "gradients.csv", gradients_header); in.next();) {
        if (ended) ++at;
        ended = false;
        if (at == steps.size()) in.fail("belongs to a step that steps.csv does not have");
        std::vector<double>& norms = steps[at].layer_norms;
        const Index expected = steps[at].step, layer = in.index(1);
        if (in.integer(0) != expected)
            in.fail(fmt::format("belongs to step {}, expected step {}", in.integer(0), expected));
        if (layer >= 0 ? layer != std::ssize(norms)
                       : at > 0 && norms.size() + 1 != steps[0].layer_norms.size())
            in.fail(fmt::format("layer '{}' follows {} layers of step {}", in.text(1), norms.size(),
                                expected));
        norms.push_back(in.required(2));
        ended = layer < 0;
    }
    if (ended) ++at;
    if (at < steps.size())
        throw FormatError(fmt::format("gradients.csv: ends within step {}, but steps.csv has {}.",
                                      steps[at].step, steps.size()));
}

void read_evaluations(const std::string& text, std::vector<Evaluation>& out) {
    for (CsvReader in(text, "evaluations.csv", evaluations_header); in.next();) {
        if (!out.empty() && in.integer(0) <= out.back().step)
            in.fail("the steps are not ascending");
        out.push_back({.step = in.integer(0),
                       .loss = in.required(1),
                       .accuracy = in.required(2),
                       .predictions = in.integer(3)});
    }
}

/// A log, or its prefix up to its mark.
std::string log_text(const std::filesystem::path& directory, const std::string& name,
                     const LogMarks* marks) {
    const std::filesystem::path file = directory / name;
    std::error_code failed;
    if (!std::filesystem::is_regular_file(file, failed))
        throw FormatError(fmt::format("{}: is missing.", file.string()));
    std::string text = file_text(file, "a table written by tsdiag train");
    if (!marks) return text;
    const Manifest::Entry& mark = marks->at(name);
    if (text.size() < *mark.grows)
        throw FormatError(fmt::format("{}: has {} bytes, expected the {} that were written.",
                                      file.string(), text.size(), *mark.grows));
    text.resize(*mark.grows);
    if (sha256(text) != mark.digest)
        throw FormatError(fmt::format("{}: its first {} bytes differ from those that were written.",
                                      file.string(), text.size()));
    return text;
}

}  // namespace

const std::array<const char*, 5>& Log::files() {
    static constexpr std::array<const char*, 5> names = {
        "steps.csv", "gradients.csv", "evaluations.csv", "metrics.csv", "curves.csv"};
    return names;
}

void Log::write_empty(const std::filesystem::path& directory) {
    const std::array<std::string, 5> texts = headers();
    for (std::size_t i = 0; i < texts.size(); ++i)
        write_atomically(directory / files()[i], texts[i]);
}

LogMarks Log::empty_marks() {
    LogMarks out;
    const std::array<std::string, 5> texts = headers();
    for (std::size_t i = 0; i < texts.size(); ++i)
        out[files()[i]] = {sha256(texts[i]), texts[i].size()};
    return out;
}

void Log::open(const std::filesystem::path& directory, const LogMarks& marks, const Table& table) {
    close();
    directory_ = directory;
    for (std::size_t i = 0; i < open_.size(); ++i) {
        const std::string name = files()[i], text = log_text(directory, name, &marks);
        if (!text.starts_with(headers()[i]))
            throw FormatError(
                fmt::format("{}: has other columns than this version of tsdiag "
                            "writes; resume with the version that began the run.",
                            (directory / name).string()));
        const std::filesystem::path file = directory / name;
        File& log = open_[i];
        log = {};
        log.descriptor = ::open(file.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
        if (log.descriptor < 0 || ::ftruncate(log.descriptor, off_t(text.size())) != 0)
            cannot_write(file, errno);
        log.digest.add(text);
        log.bytes = text.size();
    }
    rows_ = table.metrics().size();
    points_ = table.curves().size();
}

void Log::append(std::size_t file, std::string_view text) {
    File& log = open_[file];
    if (log.descriptor < 0) return;
    log.digest.add(text);
    log.bytes += text.size();
    while (!text.empty()) {
        const ssize_t written = ::write(log.descriptor, text.data(), text.size());
        if (written < 0 && errno != EINTR) cannot_write(directory_ / files()[file], errno);
        text.remove_prefix(std::size_t(std::max<ssize_t>(written, 0)));
    }
}

void Log::add(const TrainStep& step) {
    append(steps_file, line(step));
    append(gradients_file, layer_lines(step));
}

void Log::add(const Evaluation& evaluation) { append(evaluations_file, line(evaluation)); }

void Log::add(const Table& table) {
    std::vector<MetricRow> rows = table.metrics();
    std::vector<CurveRow> points = table.curves();
    rows.erase(rows.begin(), rows.begin() + std::ptrdiff_t(rows_));
    points.erase(points.begin(), points.begin() + std::ptrdiff_t(points_));
    append(metrics_file, without_header(metrics_csv(rows)));
    append(curves_file, without_header(curves_csv(points)));
    rows_ += rows.size();
    points_ += points.size();
}

LogMarks Log::sync() {
    LogMarks out;
    for (std::size_t i = 0; i < open_.size(); ++i) {
        // File systems without fsync return EINVAL or EROFS.
        if (::fsync(open_[i].descriptor) != 0 && errno != EINVAL && errno != EROFS)
            cannot_write(directory_ / files()[i], errno);
        out[files()[i]] = {open_[i].digest.hex(), open_[i].bytes};
    }
    return out;
}

void Log::close() {
    for (File& log : open_) {
        if (log.descriptor >= 0) ::close(log.descriptor);
        log.descriptor = -1;
    }
}

void read_logs(const std::filesystem::path& directory, const LogMarks* marks, TrainResult& result) {
    std::array<std::string, 5> text;
    for (std::size_t i = 0; i < text.size(); ++i)
        text[i] = log_text(directory, Log::files()[i], marks);
    result.steps.clear();
    result.evaluations.clear();
    read_steps(text[steps_file], result.steps);
    read_gradients(text[gradients_file], result.steps);
    read_evaluations(text[evaluations_file], result.evaluations);
    result.table = Table(result.table.model());
    result.table.append(read_metrics_csv(text[metrics_file], "metrics.csv"),
                        read_curves_csv(text[curves_file], "curves.csv"));
}

}  // namespace training
}  // namespace tsdiag
