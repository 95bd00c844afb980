#include "tsdiag/report.hpp"

/// The list of figures, in the order of the report.
namespace tsdiag {

// clang-format off
#define TSDIAG_FIGURES(X)   \
    X(similarity)           \
    X(escalation)           \
    X(stage_ratios)         \
    X(state_norms)          \
    X(mixing)               \
    X(attention_norms)      \
    X(attention_shape)      \
    X(heads_mixing)         \
    X(heads_norms)          \
    X(heads_shape)          \
    X(accumulation)         \
    X(attention_maps)       \
    X(routing)              \
    X(gradient_norms)       \
    X(gradient_bounds)      \
    X(further)
// clang-format on

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
