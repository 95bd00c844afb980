#include "inclusion.hpp"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include "tensor/cpu_kernels.hpp"
#include "tsdiag/random.hpp"
#include "ulp.hpp"

namespace tsdiag::inclusion {
namespace {

using Complex = std::complex<double>;
using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using ComplexMatrix = Eigen::MatrixXcd;

constexpr double unit = ulp / 2;        // the largest relative error of one rounding
constexpr std::size_t most_groups = 3;  // ways of taking them out that are tried
constexpr Index largest_group = 128;    // its own eigenvectors cost some 100 k^3

/// op(a) b, by the kernels for this processor.
Matrix product(const Matrix& a, bool transposed, const Matrix& b) {
    const Index m = transposed ? a.cols() : a.rows(), inner = transposed ? a.rows() : a.cols();
    Matrix c(m, b.cols());
    kernels::table().f64.gemm(transposed, false, m, b.cols(), inner, 1, a.data(), a.cols(),
                              b.data(), b.cols(), c.data(), b.cols());
    return c;
}

/// Whether the exact symmetric matrix within `error` of `a` exceeds `least`: Cholesky's
/// factorisation of a - least succeeds only if a - least > -(n + 2) u trace (Rump, "Verification of
/// positive definiteness", BIT 46, 2006); half of what is asked for is left.
bool exceeds(const Matrix& a, double least, double error) {
    const auto n = double(a.rows());
    if (!a.allFinite() || !(error + 2 * (n + 2) * unit * a.trace() <= least / 2)) return false;
    Matrix shifted = a;
    shifted.diagonal().array() -= least;
    const Eigen::LLT<Matrix> factors(shifted);
    return factors.info() == Eigen::Success;
}

/// A bound of |(z - C)^-1| for |z| >= c, of every matrix within `error` of C; none where an
/// eigenvalue may be there.
std::optional<double> resolvent(const Matrix& c_matrix, double c, double error) {
    const Index n = c_matrix.rows();
    if (n == 0) return 0;
    constexpr int doublings = 40;
    const Matrix b = c_matrix / c;
    // H = sum_j (B^T)^j B^j, twice as many terms each time, until B^j is small.
    Matrix h = Matrix::Identity(n, n), power = b;
    const double whole = b.squaredNorm();
    for (int i = 0; i < doublings; ++i) {
        const double left = power.squaredNorm();
        if (!(left < 1e100)) return std::nullopt;
        const Matrix moved = product(h, false, power);
        h += product(power, true, moved);
        if (left < 0.3) break;  // then H - B^T H B = 1 - (B^j)^T B^j
        power = product(power, false, power);
    }
    h = (h + h.transpose()).eval() / 2;
    const double size = h.norm();
    const Matrix image = product(h, false, b);
    Matrix stein = h - product(b, true, image);
    stein = (stein + stein.transpose()).eval() / 2;
    // Of two products and a difference, and of b itself.
    const double rounding = unit * size * ((2 * double(n) + 8) * whole + 2);
    constexpr double least = 0.5;  // of which `exceeds` leaves half
    if (!exceeds(h, least, 0) || !exceeds(stein, least, rounding)) return std::nullopt;
    const double bound = 2 * size / (c * least / 2);
    if (!(bound * error < 0.5)) return std::nullopt;
    return bound / (1 - bound * error);
}

/// The left invariant subspace that belongs to the first k values, as columns.
Matrix left_subspace(const Reduced& reduced, std::span<const Complex> values) {
    const Index n = reduced.n, k = std::ssize(values);
    Matrix y(n, k);
    for (Index j = 0; j < k; ++j) {
        const Complex theta = values[std::size_t(j)];
        if (j > 0 && theta.imag() != 0 && theta == std::conj(values[std::size_t(j - 1)])) continue;
        const std::vector<Complex> left = hessenberg::left_vector(reduced.h, n, theta, j);
        const bool pair = theta.imag() != 0 && j + 1 < k;
        for (Index i = 0; i < n; ++i) {
            y(i, j) = left[std::size_t(i)].real();
            if (pair) y(i, j + 1) = left[std::size_t(i)].imag();
        }
        if (theta.imag() == 0 && y.col(j).norm() < 0.5)  // an imaginary multiple
            for (Index i = 0; i < n; ++i) y(i, j) = left[std::size_t(i)].imag();
    }
    for (Index r = std::ssize(reduced.tau); r-- > 0;) {
        const Eigen::Map<const Eigen::RowVectorXd> v(reduced.v.data() + r * n, n);
        const Eigen::RowVectorXd overlap = v * y;
        y.noalias() -= reduced.tau[std::size_t(r)] * v.transpose() * overlap;
    }
    return y;
}

/// Discs of one radius about `centres`: together they hold the eigenvalues of every matrix within
/// `error` of M, and as many in each connected part as it has centres.
struct Discs {
    std::vector<Complex> centres;
    double radius;
};

Discs discs_of(const Matrix& m, double error) {
    const Index k = m.rows();
    if (k == 1) return {{m(0, 0)}, error};
    const Eigen::EigenSolver<Eigen::MatrixXd> solver(Eigen::MatrixXd(m), true);
    const ComplexMatrix v = solver.eigenvectors();
    const Eigen::VectorXcd values = solver.eigenvalues();
    Discs out{{values.begin(), values.end()}, 0};
    const double size = m.norm(), n = double(k);
    // Elsner ("An optimal bound for the spectral variation of two matrices", Linear Algebra Appl.
    // 71, 1985): the values are exact for a matrix near M.
    const double distance = error + 32 * n * n * unit * size;
    out.radius = std::pow(2 * size + distance, 1 - 1 / n) * std::pow(distance, 1 / n);
    if (solver.info() != Eigen::Success) out.radius = HUGE_VAL;
    // Bauer and Fike, with what the computed eigenvectors leave.
    const ComplexMatrix inverse = v.partialPivLu().inverse();
    const double rounding = 8 * n * unit * v.norm();
    const double off =
        (ComplexMatrix::Identity(k, k) - inverse * v).norm() + rounding * inverse.norm();
    const double rest = (m.cast<Complex>() * v - v * values.asDiagonal()).norm() +
                        rounding * 2 * size + error * v.norm();
    if (off < 0.5) out.radius = std::min(out.radius, inverse.norm() * rest / (1 - off));
    return out;
}

/// The rank-th largest modulus of eigenvalues in these discs: in each connected part all of them
/// lie between the least and the largest modulus of its points.
Interval ranked(const Discs& discs, Index rank) {
    const std::size_t k = discs.centres.size();
    std::vector<std::size_t> part(k);
    for (std::size_t i = 0; i < k; ++i) part[i] = i;
    for (std::size_t i = 0; i < k; ++i)
        for (std::size_t j = 0; j < i; ++j)
            if (std::abs(discs.centres[i] - discs.centres[j]) <= 2.001 * discs.radius)
                std::ranges::replace(part, std::size_t(part[i]), std::size_t(part[j]));
    std::vector<double> lows(k), highs(k);
    for (std::size_t i = 0; i < k; ++i) {
        double least = std::abs(discs.centres[i]), most = least;
        for (std::size_t j = 0; j < k; ++j) {
            if (part[j] != part[i]) continue;
            least = std::min(least, std::abs(discs.centres[j]));
            most = std::max(most, std::abs(discs.centres[j]));
        }
        lows[i] = std::max(0.0, least - discs.radius);
        highs[i] = most + discs.radius;
    }
    const auto at = std::size_t(rank - 1);
    std::ranges::sort(lows, std::greater());
    std::ranges::sort(highs, std::greater());
    return {lows[at] * (1 - 4 * ulp), highs[at] * (1 + 4 * ulp)};
}

/// With the first k values taken out.
std::optional<Interval> taken_out(const Matrix& a, const Reduced& reduced,
                                  std::span<const Complex> values, Index k, Index rank,
                                  double error) {
    const Index n = a.rows();
    if (k == n) return ranked(discs_of(a, error), rank);
    const double last = std::abs(values[std::size_t(k - 1)]);
    const double next = std::max(0.01 * last, std::abs(values[std::size_t(k)]));
    const double c = std::sqrt(last * next);
    if (!(c > 0)) return std::nullopt;
    Matrix b = a;
    const Eigen::HouseholderQR<Matrix> q(left_subspace(reduced, values.first(std::size_t(k))));
    b.applyOnTheLeft(q.householderQ().transpose());
    b.applyOnTheRight(q.householderQ());
    // k reflections from both sides (Higham, "Accuracy and Stability", lemma 19.3).
    const double moved = error + 16 * double(k) * double(n) * unit * a.norm();
    const Matrix m = b.topLeftCorner(k, k), rest = b.bottomRightCorner(n - k, n - k);
    const std::optional<double> bound = resolvent(rest, c, moved);
    if (!bound) return std::nullopt;
    const double above = b.topRightCorner(k, n - k).norm() + moved,
                 below = b.bottomLeftCorner(n - k, k).norm() + moved;
    const Discs discs = discs_of(m, moved + above * below * *bound);
    for (const Complex z : discs.centres)
        if (!(std::abs(z) - discs.radius > c)) return std::nullopt;
    return ranked(discs, rank);
}

/// Numbers of leading values, the most promising first: those that a gap follows.
std::vector<Index> groups(std::span<const Complex> values, Index rank) {
    const Index n = std::ssize(values);
    std::vector<std::pair<double, Index>> all;
    for (Index k = rank; k <= std::min(n, largest_group); ++k) {
        const Complex last = values[std::size_t(k - 1)];
        const Complex next = k < n ? values[std::size_t(k)] : 0;
        if (last.imag() != 0 && next == std::conj(last)) continue;
        // A small group and a large gap are both cheap.
        const double ratio = std::abs(next) / std::abs(last);
        if (ratio < 0.9999) all.emplace_back(std::max(ratio, 0.7) + 0.005 * double(k), k);
    }
    std::ranges::sort(all);
    std::vector<Index> out;
    for (std::size_t i = 0; i < std::min(most_groups, all.size()); ++i)
        out.push_back(all[i].second);
    return out;
}

}  // namespace

Interval modulus(std::span<const double> a, const Reduced& reduced, std::vector<Complex> values,
                 Index rank, double error, double accuracy) {
    const Index n = reduced.n;
    const Matrix matrix = Eigen::Map<const Matrix>(a.data(), n, n);
    // Rounding of |A|_F: n^2 terms.
    Interval out{0, matrix.norm() * (1 + double(n) * double(n) * ulp) + error};
    if (rank > n) return {0, 0};
    if (out.high == 0) return out;
    std::ranges::sort(values, [](Complex x, Complex y) {  // pairs stay together
        return std::tuple(std::abs(x), x.real(), x.imag()) >
               std::tuple(std::abs(y), y.real(), y.imag());
    });
    for (const Index k : groups(values, rank)) {
        const std::optional<Interval> found = taken_out(matrix, reduced, values, k, rank, error);
        if (!found) continue;
        out = {std::max(out.low, found->low), std::min(out.high, found->high)};
        if (out.high - out.low <= accuracy * out.low) return out;
    }
    // At least an upper bound: nothing is taken out.
    const double first = std::abs(values[0]);
    for (const double more : {1e-3, 1e-2, 0.1, 0.5, 2.0, 8.0}) {
        const double c = (1 + more) * std::max(first, 1e-12 * matrix.norm());
        if (c >= out.high) break;
        if (resolvent(matrix, c, error)) {
            out.high = c;
            break;
        }
    }
    return out;
}

}  // namespace tsdiag::inclusion
