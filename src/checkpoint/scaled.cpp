#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "layout.hpp"
#include "listed.hpp"
#include "said.hpp"

/// Weights of 8 bits and the tensors that scale them.
namespace tsdiag {
namespace checkpoint {
namespace {

/// A tensor beside `NAME.weight` that scales it.
struct ScaleName {
    std::string_view name;
    double unit;
};
constexpr ScaleName scale_names[] = {
    {"weight_scale_inv", 1},  // a factor in spite of its name
    {"weight_scale", 1},
    {"SCB", 1.0 / 127},  // bitsandbytes: the largest magnitude of a row
};
/// No part of the weights: scales of activations, and how bitsandbytes stores rows.
constexpr std::array<std::string_view, 4> other_tensors{"input_scale", "activation_scale",
                                                        "input_scale_ub", "weight_format"};
constexpr std::string_view weight = "weight";

/// Keys of a `quantization_config` that are obeyed, or say how weights were found or activations
/// are rounded; one that ends in '_' begins a group of them.
constexpr std::array<std::string_view, 26> known_keys{
    "quant_method", "activation_scheme", "activation_scale_ub", "weight_block_size", "fmt",
    "scale_fmt", "dequantize", "modules_to_not_convert", "ignored_layers", "ignore",
    "exclude_modules", "config_groups", "transform_config", "format", "global_compression_ratio",
    "kv_cache_scheme", "kv_cache_quant_algo", "quantization_status", "sparsity_config", "version",
    "quant_algo", "producer",
    // Groups.
    "load_in_", "_load_in_", "bnb_4bit_", "llm_int8_"};

/// Rows and columns that share a scale.
using Block = std::pair<std::int64_t, std::int64_t>;

/// What a configuration declares of scales.
struct DeclaredScales {
    bool understood = false;
    bool only_blocks = false;  ///< no scale of a whole matrix or a row
    std::set<Block> blocks;
};

/// [rows, columns]; false: it is there and is something else.
bool add_block(const Json& pair, std::set<Block>& blocks) {
    if (pair.is_null()) return true;
    if (!pair.is_array() || pair.array().size() != 2) return false;
    const Block block{positive(pair.array()[0]), positive(pair.array()[1])};
    if (block.first == 0 || block.second == 0) return false;
    blocks.insert(block);
    return true;
}

/// compressed-tensors: symmetric weights of 8 bits in the order of the model, as they are.
bool add_groups(const Json& said, std::set<Block>& blocks) {
    return all_groups(said, [&](const Json& format, const Json& weights) {
        const bool as_it_is =
            is_one_of(format, {"float-quantized", "int-quantized", "naive-quantized"});
        if (!as_it_is || positive(weights["num_bits"]) != 8 ||
            !is_one_of(weights["type"], {"float", "int"}) || !is_false(weights["actorder"]) ||
            !(weights["symmetric"].is_null() || is_true(weights["symmetric"])) ||
            !add_block(weights["block_structure"], blocks))
            return false;
        if (const std::int64_t columns = positive(weights["group_size"]))
            blocks.insert({1, columns});
        return true;
    });
}

DeclaredScales declared_scales(const Json& said) {
    DeclaredScales declared;
    const Json& method = said["quant_method"];
    if (!method.is_string()) return declared;
    if (!has_only(said, known_keys)) return declared;
    const std::string& name = method.string();
    if (name == "fp8" || name == "fbgemm_fp8") {
        declared.understood = add_block(said["weight_block_size"], declared.blocks);
        declared.only_blocks = !declared.blocks.empty();
    } else if (name == "compressed-tensors") {
        declared.understood = add_groups(said, declared.blocks);
    } else if (name == "modelopt") {
        declared.understood =
            said["quant_algo"].is_string() && said["quant_algo"].string() == "FP8";
    } else if (name == "bitsandbytes") {
        declared.understood = is_true(said["load_in_8bit"]);
    }
    return declared;
}

bool is_float8(DType type) { return type == DType::f8_e4m3 || type == DType::f8_e5m2; }

bool is_scale(DType type) {
    return type == DType::f8_e8m0 || type == DType::f16 || type == DType::bf16 ||
           type == DType::f32 || type == DType::f64;
}

std::int64_t blocks_of(std::int64_t extent, std::int64_t block) {
    return extent / block + (extent % block != 0);
}

/// The scales of the matrix `raw`.
BlockScales scales_of(const std::string& name, const RawTensor& raw, const std::string& scale_name,
                      RawTensor factors, double unit, const DeclaredScales& declared,
                      const std::string& where) {
    const std::int64_t rows = raw.shape[0], columns = raw.shape[1];
    const std::string shape = shape_text(factors.shape);
    if (!is_scale(factors.dtype))
        refuse(where, fmt::format("tensor '{}' has dtype {}, expected scales of f16, bf16, f32, "
                                  "f64 or f8_e8m0. Use the model in f32, f16 or bf16.",
                                  scale_name, factors.dtype_name));
    while (factors.shape.size() < 2) {
        factors.shape.push_back(1);
        factors.strides.push_back(1);
    }
    std::set<Block> fitting;
    const auto consider = [&](std::int64_t block_rows, std::int64_t block_columns) {
        const Block block{std::min(block_rows, rows), std::min(block_columns, columns)};
        const std::vector<std::int64_t> expected{blocks_of(rows, block.first),
                                                 blocks_of(columns, block.second)};
        if (factors.shape == expected) fitting.insert(block);
    };
    if (!declared.only_blocks) {
        consider(rows, columns);
        consider(1, columns);
    }
    for (const Block& block : declared.blocks) consider(block.first, block.second);
    if (fitting.size() != 1)
        refuse(where, fmt::format(
                          "tensor '{}' is {}, expected one scale for all of '{}' {}, one for each "
                          "of its rows, or one for each block that {} of the configuration states. "
                          "Pass the model's own configuration with --config.",
                          scale_name, shape, name, shape_text(raw.shape), quantization_key));
    return {std::move(factors), unit, columns, fitting.begin()->first, fitting.begin()->second};
}

/// bitsandbytes tells how rows are stored: 0 is in order, others are tiles of a GPU.
void check_layout(const Checkpoint& file, const std::string& name) {
    const RawTensor raw = file.tensor(name);
    std::array<double, 1> layout{-1};
    if (raw.count() == 1 && raw.dtype != DType::other) widen(raw, std::span<double>(layout));
    if (layout[0] != 0)
        refuse(
            file.source(),
            fmt::format("tensor '{}' says that the weight is stored in tiles, expected 0: row by "
                        "row. Save the model again.",
                        name));
}

/// Matrices of 8 bits and their scales, by the names of the matrices; those without a scale; and
/// the tensors that are no part of the model then.
struct ScaledWeights {
    std::unordered_map<std::string, std::shared_ptr<const BlockScales>> scales;
    std::vector<std::string> unscaled;
    std::unordered_set<std::string> used;

