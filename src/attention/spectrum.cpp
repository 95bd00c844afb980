#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>

#include "classes.hpp"
#include "factors.hpp"
#include "on_device.hpp"
#include "squaring.hpp"
#include "stored.hpp"
#include "streamed.hpp"
#include "tsdiag/attention.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

using Vector = std::span<const double>;
using Result = std::span<double>;

constexpr Index dense_below = 128;   // measured: from here on Arnoldi is faster
constexpr Index dense_limit = 2048;  // beyond, what Arnoldi cannot certify stays an interval
constexpr Index arnoldi_products = 384, lanczos_products = 640;
constexpr double largest_basis = 5e8;  // bytes of the vectors of Lanczos where n is huge
constexpr double tolerance = 1e-7;     // of residuals; that of a singular value enters squared

/// Products with a P whose rows are made for each: as many as some minutes allow.
Index affordable_products(const AttentionOperator& p, Index most) {
    constexpr double largest_work = 2e11;  // entries of P: some 5 minutes of two cores
    const double entries = double(p.heads()) * double(p.tokens()) * double(p.tokens());
    return std::clamp<Index>(Index(largest_work / entries), 8, most);
}

/// Pi2 x; all of it is rounding where nothing is left, and then it is 0.
void centre(Result x) {
    double sum = 0, top = 0, left = 0;
    for (double e : x) sum += e, top = std::max(top, std::abs(e));
    const double mean = sum / double(x.size());
    for (double& e : x) e -= mean, left = std::max(left, std::abs(e));
    if (left <= 4 * std::numeric_limits<double>::epsilon() * top) std::ranges::fill(x, 0.0);
}

/// x -> P x, or x -> Pi2 P Pi2 x: on a stochastic P the second has the spectrum 0, lambda_2, ...,
/// lambda_n.
LinearMap square_map(const View& p, bool deflated) {
    const Index n = p.shape.rows;
    const auto apply = [&p, deflated](Vector x, Result y) {
        if (!deflated) return multiply(p, x, y);
        std::vector<double> from(x.begin(), x.end());
        centre(from);
        multiply(p, from, y);
        centre(y);
    };
    return {.rows = n, .cols = n, .apply = apply, .transpose = {}};
}

double entry(const View& p, Index i, Index j) {
    return p.type == Type::f32 ? double(p.row<float>(0, i)[j]) : p.row<double>(0, i)[j];
}

/// P, or Pi2 P Pi2.
std::vector<double> square_matrix(const View& p, bool deflated) {
    const std::size_t n = static_cast<std::size_t>(p.shape.rows);
    std::vector<double> a(n * n), column(n);
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < n; ++j) a[i * n + j] = entry(p, Index(i), Index(j));
        if (deflated) centre(Result(a).subspan(i * n, n));
    }
    for (std::size_t j = 0; deflated && j < n; ++j) {
        for (std::size_t i = 0; i < n; ++i) column[i] = a[i * n + j];
        centre(column);
        for (std::size_t i = 0; i < n; ++i) a[i * n + j] = column[i];
    }
    return a;
}

/// An upper bound of all eigenvalue moduli of P, or of all but the eigenvalue 1 of a stochastic P.
double bound(const View& p, bool deflated) {
    if (deflated) return std::min(1.0, stored::centred_frobenius(p, stored::column_sums(p)));
    const std::vector<double> zero(static_cast<std::size_t>(p.shape.cols), 0.0);
    return stored::centred_frobenius(p, zero);
}

/// The rank-th eigenvalue modulus of P, or of P without its eigenvalue 1.
Estimate eigenvalue(const View& p, bool deflated, Index rank) {
    const Index n = p.shape.rows;
    Estimate found;
    if (n > dense_below)
        found = spectral_radius(square_map(p, deflated), tolerance, arnoldi_products, rank);
    if (n <= dense_below || (!found.converged && n <= dense_limit))
        found = dense_eigenvalue(square_matrix(p, deflated), n, rank);
    if (!found.converged) found.high = bound(p, deflated);
    return found;
}

/// The rows and columns of `tokens`, in `memory`.
View part_of(const View& p, const std::vector<Index>& tokens, std::vector<double>& memory) {
    const Index m = static_cast<Index>(tokens.size());
    memory.clear();
    for (Index i : tokens)
        for (Index j : tokens) memory.push_back(entry(p, i, j));
    return {memory.data(), {1, m, m}, m * m, m, Type::f64};
}

