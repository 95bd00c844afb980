#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "command.hpp"
#include "json_outputs.hpp"
#include "terminal.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/output.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag::cli {
namespace {

std::vector<const CLI::App*> commands_of(const CLI::App& program) {
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

/// The page of a command in roff, or that of the program: man ./tsdiag-probe.1
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
        for (const CLI::App* command : commands_of(program))
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
    for (const CLI::App* command : commands_of(program))
        all += fmt::format("{}.BR tsdiag\\-{} (1)", all.empty() ? "" : ",\n", command->get_name());
    return out + all + "\n";
}

struct Page {
    std::string file, text;
};

/// The folder may hold the pages of other programs.
void write_pages(const std::filesystem::path& where, const std::vector<Page>& pages) {
    const std::filesystem::path folder = place_of_folder(where);
    for (const auto& [name, page] : pages) {
        const std::filesystem::path file = folder / name;
        const std::string_view first_word = std::string_view(page).substr(0, page.find(' '));
        if (place_of_file(file) == FilePlace::replaced &&
            !file_text(file, "a manual page").starts_with(fmt::format("{} TSDIAG", first_word)))
            throw UsageError(
                fmt::format("{}: was not written by tsdiag and would be overwritten; move it away, "
                            "or choose another --out.",
                            file.string()));
    }
    std::filesystem::create_directories(folder);
    for (const auto& [name, page] : pages) write_atomically(folder / name, page);
}

struct ManualCommand final : Command {
    explicit ManualCommand(CLI::App& app) : program(*app.get_parent()) {
        app.add_option("COMMAND", name, "a command (default: tsdiag itself)")->type_name("");
        place(app, out, "DIR", "write all pages into a directory");
    }
    int run() const override;
    bool only_prints() const override { return true; }
    std::string one_page() const;
    std::string all_pages() const;

    const CLI::App& program;
    std::string name, out;
};

std::string ManualCommand::one_page() const {
    if (name.empty()) return manual_page(program, program);
    for (const CLI::App* command : commands_of(program))
        if (command->get_name() == name) return manual_page(*command, program);
    throw UsageError(fmt::format("'{}' is not a command of tsdiag; see tsdiag --help.", name));
}

/// Writes them; returns the names of their files, a line each.
std::string ManualCommand::all_pages() const {
    std::vector<Page> pages{{"tsdiag.1", manual_page(program, program)}};
    for (const CLI::App* command : commands_of(program))
        pages.push_back(
            {fmt::format("tsdiag-{}.1", command->get_name()), manual_page(*command, program)});
    write_pages(out, pages);
    std::string names;
    for (const Page& page : pages)
        names += (std::filesystem::path(out) / page.file).string() + "\n";
    return names;
}

int ManualCommand::run() const {
    const std::string said = out.empty() ? one_page() : all_pages();
    print_json("manual", Json().set("text", said));
    print(said);
    return 0;
}

}  // namespace

extern const CommandEntry manual_command = {.name = "manual",
                                            .about = "print a manual page",
                                            .examples = R"(Examples:
  tsdiag manual probe | man -l -
  tsdiag manual --out man1              a file for every command)",
                                            .make = made<ManualCommand>};

}  // namespace tsdiag::cli
