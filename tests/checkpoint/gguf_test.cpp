#include <functional>
#include <random>

#include "samples.hpp"
#include "support/gguf_writer.hpp"

/// GGUF: its element types against encoders written from their descriptions, and hostile files.
namespace tsdiag {
namespace {

using samples::TemporaryFolder;
using test::GgufWriter;
using test::little;
using testing::HasSubstr;

/// A block whose numbers are drawn, packed element by element, and what each element stands for.
class Encoded {
  public:
    Encoded(std::size_t size, unsigned seed) : bytes(size, '\0'), rng_(seed) {}

    std::string bytes;
    std::vector<double> values;

    int draw(int below) { return int(rng_() % unsigned(below)); }
    /// A finite half at byte `at`, as a number.
    double half(std::size_t at) {
        const auto bits = std::uint16_t((draw(2) << 15) | (draw(31) << 10) | draw(1024));
        std::memcpy(bytes.data() + at, &bits, sizeof bits);
        return test::half_value(bits);
    }
    /// ORs `value` into byte `at` from bit `shift` on.
    void put(std::size_t at, int shift, int value) {
        bytes[at] = char(static_cast<unsigned char>(bytes[at]) | (value << shift & 255));
    }
    void put_signed(std::size_t at, int value) { bytes[at] = char(std::int8_t(value)); }

