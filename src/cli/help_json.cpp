#include "help_json.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "tsdiag/run.hpp"

namespace tsdiag::cli {
namespace {

bool is_flag(const CLI::Option& option) { return option.get_expected_max() == 0; }

/// In a help text: "(default: X)", "(default X; ...)", or "X (default)".
std::optional<std::string> default_in(std::string_view help) {
    constexpr std::string_view opening = "(default";
    const std::size_t at = help.find(opening);
    if (at == std::string_view::npos) return std::nullopt;
    std::string_view rest = help.substr(at + opening.size());
    if (rest.starts_with(')')) {
        const std::size_t end = help.find_last_not_of(' ', at - 1) + 1;
        const std::size_t begin = help.find_last_of(' ', end - 1) + 1;
        return std::string(help.substr(begin, end - begin));
    }
    rest.remove_prefix(std::min(rest.find_first_not_of(": "), rest.size()));
    std::size_t end = 0;
    for (int open = 0; end < rest.size() && rest[end] != ';'; ++end) {
        if (rest[end] == '(') ++open;
        if (rest[end] == ')' && --open < 0) break;
    }
    return std::string(rest.substr(0, end));
}

/// Names as they are typed, the first long one first.
std::vector<std::string> names_of(const CLI::Option& option) {
    std::vector<std::string> names;
    for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option.get_snames()) names.push_back("-" + name);
    if (names.empty()) names.push_back(option.get_name());
    return names;
}

/// Where options are not those of a run, only what is written, and how, is known to change none.
Json changes_numbers(const CLI::Option& option, const std::string& name, bool runs_models) {
    if (option.get_group() == "Output") return false;
    if (!runs_models) return {};
    if (option.get_positional()) return true;
    if (const auto decided = decides_numbers(name.substr(2))) return *decided;
    return option.get_group() == "Model" || name == "--settings";  // others are of the machine
}

Json option_json(const CLI::Option& option, bool runs_models) {
    const std::vector<std::string> names = names_of(option);
    std::string help = option.get_description();
    std::ranges::replace(help, '\n', ' ');
    const std::optional<std::string> fallback = default_in(help);
    Json out;
    out.set("name", names.front()).set("names", Json::Array(names.begin(), names.end()));
    out.set("group", option.get_positional() ? std::string("Arguments") : option.get_group());
    out.set("type", is_flag(option)                  ? std::string("flag")
                    : option.get_type_name().empty() ? option.get_name()
                                                     : option.get_type_name());
    out.set("default", fallback ? Json(*fallback) : Json());
    out.set("required", option.get_required());
    out.set("repeatable", option.get_items_expected_max() > 1 ||
                              option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll);
    out.set("help", help);
    return out.set("changes_numbers", changes_numbers(option, names.front(), runs_models));
}

}  // namespace

Json help_json(const CLI::App& command, bool runs_models) {
    Json::Array options;
    for (const CLI::Option* option : command.get_options())
        options.push_back(option_json(*option, runs_models));
    Json out;
    out.set("name", command.get_name()).set("about", command.get_description());
    return out.set("options", std::move(options));
}

}  // namespace tsdiag::cli
