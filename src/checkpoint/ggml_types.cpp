#include "ggml_types.hpp"

#include <algorithm>
#include <array>

#include "elements.hpp"

/// The element types of ggml.  A product of a half scale, a scale of at most 8 bits and a quant of
/// at most 8 bits has fewer than 24 bits, so that all values below are exact or, where a minimum is
/// subtracted, rounded once.
namespace tsdiag::checkpoint {
namespace {

/// What a block holds, byte by byte.
class Block {
  public:
    explicit Block(const std::byte* bytes) : bytes_(bytes) {}
    int byte(int i) const { return std::to_integer<int>(bytes_[i]); }
    int signed_byte(int i) const { return load<std::int8_t>(bytes_ + i); }
    int low(int i) const { return byte(i) & 15; }
    int high(int i) const { return byte(i) >> 4; }
    int nibble(int i, int which) const { return byte(i) >> 4 * which & 15; }
    int bits2(int i, int which) const { return byte(i) >> 2 * which & 3; }
    int bit(int i, int which) const { return byte(i) >> which & 1; }
    float half(int i) const { return Float16::value(load<std::uint16_t>(bytes_ + i)); }
    float single(int i) const { return load<float>(bytes_ + i); }

  private:
    const std::byte* bytes_;
};

constexpr int small = 32, large = 256;  // elements of a block

/// 32 numbers of four bits: the low halves of 16 bytes, then the high ones.
template <class Value>
void halves(const Block& b, int at, float* out, Value value) {
    for (int l = 0; l < small / 2; ++l) {
        out[l] = value(b.low(at + l), l);
        out[l + small / 2] = value(b.high(at + l), l + small / 2);
    }
}

void q4_0(const std::byte* bytes, float* out) {
    const Block b(bytes);
    const float d = b.half(0);
    halves(b, 2, out, [d](int q, int) { return d * float(q - 8); });
}
void q4_1(const std::byte* bytes, float* out) {
    const Block b(bytes);
    const float d = b.half(0), m = b.half(2);
    halves(b, 4, out, [d, m](int q, int) { return d * float(q) + m; });
}
/// The fifth bits of all elements precede the others, bit i that of element i.
void q5_0(const std::byte* bytes, float* out) {
    const Block b(bytes);
    const float d = b.half(0);
    halves(b, 6, out,
           [&](int q, int i) { return d * float((q | b.bit(2 + i / 8, i % 8) << 4) - 16); });
}
void q5_1(const std::byte* bytes, float* out) {
    const Block b(bytes);
    const float d = b.half(0), m = b.half(2);
    halves(b, 8, out,
           [&](int q, int i) { return d * float(q | b.bit(4 + i / 8, i % 8) << 4) + m; });
}
void q8_0(const std::byte* bytes, float* out) {
    const Block b(bytes);
    const float d = b.half(0);
    for (int i = 0; i < small; ++i) out[i] = d * float(b.signed_byte(2 + i));
}
/// Between scale and elements stands their sum, for dot products.
void q8_1(const std::byte* bytes, float* out) {
    const Block b(bytes);
    const float d = b.half(0);
    for (int i = 0; i < small; ++i) out[i] = d * float(b.signed_byte(4 + i));
}
/// Sums of 16 elements follow.
void q8_k(const std::byte* bytes, float* out) {
    const Block b(bytes);
    const float d = b.single(0);
    for (int i = 0; i < large; ++i) out[i] = d * float(b.signed_byte(4 + i));
}

/// Element 128 n + 32 j + l has bits 2 j and 2 j + 1 of byte 32 n + l, and the scale of its 16.
template <class Value>
void quarters(float* out, Value value) {
    for (int n = 0; n < 2; ++n)
        for (int j = 0; j < 4; ++j)
            for (int l = 0; l < small; ++l)
                out[128 * n + 32 * j + l] = value(n, j, l, 8 * n + 2 * j + l / 16);
}

void q2_k(const std::byte* bytes, float* out) {
    const Block b(bytes);
    const float d = b.half(80), minimum = b.half(82);
    quarters(out, [&](int n, int j, int l, int scale) {
        return d * float(b.low(scale)) * float(b.bits2(16 + 32 * n + l, j)) -
               minimum * float(b.high(scale));
    });
}
/// The third bit is stored inverted; scales have their low four bits in bytes 96 to 103 and their
/// high two in 104 to 107.
void q3_k(const std::byte* bytes, float* out) {
    const Block b(bytes);
    const float d = b.half(108);
    std::array<float, 16> scales;
    for (int s = 0; s < 16; ++s)
        scales[std::size_t(s)] =
            d * float((b.nibble(96 + s % 8, s / 8) | b.bits2(104 + s % 4, s / 4) << 4) - 32);
    quarters(out, [&](int n, int j, int l, int scale) {
        const int q = b.bits2(32 + 32 * n + l, j) - (b.bit(l, 4 * n + j) != 0 ? 0 : 4);
        return scales[std::size_t(scale)] * float(q);
    });
}

/// Scale and minimum, six bits each, of 32 elements: twelve bytes from `at` hold eight of both.
struct Scale {
    int scale, minimum;
};
Scale scale_of(const Block& b, int at, int s) {
    if (s < 4) return {b.byte(at + s) & 63, b.byte(at + 4 + s) & 63};
    const int i = s - 4;
    return {b.low(at + 8 + i) | b.byte(at + i) >> 6 << 4,
            b.high(at + 8 + i) | b.byte(at + 4 + i) >> 6 << 4};
}

void q4_k(const std::byte* bytes, float* out) {
    const Block b(bytes);
    for (int s = 0; s < 8; ++s) {
        const Scale of = scale_of(b, 4, s);
        const float d = b.half(0) * float(of.scale), m = b.half(2) * float(of.minimum);
        for (int l = 0; l < small; ++l)
            out[32 * s + l] = d * float(b.nibble(16 + 32 * (s / 2) + l, s % 2)) - m;
    }
}
void q5_k(const std::byte* bytes, float* out) {
    const Block b(bytes);
    for (int s = 0; s < 8; ++s) {
        const Scale of = scale_of(b, 4, s);
        const float d = b.half(0) * float(of.scale), m = b.half(2) * float(of.minimum);
        for (int l = 0; l < small; ++l) {
            const int q = b.nibble(48 + 32 * (s / 2) + l, s % 2) | b.bit(16 + l, s) << 4;
            out[32 * s + l] = d * float(q) - m;
        }
    }
}
void q6_k(const std::byte* bytes, float* out) {
    const Block b(bytes);
    const float d = b.half(208);
    quarters(out, [&](int n, int j, int l, int scale) {
        const int q = b.nibble(64 * n + 32 * (j % 2) + l, j / 2) | b.bits2(128 + 32 * n + l, j)
                                                                       << 4;
        return d * float(b.signed_byte(192 + scale)) * float(q - 32);
    });
}

/// The levels of the IQ4 types.
constexpr std::array<int, 16> levels{-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};

void iq4_nl(const std::byte* bytes, float* out) {
    const Block b(bytes);
    const float d = b.half(0);
    halves(b, 2, out, [d](int q, int) { return d * float(levels[std::size_t(q)]); });
}
void iq4_xs(const std::byte* bytes, float* out) {
    const Block b(bytes);
    for (int s = 0; s < 8; ++s) {
        const int scale = b.nibble(4 + s / 2, s % 2) | b.bits2(2 + s / 4, s % 4) << 4;
        const float d = b.half(0) * float(scale - 32);
        halves(b, 8 + 16 * s, out + 32 * s,
               [d](int q, int) { return d * float(levels[std::size_t(q)]); });
    }
}

/// Five ternary digits are a fraction of 256: the first is the integer part of three times it.
void tq1_0(const std::byte* bytes, float* out) {
    const Block b(bytes);
    const float d = b.half(52);
    const auto digits = [&](int at, int count, int places) {
        for (int l = 0; l < count; ++l)
            for (int k = 0, left = b.byte(at + l); k < places; ++k, left = left * 3 & 255)
                out[k * count + l] = d * float((left * 3 >> 8) - 1);
        out += places * count;
    };
    digits(0, 32, 5);
    digits(32, 16, 5);
    digits(48, 4, 4);
}
void tq2_0(const std::byte* bytes, float* out) {
    const Block b(bytes);
    const float d = b.half(64);
    quarters(out, [&](int n, int j, int l, int) { return d * float(b.bits2(32 * n + l, j) - 1); });
}

/// OCP Microscaling: a power of two, all ones NaN, times numbers of type e2m1.
void mxfp4(const std::byte* bytes, float* out) {
    static constexpr std::array<float, 8> magnitudes{0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    const Block b(bytes);
    const float scale = Float8E8M0::value(std::uint8_t(b.byte(0)));
    halves(b, 1, out, [scale](int q, int) {
        const float value = scale * magnitudes[std::size_t(q & 7)];
        return (q & 8) != 0 ? -value : value;
    });
}

/// Half of a step between values of so many bits over their spread.
constexpr double equidistant(int bits) { return 0.5 / ((1 << bits) - 1); }

constexpr std::array types{
    GgmlType{0, DType::f32, {"F32", 1, 4}},
    GgmlType{1, DType::f16, {"F16", 1, 2}},
    GgmlType{24, DType::i8, {"I8", 1, 1}},
    GgmlType{25, DType::i16, {"I16", 1, 2}},
    GgmlType{26, DType::i32, {"I32", 1, 4}},
    GgmlType{27, DType::i64, {"I64", 1, 8}},
    GgmlType{28, DType::f64, {"F64", 1, 8}},
    GgmlType{30, DType::bf16, {"BF16", 1, 2}},
    GgmlType{2, DType::blocks, {"Q4_0", small, 18, q4_0, equidistant(4)}},
    GgmlType{3, DType::blocks, {"Q4_1", small, 20, q4_1, equidistant(4)}},
    GgmlType{6, DType::blocks, {"Q5_0", small, 22, q5_0, equidistant(5)}},
    GgmlType{7, DType::blocks, {"Q5_1", small, 24, q5_1, equidistant(5)}},
    GgmlType{8, DType::blocks, {"Q8_0", small, 34, q8_0, equidistant(8)}},
    GgmlType{9, DType::blocks, {"Q8_1", small, 36, q8_1, equidistant(8)}},
    GgmlType{10, DType::blocks, {"Q2_K", large, 84, q2_k, equidistant(2)}},
    GgmlType{11, DType::blocks, {"Q3_K", large, 110, q3_k, equidistant(3)}},
    GgmlType{12, DType::blocks, {"Q4_K", large, 144, q4_k, equidistant(4)}},
    GgmlType{13, DType::blocks, {"Q5_K", large, 176, q5_k, equidistant(5)}},
    GgmlType{14, DType::blocks, {"Q6_K", large, 210, q6_k, equidistant(6)}},
    GgmlType{15, DType::blocks, {"Q8_K", large, 292, q8_k, equidistant(8)}},
    GgmlType{20, DType::blocks, {"IQ4_NL", small, 18, iq4_nl, 12.0 / 240}},
    GgmlType{23, DType::blocks, {"IQ4_XS", large, 136, iq4_xs, 12.0 / 240}},
    GgmlType{34, DType::blocks, {"TQ1_0", large, 54, tq1_0, 1.0 / 4}},
    GgmlType{35, DType::blocks, {"TQ2_0", large, 66, tq2_0, 1.0 / 4}},
    GgmlType{39, DType::blocks, {"MXFP4", small, 17, mxfp4, 1.0 / 12}},
    // With grids of values that no description outside of ggml's code gives.
    GgmlType{16, DType::other, {"IQ2_XXS", large, 66}},
    GgmlType{17, DType::other, {"IQ2_XS", large, 74}},
    GgmlType{18, DType::other, {"IQ3_XXS", large, 98}},
    GgmlType{19, DType::other, {"IQ1_S", large, 50}},
    GgmlType{21, DType::other, {"IQ3_S", large, 110}},
    GgmlType{22, DType::other, {"IQ2_S", large, 82}},
    GgmlType{29, DType::other, {"IQ1_M", large, 56}},
};

}  // namespace

const GgmlType* ggml_type(std::uint32_t id) {
    const auto found = std::ranges::find(types, id, &GgmlType::id);
    return found == types.end() ? nullptr : &*found;
}

}  // namespace tsdiag::checkpoint
