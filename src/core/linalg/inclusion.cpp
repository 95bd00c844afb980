#include "inclusion.hpp"

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tensor/cpu_kernels.hpp"
#include "tsdiag/random.hpp"
#include "ulp.hpp"

namespace tsdiag::inclusion {
namespace {

using Complex = std::complex<double>;
template <class T>
using MatrixOf = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Matrix = MatrixOf<double>;
using ComplexMatrix = Eigen::MatrixXcd;

constexpr double unit = ulp / 2;        // the largest relative error of one rounding
constexpr std::size_t most_groups = 3;  // ways of taking them out that are tried
constexpr Index largest_group = 128;    // its own eigenvectors cost some 100 k^3

/// c = op(a) b, by the kernels for this processor.
template <class T>
void multiply(const MatrixOf<T>& a, bool transposed, const MatrixOf<T>& b, MatrixOf<T>& c) {
    const Index m = transposed ? a.cols() : a.rows(), inner = transposed ? a.rows() : a.cols();
    c.resize(m, b.cols());
    const auto run = [&](const kernels::Of<T>& of) {
        of.gemm(transposed, false, m, b.cols(), inner, 1, a.data(), a.cols(), b.data(), b.cols(),
                c.data(), b.cols());
    };
    if constexpr (std::is_same_v<T, float>)
        run(kernels::table().f32);
    else
        run(kernels::table().f64);
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

/// Nearly the sum of (B^T)^j B^j, twice as many terms each time, until B^j is small; T decides how
/// nearly.  None where it is beyond the digits of T.
template <class T>
std::optional<Matrix> stein_solution(const Matrix& b) {
    constexpr int doublings = 40;
    constexpr double largest = 1e-3 / std::numeric_limits<T>::epsilon();
    const auto settle = [](MatrixOf<T>& a) {  // products of what is left are no subnormal numbers
        a = (a.array().abs() < T(1e-18)).select(T(0), a);
    };
    MatrixOf<T> power = b.cast<T>(), h, moved, more;
    settle(power);
    for (int i = 0; i < doublings; ++i) {
        const auto left = double(power.squaredNorm());
        if (!(left < largest)) return std::nullopt;
        if (i > 0) {
            multiply(h, false, power, moved);
            multiply(power, true, moved, more);
            h += more;
        } else {
            multiply(power, true, power, h);
            h.diagonal().array() += T(1);
        }
        if (left < 0.3) break;  // then H - B^T H B = 1 - (B^j)^T B^j
        multiply(power, false, power, moved);
        power.swap(moved);
        settle(power);
    }
    if (!(double(h.norm()) < largest)) return std::nullopt;
    return h.template cast<double>();
}

/// A bound of |(z - C)^-1| for |z| >= c, of every matrix within `error` of C, by this H; none where
/// it shows nothing.
std::optional<double> resolvent(const Matrix& b, double c, double error, Matrix h) {
    h = (h + h.transpose()).eval() / 2;
    const double size = h.norm();
    Matrix image, stein;
    multiply(h, false, b, image);
    multiply(b, true, image, stein);
    stein = h - stein;  // of which Cholesky's factorisation reads one triangle
    // Of two products and a difference, and of b itself.
    const double rounding = unit * size * ((2 * double(b.rows()) + 8) * b.squaredNorm() + 2);
    constexpr double least = 0.5;  // of which `exceeds` leaves half
    if (!exceeds(h, least, 0) || !exceeds(stein, least, rounding)) return std::nullopt;
    const double bound = 2 * size / (c * least / 2);
    if (!(bound * error < 0.5)) return std::nullopt;
    return bound / (1 - bound * error);
}

/// None where an eigenvalue may be there.  H is only checked, so that float32 often suffices.
std::optional<double> resolvent(const Matrix& c_matrix, double c, double error) {
    if (c_matrix.rows() == 0) return 0;
    const Matrix b = c_matrix / c;
    if (std::optional<Matrix> h = stein_solution<float>(b))
        if (const auto bound = resolvent(b, c, error, *std::move(h))) return bound;
    if (std::optional<Matrix> h = stein_solution<double>(b))
        return resolvent(b, c, error, *std::move(h));
    return std::nullopt;
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
    // Near the k-th, which is a few roundings wide: the fewer powers of C are needed.
    const double c = last * std::pow(next / last, 0.2);
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
        const double ratio = std::abs(next) / std::abs(last);
        if (!(ratio < 0.9999)) continue;
        // In n^3 flops of a product: powers of C until they are small, and the eigenvectors of M,
        // whose loops are some twenty times slower.  The discs of a large group are wide.
        const double powers = std::log(2 * double(n)) / -std::log(std::max(ratio, 1e-3));
        const double share = double(k) / double(n);
        all.emplace_back(6 * std::log2(1 + powers) + double(k) + 2000 * share * share * share, k);
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
