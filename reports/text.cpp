#include "text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "tsdiag/table_view.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag::reports {

std::string number(double value) { return readable(value); }

std::string similarity_text(double t_sim, std::optional<double> t_div) {
    constexpr double shown = 1e-6;  // below, nines would have to be counted
    if (t_sim > 0.9999 && t_div && *t_div > 0)
        return *t_div < shown ? fmt::format("1 - {:.2g}", *t_div) : number(1 - *t_div);
    return fmt::format("{:.4f}", t_sim);
}

std::string shell_command(const std::vector<std::string>& words) {
    std::string out;
    for (const std::string& word : words) {
        if (!out.empty()) out += ' ';
        out += shell_word(word);
    }
    return out;
}

std::string html(std::string_view s) {
    std::string out;
    for (char c : visible(s, "\n\t")) {
        if (c == '&')
            out += "&amp;";
        else if (c == '<')
            out += "&lt;";
        else if (c == '>')
            out += "&gt;";
        else if (c == '"')
            out += "&quot;";
        else if (c == '\'')
            out += "&#39;";
        else
            out += c;
    }
    return out;
}

std::string script_json(const Json& json) {
    // '<' occurs in JSON inside strings only: escaped, neither </script> nor <!-- can appear
    std::string out;
    for (char c : json.dump()) {
        if (c == '<')
            out += "\\u003c";
        else
            out += c;
    }
    return out;
}

std::string gnuplot_string(std::string_view s) {
    std::string out = "'";
    for (char c : visible(s, "\n\t")) {
        if (c == '\'')
            out += "\u2019";  // gnuplot 5.4 misreads a doubled quote at the beginning of a string
        else
            out += c == '\n' || c == '\t' ? ' ' : c;
    }
    return out + "'";
}

std::string tex_words(std::string_view text) {
    static constexpr std::pair<std::string_view, std::string_view> letters[] = {
        {"\u03b1", "$\\alpha$"},
        {"\u03be", "$\\xi$"},
        {"\u03bb", "$\\lambda$"},
        {"\u03bc", "$\\mu$"},
        {"\u03c0", "$\\pi$"},
        {"\u03a0", "$\\Pi$"},
        {"\u03b4", "$\\delta$"},
        {"\u221a", "$\\surd$"},
        {"\u2080", "$_0$"},
        {"\u2081", "$_1$"},
        {"\u2082", "$_2$"},
        {"\u2083", "$_3$"},
        {"\u00b2", "$^2$"},
        {"\u1d40", "$^T$"},
        {"\u00b1", "$\\pm$"},
        {"\u2013", "--"},
        {"\u2019", "\\textquoteright{}"},
        {"'", "\\textquoteright{}"},  // `gnuplot_string` makes it another letter
        {"\u2026", "$\\ldots$"},
        {"|", "$|$"},
        {"<", "$<$"},
        {">", "$>$"},
        {"\\", "$\\backslash$"},
        {"^", "\\^{}"},
        {"~", "\\~{}"}};
    std::string out;
    while (!text.empty()) {
        const auto letter =
            std::ranges::find_if(letters, [&](const auto& l) { return text.starts_with(l.first); });
        if (letter != std::end(letters)) {
            out += letter->second;
            text.remove_prefix(letter->first.size());
            continue;
        }
        if (std::string_view("#$%&_{}").find(text.front()) != std::string_view::npos) out += '\\';
        out += text.front();
        text.remove_prefix(1);
    }
    return out;
}

std::string base64(std::string_view bytes) {
    static constexpr std::string_view digits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string out;
    out.reserve((bytes.size() + 2) / 3 * 4);
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        std::uint32_t word = 0;
        for (std::size_t k = 0; k < 3; ++k)
            word = (word << 8) | (i + k < bytes.size() ? std::uint8_t(bytes[i + k]) : 0u);
        for (std::size_t k = 0; k < 4; ++k)
            out += i + k <= bytes.size() ? digits[(word >> (18 - 6 * k)) & 63] : '=';
    }
    return out;
}

}  // namespace tsdiag::reports
