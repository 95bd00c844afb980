#include <omp.h>

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
/// for these.  A P that is kept allows all: `left_for_rows` has counted them.
Index affordable_products(const Problem& problem, double memory, Index most) {
    const AttentionOperator& p = problem.p;
    if (problem.kept) return most;
    constexpr double largest_work = 2e11;  // entries of P: some 5 minutes on two cores
    const double vector = double(p.heads()) * double(p.columns());
    constexpr double always = 8 << 20;
    const double products = std::min(largest_work / (vector * double(p.tokens())),
                                     std::max(memory, always) / (2 * sizeof(double) * vector));
    return std::clamp<Index>(Index(products), 8, most);
}

/// The maps of all heads by blocks of rows of P, which are recomputed for every product where P is
/// not kept.
class ByBlocks {
  public:
    explicit ByBlocks(const Problem& problem)
        : problem_(problem),
          p_(problem.p),
          which_(second_of(problem.known)),
          rows_(problem.p, problem.memory, problem.kept) {
        if (!problem.kept) return;  // a pass over P takes long
        const stored::Heads all = stored::Heads::of_finite(p_.matrix());
        for (Index k = 0; k < p_.heads(); ++k) rounding_.push_back(rounding_of(all[k]));
    }

    std::vector<Estimate> second() const {
        return bounded_second(spectral_radii(square(), p_.heads(), tolerance(), arnoldi(),
                                             which_.rank, problem_.accuracy));
    }
    std::vector<Estimate> norm() const {
        return bounded_norm(largest_singular_values(normal(), p_.heads(), tolerance(), lanczos()));
    }
    /// Both, where their vectors fit into memory side by side.
    std::optional<RadiiAndNorms> both() const {
        const double half = problem_.memory / 2;
        if (affordable_products(problem_, half, arnoldi_products) != arnoldi() ||
            affordable_products(problem_, half, lanczos_products) != lanczos())
            return std::nullopt;
        const SharedPass stack{.square = square(),
                               .normal = normal(),
                               .both = [this](std::span<const double> x, std::span<double> y,
                                              std::span<const double> u, std::span<double> v) {
                                   rows_.centred_normal(u, v, centred(x), y);
                                   centre_each(y);
                               }};
        RadiiAndNorms found = radii_and_norms(stack, p_.heads(), tolerance(), arnoldi(), lanczos(),
                                              which_.rank, problem_.accuracy);
        return RadiiAndNorms{bounded_second(std::move(found.radii)),
                             bounded_norm(std::move(found.norms))};
    }

  private:
    double tolerance() const { return residual_for(problem_.accuracy); }
    Index arnoldi() const {
        return affordable_products(problem_, problem_.memory, arnoldi_products);
    }
    Index lanczos() const {
        return affordable_products(problem_, problem_.memory, lanczos_products);
    }

    void centre_each(std::span<double> x) const {
        const auto n = std::size_t(p_.tokens());
        for (std::size_t k = 0; which_.deflated && k < x.size(); k += n) centre(x.subspan(k, n));
    }
    std::vector<double> centred(std::span<const double> x) const {
        std::vector<double> out(x.begin(), x.end());
        centre_each(out);
        return out;
    }
    LinearMap square() const {
        LinearMap map;
        map.rows = map.cols = p_.heads() * p_.tokens();
        map.apply = [this](std::span<const double> x, std::span<double> y) {
            rows_.multiply(centred(x), y);
            centre_each(y);
        };
        if (which_.deflated) map.rounding = rounding_;
        return map;
    }
    LinearMap normal() const {
        LinearMap map;
        map.rows = p_.heads() * p_.tokens();
        map.cols = p_.heads() * p_.columns();
        map.normal = [this](std::span<const double> x, std::span<double> y) {
            rows_.centred_normal(x, y);
        };
        map.rounding = rounding_;
        return map;
    }
    std::vector<Estimate> bounded_second(std::vector<Estimate> found) const {
        if (!problem_.kept && which_.deflated) {  // without a pass over P
            for (Estimate& e : found)
                if (!e.converged) e.high = largest_row_sum(p_.type(), p_.columns());
            return found;
        }
        bound(found, which_.deflated);
        for (std::size_t k = 0; which_.deflated && k < found.size(); ++k)
            if (Estimate& e = found[k]; !e.converged)
                e.high = std::min(*e.high, largest_row_sum(stored::Heads(p_.matrix())[Index(k)]));
        return found;
    }
    std::vector<Estimate> bounded_norm(std::vector<Estimate> found) const {
        bound(found, true);
        return found;
    }
    void bound(std::vector<Estimate>& found, bool centred) const {
        if (std::ranges::all_of(found, &Estimate::converged)) return;
        const std::vector<double> bounds = rows_.norm_bounds(centred);
        for (std::size_t k = 0; k < found.size(); ++k)
            if (!found[k].converged) found[k].high = bounds[k];
    }

