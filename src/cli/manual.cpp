#include "manual.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tsdiag/text.hpp"

namespace tsdiag::cli {
namespace {

std::vector<const CLI::App*> commands(const CLI::App& program) {
    return program.get_subcommands([](const CLI::App*) { return true; });
}

/// Text for roff: backslashes and hyphens are literal, a line does not begin with a request.
std::string roff(const std::string& text) {
    std::string out;
    for (const std::string& line : split(text, '\n')) {
        if (line.starts_with('.') || line.starts_with('\'')) out += "\\&";
        for (const char c : line)
            if (c == '\\')
                out += "\\e";
            else if (c == '-')
                out += "\\-";
            else
                out += c;
        out += '\n';
    }
    return out;
}

std::string one_line(std::string text) {
    std::ranges::replace(text, '\n', ' ');
    return text;
}

/// "-o, --out DIR", bold names and an italic value.
std::string head_of(const CLI::Option& option) {
    std::string out;
    std::vector<std::string> names;
    for (const std::string& name : option.get_snames()) names.push_back("\\-" + name);
    for (const std::string& name : option.get_lnames()) {
        std::string escaped = roff(name);
        escaped.pop_back();
        names.push_back("\\-\\-" + escaped);
    }
    if (names.empty()) names.push_back(option.get_name());
    for (const std::string& name : names)
        out += fmt::format("{}\\fB{}\\fR", out.empty() ? "" : ", ", name);
    if (!option.get_type_name().empty() && option.get_expected_max() > 0)
        out += fmt::format(" \\fI{}\\fR", option.get_type_name());
    return out;
}

std::string section(const std::string& title) { return fmt::format(".SH {}\n", title); }

std::string item(const std::string& head, const std::string& body) {
    return fmt::format(".TP\n{}\n{}", head, roff(one_line(body)));
}

}  // namespace

std::string manual_page(const CLI::App& app, const CLI::App& program) {
    const bool whole = &app == &program;
    const std::string name = whole ? "tsdiag" : "tsdiag-" + app.get_name();
    std::string title = name;
    std::ranges::transform(title, title.begin(), [](unsigned char c) { return char(toupper(c)); });
    std::string out = fmt::format(".TH {} 1 \"\" \"tsdiag {}\"\n", title, TSDIAG_VERSION);
    out += section("NAME");
    out += roff(fmt::format("{} - {}", name, app.get_description()));
    out += section("SYNOPSIS");
    if (whole) {
        out += ".B tsdiag\n.I COMMAND\n[options]\n";
    } else {
        std::string arguments;
        for (const CLI::Option* option : app.get_options()) {
            if (!option->get_positional()) continue;
            const std::string words =
                option->get_name() + (option->get_items_expected_max() > 1 ? " ..." : "");
            arguments += option->get_required() ? " " + words : fmt::format(" [{}]", words);
        }
        out += fmt::format(".B tsdiag {}\n[options]{}\n", app.get_name(), arguments);
    }
    if (whole) {
        out += section("COMMANDS");
        for (const CLI::App* command : commands(program))
            out += item(fmt::format("\\fBtsdiag {}\\fR", command->get_name()),
                        command->get_description());
    }
    std::vector<std::string> groups;
    for (const CLI::Option* option : app.get_options()) {
        const std::string& group = option->get_positional() ? "Arguments" : option->get_group();
        if (std::ranges::find(groups, group) == groups.end()) groups.push_back(group);
    }
    out += section("OPTIONS");
    for (const std::string& group : groups) {
        if (groups.size() > 1) out += fmt::format(".SS {}\n", group);
        for (const CLI::Option* option : app.get_options())
            if ((option->get_positional() ? "Arguments" : option->get_group()) == group)
                out += item(head_of(*option), option->get_description());
    }
    if (!app.get_footer().empty()) {
        out += section("EXAMPLES");
        out += ".nf\n" + roff(app.get_footer()) + ".fi\n";
    }
    out += section("SEE ALSO");
    if (!whole) return out + ".BR tsdiag (1)\n";
    std::string all;
    for (const CLI::App* command : commands(program))
        all += fmt::format("{}.BR tsdiag\\-{} (1)", all.empty() ? "" : ",\n", command->get_name());
    return out + all + "\n";
}

}  // namespace tsdiag::cli
