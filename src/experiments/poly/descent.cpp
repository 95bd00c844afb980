#include "descent.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <memory>
#include <new>
#include <vector>

#include "tsdiag/error.hpp"

#ifdef TSDIAG_LBFGS
#include <lbfgs.h>
#endif

namespace tsdiag::experiment_list {

#ifdef TSDIAG_LBFGS
namespace {

std::span<const double> seen(const double* x, int n) { return {x, std::size_t(n)}; }

/// What the callbacks of the library, which is C, need and leave behind.
struct Course {
    const Objective& f;
    const DescentVisitor& visit;
    Descent& done;
    std::exception_ptr thrown = {};
};

double evaluate(void* instance, const double* x, double* g, int n, double /*step*/) {
    Course& course = *static_cast<Course*>(instance);
    ++course.done.evaluations;
    const std::span<double> gradient(g, std::size_t(n));
    try {
        if (!course.thrown) return course.f(seen(x, n), gradient);
    } catch (...) {
        course.thrown = std::current_exception();
    }
    std::ranges::fill(gradient, 0.0);  // ends the line search
    return std::nan("");
}

int step_taken(void* instance, const double* x, const double* /*g*/, double f, double /*xnorm*/,
               double /*gnorm*/, double /*step*/, int n, int /*k*/, int /*evaluations*/) {
    Course& course = *static_cast<Course*>(instance);
    if (course.thrown) return 1;
    course.done.f = f;
    ++course.done.iterations;
    try {
        if (course.visit) course.visit(course.done.iterations, f, seen(x, n));
    } catch (...) {
        course.thrown = std::current_exception();
        return 1;
    }
    return 0;
}

double finite_start(std::span<const double> x, const Objective& f) {
    std::vector<double> gradient(x.size());
    const double start = f(x, gradient);
    if (!std::isfinite(start) ||
        !std::ranges::all_of(gradient, [](double g) { return std::isfinite(g); }))
        throw NonFiniteError("the loss or its gradient is not finite at the initial parameters");
    return start;
}

}  // namespace

Descent lbfgs(std::span<double> x, const Objective& f, const LbfgsOptions& options,
              const DescentVisitor& visit) {
    Descent done{.f = finite_start(x, f), .evaluations = 1};
    lbfgs_parameter_t how;
    lbfgs_parameter_init(&how);
    how.m = int(options.history);
    how.epsilon = options.gradient;
    how.linesearch = LBFGS_LINESEARCH_MORETHUENTE;
    how.max_linesearch = int(options.search);
    how.ftol = options.decrease;
    how.gtol = options.curvature;

    const std::unique_ptr<double, void (*)(double*)> memory(lbfgs_malloc(int(x.size())),
                                                            lbfgs_free);  // aligned as it needs it
    if (!memory) throw std::bad_alloc();
    const std::span<double> at(memory.get(), x.size());
    std::ranges::copy(x, at.begin());
    Course course{f, visit, done};
    while (done.iterations < options.iterations) {
        const Index before = done.iterations;
        how.max_iterations = int(options.iterations - before);
        // Its own result is f at the last x that it tried.
        const int status =
            ::lbfgs(int(x.size()), at.data(), nullptr, evaluate, step_taken, &course, &how);
        if (course.thrown) std::rethrow_exception(course.thrown);
        done.converged = status == LBFGS_CONVERGENCE || status == LBFGS_ALREADY_MINIMIZED;
        if (done.converged || status == LBFGSERR_MAXIMUMITERATION) break;
        if (done.iterations > before) continue;
        done.stuck = fmt::format(
            "no step down was found after {} iterations (libLBFGS says {}): the loss is {:.6g}",
            done.iterations, status, done.f);
        break;
    }
    std::ranges::copy(at, x.begin());
    return done;
}
#else
Descent lbfgs(std::span<double>, const Objective&, const LbfgsOptions&, const DescentVisitor&) {
    throw NotAvailable(
        "this tsdiag was built without libLBFGS, which fits the solutions of differential "
        "equations; install liblbfgs-dev and build again");
}
#endif

}  // namespace tsdiag::experiment_list
