#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>

#include "factors.hpp"
#include "on_device.hpp"
#include "one_matrix.hpp"
#include "rescaled.hpp"
#include "squaring.hpp"
#include "stored.hpp"
#include "streamed.hpp"
#include "tsdiag/attention.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

using Vector = std::span<const double>;
using Result = std::span<double>;

using namespace one_matrix;

constexpr double largest_basis = 5e8;  // bytes of the vectors of Lanczos where n is huge

/// Products with a P whose rows are made for each: as many as some minutes allow, and as there is
/// memory for their vectors, which are copied once when they outgrow their place.  8 MiB of them
/// there always are.
Index affordable_products(const AttentionOperator& p, double memory, Index most) {
    constexpr double largest_work = 2e11;  // entries of P: some 5 minutes of two cores
    const double vector = double(p.heads()) * double(p.tokens());
    constexpr double always = 8 << 20;
    const double products = std::min(largest_work / (vector * double(p.tokens())),
                                     std::max(memory, always) / (2 * sizeof(double) * vector));
    return std::clamp<Index>(Index(products), 8, most);
}

/// What `of` finds for each head of P in host memory.
template <class Of>
std::vector<Estimate> on_host(const Tensor& p, const Of& of) {
    const stored::Heads heads(p);
    return stored::for_each_head<Estimate>(heads.count(), [&](Index k) { return of(heads[k]); });
}

/// of(p) of as many heads at once as there is memory for.
template <class Of>
std::vector<Estimate> in_groups(const Tensor& p, const Of& of) {
    try {
        return of(p);
    } catch (const OutOfMemory&) {
        if (p.batch() == 1) throw;
    }
    note_shortage("the heads of a spectrum were taken by halves");
    const Index half = p.batch() / 2;
    std::vector<Estimate> out = in_groups(p.batch_range(0, half), of);
    std::ranges::move(in_groups(p.batch_range(half, p.batch() - half), of),
                      std::back_inserter(out));
    return out;
}

/// Heads of which that is not sure are found on the host, where they are small enough.
void settle_on_host(const Tensor& p, std::vector<Estimate>& found,
                    const std::function<Estimate(const View&)>& of) {
    for (std::size_t k = 0; k < found.size(); ++k)
        if (!found[k].converged && p.rows() <= dense_limit)
            found[k] = on_host(p.batch_range(Index(k), 1), of).front();
}

/// Of a P on a device that is kept and not causal.
std::vector<Estimate> second_of_kept(const AttentionOperator& p, double memory, bool stochastic,
                                     double accuracy) {
    const auto of_head = [&](const View& head) {
        return one_matrix::second_eigenvalue(head, stochastic, accuracy);
    };
    const Tensor& whole = p.matrix();
    if (p.tokens() <= dense_below && !stochastic) return on_host(whole, of_head);
    stored::require_finite(whole, 0);
    std::vector<Estimate> found;
    if (stochastic && p.tokens() <= squaring::largest) {
        found = in_groups(
            whole, [&](const Tensor& t) { return squaring::second_eigenvalue(t, accuracy); });
    } else {
        const std::vector<bool> falls_apart = on_device::has_zero(whole);
        if (std::ranges::find(falls_apart, false) == falls_apart.end())
            return on_host(whole, of_head);
        found = on_device::second_eigenvalue(p, memory, stochastic, accuracy);
        for (std::size_t k = 0; k < found.size(); ++k)
            if (falls_apart[k]) found[k] = on_host(whole.batch_range(Index(k), 1), of_head).front();
    }
    settle_on_host(whole, found, of_head);
    return found;
}

std::vector<Estimate> centred_norm_of_kept(const AttentionOperator& p, double memory,
                                           double accuracy) {
    if (p.tokens() > squaring::largest) return on_device::centred_norm(p, memory, accuracy);
    stored::require_finite(p.matrix(), 0);
    std::vector<Estimate> found =
        in_groups(p.matrix(), [&](const Tensor& t) { return squaring::centred_norm(t, accuracy); });
    settle_on_host(p.matrix(), found,
                   [&](const View& head) { return one_matrix::centred_norm(head, accuracy); });
    return found;
}

