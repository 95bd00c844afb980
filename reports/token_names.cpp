#include "token_names.hpp"

#include "tsdiag/text.hpp"

namespace tsdiag::reports {
namespace {

constexpr Index most_named = 64;          ///< rows and columns of a map with names
constexpr std::size_t longest_name = 12;  ///< characters of a name on an axis

std::string short_name(const std::string& piece) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < piece.size(); ++count) {
        if (count == longest_name) return piece.substr(0, i) + "\xe2\x80\xa6";
        i += std::max<std::size_t>(utf8_length(std::string_view(piece).substr(i, 4)), 1);
    }
    return piece;
}

}  // namespace

void name_tokens(std::vector<Figure>& figures, const RunRecord& run) {
    std::vector<std::string> names;
    if (run.input.text)
        for (const std::string& piece : run.input.text->pieces)
            names.push_back(short_name(visible(piece)));
    const Index count = std::ssize(names);
    for (Figure& figure : figures)
        for (Plot& plot : figure.panels) {
            if (!plot.grid || !plot.grid->tokens || plot.grid->rows != count ||
                plot.grid->cols != count || count > most_named)
                continue;
            plot.grid->image = false;
            plot.grid->turned = true;
            plot.grid->row_labels = plot.grid->col_labels = names;
        }
}

}  // namespace tsdiag::reports
