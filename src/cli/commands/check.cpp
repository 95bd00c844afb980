#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "command.hpp"
#include "json_outputs.hpp"
#include "other_names.hpp"
#include "result_files.hpp"
#include "split.hpp"
#include "summary.hpp"
#include "terminal.hpp"
#include "threads.hpp"
#include "tsdiag/claim.hpp"
#include "tsdiag/claim_record.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/report.hpp"

namespace tsdiag::cli {
namespace {

struct CheckCommand final : Command {
    explicit CheckCommand(CLI::App& app);
    int run() const override;
    std::optional<Splitting> splitting() override {
        if (list) return std::nullopt;
        return Splitting{split, out};
    }

    std::vector<std::string> names;
    CheckSettings settings;
    SplitOptions split;
    std::string out;  ///< empty: no files
    Index threads = 0;
    bool list = false, markdown = false, strict = false, force = false, quiet = false;
    FigureStyle look;
};

constexpr int a_check_failed = 4, left_open = 5;
constexpr double worth_saying = 3;  // seconds: shorter runs are not announced
constexpr Index most_printed = 40;  // entries of a matrix on a terminal

/// "[0.69 0 0; 1 2 3]"
std::string matrix(const NamedMatrix& m) {
    if (m.rows * m.cols > most_printed)
        return fmt::format("{} ({} x {}, in claims.json)", m.name, m.rows, m.cols);
    std::string text = m.name + " = [";
    for (Index i = 0; i < m.rows; ++i)
        for (Index j = 0; j < m.cols; ++j)
            text += fmt::format("{}{:.6g}",
                                i == 0 && j == 0 ? ""
                                : j == 0         ? "; "
                                                 : " ",
                                m.values[std::size_t(i * m.cols + j)]);
    return text + "]";
}

std::string list_text(const std::vector<const Claim*>& chosen) {
    constexpr std::size_t indent = 4;
    std::string out;
    const auto line = [&](std::string_view head, std::string_view body) {
        if (body.empty()) return;
        out += std::string(indent, ' ') +
               wrapped(printable(fmt::format("{}{}", head, body)), terminal_width(), indent) + "\n";
    };
    for (const Claim* c : chosen) {
        out += styled(c->name, Style::bold) + "\n";
        line("", c->statement);
        line("Source: ", c->source);
        line("In the paper's words: ", c->words);
        line("Assumes: ", c->assumes);
        line("Proof: ", c->proof);
        line("Sharp: ", c->sharp);
    }
    return out;
}

Json list_json(const std::vector<const Claim*>& chosen) {
    Json::Array all;
    for (const Claim* c : chosen) {
        Json one;
        one.set("name", c->name).set("statement", c->statement).set("source", c->source);
        one.set("words", c->words).set("assumes", c->assumes).set("proof", c->proof);
        all.push_back(one.set("sharp", c->sharp));
    }
    return all;
}

std::vector<std::string> row(const std::string& claim, const std::string& reading,
                             std::string_view verdict, const Reading& r) {
    const std::string range =
        r.low && r.high ? fmt::format("[{:.5g}, {:.5g}]", *r.low, *r.high) : "";
    return {
        claim,
        reading,
        std::string(verdict),
        number_cell(r.measured, 6),
        number_cell(r.bound, 6) + (r.resolution > 0 ? fmt::format(" (to {:g})", r.resolution) : ""),
        number_cell(r.tightness, 6),
        range,
        r.trials > 0 ? std::to_string(r.trials) : "",
        r.steps > 0 ? std::to_string(r.steps) : ""};
}

std::string result_table(const std::vector<Examined>& examined) {
    std::vector<std::vector<std::string>> rows{{"claim", "reading", "verdict", "measured", "bound",
                                                "ratio", "interval", "draws", "steps"}};
    for (const Examined& e : examined) {
        rows.push_back(
            {std::string(e.claim->name), "", std::string(name(e.verdict)), "", "", "", "", "", ""});
        for (const Reading& r : e.readings)
            rows.push_back(
                row("", r.name + (r.role == Role::sharper ? " *" : ""), name(r.verdict), r));
        for (const Reading& r : e.controls)
            rows.push_back(row("", "control: " + r.name, control_outcome(r), r));
    }
    const std::string text = aligned(rows, 3);
    const std::size_t end = text.find('\n');
    return styled(text.substr(0, end), Style::bold) + text.substr(end);
}

/// The counterexamples of false statements, and what is missing for undecided ones.
std::string remarks(const std::vector<Examined>& examined) {
    std::string out;
    const auto add = [&](const Examined& e, const Reading& r, const std::string& text) {
        const std::string head =
            fmt::format("{}{}{}: ", e.claim->name, r.name.empty() ? "" : ", ", r.name);
        out += "- " + wrapped(printable(head + text), terminal_width(), 2) + "\n";
    };
    for (const Examined& e : examined) {
        for (const Reading& r : e.readings) {
            if (r.verdict == Verdict::false_as_stated) {
                std::string text = fmt::format("{} is false: {} against {}", r.formula,
                                               number_cell(r.measured, 6), number_cell(r.bound, 6));
                for (const NamedMatrix& m : r.witness)
                    text += (&m == r.witness.data() ? " with " : ", ") + matrix(m);
                if (r.replay) text += fmt::format(" (--trial {})", r.replay->trial);
                add(e, r, text + ".");
            } else if (r.verdict == Verdict::not_decided ||
                       r.verdict == Verdict::hypothesis_not_met || (r.low && r.low == r.high)) {
                add(e, r, r.note + ".");
            }
        }
        for (const Reading& r : e.controls)
            if (r.verdict != Verdict::false_as_stated && r.verdict != Verdict::hypothesis_not_met)
                add(e, r, "this control was not found false, so \"holds\" is weak evidence here.");
    }
    return out.empty() ? "" : "\n" + out;
}

constexpr std::string_view legend =
    "holds: no counterexample in these draws and search steps, which is not a proof. A control "
    "breaks a hypothesis and must be found false. *: sharper than the statement; not counted.";

/// Exit code of --strict: 4 where a statement is false in one of its readings, 5 where none is but
/// one is undecided or was examined outside its hypotheses.
int strict_code(const std::vector<Examined>& examined) {
    const auto any = [&](auto open) { return std::ranges::any_of(examined, open); };
    if (any([](const Examined& e) { return has_false_reading(e); })) return a_check_failed;
    return any([](const Examined& e) {
        return e.verdict == Verdict::not_decided || e.verdict == Verdict::hypothesis_not_met;
    })
               ? left_open
               : 0;
}

/// What determines the records of the claims.
std::string settings_of(const std::vector<const Claim*>& chosen, const CheckSettings& s) {
    std::string text = fmt::format(
        "check trials {} n {} d {} heads {} seed {} dist {} confidence {} climbs {} only {}",
        s.trials, s.n, s.d, s.heads, s.seed, name(s.distribution), s.confidence, s.climbs,
        s.only.value_or(-1));
    for (const Index size : s.range) text += fmt::format(" {}", size);
    for (const Claim* claim : chosen) text += fmt::format(" {}", claim->name);
    return text;
}

/// Examines claim `i`, or reads what was examined before.
Examined examined_unit(const std::vector<const Claim*>& chosen, const CheckSettings& settings,
                       SplitJob* job, Index i) {
    const Claim& claim = *chosen[std::size_t(i)];
    return result_of_unit(
        job ? &job->units() : nullptr, i,
        [&](std::string_view record) { return read_claim_record(record, claim, settings); },
        [&] { return examine(claim, settings); }, claim_record);
}

/// Announces the estimated time; returns the expected share of each claim.
std::vector<double> announced(const std::vector<const Claim*>& chosen,
                              const CheckCommand& command) {
    std::vector<double> parts;
    Effort sum;
    for (const Claim* claim : chosen) {
        const Effort one = effort(*claim, command.settings);
        sum.seconds += one.seconds;
        sum.most += one.most;
        parts.push_back(one.seconds);
    }
    if (!command.quiet && sum.seconds > worth_saying)
        say(fmt::format(
            "tsdiag: this will take about {}{}.", duration(sum.seconds),
            sum.most > 1.5 * sum.seconds
                ? fmt::format(", or up to {} if some means are hard to decide", duration(sum.most))
                : ""));
    for (double& part : parts) part /= std::max(sum.seconds, 1e-9);
    return parts;
}

}  // namespace

CheckCommand::CheckCommand(CLI::App& app) {
    CheckSettings& s = settings;
    app.add_option("NAME", names, "claims, or prefixes such as tse or tse.thm (default: all)")
        ->type_name("");
    app.add_flag("--list", list, "list names, statements, sources and sharp forms");
    app.add_flag("--markdown", markdown, "print docs/statements.md");
    const auto group = [](CLI::Option* option) { option->group("Examination"); };
    group(
        value(app, "--trials", "T", "draws per claim (default: the claim's own)",
              [&](const std::string& t) { s.trials = parse_count(t, "--trials", 1, most_draws); }));
    group(value(app, "--seed", "K", "random seed (default 0)",
                [&](const std::string& t) { s.seed = parse_seed(t, "--seed"); }));
    group(value(app, "--n", "N", "tokens",
                [&](const std::string& t) { s.n = parse_count(t, "--n", 1); }));
    group(value(app, "--d", "D", "width",
                [&](const std::string& t) { s.d = parse_count(t, "--d", 1); }));
    group(value(app, "--heads", "H", "number of heads, a divisor of the width",
                [&](const std::string& t) { s.heads = parse_count(t, "--heads", 1); }));
    group(value(app, "--dist", "NAME",
                "distribution of the entries: gaussian, uniform, rademacher, torch\nor xavier",
                [&](const std::string& t) { s.distribution = distribution(t); }));
    group(value(app, "--range", "A:B", "sizes A, 2A, ... B to fit exponents over",
                [&](const std::string& t) { s.range = parse_doubling(t, "--range"); }));
    group(value(app, "--confidence", "C", "joint confidence of all intervals (default 0.95)",
                [&](const std::string& t) { s.confidence = parse_number(t, "--confidence"); }));
    group(value(app, "--trial", "T", "run only this trial, to reproduce a result",
                [&](const std::string& t) { s.only = parse_count(t, "--trial", 0); }));
    group(value(app, "--threads", "N", "number of threads (default: one per core)",
                [&](const std::string& t) { threads = parse_count(t, "--threads", 1, 1024); }));
    add_split(app, split, "Examination");
    const auto output = [](CLI::Option* option) { option->group("Output"); };
    output(place(app, out, "DIR", "output directory for claims.csv, claims.json and a report"));
    add_paper(app, look);
    output(app.add_flag("--strict", strict,
                        "exit with code 4 if a statement is false,\n5 if one is not decided"));
    output(app.add_flag("--force", force, "write into a directory that contains other files"));
    output(app.add_flag("-q,--quiet", quiet, "print errors only"));
}

int CheckCommand::run() const {
    refuse_names_of_others("check", names);
    const std::vector<const Claim*> chosen = resolve_claims(names);
    if (list) {
        print_json("check", Json().set("claims", list_json(chosen)));
        print(list_text(chosen));
        return 0;
    }
    if (markdown && (prints_json() || !out.empty()))
        throw UsageError("--markdown: prints a document and nothing else; drop --json and --out.");
    if (threads > 0) use_threads(threads);
    for (const Claim* claim : chosen) plan(*claim, settings);  // refuses before hours pass
    // Without a folder, ranks keep their units beside one named "check".
    const std::string folder = out.empty() ? "check" : out;
    if (out.empty() && split.parts > 0)
        throw UsageError("--part: needs --out DIR, where the parts meet.");
    const bool several = participation().ranks || participation().after_all;
    std::optional<SplitJob> job;
    if (!out.empty() || several) job.emplace(split, folder, settings_of(chosen, settings), "cpu");
    const bool computes_units_only = job && job->computes_units_only();
    std::optional<OutputFolder> directory;
    if (!out.empty() && !computes_units_only)
        directory.emplace(
            out, OutputPlan{.writes = {"claims.csv", "claims.json", "report.html", "figures/*"},
                            .force = force});
    const std::vector<double> parts = announced(chosen, *this);
    ProgressBar bar(quiet, false);
    const Index count = std::ssize(chosen);
    if (job) job->units().begin(count);
    if (computes_units_only) {
        for (Index i; (i = job->units().next()) >= 0;) {
            bar.update({.phase = "check", .fraction = double(i) / double(count)});
            examined_unit(chosen, settings, &*job, i);
        }
        bar.clear();
        job->finish(folder, quiet);
        return 0;
    }
    std::vector<Examined> examined;
    double done = 0;
    for (Index i = 0; i < count; ++i) {
        bar.update({.phase = "check", .fraction = done});
        done += parts[std::size_t(i)];
        examined.push_back(examined_unit(chosen, settings, job ? &*job : nullptr, i));
    }
    bar.clear();
    if (markdown) {
        print(statements_markdown(examined));
        if (job) job->finish_result(true);
        return 0;
    }
    if (directory) {
        write_atomically(directory->temporary() / "claims.csv", claims_csv(claim_rows(examined)));
        const Json json = described(claims_json(examined, settings),
                                    job ? job->measured() : RunRecord::Measured());
        write_description(json, directory->temporary(), "claims.json");
        for (const std::string& line :
             write_claims_report(examined, json, directory->temporary(), look))
            if (!quiet) say("tsdiag: " + printable(line));
        directory->commit();
    }
    if (job) job->finish_result(quiet);
    if (prints_json())
        print_json("check", claims_json(examined, settings)
                                .set("out", directory ? Json(out) : Json())
                                .set("findings", findings_json({claims_headline(examined)}))
                                .set("files", directory ? files_json(out) : Json(Json::Array())));
    if (!quiet) {
        print(result_table(examined) + findings_text({claims_headline(examined)}, false) +
              remarks(examined) + "\n" + wrapped(legend, terminal_width(), 0) + "\n");
        if (directory) print(fmt::format("\n{}\n", printable(out + "/report.html")));
    }
    return strict ? strict_code(examined) : 0;
}

namespace {

std::vector<std::string> claim_names() {
    std::vector<std::string> out;
    for (const Claim* claim : claims()) out.emplace_back(claim->name);
    return out;
}

}  // namespace

extern const CommandEntry check_command = {.name = "check",
                                           .about = "check the statements of the papers",
                                           .examples = R"(Examples:
  tsdiag check                            every statement, at its default sizes
  tsdiag check devil.eq59 --n 2 --d 1     one statement, at chosen sizes
  tsdiag check tse --dist rademacher --trials 10000 --out checked
  tsdiag check poly.thm4.2 --range 32:1024
  tsdiag check --list)",
                                           .make = made<CheckCommand>,
                                           .names = claim_names,
                                           .has_settings = true};

}  // namespace tsdiag::cli
