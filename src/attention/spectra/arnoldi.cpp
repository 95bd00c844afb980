#include <algorithm>

#include "factors.hpp"
#include "on_device.hpp"
#include "one_matrix.hpp"
#include "route.hpp"
#include "streamed.hpp"

namespace tsdiag::spectra {
namespace {

using namespace one_matrix;

/// Number of products with a P whose rows are recomputed for each: within some minutes and the
/// memory for their vectors, which are copied once on reallocation.  At least 8 MiB is available
/// for these.
Index affordable_products(const AttentionOperator& p, double memory, Index most) {
    constexpr double largest_work = 2e11;  // entries of P: some 5 minutes on two cores
    const double vector = double(p.heads()) * double(p.columns());
    constexpr double always = 8 << 20;
    const double products = std::min(largest_work / (vector * double(p.tokens())),
                                     std::max(memory, always) / (2 * sizeof(double) * vector));
    return std::clamp<Index>(Index(products), 8, most);
}

std::vector<Estimate> streamed_second(const Problem& problem) {
    const AttentionOperator& p = problem.p;
    const streamed::Rows rows(p, problem.memory);
    const Which which = second_of(problem.known);
    const std::size_t n = std::size_t(p.tokens());
    const auto centre_each = [n](std::span<double> x) {
        for (std::size_t k = 0; k < x.size(); k += n) centre(x.subspan(k, n));
    };
    LinearMap map;
    map.rows = map.cols = p.heads() * p.tokens();
    map.apply = [&](std::span<const double> x, std::span<double> y) {
        std::vector<double> from(x.begin(), x.end());
        if (which.deflated) centre_each(from);
        rows.multiply(from, y);
        if (which.deflated) centre_each(y);
    };
    std::vector<Estimate> out = spectral_radii(
        map, p.heads(), residual_for(problem.accuracy),
        affordable_products(p, problem.memory, arnoldi_products), which.rank, problem.accuracy);
    for (Estimate& e : out)
        if (!e.converged && which.deflated) e.high = 1;
    return out;
}

std::vector<Estimate> streamed_norm(const Problem& problem) {
    const AttentionOperator& p = problem.p;
    const streamed::Rows rows(p, problem.memory);
    LinearMap map;
    map.rows = p.heads() * p.tokens();
    map.cols = p.heads() * p.columns();
    map.normal = [&](std::span<const double> x, std::span<double> y) { rows.centred_normal(x, y); };
    std::vector<Estimate> out =
        largest_singular_values(map, p.heads(), residual_for(problem.accuracy),
                                affordable_products(p, problem.memory, lanczos_products));
    const std::vector<double> bounds = rows.centred_frobenius();
    for (std::size_t k = 0; k < out.size(); ++k)
        if (!out[k].converged) out[k].high = bounds[k];
    return out;
}

/// One head of a P that is kept.
class OneHead final : public AttentionOperator {
  public:
    OneHead(const AttentionOperator& p, Index head) : p_(p.matrix().batch_range(head, 1)) {}
    RowBlock rows(Index first, Index count) const override {
        RowBlock block;
        block.first = first;
        block.p = p_.row_range(first, count);
        return block;
    }
    Index heads() const override { return 1; }
    Index tokens() const override { return p_.rows(); }
    Type type() const override { return p_.type(); }
    const Backend& backend() const override { return p_.backend(); }

  private:
    Tensor p_;
};

std::vector<Estimate> by_products_there(const Problem& problem, const AttentionOperator& p) {
    return problem.for_norm()
               ? on_device::centred_norm(p, problem.memory, problem.accuracy)
               : on_device::second_eigenvalue(p, problem.memory, problem.known.row_stochastic,
                                              problem.accuracy);
}

bool applies(const Problem& problem) {
    if (!problem.allows("arnoldi")) return false;
    if (problem.asked == "arnoldi") return true;
    if (!problem.kept) return !factors::wanted(problem.known);  // else factors are final
    return problem.for_norm() || problem.p.tokens() > dense_below;
}

Found find(const Problem& problem, std::span<const Index> heads) {
    const double accuracy = problem.accuracy;
    if (problem.on_device()) {
        // All heads take hardly longer than one.
        if (!problem.kept || 2 * std::ssize(heads) > problem.p.heads())
            return select(by_products_there(problem, problem.p), heads);
        Found out;
        for (const Index k : heads)
            out.push_back(by_products_there(problem, OneHead(problem.p, k)).front());
        return out;
    }
    if (!problem.kept)
        return select(problem.for_norm() ? streamed_norm(problem) : streamed_second(problem),
                      heads);
    return each_kept(problem, heads, [&](const View& head) {
        return problem.for_norm() ? centred_norm(head, accuracy)
                                  : by_arnoldi(head, second_of(problem.known), accuracy);
    });
}

}  // namespace

extern const Route arnoldi = {
    .about = {.name = "arnoldi",
              .applies = "any P, also one that is recomputed for every product; Lanczos for delta",
              .certifies = "the residuals of the leading Ritz pairs, weighted with their condition "
                           "numbers, at two consecutive checks; for delta its residual and gap",
              .cost = "m n^2, m a few hundred",
              .on_request = true},
    .applies = applies,
    .find = find};

}  // namespace tsdiag::spectra
