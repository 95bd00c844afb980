#include "gaussian.hpp"

#include <fmt/format.h>

#include <array>

#include "tsdiag/error.hpp"

namespace tsdiag::variants {
namespace {

Tensor half_squares(const Tensor& x) { return scale(row_sum(map(Unary::square, x)), 0.5); }
Tensor ones(const Tensor& x) { return affine(x.col_range(0, 1).detached(), 0, 1); }

}  // namespace

void move_to_first_key(const AttentionEntry& entry, AttentionInput& in) {
    if (!(in.scale > 0))
        throw UsageError(
            fmt::format("attention '{}': the scale of the logits is not positive", entry.name));
    // Not differentiated: distances do not depend on it.
    const Tensor first = in.k.row_range(0, 1).detached();
    in.q = subtract(in.q, repeat_batches(first, in.q.batch() / first.batch()));
    in.k = subtract(in.k, first);
}

Tensor as_queries(const Tensor& x) { return concat_cols(std::array{x, half_squares(x), ones(x)}); }
Tensor as_keys(const Tensor& x) {
    return concat_cols(std::array{scale(x, -1), ones(x), half_squares(x)});
}

Tensor exponent(const Tensor& d) { return scale(map(Unary::relu, d), -1); }

Tensor gaussian(const Tensor& a, const Tensor& b, double scale) {
    return map(Unary::exp, exponent(matmul(as_queries(a), as_keys(b), Transpose::second, scale)));
}

}  // namespace tsdiag::variants
