#include "exact_spectra.hpp"

#include <Eigen/Eigenvalues>
#include <Eigen/LU>
#include <boost/multiprecision/cpp_bin_float.hpp>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "tsdiag/random.hpp"

template <unsigned Digits>
using Real = boost::multiprecision::number<boost::multiprecision::cpp_bin_float<Digits>,
                                           boost::multiprecision::et_off>;

/// What Boost 1.74 has for Eigen lacks infinity and NaN.
template <unsigned Digits>
struct Eigen::NumTraits<Real<Digits>> : Eigen::GenericNumTraits<Real<Digits>> {};

namespace tsdiag::test {
namespace {

using naive::Matrix;

template <class R>
using Square = Eigen::Matrix<R, Eigen::Dynamic, Eigen::Dynamic>;
template <class R>
using Column = Eigen::Matrix<R, Eigen::Dynamic, 1>;
using Hundred = Real<100>;

template <class R>
Square<R> entries(const Matrix& p) {
    Square<R> a(p.rows, p.cols);
    for (Index i = 0; i < p.rows; ++i)
        for (Index j = 0; j < p.cols; ++j) a(i, j) = R(p(i, j));
    return a;
}

/// Pi2 A.  Differences first: what is equal cancels exactly, and no error is relative to it.
template <class R>
Square<R> centred(Square<R> a) {
    for (Index j = 0; j < a.cols(); ++j) {
        const R first = a(0, j);
        R mean = 0;
        for (Index i = 0; i < a.rows(); ++i) mean += a(i, j) -= first;
        mean /= R(a.rows());
        for (Index i = 0; i < a.rows(); ++i) a(i, j) -= mean;
    }
    return a;
}

/// Pi2 P Pi2
template <class R>
Square<R> deflated(const Matrix& p) {
    const Square<R> across = centred<R>(entries<R>(p)).transpose();
    return centred<R>(across).transpose();
}

// Numbers modulo a prime.  An integer that is not 0 is 0 there with a probability of 1e-18 for each
// of its digits, so that zeros of an exact characteristic polynomial can be counted there.

constexpr std::uint64_t prime = (std::uint64_t(1) << 61) - 31;

std::uint64_t product(std::uint64_t a, std::uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    return std::uint64_t(Wide(a) * b % prime);
}
std::uint64_t difference(std::uint64_t a, std::uint64_t b) {
    return a >= b ? a - b : a + prime - b;
}
std::uint64_t power(std::uint64_t base, std::uint64_t exponent) {
    std::uint64_t out = 1;
    for (; exponent > 0; exponent /= 2, base = product(base, base))
        if (exponent % 2 == 1) out = product(out, base);
    return out;
}
std::uint64_t inverse(std::uint64_t a) { return power(a, prime - 2); }

std::uint64_t residue(double x) {
    int exponent = 0;
    const double fraction = std::frexp(std::abs(x), &exponent);
    const auto digits = std::uint64_t(std::ldexp(fraction, 53));
    const std::uint64_t two = exponent >= 53 ? 2 : inverse(2);
    const std::uint64_t out = product(digits, power(two, std::uint64_t(std::abs(exponent - 53))));
    return x < 0 ? difference(0, out) : out;
}

class Residues {
  public:
    explicit Residues(const Matrix& p) : n_(std::size_t(p.rows)), a_(n_ * n_) {
        for (std::size_t i = 0; i < a_.size(); ++i) a_[i] = residue(p.a[i]);
    }

    void centre_both() {
        const std::uint64_t part = inverse(n_);
        for (int side = 0; side < 2; ++side)
            for (std::size_t j = 0; j < n_; ++j) {
                const auto at = [&](std::size_t i) -> std::uint64_t& {
                    return side == 0 ? (*this)(i, j) : (*this)(j, i);
                };
                std::uint64_t sum = 0;
                for (std::size_t i = 0; i < n_; ++i) sum = (sum + at(i)) % prime;
                for (std::size_t i = 0; i < n_; ++i) at(i) = difference(at(i), product(sum, part));
            }
    }

    /// The multiplicity of the eigenvalue 0.
    Index zeros() && {
        to_hessenberg();
        const std::vector<std::uint64_t> f = characteristic();
        Index count = 0;
        while (f[std::size_t(count)] == 0) ++count;
        return count;
    }

  private:
    std::uint64_t& operator()(std::size_t i, std::size_t j) { return a_[i * n_ + j]; }

    /// By Gaussian elimination, a similarity.
    void to_hessenberg() {
        Residues& a = *this;
        for (std::size_t m = 1; m + 1 < n_; ++m) {
            std::size_t pivot = m;
            while (pivot < n_ && a(pivot, m - 1) == 0) ++pivot;
            if (pivot == n_) continue;
            for (std::size_t j = 0; j < n_ && pivot != m; ++j) std::swap(a(pivot, j), a(m, j));
            for (std::size_t i = 0; i < n_ && pivot != m; ++i) std::swap(a(i, pivot), a(i, m));
            const std::uint64_t part = inverse(a(m, m - 1));
            for (std::size_t i = m + 1; i < n_; ++i) {
                const std::uint64_t u = product(a(i, m - 1), part);
                if (u == 0) continue;
                for (std::size_t j = 0; j < n_; ++j)
                    a(i, j) = difference(a(i, j), product(u, a(m, j)));
                for (std::size_t k = 0; k < n_; ++k)
                    a(k, m) = (a(k, m) + product(u, a(k, i))) % prime;
            }
        }
    }

