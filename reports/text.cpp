#include "text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>

#include "tsdiag/table_view.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag::reports {

std::string number(double value) { return readable(value); }

std::string similarity_text(double t_sim, std::optional<double> t_div) {
    if (t_sim > 0.9999 && t_div && *t_div > 0) return fmt::format("1 - {:.2g}", *t_div);
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
