#include <fmt/format.h>

#include <algorithm>

#include "command.hpp"
#include "json_outputs.hpp"
#include "probing.hpp"
#include "result_files.hpp"
#include "series_parts.hpp"
#include "terminal.hpp"
#include "tsdiag/assertion.hpp"
#include "tsdiag/comparison.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/report.hpp"
#include "tsdiag/table_view.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag::cli {
namespace {

namespace fs = std::filesystem;

struct CompareCommand final : Command {
    explicit CompareCommand(CLI::App& app);
    int run() const override;

    std::vector<std::string> results, assertions;
    ComparisonOptions options;
    std::string out;  ///< empty: no files
    bool force = false, quiet = false;
    FigureStyle look;
};

constexpr int assertion_failed = 4;

/// What is compared is one table of metrics of one model.
void require_measurement(const std::string& folder, const RunRecord& run) {
    using enum RunRecord::Kind;
    if (run.kind != probe && run.kind != train)
        throw FormatError(
            fmt::format("{}: was written by tsdiag {}, expected a folder of tsdiag "
                        "probe or tsdiag train.",
                        folder, name(run.kind)));
}

/// Those of a checkpoint of a series lie with its own tables, as the digest of its inputs does.
std::vector<MetricRow> rows_with_samples(const fs::path& folder, RunRecord& run,
                                         const ResultPart& part) {
    std::vector<MetricRow> rows = read_metrics(folder);
    Index step = part.step.value_or(-1);
    for (const MetricRow& row : rows)
        if (!part.step) step = std::max(step, row.at.step);
    if (!run.checkpoints) {
        add_samples(folder, run, step, rows);
        return rows;
    }
    run.input.digest.clear();
    const fs::path own = part_folder(folder, step);
    const auto found = std::ranges::find(*run.checkpoints, step, &RunRecord::Checkpoint::step);
    std::error_code failed;
    if (found == run.checkpoints->end() || !fs::exists(own / "run.json", failed)) return rows;
    const RunRecord its = read_description(own);
    if (its.digest != found->digest) return rows;  // measured again since
    run.input.digest = its.input.digest;
    add_samples(own, its, step, rows);
    return rows;
}

/// "DIR", or "DIR@STEP:LAYER.HEAD" where there is no folder of that name.
MeasuredResult measured(const std::string& argument) {
    std::error_code failed;
    fs::path folder = argument;
    ResultPart part;
    if (!fs::is_directory(folder, failed)) {
        for (std::size_t at = argument.find_last_of("@:"); at != std::string::npos && at > 0;
             at = argument.find_last_of("@:", at - 1)) {
            if (!fs::is_directory(argument.substr(0, at), failed)) continue;
            folder = argument.substr(0, at);
            part = parse_part(argument.substr(at), argument);
            break;
        }
        if (!fs::is_directory(folder, failed))
            throw FormatError(fmt::format(
                "{}: is not a directory, expected one written by tsdiag probe or tsdiag train.",
                argument));
    }
    RunRecord run = read_description(folder);
    require_measurement(folder.string(), run);
    std::vector<MetricRow> rows = rows_with_samples(folder, run, part);
    return select(argument, std::move(rows), std::move(run), part);
}

std::string span_cell(const Difference& d) {
    if (!d.low || !d.high) return "-";
    return fmt::format("[{}, {}]", number_cell(d.low, 3), number_cell(d.high, 3));
}

/// Both numbers, to so many digits that they differ where the numbers do.
std::pair<std::string, std::string> number_cells(const Difference& d) {
    constexpr int fewest = 4, most = 9;
    for (int digits = fewest;; ++digits) {
        std::pair<std::string, std::string> cells = {number_cell(d.a, digits),
                                                     number_cell(d.b, digits)};
        if (cells.first != cells.second || d.outcome != Difference::Outcome::significant ||
            digits == most)
            return cells;
    }
}

std::string changes_table(const Changes& changes, bool several) {
    constexpr std::size_t most_changes = 12;
    std::vector<std::vector<std::string>> columns = {{"number"}, {"A"},        {"B"},
                                                     {"change"}, {"interval"}, {"outcome"}};
    std::vector<std::string> letters;
    for (const Difference& d : changes.differences) {
        if (letters.size() == most_changes) break;
        letters.push_back(letter(d.result));
        const auto [a, b] = number_cells(d);
        const std::string cells[] = {
            d.where(),
            a,
            b,
            d.pairs > 0 ? number_cell(d.difference, d.error) : number_cell(d.difference, 3),
            span_cell(d),
            std::string(name(d.outcome))};
        for (std::size_t c = 0; c < columns.size(); ++c) columns[c].push_back(cells[c]);
    }
    for (std::size_t c = 1; c < 4; ++c) {
        std::vector<std::string> cells(columns[c].begin() + 1, columns[c].end());
        align_points(cells);
        std::ranges::copy(cells, columns[c].begin() + 1);
    }
    if (several) columns[2].front() = "other";
    if (changes.tested == 0) columns.erase(columns.begin() + 4);  // no intervals
    std::vector<std::vector<std::string>> rows(letters.size() + 1);
    for (std::size_t r = 0; r < rows.size(); ++r) {
        for (const auto& column : columns) rows[r].push_back(column[r]);
        if (several) rows[r].insert(rows[r].begin() + 1, r == 0 ? "result" : letters[r - 1]);
    }
    const std::string text = aligned(rows, several ? 2 : 1);
    const std::size_t end = text.find('\n'), all = changes.differences.size();
    std::string out = "\n" + styled(text.substr(0, end), Style::bold) + text.substr(end);
    if (all > most_changes)
        out += fmt::format("and {} more (--out DIR, or --json)\n", all - most_changes);
    return out;
}

/// What run.json and --json tell.
RunRecord record_of(const std::vector<MeasuredResult>& results, const Changes& changes,
                    const std::vector<Judgement>& judged) {
    RunRecord out;
    for (std::size_t i = 0; i < results.size(); ++i) {
        const MeasuredResult& one = results[i];
        out.compared.push_back({.letter = letter(i),
                                .name = one.name,
                                .model = one.model(),
                                .step = one.step >= 0 ? std::optional(one.step) : std::nullopt,
                                .tables = one.run.tables.value()});
    }
    out.assertions = judged;
    if (results.size() > 1) out.comparison = comparison_record(changes);
    return out;
}

std::vector<Finding> judged_findings(const std::vector<Judgement>& judged) {
    std::vector<Finding> out;
    for (const Judgement& one : judged)
        out.push_back({one.holds ? Finding::Level::good : Finding::Level::warning, one.sentence});
    return out;
}

std::string comparison_text(const std::vector<MeasuredResult>& results, const Changes& changes,
                            const std::vector<Judgement>& judged) {
    std::string out;
    const auto line = [&](std::string_view mark, const std::string& text, Style style) {
        out += styled(mark, style) + wrapped(printable(text), terminal_width(), mark.size()) + "\n";
    };
    if (!changes.differences.empty()) {
        line("", styled(headline(changes), Style::plain), Style::plain);
        for (const std::string& note : changes.notes) line("! ", note, Style::warning);
    }
    for (const Judgement& one : judged)
        line(one.holds ? "- " : "! ", one.sentence, one.holds ? Style::plain : Style::warning);
    if (changes.differences.empty()) return out;
    for (const std::string& remark : remarks(changes)) line("- ", remark, Style::plain);
    out += "\n";
    for (std::size_t i = 0; i < results.size(); ++i)
        out += fmt::format("{}  {}\n", letter(i), printable(results[i].name));
    return out + changes_table(changes, results.size() > 2);
}

OutputPlan comparison_plan(bool force) {
    return {.writes = {"compare.csv", "run.json", "report.html", "figures/*"}, .force = force};
}

}  // namespace

