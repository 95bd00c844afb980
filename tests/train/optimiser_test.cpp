#include "train/optimiser.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "support/files.hpp"
#include "support/near.hpp"
#include "support/places.hpp"
#include "tsdiag/csv.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag::test {
namespace {

using training::Optimiser;

Tensor made(Shape shape, Type type, const std::function<double(Index)>& element) {
    std::vector<double> values;
    for (Index i = 0; i < shape.count(); ++i) values.push_back(element(i));
    return Tensor::from_host(cpu(), shape, std::span<const double>(values), type);
}

/// Eight steps as in make_adamw.py; w after each.
std::vector<std::vector<double>> steps(Shape shape, Type type, double factor) {
    Optimiser optimiser({.beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .decay = 0.2});
    const Tensor w = made(shape, type, [](Index i) { return std::cos(double(i)); });
    training::Parameters parameters;
    parameters.set("w", w);
    std::vector<std::vector<double>> out;
    for (Index t = 1; t <= 8; ++t) {
        const Tensor g = made(shape, type, [&](Index i) {
            return std::sin(double(i) + 2 * double(t)) / double(t) / factor;
        });
        optimiser.update(parameters, {{"w", g}}, factor, 0.1 / double(t), t);
        out.push_back(w.to_host<double>());
    }
    return out;
}

class Adam : public testing::TestWithParam<Type> {};

TEST_P(Adam, IsThatOfPyTorch) {
    const std::string text = read_file(test_data() + "/golden/adamw.csv");
    const auto matrix = steps({1, 3, 4}, GetParam(), 1), vector = steps({1, 1, 5}, GetParam(), 1);
    Index seen = 0;
    for (CsvReader in(text, "adamw.csv", "tensor,step,index,value"); in.next(); ++seen) {
        const auto& found = in.text(0) == "matrix" ? matrix : vector;
        EXPECT_TRUE(close(found[std::size_t(in.integer(1) - 1)][std::size_t(in.integer(2))],
                          in.required(3),
                          {.absolute = 100 * epsilon(GetParam()),
                           .reason = "eight steps, each a dozen roundings of numbers below 1"},
                          GetParam()))
            << in.text(0) << " step " << in.integer(1);
    }
    EXPECT_EQ(seen, 8 * 17);
}

TEST_P(Adam, ScalesGradientsByTheFactor) {
    const auto plain = steps({1, 3, 4}, GetParam(), 1), scaled = steps({1, 3, 4}, GetParam(), 0.25);
    EXPECT_TRUE(all_close(scaled.back(), plain.back(),
                          {.absolute = 100 * epsilon(GetParam()), .reason = "roundings"},
                          GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Types, Adam, testing::Values(Type::f32, Type::f64),
                         [](const auto& info) { return info.param == Type::f32 ? "f32" : "f64"; });

}  // namespace
}  // namespace tsdiag::test
