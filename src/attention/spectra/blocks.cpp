#include "one_matrix.hpp"
#include "route.hpp"

namespace tsdiag::spectra {
namespace {

using namespace one_matrix;

bool applies(const Problem& problem) {
    return problem.known.blocks.size() > 1 && !problem.known.causal && !problem.for_norm();
}

/// Each stochastic block has the eigenvalue 1.
Found find(const Problem& problem, std::span<const Index> heads) {
    const AttentionOperator& p = problem.p;
    const bool stochastic = problem.known.row_stochastic;
    std::vector<std::vector<Estimate>> all(std::size_t(p.heads()));
    for (std::vector<Estimate>& moduli : all)
        if (stochastic) moduli = {exact(1, "blocks"), exact(1, "blocks")};
    Index first = 0;
    for (const Index end : stochastic ? std::vector<Index>() : problem.known.blocks) {
        const Index count = end - first;
        const Tensor rows = p.rows(first, count).p.col_range(first, count);
        std::vector<double> values = rows.to_host<double>();
        for (std::size_t k = 0; k < all.size(); ++k) {
            const View block{values.data() + k * std::size_t(count * count),
                             {1, count, count},
                             count * count,
                             count,
                             Type::f64};
            add_leading(block, {problem.accuracy, problem.asked}, all[k]);
        }
        first = end;
    }
    std::vector<Estimate> out;
    for (const std::vector<Estimate>& moduli : all) {
        out.push_back(second_largest(moduli, problem.accuracy, "blocks"));
        out.back().on_host = problem.on_device() && !stochastic;
    }
    return select(out, heads);
}

}  // namespace

extern const Route blocks = {
    .about = {.name = "blocks",
              .applies = "block-diagonal P, not causal",
              .certifies =
                  "the spectrum is the union of those of the blocks; each stochastic block "
                  "has the eigenvalue 1",
              .cost = "the sum over the blocks"},
    .applies = applies,
    .find = find};

}  // namespace tsdiag::spectra
