#include "program.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "help_json.hpp"
#include "json_outputs.hpp"
#include "settings_file.hpp"
#include "terminal.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/output.hpp"
#include "tsdiag/text.hpp"
#include "version.hpp"

namespace tsdiag::cli {
namespace {

constexpr const char* program_footer = R"(Examples:
  tsdiag probe examples/char-gpt          every diagnostic, and a report
  tsdiag inspect model.safetensors        what a file contains, and what would be run
  tsdiag figure tse.fig2                  a figure of the papers, next to its claim
  tsdiag check tse                        check the statements of a paper
  tsdiag list random                      models that can be drawn

See tsdiag COMMAND --help for details.
Exit codes: 0 success, 1 invalid input, 2 usage error, 3 not available here,
4 a check or an assertion failed, 5 a strict check was not decided, 130 interrupted.)";

/// A text of the program itself: its help, its version.
class Print final : public Command {
  public:
    explicit Print(std::string text) : text_(std::move(text)) {}
    int run() const override {
        print_document(text_);
        return 0;
    }
    bool only_prints() const override { return true; }

  private:
    std::string text_;
};

/// The words before those of the command that this one takes: its name and its options.
std::size_t own_words(const CommandEntry& entry, const CLI::App& app,
                      const std::vector<std::string>& words) {
    if (!entry.takes_command) return words.size();
    std::size_t at = 1;
    for (; at < words.size() && words[at].starts_with('-'); ++at) {
        const CLI::Option* option = app.get_option_no_throw(words[at]);
        const bool takes_value = !option || option->get_expected_max() > 0;
        if (takes_value && words[at].find('=') == std::string::npos) ++at;
    }
    return std::min(at, words.size());
}

/// The parser would take the next word for the value.
void refuse_empty_values(const std::vector<std::string>& words) {
    for (const std::string& word : words)
        if (word.starts_with("--") && word.find('=') + 1 == word.size())
            throw UsageError(fmt::format("{} expected a value behind '='.", word));
}

/// What exists of that which the options of a command name to be read.
std::vector<std::filesystem::path> inputs_of(const CLI::App& app) {
    constexpr std::string_view kinds[] = {"MODEL", "DIR",    "FILE", "FILE.npy",
                                          "KIND",  "RESULT", "PATH"};
    std::vector<std::filesystem::path> found;
    std::error_code failed;
    for (const CLI::Option* option : app.get_options()) {
        const std::string kind =
            option->get_positional() ? option->get_single_name() : option->get_type_name();
        if (option->check_lname("out") || std::ranges::find(kinds, kind) == std::end(kinds))
            continue;
        for (std::string name : option->results()) {
            if (kind == "KIND" && !std::filesystem::exists(name, failed))
                name.erase(0, name.find(':') + 1);  // of text:FILE
            while (kind == "RESULT" && !name.empty() && !std::filesystem::exists(name, failed))
                name.resize(name.find_last_of("@:") == name.npos ? 0 : name.find_last_of("@:"));
            if (kind == "MODEL") name = local_model(name);
            if (!name.empty() && std::filesystem::exists(name, failed)) found.emplace_back(name);
        }
    }
    return found;
}

}  // namespace

Program::Program(const std::vector<std::string>& words)
    : app_("tsdiag " TSDIAG_VERSION ": diagnostics for transformers, with error bounds.") {
    app_.name("tsdiag");
    app_.footer(program_footer);
    app_.allow_extras();
    app_.require_subcommand(0, 1);  // a second name of a command is an argument of the first
    app_.set_help_flag("-h,--help", "print this help");
    app_.set_version_flag("-V,--version", version(), "print the version");
    const std::shared_ptr<CLI::FormatterBase> formatter = app_.get_formatter();
    formatter->column_width(26);
    for (const auto& [from, to] : {std::pair{"OPTIONS", "options"},
                                   {"SUBCOMMAND", "COMMAND"},
                                   {"REQUIRED", ""},
                                   {"Positionals", "Arguments"}})
        formatter->label(from, to);
    for (const CommandEntry* entry : commands()) {
        CLI::App* app = app_.add_subcommand(std::string(entry->name), entry->about);
        app->group("Commands")->footer(entry->examples);
        app->allow_extras();
        app->set_help_flag("-h,--help", "print this help");
        commands_.push_back({entry, app, entry->make(*app, inner_)});
        if (entry->has_settings) add_settings(app, print_settings_);
        app->add_flag("--json", json_, "print JSON (docs/json.md)");
    }
    try {
        parse(asked(words));
        choose();
    } catch (const CLI::CallForHelp&) {
        show(std::ranges::find(words, "--json") == words.end() ? help() : json_help());
    } catch (const CLI::CallForVersion& asked) {
        show(std::string(asked.what()) + "\n");
    }
}

