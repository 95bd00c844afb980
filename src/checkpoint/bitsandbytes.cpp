#include <fmt/format.h>

#include <cmath>

#include "packed.hpp"

/// bitsandbytes in four bits: NF4 and FP4, whose scales may be quantised once more.
namespace tsdiag::checkpoint {
namespace {

struct FourBitKind {
    std::string_view name, state;
    std::array<float, 16> levels;
};
/// NF4: quantiles of the normal distribution, [QLORA] Appendix E.  FP4: a sign, two bits of
/// exponent and one of mantissa, with bitsandbytes' order of exponents, over the largest, 12.
constexpr FourBitKind four_bit_kinds[] = {
    {"nf4",
     "weight.quant_state.bitsandbytes__nf4",
     {-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f,
      -0.28444138169288635f, -0.18477343022823334f, -0.09105003625154495f, 0.0f,
      0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
      0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f}},
    {"fp4",
     "weight.quant_state.bitsandbytes__fp4",
     {0.0f, 0.0625f / 12, 8.0f / 12, 1.0f, 4.0f / 12, 6.0f / 12, 2.0f / 12, 3.0f / 12, -0.0f,
      -0.0625f / 12, -8.0f / 12, -1.0f, -4.0f / 12, -6.0f / 12, -2.0f / 12, -3.0f / 12}},
};

/// What the bytes of a `quant_state` say.
struct State {
    std::int64_t block = 0, nested_block = 0;
    double offset = 0;
    std::vector<std::int64_t> shape;
};

constexpr std::string_view state_keys[] = {"quant_type",   "blocksize",        "dtype",
                                           "shape",        "nested_blocksize", "nested_dtype",
                                           "nested_offset"};

State read_state(PackedTensors& packed, const FourBitKind& kind) {
    const RawTensor raw = packed.open(kind.state, {DType::u8}, 1);
    const std::string name = packed.stem() + std::string(kind.state);
    const Json said = Json::parse(text_of(raw.bytes.first(std::size_t(raw.count()))), name);
    State state;
    state.block = positive(said["blocksize"]);
    state.nested_block = positive(said["nested_blocksize"]);
    if (said["nested_offset"].is_number()) state.offset = said["nested_offset"].number();
    if (said["shape"].is_array())
        for (const Json& size : said["shape"].array()) state.shape.push_back(positive(size));
    const bool whole = std::ranges::all_of(state.shape, [](std::int64_t n) { return n > 0; });
    const bool nested = !said["nested_blocksize"].is_null();
    if (!has_only(said, state_keys) || !is_one_of(said["quant_type"], {kind.name}) ||
        state.block < 2 || state.block % 2 != 0 || state.shape.size() != 2 || !whole ||
        !element_count(state.shape) ||
        nested != (state.nested_block > 0 && said["nested_offset"].is_number()) ||
        !is_one_of(said["nested_dtype"], {"float32"}))
        packed.refuse(
            fmt::format("has the state {} beside it, expected the type {}, an even "
                        "blocksize and the shape of a matrix",
                        said.dump(), kind.name));
    return state;
}

/// The levels are those of the type: the library's kernels do not read them.
void check_levels(PackedTensors& packed, const FourBitKind& kind) {
    constexpr float rounding = 1e-6f;
    const std::vector<float> stored = packed.numbers("weight.quant_map", {16});
    for (std::size_t q = 0; q < 16; ++q)
        if (!(std::abs(stored[q] - kind.levels[q]) <= rounding))
            packed.refuse(fmt::format("has the level {} for code {} beside it, expected {} of {}",
                                      stored[q], q, kind.levels[q], kind.name));
}

/// The largest magnitudes of blocks: floats, or codes of a table of 256 levels times the largest
/// of their own block, plus an offset, each step rounded to float as the library does.
ScaledLevels::Scales read_scales(PackedTensors& packed, const State& state, std::int64_t count,
                                 std::vector<RawTensor>& parts) {
    if (state.nested_block == 0) {
        RawTensor raw = packed.take("weight.absmax", {DType::f32}, {count});
        parts.push_back(raw);
        return [bytes = raw.bytes](std::int64_t first, std::int64_t some, float* out) {
            for (std::int64_t i = 0; i < some; ++i)
                out[i] = load<float>(bytes.data() + 4 * (first + i));
        };
    }
    RawTensor raw = packed.take("weight.absmax", {DType::u8}, {count});
    parts.push_back(raw);
    std::vector<float> table = packed.numbers("weight.nested_quant_map", {256});
    const std::int64_t outer = (count - 1) / state.nested_block + 1;
    const RawTensor largest = packed.take("weight.nested_absmax", {DType::f32}, {outer});
    parts.push_back(largest);
    return [bytes = raw.bytes, table = std::move(table), outer = largest.bytes,
            block = state.nested_block,
            offset = float(state.offset)](std::int64_t first, std::int64_t some, float* out) {
        for (std::int64_t i = 0; i < some; ++i) {
            const float level = table[std::to_integer<std::size_t>(bytes[std::size_t(first + i)])];
            const float product = level * load<float>(outer.data() + 4 * ((first + i) / block));
            out[i] = product + offset;
        }
    };
}

Unpacked unpack_4bit(const Checkpoint& file, const std::string& name, const FourBitKind& kind) {
    PackedTensors packed(file, name, "weight");
    if (!packed.has(kind.state)) return {};
    const State state = read_state(packed, kind);
    // Stored as bytes, or as another type of which the bytes are meant.
    RawTensor codes = packed.open("weight", {DType::u8, DType::f16, DType::bf16, DType::f32}, 2);
    const std::int64_t count = state.shape[0] * state.shape[1];
    const auto bytes = std::int64_t(std::size_t(codes.count()) * bytes_of(codes.dtype));
    if (bytes != (count + 1) / 2)
        packed.refuse(fmt::format("has {} bytes, expected {} for {} codes of four bits", bytes,
                                  (count + 1) / 2, shape_text(state.shape)));
    check_levels(packed, kind);
    std::vector<RawTensor> parts{std::move(codes)};
    auto scales = read_scales(packed, state, (count - 1) / state.block + 1, parts);
    auto matrix = std::make_shared<ScaledLevels>(state.shape[1], std::move(parts), kind.levels,
                                                 true, state.block, std::move(scales));
    return {
        name,
        packed_tensor(std::move(matrix), state.shape, fmt::format("bitsandbytes {}", kind.name)),
        std::move(packed).used()};
}

constexpr std::string_view bitsandbytes_keys[] = {
    "quant_method", "load_in_", "_load_in_", "bnb_4bit_", "llm_int8_", "modules_to_not_convert"};

/// The states tell everything, and the type of each weight.
Unpack obey_4bit(const Json& said) {
    if (!has_only(said, bitsandbytes_keys) || !is_true(said["load_in_4bit"]) ||
        !is_false(said["load_in_8bit"]))
        return nullptr;
    return [](const Checkpoint& file, const std::string& name) {
        Unpacked found;
        for (const FourBitKind& kind : four_bit_kinds)
            if (found.name.empty()) found = unpack_4bit(file, name, kind);
        return found;
    };
}

}  // namespace

extern const PackedLayout bitsandbytes = {"bitsandbytes NF4, FP4", "bitsandbytes", "weight",
                                          obey_4bit};

}  // namespace tsdiag::checkpoint
