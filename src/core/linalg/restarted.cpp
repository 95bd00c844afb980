#include <Spectra/GenEigsSolver.h>
#include <Spectra/SymEigsSolver.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "tsdiag/error.hpp"
#include "tsdiag/linalg.hpp"
#include "tsdiag/random.hpp"

namespace tsdiag {
namespace {

using Apply = std::function<void(std::span<const double>, std::span<double>)>;

constexpr Index largest_basis = 128, most_restarts = 300;

/// A map with the interface that Spectra expects.  One that is small is multiplied by a power of
/// two: Spectra takes residuals below eps^(2/3) for zero, whatever the norm of the map.
class SpectraMap {
  public:
    using Scalar = double;
    SpectraMap(const Apply& apply, Index n) : apply_(apply), n_(n) {
        Eigen::VectorXd x(n);
        Rng(0x72657374).fill_normal({x.data(), std::size_t(n)}, 0, 1);
        const double top = (*this * x).lpNorm<Eigen::Infinity>();
        vanishes_ = top == 0;
        if (top < 1 && !vanishes_) factor_ = std::ldexp(1.0, std::min(-std::ilogb(top), 1000));
    }
    SpectraMap(const Apply& apply, Index n, double factor)
        : apply_(apply), n_(n), factor_(factor) {}
    Eigen::Index rows() const { return n_; }
    Eigen::Index cols() const { return n_; }
    void perform_op(const double* x, double* y) const {
        const std::span<double> image(y, std::size_t(n_));
        apply_({x, std::size_t(n_)}, image);
        for (double& e : image) e *= factor_;
    }
    Eigen::VectorXd operator*(const Eigen::VectorXd& x) const {
        Eigen::VectorXd y(n_);
        perform_op(x.data(), y.data());
        return y;
    }
    /// A zero map, for which Spectra finds no basis.
    bool vanishes() const { return vanishes_; }
    double factor() const { return factor_; }

  private:
    const Apply& apply_;
    Index n_;
    double factor_ = 1;
    bool vanishes_ = false;
};

/// Spectra throws where a small dense problem of its own does not converge.
template <class Solver>
bool solves(Solver& solver, Spectra::SortRule rule, double tolerance) {
    try {
        solver.compute(rule, most_restarts, tolerance);
    } catch (const std::runtime_error&) {
        return false;
    }
    return solver.info() == Spectra::CompInfo::Successful;
}

/// Spectra's own test, of the recomputed residual: what its basis says has been 100 times the norm
/// of a map with few eigenvalues.  Products round, so a value far below that norm may exceed it.
bool agrees(double residual, double value, double tolerance) {
    constexpr double rounding = 1e3;
    const double floor = std::pow(std::numeric_limits<double>::epsilon(), 2.0 / 3);
    return residual <= rounding * tolerance * std::max(value, floor);
}

Estimate estimate(double value, double residual, Index products, bool converged) {
    return {.value = value,
            .method = "spectra",
            .residual = residual,
            .iterations = products,
            .converged = converged};
}

/// An eigenvalue of the map times its factor, and its unit vector.
struct Pair {
    std::complex<double> value;
    Eigen::VectorXcd vector;
};

/// Those of the largest moduli, in descending order: rank + 1, of which Spectra keeps one more than
/// asked for. None where it did not converge.
std::vector<Pair> leading_pairs(SpectraMap& op, Index rank, double tolerance, Index& products) {
    const Index kept = rank + 1;
    Spectra::GenEigsSolver<SpectraMap> solver(op, kept, std::min(op.rows(), largest_basis));
    solver.init();
    const bool converged = solves(solver, Spectra::SortRule::LargestMagn, tolerance);
    products += solver.num_operations();
    std::vector<Pair> out;
    if (!converged) return out;
    const Eigen::VectorXcd values = solver.eigenvalues();
    const Eigen::MatrixXcd vectors = solver.eigenvectors();
    for (Index k = 0; k < kept; ++k) out.push_back({values[k], vectors.col(k).normalized()});
    return out;
}

/// |A x - theta x|, by two products.
double residual_of(const SpectraMap& op, const Pair& pair) {
    const auto& [theta, x] = pair;
    const Eigen::VectorXd real = op * Eigen::VectorXd(x.real()),
                          imaginary = op * Eigen::VectorXd(x.imag());
    return std::sqrt((real - (theta * x).real()).squaredNorm() +
                     (imaginary - (theta * x).imag()).squaredNorm());
}

/// 1 / |y^T x|, y^T A = theta y^T: of the left vector whose eigenvalue is the nearest.
double condition_of(const Pair& right, const std::vector<Pair>& left) {
    const Pair& nearest = *std::ranges::min_element(
        left, {}, [&](const Pair& e) { return std::abs(e.value - right.value); });
    return 1 / std::abs((nearest.vector.transpose() * right.vector).value());
}

}  // namespace

Estimate restarted_eigenvalue(const LinearMap& a, double tolerance, Index rank, double accuracy) {
    check(a.rows >= least_restarted, "a restarted basis needs more tokens than it keeps");
    SpectraMap op(a.apply, a.rows);
    if (op.vanishes()) return estimate(0, 0, 1, true);
    constexpr double none = std::numeric_limits<double>::infinity();
    Index products = 0;
    const std::vector<Pair> right = leading_pairs(op, rank, tolerance, products);
    if (right.empty()) return estimate(0, none, products, false);
    const Pair& found = right[std::size_t(rank - 1)];
    const double value = std::abs(found.value), residual = residual_of(op, found);
    products += 2;
    bool converged = agrees(residual, value, tolerance);
    if (converged) {
        SpectraMap transposed(a.transpose, a.rows, op.factor());
        const std::vector<Pair> left = leading_pairs(transposed, rank, tolerance, products);
        const double rounding = a.rounding.empty() ? 0 : a.rounding.front() * op.factor();
        converged =
            !left.empty() && condition_of(found, left) * (residual + rounding) <= accuracy * value;
    }
    return estimate(converged ? value / op.factor() : 0, residual / op.factor(), products,
                    converged);
}

Estimate restarted_singular_value(const LinearMap& a, double tolerance) {
    check(a.cols >= least_restarted, "a restarted basis needs more tokens than it keeps");
    const Apply normal =
        a.normal ? a.normal : [&a](std::span<const double> x, std::span<double> y) {
            std::vector<double> image(std::size_t(a.rows));
            a.apply(x, image);
            a.transpose(image, y);
        };
    SpectraMap op(normal, a.cols);
    if (op.vanishes()) return estimate(0, 0, 1, true);
    Spectra::SymEigsSolver<SpectraMap> solver(op, 2, std::min(a.cols, largest_basis));
    solver.init();
    if (!solves(solver, Spectra::SortRule::LargestAlge, tolerance))
        return estimate(0, std::numeric_limits<double>::infinity(), solver.num_operations(), false);
    const double square = std::max(0.0, solver.eigenvalues()[0]);
    const Eigen::VectorXd v = solver.eigenvectors(1).col(0).normalized();
    const double scaled = (op * v - square * v).norm();
    const bool converged = agrees(scaled, square, tolerance);
    const double value = std::sqrt(square / op.factor()), residual = scaled / op.factor();
    return estimate(converged ? value : 0, value > 0 ? residual / value : residual,
                    solver.num_operations() + 1, converged);
}

}  // namespace tsdiag
