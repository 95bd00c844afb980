#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <regex>

#include "options.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"

/// Options of the figures on paper: their width and --style.
namespace tsdiag::cli {
namespace {

constexpr std::uint64_t longest_style = 1 << 16;

/// "3.25in", "82mm", "8.2cm", "234pt" in inches.
double inches(const std::string& text, const std::string& where) {
    static constexpr std::pair<std::string_view, double> unit_inches[] = {
        {"in", 1}, {"mm", 1 / 25.4}, {"cm", 1 / 2.54}, {"pt", 1 / 72.27}};
    for (const auto& [unit, size] : unit_inches) {
        if (!text.ends_with(unit)) continue;
        const double width = size * parse_number(text.substr(0, text.size() - unit.size()), where);
        constexpr double narrowest = 1.5, widest = 40;
        if (width >= narrowest && width <= widest) return width;
        throw UsageError(fmt::format("{}: '{}' is {:.4g} inches, expected {} to {}.", where, text,
                                     width, narrowest, widest));
    }
    throw UsageError(
        fmt::format("{}: '{}' is not a length such as 3.25in, 82mm or 234pt.", where, text));
}

double bounded(const toml::node& node, double least, double most, const std::string& where) {
    const std::optional<double> v = node.value<double>();
    if (!v || !(*v >= least && *v <= most))
        throw UsageError(fmt::format("{}: expected a number from {} to {}.", where, least, most));
    return *v;
}

std::string text_of(const toml::node& node, const std::string& where) {
    if (!node.is_string()) throw UsageError(fmt::format("{}: expected a text in quotes.", where));
    return node.value_or(std::string());
}

std::vector<std::string> colours_of(const toml::node& node, const std::string& where) {
    static const std::regex colour("#[0-9a-fA-F]{6}");
    std::vector<std::string> found;
    if (const toml::array* all = node.as_array())
        for (const toml::node& one : *all) found.push_back(one.value_or(std::string()));
    const bool right = std::ranges::all_of(
        found, [](const std::string& c) { return std::regex_match(c, colour); });
    if (found.empty() || !right)
        throw UsageError(
            fmt::format("{}: expected a list of colours such as [\"#0072b2\"].", where));
    return found;
}

void set(FigureStyle& look, const std::string& key, const toml::node& node,
         const std::string& where) {
    if (key == "width")
        look.width = inches(text_of(node, where), where);
    else if (key == "font-size")
        look.font_size = bounded(node, 4, 40, where);
    else if (key == "line-width")
        look.line_width = bounded(node, 0.1, 10, where);
    else if (key == "colours")
        look.colours = colours_of(node, where);
    else if (key == "tikz" && node.is_boolean())
        look.tikz = node.value_or(false);
    else if (key == "tikz")
        throw UsageError(fmt::format("{}: expected true or false.", where));
    else if (key == "font")
        look.font = text_of(node, where);
    else
        throw UsageError(fmt::format(
            "{}: is no key of a style; width, font, font-size, line-width, colours and tikz are.",
            where));
    static const std::regex name("[A-Za-z0-9 -]+");
    if (!std::regex_match(look.font, name))
        throw UsageError(fmt::format("{}: expected the name of a font.", where));
}

FigureStyle read_style(const std::string& file) {
    toml::table table;
    try {
        table = toml::parse(file_text(file, "a style", longest_style), file);
    } catch (const toml::parse_error& e) {
        throw UsageError(
            fmt::format("{}: line {}: {}.", file, e.source().begin.line, e.description()));
    }
    FigureStyle look;
    for (const auto& [key, node] : table)
        set(look, std::string(key.str()), node,
            fmt::format("{}: line {}: {}", file, node.source().begin.line, key.str()));
    return look;
}

}  // namespace

void add_paper(CLI::App& app, FigureStyle& look, const char* width) {
    value(app, "--style", "FILE", "how figures look: width, font, colours, TikZ (docs/figures.md)",
          [&](const std::string& t) { look = read_style(t); })
        ->group("Output");
    // after the file, so that it has the last word
    value(app, width, "WIDTH",
          "width of figures on paper: 3.25in (a column), 5.5in, 82mm; text of 8 pt",
          [&look, width](const std::string& t) { look.width = inches(t, width); })
        ->group("Output");
}

}  // namespace tsdiag::cli
