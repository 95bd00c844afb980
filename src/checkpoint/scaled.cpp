#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "layout.hpp"
#include "listed.hpp"

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
/// Of activations: they change what a served model computes, not its weights.
constexpr std::array<std::string_view, 3> of_activations{"input_scale", "activation_scale",
                                                         "input_scale_ub"};
constexpr std::string_view weight = "weight";
constexpr std::string_view config_key = "quantization_config";

/// Rows and columns that share a scale.
using Block = std::pair<std::int64_t, std::int64_t>;

/// What a configuration says of scales.
struct Told {
    bool understood = false;
    std::set<Block> blocks;
};

std::int64_t positive(const Json& number) {
    return number.is_integer() && number.integer() > 0 ? number.integer() : 0;
}

/// [rows, columns]; false: it is there and is something else.
bool add_block(const Json& pair, std::set<Block>& blocks) {
    if (pair.is_null()) return true;
    if (!pair.is_array() || pair.array().size() != 2) return false;
    const Block block{positive(pair.array()[0]), positive(pair.array()[1])};
    if (block.first == 0 || block.second == 0) return false;
    blocks.insert(block);
    return true;
}

/// The groups of compressed-tensors: symmetric weights of 8 bits, nothing rotated.
bool add_groups(const Json& said, std::set<Block>& blocks) {
    const Json& turned = said["transform_config"];
    if (!turned.is_null() && !(turned.is_object() && turned.object().empty())) return false;
    if (!said["config_groups"].is_object()) return false;
    for (const auto& [name, group] : said["config_groups"].object()) {
        const Json& weights = group["weights"];
        const Json& symmetric = weights["symmetric"];
        if (positive(weights["num_bits"]) != 8 || (symmetric.is_bool() && !symmetric.boolean()) ||
            !add_block(weights["block_structure"], blocks))
            return false;
        if (const std::int64_t columns = positive(weights["group_size"]))
            blocks.insert({1, columns});
    }
    return true;
}

Told told_by(const Json& said) {
    Told told;
    const Json& method = said["quant_method"];
    if (!method.is_string()) return told;
    const std::string& name = method.string();
    if (name == "fp8" || name == "fbgemm_fp8") {
        told.understood = add_block(said["weight_block_size"], told.blocks);
    } else if (name == "compressed-tensors") {
        told.understood = add_groups(said, told.blocks);
    } else if (name == "modelopt") {
        told.understood = said["quant_algo"].is_string() && said["quant_algo"].string() == "FP8";
    } else if (name == "bitsandbytes") {
        const Json& eight = said["load_in_8bit"];
        told.understood = eight.is_bool() && eight.boolean();
    }
    return told;
}

bool is_float8(DType type) { return type == DType::f8_e4m3 || type == DType::f8_e5m2; }

bool is_scale(DType type) {
    return type == DType::f16 || type == DType::bf16 || type == DType::f32 || type == DType::f64;
}

std::int64_t blocks_of(std::int64_t extent, std::int64_t block) {
    return extent / block + (extent % block != 0);
}

