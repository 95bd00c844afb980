#include "tsdiag/gradient.hpp"

#include <gtest/gtest.h>

#include "support/differences.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

using namespace test;

struct Op {
    const char* name;
    Function f;
    Inputs x;
};

Visible lower(Index n) {
    Visible v;
    v.first.assign(std::size_t(n), 0);
    for (Index i = 0; i < n; ++i) v.last.push_back(i + 1);
    return v;
}

Op unary(const char* name, Unary op, double mean = 0) {
    return {name, [op](const Inputs& x) { return map(op, x[0]); }, {drawn({2, 3, 4}, 11, mean)}};
}

Op pair(const char* name, Binary op, Shape b) {
    return {name,
            [op](const Inputs& x) { return zip(op, x[0], x[1]); },
            // Divisors are far from 0; in a maximum either side is the greater one somewhere.
            {drawn({2, 3, 4}, 12), op == Binary::divide ? drawn(b, 13, 3, 0.3) : drawn(b, 13)}};
}

Op product(const char* name, Transpose t, Shape a, Shape b) {
    return {name,
            [t](const Inputs& x) { return matmul(x[0], x[1], t, 0.7); },
            {drawn(a, 14), drawn(b, 15)}};
}

std::vector<Op> functions_of_one_number() {
    return {unary("copy", Unary::copy),
            unary("negate", Unary::negate),
            unary("relu", Unary::relu),
            unary("gelu", Unary::gelu),
            unary("gelu_tanh", Unary::gelu_tanh),
            unary("gelu_quick", Unary::gelu_quick),
            unary("silu", Unary::silu),
            unary("tanh", Unary::tanh),
            unary("sigmoid", Unary::sigmoid),
            unary("exp", Unary::exp),
            unary("elu", Unary::elu),
            unary("elu_plus_one", Unary::elu_plus_one),
            unary("square", Unary::square),
            unary("sqrt", Unary::sqrt, 9),
            unary("reciprocal", Unary::reciprocal, 9),
            unary("sine", Unary::sine),
            unary("cosine", Unary::cosine),
            unary("log", Unary::log, 9),
            unary("step", Unary::step),
            unary("normal_cdf", Unary::normal_cdf)};
}

std::vector<Op> pairs_and_products() {
    std::vector<Op> all;
    for (const auto& [op, name] : {std::pair{Binary::add, "add"},
                                   {Binary::subtract, "subtract"},
                                   {Binary::multiply, "multiply"},
                                   {Binary::divide, "divide"},
                                   {Binary::maximum, "maximum"}})
        for (const Shape b : {Shape{2, 3, 4}, Shape{1, 1, 4}, Shape{2, 3, 1}, Shape{1, 3, 4},
                              Shape{2, 1, 1}, Shape{1, 1, 1}})
            all.push_back(pair(name, op, b));
    all.push_back(product("a b", Transpose::none, {4, 3, 5}, {4, 5, 2}));
    all.push_back(product("a b, grouped", Transpose::none, {4, 3, 5}, {2, 5, 2}));
    all.push_back(product("a b^T", Transpose::second, {4, 3, 5}, {4, 2, 5}));
    all.push_back(product("a b^T, grouped", Transpose::second, {4, 3, 5}, {1, 2, 5}));
    all.push_back(product("a^T b", Transpose::first, {4, 5, 3}, {4, 5, 2}));
    all.push_back(product("a^T b, grouped", Transpose::first, {4, 5, 3}, {2, 5, 2}));
    all.push_back({"linear",
                   [](const Inputs& x) { return linear(x[0], x[1], x[2]); },
                   {drawn({2, 3, 4}, 16), drawn({1, 5, 4}, 17), drawn({1, 1, 5}, 18)}});
    all.push_back(
        {"affine", [](const Inputs& x) { return affine(x[0], -2, 5); }, {drawn({2, 3, 4}, 19)}});
    return all;
}

std::vector<Op> norms_and_sums() {
    const Inputs with_weights = {drawn({2, 3, 6}, 21), drawn({1, 1, 6}, 22), drawn({1, 1, 6}, 23)};
    const Inputs x = {drawn({2, 5, 5}, 24)};
    return {
        {"layer_norm", [](const Inputs& t) { return layer_norm(t[0], t[1], t[2], 1e-3); },
         with_weights},
        {"layer_norm without weights",
         [](const Inputs& t) { return layer_norm(t[0], {}, {}, 1e-3); }, x},
        {"rms_norm", [](const Inputs& t) { return add(rms_norm(t[0], t[1], 1e-3), t[2]); },
         with_weights},
        {"row_sum", [](const Inputs& t) { return row_sum(t[0]); }, x},
        {"row_max", [](const Inputs& t) { return row_max(t[0]); }, x},
        {"column_sum", [](const Inputs& t) { return column_sum(t[0]); }, x},
        {"subtract_column_mean", [](const Inputs& t) { return subtract_column_mean(t[0]); }, x},
        {"softmax_rows", [](const Inputs& t) { return softmax_rows(t[0], {}); }, x},
        {"softmax_rows of a triangle", [](const Inputs& t) { return softmax_rows(t[0], lower(5)); },
         x},
        {"hide", [](const Inputs& t) { return hide(t[0], lower(5)); }, x},
        {"log_sum_exp", [](const Inputs& t) { return log_sum_exp(t[0]); }, x},
    };
}

