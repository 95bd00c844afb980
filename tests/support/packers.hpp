#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "tsdiag/json.hpp"

/// Encoders of packed weights, written from the descriptions of their layouts bit by bit: they draw
/// codes and scales, store them, and say what each element is.
namespace tsdiag::test {

struct Array {
    std::string name, dtype;
    std::vector<std::int64_t> shape;
    std::string bytes;
};

template <class T>
std::string bytes_of(const std::vector<T>& numbers) {
    return {reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(T)};
}

/// A safetensors file.
inline std::string safetensors(const std::vector<Array>& arrays) {
    Json header = Json::Object();
    std::string data;
    for (const Array& array : arrays) {
        const auto begin = std::int64_t(data.size());
        data += array.bytes;
        Json entry;
        entry.set("dtype", array.dtype)
            .set("shape", Json::Array(array.shape.begin(), array.shape.end()))
            .set("data_offsets", Json::Array{begin, std::int64_t(data.size())});
        header.set(array.name, entry);
    }
    const std::string text = header.dump();
    return bytes_of(std::vector<std::uint64_t>{text.size()}) + text + data;
}

/// A matrix (rows, columns): its tensors and its elements.
struct PackedMatrixFile {
    std::vector<Array> arrays;
    std::vector<float> values;
};

struct Packer {
    std::string name;
    std::string quantised;  ///< `quantization_config`
    std::function<PackedMatrixFile(const std::string& stem, std::int64_t rows, std::int64_t columns,
                                   std::mt19937& random)>
        pack;
    friend void PrintTo(const Packer& p, std::ostream* out) { *out << p.name; }
};

namespace packers {

using Rng = std::mt19937;
inline int draw(Rng& random, int below) { return int(random() % unsigned(below)); }

/// A half from 2^-8 on, less than 2^-6.
inline std::uint16_t half(Rng& random, double& value) {
    const int exponent = 7 + draw(random, 2), mantissa = draw(random, 1024);
    value = std::ldexp(1024 + mantissa, exponent - 25);
    return std::uint16_t(exponent << 10 | mantissa);
}
inline float single(Rng& random) {
    return std::uniform_real_distribution<float>(0.01f, 0.05f)(random);
}

/// Integers with a scale and a zero point for each group of columns of a row.
struct Integers {
    std::vector<int> codes, zeros;  ///< (rows, columns), (rows, groups)
    std::vector<std::uint16_t> halves;
    std::vector<double> scales;  ///< (rows, groups)
    std::int64_t groups = 0;
};
inline Integers draw_integers(Rng& random, std::int64_t rows, std::int64_t groups,
                              std::int64_t columns, int bits, int zero_below) {
    Integers drawn;
    drawn.groups = groups;
    for (std::int64_t i = 0; i < rows * columns; ++i)
        drawn.codes.push_back(draw(random, 1 << bits));
    for (std::int64_t i = 0; i < rows * groups; ++i) {
        drawn.zeros.push_back(1 + draw(random, zero_below));
        double scale = 0;
        drawn.halves.push_back(half(random, scale));
        drawn.scales.push_back(scale);
    }
    return drawn;
}

/// Ors the bits of `code` into words that are `stride` apart.  Three bits fill three words as
/// GPTQ's authors pack them: ten codes, one whose bits lie in two words, ten from bit 1 on, one in
/// two words, ten from bit 2 on.
inline void put_gptq(std::vector<std::uint32_t>& words, std::size_t begin, std::size_t stride,
                     std::int64_t i, int bits, std::uint32_t code) {
    if (bits != 3) {
        const std::int64_t in_word = 32 / bits;
        words[begin + std::size_t(i / in_word) * stride] |= code << (bits * (i % in_word));
        return;
    }
    const std::int64_t at = i % 32;
    std::uint32_t* word[3];
    for (std::size_t w = 0; w < 3; ++w)
        word[w] = &words[begin + (std::size_t(i / 32) * 3 + w) * stride];
    if (at < 10) *word[0] |= code << (3 * at);
    if (at == 10) *word[0] |= code << 30, *word[1] |= code >> 2;
    if (at > 10 && at < 21) *word[1] |= code << (3 * (at - 11) + 1);
    if (at == 21) *word[1] |= code << 31, *word[2] |= code >> 1;
    if (at > 21) *word[2] |= code << (3 * (at - 22) + 2);
}

/// `group` 0: one for all inputs.  `order`: inputs belong to groups in a drawn order.
inline PackedMatrixFile gptq(const std::string& stem, std::int64_t out, std::int64_t in,
                             Rng& random, int bits, std::int64_t group, bool first_version,
                             bool order) {
    const std::int64_t size = group == 0 ? in : group, groups = (in + size - 1) / size;
    const Integers drawn = draw_integers(random, out, groups, in, bits, (1 << bits) - 1);
    std::vector<std::int32_t> of;
    for (std::int64_t i = 0; i < in; ++i) of.push_back(std::int32_t(i / size));
    if (order) std::shuffle(of.begin(), of.end(), random);
    std::vector<std::uint32_t> words(std::size_t(in * bits / 32 * out)),
        zeros(std::size_t(groups * out * bits / 32));
    std::vector<std::uint16_t> scales(std::size_t(groups * out));
    PackedMatrixFile file;
    for (std::int64_t o = 0; o < out; ++o) {
        for (std::int64_t g = 0; g < groups; ++g) {
            const auto at = std::size_t(o * groups + g);
            scales[std::size_t(g * out + o)] = drawn.halves[at];
            put_gptq(zeros, std::size_t(g * out * bits / 32), 1, o, bits,
                     std::uint32_t(drawn.zeros[at] - (first_version ? 1 : 0)));
        }
        for (std::int64_t i = 0; i < in; ++i) {
            const int code = drawn.codes[std::size_t(o * in + i)];
            put_gptq(words, std::size_t(o), std::size_t(out), i, bits, std::uint32_t(code));
            const auto at = std::size_t(o * groups + of[std::size_t(i)]);
            file.values.push_back(float((code - drawn.zeros[at]) * drawn.scales[at]));
        }
    }
    file.arrays = {{stem + "qweight", "I32", {in * bits / 32, out}, bytes_of(words)},
                   {stem + "qzeros", "I32", {groups, out * bits / 32}, bytes_of(zeros)},
                   {stem + "scales", "F16", {groups, out}, bytes_of(scales)},
                   {stem + "g_idx", "I32", {in}, bytes_of(of)}};
    return file;
}

/// Nibble k of a word is output `order[k]` of eight.
inline PackedMatrixFile awq(const std::string& stem, std::int64_t out, std::int64_t in, Rng& random,
                            std::int64_t group) {
    constexpr int order[] = {0, 2, 4, 6, 1, 3, 5, 7};
    const std::int64_t groups = in / group;
    const Integers drawn = draw_integers(random, out, groups, in, 4, 15);
    std::vector<std::uint32_t> words(std::size_t(in * out / 8)),
        zeros(std::size_t(groups * out / 8));
    std::vector<std::uint16_t> scales(std::size_t(groups * out));
    PackedMatrixFile file;
    for (std::int64_t c = 0; c < out / 8; ++c)
        for (int k = 0; k < 8; ++k) {
            const std::int64_t o = 8 * c + order[k];
            for (std::int64_t i = 0; i < in; ++i)
                words[std::size_t(i * out / 8 + c)] |=
                    std::uint32_t(drawn.codes[std::size_t(o * in + i)]) << (4 * k);
            for (std::int64_t g = 0; g < groups; ++g) {
                zeros[std::size_t(g * out / 8 + c)] |=
                    std::uint32_t(drawn.zeros[std::size_t(o * groups + g)]) << (4 * k);
                scales[std::size_t(g * out + o)] = drawn.halves[std::size_t(o * groups + g)];
            }
        }
    for (std::int64_t o = 0; o < out; ++o)
        for (std::int64_t i = 0; i < in; ++i) {
            const auto at = std::size_t(o * groups + i / group);
            file.values.push_back(
                float((drawn.codes[std::size_t(o * in + i)] - drawn.zeros[at]) * drawn.scales[at]));
        }
    file.arrays = {{stem + "qweight", "I32", {in, out / 8}, bytes_of(words)},
                   {stem + "qzeros", "I32", {groups, out / 8}, bytes_of(zeros)},
                   {stem + "scales", "F16", {groups, out}, bytes_of(scales)}};
    return file;
}

/// Signed integers with half of their range added, in words along the columns; zero points in words
/// along the rows.  `group` 0: one for a row.
inline PackedMatrixFile integers(const std::string& stem, std::int64_t rows, std::int64_t columns,
                                 Rng& random, int bits, std::int64_t group, bool symmetric,
                                 bool order) {
    const std::int64_t size = group == 0 ? columns : group, groups = columns / size;
    const int added = 1 << (bits - 1), in_word = 32 / bits;
    const Integers drawn = draw_integers(random, rows, groups, columns, bits, (1 << bits) - 1);
    std::vector<std::int32_t> of;
    for (std::int64_t i = 0; i < columns; ++i) of.push_back(std::int32_t(i / size));
    if (order) std::shuffle(of.begin(), of.end(), random);
    const std::int64_t across = (columns + in_word - 1) / in_word,
                       down = (rows + in_word - 1) / in_word;
    std::vector<std::uint32_t> words(std::size_t(rows * across)), zeros(std::size_t(down * groups));
    PackedMatrixFile file;
    for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t c = 0; c < columns; ++c) {
            const int number = drawn.codes[std::size_t(r * columns + c)] - added;
            words[std::size_t(r * across + c / in_word)] |= std::uint32_t(number + added)
                                                            << (bits * (c % in_word));
            const auto at = std::size_t(r * groups + of[std::size_t(c)]);
            const int zero = symmetric ? 0 : drawn.zeros[at] - added;
            file.values.push_back(float((number - zero) * drawn.scales[at]));
        }
        for (std::int64_t g = 0; g < groups; ++g)
            zeros[std::size_t(r / in_word * groups + g)] |=
                std::uint32_t(drawn.zeros[std::size_t(r * groups + g)]) << (bits * (r % in_word));
    }
    file.arrays = {
        {stem + "weight_packed", "I32", {rows, across}, bytes_of(words)},
        {stem + "weight_scale", "F16", {rows, groups}, bytes_of(drawn.halves)},
        {stem + "weight_shape", "I64", {2}, bytes_of(std::vector<std::int64_t>{rows, columns})}};
    if (!symmetric)
        file.arrays.push_back({stem + "weight_zero_point", "I32", {down, groups}, bytes_of(zeros)});
    if (order) file.arrays.push_back({stem + "weight_g_idx", "I32", {columns}, bytes_of(of)});
    return file;
}