CompareCommand::CompareCommand(CLI::App& app) {
    RowChoice& choice = options.choice;
    app.add_option("RESULT", results,
                   "folders of tsdiag probe or train, the first is what the others are compared\n"
                   "with; DIR@STEP, DIR:LAYER and DIR:LAYER.HEAD are parts (LAYER: a number, last)")
        ->required()
        ->type_name("");
    app.add_option("--assert", assertions,
                   "exit with code 4 unless it holds: METRIC@STAGE:LAYER.HEAD < NUMBER, with\n"
                   "LAYER a number, last, max, min or mean; B: or B-A: in front (repeatable)")
        ->type_name("TEXT")
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->expected(1);
    value(app, "--layers", "A:B", "compare these layers only", [&](const std::string& t) {
        choice.layers = true;
        std::tie(choice.first_layer, choice.last_layer) = parse_layers(t, "--layers");
    });
    value(app, "--heads", "LIST", "compare these heads (0,3,8:11 or all), not means over heads",
          [&](const std::string& t) {
              choice.all_heads = t == "all";
              if (!choice.all_heads) choice.heads = parse_indices(t, "--heads");
          });
    value(app, "--metrics", "LIST", "compare these metrics only",
          [&](const std::string& t) { choice.metrics = split(t, ','); });
    value(app, "--fdr", "Q", "false-discovery rate (default 0.05)",
          [&](const std::string& t) { options.rate = parse_probability(t, "--fdr"); });
    const auto output = [](CLI::Option* option) { option->group("Output"); };
    output(place(app, out, "DIR", "output directory for compare.csv, run.json and a report"));
    add_paper(app, look);
    output(app.add_flag("--force", force, "write into a directory that contains other files"));
    output(app.add_flag("-q,--quiet", quiet, "print failed assertions and errors only"));
}