    /// det(x - A) of a Hessenberg matrix, the constant first.
    std::vector<std::uint64_t> characteristic() {
        Residues& a = *this;
        std::vector<std::vector<std::uint64_t>> f = {{1}};
        for (std::size_t m = 0; m < n_; ++m) {
            std::vector<std::uint64_t> next(m + 2, 0);
            std::ranges::copy(f[m], next.begin() + 1);
            std::uint64_t below = 1;  // product of the subdiagonal from row i + 1 to m
            for (std::size_t i = m + 1; i-- > 0;) {
                const std::uint64_t factor = product(a(i, m), below);
                for (std::size_t k = 0; k < f[i].size(); ++k)
                    next[k] = difference(next[k], product(factor, f[i][k]));
                if (i > 0) below = product(below, a(i, i - 1));
            }
            f.push_back(std::move(next));
        }
        return f.back();
    }

    std::size_t n_;
    std::vector<std::uint64_t> a_;
};

/// QR steps for each eigenvalue: Eigen's 40 are too few where one is defective.
constexpr Index most_steps = 1000;

/// The rank-th largest eigenvalue modulus; none where QR did not converge.
template <class R>
std::optional<R> modulus(const Square<R>& a, Index rank) {
    Eigen::EigenSolver<Square<R>> solver(a.rows());
    solver.setMaxIterations(most_steps * a.rows());
    solver.compute(a, false);
    if (solver.info() != Eigen::Success) return std::nullopt;
    std::vector<R> squares;
    for (Index i = 0; i < a.rows(); ++i) {
        const R re = solver.eigenvalues()(i).real(), im = solver.eigenvalues()(i).imag();
        squares.push_back(re * re + im * im);
    }
    std::sort(squares.rbegin(), squares.rend());
    return sqrt(squares[std::size_t(rank - 1)]);
}

/// A similar matrix that rounds differently: transposed, in another order, in other units.
template <class R>
Square<R> disguised(const Square<R>& a) {
    std::vector<Index> order(std::size_t(a.rows()));
    std::iota(order.begin(), order.end(), 0);
    Rng rng(1);
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
    Square<R> out(a.rows(), a.cols());
    for (Index i = 0; i < a.rows(); ++i)
        for (Index j = 0; j < a.cols(); ++j)
            out(i, j) =
                a(order[std::size_t(j)], order[std::size_t(i)]) * R(3 + i % 5) / R(3 + j % 5);
    return out;
}

/// What two roundings agree on.
template <unsigned Digits>
std::optional<double> settled(const Matrix& p, bool deflate, Index rank) {
    using R = Real<Digits>;
    const Square<R> a = deflate ? deflated<R>(p) : entries<R>(p);
    const std::optional<R> one = modulus<R>(a, rank), other = modulus<R>(disguised<R>(a), rank);
    if (!one || !other || abs(*one - *other) > R(1e-13) * *one) return std::nullopt;
    return double(*one);
}

/// Defective eigenvalues of multiplicity m are right to 1/m of the digits.
std::optional<double> exact_modulus(const Matrix& p, bool deflate, Index rank) {
    Residues a(p);
    if (deflate) a.centre_both();
    if (std::move(a).zeros() > p.rows - rank) return 0.0;
    std::optional<double> found = settled<100>(p, deflate, rank);
    return found ? found : settled<800>(p, deflate, rank);
}

double largest_singular(const Square<Hundred>& a) {
    if (a.isZero(Hundred(0))) return 0;
    const Square<Hundred> gram = a.transpose() * a;
    const Eigen::SelfAdjointEigenSolver<Square<Hundred>> solver(gram, Eigen::EigenvaluesOnly);
    const Hundred square = solver.eigenvalues()(a.cols() - 1);
    return double(sqrt(square));
}

bool irreducible(const Matrix& p) {
    for (const bool forward : {true, false}) {
        std::vector<char> seen(std::size_t(p.rows), 0);
        std::vector<Index> open = {0};
        seen[0] = 1;
        while (!open.empty()) {
            const Index i = open.back();
            open.pop_back();
            for (Index j = 0; j < p.rows; ++j) {
                if (seen[std::size_t(j)] || (forward ? p(i, j) : p(j, i)) == 0) continue;
                seen[std::size_t(j)] = 1;
                open.push_back(j);
            }
        }
        if (std::ranges::count(seen, 0) > 0) return false;
    }
    return true;
}

/// The stationary vector, by elimination from the last token; it never uses the diagonal.
Column<Hundred> stationary(Square<Hundred> a) {
    const Index n = a.rows();
    for (Index k = n - 1; k > 0; --k) {
        Hundred leaving = 0;
        for (Index j = 0; j < k; ++j) leaving += a(k, j);
        for (Index i = 0; i < k; ++i) {
            a(i, k) /= leaving;
            for (Index j = 0; j < k; ++j) a(i, j) += a(i, k) * a(k, j);
        }
    }
    Column<Hundred> pi(n);
    pi(0) = 1;
    for (Index k = 1; k < n; ++k) {
        pi(k) = 0;
        for (Index i = 0; i < k; ++i) pi(k) += pi(i) * a(i, k);
    }
    return pi / pi.sum();
}

/// The positive left eigenvector, by Rayleigh quotients from `start`; none where they end
/// elsewhere.
std::optional<Column<Hundred>> perron(const Square<Hundred>& p, Column<Hundred> start) {
    const Index n = p.rows();
    const Hundred small("1e-60");
    for (int step = 0; step < 12; ++step) {
        const Column<Hundred> image = p.transpose() * start;
        const Hundred rho = image.sum();
        Hundred left = 0;
        for (Index i = 0; i < n; ++i)
            left = std::max<Hundred>(left, abs(image(i) / start(i) - rho));
        if (left < small) return start;
        const Square<Hundred> shifted = p.transpose() - rho * Square<Hundred>::Identity(n, n);
        start = Eigen::PartialPivLU<Square<Hundred>>(shifted).solve(start);
        start /= Hundred(start.sum());
        for (Index i = 0; i < n; ++i)
            if (!(boost::multiprecision::isfinite)(start(i)) || start(i) <= 0) return std::nullopt;
    }
    return std::nullopt;
}

/// A - 1 pi^T A by differences of rows: exactly 0 where they are equal, and nothing of the size of
/// 1 cancels where pi_j is below the digits.
Square<Hundred> without_means(const Square<Hundred>& a, const Column<Hundred>& pi) {
    Square<Hundred> out = Square<Hundred>::Zero(a.rows(), a.cols());
    for (Index i = 0; i < a.rows(); ++i)
        for (Index k = 0; k < a.rows(); ++k)
            for (Index j = 0; j < a.cols(); ++j)
                if (a(i, j) != a(k, j)) out(i, j) += pi(k) * (a(i, j) - a(k, j));
    return out;
}

/// |A| in l2(pi).
double weighted_norm(Square<Hundred> a, const Column<Hundred>& pi) {
    for (Index i = 0; i < a.rows(); ++i)
        for (Index j = 0; j < a.cols(); ++j) a(i, j) *= sqrt(Hundred(pi(i) / pi(j)));
    return largest_singular(a);
}

void include(Readings& all, double one) {
    all = {std::min(all.least, one), std::max(all.largest, one)};
}

}  // namespace

bool sums_to_one(const Matrix& p) {
    using R = Real<800>;  // 1 + 2^-1074 has 324 digits
    for (Index i = 0; i < p.rows; ++i) {
        R sum = 0;
        for (Index j = 0; j < p.cols; ++j) sum += R(p(i, j));
        if (sum != 1) return false;
    }
    return true;
}

std::optional<Readings> exact_second(const Matrix& p, bool stochastic) {
    const bool deflate = stochastic;
    const std::optional<double> one = exact_modulus(p, deflate, deflate ? 1 : 2);
    if (!one) return std::nullopt;
    Readings out{*one, *one};
    if (!stochastic || sums_to_one(p)) return out;
    const std::optional<double> other = exact_modulus(p, false, 2);
    if (!other) return std::nullopt;
    include(out, *other);
    return out;
}

double exact_delta(const Matrix& p) {
    return largest_singular(centred<Hundred>(entries<Hundred>(p)));
}

std::optional<ExactContraction> exact_contraction(const Matrix& p) {
    if (!irreducible(p)) return std::nullopt;
    const Square<Hundred> a = entries<Hundred>(p);
    const Index n = p.rows;
    std::vector<Column<Hundred>> vectors = {stationary(a)};
    ExactContraction out;
    const Hundred least = vectors[0].minCoeff();
    out.log10_least = double(log10(least));
    const bool exact = sums_to_one(p);
    if (!exact)
        if (const auto other = perron(a, vectors[0])) vectors.push_back(*other);
    out.norm = {HUGE_VAL, 0};
    for (const Column<Hundred>& pi : vectors) {
        include(out.norm, weighted_norm(without_means(a, pi), pi));
        if (exact) continue;
        Square<Hundred> rest = a;
        for (Index i = 0; i < n; ++i) rest.row(i) -= pi.transpose();
        include(out.norm, weighted_norm(rest, pi));
    }
    return out;
}

double exact_dobrushin(const Matrix& p) {
    const Square<Hundred> a = entries<Hundred>(p);
    Hundred most = 0;
    for (Index i = 0; i < p.rows; ++i)
        for (Index j = 0; j < i; ++j) {
            Hundred sum = 0;
            for (Index k = 0; k < p.cols; ++k) sum += abs(Hundred(a(i, k) - a(j, k)));
            most = std::max(most, sum);
        }
    return double(most) / 2;
}

}  // namespace tsdiag::test
