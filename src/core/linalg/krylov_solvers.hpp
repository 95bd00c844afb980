#pragma once
#include <complex>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "hessenberg.hpp"
#include "tsdiag/linalg.hpp"
#include "tsdiag/random.hpp"

/// Krylov methods as far as they need no vectors: what the coefficients of products say.
namespace tsdiag::krylov {

double norm(std::span<const double> x);

/// Where a search begins, the same for every map; the next one elsewhere.
enum class Search : std::uint64_t { first, beside_leader };
Rng start_of(Search search);

/// Consumes each product's coefficients in the basis and the norm of the remainder.
///
/// A Krylov space has one vector of each eigenspace, so the second eigenvalue in it is the second
/// that differs from the first.  The eigenvalues of A but one, theta with the vector x, are those
/// of A on what is orthogonal to x (Schur's form): another search there, from another start, leads
/// to theta where it is multiple, else to the second again.
class Arnoldi {
    static constexpr Index step = 8;  // products between two checks of the leading Ritz value
    static constexpr Index first_check = 32;

  public:
    /// `rounding`: LinearMap::rounding.
    Arnoldi(double tolerance, Index limit, Index rank, double accuracy, double rounding);

    bool done() const { return done_; }

    void add(std::vector<double> coefficients, double rest);

    /// The leading vector in the basis, if the search has ended and one beside it is due: then that
    /// has begun, and what is added from now on belongs to it.  Else empty.
    std::vector<double> leader();

    Estimate estimate() const { return first_ ? joined() : out_; }

  private:
    void examine(Index m, double rest, double before);

    /// Whether the leading vector u beside x is known well enough for both together: A is (theta,
    /// b; 0, mu) on them, b = x^T A u, and an error e moves mu by e and at most sqrt(e |b|), to
    /// first order e |b| / |theta - mu|.
    bool certain_beside(const std::vector<double>& h, Index m,
                        const hessenberg::Leading& found) const;

    /// The second eigenvalue of the first search, or the leading one again: what the search beside
    /// it has found, too.
    Estimate joined() const;

    /// Solving the small problem costs m^3, tracking its last leading Ritz value m^2: is that
    /// residual small enough to solve again?
    bool promises(Index m, double rest);

    std::vector<double> matrix(Index m) const;

    double tolerance_, accuracy_, rounding_;
    Index limit_, rank_;
    Index check_ = first_check, look_ = 0;  // when the small problem is next solved, or tracked
    std::complex<double> leader_ = 0;       // the Ritz value that is tracked
    std::vector<std::vector<double>> columns_;
    std::vector<double> below_;
    Estimate out_;
    bool done_ = false;
    hessenberg::Leading found_;      // of the first search
    std::optional<Estimate> first_;  // its result, once one beside the leader x has begun
    std::vector<double> coupling_;   // x^T A v of each v there
};

/// The largest singular value of A by products with A^T A, whose coefficients are those of a
/// symmetric tridiagonal matrix.
class Lanczos {
  public:
    /// `rounding`: that of Pi2 A, A^T A being the map.
    Lanczos(double tolerance, Index limit, double rounding);

    bool done() const { return done_; }

    void add(const std::vector<double>& coefficients, double rest);

    /// There is no other search.
    std::vector<double> leader() const { return {}; }
    Estimate estimate() const { return out_; }

  private:
    void examine(Index m, double rest);

    double tolerance_, rounding_;
    Index limit_, check_;
    std::vector<double> diagonal_, off_;
    Estimate out_;
    bool done_ = false;
};

template <class Solver>
std::vector<Estimate> estimates(const std::vector<Solver>& solvers) {
    std::vector<Estimate> out;
    for (const Solver& s : solvers) out.push_back(s.estimate());
    return out;
}

/// One solver a map, of these settings and the rounding of its products.
template <class Solver, class... Settings>
std::vector<Solver> solvers_of(Index count, std::span<const double> rounding,
                               const Settings&... settings) {
    std::vector<Solver> out;
    for (Index i = 0; i < count; ++i)
        out.emplace_back(settings..., rounding.empty() ? 0 : rounding[std::size_t(i)]);
    return out;
}

}  // namespace tsdiag::krylov