    void add(const Checkpoint& file, const std::string& name, const DeclaredScales& declared) {
        if (name != weight && !name.ends_with(".weight")) return;
        const RawTensor raw = file.tensor(name);
        const bool eight_bits = is_float8(raw.dtype) || raw.dtype == DType::i8;
        const bool matrix = raw.shape.size() == 2 && raw.count() > 0;
        if (!eight_bits || !matrix || !raw.contiguous() || raw.offset != 0) return;
        const std::string stem = name.substr(0, name.size() - weight.size());
        std::vector<const ScaleName*> found;
        for (const ScaleName& scale : scale_names)
            if (file.has(stem + std::string(scale.name))) found.push_back(&scale);
        if (found.empty()) return unscaled.push_back(name);
        if (found.size() > 1)
            refuse(
                file.source(),
                fmt::format("tensor '{}' has two tensors of scales, '{}' and '{}', expected one. "
                            "Download the model again.",
                            name, found[0]->name, found[1]->name));
        const std::string scale = stem + std::string(found.front()->name);
        scales[name] = std::make_shared<const BlockScales>(scales_of(
            name, raw, scale, file.tensor(scale), found.front()->unit, declared, file.source()));
        used.insert(scale);
        for (const std::string_view other : other_tensors)
            if (file.has(stem + std::string(other))) used.insert(stem + std::string(other));
        if (const std::string layout = stem + "weight_format"; used.contains(layout))
            check_layout(file, layout);
    }
};

}  // namespace
}  // namespace checkpoint

std::shared_ptr<const Checkpoint> apply_scales(std::shared_ptr<const Checkpoint> file, Json& config,
                                               std::vector<std::string>& warnings) {
    using namespace checkpoint;
    const Json& said = config[quantization_key];
    const DeclaredScales declared = declared_scales(said);
    if (!said.is_null() && !declared.understood) return file;  // refused by name where it is read
    ScaledWeights weights;
    for (const std::string& name : file->names()) weights.add(*file, name, declared);
    if (weights.scales.empty()) return file;
    if (!weights.unscaled.empty())
        refuse(
            file->source(),
            fmt::format("tensor '{}' of dtype {} has no scale, while {} others have one. "
                        "Download the model again.",
                        weights.unscaled.front(), file->tensor(weights.unscaled.front()).dtype_name,
                        weights.scales.size()));
    auto scaled = std::make_shared<ListedCheckpoint>(file->format(), file->source());
    scaled->set_metadata(file->metadata());
    for (const std::string& name : file->names()) {
        if (weights.used.contains(name)) continue;
        RawTensor raw = file->tensor(name);
        if (const auto found = weights.scales.find(name); found != weights.scales.end())
            raw.scales = found->second;
        scaled->add(name, std::move(raw));
    }
    if (!said.is_null()) remove_quantization(config);
    const std::size_t count = weights.scales.size();
    warnings.push_back(
        fmt::format("{} {} stored in 8 bits with scales: the numbers are those of their products, "
                    "while a server of such a model may round activations to 8 bits too",
                    count, count == 1 ? "weight is" : "weights are"));
    return scaled;
}

}  // namespace tsdiag
