#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numbers>

#include "experiments/poly/equations.hpp"
#include "support/near.hpp"
#include "tsdiag/backend.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/experiment.hpp"
#include "tsdiag/gradient.hpp"

/// PINNsformer against a twin in loops, its derivatives against differences, and its equations.
namespace tsdiag::experiment_list {
namespace {

using test::rounding;
using test::Tolerance;
using testing::HasSubstr;
using Vector = std::vector<double>;

constexpr double pi = std::numbers::pi;

PinnsformerSizes small(const char* attention, AttentionOptions options = {}) {
    return {.layers = 2,
            .d = 6,
            .heads = 2,
            .ffn = 5,
            .hidden = 7,
            .attention = attention,
            .options = std::move(options)};
}
/// Softmax, and the cube with a learned scale.
std::vector<Pinnsformer> models() {
    return {Pinnsformer(small("softmax")),
            Pinnsformer(small("polynomial", {{"p", "3"}, {"scale", "learned"}, {"start", "0.3"}}))};
}
/// As drawn, moved so that biases and omegas are all different.
Vector numbers_of(const Pinnsformer& model, std::uint64_t seed = 1) {
    Vector x = model.draw(Rng(seed));
    Rng rng(seed + 1);
    for (double& v : x) v += 0.1 * rng.normal();
    return x;
}

/// The network in loops: a row of numbers a token.
class Twin {
  public:
    using Rows = std::vector<Vector>;

    Twin(const Pinnsformer& model, const Vector& numbers) {
        auto at = numbers.begin();
        for (const auto& [name, shape] : model.parameters()) {
            values_[name].assign(at, at + shape.count());
            at += shape.count();
        }
    }
    double number(const std::string& name) const { return values_.at(name)[0]; }
    bool has(const std::string& name) const { return values_.contains(name); }

    /// Rows [first, first + rows) of the matrix.
    Rows linear(const Rows& x, const Vector& weight, const Vector& bias, std::size_t first,
                std::size_t rows) const {
        Rows y;
        for (const Vector& in : x) {
            y.emplace_back();
            for (std::size_t o = first; o < first + rows; ++o) {
                double sum = bias[o];
                for (std::size_t i = 0; i < in.size(); ++i)
                    sum += weight[o * in.size() + i] * in[i];
                y.back().push_back(sum);
            }
        }
        return y;
    }
    Rows linear(const Rows& x, const std::string& name) const {
        const Vector &weight = values_.at(name + ".weight"), &bias = values_.at(name + ".bias");
        return linear(x, weight, bias, 0, bias.size());
    }
    Rows wave(Rows x, const std::string& name) const {
        for (Vector& row : x)
            for (double& v : row)
                v = number(name + ".w1") * std::sin(v) + number(name + ".w2") * std::cos(v);
        return x;
    }
    Rows feed(const Rows& x, const std::string& name) const {
        const Rows a = wave(linear(x, name + ".0"), name + ".1");
        return linear(wave(linear(a, name + ".2"), name + ".3"), name + ".4");
    }
    Rows attend(const Rows& from, const Rows& to, const std::string& name) const {
        const Vector &weight = values_.at(name + ".in_proj_weight"),
                     &bias = values_.at(name + ".in_proj_bias");
        const std::size_t d = from[0].size(), heads = 2, w = d / heads;
        const Rows q = linear(from, weight, bias, 0, d), k = linear(to, weight, bias, d, d),
                   v = linear(to, weight, bias, 2 * d, d);
        Rows mixed(from.size(), Vector(d));
        for (std::size_t h = 0; h < heads; ++h)
            for (std::size_t i = 0; i < q.size(); ++i) {
                Vector p;
                double sum = 0;
                for (const Vector& key : k) {
                    double s = 0;
                    for (std::size_t c = h * w; c < h * w + w; ++c)
                        s += q[i][c] * key[c] / std::sqrt(double(w));
                    const bool cube = has(name + ".scale");
                    p.push_back(cube ? number(name + ".scale") * s * s * s : std::exp(s));
                    sum += cube ? 0 : p.back();
                }
                for (std::size_t j = 0; j < p.size(); ++j)
                    for (std::size_t c = h * w; c < h * w + w; ++c)
                        mixed[i][c] += p[j] / (sum > 0 ? sum : 1) * v[j][c];
            }
        return linear(mixed, name + ".out_proj");
    }
    static Rows plus(Rows a, const Rows& b) {
        for (std::size_t i = 0; i < a.size(); ++i)
            for (std::size_t c = 0; c < a[i].size(); ++c) a[i][c] += b[i][c];
        return a;
    }
    Vector operator()(const Rows& points) const {
        const Rows e = linear(points, "linear_emb");
        Rows memory;
        for (const std::string part : {"encoder", "decoder"}) {
            Rows h = e;
            for (const char* layer : {".layers.0", ".layers.1"}) {
                const std::string name = part + layer;
                const Rows q = wave(h, name + ".act1");
                h = plus(h, attend(q, part == "encoder" ? q : memory, name + ".attn"));
                h = plus(h, feed(wave(h, name + ".act2"), name + ".ff.linear"));
            }
            memory = wave(h, part + ".act");
        }
        Vector u;
        for (const Vector& row : feed(memory, "linear_out")) u.push_back(row[0]);
        return u;
    }

