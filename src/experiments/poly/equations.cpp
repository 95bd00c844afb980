#include "equations.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tsdiag/error.hpp"

namespace tsdiag::experiment_list {
namespace {

constexpr double pi = std::numbers::pi;
constexpr Index tokens_at_once = 1024;

Tensor convection_residual(double beta, const Tensor&, const Tensor& du) {
    return add(scale(du.col_range(0, 1), beta), du.col_range(1, 1));
}
double convection_exact(double beta, double x, double t) { return std::sin(x - beta * t); }

Tensor reaction_residual(double rho, const Tensor& u, const Tensor& du) {
    return subtract(du.col_range(1, 1), multiply(scale(u, rho), affine(u, -1, 1)));
}
double reaction_exact(double rho, double x, double t) {
    const double z = (x - pi) / (pi / 4), h = std::exp(-z * z / 2), grown = h * std::exp(rho * t);
    return grown / (grown + 1 - h);
}

/// The sum of squares, (1, 1, 1).
Tensor sum_of_squares(const Tensor& a) {
    return row_sum(map(Unary::square, contiguous(a)).reshape({1, 1, a.shape().count()}));
}

/// Rows of equal t that are computed together.
Index rows_at_once(const Collocation& grid) {
    return std::clamp<Index>(tokens_at_once / (grid.points * grid.sequence), 1, grid.points);
}

}  // namespace

extern const Equation convection = {.name = "Convection",
                                    .symbol = "u_t + beta u_x = 0",
                                    .residual = convection_residual,
                                    .exact = convection_exact};
extern const Equation reaction = {.name = "1D-Reaction",
                                  .symbol = "u_t - rho u (1 - u) = 0",
                                  .residual = reaction_residual,
                                  .exact = reaction_exact};

double Collocation::x(Index i) const { return 2 * pi * double(i) / double(points - 1); }
double Collocation::t(Index j) const { return double(j) / double(points - 1); }

Tensor Collocation::rows(const Backend& backend, Index first, Index count) const {
    std::vector<double> values;
    for (Index j = first; j < first + count; ++j)
        for (Index i = 0; i < points; ++i)
            for (Index k = 0; k < sequence; ++k) {
                values.push_back(x(i));
                values.push_back(t(j) + double(k) * step);
            }
    return Tensor::from_host(backend, {count * points, sequence, 2},
                             std::span<const double>(values), Type::f64);
}

Tensor derivatives(const Tensor& u, const Tensor& points) {
    const Tensor ones = affine(zeros(u.backend(), u.shape(), u.type()), 0, 1);
    return grad(u, ones, std::span(&points, 1), true)[0];
}

EquationLoss equation_loss(const Pinnsformer& model, const Backend& backend,
                           std::span<const double> parameters, const Equation& equation,
                           double coefficient, const Collocation& grid,
                           std::span<double> gradient) {
    check(gradient.empty() || gradient.size() == parameters.size(), "a derivative by each number");
    Pinnsformer::Parameters with = model.tensors(backend, parameters);
    std::vector<Tensor> wanted;
    if (!gradient.empty())
        for (const auto& [name, shape] : model.parameters()) {
            Tensor& tensor = with.at(name);
            tensor = variable(tensor);
            wanted.push_back(tensor);
        }
    const Index n = grid.points;
    std::vector<double> start;
    for (Index i = 0; i < n; ++i) start.push_back(equation.exact(coefficient, grid.x(i), 0));
    const Tensor initial =
        Tensor::from_host(backend, {n, 1, 1}, std::span<const double>(start), Type::f64);
    std::ranges::fill(gradient, 0.0);
    EquationLoss loss;
    const Index together = rows_at_once(grid);
    for (Index first = 0; first < n; first += together) {
        const Index rows = std::min(together, n - first);
        const Tensor points = variable(grid.rows(backend, first, rows));
        const Tensor u = model.forward(with, points);
        const Tensor residual =
            scale(sum_of_squares(equation.residual(coefficient, u, derivatives(u, points))),
                  1 / double(n * n * grid.sequence));
        std::vector<Index> left, right;
        for (Index j = 0; j < rows; ++j) left.push_back(j * n), right.push_back(j * n + n - 1);
        const Tensor by_point = u.reshape({1, rows * n, grid.sequence});
        const Tensor boundary = scale(
            sum_of_squares(subtract(gather_rows(by_point, right), gather_rows(by_point, left))),
            1 / double(n * grid.sequence));
        Tensor total = add(residual, boundary);
        loss.residual += residual.item();
        loss.boundary += boundary.item();
        if (first == 0) {
            const Tensor at_start =
                scale(sum_of_squares(subtract(u.batch_range(0, n).row_range(0, 1), initial)),
                      1 / double(n));
            loss.initial = at_start.item();
            total = add(total, at_start);
        }
        if (gradient.empty()) continue;
        const Tensor one = affine(zeros(backend, {1, 1, 1}, Type::f64), 0, 1);
        auto at = gradient.begin();
        for (const Tensor& g : grad(total, one, wanted))
            for (const double value : g.to_host<double>()) *at++ += value;
    }
    return loss;
}

std::vector<double> solution(const Pinnsformer& model, const Backend& backend,
                             std::span<const double> parameters, const Collocation& grid) {
    const Pinnsformer::Parameters with = model.tensors(backend, parameters);
    std::vector<double> out;
    const Index together = rows_at_once(grid);
    for (Index first = 0; first < grid.points; first += together) {
        const Index rows = std::min(together, grid.points - first);
        const Tensor u = model.forward(with, grid.rows(backend, first, rows));
        const std::vector<double> values = u.row_range(0, 1).to_host<double>();
        out.insert(out.end(), values.begin(), values.end());
    }
    return out;
}

RelativeErrors relative_errors(std::span<const double> u, std::span<const double> exact) {
    check(u.size() == exact.size(), "a number for each point");
    double apart = 0, size = 0, squares_apart = 0, squares = 0;
    for (std::size_t i = 0; i < u.size(); ++i) {
        const double difference = u[i] - exact[i];
        apart += std::abs(difference), size += std::abs(exact[i]);
        squares_apart += difference * difference, squares += exact[i] * exact[i];
    }
    return {apart / size, std::sqrt(squares_apart / squares)};
}

}  // namespace tsdiag::experiment_list