/// The levels of NF4 as QLoRA's paper prints them, and of FP4 by its exponents.
inline constexpr std::array<float, 16> nf4{-1.0f,
                                           -0.6961928009986877f,
                                           -0.5250730514526367f,
                                           -0.39491748809814453f,
                                           -0.28444138169288635f,
                                           -0.18477343022823334f,
                                           -0.09105003625154495f,
                                           0.0f,
                                           0.07958029955625534f,
                                           0.16093020141124725f,
                                           0.24611230194568634f,
                                           0.33791524171829224f,
                                           0.44070982933044434f,
                                           0.5626170039176941f,
                                           0.7229568362236023f,
                                           1.0f};
inline std::array<float, 16> fp4() {
    std::array<float, 16> levels{};
    for (std::size_t code = 0; code < 16; ++code) {
        const int exponent = int(code >> 1 & 3), mantissa = int(code & 1);
        // Exponents 1, 2, 3 stand for 8, 4, 2; the subnormal number is 1/16.
        const double magnitude =
            exponent == 0 ? mantissa / 16.0 : std::ldexp(2 + mantissa, 3 - exponent);
        levels[code] = float(magnitude) / 12.0f;
        if ((code & 8) != 0) levels[code] = -levels[code];
    }
    return levels;
}

/// Blocks run over all elements, the first of two in the upper half of a byte.  `nested`: 0, or the
/// blocks that share a largest scale.
inline PackedMatrixFile bitsandbytes(const std::string& stem, std::int64_t rows,
                                     std::int64_t columns, Rng& random,
                                     const std::array<float, 16>& levels, const std::string& kind,
                                     std::int64_t block, std::int64_t nested) {
    const std::int64_t count = rows * columns, blocks = (count + block - 1) / block;
    std::vector<float> scales, table, largest;
    std::vector<std::uint8_t> bytes(std::size_t((count + 1) / 2)), scale_codes;
    const float offset = 0.03125f;
    for (int i = 0; i < 256; ++i) table.push_back(float(i - 128) / 128);
    for (std::int64_t b = 0; b < blocks; ++b) {
        if (nested > 0 && b % nested == 0) largest.push_back(single(random));
        scale_codes.push_back(std::uint8_t(draw(random, 256)));
        if (nested == 0) {
            scales.push_back(single(random));
        } else {
            const float product = table[scale_codes.back()] * largest.back();
            scales.push_back(product + offset);
        }
    }
    PackedMatrixFile file;
    for (std::int64_t i = 0; i < count; ++i) {
        const int code = draw(random, 16);
        bytes[std::size_t(i / 2)] |= std::uint8_t(i % 2 == 0 ? code << 4 : code);
        file.values.push_back(levels[std::size_t(code)] * scales[std::size_t(i / block)]);
    }
    Json state;
    state.set("quant_type", kind).set("blocksize", block).set("dtype", "float16");
    state.set("shape", Json::Array{rows, columns});
    if (nested > 0)
        state.set("nested_blocksize", nested)
            .set("nested_dtype", "float32")
            .set("nested_offset", double(offset));
    const std::string text = state.dump();
    const std::string w = stem + "weight";
    file.arrays = {
        {w, "U8", {std::int64_t(bytes.size()), 1}, bytes_of(bytes)},
        {w + ".quant_map", "F32", {16}, bytes_of(std::vector<float>(levels.begin(), levels.end()))},
        {w + ".quant_state.bitsandbytes__" + kind, "U8", {std::int64_t(text.size())}, text}};
    if (nested == 0) {
        file.arrays.push_back({w + ".absmax", "F32", {blocks}, bytes_of(scales)});
    } else {
        file.arrays.push_back({w + ".absmax", "U8", {blocks}, bytes_of(scale_codes)});
        file.arrays.push_back({w + ".nested_quant_map", "F32", {256}, bytes_of(table)});
        file.arrays.push_back(
            {w + ".nested_absmax", "F32", {std::int64_t(largest.size())}, bytes_of(largest)});
    }
    return file;
}

