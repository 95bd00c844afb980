#include "settings_file.hpp"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <sstream>

#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag::cli {
namespace {

constexpr std::uint64_t longest_settings = 1 << 20;
constexpr std::string_view settings_name = "settings", print_name = "print-settings";

bool takes_no_value(const CLI::Option& option) { return option.get_expected_max() == 0; }

std::string lower(std::string text) {
    std::ranges::transform(text, text.begin(), [](unsigned char c) { return char(tolower(c)); });
    return text;
}

/// The name of an option in the file: its first long name, or that of the argument in small
/// letters.
std::string key_of(const CLI::Option& option) {
    return option.get_lnames().empty() ? lower(option.get_name()) : option.get_lnames().front();
}

const CLI::Option* option_of(const CLI::App& app, const std::string& key) {
    for (const CLI::Option* option : app.get_options())
        if (key_of(*option) == key || option->check_lname(key)) return option;
    return nullptr;
}

/// Is the option among the words?  An argument is, where a word is neither option nor value.
bool given(const CLI::App& app, const CLI::Option& wanted, const std::vector<std::string>& words) {
    for (std::size_t i = 1; i < words.size(); ++i) {
        const std::string& word = words[i];
        if (!word.starts_with('-') || word == "-") {
            if (wanted.get_positional()) return true;
            continue;
        }
        const bool is_long = word.starts_with("--");
        const std::string name =
            is_long ? word.substr(2, word.find('=') - 2) : std::string(1, word[1]);
        const CLI::Option* const option = app.get_option_no_throw((is_long ? "--" : "-") + name);
        if (option == &wanted) return true;
        const bool has_value_inside =
            is_long ? word.find('=') != std::string::npos : word.size() > 2;
        if (option && !takes_no_value(*option) && !has_value_inside) ++i;
    }
    return false;
}

/// The words that stand for one entry of the file.
void append(std::vector<std::string>& out, const CLI::Option& option,
            const std::vector<std::string>& values, const std::string& where) {
    if (takes_no_value(option)) {
        if (values.size() != 1 || (values.front() != "true" && values.front() != "false"))
            throw UsageError(fmt::format("{}: expected true or false.", where));
        if (values.front() == "true") out.push_back("--" + key_of(option));
        return;
    }
    for (const std::string& value : values) {
        if (value.empty()) throw UsageError(fmt::format("{}: is empty, expected a value.", where));
        out.push_back(option.get_positional() ? value
                                              : fmt::format("--{}={}", key_of(option), value));
    }
}

/// The values of an entry as words.
std::vector<std::string> values_of(const toml::node& node, const std::string& where) {
    if (const toml::array* array = node.as_array()) {
        std::vector<std::string> out;
        for (const toml::node& one : *array) {
            if (one.is_array()) throw UsageError(fmt::format("{}: a list within a list.", where));
            out.push_back(values_of(one, where).front());
        }
        return out;
    }
    if (const auto text = node.value_exact<std::string>()) return {*text};
    if (const auto number = node.value_exact<std::int64_t>()) return {std::to_string(*number)};
    if (const auto number = node.value_exact<double>()) return {fmt::format("{}", *number)};
    if (const auto flag = node.value_exact<bool>()) return {*flag ? "true" : "false"};
    throw UsageError(fmt::format("{}: expected text, a number, true, false or a list.", where));
}

void append_table(std::vector<std::string>& out, const toml::table& table, const CLI::App& app,
                  const std::string& file, const std::vector<std::string>& words) {
    for (const auto& [name, node] : table) {
        const std::string key(name.str()), where = fmt::format("--settings {}: {}", file, key);
        const CLI::Option* const option = option_of(app, key);
        if (!option || key == settings_name || key == print_name || key == "help") {
            std::vector<std::string> known;
            for (const CLI::Option* one : app.get_options()) known.push_back(key_of(*one));
            const std::string near = nearest(key, known);
            throw UsageError(
                fmt::format("{} is not an option of tsdiag {}; {}", where, app.get_name(),
                            near.empty() ? fmt::format("see tsdiag {} --help.", app.get_name())
                                         : fmt::format("did you mean {}?", near)));
        }
        if (!given(app, *option, words)) append(out, *option, values_of(node, where), where);
    }
}

/// Is it the section of a command, this one or another?
bool is_section(const CLI::App& app, const toml::node& node, const std::string& name) {
    const auto is_it = [&](const CLI::App* command) { return command->get_name() == name; };
    return node.is_table() && !app.get_parent()->get_subcommands(is_it).empty();
}

std::vector<std::string> words_of(const std::string& file, const CLI::App& app,
                                  const std::vector<std::string>& words) {
    const std::string text = file_text(file, "a settings file (TOML)", longest_settings);
    std::vector<std::string> out;
    try {
        const toml::table all = toml::parse(text);
        toml::table mine;  // the section of the command prevails
        if (const toml::table* own = all[app.get_name()].as_table()) mine = *own;
        for (const auto& [name, node] : all)
            if (!is_section(app, node, std::string(name.str()))) mine.insert(name, node);
        append_table(out, mine, app, file, words);
    } catch (const toml::parse_error& error) {
        throw UsageError(fmt::format("--settings {}: line {}: {}.", file, error.source().begin.line,
                                     error.description()));
    }
    return out;
}

/// Whole numbers as numbers, where they are spelled as such; any other text in quotes.
void insert(toml::table& out, const std::string& key, const std::vector<std::string>& values) {
    const auto whole = [](const std::string& text) {
        return !text.empty() && text.size() < 16 && (text.front() != '0' || text == "0") &&
               text.find_first_not_of("0123456789") == std::string::npos;
    };
    toml::array list;
    for (const std::string& value : values)
        if (whole(value))
            list.push_back(std::stoll(value));
        else
            list.push_back(value);
    if (list.size() == 1)
        out.insert(key, list.front());
    else
        out.insert(key, list);
}

}  // namespace