int CompareCommand::run() const {
    if (results.size() < 2 && assertions.empty())
        throw UsageError(
            "compare: needs a second result to compare with, or --assert for a single one.");
    if (results.size() > most_results)
        throw UsageError(
            fmt::format("compare: {} results are more than {}.", results.size(), most_results));
    if (results.size() < 2 && !out.empty())
        throw UsageError("--out: needs two results to compare.");
    std::vector<Assertion> asserted;
    for (const std::string& text : assertions)
        asserted.push_back(parse_assertion(text, results.size()));
    for (const std::string& metric : options.choice.metrics)
        if (!find_metric(metric))
            throw UsageError(
                fmt::format("--metrics: '{}' is not a metric; see tsdiag list metrics.", metric));
    std::optional<OutputFolder> directory;
    if (!out.empty()) directory.emplace(out, comparison_plan(force));

    std::vector<MeasuredResult> all;
    for (const std::string& argument : results) all.push_back(measured(argument));
    Changes changes;
    if (all.size() > 1) changes = compare(all, options);
    std::vector<Judgement> judged;
    for (const Assertion& assertion : asserted)
        for (Judgement& one : judge(assertion, all)) judged.push_back(std::move(one));
    const bool failed = std::ranges::any_of(judged, [](auto& one) { return !one.holds; });

    const RunRecord found = record_of(all, changes, judged), run = headed(found);
    if (directory) {
        write_atomically(directory->temporary() / "compare.csv", comparison_csv(changes, all));
        for (const std::string& line : write_comparison(all, changes, judged_findings(judged), run,
                                                        directory->temporary(), look))
            say("tsdiag: " + printable(line));
        write_description(run, directory->temporary());
        directory->commit();
    }
    print_json("compare", found.json()
                              .set("out", directory ? Json(out) : Json())
                              .set("files", directory ? files_json(out) : Json(Json::Array())));
    if (!quiet) print(comparison_text(all, changes, judged));
    if (quiet || prints_json())
        for (const Judgement& one : judged)
            if (!one.holds) say("tsdiag: " + printable(one.sentence));
    if (directory && !quiet)
        print(fmt::format(
            "\n{}\n", styled(printable((fs::path(out) / "report.html").string()), Style::bold)));
    return failed ? assertion_failed : 0;
}

int compare_results(const std::vector<std::string>& results, const std::string& out,
                    const FigureStyle& look, bool force, bool quiet) {
    CLI::App app;
    CompareCommand command(app);
    command.results = results;
    command.out = out;
    command.look = look;
    command.force = force;
    command.quiet = quiet;
    return command.run();
}

extern const CommandEntry compare_command = {
    .name = "compare",
    .about = "what differs between results, and assertions on them",
    .examples = R"(Examples:
  tsdiag compare before after                       what changed beyond scatter
  tsdiag compare run@100 run@500 --out compared     two checkpoints of a series, with a page
  tsdiag compare result:0 result:last               two layers
  tsdiag compare base new --heads all --metrics delta,row_max
  tsdiag compare run --assert "t_sim@out:last < 0.9"     exits 4 where that is false
  tsdiag compare base new --assert "B-A: t_sim@out:max < 0.05")",
    .make = made<CompareCommand>};

}  // namespace tsdiag::cli