/// e2m1: a sign, two bits of exponent of bias 1, one of mantissa.
inline double e2m1(int code) {
    const int exponent = code >> 1 & 3, mantissa = code & 1;
    const double magnitude =
        exponent == 0 ? mantissa / 2.0 : std::ldexp(2 + mantissa, exponent - 2);
    return (code & 8) != 0 ? -magnitude : magnitude;
}
/// e4m3: a sign, four bits of exponent of bias 7, three of mantissa.
inline double e4m3(int code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    return exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
}

/// Codes of e2m1, the first of two in the lower half of a byte, and what they stand for.
struct Fours {
    std::vector<std::uint8_t> bytes;
    std::vector<double> numbers;
};
inline Fours draw_fours(Rng& random, std::int64_t count) {
    Fours drawn;
    drawn.bytes.resize(std::size_t(count / 2));
    for (std::int64_t i = 0; i < count; ++i) {
        const int code = draw(random, 16);
        drawn.bytes[std::size_t(i / 2)] |= std::uint8_t(i % 2 == 0 ? code : code << 4);
        drawn.numbers.push_back(e2m1(code));
    }
    return drawn;
}

/// Powers of two for each 32 elements.
inline std::vector<std::uint8_t> draw_powers(Rng& random, std::int64_t count,
                                             std::vector<double>& numbers) {
    std::vector<std::uint8_t> powers;
    for (std::int64_t b = 0; b < count; ++b) {
        powers.push_back(std::uint8_t(118 + draw(random, 4)));
        numbers.push_back(std::ldexp(1, powers.back() - 127));
    }
    return powers;
}

