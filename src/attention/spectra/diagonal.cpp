#include <algorithm>
#include <cmath>

#include "factors.hpp"
#include "on_device.hpp"
#include "one_matrix.hpp"
#include "route.hpp"
#include "streamed.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace spectra {
namespace {

std::vector<double> diagonal_of(const View& p) {
    std::vector<double> out;
    for (Index i = 0; i < p.shape.rows; ++i) out.push_back(one_matrix::entry(p, i, i));
    return out;
}

bool applies(const Problem& problem) { return problem.known.causal && !problem.for_norm(); }

Found find(const Problem& problem, std::span<const Index> heads) {
    if (!problem.known.factors && !problem.on_device() && problem.kept)
        return each_kept(problem, heads,
                         [](const View& p) { return second_eigenvalue(diagonal_of(p)); });
    std::vector<Estimate> out;
    for (const std::vector<double>& d :
         problem.known.factors ? tsdiag::factors::diagonals(*problem.known.factors)
         : problem.on_device() ? on_device::diagonals(problem.p, problem.memory)
                               : streamed::Rows(problem.p, problem.memory, false).diagonals())
        out.push_back(second_eigenvalue(d));
    return select(out, heads);
}

}  // namespace

extern const Route diagonal = {
    .about = {.name = "diagonal",
              .applies = "causal P",
              .certifies = "exact: the eigenvalues of a triangular matrix are its diagonal",
              .cost = "n"},
    .applies = applies,
    .find = find};

}  // namespace spectra

Estimate second_eigenvalue(std::span<const double> diagonal) {
    check(diagonal.size() >= 2, "a second eigenvalue needs two tokens");
    double first = 0, second = 0;
    for (double e : diagonal) {
        const double modulus = std::abs(e);
        second = std::max(second, std::min(first, modulus));
        first = std::max(first, modulus);
    }
    return one_matrix::exact(second, "diagonal");
}

}  // namespace tsdiag
