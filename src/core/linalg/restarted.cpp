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

/// A map with the interface that Spectra expects.
class SpectraMap {
  public:
    using Scalar = double;
    SpectraMap(const Apply& apply, Index n) : apply_(apply), n_(n) {}
    Eigen::Index rows() const { return n_; }
    Eigen::Index cols() const { return n_; }
    void perform_op(const double* x, double* y) const {
        apply_({x, std::size_t(n_)}, {y, std::size_t(n_)});
    }
    Eigen::VectorXd operator*(const Eigen::VectorXd& x) const {
        Eigen::VectorXd y(n_);
        perform_op(x.data(), y.data());
        return y;
    }

  private:
    const Apply& apply_;
    Index n_;
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

/// A zero map, for which Spectra finds no basis.
bool vanishes(const SpectraMap& op, Index n) {
    auto x = std::vector<double>(std::size_t(n));
    Rng(0x72657374).fill_normal(x, 0, 1);
    return (op * Eigen::Map<const Eigen::VectorXd>(x.data(), n)).isZero(0);
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
    if (vanishes(op, a.rows)) return estimate(0, 0, 1, true);
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
    return estimate(converged ? value : 0, residual, solver.num_operations() + 2, converged);
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
    if (vanishes(op, a.cols)) return estimate(0, 0, 1, true);
    Spectra::SymEigsSolver<SpectraMap> solver(op, 2, std::min(a.cols, largest_basis));
    solver.init();
    if (!solves(solver, Spectra::SortRule::LargestAlge, tolerance))
        return estimate(0, std::numeric_limits<double>::infinity(), solver.num_operations(), false);
    const double square = std::max(0.0, solver.eigenvalues()[0]), value = std::sqrt(square);
    const Eigen::VectorXd v = solver.eigenvectors(1).col(0).normalized();
    const double residual = (op * v - square * v).norm();
    const bool converged = agrees(residual, square, tolerance);
    return estimate(converged ? value : 0, value > 0 ? residual / value : residual,
                    solver.num_operations() + 1, converged);
}

}  // namespace tsdiag
