#include "one_matrix.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "classes.hpp"
#include "stored.hpp"
#include "tsdiag/ops.hpp"
#include "tsdiag/statistics.hpp"

namespace tsdiag::one_matrix {

void centre(std::span<double> x) {
    double sum = 0, top = 0, left = 0;
    for (double e : x) sum += e, top = std::max(top, std::abs(e));
    const double mean = sum / double(x.size());
    for (double& e : x) e -= mean, left = std::max(left, std::abs(e));
    if (left <= 4 * std::numeric_limits<double>::epsilon() * top) std::ranges::fill(x, 0.0);
}

double entry(const View& p, Index i, Index j) {
    return p.type == Type::f32 ? double(p.row<float>(0, i)[j]) : p.row<double>(0, i)[j];
}

bool rows_are_equal(const View& p) {
    for (Index i = 1; i < p.shape.rows; ++i)
        for (Index j = 0; j < p.shape.cols; ++j)
            if (entry(p, i, j) != entry(p, 0, j)) return false;
    return true;
}

double norm_bound(const View& p, std::span<const double> column) {
    const double norm = stored::centred_frobenius(p, column);
    double means = 0;
    for (const double e : column) means += e * e / double(p.shape.rows);
    return stored::norm_bound(norm * norm, means, p.shape.rows, p.shape.cols);
}

double second_bound(const View& p, bool deflated) {
    const auto n = std::size_t(p.shape.cols);
    if (!deflated) return norm_bound(p, std::vector<double>(n, 0.0));
    return std::min(largest_row_sum(p), norm_bound(p, stored::column_sums(p)));
}

double largest_row_sum(const View& p) {
    Wide top = 0;
    for (Index i = 0; i < p.shape.rows; ++i) {
        Wide sum = 0;
        for (Index j = 0; j < p.shape.cols; ++j) sum += entry(p, i, j);
        top = std::max(top, sum);
    }
    return double(top) * (1 + 2 * std::numeric_limits<double>::epsilon());
}

double largest_row_sum(Type type, Index n) {
    const double ulp = type == Type::f32 ? double(std::numeric_limits<float>::epsilon())
                                         : std::numeric_limits<double>::epsilon();
    return 1 + std::max(1e-12, double(n + 16) * ulp);  // in float32 that is more than 1e-6
}

double rounding_of(const View& p) {
    return rounding_of_products(p.shape.cols,
                                std::sqrt(cpu().squared_norms({&p, 1}).get().front()));
}

namespace {

using Vector = std::span<const double>;
using Result = std::span<double>;

/// x -> P x, or x -> Pi2 P Pi2 x.
LinearMap square_map(const View& p, const Which& which) {
    const Index n = p.shape.rows;
    const bool deflated = which.deflated;
    const auto apply = [&p, deflated](Vector x, Result y) {
        if (!deflated) return multiply(p, x, y);
        std::vector<double> from(x.begin(), x.end());
        centre(from);
        multiply(p, from, y);
        centre(y);
    };
    return {.rows = n,
            .cols = n,
            .apply = apply,
            .transpose = {},
            .rounding = {which.error + (deflated ? rounding_of(p) : 0)}};
}

/// Entries that may differ from the exact ones by `error`, in the 2-norm.
struct Entries {
    std::vector<double> a;
    double error = 0;
};

Entries elements(const View& p) {
    Entries out;
    out.a.reserve(std::size_t(p.shape.rows * p.shape.cols));
    for (Index i = 0; i < p.shape.rows; ++i)
        for (Index j = 0; j < p.shape.cols; ++j) out.a.push_back(entry(p, i, j));
    return out;
}

/// Pi2 P, or Pi2 P Pi2, with means in extended precision: what cancels is then not rounding.  Exact
/// where all rows are equal.
Entries centred(const View& p, bool rows_too) {
    const auto m = std::size_t(p.shape.rows), n = std::size_t(p.shape.cols);
    if (rows_are_equal(p)) return {std::vector<double>(m * n, 0.0)};
    Entries out = elements(p);
    std::vector<Wide> row(m, 0), column(n, 0);
    Wide size = 0;
    for (std::size_t i = 0; i < m; ++i)
        for (std::size_t j = 0; j < n; ++j) {
            const double e = out.a[i * n + j];
            row[i] += e;
            column[j] += e;
            size += Wide(e) * e;
        }
    Wide all = 0;
    for (Wide& e : column) all += e, e /= Wide(m);
    for (Wide& e : row) e = rows_too ? e / Wide(n) : 0;
    all = rows_too ? all / Wide(m * n) : 0;
    Wide left = 0;
    for (std::size_t i = 0; i < m; ++i)
        for (std::size_t j = 0; j < n; ++j) {
            double& e = out.a[i * n + j];
            e = double((Wide(e) - column[j]) - (row[i] - all));
            left += Wide(e) * e;
        }
    // Each sum has at most m n terms in rows of at most max(m, n); the result is rounded once.
    constexpr double wide = double(std::numeric_limits<Wide>::epsilon());
    constexpr double narrow = std::numeric_limits<double>::epsilon();
    out.error =
        narrow * double(std::sqrt(left)) + 2 * wide * double(m + n + 8) * double(std::sqrt(size));
    return out;
}

Entries square_matrix(const View& p, bool deflated) {
    return deflated ? centred(p, true) : elements(p);
}

/// P = 1 c^T has the eigenvalue c^T 1 and zeros; Pi2 P has zeros alone.
Estimate of_equal_rows(const View& p, const Which& which, double accuracy) {
    if (which.deflated || which.rank > 1) return exact(0, "arnoldi");
    Wide sum = 0, size = 0;
    for (Index j = 0; j < p.shape.cols; ++j)
        sum += entry(p, 0, j), size += std::abs(Wide(entry(p, 0, j)));
    Estimate out = exact(double(std::abs(sum)), "arnoldi");
    const double error = double(Wide(p.shape.cols) * std::numeric_limits<Wide>::epsilon() * size);
    out.converged = error <= accuracy * out.value;
    if (!out.converged) out.low = std::max(0.0, out.value - error), out.high = out.value + error;
    return out;
}

/// An unconverged value gets an upper bound.
void bound_second(Estimate& found, const View& p, const Which& which) {
    if (!found.converged) found.high = second_bound(p, which.deflated);
}
void bound_norm(Estimate& found, const View& p, std::span<const double> column) {
    if (!found.converged) found.high = norm_bound(p, column);
}

/// By the requested solver, else by the first that certifies the value.
Estimate eigenvalue(const View& p, const Which& which, const Solving& how) {
    const Index n = p.shape.rows;
    const bool any = how.asked == "auto", small = n <= dense_below;
    if (how.asked == "spectra" && n >= least_restarted) return by_library(p, which, how.accuracy);
    Estimate found;
    if (any ? !small : how.asked == "arnoldi") {
        found = by_arnoldi(p, which, how.accuracy);
        if (small) found = confirmed(found, by_dense(p, which, how.accuracy), how.accuracy);
    } else {
        found.converged = false;
    }
    const bool dense = any ? n <= dense_limit : how.asked != "arnoldi";
    if (!found.converged && dense) found = by_dense(p, which, how.accuracy);
    return found;
}

/// The rows and columns of `tokens`, in `memory`.
View part_of(const View& p, const std::vector<Index>& tokens, std::vector<double>& memory) {
    const Index m = Index(tokens.size());
    memory.clear();
    for (Index i : tokens)
        for (Index j : tokens) memory.push_back(entry(p, i, j));
    return {memory.data(), {1, m, m}, m * m, m, Type::f64};
}

/// The second largest number; missing ones count as 0.
double second_of(std::vector<double> numbers) {
    numbers.resize(std::max<std::size_t>(2, numbers.size()), 0.0);
    std::ranges::nth_element(numbers, numbers.begin() + 1, std::greater());
    return numbers[1];
}

std::vector<Wide> row_sums(const View& p) {
    std::vector<Wide> sums(std::size_t(p.shape.rows), 0);
    for (Index i = 0; i < p.shape.rows; ++i)
        for (Index j = 0; j < p.shape.cols; ++j) sums[std::size_t(i)] += entry(p, i, j);
    return sums;
}

/// D^-1 P D in place of P >= 0, D from powers of P: its rows sum nearly to one number, if not
/// exactly.
void level_rows(std::span<double> p, Index n) {
    const View view{p.data(), {1, n, n}, n * n, n, Type::f64};
    std::vector<double> d(std::size_t(n), 1.0), image(d);
    for (Index step = 0; step < arnoldi_products; ++step) {
        multiply(view, d, image);
        double least = HUGE_VAL, most = 0;
        for (std::size_t i = 0; i < d.size(); ++i) {
            const double ratio = image[i] / d[i];
            least = std::min(least, ratio), most = std::max(most, ratio);
            d[i] = (d[i] + image[i]) / 2;  // also where -1 is nearly an eigenvalue
        }
        if (most - least <= 4 * std::numeric_limits<double>::epsilon()) break;
    }
    for (std::size_t i = 0; i < d.size(); ++i)
        for (std::size_t j = 0; j < d.size(); ++j) p[i * d.size() + j] *= d[j] / d[i];
}

/// The eigenvalues but 1 of a closed class of a stochastic P.  They are those of Pi2 P Pi2 where
/// its rows sum to one number.  Else they are not, by up to sqrt(2) condition numbers times
/// |Pi2 P 1|, to first order, and Pi2 of a class is not that of all tokens: they are the second of
/// P itself where a proof is asked for, and beyond those of a similar P whose rows are level.
Estimate but_one(const View& p, std::span<double> memory, const Solving& how) {
    const auto level = [](const std::vector<Wide>& sums) {
        return std::ranges::all_of(sums, [&](Wide e) { return e == sums.front(); });
    };
    if (level(row_sums(p))) return eigenvalue(p, {true, 1}, how);
    const Index n = p.shape.rows;
    if (n <= dense_below || how.asked == "dense") return eigenvalue(p, {false, 2}, how);
    level_rows(memory, n);
    const std::vector<Wide> sums = row_sums(p);
    Wide mean = 0, left = 0;
    for (const Wide e : sums) mean += e / Wide(n);
    for (const Wide e : sums) left += (e - mean) * (e - mean);
    return eigenvalue(p, {true, 1, double(std::sqrt(2 * left))}, how);
}

/// P is block triangular over its classes, and its spectrum the union of theirs; a closed class of
/// a stochastic P has the eigenvalue 1.
void add_classes(const View& p, const std::vector<classes::Class>& found, bool stochastic,
                 const Solving& how, std::vector<Estimate>& moduli) {
    std::vector<double> memory;
    for (const classes::Class& c : found) {
        const bool has_one = stochastic && c.closed;
        if (has_one) moduli.push_back(exact(1, "classes"));
        if (c.tokens.size() == 1) {
            if (!has_one)
                moduli.push_back(exact(std::abs(entry(p, c.tokens[0], c.tokens[0])), "classes"));
            continue;
        }
        const View part = part_of(p, c.tokens, memory);
        if (has_one) {
            const std::optional<Estimate> periodic = by_classes(part, true, how);
            moduli.push_back(periodic ? *periodic : but_one(part, memory, how));
            continue;
        }
        moduli.push_back(eigenvalue(part, {false, 1}, how));
        if (!stochastic) moduli.push_back(eigenvalue(part, {false, 2}, how));
    }
}

bool triangular(const std::vector<classes::Class>& found) {
    return std::ranges::all_of(found, [](const auto& c) { return c.tokens.size() == 1; });
}

}  // namespace

Estimate exact(double value, const char* method) {
    Estimate out;
    out.value = value;
    out.method = method;
    return out;
}

Estimate second_largest(const std::vector<Estimate>& moduli, double accuracy, const char* method) {
    Estimate out = exact(0, method);
    std::vector<double> values, lows, highs;
    for (const Estimate& e : moduli) {
        values.push_back(e.value);
        lows.push_back(e.converged ? e.value : e.low.value_or(e.value));
        highs.push_back(e.converged ? e.value : e.high.value_or(e.value));
        out.iterations = std::max(out.iterations, e.iterations);
        out.residual = std::max(out.residual, e.residual);
    }
    out.value = second_of(values);
    const double low = second_of(lows), high = second_of(highs);
    out.converged = high - low <= accuracy * out.value;
    // Certified ones are right to the accuracy.
    if (!out.converged) out.low = low * (1 - accuracy), out.high = high * (1 + accuracy);
    return out;
}

Estimate confirmed(Estimate tested, const Estimate& proven, double accuracy) {
    const double allowed = accuracy * proven.value;
    tested.converged =
        tested.converged && proven.converged && std::abs(tested.value - proven.value) <= allowed;
    if (tested.converged) return tested;
    tested.low = proven.low.value_or(proven.value - allowed);
    tested.high = proven.high.value_or(proven.value + allowed);
    tested.value = std::clamp(tested.value, *tested.low, *tested.high);
    return tested;
}

Estimate by_arnoldi(const View& p, const Which& which, double accuracy) {
    if (rows_are_equal(p)) return of_equal_rows(p, which, accuracy);
    Estimate found = spectral_radius(square_map(p, which), residual_for(accuracy), arnoldi_products,
                                     which.rank, accuracy);
    bound_second(found, p, which);
    return found;
}

Estimate by_dense(const View& p, const Which& which, double accuracy) {
    const Entries e = square_matrix(p, which.deflated);
    Estimate found =
        dense_eigenvalue(e.a, p.shape.rows, which.rank, accuracy, e.error + which.error);
    if (!found.converged) found.high = std::min(*found.high, second_bound(p, which.deflated));
    return found;
}

Estimate by_library(const View& p, const Which& which, double accuracy) {
    Estimate found = restarted_eigenvalue(square_map(p, which), residual_for(accuracy), which.rank);
    if (!found.converged) found.low = 0, found.high = second_bound(p, which.deflated);
    return found;
}

void add_leading(const View& p, const Solving& how, std::vector<Estimate>& moduli) {
    if (classes::has_zero(p)) {
        const std::vector<classes::Class> found = classes::communicating(classes::Graph(p));
        if (found.size() > 1) return add_classes(p, found, false, how, moduli);
    }
    for (Index rank = 1; rank <= std::min<Index>(2, p.shape.rows); ++rank)
        moduli.push_back(eigenvalue(p, {false, rank}, how));
}

std::optional<Estimate> by_classes(const View& p, bool stochastic, const Solving& how) {
    if (!classes::has_zero(p)) return std::nullopt;
    const classes::Graph graph(p);
    const std::vector<classes::Class> found = classes::communicating(graph);
    if (found.size() > 1) {
        std::vector<Estimate> moduli;
        add_classes(p, found, stochastic, how, moduli);
        return second_largest(moduli, how.accuracy, triangular(found) ? "diagonal" : "classes");
    }
    if (stochastic && classes::period(graph) > 1) return exact(1, "period");
    return std::nullopt;
}

namespace {

LinearMap centred_map(const View& p, std::span<const double> column) {
    LinearMap map;
    map.rows = p.shape.rows;
    map.cols = p.shape.cols;
    map.normal = [&p, column](Vector x, Result y) { stored::centred_normal(p, column, x, y); };
    map.rounding = {rounding_of(p)};
    return map;
}

}  // namespace

Estimate centred_norm(const View& p, double accuracy) {
    const std::vector<double> column = stored::column_sums(p);
    Estimate found =
        largest_singular_value(centred_map(p, column), residual_for(accuracy), lanczos_products);
    bound_norm(found, p, column);
    return found;
}

SecondAndNorm second_and_norm(const View& p, const Which& which, double accuracy) {
    const std::vector<double> column = stored::column_sums(p);
    const SharedPass stack{.square = square_map(p, which),
                           .normal = centred_map(p, column),
                           .both = [&](Vector x, Result y, Vector u, Result v) {
                               std::vector<double> from(x.begin(), x.end());
                               if (which.deflated) centre(from);
                               stored::centred_normal(p, column, u, v, from, y);
                               if (which.deflated) centre(y);
                           }};
    RadiiAndNorms found = radii_and_norms(stack, 1, residual_for(accuracy), arnoldi_products,
                                          lanczos_products, which.rank, accuracy);
    bound_second(found.radii.front(), p, which);
    bound_norm(found.norms.front(), p, column);
    return {found.radii.front(), found.norms.front()};
}

Estimate norm_of(std::span<const double> a, Index rows, Index cols, double accuracy, double error) {
    double top = 0;
    for (const double e : a) top = std::max(top, std::abs(e));
    if (top == 0 && error == 0) return exact(0, "dense");
    const int exponent = exponent_of(top);
    // The smaller Gram matrix is formed.
    const bool wide = cols > rows;
    std::vector<double> scaled;
    for (Index i = 0; i < (wide ? cols : rows); ++i)
        for (Index j = 0; j < (wide ? rows : cols); ++j)
            scaled.push_back(
                std::ldexp(a[std::size_t(wide ? j * cols + i : i * cols + j)], -exponent));
    const Shape shape{1, wide ? cols : rows, wide ? rows : cols};
    Estimate found = *tsdiag::dense_norm(
        Tensor::from_host(cpu(), shape, std::span<const double>(scaled), Type::f64), accuracy,
        std::ldexp(error, -exponent));
    found.value = std::ldexp(found.value, exponent);
    for (std::optional<double>* side : {&found.low, &found.high})
        if (*side) *side = std::ldexp(**side, exponent);
    return found;
}

Estimate dense_norm(const View& p, double accuracy) {
    const Entries e = centred(p, false);
    return norm_of(e.a, p.shape.rows, p.shape.cols, accuracy / 10, e.error);
}

Estimate library_norm(const View& p) {
    const std::vector<double> column = stored::column_sums(p);
    Estimate found = restarted_singular_value(centred_map(p, column));
    if (!found.converged) found.low = 0, found.high = norm_bound(p, column);
    return found;
}

}  // namespace tsdiag::one_matrix
