#include "text.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

namespace tsdiag::reports {
namespace {

/// Length of the well-formed sequence at the start of `s`; 0 where there is none.
std::size_t sequence(std::string_view s) {
    const auto byte = [&](std::size_t i) { return std::uint8_t(s[i]); };
    const std::uint8_t lead = byte(0);
    if (lead < 0x80) return 1;
    const std::size_t n = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || s.size() < n) return 0;
    for (std::size_t i = 1; i < n; ++i)
        if ((byte(i) & 0xc0) != 0x80) return 0;
    const std::uint8_t second = byte(1);
    const bool overlong = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
    const bool surrogate = lead == 0xed && second > 0x9f;
    const bool beyond = lead == 0xf4 && second > 0x8f;
    return overlong || surrogate || beyond ? 0 : n;
}

}  // namespace

std::string counted(std::size_t count, std::string_view noun) {
    if (count == 1) return fmt::format("1 {}", noun);
    return count ? fmt::format("{} {}s", count, noun) : fmt::format("no {}s", noun);
}

std::string number(double value) { return fmt::format("{:.4g}", value); }

std::string similarity(double t_sim, std::optional<double> t_div) {
    if (t_sim > 0.9999 && t_div && *t_div > 0) return fmt::format("1 - {:.2g}", *t_div);
    return fmt::format("{:.4f}", t_sim);
}

std::string valid_utf8(std::string_view s) {
    std::string out;
    while (!s.empty()) {
        const std::size_t n = sequence(s);
        if (n)
            out += s.substr(0, n);
        else
            out += "\xef\xbf\xbd";
        s.remove_prefix(n ? n : 1);
    }
    return out;
}

std::string html(std::string_view s) {
    std::string out;
    for (char c : valid_utf8(s)) {
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
        else if (std::uint8_t(c) < 0x20 && c != '\n' && c != '\t')
            out += ' ';
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
    for (char c : valid_utf8(s)) {
        if (c == '\'')
            out += "\u2019";  // gnuplot 5.4 misreads a doubled quote at the beginning of a string
        else
            out += std::uint8_t(c) < 0x20 || c == 0x7f ? ' ' : c;
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
