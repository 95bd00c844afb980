#include "result_files.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "command.hpp"
#include "machine.hpp"
#include "terminal.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/run_record.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* samples_name = "samples.csv";
constexpr const char* tables[] = {"metrics.csv",     "curves.csv", "maps.npz",
                                  "steps.csv",       samples_name, "gradients.csv",
                                  "evaluations.csv", "claims.csv", "compare.csv"};

std::string read_text(const fs::path& file) { return file_text(file, "a file written by tsdiag"); }

void require_digests(const fs::path& folder, const RunRecord& run) {
    if (!run.tables)
        throw FormatError(
            fmt::format("{}: has no digests of its tables, so they cannot be verified; run the "
                        "original command again.",
                        (folder / "run.json").string()));
    for (const auto& [name, digest] : *run.tables) {
        if (std::ranges::find(tables, name) == std::end(tables)) continue;
        if (sha256_of(folder / name) != digest)
            throw FormatError(
                fmt::format("{}: does not match its SHA-256 in run.json; it was changed or belongs "
                            "to another run. Run the original command again.",
                            (folder / name).string()));
    }
}

/// "attention.3.5": map, layer, head; "windows.3": an order of that layer's tokens.
void read_maps(const fs::path& file, Table& table) {
    const std::unique_ptr<Checkpoint> maps = open_checkpoint(file);
    for (const std::string& name : maps->names()) {
        const std::vector<std::string> parts = split(name, '.');
        const RawTensor array = maps->tensor(name);
        const bool of_layer = parts.size() == 2 && array.shape.size() == 1;
        if (!of_layer && (parts.size() != 3 || array.shape.size() != 2))
            throw FormatError(
                fmt::format("{}: array '{}' is not an attention map, expected NAME.LAYER.HEAD with "
                            "two axes, or NAME.LAYER with one.",
                            file.string(), name));
        Map map;
        map.name = parts[0];
        map.at.layer = parse_count(parts[1], file.string(), 0);
        map.at.stage = "attn";
        map.at.head = of_layer ? -1 : parse_count(parts[2], file.string(), 0);
        map.rows = of_layer ? 1 : array.shape.front();
        map.cols = array.shape.back();
        map.values.resize(std::size_t(array.count()));
        widen<double>(array, map.values);
        table.matrix(std::move(map));
    }
}

}  // namespace

OutputPlan result_plan(bool force) {
    return {.writes = {"metrics.csv", "curves.csv", samples_name, "maps.npz", "run.json",
                       "report.html", "figures/*", "profile.json"},
            .force = force};
}

Json headed(RunRecord run) {
    run.version = TSDIAG_VERSION;
    run.command.clear();
    for (const std::string& word : command_line()) run.command.push_back(printable(word));
    return run.json();
}

Json described(RunRecord run, const RunRecord::Measured& began) {
    if (run.measured.date.empty()) run.measured = began.date.empty() ? measured_now() : began;
    return headed(std::move(run));
}

void write_description(RunRecord run, const fs::path& folder, const char* name,
                       const fs::path& tables_folder) {
    const fs::path& from = tables_folder.empty() ? folder : tables_folder;
    run.tables.emplace();
    for (const char* table : tables)
        if (const auto digest = sha256_of(from / table)) run.tables->emplace_back(table, *digest);
    write_atomically(folder / name, run.json().dump(2) + "\n");
}

ResultWriter::ResultWriter(const fs::path& out, bool force) : folder_(out, result_plan(force)) {}

void ResultWriter::write_tables(const RunResult& result) const {
    tsdiag::write_tables(result, folder());
}

void ResultWriter::write_page(Json& run, const Draw& draw, bool quiet) const {
    RunRecord drawn = run;
    for (const std::string& line : draw(folder())) {
        if (!quiet) say("tsdiag: " + printable(line));
        drawn.warnings.push_back(line);
    }
    run = drawn.json();
}

void ResultWriter::commit(const Json& run) {
    require_unchanged_files();
    commit_compared(run);
}

void ResultWriter::commit_compared(const Json& run) {
    write_description(run, folder());
    folder_.commit();
}

void ResultWriter::write(RunResult& result, const Draw& draw, bool quiet) {
    write_tables(result);
    if (draw) write_page(result.run, draw, quiet);
    commit(result.run);
}

Json files_json(const fs::path& folder) {
    const std::vector<std::string> names = Manifest::of(folder).names(folder);
    return Json::Array(names.begin(), names.end());
}

void print_place(const fs::path& out, bool has_page) {
    const fs::path made = out / (has_page ? "report.html" : "metrics.csv");
    print(fmt::format("\n{}\n", styled(printable(made.string()), Style::bold)));
}

namespace {

/// A folder without run.json is no result: one of those inside may be meant, or the model.
void require_result(const fs::path& folder) {
    std::error_code failed;
    if (!fs::is_directory(folder, failed) || fs::exists(folder / "run.json", failed)) return;
    std::vector<std::string> inside;
    for (fs::directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed))
        if (fs::exists(at->path() / "run.json", failed)) inside.push_back(at->path().string());
    throw FormatError(fmt::format(
        "{}: has no run.json, expected a result of tsdiag; {}.", folder.string(),
        inside.empty()
            ? fmt::format("a model is measured with `tsdiag probe {}`", shell_word(folder.string()))
            : "it contains " + *std::ranges::min_element(inside)));
}

}  // namespace

Json read_description(const fs::path& folder) {
    const fs::path file = folder / "run.json";
    std::error_code failed;
    if (!fs::exists(file, failed) && fs::exists(folder / "claims.json", failed))
        throw FormatError(
            fmt::format("{}: was written by tsdiag check, which draws its page and figures itself "
                        "(--figure-width); its numbers are in claims.csv.",
                        folder.string()));
    require_result(folder);
    Json run = file_json(file, "a file written by tsdiag", longest_result);
    require_digests(folder, run);
    return run;
}

std::vector<MetricRow> read_metrics(const fs::path& folder) {
    const fs::path file = folder / "metrics.csv";
    return read_metrics_csv(read_text(file), file.string());
}

void add_samples(const fs::path& folder, const RunRecord& run, Index step,
                 std::vector<MetricRow>& rows) {
    if (!run.has_table(samples_name)) return;
    const Index samples = run.input.samples.value_or(0), trials = run.input.trials.value_or(0);
    constexpr auto most = Index(Table::most_samples_kept);
    const bool possible = samples > 0 && samples <= most && trials > 0 && trials <= most;
    const fs::path file = folder / samples_name;
    read_samples_csv(read_text(file), file.string(), possible ? samples * trials : 0, step, rows);
}

std::vector<CurveRow> read_curves(const fs::path& folder) {
    const fs::path file = folder / "curves.csv";
    return read_curves_csv(read_text(file), file.string());
}

RunResult read_result(const fs::path& folder) {
    RunResult result;
    result.run = read_description(folder);
    const std::vector<MetricRow> rows = read_metrics(folder);
    result.table = Table(rows.empty() ? "" : rows.front().model);
    result.table.append(rows, read_curves(folder));
    if (RunRecord(result.run).has_table("maps.npz")) read_maps(folder / "maps.npz", result.table);
    return result;
}

}  // namespace tsdiag::cli
