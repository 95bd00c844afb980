#pragma once
#include <algorithm>

#include "tsdiag/backend.hpp"

/// Ranges of columns that the rows of a block see.
namespace tsdiag::visibility {

/// Of rows [first, first + count) of a causal P.
inline Visible lower(Index first, Index count) {
    Visible out;
    out.first.assign(static_cast<std::size_t>(count), 0);
    for (Index i = first; i < first + count; ++i) out.last.push_back(i + 1);
    return out;
}

/// The first column of n that no row sees, nor any behind it.
inline Index end(const Visible& seen, Index n) {
    return seen.everything() ? n : *std::ranges::max_element(seen.last);
}

}  // namespace tsdiag::visibility
