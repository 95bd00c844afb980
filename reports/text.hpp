#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/json.hpp"
#include "tsdiag/text.hpp"

/// Formatting for readers, and escaping.
namespace tsdiag::reports {

/// Four significant digits, more near 1 (`readable`).  A similarity close to 1 keeps its distance
/// from 1 ("0.99997", "1 - 3.2e-07").
std::string number(double value);
std::string similarity_text(double t_sim, std::optional<double> t_div);

/// A command line as shell words, in single quotes where needed.
std::string shell_command(const std::vector<std::string>& words);
/// For element content and quoted attributes of HTML.
std::string html(std::string_view s);
/// JSON that is safe inside a script element.
std::string script_json(const Json& json);
/// A single-quoted gnuplot string: nothing in it is executed or substituted.  A quote becomes
/// U+2019.
std::string gnuplot_string(std::string_view s);
/// For TeX: its special characters escaped, and the letters of formulas in mathematics.
std::string tex_words(std::string_view text);
std::string base64(std::string_view bytes);

}  // namespace tsdiag::reports