const std::string& Program::name() const {
    static const std::string none;
    return &given() == &app_ ? none : given().get_name();
}

/// The command that was given, or the program where there is none.
const CLI::App& Program::given() const {
    const std::vector<CLI::App*> used = app_.get_subcommands();
    return used.empty() ? app_ : *used.front();
}

const Program::Added* Program::added(std::string_view name) const {
    const auto found =
        std::ranges::find(commands_, name, [](const Added& one) { return one.entry->name; });
    return found == commands_.end() ? nullptr : &*found;
}

void Program::show(std::string text) {
    text_ = std::make_unique<Print>(std::move(text));
    chosen_ = text_.get();
}

/// `tsdiag` alone, as `tsdiag help` and `tsdiag help NAME`, asks what there is: no mistake, exit 0.
std::vector<std::string> Program::asked(const std::vector<std::string>& words) const {
    const std::string help = "--help";
    if (words.empty()) return {help};
    if (words.front() != "help") return words;
    if (words.size() == 1 || words[1].starts_with('-')) return {help};
    if (!added(words[1])) refuse(words[1], "command", command_names());
    return {words[1], help};
}

std::vector<std::string> Program::command_names() const {
    std::vector<std::string> names;
    for (const Added& one : commands_) names.emplace_back(one.entry->name);
    return names;
}

void Program::parse(const std::vector<std::string>& words) {
    const Added* first = words.empty() ? nullptr : added(words.front());
    const std::size_t own = first ? own_words(*first->entry, *first->app, words) : words.size();
    inner_.assign(words.begin() + Index(own), words.end());
    refuse_empty_values({words.begin(), words.begin() + Index(own)});
    std::vector<std::string> parsed =
        with_settings(app_, {words.begin(), words.begin() + Index(own)});
    std::ranges::reverse(parsed);  // the library takes them from the end
    try {
        app_.parse(std::move(parsed));
    } catch (const CLI::Success&) {
        throw;  // help, or the version
    } catch (const CLI::ParseError& error) {
        refuse_extras();  // reports the likelier cause, if there is one
        std::string what = error.what();
        if (what.find("At Most 1 required") != std::string::npos)
            what = what.substr(0, what.find(':')) + " was given more than once";
        throw UsageError(fmt::format("{}; see {} --help.", what, title()));
    }
}

void Program::choose() {
    const Added* found = added(name());
    if (found && !found->entry->rewrites_folder) set_inputs(inputs_of(*found->app));
    refuse_extras();
    check(found != nullptr, "words without a command are help, or refused by name");
    if (print_settings_) return show(settings_text(*found->app));
    chosen_ = found->command.get();
}

std::string Program::help() const {
    std::string text = given().help(&given() == &app_ ? "" : "tsdiag");
    for (std::size_t at; (at = text.find("\n\n\n")) != std::string::npos;) text.erase(at, 1);
    return text;
}

/// The options of the command that was given, or of all of them.
std::string Program::json_help() const {
    Json::Array all;
    for (const Added& one : commands_)
        if (&given() == &app_ || &given() == one.app)
            all.push_back(help_json(*one.app, one.entry->runs_models));
    Json out;
    out.set("tsdiag", TSDIAG_VERSION).set("version", json_version);
    return out.set("commands", std::move(all)).dump(2) + "\n";
}

/// "tsdiag probe"
std::string Program::title() const { return name().empty() ? "tsdiag" : "tsdiag " + name(); }

/// For the first unrecognised word.
void Program::refuse_extras() const {
    const CLI::App& app = given();
    const std::vector<std::string> extras = app.remaining();
    if (extras.empty()) return;
    const std::string word = extras.front().substr(0, extras.front().find('='));
    if (name().empty() && !word.starts_with('-')) refuse(word, "command", command_names());
    std::vector<std::string> known;
    for (const CLI::Option* option : app.get_options()) {
        for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
        for (const std::string& name : option->get_snames()) known.push_back("-" + name);
    }
    refuse(word, word.starts_with('-') ? "option" : "argument", known);
}

/// With "did you mean", where a known word is near.
void Program::refuse(const std::string& word, std::string_view kind,
                     const std::vector<std::string>& known) const {
    const std::string near = word.size() > 2 ? nearest(word, known) : "";
    throw UsageError(fmt::format("'{}' is not a known {} of {}; {}", word, kind, title(),
                                 near.empty() ? fmt::format("see {} --help.", title())
                                              : fmt::format("did you mean {}?", near)));
}

}  // namespace tsdiag::cli
