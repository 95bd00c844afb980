#include "rescaled.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace tsdiag {
namespace {

/// Entries of this size may be squared, and their squares multiplied, without overflow.
bool moderate(const std::vector<int>& exponents) {
    return std::ranges::all_of(exponents, [](int e) { return std::abs(e) <= 100; });
}

/// Of each head, by blocks of rows.
std::vector<int> exponents_of_rows(const AttentionOperator& p, double memory) {
    const Index n = p.tokens(), step = p.rows_at_once(memory);
    std::vector<double> largest(std::size_t(p.heads()), 0.0);
    for (Index first = 0; first < n; first += step) {
        const std::vector<double> own = largest_moduli(p.rows(first, std::min(step, n - first)).p);
        for (std::size_t k = 0; k < own.size(); ++k) largest[k] = std::max(largest[k], own[k]);
    }
    std::vector<int> out;
    for (const double top : largest) out.push_back(exponent_of(top));
    return out;
}

}  // namespace

std::unique_ptr<Rescaled> Rescaled::where_needed(const AttentionOperator& p, double memory) {
    Structure known = p.structure();
    if (p.type() == Type::f32 || (known.row_stochastic && !known.factors)) return nullptr;
    if (!known.factors) {
        std::vector<int> exponents = exponents_of_rows(p, memory);
        if (moderate(exponents)) return nullptr;
        return std::unique_ptr<Rescaled>(new Rescaled(p, known, std::move(exponents)));
    }
    Factors& f = *known.factors;
    std::vector<int> left = exponents_of(f.left);
    const std::vector<int> right = exponents_of(f.right);
    if (moderate(left) && moderate(right)) return nullptr;
    f = {without_exponents(f.left, left), without_exponents(f.right, right)};
    for (std::size_t k = 0; k < left.size(); ++k) left[k] += right[k];
    return std::unique_ptr<Rescaled>(new Rescaled(p, known, std::move(left)));
}

RowBlock Rescaled::rows(Index first, Index count) const {
    RowBlock block = p_.rows(first, count);
    block.p = without_exponents(block.p, exponents_);
    block.slope = {};
    block.why_no_slope = "P times a power of two";
    return block;
}

std::optional<RowTotals> Rescaled::row_totals() const {
    std::optional<RowTotals> totals = p_.row_totals();
    for (std::size_t k = 0; totals && k < exponents_.size(); ++k)
        totals->squares[k] = std::ldexp(totals->squares[k], -2 * exponents_[k]);
    return totals;
}

std::vector<Estimate> Rescaled::restore(std::vector<Estimate> found) const {
    for (std::size_t k = 0; k < found.size(); ++k) {
        Estimate& e = found[k];
        for (double* part : {&e.value, &e.residual}) *part = std::ldexp(*part, exponents_[k]);
        for (std::optional<double>* side : {&e.low, &e.high})
            if (*side) *side = std::ldexp(**side, exponents_[k]);
    }
    return found;
}

}  // namespace tsdiag