std::vector<Op> moves() {
    const Inputs x = {drawn({1, 5, 6}, 31)}, batched = {drawn({2, 5, 6}, 32)};
    const Inputs two = {drawn({2, 3, 4}, 33), drawn({2, 3, 4}, 34)};
    return {
        {"row_range", [](const Inputs& t) { return t[0].row_range(1, 3); }, batched},
        {"col_range", [](const Inputs& t) { return t[0].col_range(2, 3); }, batched},
        {"batch_range", [](const Inputs& t) { return t[0].batch_range(1, 1); }, batched},
        {"split_heads", [](const Inputs& t) { return t[0].split_heads(3); }, x},
        {"merge_heads", [](const Inputs& t) { return merge_heads(t[0]); }, batched},
        {"split_heads of samples", [](const Inputs& t) { return split_heads(t[0], 3); }, batched},
        {"merge_heads of samples",
         [](const Inputs& t) { return merge_heads(t[0], 2); },
         {drawn({4, 3, 2}, 35)}},
        {"concat_batches",
         [](const Inputs& t) {
             return concat_batches(std::vector<Tensor>{t[0], t[1].batch_range(1, 1)});
         },
         two},
        {"reshape",
         [](const Inputs& t) {
             return t[0].reshape({5, 3, 4});
         },
         batched},
        {"contiguous",
         [](const Inputs& t) {
             return contiguous(t[0].col_range(1, 2)).reshape({1, 4, 5});
         },
         batched},
        {"transpose", [](const Inputs& t) { return transpose(t[0]); }, batched},
        {"rotate",
         [](const Inputs& t) {
             const std::vector<double> position = {0, 1, 2, 5, 9}, frequency = {1, 0.1};
             return rotate(t[0], position, frequency, false);
         },
         batched},
        {"rotate interleaved",
         [](const Inputs& t) {
             const std::vector<double> position = {0, 1, 2, 5, 9}, frequency = {1, 0.1};
             return rotate(t[0], position, frequency, true);
         },
         batched},
        {"gather_rows",
         [](const Inputs& t) {
             return gather_rows(t[0], std::vector<Index>{4, 0, 4, 2});
         },
         x},
        {"scatter_add_rows",
         [](const Inputs& t) {
             return scatter_add_rows(t[0], std::vector<Index>{6, 0, 6, 2, 3}, 8);
         },
         x},
        {"pick",
         [](const Inputs& t) {
             return pick(t[0], std::vector<Index>{5, 0, 3, 3, 1});
         },
         x},
        {"concat_rows",
         [](const Inputs& t) {
             return concat_rows({t[0], t[1], t[0]});
         },
         two},
        {"concat_cols",
         [](const Inputs& t) {
             return concat_cols(std::vector<Tensor>{t[0], t[1], t[0]});
         },
         two},
        {"place",
         [](const Inputs& t) {
             return place(t[0], {3, 9, 8}, 1, 2, 1);
         },
         batched},
        {"expand",
         [](const Inputs& t) {
             return expand(row_sum(t[0]), {2, 5, 3});
         },
         batched},
        {"reduce_to",
         [](const Inputs& t) {
             return reduce_to(t[0], {1, 1, 6});
         },
         batched},
        {"repeat_batches", [](const Inputs& t) { return repeat_batches(t[0], 3); }, batched},
    };
}

std::vector<Op> all_ops() {
    std::vector<Op> all;
    for (const auto& list :
         {functions_of_one_number(), pairs_and_products(), norms_and_sums(), moves()})
        all.insert(all.end(), list.begin(), list.end());
    return all;
}

TEST(Gradient, OfEveryOpIsThatOfDifferences) {
    for (const Op& op : all_ops()) {
        SCOPED_TRACE(op.name);
        expect_gradient(op.f, op.x);
    }
}

TEST(Gradient, OfEveryGradientIsThatOfDifferences) {
    for (const Op& op : all_ops()) {
        SCOPED_TRACE(op.name);
        // Squared, so that the second derivative of a linear op is not 0.
        expect_second_gradient([&](const Inputs& x) { return map(Unary::square, op.f(x)); }, op.x);
    }
}

TEST(Gradient, OfEveryOpInFloat32IsThatInFloat64) {
    for (const Op& op : all_ops()) {
        SCOPED_TRACE(op.name);
        const Tensor u = drawn(op.f(op.x).shape(), 5);
        Inputs narrow;
        for (const Tensor& t : op.x) narrow.push_back(cast(t, Type::f32));
        const Inputs found = gradient_of(op.f, narrow, cast(u, Type::f32)),
                     expected = gradient_of(op.f, op.x, u);
        for (std::size_t k = 0; k < found.size(); ++k)
            EXPECT_TENSOR_NEAR(found[k], expected[k], rounding(256));
    }
}

