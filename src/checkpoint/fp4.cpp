#include <fmt/format.h>

#include "elements.hpp"
#include "packed.hpp"

/// Numbers of type e2m1, two a byte, the first in the lower half, in blocks with a scale: MXFP4 (32
/// elements, a power of two) and NVFP4 (16 elements, e4m3 and one factor of the whole).
namespace tsdiag::checkpoint {
namespace {

constexpr std::int64_t mx_block = 32, nv_block = 16;

ScaledLevels::Scales powers_of_two(Bytes bytes) {
    return [bytes](std::int64_t first, std::int64_t count, float* out) {
        for (std::int64_t i = 0; i < count; ++i)
            out[i] =
                Float8E8M0::value(std::to_integer<std::uint8_t>(bytes[std::size_t(first + i)]));
    };
}

/// `divided`: by the factor, else multiplied; either is rounded to float.
ScaledLevels::Scales scaled_e4m3(Bytes bytes, float factor, bool divided) {
    return [bytes, factor, divided](std::int64_t first, std::int64_t count, float* out) {
        for (std::int64_t i = 0; i < count; ++i) {
            const float scale =
                Float8E4M3::value(std::to_integer<std::uint8_t>(bytes[std::size_t(first + i)]));
            out[i] = divided ? scale / factor : scale * factor;
        }
    };
}

/// gpt-oss: blocks (experts, rows, blocks of a row, 16 bytes), scales without the last axis.
/// Hugging Face's parameter has rows and columns exchanged, OpenAI's own has not.
Unpacked unpack_experts(const Checkpoint& file, const std::string& name, std::string_view blocks,
                        std::string_view scales, bool exchanged) {
    PackedTensors packed(file, name, blocks);
    RawTensor codes = packed.open(blocks, {DType::u8}, 4);
    const std::vector<std::int64_t> shape = codes.shape;
    if (shape[3] * 2 != mx_block)
        packed.refuse(fmt::format("is {}, expected 16 bytes a block", shape_text(shape)));
    RawTensor factors = packed.take(scales, {DType::u8}, {shape[0], shape[1], shape[2]});
    const std::int64_t columns = shape[2] * mx_block;
    std::string weight = packed.stem();
    const Bytes bytes = factors.bytes;
    auto matrix =
        std::make_shared<ScaledLevels>(columns, std::vector{std::move(codes), std::move(factors)},
                                       e2m1, false, mx_block, powers_of_two(bytes));
    RawTensor tensor = packed_tensor(std::move(matrix), {shape[0], shape[1], columns}, "MXFP4");
    if (exchanged) {
        std::swap(tensor.shape[1], tensor.shape[2]);
        std::swap(tensor.strides[1], tensor.strides[2]);
    }
    return {std::move(weight), std::move(tensor), std::move(packed).used()};
}

constexpr std::string_view mxfp4_keys[] = {"quant_method", "modules_to_not_convert", "dequantize"};

template <bool original>
Unpack obey_mxfp4(const Json& said) {
    if (!has_only(said, mxfp4_keys)) return nullptr;
    return [](const Checkpoint& file, const std::string& name) {
        return original ? unpack_experts(file, name, ".blocks", ".scales", false)
                        : unpack_experts(file, name, "_blocks", "_scales", true);
    };
}

/// A matrix of `rows` x `columns` whose codes are `codes`.
Unpacked blocks_of(PackedTensors packed, RawTensor codes, std::string_view scale, bool powers,
                   std::string_view factor, bool divided) {
    const std::int64_t rows = codes.shape[0], columns = codes.shape[1] * 2;
    const std::int64_t block = powers ? mx_block : nv_block;
    if (columns % block != 0)
        packed.refuse(fmt::format("has {} columns, expected a multiple of {}", columns, block));
    const std::vector<std::int64_t> shape{rows, columns / block};
    RawTensor factors = powers ? packed.take(scale, {DType::u8, DType::f8_e8m0}, shape)
                               : packed.take(scale, {DType::f8_e4m3}, shape);
    const float whole = powers ? 1 : packed.number(factor);
    std::string weight = packed.stem() + "weight";
    packed.pass("input_global_scale");
    packed.pass("input_scale");
    const Bytes bytes = factors.bytes;
    auto matrix = std::make_shared<ScaledLevels>(
        columns, std::vector{std::move(codes), std::move(factors)}, e2m1, false, block,
        powers ? powers_of_two(bytes) : scaled_e4m3(bytes, whole, divided));
    return {std::move(weight),
            packed_tensor(std::move(matrix), {rows, columns}, powers ? "MXFP4" : "NVFP4"),
            std::move(packed).used()};
}

/// compressed-tensors: `weight_global_scale` divides.
Unpack obey_compressed(const Json& said) {
    bool powers = false, others = false;
    const bool understood = all_groups(said, [&](const Json& format, const Json& weights) {
        const bool mx = says(format, "mxfp4-pack-quantized"),
                   nv = says(format, "nvfp4-pack-quantized");
        (mx ? powers : others) = true;
        return (mx || nv) && positive(weights["num_bits"]) == 4 &&
               is_one_of(weights["type"], {"float"}) && is_true(weights["symmetric"]) &&
               is_false(weights["actorder"]) && weights["block_structure"].is_null() &&
               positive(weights["group_size"]) == (mx ? mx_block : nv_block);
    });
    if (!understood || powers == others) return nullptr;
    return [powers](const Checkpoint& file, const std::string& name) {
        PackedTensors packed(file, name, "weight_packed");
        RawTensor codes = packed.open("weight_packed", {DType::u8}, 2);
        return blocks_of(std::move(packed), std::move(codes), "weight_scale", powers,
                         "weight_global_scale", true);
    };
}

constexpr std::string_view modelopt_weights[] = {"num_bits", "type", "group_size", "dynamic"};
constexpr std::string_view modelopt_keys[] = {
    "quant_method", "quant_algo",    "group_size",      "producer",           "exclude_modules",
    "ignore",       "config_groups", "kv_cache_scheme", "kv_cache_quant_algo"};

/// TensorRT Model Optimizer: `weight_scale_2` multiplies.
Unpack obey_modelopt(const Json& said) {
    const auto sixteen = [](const Json& size) {
        return size.is_null() || positive(size) == nv_block;
    };
    const auto obeyed = [&](const auto& group) {
        const Json& weights = group.second["weights"];
        return has_only(weights, modelopt_weights) && positive(weights["num_bits"]) == 4 &&
               says(weights["type"], "float") && sixteen(weights["group_size"]);
    };
    const Json& groups = said["config_groups"];
    const bool understood =
        has_only(said, modelopt_keys) && says(said["quant_algo"], "NVFP4") &&
        sixteen(said["group_size"]) &&
        (groups.is_null() || (groups.is_object() && std::ranges::all_of(groups.object(), obeyed)));
    if (!understood) return nullptr;
    return [](const Checkpoint& file, const std::string& name) {
        PackedTensors packed(file, name, "weight");
        if (!packed.has("weight_scale_2")) return Unpacked();
        RawTensor codes = packed.open("weight", {DType::u8}, 2);
        return blocks_of(std::move(packed), std::move(codes), "weight_scale", false,
                         "weight_scale_2", false);
    };
}

}  // namespace

extern const PackedLayout mxfp4_experts = {"MXFP4 of experts", "mxfp4", "_blocks",
                                           obey_mxfp4<false>};
extern const PackedLayout mxfp4_original = {"MXFP4 of experts, OpenAI's own", "mxfp4", ".blocks",
                                            obey_mxfp4<true>};
extern const PackedLayout packed_floats = {"MXFP4, NVFP4", "compressed-tensors", "weight_packed",
                                           obey_compressed};
extern const PackedLayout modelopt = {"NVFP4", "modelopt", "weight", obey_modelopt};

}  // namespace tsdiag::checkpoint