  private:
    std::map<std::string, Vector> values_;
};

Tensor tensor(Shape shape, const Vector& values) {
    return Tensor::from_host(cpu(), shape, std::span<const double>(values), Type::f64);
}

TEST(Pinnsformer, IsItsTwinInLoops) {
    for (const Pinnsformer& model : models()) {
        const Vector numbers = numbers_of(model);
        const Twin twin(model, numbers);
        const Vector points = {0.1, 0.2, 0.4, 0.9, -1, 0.3, 2, 0, 1, 1, 0.5, 0.7};
        Vector expected;
        for (std::size_t sample = 0; sample < 2; ++sample) {
            Twin::Rows rows;
            for (std::size_t i = 0; i < 3; ++i)
                rows.push_back({points[6 * sample + 2 * i], points[6 * sample + 2 * i + 1]});
            const Vector u = twin(rows);
            expected.insert(expected.end(), u.begin(), u.end());
        }
        EXPECT_TENSOR_NEAR(model.forward(model.tensors(cpu(), numbers), tensor({2, 3, 2}, points)),
                           expected,
                           rounding(1000));  // of ten sums of at most 7 terms, one after the other
    }
}

TEST(Pinnsformer, OfThePapersSizesHasAsManyParametersAsThePublishedCodePrints) {
    EXPECT_EQ(Pinnsformer({}).count(), 453561);
}

TEST(Pinnsformer, IsDrawnAsThePublishedCodeDrawsIt) {
    const Pinnsformer model(PinnsformerSizes{.attention = "polynomial",
                                             .options = {{"scale", "learned"}, {"start", "0.25"}}});
    const Vector x = model.draw(Rng(3));
    auto at = x.begin();
    for (const auto& [name, shape] : model.parameters()) {
        const auto end = at + shape.count();
        const auto [least, most] = std::ranges::minmax_element(at, end);
        if (name.ends_with("weight")) {
            const double bound = std::sqrt(6 / double(shape.rows + shape.cols));
            EXPECT_GT(*least, -bound) << name;
            EXPECT_LT(*most, bound) << name;
            EXPECT_GT(*most - *least, bound) << name;  // of 32 uniform numbers or more
        } else {
            const double value = name.ends_with("in_proj_bias") ? 0
                                 : name.ends_with("bias")       ? 0.01
                                 : name.ends_with("attn.scale") ? 0.25
                                                                : 1;
            EXPECT_EQ(*least, value) << name;
            EXPECT_EQ(*most, value) << name;
        }
        at = end;
    }
    EXPECT_NE(x, model.draw(Rng(4)));
}

TEST(Pinnsformer, RefusesHeadsThatDoNotDivideItsWidth) {
    EXPECT_THROW(Pinnsformer({.d = 6, .heads = 4}), UsageError);
    EXPECT_THROW(Pinnsformer(small("polynomial", {{"q", "3"}})), UsageError);
    ExperimentOptions options;
    options.scale = ExperimentScale::tiny;
    options.readings = {{"heads", "3"}};
    try {
        perform(experiment("poly.table6"), options);
        FAIL();
    } catch (const UsageError& e) {
        EXPECT_THAT(e.what(), HasSubstr("heads=3 do not divide d=4"));
    }
}

constexpr double step = 1e-4;
/// Truncation step^4 / 30 times a fifth derivative, below 1e6 here, and rounding of sums of some
/// 100 terms over the step.
constexpr Tolerance by_differences{.absolute = 1e-9, .reason = "differences of fourth order"};

Vector moved(Vector x, const Vector& direction, double by) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] += by * direction[i];
    return x;
}

TEST(Derivatives, AreThoseOfTheSumOverTheSequence) {
    for (const Pinnsformer& model : models()) {
        const auto with = model.tensors(cpu(), numbers_of(model));
        const Vector at = {0.1, 0.2, 0.4, 0.9, -1, 0.3, 2, 0, 1, 1, 0.5, 0.7};
        const Shape shape{2, 3, 2};
        const Tensor points = variable(tensor(shape, at));
        const Vector du = derivatives(model.forward(with, points), points).to_host<double>();
        for (std::size_t i = 0; i < at.size(); ++i) {
            Vector direction(at.size());
            direction[i] = 1;
            const auto sum = [&](double by) {
                double total = 0;
                for (const double u :
                     model.forward(with, tensor(shape, moved(at, direction, by))).to_host<double>())
                    total += u;
                return total;
            };
            EXPECT_CLOSE(du[i], test::derivative(sum, step), by_differences) << i;
        }
    }
}

