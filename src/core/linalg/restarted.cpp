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

}  // namespace

Estimate restarted_eigenvalue(const LinearMap& a, double tolerance, Index rank) {
    check(a.rows >= least_restarted, "a restarted basis needs more tokens than it keeps");
    SpectraMap op(a.apply, a.rows);
    if (op.vanishes()) return estimate(0, 0, 1, true);
    const Index kept = rank + 1;
    Spectra::GenEigsSolver<SpectraMap> solver(op, kept, std::min(a.rows, largest_basis));
    solver.init();
    if (!solves(solver, Spectra::SortRule::LargestMagn, tolerance))
        return estimate(0, std::numeric_limits<double>::infinity(), solver.num_operations(), false);
    const std::complex<double> theta = solver.eigenvalues()[rank - 1];
    const Eigen::VectorXcd v = solver.eigenvectors(rank).col(rank - 1).normalized();
    const Eigen::VectorXd real = op * Eigen::VectorXd(v.real()),
                          imaginary = op * Eigen::VectorXd(v.imag());
    const double square =
        (real - (theta * v).real()).squaredNorm() + (imaginary - (theta * v).imag()).squaredNorm();
    const double value = std::abs(theta), residual = std::sqrt(square);
    const bool converged = agrees(residual, value, tolerance);
    return estimate(converged ? value / op.factor() : 0, residual / op.factor(),
                    solver.num_operations() + 2, converged);
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