Estimate exact(double value, const char* method) {
    Estimate out;
    out.value = value;
    out.method = method;
    return out;
}

/// The second largest of moduli found one by one; it is as certain as the least certain of them.
Estimate second_largest(std::vector<Estimate> all) {
    const auto first = std::ranges::max_element(all, {}, &Estimate::value);
    std::iter_swap(all.begin(), first);
    Estimate out =
        *std::max_element(all.begin() + 1, all.end(),
                          [](const Estimate& a, const Estimate& b) { return a.value < b.value; });
    for (const Estimate& e : all) {
        out.iterations = std::max(out.iterations, e.iterations);
        out.residual = std::max(out.residual, e.residual);
        out.converged = out.converged && e.converged;
    }
    if (out.converged) return out;
    out.low = out.low.value_or(out.value);
    for (const Estimate& e : std::span(all).subspan(1))
        out.high = std::max(out.high.value_or(out.value), e.high.value_or(e.value));
    return out;
}

Estimate second_of(const View& p, bool stochastic);

/// P is block triangular over its classes, and its spectrum the union of theirs; a closed class of
/// a stochastic P has the eigenvalue 1.
Estimate second_of_classes(const View& p, const std::vector<classes::Class>& found,
                           bool stochastic) {
    std::vector<Estimate> all;
    std::vector<double> memory;
    bool triangular = true;
    for (const classes::Class& c : found) {
        const bool single = c.tokens.size() == 1, has_one = stochastic && c.closed;
        triangular = triangular && single;
        if (has_one) all.push_back(exact(1, "classes"));
        if (single && !has_one)
            all.push_back(exact(std::abs(entry(p, c.tokens[0], c.tokens[0])), "classes"));
        if (single) continue;
        const View part = part_of(p, c.tokens, memory);
        if (has_one) {
            all.push_back(second_of(part, true));
        } else {
            all.push_back(eigenvalue(part, false, 1));
            if (!stochastic) all.push_back(eigenvalue(part, false, 2));
        }
    }
    Estimate out = second_largest(std::move(all));
    out.method = triangular ? "diagonal" : "classes";
    return out;
}

Estimate second_of(const View& p, bool stochastic) {
    if (classes::has_zero(p)) {
        const classes::Graph graph(p);
        const std::vector<classes::Class> found = classes::communicating(graph);
        if (found.size() > 1) return second_of_classes(p, found, stochastic);
        if (stochastic && classes::period(graph) > 1) return exact(1, "period");
    }
    return eigenvalue(p, stochastic, stochastic ? 1 : 2);
}

Estimate centred_norm_of(const View& p) {
    const std::vector<double> column = stored::column_sums(p);
    const std::vector<double> ones(column.size(), 1.0);
    LinearMap map;
    map.rows = map.cols = p.shape.rows;
    map.normal = [&](Vector x, Result y) { normal_product(p, ones, column, x, y); };
    Estimate found = largest_singular_value(map, tolerance, lanczos_products);
    if (!found.converged) found.high = stored::centred_frobenius(p, column);
    return found;
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
std::vector<Estimate> second_of_kept(const AttentionOperator& p, double memory, bool stochastic) {
    const auto of_head = [&](const View& head) { return second_of(head, stochastic); };
    const Tensor& whole = p.matrix();
    if (p.tokens() <= dense_below && !stochastic) return on_host(whole, of_head);
    stored::require_finite(whole, 0);
    std::vector<Estimate> found;
    if (stochastic && p.tokens() <= squaring::largest) {
        found = in_groups(whole, squaring::second_eigenvalue);
    } else {
        const std::vector<bool> falls_apart = on_device::has_zero(whole);
        if (std::ranges::find(falls_apart, false) == falls_apart.end())
            return on_host(whole, of_head);
        found = on_device::second_eigenvalue(p, memory, stochastic);
        for (std::size_t k = 0; k < found.size(); ++k)
            if (falls_apart[k]) found[k] = on_host(whole.batch_range(Index(k), 1), of_head).front();
    }
    settle_on_host(whole, found, of_head);
    return found;
}

std::vector<Estimate> centred_norm_of_kept(const AttentionOperator& p, double memory) {
    if (p.tokens() > squaring::largest) return on_device::centred_norm(p, memory);
    stored::require_finite(p.matrix(), 0);
    std::vector<Estimate> found = in_groups(p.matrix(), squaring::centred_norm);
    settle_on_host(p.matrix(), found, centred_norm_of);
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
    for (Index i = 0; i < p.shape.rows; ++i) out.push_back(entry(p, i, i));
    return out;
}

/// The spectrum of a block-diagonal P is the union of those of its blocks; each stochastic block
/// has the eigenvalue 1.
std::vector<Estimate> second_of_blocks(const AttentionOperator& p, const Structure& known) {
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
            for (Index rank = 1; rank <= std::min<Index>(2, count); ++rank)
                all[k].push_back(eigenvalue(block, false, rank));
        }
    }
    std::vector<Estimate> out;
    for (std::vector<Estimate>& moduli : all) {
        out.push_back(second_largest(std::move(moduli)));
        out.back().method = "blocks";
    }
    return out;
}

