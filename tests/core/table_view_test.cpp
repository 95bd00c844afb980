#include "tsdiag/table_view.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tsdiag {
namespace {

TEST(Readable, OnlyOneIsShownAsOne) {
    EXPECT_EQ(readable(1), "1");
    EXPECT_EQ(readable(-1), "-1");
    EXPECT_EQ(readable(0), "0");
    EXPECT_EQ(readable(0.99997), "0.99997");
    EXPECT_EQ(readable(-0.99997), "-0.99997");
    EXPECT_EQ(readable(1.00003), "1.00003");
    EXPECT_EQ(readable(0.5), "0.5");
    EXPECT_EQ(readable(0.123456), "0.1235");
    EXPECT_EQ(readable(0.9994, 2), "0.999");
    for (int k = 1; k <= 52; ++k)
        for (const double value : {1 - std::ldexp(1.0, -k - 1), 1 + std::ldexp(1.0, -k)})
            for (const int digits : {2, 3, 4, 6}) {
                EXPECT_NE(readable(value, digits), "1") << k;
                EXPECT_NE(readable(-value, digits), "-1") << k;
            }
    EXPECT_EQ(readable(1 - 3e-15), "1 - 3e-15");
    EXPECT_EQ(readable(-1 - 2e-7), "-1 - 2e-07");
    EXPECT_NE(readable(std::numeric_limits<double>::denorm_min()), "0");
    EXPECT_NE(readable(-1e-300), "-0");
}

TEST(WithError, HasTwoDigitsOfTheErrorAndTheValueToTheSamePlace) {
    const std::string sign = " \u00b1 ";
    EXPECT_EQ(with_error(0.513234, 0.0041), "0.5132" + sign + "0.0041");
    EXPECT_EQ(with_error(0.513, 0.00398), "0.5130" + sign + "0.0040");
    EXPECT_EQ(with_error(-3.2, 0.999), "-3.2" + sign + "1.0");
    EXPECT_EQ(with_error(12345, 67), "12345" + sign + "67");
    EXPECT_EQ(with_error(12349, 670), "12350" + sign + "670");
    EXPECT_EQ(with_error(-1e-6, 0.0012), "0.0000" + sign + "0.0012");
    EXPECT_EQ(with_error(1.234e-8, 1.2e-10), "(1.234" + sign + "0.012)e-08");
    EXPECT_EQ(with_error(1e7, 3e5), "(1.000" + sign + "0.030)e+07");
    // Zeros are digits, too, however small the error is.
    EXPECT_EQ(with_error(1.3403, 1.7e-6), "1.3403000" + sign + "0.0000017");
    EXPECT_EQ(with_error(-1, 0.004), "-1.0000" + sign + "0.0040");
    EXPECT_EQ(with_error(0.123456789, 1e-9), "0.1234567890" + sign + "0.0000000010");
    EXPECT_EQ(with_error(2e12, 1), "(2.0000000000000" + sign + "0.0000000000010)e+12");
    // An error larger than the value.
    EXPECT_EQ(with_error(0.02, 3.1), "0.0" + sign + "3.1");
    EXPECT_EQ(with_error(-3e-9, 2e-5), "(0.0" + sign + "2.0)e-05");
    EXPECT_EQ(with_error(3, 4.2e8), "(0.0" + sign + "4.2)e+08");
    // An error that is the rounding of the value.
    EXPECT_EQ(with_error(1 - 3e-15, 1e-17), "1 - 3e-15");
    EXPECT_EQ(with_error(0.25, 1e-17), "0.25");
    EXPECT_EQ(with_error(0.123456, std::nullopt), "0.1235");
    EXPECT_EQ(with_error(0.5, 0.0), "0.5");
    // No number, and numbers below the least power of ten.
    const double none = std::numeric_limits<double>::quiet_NaN(),
                 least = std::numeric_limits<double>::denorm_min();
    EXPECT_EQ(with_error(none, 0.1), "nan");
    EXPECT_EQ(with_error(-std::numeric_limits<double>::infinity(), 0.1), "-inf");
    EXPECT_EQ(with_error(0.5, none), "0.5");
    EXPECT_EQ(with_error(least, least), "(4.9" + sign + "4.9)e-324");
    EXPECT_EQ(with_error(0, 1e-7), "(0.0" + sign + "1.0)e-07");
    EXPECT_EQ(with_error(0, 0.0), "0");
    EXPECT_EQ(with_error(1.5e308, 1e306), "(1.500" + sign + "0.010)e+308");
}

TEST(TableView, GivesALayerItsOwnNumberOrTheMeanOverHeads) {
    Table table("m");
    // Layer 0 has heads only, one of them undefined; layer 1 has a row of its own, which takes
    // precedence wherever it is; layer 2 has only a reason.
    for (const Index head : {0, 1, 2})
        table.scalar({.layer = 0, .stage = "attn", .head = head}, "delta",
                     head == 1 ? undefined("not there") : Value(double(1 + head)));
    table.scalar({.layer = 1, .stage = "attn", .head = 0}, "delta", Value(8.0));
    table.scalar({.layer = 1, .stage = "attn"}, "delta", Value(5.0));
    table.scalar({.layer = 1, .stage = "attn", .head = 1}, "delta", Value(9.0));
    table.scalar({.layer = 2, .stage = "attn"}, "delta", undefined("rows do not sum to 1"));
    table.scalar({.layer = 1, .stage = "in"}, "delta", Value(70.0));
    table.scalar({.layer = 1, .stage = "attn", .tensor = "q"}, "delta", Value(80.0));
    table.scalar({.stage = "attn"}, "delta", Value(90.0));
    const TableView view(table);

    const Depth depth = view.depth("m", "delta", "attn");
    ASSERT_EQ(depth.size(), 3U);
    EXPECT_EQ(depth.at(0).value, 2.0);
    EXPECT_EQ(depth.at(1).value, 5.0);
    EXPECT_FALSE(depth.at(2).value);
    EXPECT_EQ(view.depth("m", "delta", "attn", "q").at(1).value, 80.0);
    EXPECT_EQ(view.depth("m", "delta", "in").at(1).value, 70.0);
    EXPECT_TRUE(view.depth("other", "delta", "attn").empty());

    const Heads heads = view.heads("m", "delta");
    ASSERT_EQ(heads.size(), 5U);
    EXPECT_EQ(heads.at({0, 2}).value, 3.0);
    EXPECT_FALSE(heads.at({0, 1}).value);
    EXPECT_EQ(heads.at({1, 1}).value, 9.0);

    EXPECT_TRUE(view.has("delta"));
    EXPECT_FALSE(view.has("mu1"));
}

TEST(TableView, ShowsTheLastStepAndTheCourse) {
    Table table("m");
    for (const Index step : {0, 10, 20})
        for (const Index layer : {0, 1})
            table.scalar({.step = step, .layer = layer, .stage = "out"}, "t_sim",
                         Value(double(step + layer)));
    table.scalar({.step = 10, .layer = 0, .stage = "out", .tensor = "w"}, "t_sim", Value(7.0));
    table.scalar({.step = 10, .stage = "out"}, "t_sim", Value(7.0));
    const TableView view(table);
    EXPECT_EQ(view.models(), std::vector<std::string>{"m"});
    EXPECT_EQ(view.all().size(), 2U);
    EXPECT_EQ(view.depth("m", "t_sim", "out").at(1).value, 21.0);
    const Course course = view.course("t_sim", "out");
    ASSERT_EQ(course.size(), 2U);
    for (const Index layer : {0, 1}) {
        ASSERT_EQ(course.at(layer).size(), 3U);
        for (const Index step : {0, 10, 20})
            EXPECT_EQ(course.at(layer).at(step).value, double(step + layer));
    }
    EXPECT_TRUE(view.course("t_sim", "in").empty());
}

}  // namespace
}  // namespace tsdiag
