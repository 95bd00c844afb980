#include "one_matrix.hpp"
#include "route.hpp"

namespace tsdiag::spectra {
namespace {

bool applies(const Problem& problem) {
    return problem.kept && problem.asked == "spectra" && problem.p.tokens() >= least_restarted;
}

Found find(const Problem& problem, std::span<const Index> heads) {
    return each_kept(problem, heads, [&](const View& p) {
        return problem.for_norm() ? one_matrix::library_norm(p)
                                  : one_matrix::by_library(p, one_matrix::second_of(problem.known),
                                                           problem.accuracy);
    });
}

}  // namespace

extern const Route library = {
    .about = {.name = "spectra",
              .applies = "P in memory; only on request",
              .certifies = "the test of the library Spectra, also of a residual that is "
                           "recomputed; no condition number, no proof",
              .cost = "m n^2, m a few hundred",
              .on_request = true},
    .applies = applies,
    .find = find,
    .tests = true};

}  // namespace tsdiag::spectra
