#include <algorithm>
#include <cmath>
#include <limits>

#include "classes.hpp"
#include "stored.hpp"
#include "tsdiag/attention.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

constexpr Index lanczos_products = 640;

/// Grassmann-Taksar-Heyman: elimination from the last token without subtractions, so every entry of
/// pi is accurate to rounding, whatever its size.  Cost 2 n^3 / 3.
std::vector<double> eliminate(const View& p) {
    const Index n = p.shape.rows;
    std::vector<double> a(std::size_t(n * n));
    for (Index i = 0; i < n; ++i)
        for (Index j = 0; j < n; ++j)
            a[std::size_t(i * n + j)] =
                p.type == Type::f32 ? double(p.row<float>(0, i)[j]) : p.row<double>(0, i)[j];
    for (Index k = n - 1; k > 0; --k) {
        const double* last = a.data() + k * n;
        double leaving = 0;
        for (Index j = 0; j < k; ++j) leaving += last[j];
        for (Index i = 0; i < k; ++i) {
            double* row = a.data() + i * n;
            const double through = row[k] /= leaving;
            for (Index j = 0; j < k; ++j) row[j] += through * last[j];
        }
    }
    std::vector<double> pi(std::size_t(n), 0.0);
    pi[0] = 1;
    double total = 1;
    for (Index k = 1; k < n; ++k) {
        for (Index i = 0; i < k; ++i)
            pi[std::size_t(k)] += pi[std::size_t(i)] * a[std::size_t(i * n + k)];
        total += pi[std::size_t(k)];
    }
    for (double& e : pi) e /= total;
    return pi;
}

/// Power iteration while it converges fast; else empty.
std::vector<double> iterate(const View& p) {
    constexpr int steps = 120;
    const std::size_t n = std::size_t(p.shape.rows);
    std::vector<double> pi(n, 1 / double(n)), next(n);
    double before = std::numeric_limits<double>::infinity();
    for (int k = 0; k < steps; ++k) {
        std::ranges::fill(next, 0.0);
        add_transposed(p, 1, pi, next);
        double total = 0, change = 0;
        for (double e : next) total += e;
        for (std::size_t i = 0; i < n; ++i) {
            next[i] /= total;
            if (next[i] > 0) change = std::max(change, std::abs(next[i] - pi[i]) / next[i]);
        }
        pi.swap(next);
        // The remaining error is the change times rate / (1 - rate).
        const double rate = change / before;
        if (k > 0 && rate < 1 && change * rate / (1 - rate) < 1e-14) return pi;
        if (change <= 4 * std::numeric_limits<double>::epsilon()) return pi;
        before = change;
    }
    return {};
}

/// Why pi is undefined; empty where it is unique and positive.
std::string obstacle(const View& p) {
    if (!classes::has_zero(p)) return {};
    const std::vector<classes::Class> found = classes::communicating(classes::Graph(p));
    const auto closed =
        std::ranges::count_if(found, [](const classes::Class& c) { return c.closed; });
    if (closed > 1) return "pi is not unique";
    return found.size() > 1 ? "pi is not positive" : "";
}

Contraction contraction(const View& p, double accuracy) {
    Contraction out;
    out.why_not = obstacle(p);
    if (!out.why_not.empty()) return out;
    const std::vector<double> pi = stationary_vector(p);
    std::vector<double> root, x(pi.size());
    for (double e : pi) root.push_back(std::sqrt(e));
    if (*std::ranges::min_element(pi) < std::numeric_limits<double>::min()) {
        out.why_not = "pi is not positive in double precision";
        return out;
    }
    // B = D^1/2 (P - 1 pi^T) D^-1/2, so B^T B = D^-1/2 P^T (D - pi pi^T) P D^-1/2.
    std::vector<double> column(pi.size(), 0.0);
    add_transposed(p, 1, pi, column);
    LinearMap map;
    map.rows = map.cols = p.shape.rows;
    map.normal = [&](std::span<const double> from, std::span<double> to) {
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = from[i] / root[i];
        normal_product(p, pi, column, x, to);
        for (std::size_t i = 0; i < x.size(); ++i) to[i] /= root[i];
    };
    out.estimate = largest_singular_value(map, accuracy / 100, lanczos_products);
    if (!out.estimate->converged) out.estimate->high = 1;
    return out;
}

}  // namespace

std::vector<double> stationary_vector(const View& p) {
    check(p.shape.rows == p.shape.cols && p.shape.rows > 0, "a stationary vector of a square P");
    std::vector<double> pi = iterate(p);
    return pi.empty() ? eliminate(p) : pi;
}

std::vector<Contraction> stationary_norm(const AttentionOperator& p, double memory,
                                         double accuracy) {
    const Structure known = p.structure();
    const char* reason = nullptr;
    if (p.memory() > 0)
        reason = not_square;
    else if (!known.row_stochastic)
        reason = "rows of P do not sum to 1";
    else if (known.causal && p.tokens() > 1)
        reason = "pi = e_1 is not positive";
    else if (known.blocks.size() > 1)
        reason = "pi is not unique";
    else if (!stored::fits(p, memory))
        reason = "P does not fit into memory";
    if (reason) return std::vector<Contraction>(std::size_t(p.heads()), {{}, reason});
    const stored::Heads heads(p.matrix());
    auto out = stored::for_each_head<Contraction>(
        heads.count(), [&](Index k) { return contraction(heads[k], accuracy); });
    for (Contraction& one : out)
        if (one.estimate) one.estimate->on_host = !p.backend().host_memory();
    return out;
}

std::vector<double> dobrushin(const AttentionOperator& p) {
    const stored::Heads heads(p.matrix());
    return stored::for_each_head<double>(
        heads.count(), [&](Index k) { return largest_row_distance(heads[k]) / 2; });
}

}  // namespace tsdiag
