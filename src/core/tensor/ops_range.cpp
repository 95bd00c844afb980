#include <algorithm>
#include <cmath>
#include <utility>

#include "ops_check.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/ops.hpp"

/// Sums of squares without overflow or underflow.  Kernels sum in double: float64 elements that are
/// too large or too small are first scaled by a power of two.
namespace tsdiag {
namespace {

/// Sums of squares of elements in this range, and the significant parts of their differences, stay
/// in the range of double.
constexpr double least_safe = 0x1p-300, most_safe = 0x1p400;

bool safe(double largest) {
    return largest == 0 || (largest >= least_safe && largest <= most_safe);
}
bool safe_squares(double sum) {
    return sum >= least_safe * least_safe && sum <= most_safe * most_safe;
}

std::vector<int> exponents(const std::vector<double>& largest) {
    std::vector<int> out;
    for (const double top : largest) out.push_back(exponent_of(top));
    return out;
}

/// max |x| of each row, (b * r).
std::vector<double> largest_in_rows(const Tensor& x) {
    std::vector<double> top = row_max(x).to_host<double>();
    const std::vector<double> below = row_max(scale(x, -1)).to_host<double>();
    for (std::size_t i = 0; i < top.size(); ++i) top[i] = std::max(top[i], below[i]);
    return top;
}

Tensor multiply_by_powers(const Tensor& x, Shape shape, std::span<const int> exponents) {
    std::vector<double> powers;
    for (const int e : exponents) powers.push_back(std::ldexp(1.0, -e));
    return multiply(
        x, Tensor::from_host(x.backend(), shape, std::span<const double>(powers), x.type()));
}
Tensor without_row_exponents(const Tensor& x, std::span<const int> exponents) {
    return multiply_by_powers(x, {x.batch(), x.rows(), 1}, exponents);
}

void multiply_squares(Wide& sum, int exponent) { sum = std::ldexp(sum, 2 * exponent); }
void multiply_squares(std::vector<Wide>& sums, const std::vector<int>& exponents) {
    for (std::size_t i = 0; i < sums.size(); ++i) multiply_squares(sums[i], exponents[i]);
}

}  // namespace

std::vector<double> largest_moduli(const Tensor& x) {
    std::vector<double> out(std::size_t(x.batch()), 0.0);
    if (x.shape().count() == 0) return out;
    const std::vector<double> rows = largest_in_rows(x.detached());
    for (std::size_t b = 0; b < out.size(); ++b) {
        const auto first = rows.begin() + std::ptrdiff_t(b) * x.rows();
        out[b] = *std::max_element(first, first + x.rows());
    }
    return out;
}

int exponent_of(double largest) {
    if (largest == 0 || !std::isfinite(largest)) return 0;
    return std::clamp(std::ilogb(largest), -1000, 1000);
}

std::vector<int> exponents_of(const Tensor& x) {
    if (x.type() == Type::f32) return std::vector<int>(std::size_t(x.batch()), 0);
    return exponents(largest_moduli(x));
}

int exponent_of(const Tensor& x) {
    if (x.type() == Type::f32 || x.batch() == 0) return 0;
    return exponent_of(std::ranges::max(largest_moduli(x)));
}

Tensor without_exponents(const Tensor& x, std::span<const int> exponents) {
    if (std::ranges::all_of(exponents, [](int e) { return e == 0; })) return x;
    return multiply_by_powers(x, {x.batch(), 1, 1}, exponents);
}

Tensor without_exponent(const Tensor& x, int exponent) {
    return exponent == 0 ? x : scale(x, std::ldexp(1.0, -exponent));
}

namespace {

std::vector<View> views_of(std::span<const Tensor> xs) {
    std::vector<View> views;
    for (const Tensor& x : xs) views.push_back(x.view());
    return views;
}

double sum_of_squares(const Tensor& x) {
    return x.backend().squared_norms(std::span(&x.view(), 1)).get().front();
}
StateMoments moments_of(const Tensor& x) {
    return x.backend().state_moments(std::span(&x.view(), 1)).get().front();
}

}  // namespace

Wide squared_norm(const Tensor& x) { return squared_norms(std::span(&x, 1)).front(); }

std::vector<Wide> squared_norms(std::span<const Tensor> xs) {
    if (xs.empty()) return {};
    auto sums = xs.front().backend().squared_norms(views_of(xs));
    std::vector<Wide> out(sums.get().begin(), sums.get().end());
    for (std::size_t i = 0; i < out.size(); ++i) {
        const Tensor& x = xs[i];
        if (x.type() == Type::f32 || safe_squares(double(out[i]))) continue;
        const int e = exponent_of(x);
        out[i] = std::ldexp(Wide(sum_of_squares(without_exponent(x.detached(), e))), 2 * e);
    }
    return out;
}

Later<std::vector<double>> to_host_later(const Tensor& x) {
    return x.backend().numbers_of(x.view());
}

std::vector<double> row_norms(const Tensor& x) {
    const Tensor wide = cast(x.detached(), Type::f64);
    std::vector<int> powers(std::size_t(x.batch() * x.rows()), 0);
    const bool narrow = x.type() == Type::f32 || x.cols() == 0;
    if (!narrow) powers = exponents(largest_in_rows(wide));
    const Tensor near = narrow ? wide : without_row_exponents(wide, powers);
    std::vector<double> norms = row_sum(map(Unary::square, near)).to_host<double>();
    for (std::size_t i = 0; i < norms.size(); ++i)
        norms[i] = std::ldexp(std::sqrt(norms[i]), powers[i]);
    return norms;
}

namespace {

/// The sum of unit rows where squares of rows overflow or underflow.
void find_unit_sum(StateMoments& m, const Tensor& x) {
    const std::vector<double> top = largest_in_rows(x);
    if (std::ranges::find(top, 0.0) != top.end()) return;
    const Tensor near = without_row_exponents(x, exponents(top));
    const StateMoments again = moments_of(near);
    m.unit_sum = again.unit_sum;
    m.zero_row = again.zero_row;
}

}  // namespace

namespace {

/// `found` of x, (1, n, d) in float64, computed again where squares leave the range of double.
void mend_moments(StateMoments& m, const Tensor& x) {
    if (x.shape().count() == 0 || first_nonfinite(x) >= 0) return;
    if (!safe_squares(double(m.squared))) {
        const int e = exponent_of(x);
        m = moments_of(without_exponent(x, e));
        for (Wide* part : {&m.squared, &m.mean_part, &m.centred}) multiply_squares(*part, e);
    }
    if (!safe_squares(m.least_row)) find_unit_sum(m, x);
}

}  // namespace

StateMoments state_moments(const Tensor& x) {
    if (x.batch() != 1) throw ShapeError("state_moments of a batch");
    return state_moments_later({x.detached()}).get().front();
}

Later<std::vector<StateMoments>> state_moments_later(std::vector<Tensor> xs) {
    using All = std::vector<StateMoments>;
    if (xs.empty()) return All();
    auto found = xs.front().backend().state_moments(views_of(xs));
    return Later<All>([found = std::move(found), xs = std::move(xs)]() mutable {
        All all = std::move(found.get());
        auto next = all.begin();
        for (const Tensor& x : xs)
            for (Index b = 0; b < x.batch(); ++b, ++next)
                if (x.type() == Type::f64) mend_moments(*next, x.detached().batch_range(b, 1));
        return all;
    });
}

Later<std::vector<Index>> first_nonfinite_later(std::span<const Tensor> xs) {
    if (xs.empty()) return std::vector<Index>();
    auto found = xs.front().backend().first_nonfinite(views_of(xs));
    return Later<std::vector<Index>>(
        [found, kept = std::vector(xs.begin(), xs.end())]() mutable { return found.get(); });
}
Index first_nonfinite(const Tensor& x) {
    return first_nonfinite_later(std::span(&x, 1)).get().front();
}

namespace {

/// Recomputes the squares of rows whose entries are too large or too small for double.
void mend_squares(RowStatistics& s, const Tensor& p, const Visible& visible) {
    if (std::ranges::all_of(s.max_modulus, safe)) return;
    const std::vector<int> own = exponents(s.max_modulus);
    const Tensor near = without_row_exponents(p, own);
    s.squares =
        p.backend().row_statistics(near.view(), nullptr, false, s.first, visible).get().squares;
    multiply_squares(s.squares, own);
}

/// The same of their derivatives, which are linear in the slope.
void mend_jacobian(RowStatistics& s, const Tensor& p, const Tensor& slope, bool divided,
                   const Visible& visible) {
    if (std::ranges::all_of(s.jacobian_max, safe)) return;
    const std::vector<int> own = exponents(largest_in_rows(slope));
    const Tensor near = without_row_exponents(slope, own);
    s.jacobian = p.backend()
                     .row_statistics(p.view(), &near.view(), divided, s.first, visible)
                     .get()
                     .jacobian;
    multiply_squares(s.jacobian, own);
}

Later<RowStatistics> statistics_later(const Tensor& p, const Tensor& slope, bool divided,
                                      Index first, const Visible& visible) {
    auto found = p.backend().row_statistics(p.view(), slope.defined() ? &slope.view() : nullptr,
                                            divided, first, visible);
    return Later<RowStatistics>([found = std::move(found), p = p.detached(),
                                 slope = slope.detached(), divided, visible]() mutable {
        RowStatistics s = std::move(found.get());
        if (p.type() == Type::f32) return s;
        mend_squares(s, p, visible);
        if (slope.defined()) mend_jacobian(s, p, slope, divided, visible);
        return s;
    });
}

void require_rows(const char* op, const Tensor& p, const Tensor& slope, const Visible& visible) {
    ops::require_visible(op, p, visible);
    if (slope.defined() && slope.shape() != p.shape()) ops::misfit(op, p, slope);
}

}  // namespace

RowStatistics row_statistics(const Tensor& p, const Tensor& slope, bool divided, Index first,
                             const Visible& visible) {
    require_rows("row_statistics", p, slope, visible);
    return std::move(statistics_later(p, slope, divided, first, visible).get());
}

Later<RowStatistics> row_totals_later(const Tensor& p, const Tensor& slope, bool divided,
                                      Index first, const Visible& visible) {
    require_rows("row_totals", p, slope, visible);
    if (p.type() == Type::f64)  // rows may have to be mended, each by itself
        return Later<RowStatistics>(
            [rows = statistics_later(p, slope, divided, first, visible)]() mutable {
                return fold(rows.get());
            });
    return p.backend().row_totals(p.view(), slope.defined() ? &slope.view() : nullptr, divided,
                                  first, visible);
}

RowStatistics fold(const RowStatistics& rows) {
    RowStatistics all;
    all.folded = true;
    all.heads = rows.heads, all.rows = rows.rows, all.first = rows.first, all.n = rows.n;
    all.diagonal = rows.diagonal;
    all.window = rows.window;
    const auto each = [&](auto field, auto take) {
        const auto& from = rows.*field;
        if (from.empty()) return;
        auto& to = all.*field;
        to.assign(std::size_t(rows.heads), {});
        for (std::size_t i = 0; i < from.size(); ++i) {
            const std::size_t head = i / std::size_t(rows.rows);
            to[head] = i == head * std::size_t(rows.rows) ? from[i] : take(to[head], from[i]);
        }
    };
    const auto sum = [](auto a, auto b) { return a + b; };
    for (const auto field : {&RowStatistics::modulus, &RowStatistics::negative,
                             &RowStatistics::entropy, &RowStatistics::max_modulus})
        each(field, sum);
    each(&RowStatistics::squares, sum);
    each(&RowStatistics::jacobian, sum);
    each(&RowStatistics::sum, [](double a, double b) {
        return std::isnan(a) || std::abs(a - 1) >= std::abs(b - 1) ? a : b;
    });
    each(&RowStatistics::jacobian_max, [](double a, double b) { return std::max(a, b); });
    return all;
}

}  // namespace tsdiag
