#include <fmt/format.h>

#include <algorithm>

#include "commands.hpp"
#include "result_files.hpp"
#include "terminal.hpp"
#include "threads.hpp"
#include "tsdiag/claim.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/report.hpp"

namespace tsdiag::cli {
namespace {

constexpr int a_check_failed = 4;
constexpr Index most_printed = 40;  // entries of a matrix on a terminal

std::string number(std::optional<double> value) {
    return value ? fmt::format("{:.6g}", *value) : "-";
}

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
        line("Sharp: ", c->sharp);
    }
    return out;
}

std::vector<std::string> row(const std::string& claim, const Reading& r) {
    const std::string range =
        r.low && r.high ? fmt::format("[{:.5g}, {:.5g}]", *r.low, *r.high) : "";
    return {claim,
            r.name + (r.role == Role::sharper ? " *" : ""),
            std::string(name(r.verdict)),
            number(r.measured),
            number(r.bound),
            number(r.tightness),
            range};
}

std::string result_table(const std::vector<Examined>& examined) {
    std::vector<std::vector<std::string>> rows{
        {"claim", "reading", "verdict", "measured", "bound", "ratio", "interval"}};
    for (const Examined& e : examined) {
        const std::string claim(e.claim->name);
        if (e.readings.size() == 1) {
            rows.push_back(row(claim, e.readings.front()));
            continue;
        }
        rows.push_back({claim, "", std::string(name(e.verdict)), "", "", "", ""});
        for (const Reading& r : e.readings) rows.push_back(row("", r));
    }
    const std::string text = aligned(rows, 3);
    const std::size_t end = text.find('\n');
    return styled(text.substr(0, end), Style::bold) + text.substr(end);
}

/// What breaks each statement that is false, and what is missing for those that are not decided.
std::string remarks(const std::vector<Examined>& examined) {
    std::string out;
    const auto add = [&](const Examined& e, const Reading& r, const std::string& text) {
        const std::string head =
            fmt::format("{}{}{}: ", e.claim->name, r.name.empty() ? "" : ", ", r.name);
        out += "- " + wrapped(printable(head + text), terminal_width(), 2) + "\n";
    };
    for (const Examined& e : examined)
        for (const Reading& r : e.readings) {
            if (r.verdict == Verdict::false_as_stated) {
                std::string text = fmt::format("{} is false: {} against {}", r.formula,
                                               number(r.measured), number(r.bound));
                for (const NamedMatrix& m : r.witness)
                    text += (&m == r.witness.data() ? " with " : ", ") + matrix(m);
                if (r.replay) text += fmt::format(" (--trial {})", r.replay->trial);
                add(e, r, text + ".");
            } else if (r.verdict == Verdict::not_decided ||
                       r.verdict == Verdict::hypothesis_not_met) {
                add(e, r, r.note + ".");
            }
        }
    return out.empty() ? "" : "\n" + out;
}

bool something_is_false(const std::vector<Examined>& examined) {
    return std::ranges::any_of(examined, [](const Examined& e) {
        return std::ranges::any_of(e.readings, [](const Reading& r) {
            return r.role != Role::sharper && r.verdict == Verdict::false_as_stated;
        });
    });
}

}  // namespace

int run_command(const CheckCommand& command) {
    const std::vector<const Claim*> chosen = resolve_claims(command.names);
    if (command.markdown) {
        print(statements_markdown());
        return 0;
    }
    if (command.list) {
        print(list_text(chosen));
        return 0;
    }
    if (command.threads > 0) use_threads(command.threads);
    for (const Claim* claim : chosen) plan(*claim, command.settings);  // refuses before hours pass
    std::optional<OutputFolder> directory;
    if (!command.out.empty())
        directory.emplace(command.out, OutputPlan{.writes = {"claims.csv", "claims.json",
                                                             "report.html", "figures/*"},
                                                  .force = command.force});
    ProgressBar bar(command.quiet, false);
    std::vector<Examined> examined;
    for (const Claim* claim : chosen) {
        bar.update({.phase = "check", .fraction = double(examined.size()) / double(chosen.size())});
        examined.push_back(examine(*claim, command.settings));
    }
    bar.clear();
    if (directory) {
        write_atomically(directory->temporary() / "claims.csv", claims_csv(claim_rows(examined)));
        const Json json = described(claims_json(examined, command.settings));
        write_description(json, directory->temporary(), "claims.json");
        for (const std::string& line : write_claims_report(examined, json, directory->temporary()))
            if (!command.quiet) say("tsdiag: " + printable(line));
        directory->commit();
    }
    if (!command.quiet) {
        print(result_table(examined) + remarks(examined));
        if (directory) print(fmt::format("\n{}\n", printable(command.out + "/report.html")));
    }
    return command.strict && something_is_false(examined) ? a_check_failed : 0;
}

}  // namespace tsdiag::cli
