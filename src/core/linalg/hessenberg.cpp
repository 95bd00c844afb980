#include "hessenberg.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <tuple>

#include "tensor/products.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/random.hpp"
#include "ulp.hpp"

namespace tsdiag::hessenberg {
namespace {

using Complex = std::complex<double>;
constexpr double tiny = std::numeric_limits<double>::min();

/// Double-shift QR on the active window [low, high] of H; names follow dlahqr.
class Iteration {
  public:
    Iteration(const std::vector<double>& h, Index n)
        : n_(n),
          stride_(((n + 7) / 8 | 1) * 8),  // an odd number of cache lines: no set conflicts
          h_(std::size_t(n * stride_)),
          values_(std::size_t(n)) {
        for (Index i = 0; i < n; ++i) std::copy_n(h.data() + i * n, n, h_.data() + i * stride_);
    }

    std::vector<Complex> run() {
        for (high_ = n_ - 1; high_ >= 0;) {
            low_ = 0;
            const Index found = deflate();
            if (found == 1) values_[std::size_t(high_)] = at(high_, high_);
            if (found == 2) split_pair();
            high_ -= found;
        }
        return std::move(values_);
    }

  private:
    double& at(Index i, Index j) { return h_[std::size_t(i * stride_ + j)]; }
    double size(Index i, Index j) { return std::abs(at(i, j)); }

    /// Sweeps until one or two eigenvalues deflate at the bottom; returns how many.
    Index deflate() {
        const int limit = 30 * int(std::max<Index>(10, n_));
        for (int sweeps = 0; sweeps < limit; ++sweeps) {
            low_ = split();
            if (low_ > 0) at(low_, low_ - 1) = 0;
            if (low_ >= high_ - 1) return high_ - low_ + 1;
            choose_shifts(sweeps);
            std::array<double, 3> v;
            const Index start = start_of_bulge(v);
            sweep(start, v);
        }
        throw Error("the QR iteration of a " + std::to_string(n_) + " x " + std::to_string(n_) +
                    " matrix did not converge: check it for extremely large entries");
    }

    /// The lowest row of the active window above which the subdiagonal is negligible.
    Index split() {
        const double smallest = tiny * (double(n_) / ulp);
        Index k = high_;
        for (; k > low_; --k) {
            if (size(k, k - 1) <= smallest) break;
            double test = size(k - 1, k - 1) + size(k, k);
            if (test == 0) {
                if (k >= 2) test += size(k - 1, k - 2);
                if (k + 1 <= high_) test += size(k + 1, k);
            }
            if (size(k, k - 1) > ulp * test) continue;
            const double below = size(k, k - 1), above = size(k - 1, k);
            const double gap = std::abs(at(k - 1, k - 1) - at(k, k));
            const double ab = std::max(below, above), ba = std::min(below, above);
            const double aa = std::max(size(k, k), gap), bb = std::min(size(k, k), gap);
            const double s = aa + ab;
            if (ba * (ab / s) <= std::max(smallest, ulp * (bb * (aa / s)))) break;
        }
        return k;
    }

    void choose_shifts(int sweeps) {
        double h11 = at(high_ - 1, high_ - 1), h21 = at(high_, high_ - 1);
        double h12 = at(high_ - 1, high_), h22 = at(high_, high_);
        if (sweeps % 20 == 10 || (sweeps % 20 == 0 && sweeps > 0)) {  // exceptional
            const bool top = sweeps % 20 == 10;
            const double s = top ? size(low_ + 1, low_) + size(low_ + 2, low_ + 1)
                                 : size(high_, high_ - 1) + size(high_ - 1, high_ - 2);
            h11 = h22 = 0.75 * s + (top ? at(low_, low_) : at(high_, high_));
            h12 = -0.4375 * s;
            h21 = s;
        }
        const double s = std::abs(h11) + std::abs(h12) + std::abs(h21) + std::abs(h22);
        first_ = second_ = 0;
        if (s == 0) return;
        h11 /= s, h12 /= s, h21 /= s, h22 /= s;
        const double mean = (h11 + h22) / 2;
        const double determinant = (h11 - mean) * (h22 - mean) - h12 * h21;
        const double root = std::sqrt(std::abs(determinant));
        if (determinant >= 0) {
            first_ = Complex(mean * s, root * s);
            second_ = std::conj(first_);
        } else {
            const double a = mean + root, b = mean - root;
            first_ = second_ = (std::abs(a - h22) <= std::abs(b - h22) ? a : b) * s;
        }
    }

