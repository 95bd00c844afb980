#pragma once
#include <span>

#include "options.hpp"

/// Feature maps phi of queries and keys, and their random draws.
namespace tsdiag::variants {

/// elu, 1+elu or relu, by the words of an option.
Tensor feature_map(std::string_view name, const Tensor& x);

/// (1, m, w): rows drawn N(0, I), orthogonal in groups of w; their lengths are those of independent
/// normal vectors.  [PERFORMER]
Tensor orthogonal_features(Rng rng, Index m, Index w, const Backend& backend, Type type);

/// (1, rows, cols), uniform in [-bound, bound].
Tensor drawn_uniform(const Rng& rng, Index rows, Index cols, double bound, const Backend& backend,
                     Type type);

/// Of each head of x (h, n, w) the rows with these indices, (h, rows.size(), w).
Tensor rows_of_each_head(const Tensor& x, std::span<const Index> rows);

}  // namespace tsdiag::variants