/// The largest difference between `derivatives` of sequences with steps of `between` and those of u
/// of each token where the whole sequence moves.
double apart(const Pinnsformer& model, double between) {
    const auto with = model.tensors(cpu(), numbers_of(model));
    Vector at, along[2];
    for (int i = 0; i < 4; ++i) {
        at.insert(at.end(), {0.7, 0.3 + i * between});
        along[0].insert(along[0].end(), {1, 0});
        along[1].insert(along[1].end(), {0, 1});
    }
    const Shape shape{1, 4, 2};
    const Tensor points = variable(tensor(shape, at));
    const Vector du = derivatives(model.forward(with, points), points).to_host<double>();
    double most = 0;
    for (std::size_t i = 0; i < 4; ++i)
        for (std::size_t c = 0; c < 2; ++c) {
            const auto u = [&](double by) {
                return model.forward(with, tensor(shape, moved(at, along[c], by)))
                    .to_host<double>()[i];
            };
            most = std::max(most, std::abs(du[2 * i + c] - test::derivative(u, step)));
        }
    return most;
}

TEST(Derivatives, TendToThoseOfASequenceThatMoves) {
    for (const Pinnsformer& model : models()) {
        EXPECT_LT(apart(model, 0), by_differences.absolute);
        const double wide = apart(model, 2e-3), narrow = apart(model, 1e-3);
        EXPECT_GT(narrow, 10 * by_differences.absolute);
        EXPECT_CLOSE(wide / narrow, 2, Tolerance{.relative = 0.02, .reason = "of first order"});
    }
}

/// 1296 tokens, which are computed in two parts.
constexpr Collocation grid{.points = 12, .sequence = 9, .step = 1e-2};

TEST(EquationLoss, IsTheMeansOfSquaresOnTheGrid) {
    for (const auto& [equation, c] : {std::pair{&convection, 3.0}, std::pair{&reaction, 5.0}}) {
        const Pinnsformer model = models().back();
        const Vector x = numbers_of(model);
        const EquationLoss loss = equation_loss(model, cpu(), x, *equation, c, grid);
        const auto n = std::size_t(grid.points), length = std::size_t(grid.sequence);
        const Tensor points = variable(grid.rows(cpu(), 0, grid.points));
        const Tensor u = model.forward(model.tensors(cpu(), x), points);
        const Vector du = derivatives(u, points).to_host<double>(), value = u.to_host<double>();
        EquationLoss expected;
        for (std::size_t i = 0; i < value.size(); ++i) {
            const double v = value[i], u_x = du[2 * i], u_t = du[2 * i + 1];
            const double r = equation == &convection ? u_t + c * u_x : u_t - c * v * (1 - v);
            expected.residual += r * r / double(value.size());
        }
        for (std::size_t j = 0; j < n; ++j)
            for (std::size_t k = 0; k < length; ++k) {
                const double gap = value[(j * n + n - 1) * length + k] - value[j * n * length + k];
                expected.boundary += gap * gap / double(n * length);
            }
        for (std::size_t i = 0; i < n; ++i) {
            const double at = 2 * pi * double(i) / double(n - 1), z = (at - pi) / (pi / 4);
            const double start = equation == &convection ? std::sin(at) : std::exp(-z * z / 2);
            expected.initial += std::pow(value[i * length] - start, 2) / double(n);
        }
        EXPECT_CLOSE(loss.residual, expected.residual, rounding(1e4));
        EXPECT_CLOSE(loss.boundary, expected.boundary, rounding(1e4));
        EXPECT_CLOSE(loss.initial, expected.initial, rounding(1e4));
        EXPECT_EQ(loss.total(), loss.residual + loss.boundary + loss.initial);
    }
}

TEST(EquationLoss, HasTheGradientOfItsDifferences) {
    for (const Pinnsformer& model : models())
        for (const auto& [equation, c] : {std::pair{&convection, 3.0}, std::pair{&reaction, 5.0}}) {
            const Vector x = numbers_of(model);
            Vector gradient(x.size());
            const double loss =
                equation_loss(model, cpu(), x, *equation, c, grid, gradient).total();
            EXPECT_CLOSE(loss, equation_loss(model, cpu(), x, *equation, c, grid).total(),
                         rounding(1e4));
            auto direction = Vector(x.size());
            Rng rng(7);
            double slope = 0;
            for (std::size_t i = 0; i < x.size(); ++i) {
                direction[i] = rng.normal() / std::sqrt(double(x.size()));
                slope += gradient[i] * direction[i];
            }
            const auto f = [&](double by) {
                return equation_loss(model, cpu(), moved(x, direction, by), *equation, c, grid)
                    .total();
            };
            EXPECT_CLOSE(slope, test::derivative(f, 1e-5),
                         Tolerance{.relative = 1e-8, .reason = "differences of fourth order"});
        }
}