/// Of a P on a device, which may be fuller than was thought.
template <class Kept, class Streamed>
std::vector<Estimate> kept_or_streamed(const AttentionOperator& p, double memory, const Kept& kept,
                                       const Streamed& streamed) {
    if (!stored::fits(p, memory)) return streamed(memory);
    try {
        return kept(memory);
    } catch (const OutOfMemory&) {
        note_shortage("the P of a spectrum was made by blocks");
        return streamed(p.bytes() / 2);
    }
}

std::vector<double> diagonal_of(const View& p) {
    std::vector<double> out;
    for (Index i = 0; i < p.shape.rows; ++i)
        out.push_back(p.type == Type::f32 ? double(p.row<float>(0, i)[i]) : p.row<double>(0, i)[i]);
    return out;
}

/// The spectrum of a block-diagonal P is the union of those of its blocks; each stochastic block
/// has the eigenvalue 1.
std::vector<Estimate> second_of_blocks(const AttentionOperator& p, const Structure& known,
                                       double accuracy) {
    std::vector<std::vector<Estimate>> all(static_cast<std::size_t>(p.heads()));
    for (std::vector<Estimate>& moduli : all)
        if (known.row_stochastic) moduli = {exact(1, "blocks"), exact(1, "blocks")};
    const Index n = p.tokens();
    for (Index first = 0; first < n && !known.row_stochastic; first += known.block) {
        const Index count = std::min(known.block, n - first);
        const Tensor rows = p.rows(first, count).p.col_range(first, count);
        std::vector<double> values = rows.to_host<double>();
        for (std::size_t k = 0; k < all.size(); ++k) {
            const View block{values.data() + k * std::size_t(count * count),
                             {1, count, count},
                             count * count,
                             count,
                             Type::f64};
            add_leading(block, accuracy, all[k]);
        }
    }
    std::vector<Estimate> out;
    for (const std::vector<Estimate>& moduli : all)
        out.push_back(second_largest(moduli, accuracy, "blocks"));
    return out;
}

std::vector<Estimate> streamed_second(const AttentionOperator& p, double memory,
                                      const Structure& known, double accuracy) {
    const streamed::Rows rows(p, memory);
    const bool deflated = known.row_stochastic;
    const std::size_t n = static_cast<std::size_t>(p.tokens());
    const auto centre_each = [n](Result x) {
        for (std::size_t k = 0; k < x.size(); k += n) centre(x.subspan(k, n));
    };
    LinearMap map;
    map.rows = map.cols = p.heads() * p.tokens();
    map.apply = [&](Vector x, Result y) {
        std::vector<double> from(x.begin(), x.end());
        if (deflated) centre_each(from);
        rows.multiply(from, y);
        if (deflated) centre_each(y);
    };
    std::vector<Estimate> out = spectral_radii(map, p.heads(), residual_for(accuracy),
                                               affordable_products(p, memory, arnoldi_products),
                                               deflated ? 1 : 2, accuracy);
    for (Estimate& e : out)
        if (!e.converged && deflated) e.high = 1;
    return out;
}

}  // namespace

Estimate second_eigenvalue(std::span<const double> diagonal) {
    check(diagonal.size() >= 2, "a second eigenvalue needs two tokens");
    double first = 0, second = 0;
    for (double e : diagonal) {
        const double modulus = std::abs(e);
        second = std::max(second, std::min(first, modulus));
        first = std::max(first, modulus);
    }
    return exact(second, "diagonal");
}

