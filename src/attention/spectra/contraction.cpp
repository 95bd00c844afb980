#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "classes.hpp"
#include "of_samples.hpp"
#include "on_device.hpp"
#include "one_matrix.hpp"
#include "route.hpp"
#include "stationary.hpp"
#include "stored.hpp"
#include "tsdiag/attention.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/linalg.hpp"
#include "tsdiag/statistics.hpp"

namespace tsdiag {
namespace {

constexpr Index lanczos_products = 640;

/// mantissa 2^exponent, mantissa in [1/2, 1) or 0: no entry of pi is too small.
template <class Real>
struct Scaled {
    Real mantissa = 0;
    int exponent = 0;

    Scaled() = default;
    explicit Scaled(Real value) { mantissa = std::frexp(value, &exponent); }
    friend Scaled operator*(Scaled a, Real b) {
        Scaled out(a.mantissa * Scaled(b).mantissa);
        out.exponent += a.exponent + Scaled(b).exponent;
        return out;
    }
    friend Scaled operator/(Scaled a, Real b) {
        Scaled out(a.mantissa / Scaled(b).mantissa);
        out.exponent += a.exponent - Scaled(b).exponent;
        return out;
    }
};

template <class Real>
Real sum(std::span<const Real> x) {
    if (x.size() <= 2) return x.empty() ? 0 : x.size() == 1 ? x[0] : x[0] + x[1];
    return sum(x.first(x.size() / 2)) + sum(x.subspan(x.size() / 2));
}

template <class Real>
Scaled<Real> sum(std::span<const Scaled<Real>> x) {
    int top = std::numeric_limits<int>::min();
    for (const Scaled<Real>& e : x)
        if (e.mantissa > 0) top = std::max(top, e.exponent);
    std::vector<Real> near;
    for (const Scaled<Real>& e : x)
        near.push_back(e.mantissa > 0 ? std::ldexp(e.mantissa, std::max(-20000, e.exponent - top))
                                      : 0);
    Scaled<Real> out(sum(std::span<const Real>(near)));
    if (out.mantissa > 0) out.exponent += top;
    return out;
}

/// Grassmann-Taksar-Heyman: elimination from the last token without subtractions, so every entry of
/// pi, which is not normalised, is accurate to rounding, whatever its size.  Empty where products
/// of entries leave the range of Real.  Cost 2 n^3 / 3.
template <class Real>
std::vector<Scaled<Real>> eliminate(const View& p) {
    const auto n = std::size_t(p.shape.rows);
    std::vector<Real> a(n * n), leaving(n, 1), share(n);
    for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < n; ++j)
            a[i * n + j] = Real(p.type == Type::f32 ? double(p.row<float>(0, Index(i))[j])
                                                    : p.row<double>(0, Index(i))[j]);
    for (std::size_t k = n - 1; k > 0; --k) {
        const Real* last = a.data() + k * n;
        leaving[k] = sum(std::span<const Real>(last, k));
        if (!(leaving[k] >= std::numeric_limits<Real>::min())) return {};
        for (std::size_t j = 0; j < k; ++j) share[j] = last[j] / leaving[k];
        for (std::size_t i = 0; i < k; ++i) {
            Real* row = a.data() + i * n;
            const Real through = row[k];
            for (std::size_t j = 0; j < k; ++j) row[j] += through * share[j];
        }
    }
    std::vector<Scaled<Real>> pi = {Scaled<Real>(1)}, terms;
    for (std::size_t k = 1; k < n; ++k) {
        terms.clear();
        for (std::size_t i = 0; i < k; ++i) terms.push_back(pi[i] * a[i * n + k] / leaving[k]);
        pi.push_back(sum(std::span<const Scaled<Real>>(terms)));
        if (pi.back().mantissa == 0) return {};
    }
    const Scaled<Real> total = sum(std::span<const Scaled<Real>>(pi));
    for (Scaled<Real>& e : pi) {
        e = e / total.mantissa;
        e.exponent -= total.exponent;
    }
    return pi;
}

/// sum_j min_i P_ij.
double forgotten(const View& p) {
    std::vector<double> least(std::size_t(p.shape.cols), 1.0);
    for (Index i = 0; i < p.shape.rows; ++i)
        for (Index j = 0; j < p.shape.cols; ++j)
            least[std::size_t(j)] = std::min(least[std::size_t(j)], one_matrix::entry(p, i, j));
    double sum = 0;
    for (const double e : least) sum += e;
    return sum;
}

/// Power iteration where it converges fast and cannot stop too early; else empty.
std::vector<double> iterate(const View& p) {
    if (forgotten(p) < stationary::least_forgotten) return {};
    const std::size_t n = std::size_t(p.shape.rows);
    std::vector<double> pi(n, 1 / double(n)), next(n);
    double before = std::numeric_limits<double>::infinity();
    for (int k = 0; k < stationary::most_steps; ++k) {
        std::ranges::fill(next, 0.0);
        add_transposed(p, 1, pi, next);
        double total = 0, change = 0;
        for (double e : next) total += e;
        for (std::size_t i = 0; i < n; ++i) {
            next[i] /= total;
            if (next[i] > 0) change = std::max(change, std::abs(next[i] - pi[i]) / next[i]);
        }
        pi.swap(next);
        if (stationary::reached(change, before)) return pi;
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

/// B = D^1/2 (P - 1 pi^T) D^-1/2, D = diag(pi), row-major, from pi in any range: entries
/// sqrt(pi_i / pi_j) P_ij - sqrt(pi_i pi_j), the first of which is at most 1 for a stochastic P.
template <class Real>
std::vector<double> weighted(const View& p, const std::vector<Scaled<Real>>& pi) {
    const std::size_t n = pi.size();
    std::vector<double> out(n * n);
    const auto root = [](Real square, int exponent) {  // sqrt(square 2^exponent)
        const int odd = exponent & 1;
        return std::pair(std::sqrt(odd ? 2 * square : square), (exponent - odd) / 2);
    };
    for (std::size_t i = 0; i < n; ++i)
        for (std::size_t j = 0; j < n; ++j) {
            const Scaled<Real>&a = pi[i], &b = pi[j];
            const auto [ratio, by] = root(a.mantissa / b.mantissa, a.exponent - b.exponent);
            const auto [mean, small] = root(a.mantissa * b.mantissa, a.exponent + b.exponent);
            const double entry = one_matrix::entry(p, Index(i), Index(j));
            out[i * n + j] = double(std::ldexp(ratio * Real(entry), by) - std::ldexp(mean, small));
        }
    return out;
}

Estimate iterated(std::vector<double> b, Index n, double accuracy) {
    const View view{b.data(), {1, n, n}, n * n, n, Type::f64};
    const LinearMap map{
        .rows = n,
        .cols = n,
        .apply = [&](std::span<const double> x, std::span<double> y) { multiply(view, x, y); },
        .transpose =
            [&](std::span<const double> x, std::span<double> y) {
                std::ranges::fill(y, 0.0);
                add_transposed(view, 1, x, y);
            }};
    return largest_singular_value(map, accuracy, lanczos_products);
}

Contraction contraction(const View& p, double accuracy) {
    Contraction out;
    out.why_not = obstacle(p);
    if (!out.why_not.empty()) return out;
    const Index n = p.shape.rows;
    if (one_matrix::rows_are_equal(p)) return {one_matrix::exact(0, "dense"), {}};
    constexpr const char* beyond = "products of entries of P leave the range of numbers";
    if (n <= one_matrix::dense_below) {
        const std::vector<Scaled<Wide>> pi = eliminate<Wide>(p);
        if (pi.empty()) return {{}, beyond};
        const std::vector<double> b = weighted(p, pi);
        // pi is that of a P whose entries differ by n (log2 n + 4) roundings, to which its entries
        // react with 2 n times as many (O'Cinneide, "Entrywise perturbation theory and error
        // analysis for Markov chains", Numer. Math. 65, 1993), in terms of norm sqrt(n) + 1.
        const auto size = double(n);
        constexpr double wide = double(std::numeric_limits<Wide>::epsilon());
        const double relative = 2 * size * size * (std::log2(size) + 4) * wide;
        double squares = 0;
        for (const double e : b) squares += e * e;
        const double error = std::numeric_limits<double>::epsilon() * std::sqrt(squares) +
                             relative * (std::sqrt(size) + 1);
        out.estimate = one_matrix::norm_of(b, n, n, accuracy / 100, error);
    } else {
        std::vector<Scaled<double>> pi;
        for (const double e : iterate(p)) pi.emplace_back(e);
        if (pi.empty()) pi = eliminate<double>(p);
        if (pi.empty()) return {{}, beyond};
        out.estimate = iterated(weighted(p, pi), n, accuracy / 100);
        // A contraction, but for what rows sum to.
        if (!out.estimate->converged) out.estimate->high = one_matrix::largest_row_sum(p);
    }
    return out;
}

bool has_negative(const View& p) {
    for (Index i = 0; i < p.shape.rows; ++i)
        for (Index j = 0; j < p.shape.cols; ++j)
            if (one_matrix::entry(p, i, j) < 0) return true;
    return false;
}

/// Of each head that was found on its device; for all samples whose P is there when the first asks.
std::vector<std::optional<Estimate>> on_its_device(const AttentionOperator& p, double memory,
                                                   double accuracy) {
    if (const auto* sample = dynamic_cast<const HeadsOfSample*>(&p)) {
        SharedAttention& shared = sample->shared();
        const std::pair question{memory, accuracy};
        if (!shared.stationary_norms.contains(question))
            shared.stationary_norms[question] =
                on_its_device(*shared.all, memory * double(shared.samples), accuracy);
        return sample->own(shared.stationary_norms.at(question));
    }
    const Tensor& all = p.matrix();
    stored::require_finite(all, 0);
    constexpr double copies = 4;  // in float64
    const double n = double(p.tokens()), heads = memory / (copies * sizeof(double) * n * n);
    const Index group = std::max<Index>(1, Index(std::min(heads, double(all.batch()))));
    std::vector<std::optional<Estimate>> out;
    for (Index first = 0; first < all.batch(); first += group) {
        const Index count = std::min(group, all.batch() - first);
        try {
            std::ranges::move(on_device::stationary_norms(all.batch_range(first, count), accuracy),
                              std::back_inserter(out));
        } catch (const OutOfMemory&) {
            note_shortage("delta_pi of some heads was found on the host");
            out.resize(std::size_t(first + count));
        }
    }
    return out;
}

}  // namespace

std::vector<double> stationary_vector(const View& p) {
    check(p.shape.rows == p.shape.cols && p.shape.rows > 0, "a stationary vector of a square P");
    std::vector<double> pi = iterate(p);
    if (pi.empty())
        for (const Scaled<double>& e : eliminate<double>(p))
            pi.push_back(std::ldexp(e.mantissa, e.exponent));
    return pi;
}

std::vector<Contraction> stationary_norm(const AttentionOperator& p, double memory, double accuracy,
                                         const std::function<bool(Index)>& sums_to_one) {
    const Structure known = p.structure();
    std::vector<Index> chosen;
    for (Index k = 0; k < p.heads(); ++k)
        if (known.row_stochastic || (sums_to_one && sums_to_one(k))) chosen.push_back(k);
    const char* const no_sums = "rows of P do not sum to 1";
    const char* reason = nullptr;
    if (p.memory() > 0)
        reason = not_square;
    else if (chosen.empty())
        reason = no_sums;
    else if (known.causal && p.tokens() > 1)
        reason = "pi = e_1 is not positive";
    else if (known.blocks.size() > 1)
        reason = "pi is not unique";
    else if (!stored::fits(p, memory))
        reason = "P does not fit into memory";
    if (reason) return std::vector<Contraction>(std::size_t(p.heads()), {{}, reason});
    std::vector<Contraction> out(std::size_t(p.heads()), {{}, no_sums});
    const bool there = !p.backend().host_memory() && p.columns() > spectra::largest_for_host;
    if (there) {
        const std::vector<std::optional<Estimate>> found = on_its_device(p, memory, accuracy);
        std::erase_if(chosen, [&](Index k) {
            if (found[std::size_t(k)]) out[std::size_t(k)] = {found[std::size_t(k)], {}};
            return found[std::size_t(k)].has_value();
        });
        if (chosen.empty()) return out;
    }
    // Of a device one by one: it may have no room for a stack of them.
    std::vector<stored::Heads> heads;
    heads.reserve(there ? chosen.size() : 1);
    if (!there) heads.emplace_back(p.matrix_on_host());
    for (std::size_t i = 0; there && i < chosen.size(); ++i)
        heads.push_back(stored::Heads::of_finite(p.matrix().batch_range(chosen[i], 1)));
    in_parallel(std::ssize(chosen), [&](Index i) {
        const Index k = chosen[std::size_t(i)];
        const View own = there ? heads[std::size_t(i)][0] : heads.front()[k];
        Contraction& one = out[std::size_t(k)];
        one = !known.row_stochastic && has_negative(own) ? Contraction{{}, "P has negative entries"}
                                                         : contraction(own, accuracy);
        if (one.estimate) one.estimate->on_host = there;
    });
    return out;
}

std::vector<double> dobrushin(const AttentionOperator& p) {
    if (const auto* sample = dynamic_cast<const HeadsOfSample*>(&p)) {
        SharedAttention& shared = sample->shared();
        if (!shared.dobrushin) shared.dobrushin = dobrushin(*shared.all);
        return sample->own(*shared.dobrushin);
    }
    const Tensor& all = p.matrix();
    const bool on_host = all.backend().host_memory();
    if (on_host) stored::require_finite(all, 0);
    Later<std::vector<double>> distances = all.backend().row_distances(all.view());
    if (!on_host) stored::require_finite(all, 0);  // read together
    std::vector<double> out = distances.get();
    for (double& e : out) e /= 2;
    return out;
}

}  // namespace tsdiag