    /// Where the sweep may begin (two consecutive small subdiagonals) and the first column of its
    /// shift polynomial.
    Index start_of_bulge(std::array<double, 3>& v) {
        for (Index m = high_ - 2;; --m) {
            double h21 = at(m + 1, m);
            double s =
                std::abs(at(m, m) - second_.real()) + std::abs(second_.imag()) + std::abs(h21);
            h21 /= s;
            v[0] = h21 * at(m, m + 1) +
                   (at(m, m) - first_.real()) * ((at(m, m) - second_.real()) / s) -
                   first_.imag() * (second_.imag() / s);
            v[1] = h21 * (at(m, m) + at(m + 1, m + 1) - first_.real() - second_.real());
            v[2] = h21 * at(m + 2, m + 1);
            s = std::abs(v[0]) + std::abs(v[1]) + std::abs(v[2]);
            for (double& e : v) e /= s;
            if (m == low_) return m;
            const double around = size(m - 1, m - 1) + size(m, m) + size(m + 1, m + 1);
            if (size(m, m - 1) * (std::abs(v[1]) + std::abs(v[2])) <= ulp * std::abs(v[0]) * around)
                return m;
        }
    }

    /// Householder that maps v to (beta, 0, 0): v becomes (beta, v1, v2), the result is tau.
    static double reflector(std::array<double, 3>& v) {
        if (v[1] == 0 && v[2] == 0) return 0;
        double length = std::sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
        if (!(length > 1e-140 && length < 1e140)) length = std::hypot(v[0], std::hypot(v[1], v[2]));
        const double beta = -std::copysign(length, v[0]), inverse = 1 / (v[0] - beta);
        const double tau = (beta - v[0]) / beta;
        v = {beta, v[1] * inverse, v[2] * inverse};
        return tau;
    }

    /// Reflections from both sides push the bulge from row `start` down and out.
    void sweep(Index start, std::array<double, 3> v) {
        for (Index k = start; k < high_; ++k) {
            const bool last = k == high_ - 1;
            if (k > start) v = {at(k, k - 1), at(k + 1, k - 1), last ? 0.0 : at(k + 2, k - 1)};
            if (last) v[2] = 0;
            const double tau = reflector(v);
            if (k > start) {
                at(k, k - 1) = v[0];
                at(k + 1, k - 1) = 0;
                if (!last) at(k + 2, k - 1) = 0;
            } else if (start > low_) {
                at(k, k - 1) *= 1 - tau;
            }
            const products::Reflection r{tau, v[1], v[2], last};
            products::reflect_rows(&at(k, k), stride_, high_ - k + 1, r);
            products::reflect_columns(&at(low_, k), stride_, std::min(k + 3, high_) - low_ + 1, r);
        }
    }

    /// The eigenvalues of the 2 x 2 block at the bottom.
    void split_pair() {
        const Index i = high_ - 1;
        const double a = at(i, i), b = at(i, i + 1), c = at(i + 1, i), d = at(i + 1, i + 1);
        const double half = (a - d) / 2, discriminant = half * half + b * c;
        const double root = std::sqrt(std::abs(discriminant));
        if (discriminant < 0) {
            values_[std::size_t(i)] = Complex((a + d) / 2, root);
            values_[std::size_t(i + 1)] = Complex((a + d) / 2, -root);
        } else {
            const double step = half + std::copysign(root, half);  // no cancellation
            values_[std::size_t(i)] = d + step;
            values_[std::size_t(i + 1)] = step == 0 ? d : d - b * c / step;
        }
    }

