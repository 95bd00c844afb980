#include "one_matrix.hpp"
#include "route.hpp"

namespace tsdiag::spectra {
namespace {

bool applies(const Problem& problem) {
    if (!problem.kept) return false;
    const bool usual = problem.asked == "auto" && !problem.for_norm();
    return problem.asked == "dense" || (usual && problem.p.tokens() <= one_matrix::dense_limit);
}

Found find(const Problem& problem, std::span<const Index> heads) {
    return each_kept(problem, heads, [&](const View& p) {
        return problem.for_norm() ? one_matrix::dense_norm(p)
                                  : one_matrix::by_dense(p, one_matrix::second_of(problem.known),
                                                         problem.accuracy);
    });
}

}  // namespace

extern const Route dense = {
    .about = {.name = "dense",
              .applies = "P of at most 128 tokens, or at most 2048 if Arnoldi does not certify; "
                         "for delta on request",
              .certifies = "the condition number of the eigenvalue times the rounding of the QR "
                           "algorithm",
              .cost = "10 n^3",
              .on_request = true},
    .applies = applies,
    .find = find};

}  // namespace tsdiag::spectra
