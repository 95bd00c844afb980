#include <limits>

#include "checkpoint/samples.hpp"

namespace tsdiag {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A tensor that owns its bytes.
RawTensor tensor_of(DType dtype, const std::string& content, std::vector<std::int64_t> shape) {
    RawTensor tensor;
    const auto memory = std::make_shared<std::string>(content);
    tensor.dtype = dtype;
    tensor.dtype_name = name(dtype);
    tensor.shape = std::move(shape);
    tensor.strides.assign(tensor.shape.size(), 1);
    for (std::size_t k = tensor.shape.size(); k-- > 1;)
        tensor.strides[k - 1] = tensor.strides[k] * tensor.shape[k];
    tensor.bytes = std::as_bytes(std::span(*memory));
    tensor.owner = memory;
    return tensor;
}

template <class T>
RawTensor tensor_of(DType dtype, std::initializer_list<T> numbers) {
    return tensor_of(dtype, samples::raw(numbers), {std::int64_t(numbers.size())});
}

TEST(Widen, EveryFloat16IsWidenedExactly) {
    std::string all;
    for (std::uint32_t bits = 0; bits < 65536; ++bits) {
        all += char(bits & 0xff);
        all += char(bits >> 8);
    }
    const std::vector<double> found = samples::values(tensor_of(DType::f16, all, {65536}));
    for (int bits = 0; bits < 65536; ++bits) {
        const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
        const double sign = bits >> 15 ? -1 : 1;
        const double expected = exponent == 31  ? (mantissa ? NAN : sign * INFINITY)
                                : exponent == 0 ? sign * std::ldexp(mantissa, -24)
                                                : sign * std::ldexp(1024 + mantissa, exponent - 25);
        ASSERT_THAT(found[std::size_t(bits)], testing::NanSensitiveDoubleEq(expected)) << bits;
    }
}

TEST(Widen, EveryFloat8IsWidenedExactly) {
    std::string all;
    for (int bits = 0; bits < 256; ++bits) all += char(bits);
    const auto e4m3 = samples::values(tensor_of(DType::f8_e4m3, all, {256}));
    const auto e5m2 = samples::values(tensor_of(DType::f8_e5m2, all, {256}));
    for (int bits = 0; bits < 256; ++bits) {
        const double sign = bits >> 7 ? -1 : 1;
        const int e4 = bits >> 3 & 15, m3 = bits & 7, e5 = bits >> 2 & 31, m2 = bits & 3;
        const double four = (bits & 127) == 127 ? NAN
                            : e4 == 0           ? sign * std::ldexp(m3, -9)
                                                : sign * std::ldexp(8 + m3, e4 - 10);
        const double five = e5 == 31  ? (m2 ? NAN : sign * INFINITY)
                            : e5 == 0 ? sign * std::ldexp(m2, -16)
                                      : sign * std::ldexp(4 + m2, e5 - 17);
        const auto at = std::size_t(bits);
        ASSERT_THAT(e4m3[at], testing::NanSensitiveDoubleEq(four)) << bits;
        ASSERT_THAT(e5m2[at], testing::NanSensitiveDoubleEq(five)) << bits;
    }
}

TEST(Widen, IntegersAndBooleansBecomeTheirValues) {
    EXPECT_THAT(samples::values(tensor_of<std::uint8_t>(DType::boolean, {0, 1, 7})),
                ElementsAre(0, 1, 1));
    EXPECT_THAT(samples::values(tensor_of<std::int8_t>(DType::i8, {-128, 127})),
                ElementsAre(-128, 127));
    EXPECT_THAT(samples::values(tensor_of<std::uint32_t>(DType::u32, {4294967295u})),
                ElementsAre(4294967295.0));
    EXPECT_THAT(samples::values(tensor_of<std::int64_t>(DType::i64, {INT64_MIN})),
                ElementsAre(-0x1p63));
    EXPECT_THAT(samples::values(tensor_of<std::uint64_t>(DType::u64, {UINT64_MAX})),
                ElementsAre(0x1p64));
    std::vector<float> rounded(1);
    widen<float>(tensor_of<std::int64_t>(DType::i64, {16777217}), rounded);
    EXPECT_EQ(rounded[0], 16777216.0f);
}

TEST(Widen, FollowsStridesOffsetsAndByteOrder) {
    RawTensor t = tensor_of<float>(DType::f32, {0, 1, 2, 3, 4, 5, 6, 7});
    t.shape = {2, 3};
    t.strides = {1, 2};
    t.offset = 1;
    EXPECT_FALSE(t.contiguous());
    EXPECT_THAT(samples::values(t), ElementsAre(1, 3, 5, 2, 4, 6));
    t.strides = {0, 2};
    EXPECT_THAT(samples::values(t), ElementsAre(1, 3, 5, 1, 3, 5));
    RawTensor big = tensor_of(DType::f32, std::string("\x3f\x80\0\0\xc0\0\0\0", 8), {2});
    big.big_endian = true;
    EXPECT_THAT(samples::values(big), ElementsAre(1, -2));
    EXPECT_FALSE(as_is<float>(big).has_value());
}

TEST(Widen, TakesScalarsAndEmptyTensors) {
    EXPECT_THAT(samples::values(tensor_of(DType::f64, samples::raw<double>({0.1}), {})),
                ElementsAre(0.1));
    const RawTensor empty = tensor_of(DType::f32, "", {0, 4});
    EXPECT_EQ(empty.count(), 0);
    EXPECT_TRUE(empty.contiguous());
    EXPECT_TRUE(as_is<float>(empty).has_value());
    EXPECT_TRUE(samples::values(empty).empty());
}

TEST(Widen, RefusesTheWrongRoomAndTheWrongType) {
    const RawTensor t = tensor_of<float>(DType::f32, {1, 2});
    std::vector<float> room(3);
    EXPECT_THAT(samples::message_of<ShapeError>([&] { widen<float>(t, room); }),
                HasSubstr("2 elements, expected 3"));
    const RawTensor c = tensor_of(DType::c64, std::string(8, '\0'), {1});
    EXPECT_THROW(widen<float>(c, std::span(room).first(1)), NotAvailable);
    EXPECT_THROW(summarise(c), NotAvailable);
}

TEST(Summarise, CountsNonFiniteElementsAndLeavesThemOut) {
    std::string content;
    for (int i = 0; i < 10000; ++i) content += samples::raw<float>({i == 7001 ? NAN : 1.0f});
    content += samples::raw<float>({-3.0f, INFINITY, 2.0f});
    const TensorSummary s = summarise(tensor_of(DType::f32, content, {10003}));
    EXPECT_EQ(s.nonfinite, 2);
    EXPECT_EQ(s.first_nonfinite, 7001);
    EXPECT_EQ(s.sum, 9999 - 3 + 2);  // exactly: small integers
    EXPECT_EQ(s.norm, std::sqrt(9999.0 + 9 + 4));
    EXPECT_EQ(s.minimum, -3);
    EXPECT_EQ(s.maximum, 2);
}

TEST(Summarise, AgreesWithAPlainLoopOnStridedTensors) {
    RawTensor t = tensor_of(DType::i16, std::string(2 * 3000, '\0'), {50, 60});
    std::string content;
    for (int i = 0; i < 3000; ++i)
        content += samples::raw<std::int16_t>({std::int16_t(i * 7919 % 2003 - 1000)});
    t = tensor_of(DType::i16, content, {50, 60});
    t.shape = {60, 50};
    t.strides = {1, 60};
    double sum = 0, squares = 0;
    for (const double x : samples::values(t)) sum += x, squares += x * x;
    const TensorSummary s = summarise(t);
    EXPECT_EQ(s.sum, sum);  // exactly: integers below 2^53
    EXPECT_EQ(s.norm, std::sqrt(squares));
    EXPECT_EQ(s.nonfinite, 0);
    EXPECT_FALSE(s.first_nonfinite.has_value());
}

TEST(Summarise, HasNoExtremesWhereNothingIsFinite) {
    const TensorSummary none = summarise(tensor_of<float>(DType::f32, {NAN, INFINITY}));
    EXPECT_FALSE(none.minimum.has_value());
    EXPECT_EQ(none.first_nonfinite, 0);
    const TensorSummary empty = summarise(tensor_of(DType::f32, "", {0}));
    EXPECT_FALSE(empty.maximum.has_value());
    EXPECT_EQ(empty.norm, 0);
}

TEST(Summarise, KeepsNormsWhoseSquaresLeaveTheRangeOfDouble) {
    // A 3-4-5 triangle: exact except for the root.
    EXPECT_DOUBLE_EQ(summarise(tensor_of<double>(DType::f64, {3e200, 4e200})).norm, 5e200);
    EXPECT_DOUBLE_EQ(summarise(tensor_of<double>(DType::f64, {3e-200, -4e-200})).norm, 5e-200);
}

}  // namespace
}  // namespace tsdiag
