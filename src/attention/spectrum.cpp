#include <algorithm>
#include <cmath>
#include <limits>

#include "classes.hpp"
#include "stored.hpp"
#include "tsdiag/attention.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

using Vector = std::span<const double>;
using Result = std::span<double>;

constexpr Index dense_below = 160;   // measured: from here on Arnoldi is faster
constexpr Index dense_limit = 2048;  // beyond, what Arnoldi cannot certify stays an interval
constexpr Index arnoldi_products = 384, lanczos_products = 640;

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

std::vector<double> square_matrix(const View& p, bool deflated) {
    const Index n = p.shape.rows;
    std::vector<double> a(static_cast<std::size_t>(n * n)), mean(static_cast<std::size_t>(n), 0.0);
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < n; ++j)
            a[static_cast<std::size_t>(i * n + j)] =
                p.type == Type::f32 ? double(p.row<float>(0, i)[j]) : p.row<double>(0, i)[j];
    if (!deflated) return a;
    for (Index i = 0; i < n; ++i) {
        const std::span row = std::span(a).subspan(static_cast<std::size_t>(i * n), mean.size());
        centre(row);
        for (std::size_t j = 0; j < mean.size(); ++j) mean[j] += row[j] / double(n);
    }
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < n; ++j)
            a[static_cast<std::size_t>(i * n + j)] -= mean[static_cast<std::size_t>(j)];
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
        found = spectral_radius(square_map(p, deflated), 1e-7, arnoldi_products, rank);
    if (n <= dense_below || (!found.converged && n <= dense_limit))
        found = dense_eigenvalue(square_matrix(p, deflated), n, rank);
    if (!found.converged) found.high = bound(p, deflated);
    return found;
}

double entry(const View& p, Index i, Index j) {
    return p.type == Type::f32 ? double(p.row<float>(0, i)[j]) : p.row<double>(0, i)[j];
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
    std::stable_sort(all.begin(), all.end(),
                     [](const Estimate& a, const Estimate& b) { return a.value > b.value; });
    Estimate out = all[1];
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

std::vector<double> diagonal_of(const View& p) {
    std::vector<double> out;
    for (Index i = 0; i < p.shape.rows; ++i) out.push_back(entry(p, i, i));
    return out;
}

/// Diagonals of all heads, from rows that are made and dropped.
std::vector<std::vector<double>> streamed_diagonals(const AttentionOperator& p) {
    std::vector<std::vector<double>> out(static_cast<std::size_t>(p.heads()));
    const Index n = p.tokens(), block = stored::block_rows(p);
    for (Index first = 0; first < n; first += block) {
        const RowStatistics s = row_statistics(p.rows(first, std::min(block, n - first)));
        for (std::size_t k = 0; k < out.size(); ++k)
            out[k].insert(out[k].end(), s.diagonal.begin() + Index(k) * s.rows,
                          s.diagonal.begin() + Index(k + 1) * s.rows);
    }
    return out;
}

/// x -> A x for the heads' vectors one after the other, A = P or P^T, centred before (for P^T) or
/// after.
LinearMap streamed(const AttentionOperator& p, bool centred_in, bool centred_out) {
    const Index n = p.tokens(), total = n * p.heads();
    const auto product = [&p, n](Vector x, Result y, bool transposed, bool in, bool out) {
        std::vector<double> from(x.begin(), x.end());
        for (std::size_t k = 0; in && k < from.size(); k += std::size_t(n))
            centre(Result(from).subspan(k, std::size_t(n)));
        const Tensor v = Tensor::from_host(p.backend(), {p.heads(), n, 1}, from, p.type());
        const Index block = stored::block_rows(p);
        const Tensor w = transposed ? p.apply_transpose(v, block) : p.apply(v, block);
        std::ranges::copy(w.to_host<double>(), y.begin());
        for (std::size_t k = 0; out && k < y.size(); k += std::size_t(n))
            centre(y.subspan(k, std::size_t(n)));
    };
    LinearMap map;
    map.rows = map.cols = total;
    map.apply = [product, centred_in, centred_out](Vector x, Result y) {
        product(x, y, false, centred_in, centred_out);
    };
    map.transpose = [product, centred_in, centred_out](Vector x, Result y) {
        product(x, y, true, centred_out, centred_in);
    };
    return map;
}

/// Products in float32 carry errors of 1e-7: no smaller residual can be asked for.
double streamed_tolerance(const AttentionOperator& p) {
    return p.type() == Type::f32 ? 1e-6 : 1e-8;
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

std::vector<Estimate> second_eigenvalue(const AttentionOperator& p) {
    check(p.tokens() >= 2, "a second eigenvalue needs two tokens");
    const Structure known = p.structure();
    if (known.row_stochastic && known.block > 0 && known.block < p.tokens())
        return std::vector<Estimate>(static_cast<std::size_t>(p.heads()), exact(1, "blocks"));
    if (!stored::fits(p)) {
        std::vector<Estimate> out;
        if (known.causal) {
            for (const auto& d : streamed_diagonals(p)) out.push_back(second_eigenvalue(d));
            return out;
        }
        const bool deflated = known.row_stochastic;
        return spectral_radii(streamed(p, deflated, deflated), p.heads(), streamed_tolerance(p),
                              arnoldi_products, deflated ? 1 : 2);
    }
    const stored::Heads heads(p);
    return stored::for_each_head<Estimate>(heads.count(), [&](Index k) {
        const View head = heads[k];
        return known.causal ? second_eigenvalue(diagonal_of(head))
                            : second_of(head, known.row_stochastic);
    });
}

std::vector<Estimate> centred_norm(const AttentionOperator& p) {
    if (!stored::fits(p))
        return largest_singular_values(streamed(p, false, true), p.heads(), streamed_tolerance(p),
                                       lanczos_products);
    const stored::Heads heads(p);
    return stored::for_each_head<Estimate>(heads.count(), [&](Index k) {
        const View head = heads[k];
        const std::vector<double> column = stored::column_sums(head);
        const std::vector<double> ones(column.size(), 1.0);
        LinearMap map;
        map.rows = map.cols = head.shape.rows;
        map.normal = [&](Vector x, Result y) { normal_product(head, ones, column, x, y); };
        Estimate found = largest_singular_value(map, 1e-8, lanczos_products);
        if (!found.converged) found.high = stored::centred_frobenius(head, column);
        return found;
    });
}

}  // namespace tsdiag