/// The scales of the matrix `raw`.
BlockScales scales_of(const std::string& name, const RawTensor& raw, const std::string& scale_name,
                      RawTensor factors, double unit, const Told& told, const std::string& where) {
    const std::int64_t rows = raw.shape[0], columns = raw.shape[1];
    const std::string shape = shape_text(factors.shape);
    if (!is_scale(factors.dtype))
        refuse(where, fmt::format("tensor '{}' has dtype {}, expected scales of f16, bf16, f32 or "
                                  "f64. Use the model in f32, f16 or bf16.",
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
    consider(rows, columns);
    consider(1, columns);
    for (const Block& block : told.blocks) consider(block.first, block.second);
    if (fitting.size() != 1)
        refuse(where, fmt::format(
                          "tensor '{}' is {}, expected one scale for all of '{}' {}, one for each "
                          "of its rows, or one for each block that {} of the configuration states. "
                          "Pass the model's own configuration with --config.",
                          scale_name, shape, name, shape_text(raw.shape), config_key));
    return {std::move(factors), unit, columns, fitting.begin()->first, fitting.begin()->second};
}

class ScaledCheckpoint final : public Checkpoint {
  public:
    ScaledCheckpoint(std::shared_ptr<const Checkpoint> file, const Told& told)
        : file_(std::move(file)) {
        std::unordered_set<std::string> used;
        for (const std::string& name : file_->names()) find_scales(name, told, used);
        if (!scales_.empty() && !unscaled_.empty())
            refuse(file_->source(),
                   fmt::format("tensor '{}' of dtype {} has no scale, while {} others have one. "
                               "Download the model again.",
                               unscaled_.front(), file_->tensor(unscaled_.front()).dtype_name,
                               scales_.size()));
        for (const std::string& name : file_->names())
            if (!used.contains(name)) names_.push_back(name);
        kept_.insert(names_.begin(), names_.end());
    }

    std::size_t count() const { return scales_.size(); }

    const std::vector<std::string>& names() const override { return names_; }
    bool has(std::string_view name) const override { return kept_.contains(name); }
    RawTensor tensor(std::string_view name) const override {
        if (!has(name)) unknown_tensor(*this, name);
        RawTensor raw = file_->tensor(name);
        if (const auto found = scales_.find(std::string(name)); found != scales_.end())
            raw.scales = found->second;
        return raw;
    }
    const Json& metadata() const override { return file_->metadata(); }
    std::string_view format() const override { return file_->format(); }
    std::string source() const override { return file_->source(); }

  private:
    /// Where `name` is a matrix of 8 bits: its scales, and the names `used` for them.
    void find_scales(const std::string& name, const Told& told,
                     std::unordered_set<std::string>& used) {
        if (name != weight && !name.ends_with(".weight")) return;
        const RawTensor raw = file_->tensor(name);
        const bool eight_bits = is_float8(raw.dtype) || raw.dtype == DType::i8;
        const bool matrix = raw.shape.size() == 2 && raw.count() > 0;
        if (!eight_bits || !matrix || !raw.contiguous() || raw.offset != 0) return;
        const std::string stem = name.substr(0, name.size() - weight.size());
        std::vector<const ScaleName*> found;
        for (const ScaleName& scale : scale_names)
            if (file_->has(stem + std::string(scale.name))) found.push_back(&scale);
        if (found.empty()) {
            unscaled_.push_back(name);
            return;
        }
        if (found.size() > 1)
            refuse(
                file_->source(),
                fmt::format("tensor '{}' has two tensors of scales, '{}' and '{}', expected one. "
                            "Download the model again.",
                            name, found[0]->name, found[1]->name));
        const ScaleName& scale = *found.front();
        const std::string scale_name = stem + std::string(scale.name);
        scales_[name] = std::make_shared<const BlockScales>(scales_of(
            name, raw, scale_name, file_->tensor(scale_name), scale.unit, told, file_->source()));
        used.insert(scale_name);
        for (const std::string_view other : of_activations)
            if (file_->has(stem + std::string(other))) used.insert(stem + std::string(other));
        if (scale.name == "SCB") check_layout(stem + "weight_format", used);
    }

    /// bitsandbytes tells how rows are stored: 0 is in order, others are tiles of a GPU.
    void check_layout(const std::string& name, std::unordered_set<std::string>& used) const {
        if (!file_->has(name)) return;
        const RawTensor raw = file_->tensor(name);
        std::array<double, 1> layout{-1};
        if (raw.count() == 1 && raw.dtype != DType::other) widen(raw, std::span<double>(layout));
        if (layout[0] != 0)
            refuse(file_->source(),
                   fmt::format("tensor '{}' says that the weight is stored in tiles, expected 0: "
                               "row by row. Save the model again.",
                               name));
        used.insert(name);
    }

    std::shared_ptr<const Checkpoint> file_;
    std::vector<std::string> names_, unscaled_;
    std::unordered_set<std::string_view> kept_;  ///< names_
    std::unordered_map<std::string, std::shared_ptr<const BlockScales>> scales_;
};

}  // namespace
}  // namespace checkpoint

std::shared_ptr<const Checkpoint> apply_scales(std::shared_ptr<const Checkpoint> file, Json& config,
                                               std::vector<std::string>& warnings) {
    using namespace checkpoint;
    const Json& said = config[config_key];
    const Told told = told_by(said);
    if (!said.is_null() && !told.understood) return file;  // refused by name where it is read
    auto scaled = std::make_shared<const ScaledCheckpoint>(file, told);
    if (scaled->count() == 0) return file;
    if (!said.is_null()) {
        Json::Object kept = config.object();
        std::erase_if(kept, [](const auto& member) { return member.first == config_key; });
        config = std::move(kept);
    }
    warnings.push_back(
        fmt::format("{} weights are stored in 8 bits with scales: the numbers are those of their "
                    "products, while a server of such a model may round activations to 8 bits too",
                    scaled->count()));
    return scaled;
}

}  // namespace tsdiag