  private:
    std::mt19937 rng_;
};

constexpr double levels[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                             1,    13,   25,  38,  53,  69,  89,  113};
constexpr double fp4[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

struct TypeCase {
    const char* name;
    std::uint32_t id;
    std::size_t elements, bytes;
    std::function<void(Encoded&)> encode;
    friend void PrintTo(const TypeCase& c, std::ostream* out) { *out << c.name; }
};

/// Element i of 32 lies in byte i % 16, in the low half of the first 16.
void put_half(Encoded& e, std::size_t at, std::size_t i, int q) {
    e.put(at + i % 16, i < 16 ? 0 : 4, q);
}

void encode_small(Encoded& e, bool fifth, bool minimum) {
    const double d = e.half(0), m = minimum ? e.half(2) : 0;
    const std::size_t high = minimum ? 4 : 2, low = high + (fifth ? 4 : 0);
    for (std::size_t i = 0; i < 32; ++i) {
        const int q = e.draw(fifth ? 32 : 16);
        put_half(e, low, i, q & 15);
        if (fifth) e.put(high + i / 8, int(i % 8), q >> 4);
        e.values.push_back(minimum ? d * q + m : d * (q - (fifth ? 16 : 8)));
    }
}

void encode_bytes(Encoded& e, std::size_t at, std::size_t count, double d) {
    for (std::size_t i = 0; i < count; ++i) {
        const int q = e.draw(256) - 128;
        e.put_signed(at + i, q);
        e.values.push_back(d * q);
    }
}

void encode_q8_k(Encoded& e) {
    const float d = float(e.draw(1 << 24)) * 0x1p-30F;
    std::memcpy(e.bytes.data(), &d, sizeof d);
    encode_bytes(e, 4, 256, double(d));
}

void encode_q2_k(Encoded& e) {
    const double d = e.half(80), m = e.half(82);
    int scales[16], minima[16];
    for (std::size_t s = 0; s < 16; ++s) {
        e.put(s, 0, scales[s] = e.draw(16));
        e.put(s, 4, minima[s] = e.draw(16));
    }
    for (std::size_t i = 0; i < 256; ++i) {
        const int q = e.draw(4);
        e.put(16 + i / 128 * 32 + i % 32, int(i % 128 / 32 * 2), q);
        e.values.push_back(d * scales[i / 16] * q - m * minima[i / 16]);
    }
}

void encode_q3_k(Encoded& e) {
    const double d = e.half(108);
    int scales[16];
    for (std::size_t s = 0; s < 16; ++s) {
        scales[s] = e.draw(64);
        e.put(96 + s % 8, s < 8 ? 0 : 4, scales[s] & 15);
        e.put(104 + s % 4, int(s / 4 * 2), scales[s] >> 4);
    }
    for (std::size_t i = 0; i < 256; ++i) {
        const int q = e.draw(8);  // -4 .. 3, plus 4
        e.put(32 + i / 128 * 32 + i % 32, int(i % 128 / 32 * 2), q & 3);
        e.put(i % 32, int(i / 32), q >> 2);
        e.values.push_back(d * (scales[i / 16] - 32) * (q - 4));
    }
}

void encode_q45_k(Encoded& e, bool fifth) {
    const double d = e.half(0), m = e.half(2);
    int scales[8], minima[8];
    for (std::size_t s = 0; s < 8; ++s) {
        scales[s] = e.draw(64);
        minima[s] = e.draw(64);
        if (s < 4) {
            e.put(4 + s, 0, scales[s]);
            e.put(8 + s, 0, minima[s]);
        } else {
            e.put(8 + s, 0, scales[s] & 15);
            e.put(8 + s, 4, minima[s] & 15);
            e.put(s, 6, scales[s] >> 4);
            e.put(4 + s, 6, minima[s] >> 4);
        }
    }
    for (std::size_t i = 0; i < 256; ++i) {
        const int q = e.draw(fifth ? 32 : 16);
        e.put((fifth ? 48 : 16) + i / 64 * 32 + i % 32, i % 64 < 32 ? 0 : 4, q & 15);
        if (fifth) e.put(16 + i % 32, int(i / 32), q >> 4);
        e.values.push_back(d * scales[i / 32] * q - m * minima[i / 32]);
    }
}

void encode_q6_k(Encoded& e) {
    const double d = e.half(208);
    int scales[16];
    for (std::size_t s = 0; s < 16; ++s) e.put_signed(192 + s, scales[s] = e.draw(256) - 128);
    for (std::size_t i = 0; i < 256; ++i) {
        const int q = e.draw(64);
        const std::size_t half = i / 128, in = i % 128;
        e.put(64 * half + in % 64, in < 64 ? 0 : 4, q & 15);
        e.put(128 + 32 * half + in % 32, int(in / 32 * 2), q >> 4);
        e.values.push_back(d * scales[i / 16] * (q - 32));
    }
}

void encode_iq4_nl(Encoded& e) {
    const double d = e.half(0);
    for (std::size_t i = 0; i < 32; ++i) {
        const int q = e.draw(16);
        put_half(e, 2, i, q);
        e.values.push_back(d * levels[q]);
    }
}

void encode_iq4_xs(Encoded& e) {
    const double d = e.half(0);
    for (std::size_t s = 0; s < 8; ++s) {
        const int scale = e.draw(64);
        e.put(4 + s / 2, s % 2 == 0 ? 0 : 4, scale & 15);
        e.put(2 + s / 4, int(s % 4 * 2), scale >> 4);
        for (std::size_t i = 0; i < 32; ++i) {
            const int q = e.draw(16);
            put_half(e, 8 + 16 * s, i, q);
            e.values.push_back(d * (scale - 32) * levels[q]);
        }
    }
}

/// `count` bytes of `digits` digits each, the first the most significant: the number over 3^5,
/// times 256, rounded up.
void encode_ternary(Encoded& e, std::size_t at, std::size_t count, int digits, double d) {
    auto numbers = std::vector<int>(count, 0);
    for (int k = 0; k < 5; ++k)
        for (std::size_t l = 0; l < count; ++l) {
            const int q = k < digits ? e.draw(3) : 0;
            numbers[l] = 3 * numbers[l] + q;
            if (k < digits) e.values.push_back(d * (q - 1));
        }
    for (std::size_t l = 0; l < count; ++l) e.put(at + l, 0, (numbers[l] * 256 + 242) / 243);
}

void encode_tq1_0(Encoded& e) {
    const double d = e.half(52);
    encode_ternary(e, 0, 32, 5, d);
    encode_ternary(e, 32, 16, 5, d);
    encode_ternary(e, 48, 4, 4, d);
}

void encode_tq2_0(Encoded& e) {
    const double d = e.half(64);
    for (std::size_t i = 0; i < 256; ++i) {
        const int q = e.draw(3);
        e.put(i / 128 * 32 + i % 32, int(i % 128 / 32 * 2), q);
        e.values.push_back(d * (q - 1));
    }
}

void encode_mxfp4(Encoded& e) {
    const int exponent = e.draw(252);  // beyond it a product exceeds float
    e.put(0, 0, exponent);
    for (std::size_t i = 0; i < 32; ++i) {
        const int q = e.draw(16);
        put_half(e, 1, i, q);
        e.values.push_back(std::ldexp(fp4[q % 8], exponent - 127) * (q < 8 ? 1 : -1));
    }
}

std::vector<TypeCase> type_cases() {
    return {
        {"Q4_0", 2, 32, 18, [](Encoded& e) { encode_small(e, false, false); }},
        {"Q4_1", 3, 32, 20, [](Encoded& e) { encode_small(e, false, true); }},
        {"Q5_0", 6, 32, 22, [](Encoded& e) { encode_small(e, true, false); }},
        {"Q5_1", 7, 32, 24, [](Encoded& e) { encode_small(e, true, true); }},
        {"Q8_0", 8, 32, 34, [](Encoded& e) { encode_bytes(e, 2, 32, e.half(0)); }},
        {"Q8_1", 9, 32, 36, [](Encoded& e) { encode_bytes(e, 4, 32, e.half(0)); }},
        {"Q2_K", 10, 256, 84, encode_q2_k},
        {"Q3_K", 11, 256, 110, encode_q3_k},
        {"Q4_K", 12, 256, 144, [](Encoded& e) { encode_q45_k(e, false); }},
        {"Q5_K", 13, 256, 176, [](Encoded& e) { encode_q45_k(e, true); }},
        {"Q6_K", 14, 256, 210, encode_q6_k},
        {"Q8_K", 15, 256, 292, encode_q8_k},
        {"IQ4_NL", 20, 32, 18, encode_iq4_nl},
        {"IQ4_XS", 23, 256, 136, encode_iq4_xs},
        {"TQ1_0", 34, 256, 54, encode_tq1_0},
        {"TQ2_0", 35, 256, 66, encode_tq2_0},
        {"MXFP4", 39, 32, 17, encode_mxfp4},
    };
}

class EveryGgmlType : public testing::TestWithParam<TypeCase> {};

TEST_P(EveryGgmlType, GivesTheExactValuesRoundedOnce) {
    const TypeCase& c = GetParam();
    constexpr std::int64_t rows = 6;
    const std::int64_t columns = 2 * std::int64_t(c.elements);
    std::string bytes;
    std::vector<float> expected;
    for (unsigned block = 0; block < 2 * rows; ++block) {
        Encoded e(c.bytes, 7 + block);
        c.encode(e);
        ASSERT_EQ(e.values.size(), c.elements);
        bytes += e.bytes;
        for (const double value : e.values) expected.push_back(float(value));
    }
    GgufWriter file;
    file.tensor("x", {rows, columns}, c.id, bytes);
    const TemporaryFolder folder;
    const auto opened = open_checkpoint(folder.write("m.gguf", file.bytes()));
    const RawTensor x = opened->tensor("x");
    EXPECT_EQ(x.dtype_name, c.name);
    EXPECT_EQ(x.blocks->bits(), 8.0 * double(c.bytes) / double(c.elements));
    std::vector<float> found(expected.size());
    widen(x, std::span<float>(found));
    EXPECT_EQ(found, expected);
    const std::vector<double> wide(expected.begin(), expected.end());
    std::vector<double> found_wide(wide.size());
    widen(x, std::span<double>(found_wide));
    EXPECT_EQ(found_wide, wide);
    EXPECT_EQ(summarise(x).nonfinite, 0);

    RawTensor view = x;  // every other row, and columns that start and end inside a block
    view.strides[0] *= 2;
    view.shape = {rows / 2, columns - 8};
    view.offset = 5;
    found.resize(std::size_t(view.count()));
    widen(view, std::span<float>(found));
    for (std::int64_t i = 0; i < view.shape[0]; ++i)
        for (std::int64_t k = 0; k < view.shape[1]; ++k)
            ASSERT_EQ(found[std::size_t(i * view.shape[1] + k)],
                      expected[std::size_t(2 * i * columns + k + 5)]);
}

INSTANTIATE_TEST_SUITE_P(Types, EveryGgmlType, testing::ValuesIn(type_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Gguf, ScaleOfAllOnesIsNaNInMxfp4) {
    GgufWriter file;
    file.tensor("x", {32}, 39, "\xff" + std::string(16, '\x11'));
    const TemporaryFolder folder;
    const auto opened = open_checkpoint(folder.write("m.gguf", file.bytes()));
    EXPECT_EQ(summarise(opened->tensor("x")).nonfinite, 32);
}

TEST(Gguf, ReadsMetadataOfEveryType) {
    GgufWriter file;
    file.version = 2;
    file.alignment = 64;
    file.number("general.alignment", 64);
    file.key("u8", 0, little<std::uint8_t>(200));
    file.key("i8", 1, little<std::int8_t>(-3));
    file.key("u16", 2, little<std::uint16_t>(60000));
    file.key("i16", 3, little<std::int16_t>(-300));
    file.key("i32", 5, little<std::int32_t>(-70000));
    file.real("f32", 1e-5F);
    file.flag("bool", true);
    file.word("text", "llama");
    file.key("list", 9,
             little<std::uint32_t>(5) + little<std::uint64_t>(2) + little<std::int32_t>(4) +
                 little<std::int32_t>(-4));
    file.texts("tokens", 5000);
    file.key("u64", 10, little<std::uint64_t>(std::uint64_t{1} << 63));
    file.key("i64", 11, little<std::int64_t>(-5'000'000'000));
    file.key("f64", 12, little<double>(0.1));
    const std::vector<float> values{1, 2, 3, 4, 5, 6};
    file.floats("a", {2, 3}, values);
    file.floats("b", {3}, std::span(values).first(3));
    file.tensor("c", {2}, 1, std::string("\0\x3c\0\xc0", 4));
    const TemporaryFolder folder;
    const auto opened = open_checkpoint(folder.write("m.gguf", file.bytes()));
    const Json& m = opened->metadata();
    EXPECT_EQ(m["u8"].integer(), 200);
    EXPECT_EQ(m["i8"].integer(), -3);
    EXPECT_EQ(m["u16"].integer(), 60000);
    EXPECT_EQ(m["i16"].integer(), -300);
    EXPECT_EQ(m["i32"].integer(), -70000);
    EXPECT_EQ(m["f32"].number(), 1e-5) << "as it was written, not as the float is";
    EXPECT_TRUE(m["bool"].boolean());
    EXPECT_EQ(m["text"].string(), "llama");
    EXPECT_EQ(m["list"].dump(), "[4, -4]");
    EXPECT_EQ(m["tokens"]["length"].integer(), 5000);
    EXPECT_EQ(m["u64"].number(), 0x1p63);
    EXPECT_EQ(m["i64"].integer(), -5'000'000'000);
    EXPECT_EQ(m["f64"].number(), 0.1);
    EXPECT_EQ(opened->names(), (std::vector<std::string>{"a", "b", "c"}));
    const auto a = as_is<float>(opened->tensor("a"));
    ASSERT_TRUE(a.has_value()) << "F32 is used in place";
    EXPECT_EQ(std::vector<float>(a->begin(), a->end()), values);
    std::vector<float> c(2);
    widen(opened->tensor("c"), std::span<float>(c));
    EXPECT_EQ(c, (std::vector<float>{1, -2}));
}

GgufWriter shard(std::uint32_t number, std::uint32_t count, const std::string& name) {
    GgufWriter file;
    file.key("split.no", 2, little(std::uint16_t(number)));
    file.key("split.count", 2, little(std::uint16_t(count)));
    file.key("split.tensors.count", 5, little<std::int32_t>(2));
    const float value = float(number);
    file.floats(name, {1}, std::span(&value, 1));
    return file;
}

TEST(Gguf, GivesListsWholeThatItsMetadataOnlyCount) {
    GgufWriter file;
    std::vector<std::string> tokens;
    std::vector<float> scores;
    for (int i = 0; i < 3000; ++i) {
        tokens.push_back("token " + std::to_string(i));
        scores.push_back(float(-i) / 8);
    }
    file.list("tokenizer.ggml.tokens", tokens);
    file.list("tokenizer.ggml.scores", scores);
    file.list("short", std::vector<std::int32_t>{3, -4});
    const TemporaryFolder folder;
    folder.write("m.gguf", file.bytes());
    const auto opened = open_checkpoint(folder / "m.gguf");
    EXPECT_EQ(opened->metadata()["tokenizer.ggml.tokens"]["length"].integer(), 3000);
    const Json texts = opened->whole_list("tokenizer.ggml.tokens"),
               numbers = opened->whole_list("tokenizer.ggml.scores");
    ASSERT_EQ(texts.array().size(), tokens.size());
    ASSERT_EQ(numbers.array().size(), scores.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        EXPECT_EQ(texts.array()[i].string(), tokens[i]);
        EXPECT_EQ(numbers.array()[i].number(), double(scores[i]));
    }
    EXPECT_EQ(opened->whole_list("short").array().size(), 2U);
    EXPECT_TRUE(opened->whole_list("none").is_null());
}

TEST(Gguf, OpensShardsByAnyOfThemAndByTheirDirectory) {
    const TemporaryFolder folder;
    folder.write("m-00001-of-00002.gguf", shard(0, 2, "a").bytes());
    EXPECT_THAT(samples::message_of<FormatError>(
                    [&] { open_checkpoint(folder / "m-00001-of-00002.gguf"); }),
                HasSubstr("'m-00002-of-00002.gguf' is missing"));
    folder.write("m-00002-of-00002.gguf", shard(1, 2, "b").bytes());
    for (const auto& path :
         {folder.path(), folder / "m-00001-of-00002.gguf", folder / "m-00002-of-00002.gguf"})
        EXPECT_EQ(open_checkpoint(path)->names(), (std::vector<std::string>{"a", "b"}));
    const auto refusal = [&] {
        return samples::message_of<FormatError>([&] { open_checkpoint(folder.path()); });
    };
    folder.write("n-00001-of-00001.gguf", shard(0, 1, "a").bytes());
    EXPECT_THAT(refusal(), HasSubstr("contains 3 possible model files"));
    std::filesystem::remove(folder / "n-00001-of-00001.gguf");
    folder.write("m-00002-of-00002.gguf", shard(0, 2, "b").bytes());
    EXPECT_THAT(refusal(), HasSubstr("number 1 of 2"));
    folder.write("m-00002-of-00002.gguf", shard(1, 2, "a").bytes());
    EXPECT_THAT(refusal(), HasSubstr("two tensors are named 'a'"));
    folder.write("other.gguf", shard(0, 2, "a").bytes());
    EXPECT_THAT(samples::message_of<FormatError>([&] { open_checkpoint(folder / "other.gguf"); }),
                HasSubstr("expected the name"));
}

TEST(Gguf, RefusesLyingNumbers) {
    const TemporaryFolder folder;
    const auto refusal = [&](const std::string& bytes) {
        return samples::message_of<FormatError>(
            [&] { open_checkpoint(folder.write("m.gguf", bytes)); });
    };
    const std::vector<float> values(8, 1.0F);
    const auto with = [&](const std::function<void(GgufWriter&)>& change) {
        GgufWriter file;
        file.floats("a", {8}, values);
        change(file);
        return file.bytes();
    };
    constexpr std::uint64_t huge = std::uint64_t{1} << 62;
    EXPECT_THAT(refusal("GGUF" + little<std::uint32_t>(3) + little(huge) + little(huge)),
                HasSubstr("tensors by its header"));
    EXPECT_THAT(
        refusal("GGUF" + little<std::uint32_t>(3) + little<std::uint64_t>(0) + little(huge)),
        HasSubstr("metadata keys by its header"));
    EXPECT_THAT(refusal(with([](GgufWriter& f) { f.version = 4; })), HasSubstr("expected 2 or 3"));
    EXPECT_THAT(refusal(with([](GgufWriter& f) { f.first_offset = 32; })), HasSubstr("overlap"));
    EXPECT_THAT(refusal(with([](GgufWriter& f) { f.first_offset = std::uint64_t(-32); })),
                HasSubstr("begins at data byte"));
    EXPECT_THAT(refusal(with([&](GgufWriter& f) { f.floats("a", {8}, values); })),
                HasSubstr("two tensors are named 'a'"));
    EXPECT_THAT(refusal(with([](GgufWriter& f) { f.number("general.alignment", 48); })),
                HasSubstr("power of two"));
    EXPECT_THAT(refusal(with([](GgufWriter& f) { f.number("x", 1), f.number("x", 2); })),
                HasSubstr("'x' twice"));
    EXPECT_THAT(refusal(with([&](GgufWriter& f) { f.key("x", 8, little(huge)); })),
                HasSubstr("a metadata text of"));
    EXPECT_THAT(refusal(with([&](GgufWriter& f) {
                    f.key("x", 9, little<std::uint32_t>(12) + little(huge));
                })),
                HasSubstr("elements in 'x'"));
    EXPECT_THAT(refusal(with([&](GgufWriter& f) {
                    f.key("x", 9, little<std::uint32_t>(9) + little<std::uint64_t>(1));
                })),
                HasSubstr("array of elements of type 9"));
    EXPECT_THAT(refusal(with([](GgufWriter& f) { f.key("x", 13, ""); })), HasSubstr("of type 13"));
    EXPECT_THAT(refusal(with([](GgufWriter& f) { f.tensor("b", {33}, 2, ""); })),
                HasSubstr("rows of a multiple of 32"));
    EXPECT_THAT(refusal(with([](GgufWriter& f) { f.tensor("b", {64}, 2, ""); })),
                HasSubstr("needs 36 bytes"));
    EXPECT_THAT(refusal(with([](GgufWriter& f) { f.tensor("b", {1}, 4, ""); })),
                HasSubstr("tensor 'b' has ggml type 4"));
    EXPECT_THAT(refusal(with([](GgufWriter& f) {
                    f.tensor("b", {1, 1, 1, 1, 1}, 0, "");
                })),
                HasSubstr("5 dimensions"));
    EXPECT_THAT(refusal(with([](GgufWriter& f) {
                    f.tensor("b", {std::int64_t{1} << 40, std::int64_t{1} << 40}, 0, "");
                })),
                HasSubstr("fits 63 bits"));
    EXPECT_THAT(refusal(with([](GgufWriter& f) { f.tensor("b", {-1}, 0, ""); })),
                HasSubstr("has -1 as dimension 1 of 1"));
    EXPECT_THAT(refusal(with([](GgufWriter&) {}) + "x"), HasSubstr("extra bytes"));
}

/// Every prefix is refused, and so is nothing but the whole file.
TEST(Gguf, RefusesEveryTruncation) {
    GgufWriter file;
    file.word("general.architecture", "llama");
    file.texts("tokens", 3);
    const std::vector<float> values(24, 1.0F);  // a multiple of the alignment: no padding behind
    file.floats("a", {24}, values);
    const std::string whole = file.bytes();
    const TemporaryFolder folder;
    for (std::size_t size = 0; size < whole.size(); ++size)
        EXPECT_THROW(open_checkpoint(folder.write("m.gguf", whole.substr(0, size))), FormatError)
            << size;
    EXPECT_EQ(open_checkpoint(folder.write("m.gguf", whole))->names().size(), 1U);
}

/// Flipped bits are refused, or give a file of which every tensor can be read or is refused.
TEST(Gguf, SurvivesFlippedBits) {
    GgufWriter file;
    file.word("general.architecture", "gpt2");
    file.number("gpt2.block_count", 1);
    Encoded block(144, 1);
    encode_q45_k(block, false);
    file.tensor("a", {1, 256}, 12, block.bytes);
    const std::string whole = file.bytes();
    const TemporaryFolder folder;
    int opened = 0;
    for (std::size_t bit = 0; bit < 8 * (whole.size() - block.bytes.size()); bit += 3) {
        std::string bytes = whole;
        bytes[bit / 8] = char(bytes[bit / 8] ^ (1 << bit % 8));
        try {
            const auto found = open_checkpoint(folder.write("m.gguf", bytes));
            for (const std::string& name : found->names()) summarise(found->tensor(name));
            ++opened;
        } catch (const Error&) {
        }
    }
    EXPECT_GT(opened, 0) << "letters of names";
}

TEST(Gguf, ListsTypesWithoutKnownValuesAndRefusesToReadThem) {
    GgufWriter file;
    file.tensor("x", {256}, 17, std::string(74, '\1'));
    const TemporaryFolder folder;
    const auto opened = open_checkpoint(folder.write("m.gguf", file.bytes()));
    const RawTensor x = opened->tensor("x");
    EXPECT_EQ(x.dtype_name, "IQ2_XS");
    EXPECT_THROW(summarise(x), NotAvailable);
}

}  // namespace
}  // namespace tsdiag
