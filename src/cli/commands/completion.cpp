#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "command.hpp"
#include "json_outputs.hpp"
#include "terminal.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::cli {
namespace {

struct Completed {
    std::string name, description;
    std::vector<const CLI::Option*> options;
    std::vector<std::string> words;
};

std::vector<Completed> completed(const CLI::App& program) {
    std::vector<Completed> out;
    for (const CommandEntry* entry : commands()) {
        Completed one{std::string(entry->name), entry->about, {}, {}};
        for (const CLI::Option* option : program.get_subcommand(one.name)->get_options())
            if (!option->get_positional()) one.options.push_back(option);
        if (entry->names) one.words = entry->names();
        out.push_back(std::move(one));
    }
    Completed help{"help", "show the help of a command", {}, {}};
    for (const Completed& one : out) help.words.push_back(one.name);
    out.push_back(std::move(help));
    return out;
}

bool takes_value(const CLI::Option& option) { return option.get_expected_max() > 0; }

/// "--out -o"
std::string names(const CLI::Option& option) {
    std::string out;
    for (const std::string& name : option.get_lnames())
        out += fmt::format("{}--{}", out.empty() ? "" : " ", name);
    for (const std::string& name : option.get_snames())
        out += fmt::format("{}-{}", out.empty() ? "" : " ", name);
    return out;
}

/// In single quotes of a shell, as one line.
std::string quoted(std::string text) {
    std::ranges::replace(text, '\n', ' ');
    std::string out = "'";
    for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return out + "'";
}

std::string bash(const std::vector<Completed>& all) {
    std::string commands, cases;
    for (const Completed& one : all) {
        commands += (commands.empty() ? "" : " ") + one.name;
        std::string options, valued;
        for (const CLI::Option* option : one.options) {
            options += (options.empty() ? "" : " ") + names(*option);
            if (takes_value(*option)) valued += (valued.empty() ? "" : " ") + names(*option);
        }
        cases += fmt::format(
            "        {})\n            options={}\n            valued={}\n            words={} ;;\n",
            one.name, quoted(options), quoted(valued),
            quoted(fmt::format("{}", fmt::join(one.words, " "))));
    }
    return fmt::format(R"(# Completion of tsdiag for bash:   source <(tsdiag completion bash)
_tsdiag() {{
    local cur prev command='' options='' valued='' words='' line="${{COMP_LINE:0:COMP_POINT}}"
    # Words as typed: bash would split random:gpt2 at the colon.
    local -a typed
    read -r -a typed <<<"$line"
    [[ $line == *' ' ]] && typed+=('')
    cur=${{typed[-1]}} prev=''
    ((${{#typed[@]}} > 1)) && prev=${{typed[-2]}}
    ((${{#typed[@]}} > 2)) && command=${{typed[1]}}
    case $command in
        '') words='{}' ;;
{}    esac
    COMPREPLY=()
    if [[ " $valued " == *" $prev "* ]]; then
        compopt -o default 2>/dev/null
        return
    fi
    if [[ $cur == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$cur")
        return
    fi
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
    [[ $cur == *:* ]] && COMPREPLY=("${{COMPREPLY[@]#"${{cur%:*}}:"}}")
    [[ -n $command ]] && compopt -o default 2>/dev/null
}}
complete -F _tsdiag tsdiag
)",
                       commands, cases);
}

/// A description inside of the brackets of _arguments.
std::string in_brackets(std::string text) {
    std::string out;
    for (const char c : text) {
        if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
        out += c == '\n' ? ' ' : c;
    }
    return out;
}

std::string zsh(const std::vector<Completed>& all) {
    std::string commands, cases;
    for (const Completed& one : all) {
        commands += fmt::format("        {}\n", quoted(one.name + ":" + one.description));
        cases += fmt::format("        {})\n            _arguments -S", one.name);
        for (const CLI::Option* option : one.options) {
            const std::string value =
                takes_value(*option)
                    ? fmt::format(":{}:_files", in_brackets(option->get_type_name()))
                    : "";
            const auto add = [&](const std::string& name) {
                cases += " \\\n                " +
                         quoted(fmt::format("*{}[{}]{}", name,
                                            in_brackets(option->get_description()), value));
            };
            for (const std::string& name : option->get_lnames()) add("--" + name);
            for (const std::string& name : option->get_snames()) add("-" + name);
        }
        std::string words;
        for (const std::string& word : one.words) words += " " + quoted(word);
        cases += fmt::format(
            " \\\n                '*:argument:_alternative \"words:name:compadd -a names\" "
            "\"files:file:_files\"' ;;\n");
        cases.insert(cases.rfind(fmt::format("        {})\n", one.name)) +
                         fmt::format("        {})\n", one.name).size(),
                     fmt::format("            names=({})\n", words));
    }
    return fmt::format(R"(#compdef tsdiag
# Completion of tsdiag for zsh: as _tsdiag in a folder of $fpath, or   source <(tsdiag completion zsh)
_tsdiag() {{
    local -a commands names
    commands=(
{}    )
    if ((CURRENT == 2)); then
        _describe command commands
        return
    fi
    local command=$words[2]
    shift words
    ((CURRENT--))
    case $command in
{}    esac
}}
if [[ $funcstack[1] == _tsdiag ]]; then _tsdiag "$@"; else compdef _tsdiag tsdiag; fi
)",
                       commands, cases);
}

std::string fish(const std::vector<Completed>& all) {
    std::string out = "# Completion of tsdiag for fish:   tsdiag completion fish | source\n";
    for (const Completed& one : all)
        out += fmt::format("complete -c tsdiag -f -n __fish_use_subcommand -a {} -d {}\n", one.name,
                           quoted(one.description));
    for (const Completed& one : all) {
        const std::string when =
            fmt::format("complete -c tsdiag -n '__fish_seen_subcommand_from {}'", one.name);
        for (const CLI::Option* option : one.options) {
            out += when;
            for (const std::string& name : option->get_lnames()) out += " -l " + name;
            for (const std::string& name : option->get_snames()) out += " -s " + name;
            if (takes_value(*option)) out += " -r";
            out += fmt::format(" -d {}\n", quoted(option->get_description()));
        }
        if (!one.words.empty())
            out += fmt::format("{} -a {}\n", when,
                               quoted(fmt::format("{}", fmt::join(one.words, " "))));
    }
    return out;
}

struct CompletionCommand final : Command {
    explicit CompletionCommand(CLI::App& app) : program(*app.get_parent()) {
        app.add_option("SHELL", shell, "bash, zsh or fish")->required()->type_name("");
    }
    int run() const override;
    bool only_prints() const override { return true; }

    const CLI::App& program;
    std::string shell;
};

int CompletionCommand::run() const {
    const std::vector<Completed> all = completed(program);
    const std::string script = shell == "bash"   ? bash(all)
                               : shell == "zsh"  ? zsh(all)
                               : shell == "fish" ? fish(all)
                                                 : "";
    if (script.empty()) throw UsageError(fmt::format("'{}' is not bash, zsh or fish.", shell));
    print_json("completion", Json().set("text", script));
    print(script);
    return 0;
}

std::vector<std::string> shells() { return {"bash", "zsh", "fish"}; }

}  // namespace

extern const CommandEntry completion_command = {
    .name = "completion",
    .about = "print a script that completes commands in a shell",
    .examples = R"(Examples:
  source <(tsdiag completion bash)
  tsdiag completion fish | source)",
    .make = made<CompletionCommand>,
    .names = shells};

}  // namespace tsdiag::cli
