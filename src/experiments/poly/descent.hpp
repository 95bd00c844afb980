#pragma once
#include <functional>
#include <span>
#include <string>

#include "tsdiag/tensor.hpp"

/// L-BFGS with a line search for the strong Wolfe conditions, by the library libLBFGS.
namespace tsdiag::experiment_list {

/// f(x); writes its gradient.
using Objective = std::function<double(std::span<const double> x, std::span<double> gradient)>;
/// After each iteration; the first is 1.
using DescentVisitor = std::function<void(Index iteration, double f, std::span<const double> x)>;

struct LbfgsOptions {
    Index iterations = 1000;  ///< at most
    Index history = 100;      ///< pairs of steps and differences of gradients that are kept
    Index search = 25;        ///< evaluations of a line search, at most
    /// A step t along p is taken where f(x + t p) <= f(x) + decrease t g.p and |g(x + t p).p| <=
    /// curvature |g.p|.
    double decrease = 1e-4, curvature = 0.9;
    double gradient = 1e-9;  ///< ends where |g| <= this times max(1, |x|)
};

struct Descent {
    double f = 0;  ///< at the end
    Index iterations = 0, evaluations = 0;
    bool converged = false;  ///< the gradient vanished
    std::string stuck = {};  ///< a sentence where it ended for another reason than `iterations`
};

/// Minimises f from x, in place.  Where a line search fails after at least one step, it begins
/// again at the last x without history.  What f throws is rethrown.  Throws `NonFiniteError` where
/// f or its gradient is not finite at the first x, `NotAvailable` where it was built without the
/// library.
Descent lbfgs(std::span<double> x, const Objective& f, const LbfgsOptions& options,
              const DescentVisitor& visit = {});

}  // namespace tsdiag::experiment_list