    Index n_, stride_, low_ = 0, high_ = 0;
    std::vector<double> h_;
    std::vector<Complex> values_;
    Complex first_, second_;
};

/// H - theta = E^-1 U: E a product of row exchanges and eliminations below the diagonal.
class ShiftedFactors {
  public:
    ShiftedFactors(const std::vector<double>& h, Index n, Complex theta)
        : n_(n), u_(std::size_t(n * n)), factor_(std::size_t(n)), swapped_(std::size_t(n)) {
        double norm = 0;
        for (double e : h) norm = std::max(norm, std::abs(e));
        smallest_ = std::max(ulp * norm, tiny);
        for (Index j = 0; j < n; ++j) at(0, j) = h[std::size_t(j)];
        at(0, 0) -= theta;
        for (Index k = 0; k + 1 < n; ++k) {
            for (Index j = k; j < n; ++j) at(k + 1, j) = h[std::size_t((k + 1) * n + j)];
            at(k + 1, k + 1) -= theta;
            swapped_[std::size_t(k)] = std::norm(at(k + 1, k)) > std::norm(at(k, k));
            if (swapped_[std::size_t(k)]) std::swap_ranges(&at(k, k), &at(k, 0) + n, &at(k + 1, k));
            if (std::abs(at(k, k)) < smallest_) at(k, k) = smallest_;
            const Complex f = at(k + 1, k) / at(k, k);
            factor_[std::size_t(k)] = f;
            for (Index j = k + 1; j < n; ++j) at(k + 1, j) -= multiply(f, at(k, j));
        }
        if (std::abs(at(n - 1, n - 1)) < smallest_) at(n - 1, n - 1) = smallest_;
    }

    struct Solved {
        Complex growth;  ///< x^H (H - theta)^-1 x of the unit x before
        double norm;     ///< |(H - theta)^-1 x|
    };
    /// x = (H - theta)^-1 x, normalised.
    Solved solve(std::vector<Complex>& x) {
        const std::vector<Complex> before = x;
        for (Index k = 0; k + 1 < n_; ++k) {
            Complex &a = x[std::size_t(k)], &b = x[std::size_t(k + 1)];
            if (swapped_[std::size_t(k)]) std::swap(a, b);
            b -= factor_[std::size_t(k)] * a;
        }
        for (Index i = n_; i-- > 0;) {
            Complex s = x[std::size_t(i)];
            for (Index j = i + 1; j < n_; ++j) s -= multiply(at(i, j), x[std::size_t(j)]);
            x[std::size_t(i)] = s / at(i, i);
        }
        Complex growth = 0;
        for (std::size_t i = 0; i < x.size(); ++i) growth += std::conj(before[i]) * x[i];
        return {growth, normalise(x)};
    }

    /// Whether x, of this norm after a step, is a vector up to rounding, as LAPACK's dlaein
    /// decides. Of A - theta far from normal, as at a defective eigenvalue, a further step would
    /// lead away from it (Ipsen, "Computing an Eigenvector with Inverse Iteration", SIAM Review 39,
    /// 1997).
    bool suffices(double norm) const { return norm >= 0.1 / (double(n_) * smallest_); }

    /// x = (H - theta)^-H x, normalised; returns the norm before.
    double solve_adjoint(std::vector<Complex>& x) {
        for (Index i = 0; i < n_; ++i) {
            const Complex s = x[std::size_t(i)] /= std::conj(at(i, i));
            for (Index j = i + 1; j < n_; ++j)
                x[std::size_t(j)] -= multiply(std::conj(at(i, j)), s);
        }
        for (Index k = n_ - 1; k-- > 0;) {
            Complex &a = x[std::size_t(k)], &b = x[std::size_t(k + 1)];
            a -= std::conj(factor_[std::size_t(k)]) * b;
            if (swapped_[std::size_t(k)]) std::swap(a, b);
        }
        return normalise(x);
    }

  private:
    Complex& at(Index i, Index j) { return u_[std::size_t(i * n_ + j)]; }
    /// Without the checks for infinities that the standard requires of complex products.
    static Complex multiply(Complex a, Complex b) {
        return {a.real() * b.real() - a.imag() * b.imag(),
                a.real() * b.imag() + a.imag() * b.real()};
    }
    /// The norm before.
    static double normalise(std::vector<Complex>& x) {
        double top = 0, sum = 0;  // scaled first: inverse iteration may nearly overflow
        for (Complex e : x) top = std::max({top, std::abs(e.real()), std::abs(e.imag())});
        for (Complex& e : x) sum += std::norm(e /= top);
        for (Complex& e : x) e /= std::sqrt(sum);
        return top * std::sqrt(sum);
    }

