#include "tsdiag/report.hpp"

/// The list of figures, in the order of the report.
namespace tsdiag {

#define TSDIAG_FIGURES(X)                                                    \
    X(similarity)                                                            \
    X(escalation)                                                            \
    X(stage_ratios)                                                          \
    X(state_norms) /* layer_lines.cpp */                                     \
    X(mixing)                                                                \
    X(attention_norms)                                                       \
    X(attention_shape)                                /* head_lines.cpp */   \
        X(heads_mixing) X(heads_norms) X(heads_shape) /* head_cells.cpp */   \
        X(accumulation)                               /* accumulation.cpp */ \
        X(attention_maps)                             /* attention_maps.cpp */

namespace reports {
#define TSDIAG_DECLARE(name) extern const FigureEntry name;
TSDIAG_FIGURES(TSDIAG_DECLARE)
#undef TSDIAG_DECLARE
}  // namespace reports

std::span<const FigureEntry* const> figures() {
#define TSDIAG_LIST(name) &reports::name,
    static constexpr const FigureEntry* list[] = {TSDIAG_FIGURES(TSDIAG_LIST)};
#undef TSDIAG_LIST
    return list;
}

}  // namespace tsdiag