    const Problem& problem_;
    const AttentionOperator& p_;
    Which which_;
    streamed::Rows rows_;
    std::vector<double> rounding_;  ///< of products of each head; of a P that is kept
};

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
    if (!problem.allows("arnoldi") || in_step(problem)) return false;
    if (problem.asked == "arnoldi") return true;
    if (!problem.kept) return !factors::wanted(problem.known);  // else factors are final
    return (problem.for_norm() ? problem.p.columns() : problem.p.tokens()) > dense_below;
}

Found second_with_norm(const Problem& problem, std::span<const Index> heads) {
    const stored::Heads& all = problem.host();
    const Which which = second_of(problem.known);
    const Found pairs = shared(problem.p.team(), std::ssize(heads), 2, [&](Index i) {
        const auto [second, norm] =
            second_and_norm(all[heads[std::size_t(i)]], which, problem.accuracy);
        return Found{second, norm};
    });
    Found out;
    for (std::size_t i = 0; i < heads.size(); ++i) {
        out.push_back(pairs[2 * i]);
        (*problem.beside)[std::size_t(heads[i])] = pairs[2 * i + 1];
    }
    return out;
}

Found of_kept(const Problem& problem, std::span<const Index> heads) {
    if (with_norms(problem)) return second_with_norm(problem, heads);
    return each_kept(problem, heads, [&](const View& head) {
        return problem.for_norm() ? centred_norm(head, problem.accuracy)
                                  : by_arnoldi(head, second_of(problem.known), problem.accuracy);
    });
}

Found by_blocks(const Problem& problem, std::span<const Index> heads) {
    const ByBlocks p(problem);
    if (with_norms(problem))
        if (const std::optional<RadiiAndNorms> both = p.both()) {
            problem.beside->assign(both->norms.begin(), both->norms.end());
            return select(both->radii, heads);
        }
    return select(problem.for_norm() ? p.norm() : p.second(), heads);
}

/// Whether each head of a P that is kept is shared by all threads, or by the members of a team: the
/// heads are fewer, and large enough.  To the last bit the same.  Members decide alike, whatever
/// their threads.
bool heads_are_shared(const Problem& problem, std::span<const Index> heads) {
    constexpr double large = 8 << 20;
    const Team* team = problem.p.team();
    const Index h = problem.p.heads(), threads = omp_in_parallel() ? 1 : omp_get_max_threads();
    const Index workers = team ? team->size() : threads;
    return std::ssize(heads) == h && h < workers && problem.p.bytes() > large * double(h);
}

bool has_equal_rows(const Problem& problem, Index head) {
    return problem.kept && rows_are_equal(stored::Heads::of_finite(problem.p.matrix())[head]);
}

Found find(const Problem& problem, std::span<const Index> heads) {
    if (problem.on_device()) {
        // All heads take hardly longer than one.
        if (!problem.kept || 2 * std::ssize(heads) > problem.p.heads())
            return select(by_products_there(problem, problem.p), heads);
        Found out;
        for (const Index k : heads)
            out.push_back(by_products_there(problem, OneHead(problem.p, k)).front());
        return out;
    }
    Found out = found_before(problem, heads);
    std::vector<Index> open;
    for (std::size_t i = 0; i < heads.size(); ++i) {
        if (out[i]) continue;
        if (has_equal_rows(problem, heads[i])) {
            out[i] = exact(0, problem.for_norm() ? "golub-kahan" : "arnoldi");
            if (with_norms(problem))
                (*problem.beside)[std::size_t(heads[i])] = exact(0, "golub-kahan");
        } else {
            open.push_back(heads[i]);
        }
    }
    if (open.empty()) return out;
    const bool each = problem.kept && !heads_are_shared(problem, open);
    const Found rest = each ? of_kept(problem, open) : by_blocks(problem, open);
    auto next = rest.begin();
    for (std::optional<Estimate>& one : out)
        if (!one) one = *next++;
    return out;
}

}  // namespace

bool with_norms(const Problem& problem) {
    return problem.beside && !problem.for_norm() && !factors::wanted(problem.known);
}
Found found_before(const Problem& problem, std::span<const Index> heads) {
    Found out(heads.size());
    for (std::size_t i = 0; problem.beside && problem.for_norm() && i < heads.size(); ++i)
        out[i] = (*problem.beside)[std::size_t(heads[i])];
    return out;
}

extern const Route arnoldi = {
    .about = {.name = "arnoldi",
              .applies = "any P, also one that is recomputed for every product; Lanczos for delta",
              .certifies =
                  "a test, no proof: the residuals of the leading Ritz pairs, weighted with "
                  "their condition numbers, at two consecutive checks, and where rows do not sum "
                  "to 1 another search beside the leading one; for delta the "
                  "residual (Weyl) of the largest value that was met",
              .cost = "m n^2, m a few hundred",
              .on_request = true},
    .applies = applies,
    .find = find,
    .tests = true};

}  // namespace tsdiag::spectra
