#include <fmt/format.h>

#include <set>

#include "owner.hpp"
#include "packed.hpp"

/// compressed-tensors: what its configurations share, and its integers in words of 32 bits.
namespace tsdiag::checkpoint {
namespace {

/// Keys that are obeyed, or say how the weights were found and activations are rounded.
constexpr std::string_view model_keys[] = {
    "quant_method",        "config_groups", "transform_config",         "format",
    "sparsity_config",     "ignore",        "global_compression_ratio", "kv_cache_scheme",
    "quantization_status", "version"};
constexpr std::string_view group_keys[] = {"targets", "weights", "input_activations",
                                           "output_activations", "format"};
constexpr std::string_view weights_keys[] = {
    "num_bits", "type",     "symmetric", "group_size",      "strategy",    "block_structure",
    "dynamic",  "actorder", "observer",  "observer_kwargs", "scale_dtype", "zp_dtype"};

/// What the groups say, together.
struct DeclaredGroups {
    std::set<int> bits;
    std::set<std::int64_t> groups;  ///< columns that share a scale; 0 is a row
    bool symmetric = false, asymmetric = false;
    bool by_activation = false;
};

/// Codes (rows, words), scales (rows, groups), zero points (words, groups) along the rows.
/// All are stored with half of the range added, which is the zero point where there is none.
class PackedIntegers final : public GroupedIntegers {
  public:
    PackedIntegers(std::int64_t columns, std::vector<RawTensor> parts, int bits, Groups groups)
        : GroupedIntegers(columns, std::move(parts), bits, std::move(groups)) {}