inline PackedMatrixFile mxfp4(const std::string& stem, std::int64_t rows, std::int64_t columns,
                              Rng& random) {
    const Fours fours = draw_fours(random, rows * columns);
    std::vector<double> scales;
    const auto powers = draw_powers(random, rows * columns / 32, scales);
    PackedMatrixFile file;
    for (std::size_t i = 0; i < fours.numbers.size(); ++i)
        file.values.push_back(float(fours.numbers[i] * scales[i / 32]));
    file.arrays = {{stem + "weight_packed", "U8", {rows, columns / 2}, bytes_of(fours.bytes)},
                   {stem + "weight_scale", "U8", {rows, columns / 32}, bytes_of(powers)}};
    return file;
}

/// Scales of e4m3 for each 16 elements, and a number for all, which divides them
/// (compressed-tensors) or multiplies them (Model Optimizer).
inline PackedMatrixFile nvfp4(const std::string& stem, std::int64_t rows, std::int64_t columns,
                              Rng& random, bool divides) {
    const Fours fours = draw_fours(random, rows * columns);
    const float whole = divides ? 5000.5f : 0.0003f;
    std::vector<std::uint8_t> codes;
    std::vector<float> scales;
    for (std::int64_t b = 0; b < rows * columns / 16; ++b) {
        codes.push_back(std::uint8_t(0x48 + draw(random, 0x30)));
        const auto scale = float(e4m3(codes.back()));
        scales.push_back(divides ? scale / whole : scale * whole);
    }
    PackedMatrixFile file;
    for (std::size_t i = 0; i < fours.numbers.size(); ++i)
        file.values.push_back(float(fours.numbers[i]) * scales[i / 16]);
    const std::vector<std::int64_t> one =
        divides ? std::vector<std::int64_t>{1} : std::vector<std::int64_t>{};
    file.arrays = {{stem + (divides ? "weight_packed" : "weight"),
                    "U8",
                    {rows, columns / 2},
                    bytes_of(fours.bytes)},
                   {stem + "weight_scale", "F8_E4M3", {rows, columns / 16}, bytes_of(codes)},
                   {stem + (divides ? "weight_global_scale" : "weight_scale_2"), "F32", one,
                    bytes_of(std::vector<float>{whole})},
                   {stem + (divides ? "input_global_scale" : "input_scale"), "F32", one,
                    bytes_of(std::vector<float>{3})}};
    return file;
}

