#pragma once
#include <span>
#include <string_view>

#include "support/naive.hpp"
#include "tsdiag/random.hpp"

/// Stochastic matrices on which eigenvalue and singular value methods go wrong: defective,
/// reducible or nearly so, periodic, clustered, of entries from 1 to 1e-300.
namespace tsdiag::test {

struct HostileFamily {
    std::string_view name;
    /// n is a wish; entries are >= 0 and rows sum to 1, exactly or up to rounding.
    naive::Matrix (*make)(Index n, Rng& rng);
};
std::span<const HostileFamily> hostile_families();

/// Member `seed` of a family: 2 to `most` tokens, mostly few, half of them in a random order.
naive::Matrix hostile(const HostileFamily& family, std::uint64_t seed, Index most = 64);

// Of any size, with |lambda_2| in closed form; exact in float32.

/// lambda I + (1 - lambda) 1 r^T + N, N1 = 0 and N strictly upper triangular: on what is orthogonal
/// to 1 a Jordan block of lambda, or several.  lambda a multiple of 2^-10.
naive::Matrix jordan(Index n, double lambda, Rng& rng);
/// A token sees the next one with `up`, the one before with `down`: pi spans (up / down)^n, and P
/// is far from normal.  lambda_k = 1 - up - down + 2 sqrt(up down) cos(k pi / n).
naive::Matrix drift_band(Index n, double up, double down);
/// The tokens base i, ..., base i + base - 1 (mod n) are seen alike; n a power of base: a de Bruijn
/// graph, all eigenvalues but 1 are 0.
naive::Matrix shift_register(Index n, Index base);

}  // namespace tsdiag::test