    Index n_;
    double smallest_ = 0;
    std::vector<Complex> u_, factor_;
    std::vector<char> swapped_;
};

}  // namespace

std::vector<Complex> eigenvalues(const std::vector<double>& h, Index n) {
    return Iteration(h, n).run();
}

Certificate certify(const std::vector<double>& h, Index n, Complex theta) {
    ShiftedFactors factors(h, n, theta);
    std::vector<Complex> right(std::size_t(n), 1 / std::sqrt(double(n))), left = right;
    ShiftedFactors::Solved solved = factors.solve(right);
    if (!factors.suffices(solved.norm)) solved = factors.solve(right);
    if (!factors.suffices(factors.solve_adjoint(left))) factors.solve_adjoint(left);
    if (std::abs(solved.growth) > 0) theta += 1.0 / solved.growth;
    Complex overlap = 0;
    for (std::size_t i = 0; i < right.size(); ++i) overlap += std::conj(left[i]) * right[i];
    return {
        std::abs(right.back()), {1 / std::max(std::abs(overlap), tiny), 1 / solved.norm}, theta};
}

std::vector<Complex> left_vector(const std::vector<double>& h, Index n, Complex theta,
                                 Index start) {
    ShiftedFactors factors(h, n, theta);
    auto first = std::vector<double>(std::size_t(n));
    Rng(0x6c656674, std::uint64_t(start)).fill_normal(first, 0, 1 / std::sqrt(double(n)));
    std::vector<Complex> left(first.begin(), first.end());
    if (!factors.suffices(factors.solve_adjoint(left))) factors.solve_adjoint(left);
    return left;
}

std::vector<Complex> right_vector(const std::vector<double>& h, Index n, Complex theta) {
    ShiftedFactors factors(h, n, theta);
    std::vector<Complex> right(std::size_t(n), 1 / std::sqrt(double(n)));
    if (!factors.suffices(factors.solve(right).norm)) factors.solve(right);
    return right;
}

Leading leading_of(std::vector<Complex> values, Index rank, double noise, double accuracy,
                   const std::function<Sensitivity(Complex)>& of) {
    if (std::ssize(values) < rank) return {.certain = true};
    std::sort(values.begin(), values.end(), [](Complex a, Complex b) {  // pairs stay together
        return std::tuple(std::abs(a), a.real(), a.imag()) >
               std::tuple(std::abs(b), b.real(), b.imag());
    });
    Leading out;
    out.value = values[std::size_t(rank - 1)];
    out.modulus = std::abs(out.value);
    const double allowed = accuracy * std::max(out.modulus, noise);
    out.certain = true;
    // The leading ones, and the next below: its error may change the order.
    for (Index i = 0, distinct = 0; i < std::ssize(values) && distinct <= rank; ++i) {
        if (i > 0 && values[std::size_t(i)] == std::conj(values[std::size_t(i - 1)])) continue;
        const Sensitivity s = of(values[std::size_t(i)]);
        const double radius = s.condition * (s.residual + noise);
        const double modulus = std::abs(values[std::size_t(i)]);
        if (i == 0) out.first = values[0], out.first_radius = radius;
        if (modulus >= out.modulus) {
            out.residual = std::max(out.residual, s.residual);
            out.radius = std::max(out.radius, radius);
            out.certain = out.certain && radius <= allowed;
        } else {
            out.certain = out.certain && modulus + radius <= out.modulus + allowed;
        }
        ++distinct;
    }
    return out;
}

Leading leading_eigenvalue(const std::vector<double>& h, Index n, Index rank, double coupling,
                           double noise, double accuracy) {
    // A multiple of 1 has every vector as an eigenvector, and its one number n times.
    if (n < rank)
        return {
            .certain = coupling <= noise && std::ranges::all_of(h, [](double e) { return e == 0; }),
            .first = h[0],
            .first_radius = coupling + noise};
    return leading_of(eigenvalues(h, n), rank, noise, accuracy, [&](Complex theta) {
        const Certificate c = certify(h, n, theta);
        return Sensitivity{c.sensitivity.condition, coupling * c.last};
    });
}

}  // namespace tsdiag::hessenberg
