#include "tokens.hpp"

namespace tsdiag::claim {

Variables draw_tokens(const Rng& rng, const Sizes& at, Distribution distribution) {
    return {{"X", draw(rng, "X", at.n, at.d, distribution)}};
}

double rounding_of(const Matrix& x) { return 4 * ulp * double(x.size() + 8); }

Bound token_equation(std::string reading, std::string formula,
                     std::optional<BoundSides> (*sides)(const Variables&)) {
    return {.reading = std::move(reading),
            .formula = std::move(formula),
            .relation = Relation::equal,
            .draw = draw_tokens,
            .sides = sides};
}

}  // namespace tsdiag::claim
