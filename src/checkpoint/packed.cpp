#include "packed.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unordered_map>
#include <unordered_set>

#include "listed.hpp"
#include "owner.hpp"

namespace tsdiag {
namespace checkpoint {

extern const PackedLayout gptq;
extern const PackedLayout awq;
extern const PackedLayout bitsandbytes;
extern const PackedLayout mxfp4_experts;
extern const PackedLayout mxfp4_original;
extern const PackedLayout packed_integers;
extern const PackedLayout packed_floats;
extern const PackedLayout modelopt;

std::span<const PackedLayout* const> packed_layouts() {
    static constexpr std::array all{
        &gptq,          &awq,     &bitsandbytes, &mxfp4_experts, &mxfp4_original, &packed_integers,
        &packed_floats, &modelopt};
    return all;
}

void PackedTensors::refuse(const std::string& found) const {
    checkpoint::refuse(file_.source(), fmt::format("tensor '{}' {}. Download the model and its "
                                                   "configuration again.",
                                                   name_, found));
}

RawTensor PackedTensors::taken(std::string_view ending, std::initializer_list<DType> types) {
    const std::string name = stem_ + std::string(ending);
    if (!file_.has(name)) refuse(fmt::format("has no '{}' beside it, expected one", name));
    RawTensor raw = file_.tensor(name);
    const bool known = std::ranges::find(types, raw.dtype) != types.end();
    if (!known || !raw.contiguous() || raw.big_endian) {
        std::vector<std::string_view> names;
        for (const DType type : types) names.push_back(tsdiag::name(type));
        refuse(fmt::format("has '{}' of dtype {}{} beside it, expected {}", name, raw.dtype_name,
                           known ? " with gaps" : "", fmt::join(names, " or ")));
    }
    raw.bytes = raw.bytes.subspan(std::size_t(raw.offset) * bytes_of(raw.dtype));
    raw.offset = 0;
    if (name != name_) used_.push_back(name);
    return raw;
}

RawTensor PackedTensors::take(std::string_view ending, std::initializer_list<DType> types,
                              const std::vector<std::int64_t>& shape) {
    RawTensor raw = taken(ending, types);
    if (raw.shape != shape)
        refuse(fmt::format("has '{}{}' {} beside it, expected {}", stem_, ending,
                           shape_text(raw.shape), shape_text(shape)));
    return raw;
}

RawTensor PackedTensors::open(std::string_view ending, std::initializer_list<DType> types,
                              std::size_t dimensions) {
    RawTensor raw = taken(ending, types);
    if (raw.shape.size() != dimensions || raw.count() == 0)
        refuse(fmt::format("has '{}{}' {} beside it, expected {} dimensions that are not empty",
                           stem_, ending, shape_text(raw.shape), dimensions));
    return raw;
}

std::vector<float> PackedTensors::numbers(std::string_view ending,
                                          const std::vector<std::int64_t>& shape) {
    const RawTensor raw = take(ending, {DType::f32}, shape);
    std::vector<float> out(std::size_t(raw.count()));
    widen(raw, std::span(out));
    return out;
}

float PackedTensors::number(std::string_view ending) {
    const RawTensor raw = taken(ending, {DType::f32});
    if (raw.count() != 1)
        refuse(fmt::format("has '{}{}' {} beside it, expected one number", stem_, ending,
                           shape_text(raw.shape)));
    float number = 0;
    widen(raw, std::span(&number, 1));
    return number;
}

std::vector<std::int32_t> PackedTensors::order(std::string_view ending, std::int64_t columns,
                                               std::int64_t groups) {
    std::vector<double> numbers(std::size_t(columns), 0);
    widen(take(ending, {DType::i32, DType::i64}, {columns}), std::span(numbers));
    std::vector<std::int32_t> of;
    for (const double g : numbers) {
        if (!(g >= 0 && g < double(groups)))
            refuse(fmt::format("has '{}{}' with {} beside it, expected one of {} groups", stem_,
                               ending, g, groups));
        of.push_back(std::int32_t(g));
    }
    return of;
}

void PackedTensors::pass(std::string_view ending) {
    if (has(ending)) used_.push_back(stem_ + std::string(ending));
}

RawTensor packed_tensor(std::shared_ptr<const PackedMatrix> matrix, std::vector<std::int64_t> shape,
                        std::string what) {
    RawTensor tensor;
    tensor.dtype = DType::packed;
    tensor.dtype_name = std::move(what);
    tensor.strides = row_major(shape);
    tensor.shape = std::move(shape);
    tensor.bytes = matrix->parts().front().bytes;
    tensor.owner = matrix->parts().front().owner;
    tensor.packed = std::move(matrix);
    return tensor;
}

namespace {

/// Rows and columns exchanged.
RawTensor turned(RawTensor tensor) {
    std::swap(tensor.shape[0], tensor.shape[1]);
    std::swap(tensor.strides[0], tensor.strides[1]);
    return tensor;
}

/// GPT-2's projections are stored (in, out), but packed like those of nn.Linear.
bool is_turned(const Json& config, std::string_view name) {
    if (!says(config["model_type"], "gpt2")) return false;
    return name.ends_with(".c_attn.weight") || name.ends_with(".c_proj.weight") ||
           name.ends_with(".c_fc.weight");
}

}  // namespace
}  // namespace checkpoint

std::shared_ptr<const Checkpoint> apply_packing(std::shared_ptr<const Checkpoint> file,
                                                Json& config, std::vector<std::string>& warnings) {
    using namespace checkpoint;
    // OpenAI's own files of gpt-oss say nothing of their packing, and have one.
    const Json own(Json::Object{{"quant_method", "mxfp4"}});
    const Json& given = config[quantization_key];
    const bool untold = given.is_null() && file->has("block.0.mlp.mlp1_weight.blocks");
    const Json& said = untold ? own : given;
    if (!said.is_object()) return file;
    std::unordered_map<std::string, Unpacked> packed;  // by the names of the codes
    std::unordered_set<std::string> used;
    for (const PackedLayout* layout : packed_layouts()) {
        if (!says(said["quant_method"], layout->method)) continue;
        const Unpack unpack = layout->obey(said);
        if (!unpack) continue;
        for (const std::string& name : file->names()) {
            if (!name.ends_with(layout->codes) || packed.contains(name)) continue;
            Unpacked matrix = unpack(*file, name);
            if (matrix.name.empty()) continue;
            used.insert(matrix.used.begin(), matrix.used.end());
            packed.emplace(name, std::move(matrix));
        }
    }
    if (packed.empty()) return file;
    auto listed = std::make_shared<ListedCheckpoint>(file->format(), file->source());
    listed->set_metadata(file->metadata());
    for (const std::string& name : file->names()) {
        if (const auto found = packed.find(name); found != packed.end()) {
            Unpacked& matrix = found->second;
            listed->add(matrix.name,
                        is_turned(config, matrix.name) ? turned(matrix.tensor) : matrix.tensor);
        } else if (!used.contains(name)) {
            listed->add(name, file->tensor(name));
        }
    }
    if (!untold) remove_quantization(config);
    warnings.push_back(fmt::format(
        "{} {} stored in few bits with scales ({}): the numbers are those of their exact products, "
        "while a server of such a model may round these, and activations",
        packed.size(), packed.size() == 1 ? "weight is" : "weights are",
        packed.begin()->second.tensor.dtype_name));
    return listed;
}

}  // namespace tsdiag
