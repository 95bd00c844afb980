#include <cmath>

#include "on_device.hpp"
#include "one_matrix.hpp"
#include "route.hpp"

namespace tsdiag::spectra {

bool in_step(const Problem& problem) {
    constexpr Index longest = 4096;  // beyond, the block of a device that has one basis is slow
    if (!problem.on_device() || !problem.kept || problem.for_host() || !problem.allows("arnoldi"))
        return false;
    if (problem.p.columns() > longest) return false;
    return problem.for_norm() || problem.known.row_stochastic ||
           problem.p.tokens() > one_matrix::dense_below;
}

Tensor chosen(const Tensor& p, std::span<const Index> heads) {
    if (std::ssize(heads) == p.batch()) return p;
    std::vector<Tensor> parts;
    for (const Index k : heads) parts.push_back(p.batch_range(k, 1));
    return concat_batches(parts);
}

namespace {

/// Zero where all rows of P are equal; the others are found in step.
Found find(const Problem& problem, std::span<const Index> heads) {
    const bool norms = problem.for_norm() || with_norms(problem);
    Found out = found_before(problem, heads);
    on_device::InStep sought{.second = !problem.for_norm(),
                             .norm = norms,
                             .which = one_matrix::second_of(problem.known),
                             .heads = {},
                             .rounding = {}};
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < heads.size(); ++i) {
        if (out[i]) continue;
        const Survey& head = problem.survey()[std::size_t(heads[i])];
        if (head.equal_rows) {
            out[i] = one_matrix::exact(0, problem.for_norm() ? "golub-kahan" : "arnoldi");
            continue;
        }
        open.push_back(i);
        sought.heads.push_back(heads[i]);
        sought.rounding.push_back(
            rounding_of_products(problem.p.columns(), std::sqrt(head.squares)));
    }
    if (open.empty()) return out;
    const RadiiAndNorms found =
        on_device::in_step(problem.p, sought, problem.memory, problem.accuracy);
    for (std::size_t i = 0; i < open.size(); ++i) {
        out[open[i]] = problem.for_norm() ? found.norms[i] : found.radii[i];
        if (!problem.for_norm() && norms)
            (*problem.beside)[std::size_t(sought.heads[i])] = found.norms[i];
    }
    return out;
}

}  // namespace

extern const Route krylov = {
    .about = {.name = "krylov",
              .applies = "P in the memory of a device, of at most 4096 tokens, stochastic or of "
                         "more than 128; delta of any P of that size",
              .certifies = "as arnoldi",
              .cost = "as arnoldi, all heads in step, both numbers with one pass over P a product"},
    .applies = in_step,
    .find = find,
    .tests = true};

}  // namespace tsdiag::spectra