std::vector<Estimate> streamed_second(const AttentionOperator& p, double memory,
                                      const Structure& known) {
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
    std::vector<Estimate> out = spectral_radii(
        map, p.heads(), tolerance, affordable_products(p, arnoldi_products), deflated ? 1 : 2);
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
        if (modulus > first)
            second = first, first = modulus;
        else
            second = std::max(second, modulus);
    }
    return exact(second, "diagonal");
}

std::vector<Estimate> second_eigenvalue(const AttentionOperator& p, double memory) {
    check(p.tokens() >= 2, "a second eigenvalue needs two tokens");
    const Structure known = p.structure();
    if (known.causal && known.factors) {
        std::vector<Estimate> out;
        for (const auto& d : factors::diagonals(*known.factors))
            out.push_back(second_eigenvalue(d));
        return out;
    }
    if (known.block > 0 && known.block < p.tokens() && !known.causal)
        return second_of_blocks(p, known);
    if (factors::wanted(p, known, memory)) {
        std::vector<Estimate> found =
            factors::second_eigenvalue(*known.factors, known.row_stochastic);
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
            p, memory, [&](double bytes) { return second_of_kept(p, bytes, known.row_stochastic); },
            [&](double bytes) {
                return on_device::second_eigenvalue(p, bytes, known.row_stochastic);
            });
    if (!fits) return streamed_second(p, memory, known);
    return on_host(p.matrix(), [&](const View& head) {
        return known.causal ? second_eigenvalue(diagonal_of(head))
                            : second_of(head, known.row_stochastic);
    });
}

std::vector<Estimate> centred_norm(const AttentionOperator& p, double memory) {
    const Structure known = p.structure();
    if (!known.causal && factors::wanted(p, known, memory)) {
        std::vector<Estimate> found = factors::centred_norm(*known.factors);
        if (!stored::fits(p, memory) || std::ranges::all_of(found, &Estimate::converged))
            return found;
    }
    if (!stored::fits(p, memory) && known.causal && known.factors) {
        const auto products = Index(largest_basis / 8 / double(p.heads() * p.tokens()));
        std::vector<Estimate> found = factors::causal_centred_norm(
            *known.factors, tolerance, std::clamp<Index>(products, 16, lanczos_products));
        const std::optional<RowTotals> totals = p.row_totals();
        for (std::size_t k = 0; k < found.size(); ++k)
            if (!found[k].converged) found[k].high = std::sqrt(totals->squares[k]);  // |P|_F
        return found;
    }
    if (!p.backend().host_memory())
        return kept_or_streamed(
            p, memory, [&](double bytes) { return centred_norm_of_kept(p, bytes); },
            [&](double bytes) { return on_device::centred_norm(p, bytes); });
    if (!stored::fits(p, memory)) {
        const streamed::Rows rows(p, memory);
        LinearMap map;
        map.rows = map.cols = p.heads() * p.tokens();
        map.normal = [&](Vector x, Result y) { rows.centred_normal(x, y); };
        std::vector<Estimate> found = largest_singular_values(
            map, p.heads(), tolerance, affordable_products(p, lanczos_products));
        const std::vector<double> bounds = rows.centred_frobenius();
        for (std::size_t k = 0; k < found.size(); ++k)
            if (!found[k].converged) found[k].high = bounds[k];
        return found;
    }
    return on_host(p.matrix(), centred_norm_of);
}

}  // namespace tsdiag