inline std::string compressed(const std::string& format, const std::string& weights) {
    return R"({"quant_method": "compressed-tensors", "format": ")" + format +
           R"(", "quantization_status": "compressed", "ignore": ["lm_head"], "config_groups":
           {"group_0": {"targets": ["Linear"], "input_activations": null, "output_activations": null,
            "weights": )" +
           weights + "}}}";
}

}  // namespace packers

/// Every layout of packed weights, with its variants.
inline std::vector<Packer> all_packers() {
    using namespace packers;
    using Stem = const std::string&;
    using Int = std::int64_t;
    std::vector<Packer> all;
    for (const int bits : {2, 3, 4, 8})
        for (const bool first : {true, false}) {
            const std::string text = "gptq_" + std::to_string(bits) + (first ? "_v1" : "_v2");
            all.push_back(
                {text,
                 R"({"quant_method": "gptq", "bits": )" + std::to_string(bits) +
                     R"(, "group_size": 32, "desc_act": false, "sym": false, "checkpoint_format": ")" +
                     (first ? "gptq" : "gptq_v2") + "\"}",
                 [=](Stem s, Int r, Int c, Rng& g) {
                     return gptq(s, r, c, g, bits, 32, first, false);
                 }});
        }
    all.push_back(
        {"gptq_in_the_order_of_activations",
         R"({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": true})",
         [](Stem s, Int r, Int c, Rng& g) { return gptq(s, r, c, g, 4, 32, true, true); }});
    all.push_back(
        {"gptq_of_one_group",
         R"({"quant_method": "gptq", "bits": 4, "group_size": -1, "desc_act": false})",
         [](Stem s, Int r, Int c, Rng& g) { return gptq(s, r, c, g, 4, 0, true, false); }});
    all.push_back({"awq",
                   R"({"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm",
                       "zero_point": true})",
                   [](Stem s, Int r, Int c, Rng& g) { return awq(s, r, c, g, 32); }});
    const std::string four =
        R"({"quant_method": "bitsandbytes", "load_in_4bit": true, "load_in_8bit": false,
            "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": true})";
    all.push_back({"nf4", four, [](Stem s, Int r, Int c, Rng& g) {
                       return bitsandbytes(s, r, c, g, nf4, "nf4", 64, 0);
                   }});
    all.push_back({"nf4_nested", four, [](Stem s, Int r, Int c, Rng& g) {
                       return bitsandbytes(s, r, c, g, nf4, "nf4", 64, 8);
                   }});
    all.push_back({"fp4_whose_last_block_is_short", four, [](Stem s, Int r, Int c, Rng& g) {
                       return bitsandbytes(s, r, c, g, fp4(), "fp4", 40, 0);
                   }});
    for (const int bits : {4, 8})
        for (const bool symmetric : {true, false})
            all.push_back(
                {"integers_" + std::to_string(bits) + (symmetric ? "" : "_asymmetric"),
                 compressed(
                     "pack-quantized",
                     R"({"num_bits": )" + std::to_string(bits) +
                         R"(, "type": "int", "strategy": "group", "group_size": 32, "symmetric": )" +
                         (symmetric ? "true}" : "false}")),
                 [=](Stem s, Int r, Int c, Rng& g) {
                     return integers(s, r, c, g, bits, 32, symmetric, false);
                 }});
    all.push_back(
        {"integers_a_row", compressed("pack-quantized", R"({"num_bits": 4, "type": "int",
                              "strategy": "channel", "symmetric": true})"),
         [](Stem s, Int r, Int c, Rng& g) { return integers(s, r, c, g, 4, 0, true, false); }});
    all.push_back(
        {"integers_in_the_order_of_activations",
         compressed("pack-quantized", R"({"num_bits": 4, "type": "int", "actorder": "group",
                              "strategy": "group", "group_size": 32, "symmetric": true})"),
         [](Stem s, Int r, Int c, Rng& g) { return integers(s, r, c, g, 4, 32, true, true); }});
    all.push_back({"mxfp4", compressed("mxfp4-pack-quantized", R"({"num_bits": 4, "type": "float",
                              "strategy": "group", "group_size": 32, "symmetric": true})"),
                   [](Stem s, Int r, Int c, Rng& g) { return mxfp4(s, r, c, g); }});
    all.push_back({"nvfp4", compressed("nvfp4-pack-quantized", R"({"num_bits": 4, "type": "float",
                              "strategy": "tensor_group", "group_size": 16, "symmetric": true})"),
                   [](Stem s, Int r, Int c, Rng& g) { return nvfp4(s, r, c, g, true); }});
    all.push_back({"nvfp4_of_model_optimizer",
                   R"({"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": []})",
                   [](Stem s, Int r, Int c, Rng& g) { return nvfp4(s, r, c, g, false); }});
    return all;
}

}  // namespace tsdiag::test