void add_settings(CLI::App* app, bool& print) {
    app->add_option(fmt::format("--{}", settings_name),
                    "read options from a TOML file; the command line takes precedence")
        ->type_name("FILE")
        ->group("Settings");
    app->add_flag(fmt::format("--{}", print_name), print,
                  "print the given options as such a file, and stop")
        ->group("Settings");
}

std::vector<std::string> with_settings(const CLI::App& program, std::vector<std::string> words) {
    if (words.empty()) return words;
    const std::vector<const CLI::App*> found = program.get_subcommands(
        [&](const CLI::App* one) { return one->get_name() == words.front(); });
    const CLI::App* const app = found.empty() ? nullptr : found.front();
    if (!app || !option_of(*app, std::string(settings_name))) return words;
    const std::string option = fmt::format("--{}", settings_name);
    for (std::size_t i = 1; i < words.size(); ++i) {
        const bool joined = words[i].starts_with(option + "=");
        if (!joined && (words[i] != option || i + 1 == words.size())) continue;
        const std::string file = joined ? words[i].substr(option.size() + 1) : words[i + 1];
        const std::vector<std::string> more = words_of(file, *app, words);
        words.insert(words.begin() + 1, more.begin(), more.end());
        return words;
    }
    return words;
}

std::string settings_text(const CLI::App& app) {
    toml::table out;
    for (const CLI::Option* option : app.get_options()) {
        const std::string key = key_of(*option);
        if (option->count() == 0 || key == settings_name || key == print_name) continue;
        if (takes_no_value(*option))
            out.insert(key, true);
        else
            insert(out, key, option->results());
    }
    std::ostringstream text;
    text << "# tsdiag " << app.get_name() << " --settings FILE\n" << out << "\n";
    return text.str();
}

}  // namespace tsdiag::cli