    void codes(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns,
               std::uint8_t* out) const override {
        const std::int64_t words = parts()[0].shape[1], in_word = 32 / bits();
        for (std::int64_t r = 0; r < rows; ++r) {
            const std::byte* from = parts()[0].bytes.data() + 4 * (row + r) * words;
            for (std::int64_t j = column; j < column + columns;) {
                const std::int64_t some = std::min(column + columns - j, in_word - j % in_word);
                out = unpack_word(word(from, j / in_word), bits(), j % in_word, some, out);
                j += some;
            }
        }
    }
    void scales(std::int64_t row, std::int64_t rows, float* out) const override {
        RawTensor some = parts()[1];
        some.offset += row * some.strides[0];
        some.shape[0] = rows;
        widen(some, std::span(out, std::size_t(rows * groups().count)));
    }
    void zeros(std::int64_t row, std::int64_t rows, float* out) const override {
        const std::int64_t g = groups().count;
        for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t i = 0; i < g; ++i)
                out[r * g + i] =
                    parts().size() < 3
                        ? float(1 << (bits() - 1))
                        : float(code(parts()[2].bytes.data() + 4 * i, g, bits(), row + r));
    }
};

/// The shape of the matrix is a tensor of its own.
std::pair<std::int64_t, std::int64_t> read_shape(PackedTensors& packed) {
    const RawTensor raw = packed.take("weight_shape", {DType::i64, DType::i32}, {2});
    std::array<double, 2> shape{};
    widen(raw, std::span<double>(shape));
    constexpr double most = 1 << 28;
    for (const double size : shape)
        if (!(size >= 1 && size <= most))
            packed.refuse(
                fmt::format("has a weight_shape with {} beside it, expected sizes from 1 "
                            "to {}",
                            size, most));
    return {std::int64_t(shape[0]), std::int64_t(shape[1])};
}

/// The only one of the declared sizes of groups, or of a row, that gives so many scales.
GroupedIntegers::Groups groups_of(const PackedTensors& packed, std::int64_t columns,
                                  std::int64_t scales, const DeclaredGroups& declared) {
    std::set<std::int64_t> fitting;
    for (const std::int64_t size : declared.groups) {
        const std::int64_t wide = size == 0 ? columns : std::min(size, columns);
        if (columns % wide == 0 && columns / wide == scales) fitting.insert(wide);
    }
    if (fitting.size() != 1)
        packed.refuse(
            fmt::format("of {} columns has {} scales a row, expected as many as a "
                        "group_size of the configuration gives",
                        columns, scales));
    return {scales, *fitting.begin(), {}};
}

std::vector<std::int32_t> read_order(PackedTensors& packed, std::int64_t columns,
                                     std::int64_t groups) {
    std::vector<std::int32_t> of = packed.order("weight_g_idx", columns, groups);
    std::vector<std::int64_t> members(std::size_t(groups), 0);
    for (const std::int32_t g : of) ++members[std::size_t(g)];
    for (const std::int64_t count : members)
        if (count != columns / groups)
            packed.refuse(
                fmt::format("has a weight_g_idx beside it with a group of {} columns, "
                            "expected {} in each",
                            count, columns / groups));
    return of;
}

std::int64_t words_for(std::int64_t codes, int bits) { return (codes * bits + 31) / 32; }

Unpacked unpack_integers(const Checkpoint& file, const std::string& name,
                         const DeclaredGroups& declared) {
    PackedTensors packed(file, name, "weight_packed");
    RawTensor codes = packed.open("weight_packed", {DType::i32}, 2);
    const auto [rows, columns] = read_shape(packed);
    std::vector<int> fitting;
    for (const int some : declared.bits)
        if (codes.shape == std::vector{rows, words_for(columns, some)}) fitting.push_back(some);
    if (fitting.size() != 1)
        packed.refuse(
            fmt::format("is {}, expected words for a matrix ({}, {}) of one of the "
                        "num_bits of the configuration",
                        shape_text(codes.shape), rows, columns));
    const int bits = fitting.front();
    RawTensor scales = packed.open("weight_scale", {DType::f16, DType::bf16, DType::f32}, 2);
    if (scales.shape[0] != rows)
        packed.refuse(fmt::format("has scales {} beside it, expected {} rows",
                                  shape_text(scales.shape), rows));
    GroupedIntegers::Groups groups = groups_of(packed, columns, scales.shape[1], declared);
    std::vector<RawTensor> parts{std::move(codes), std::move(scales)};
    const bool zeros = packed.has("weight_zero_point");
    if (zeros ? !declared.asymmetric : !declared.symmetric)
        packed.refuse(
            fmt::format("has {} zero points beside it, expected what \"symmetric\" of the "
                        "configuration says",
                        zeros ? "the" : "no"));
    if (zeros)
        parts.push_back(
            packed.take("weight_zero_point", {DType::i32}, {words_for(rows, bits), groups.count}));
    if (packed.has("weight_g_idx")) {
        if (!declared.by_activation)
            packed.refuse("has a weight_g_idx beside it, expected none without \"actorder\"");
        groups.of = read_order(packed, columns, groups.count);
    } else if (declared.by_activation) {
        packed.refuse("has no weight_g_idx beside it, expected one for the \"actorder\"");
    }
    for (const std::string_view other : {"input_scale", "input_zero_point"}) packed.pass(other);
    std::string weight = packed.stem() + "weight";
    auto matrix =
        std::make_shared<PackedIntegers>(columns, std::move(parts), bits, std::move(groups));
    return {std::move(weight),
            packed_tensor(std::move(matrix), {rows, columns},
                          fmt::format("packed integers of {} bits", bits)),
            std::move(packed).used()};
}

/// Adds what the weights of a group say; false: they are of another kind.
bool add_group(const Json& weights, DeclaredGroups& declared) {
    const std::int64_t bits = positive(weights["num_bits"]);
    const Json &strategy = weights["strategy"], &size = weights["group_size"];
    const std::int64_t columns = positive(size);
    const bool by_group = says(strategy, "group") || (strategy.is_null() && columns > 0);
    const bool by_row = says(strategy, "channel") && (size.is_null() || columns == 0);
    const Json& order = weights["actorder"];
    const bool dynamic = is_one_of(order, {"group", "dynamic"}) && !order.is_null();
    if ((bits != 4 && bits != 8) || !is_one_of(weights["type"], {"int"}) || by_group == by_row ||
        (by_group && columns == 0) || !weights["block_structure"].is_null() ||
        !(is_false(order) || dynamic || is_one_of(order, {"weight", "static"})))
        return false;
    declared.bits.insert(int(bits));
    declared.groups.insert(by_row ? 0 : columns);
    const bool symmetric = weights["symmetric"].is_null() || is_true(weights["symmetric"]);
    (symmetric ? declared.symmetric : declared.asymmetric) = true;
    declared.by_activation = declared.by_activation || dynamic;
    return true;
}

Unpack obey_integers(const Json& said) {
    DeclaredGroups declared;
    const bool understood = all_groups(said, [&](const Json& format, const Json& weights) {
        return says(format, "pack-quantized") && add_group(weights, declared);
    });
    if (!understood || declared.bits.empty()) return nullptr;
    return [declared](const Checkpoint& file, const std::string& name) {
        return unpack_integers(file, name, declared);
    };
}

}  // namespace

bool all_groups(const Json& said,
                const std::function<bool(const Json& format, const Json& weights)>& obeys) {
    const Json& sparsity = said["sparsity_config"];
    if (!has_only(said, model_keys) || !is_empty(said["transform_config"]) ||
        !(is_empty(sparsity) || says(sparsity["format"], "dense")) ||
        !said["config_groups"].is_object() || is_empty(said["config_groups"]))
        return false;
    return std::ranges::all_of(said["config_groups"].object(), [&](const auto& member) {
        const Json& group = member.second;
        return has_only(group, group_keys) && has_only(group["weights"], weights_keys) &&
               is_false(group["weights"]["dynamic"]) &&
               obeys(group["format"].is_null() ? said["format"] : group["format"],
                     group["weights"]);
    });
}

extern const PackedLayout packed_integers = {"integers, 4 or 8 bits", "compressed-tensors",
                                             "weight_packed", obey_integers};

}  // namespace tsdiag::checkpoint
