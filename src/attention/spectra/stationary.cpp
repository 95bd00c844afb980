#include "stationary.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>

#include "on_device.hpp"
#include "route.hpp"
#include "tsdiag/linalg.hpp"
#include "tsdiag/ops.hpp"

/// delta_pi of a stack of P on a device.
namespace tsdiag::on_device {
namespace {

constexpr double ulp = std::numeric_limits<double>::epsilon();

/// The square of the largest relative change of an entry of distributions, (count, 1, 1).
Tensor squared_change(const Tensor& from, const Tensor& to) {
    const auto normalised = [](const Tensor& x) { return divide(x, column_sum(x)); };
    const Tensor ratio = divide(normalised(from), normalised(to));
    const Tensor change = map(Unary::square, affine(ratio, -1, 1));
    return row_max(change.reshape({change.batch(), 1, change.rows()}));
}

/// pi of each P of a stack (count, n, n), all iterated in step; empty where that has not converged.
/// It is that of P with 1 less the sum of the other entries of its row on the diagonal: the sum of
/// a vector then stays what it is, to rounding.
std::vector<std::vector<double>> stationary_vectors(const Tensor& p) {
    constexpr int steps_of_read = 8;
    const Index count = p.batch(), n = p.rows();
    const Tensor ones = affine(zeros(p.backend(), {count, n, 1}, Type::f64), 0, 1);
    const Tensor rest = affine(matvec(p, ones), -1, 1);
    Tensor now = scale(ones, 1 / double(n)), last, before;
    auto reached = std::vector<bool>(std::size_t(count), false);
    for (int step = 0;
         step < stationary::most_steps && !std::ranges::all_of(reached, std::identity());
         step += steps_of_read) {
        for (int i = 0; i < steps_of_read; ++i) {
            before = last;
            last = now;
            now = add(matvec(p, last, true), multiply(rest, last));
        }
        const std::vector<double> changes =
            concat_rows({squared_change(last, now), squared_change(before, last)})
                .to_host<double>();
        for (std::size_t k = 0; k < reached.size(); ++k)
            reached[k] = reached[k] || stationary::reached(std::sqrt(changes[2 * k]),
                                                           std::sqrt(changes[2 * k + 1]));
    }
    const std::vector<double> all = now.to_host<double>();
    auto out = std::vector<std::vector<double>>(std::size_t(count));
    for (std::size_t k = 0; k < out.size(); ++k) {
        const auto own = std::span(all).subspan(k * std::size_t(n), std::size_t(n));
        // Digits are lost near the least number.
        constexpr double least = std::numeric_limits<double>::min() / ulp;
        if (!reached[k] || !std::ranges::all_of(own, [](double e) { return e > least; })) continue;
        double sum = 0;
        for (const double e : own) sum += e;
        for (const double e : own) out[k].push_back(e / sum);
    }
    return out;
}

/// The stack B = D^1/2 (P - 1 pi^T) D^-1/2, D = diag(pi), in float64.
Tensor weighted(const Tensor& p, std::span<const std::vector<double>> pi) {
    const Index count = p.batch(), n = p.rows();
    std::vector<double> roots, inverse;
    for (const std::vector<double>& own : pi)
        for (const double e : own) {
            roots.push_back(std::sqrt(e));
            inverse.push_back(1 / roots.back());
        }
    const auto there = [&](const std::vector<double>& x, Shape shape) {
        return Tensor::from_host(p.backend(), shape, std::span<const double>(x), Type::f64);
    };
    const Tensor root = there(roots, {count, n, 1});
    const Tensor b = multiply(multiply(cast(p, Type::f64), root), there(inverse, {count, 1, n}));
    return subtract(b, matmul(root, root.reshape({count, 1, n})));
}

/// What is wrong with a computed B, in the 2-norm, and with its products: pi, of whose entries each
/// enters with half its relative error on either side of P, whose norm in l2(pi) is 1, and twice in
/// the term that is subtracted; the roundings of its entries; those of products.
double rounding_of_weighted(Index n, double norm) {
    const double of_pi = stationary::accuracy + 2 * rounding_of_products(n, 1);
    return 2 * of_pi + 4 * ulp * (norm + 2) + rounding_of_products(n, norm);
}

}  // namespace

std::vector<std::optional<Estimate>> stationary_norms(const Tensor& p, double accuracy) {
    auto out = std::vector<std::optional<Estimate>>(std::size_t(p.batch()));
    const auto n = std::size_t(p.rows());
    Later<std::vector<Survey>> survey = p.backend().survey(p.view());
    const std::vector<double> minima =
        map(Unary::negate, row_max(transpose(map(Unary::negate, p)))).to_host<double>();
    std::vector<Index> open;
    for (std::size_t k = 0; k < out.size(); ++k) {
        const auto own = std::span(minima).subspan(k * n, n);
        double forgotten = 0;
        for (const double e : own) forgotten += e;
        if (!std::ranges::all_of(own, [](double e) { return e > 0; })) continue;
        if (survey.get()[k].equal_rows)
            out[k] = one_matrix::exact(0, "dense");
        else if (forgotten >= stationary::least_forgotten)
            open.push_back(Index(k));
    }
    if (open.empty()) return out;
    std::vector<std::vector<double>> pi = stationary_vectors(spectra::chosen(p, open));
    for (std::size_t i = 0; i < pi.size(); ++i)
        if (pi[i].empty()) open[i] = -1;
    std::erase(open, -1);
    std::erase_if(pi, [](const std::vector<double>& own) { return own.empty(); });
    if (open.empty()) return out;
    const Tensor b = weighted(spectra::chosen(p, open), pi);
    std::vector<double> rounding;
    Later<std::vector<Survey>> own_rows = b.backend().survey(b.view());
    for (const Survey& own : own_rows.get())
        rounding.push_back(rounding_of_weighted(Index(n), std::sqrt(own.squares)));
    const std::vector<Estimate> found =
        radii_and_norms(b, {.norm_products = one_matrix::lanczos_products,
                            .centred_norms = false,
                            .tolerance = accuracy / 100,
                            .rounding = rounding})
            .norms;
    for (std::size_t i = 0; i < open.size(); ++i)
        if (found[i].converged) out[std::size_t(open[i])] = found[i];
    return out;
}

}  // namespace tsdiag::on_device