TEST(EquationLoss, IsReducedByADescentThroughTheExperiment) {
    ExperimentOptions options;
    options.scale = ExperimentScale::tiny;
    options.readings = {{"iterations", "12"}, {"trials", "1"}};
    const RunResult result = perform(experiment("poly.table6"), options);
    std::map<std::string, Vector> losses;
    for (const CurveRow& row : result.table.curves())
        if (row.curve == "train_loss") losses[row.model].push_back(row.y.value());
    EXPECT_EQ(losses.size(), 8u);
    for (const auto& [model, course] : losses) {
        EXPECT_EQ(course.size(), 12u) << model;
        EXPECT_TRUE(std::ranges::is_sorted(course, std::greater())) << model;
        EXPECT_LT(course.back(), 0.8 * course.front()) << model;
    }
}

TEST(EquationLoss, TheirPageTellsRunsThatEndedEarly) {
    const ExperimentEntry& entry = experiment("poly.table6");
    ExperimentOptions options;
    options.scale = ExperimentScale::tiny;
    Table table("Convection, x^3");
    for (const double stuck : {1.0, 0.0, 0.0}) table.scalar({}, "stuck", stuck);
    const std::vector<std::string> notes =
        entry.find(table, ExperimentSetting(entry, options)).notes;
    EXPECT_THAT(notes, testing::ElementsAre(
                           HasSubstr("Convection, x^3: in 1 of 3 runs L-BFGS found no step down")));
}

/// Each closed form solves its equation, by differences, and its conditions.
TEST(Equations, AreSolvedByTheirClosedForms) {
    for (const auto& [equation, c] : {std::pair{&convection, 50.0}, std::pair{&convection, 2.0},
                                      std::pair{&reaction, 5.0}, std::pair{&reaction, 0.5}}) {
        Rng rng(5);
        for (int i = 0; i < 20; ++i) {
            const double x = 2 * pi * rng.uniform(), t = rng.uniform();
            const double u_x =
                test::derivative([&](double h) { return equation->exact(c, x + h, t); }, step);
            const double u_t =
                test::derivative([&](double h) { return equation->exact(c, x, t + h); }, step);
            const Tensor residual = equation->residual(
                c, tensor({1, 1, 1}, {equation->exact(c, x, t)}), tensor({1, 1, 2}, {u_x, u_t}));
            // rounding of u over the step, and a fifth derivative, at most (c + 6)^5, times the
            // coefficient
            EXPECT_CLOSE(residual.item(), 0,
                         Tolerance{.absolute = (1 + c) * (1e-15 / step + std::pow(step, 4) / 30 *
                                                                             std::pow(c + 6, 5))});
            EXPECT_CLOSE(equation->exact(c, 0, t), equation->exact(c, 2 * pi, t),
                         Tolerance{.absolute = 1e-14});
        }
    }
    EXPECT_CLOSE(convection.exact(50, 1, 0), std::sin(1), test::exactly);
    EXPECT_CLOSE(reaction.exact(5, pi, 0), 1, test::exactly);
    // [POLY] (75) without the minus sign would begin at e^8 here
    EXPECT_CLOSE(reaction.exact(5, 0, 0), std::exp(-8), rounding(4));
    EXPECT_CLOSE(reaction.exact(5, 1, 0), std::exp(-8 * std::pow((1 - pi) / pi, 2)), rounding(8));
}

TEST(Equations, ErrorsAreRelativeToTheClosedForm) {
    const Vector u = {1, 0, -2}, exact = {2, 1, -2};
    const RelativeErrors found = relative_errors(u, exact);
    EXPECT_CLOSE(found.rmae, 2.0 / 5, rounding(4));
    EXPECT_CLOSE(found.rmse, std::sqrt(2.0 / 9), rounding(4));
}

TEST(Equations, SolutionsAreThoseOfTheFirstTokens) {
    const Pinnsformer model = models().front();
    const Vector x = numbers_of(model);
    const Vector u = solution(model, cpu(), x, grid);
    const Tensor all = model.forward(model.tensors(cpu(), x), grid.rows(cpu(), 0, grid.points));
    EXPECT_ALL_CLOSE(u, all.row_range(0, 1).to_host<double>(), rounding(100));
}

}  // namespace
}  // namespace tsdiag::experiment_list