std::vector<Estimate> second_eigenvalue(const AttentionOperator& p, double memory,
                                        double accuracy) {
    check(p.tokens() >= 2, "a second eigenvalue needs two tokens");
    if (const auto near = Rescaled::where_needed(p, memory))
        return near->restore(second_eigenvalue(*near, memory, accuracy));
    const Structure known = p.structure();
    if (known.causal && known.factors) {
        std::vector<Estimate> out;
        for (const auto& d : factors::diagonals(*known.factors))
            out.push_back(second_eigenvalue(d));
        return out;
    }
    if (known.block > 0 && known.block < p.tokens() && !known.causal)
        return second_of_blocks(p, known, accuracy);
    if (factors::wanted(known)) {
        std::vector<Estimate> found =
            factors::second_eigenvalue(*known.factors, known.row_stochastic, accuracy);
        if (!stored::fits(p, memory) || std::ranges::all_of(found, &Estimate::converged))
            return found;
    }
    const bool device = !p.backend().host_memory(), fits = stored::fits(p, memory);
    if (known.causal && (device || !fits)) {
        std::vector<Estimate> out;
        for (const auto& d :
             device ? on_device::diagonals(p, memory) : streamed::Rows(p, memory).diagonals())
            out.push_back(second_eigenvalue(d));
        return out;
    }
    if (device)
        return kept_or_streamed(
            p, memory,
            [&](double bytes) { return second_of_kept(p, bytes, known.row_stochastic, accuracy); },
            [&](double bytes) {
                return on_device::second_eigenvalue(p, bytes, known.row_stochastic, accuracy);
            });
    if (!fits) return streamed_second(p, memory, known, accuracy);
    return on_host(p.matrix(), [&](const View& head) {
        return known.causal ? second_eigenvalue(diagonal_of(head))
                            : one_matrix::second_eigenvalue(head, known.row_stochastic, accuracy);
    });
}

std::vector<Estimate> centred_norm(const AttentionOperator& p, double memory, double accuracy) {
    if (const auto near = Rescaled::where_needed(p, memory))
        return near->restore(centred_norm(*near, memory, accuracy));
    const Structure known = p.structure();
    if (!known.causal && factors::wanted(known)) {
        std::vector<Estimate> found = factors::centred_norm(*known.factors, accuracy);
        if (!stored::fits(p, memory) || std::ranges::all_of(found, &Estimate::converged))
            return found;
    }
    if (known.causal && factors::wanted(known)) {
        const auto products = Index(largest_basis / 8 / double(p.heads() * p.tokens()));
        std::vector<Estimate> found =
            factors::causal_centred_norm(*known.factors, residual_for(accuracy),
                                         std::clamp<Index>(products, 16, lanczos_products));
        const std::optional<RowTotals> totals = p.row_totals();
        for (std::size_t k = 0; k < found.size(); ++k)
            if (!found[k].converged)
                found[k].high = double(std::sqrt(totals->squares[k]));  // |P|_F
        return found;
    }
    if (!p.backend().host_memory())
        return kept_or_streamed(
            p, memory, [&](double bytes) { return centred_norm_of_kept(p, bytes, accuracy); },
            [&](double bytes) { return on_device::centred_norm(p, bytes, accuracy); });
    if (!stored::fits(p, memory)) {
        const streamed::Rows rows(p, memory);
        LinearMap map;
        map.rows = map.cols = p.heads() * p.tokens();
        map.normal = [&](Vector x, Result y) { rows.centred_normal(x, y); };
        std::vector<Estimate> found =
            largest_singular_values(map, p.heads(), residual_for(accuracy),
                                    affordable_products(p, memory, lanczos_products));
        const std::vector<double> bounds = rows.centred_frobenius();
        for (std::size_t k = 0; k < found.size(); ++k)
            if (!found[k].converged) found[k].high = bounds[k];
        return found;
    }
    return on_host(p.matrix(),
                   [&](const View& head) { return one_matrix::centred_norm(head, accuracy); });
}

}  // namespace tsdiag