TEST(Gradient, AddsWhatComesByEveryPath) {
    // y = x^2 + 3 x, with x in a product with itself as well.
    const Tensor x = variable(drawn({1, 2, 2}, 41));
    const Tensor y = add(add(multiply(x, x), scale(x, 3)), matmul(x, x));
    const Tensor u = drawn({1, 2, 2}, 42);
    const Tensor expected = add(
        add(multiply(u, affine(x.detached(), 2, 3)), matmul(u, x.detached(), Transpose::second)),
        matmul(x.detached(), u, Transpose::first));
    EXPECT_TENSOR_NEAR(grad(y, u, std::span(&x, 1))[0], expected, rounding(8));
}

TEST(Gradient, MayBeTakenByWhatLiesBetween) {
    const Tensor x = variable(drawn({1, 2, 3}, 43));
    const Tensor z = map(Unary::square, x), y = map(Unary::exp, z);
    const Tensor u = drawn({1, 2, 3}, 44);
    const std::vector<Tensor> g = grad(y, u, std::vector<Tensor>{z, x});
    EXPECT_TENSOR_NEAR(g[0], multiply(u, y.detached()), rounding(4));
    EXPECT_TENSOR_NEAR(g[1], multiply(g[0], scale(x.detached(), 2)), rounding(4));
}

TEST(Gradient, IsZeroWhereThereIsNoPath) {
    const Tensor x = variable(drawn({1, 2, 3}, 45)), other = variable(drawn({2, 1, 1}, 46));
    const Tensor y = scale(x, 2);
    const std::vector<Tensor> g = grad(y, y.detached(), std::vector<Tensor>{other});
    EXPECT_EQ(g[0].shape(), other.shape());
    EXPECT_EQ(squared_norm(g[0]), 0);
}

TEST(Gradient, RecordsNothingOfWhatIsNotTracked) {
    for (const Op& op : all_ops()) EXPECT_FALSE(op.f(op.x).tracked()) << op.name;
    EXPECT_FALSE(add(variable(one()).detached(), one()).tracked());
}

/// softmax_rows and hide overwrite unshared memory: a derivative that needs its own result keeps
/// a reference to it.
TEST(Gradient, IsNotSpoiltByOpsThatConsume) {
    const Function f = [](const Inputs& x) {
        return hide(softmax_rows(map(Unary::exp, x[0]), lower(4)), lower(4));
    };
    expect_gradient(f, {drawn({2, 4, 4}, 47)});
    const Tensor s = variable(drawn({1, 3, 3}, 48));
    const Tensor y = softmax_rows(s, {});
    EXPECT_TENSOR_NEAR(s, drawn({1, 3, 3}, 48), exactly);
    EXPECT_TRUE(y.tracked());
}

TEST(Gradient, OfSqrtAtZeroDoesNotSpoilAZero) {
    const Tensor x = variable(zeros(cpu(), {1, 2, 3}, Type::f64));
    const Tensor length = map(Unary::sqrt, row_sum(map(Unary::square, x)));
    const Tensor g = grad(length, affine(length.detached(), 0, 1), std::span(&x, 1))[0];
    EXPECT_EQ(squared_norm(g), 0);
}

TEST(Gradient, WithDerivativeHasTheValueOfOneAndTheDerivativeOfTheOther) {
    const Tensor x = variable(drawn({1, 2, 3}, 49)), value = drawn({1, 2, 3}, 50);
    const Tensor y = with_derivative(value, map(Unary::square, x));
    EXPECT_TENSOR_NEAR(y, value, exactly);
    EXPECT_TENSOR_NEAR(grad(y, value, std::span(&x, 1))[0], multiply(value, scale(x.detached(), 2)),
                       rounding(4));
    EXPECT_FALSE(with_derivative(value, x.detached()).tracked());
}

TEST(Gradient, SaysWhatIsWrong) {
    const Tensor x = variable(one());
    EXPECT_THROW(grad(x, zeros(cpu(), {1, 2, 1}, Type::f64), std::span(&x, 1)), ShapeError);
    const Tensor plain = one();
    EXPECT_THROW(grad(x, one(), std::span(&plain, 1)), ShapeError);
    EXPECT_THROW(reduce_to(zeros(cpu(), {1, 2, 3}, Type::f64), {1, 2, 2}), ShapeError);
    EXPECT_THROW(pick(zeros(cpu(), {1, 1, 3}, Type::f64), std::vector<Index>{3}), ShapeError);
    for (const Index row : {-1, 3}) {
        const std::vector<Index> rows{row};
        EXPECT_THROW(scatter_add_rows(one(), rows, 3), ShapeError);
        EXPECT_THROW(gather_rows(zeros(cpu(), {1, 3, 1}, Type::f64), rows), ShapeError);
    }
}

}  // namespace
}  // namespace tsdiag
