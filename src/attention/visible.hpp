#pragma once
#include <algorithm>

#include "tsdiag/attention.hpp"

/// Column ranges visible to the rows of a block, and products restricted to them.
namespace tsdiag::visibility {

/// Of rows [first, first + count) of a causal P.
inline Visible lower(Index first, Index count) {
    Visible out;
    out.first.assign(std::size_t(count), 0);
    for (Index i = first; i < first + count; ++i) out.last.push_back(i + 1);
    return out;
}

/// One past the last column of n that any row sees.
inline Index end(const Visible& seen, Index n) {
    return seen.everything() ? n : *std::ranges::max_element(seen.last);
}

/// One past the last column of n that any of the rows [first, first + count) sees, rounded up to
/// whole vectors.
inline Index columns(const Visible& seen, Index first, Index count, Index n) {
    constexpr Index vector = 64;
    if (seen.everything()) return n;
    const auto from = seen.last.begin() + first;
    return std::min(n, (*std::max_element(from, from + count) + vector - 1) / vector * vector);
}
inline Index columns(const Visible& seen, Index n) {
    return columns(seen, 0, std::ssize(seen.last), n);
}

/// use(i, count, columns) for each part of rows first, first + 1, ... of P, i from 0; a single part
/// on a device.
template <class Use>
void each_part(const AttentionOperator& p, const Visible& seen, Index first, Index rows,
               const Use& use) {
    const bool whole = !p.backend().host_memory();
    const Index part = whole ? rows : rows_of_a_product(3 * p.bytes() / double(p.tokens()));
    for (Index i = 0, count = 0; i < rows; i += count) {
        count = whole ? rows : std::min(rows - i, part - (first + i) % part);
        use(i, count, columns(seen, i, count, p.columns()));
    }
}

}  // namespace tsdiag::visibility
