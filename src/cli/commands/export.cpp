#include "tsdiag/export.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "command.hpp"
#include "json_outputs.hpp"
#include "result_files.hpp"
#include "terminal.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/run_record.hpp"

namespace tsdiag::cli {
namespace {

namespace fs = std::filesystem;

struct ExportCommand final : Command {
    explicit ExportCommand(CLI::App& app);
    int run() const override;

    std::string directory;
    std::string to, out;  ///< `out` empty: standard output
    bool force = false;
};

const ExportFormat& format_named(const std::string& name) {
    std::string known;
    for (const ExportFormat* format : export_formats()) {
        if (format->name == name) return *format;
        known += (known.empty() ? "" : ", ") + std::string(format->name);
    }
    throw UsageError(
        fmt::format("--to: '{}' is not a format, expected {}.", printable(name), known));
}

/// The tables of a result that are lists of numbers or texts.
std::vector<ExportTable> tables_of(const fs::path& folder, const RunRecord& run) {
    std::vector<ExportTable> out;
    for (const auto& [name, digest] : run.tables.value()) {
        const fs::path file = folder / name;
        if (name == "metrics.csv")
            out.push_back(metrics_table(read_metrics(folder)));
        else if (name == "curves.csv")
            out.push_back(curves_table(read_curves(folder)));
        else if (name.ends_with(".csv"))
            out.push_back(
                csv_table(file.stem().string(), file_text(file, "a table"), file.string()));
    }
    return out;
}

/// To a file of its own; else the text is printed.
bool writes_file(const ExportCommand& command) {
    return !command.out.empty() && !is_standard_output(command.out);
}

void require_place(const ExportCommand& command, const ExportFormat& format) {
    if (command.out.empty() && !format.files.empty())
        throw UsageError(
            fmt::format("--to {}: writes a folder; name it by --out DIR.", format.name));
    if (!writes_file(command) && prints_json())
        throw UsageError("--json: tells which files were written; name them by --out.");
    if (!format.files.empty() || !writes_file(command)) return;
    refuse_inputs(command.out);
    if (place_of_file(command.out) == FilePlace::replaced && !command.force)
        throw UsageError(
            fmt::format("--out: {} exists; choose another name or add --force.", command.out));
}

/// Where a file of the export lies in the end.
fs::path placed(const ExportCommand& command, const ExportedFile& file) {
    return file.name.empty() ? fs::path(command.out) : fs::path(command.out) / file.name;
}

void write_files(const ExportCommand& command, const ExportFormat& format,
                 const std::vector<ExportedFile>& files) {
    if (format.files.empty()) return write_atomically(command.out, files.front().content);
    OutputFolder directory(command.out,
                           {.writes = {std::string(format.files)}, .force = command.force});
    for (const ExportedFile& file : files)
        write_atomically(directory.temporary() / file.name, file.content);
    directory.commit();
}

}  // namespace

ExportCommand::ExportCommand(CLI::App& app) {
    app.add_option("DIR", directory, "directory written by tsdiag")->required()->type_name("");
    text(app, "--to", to, "FORMAT", "jsonl, parquet or tensorboard (docs/export.md)")->required();
    place(app, out, "PATH", "output file of jsonl (default: standard output), or the directory");
    app.add_flag("--force", force, "replace an existing file");
}

int ExportCommand::run() const {
    const ExportFormat& format = format_named(to);
    const fs::path folder = directory;
    std::error_code failed;
    if (!fs::is_directory(folder, failed))
        throw FormatError(fmt::format("{}: is not a directory, expected one written by tsdiag.",
                                      folder.string()));
    require_place(*this, format);
    const std::vector<ExportedFile> files =
        format.write(tables_of(folder, read_description(folder)));
    if (format.files.empty() && !writes_file(*this)) {
        print(files.front().content);
        return 0;
    }
    write_files(*this, format, files);
    Json::Array files_json;
    for (const ExportedFile& file : files) {
        Json one;
        one.set("file", placed(*this, file).string());
        one.set("table", file.table.empty() ? Json() : Json(file.table));
        files_json.push_back(one.set("rows", file.rows));
    }
    print_json("export", Json().set("files", std::move(files_json)));
    return 0;
}

extern const CommandEntry export_command = {
    .name = "export",
    .about = "write the numbers of a result for other programs",
    .examples = R"(Examples:
  tsdiag export char-gpt.tsdiag --to jsonl --out char-gpt.jsonl
  tsdiag export result --to jsonl | head -n 1
  tsdiag export result --to parquet --out tables          metrics.parquet, curves.parquet
  tsdiag export run.tsdiag --to tensorboard --out logs    tensorboard --logdir logs)",
    .make = made<ExportCommand>};

}  // namespace tsdiag::cli
