#include "on_device.hpp"
#include "one_matrix.hpp"
#include "route.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::spectra {
namespace {

bool applies(const Problem& problem) {
    if (!problem.kept) return false;
    if (problem.asked == "dense") return true;
    const bool usual = problem.on_device() || !problem.for_norm() ||
                       problem.p.columns() <= one_matrix::dense_below;
    return problem.asked == "auto" && usual && problem.p.tokens() <= one_matrix::dense_limit;
}

Estimate by_host(const Problem& problem, const View& p) {
    return problem.for_norm()
               ? one_matrix::dense_norm(p, problem.accuracy)
               : one_matrix::by_dense(p, one_matrix::second_of(problem.known), problem.accuracy);
}

/// None where the device's solver did not converge, or the device is full.
std::optional<Estimate> by_device(const Problem& problem, Index head) {
    const Tensor p = problem.p.matrix().batch_range(head, 1);
    try {
        return problem.for_norm() ? on_device::dense_norm(p, problem.accuracy)
                                  : on_device::dense_second(p, one_matrix::second_of(problem.known),
                                                            problem.accuracy);
    } catch (const OutOfMemory&) {
        note_shortage("a dense spectrum was found on the host");
        return std::nullopt;
    }
}

/// Heads whose workspaces fit into memory side by side are solved side by side: the solver of a
/// device leaves most of it idle, and waits for the host.
Found by_device(const Problem& problem, std::span<const Index> heads) {
    stored::require_finite(problem.p.matrix(), 0);
    problem.p.backend().synchronise();
    const Index n = problem.p.tokens();
    const std::optional<std::size_t> solver = problem.p.backend().dense_workspace(n);
    const double centred = 2 * double(n * n) * sizeof(double);  // P, and what its means take
    const auto of = [&](Index i) { return by_device(problem, heads[std::size_t(i)]); };
    Found out;
    if (solver && double(heads.size()) * (double(*solver) + centred) <= problem.memory)
        out = stored::for_each_head<std::optional<Estimate>>(std::ssize(heads), of);
    else
        for (Index i = 0; i < std::ssize(heads); ++i) out.push_back(of(i));
    for (std::size_t i = 0; i < heads.size(); ++i)
        if (!out[i])
            out[i] = copied(problem, heads[i], [&](const View& p) { return by_host(problem, p); });
    return out;
}

Found find(const Problem& problem, std::span<const Index> heads) {
    if (problem.on_device() && !problem.for_host()) return by_device(problem, heads);
    return each_kept(problem, heads, [&](const View& p) { return by_host(problem, p); });
}

}  // namespace

extern const Route dense = {
    .about =
        {.name = "dense",
         .applies = "P of at most 128 tokens, lambda_2 also of at most 2048 if Arnoldi does "
                    "not certify; delta on a device; elsewhere on request",
         .certifies =
             "proof: a Stein inequality for all eigenvalues but the leading ones, the "
             "theorems of Bauer-Fike or Elsner for these; for delta Weyl's; of a P on a device of "
             "more than 64 tokens, lambda_2 by cuSOLVER to first order: its condition number "
             "times rounding and residual",
         .cost = "70 n^3; delta 3 n^3",
         .on_request = true},
    .applies = applies,
    .find = find};

}  // namespace tsdiag::spectra
