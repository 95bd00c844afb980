#include <fmt/format.h>

#include "owner.hpp"
#include "packed.hpp"

/// GPTQ and AWQ: matrices stored (in, out) as codes in words of 32 bits, with a scale and a zero
/// point for each group of inputs of each output.
namespace tsdiag::checkpoint {
namespace {

/// Codes (in, out), scales (groups, out), zero points (groups, out).
class ByColumns : public GroupedIntegers {
  public:
    ByColumns(std::int64_t in, std::vector<RawTensor> parts, int bits, Groups groups)
        : GroupedIntegers(in, std::move(parts), bits, std::move(groups)) {}

    void scales(std::int64_t row, std::int64_t rows, float* out) const override {
        RawTensor some = parts()[2];
        some.offset += row;
        some.shape[1] = rows;
        std::vector<float> by_group(std::size_t(groups().count * rows));
        widen(some, std::span(by_group));
        for (std::int64_t g = 0; g < groups().count; ++g)
            for (std::int64_t r = 0; r < rows; ++r)
                out[r * groups().count + g] = by_group[std::size_t(g * rows + r)];
    }

  protected:
    const std::byte* words() const { return parts()[0].bytes.data(); }
    const std::byte* zero_words() const { return parts()[1].bytes.data(); }
    std::int64_t outputs() const { return parts()[2].shape[1]; }
};

/// The codes of an output follow each other in a stream of bits, whose words are a row apart; the
/// zero points of a group likewise along the outputs.
class Gptq final : public ByColumns {
  public:
    Gptq(std::int64_t in, std::vector<RawTensor> parts, int bits, Groups groups, int added)
        : ByColumns(in, std::move(parts), bits, std::move(groups)), added_(added) {}

    void codes(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns,
               std::uint8_t* out) const override {
        for (std::int64_t j = 0; j < columns;) {
            const std::int64_t first = (column + j) % 32, some = std::min(columns - j, 32 - first);
            for (std::int64_t r = 0; r < rows; ++r)
                unpack((column + j) / 32, row + r, first, some, out + r * columns + j);
            j += some;
        }
    }

    void zeros(std::int64_t row, std::int64_t rows, float* out) const override {
        const std::int64_t g = groups().count, per_group = outputs() * bits() / 32;
        for (std::int64_t i = 0; i < g; ++i)
            for (std::int64_t r = 0; r < rows; ++r)
                out[r * g + i] = float(code(zero_words() + 4 * i * per_group, 1, bits(), row + r)) +
                                 float(added_);
    }

  private:
    /// Of 32 codes, which fill `bits` words, those from `first` on.
    void unpack(std::int64_t block, std::int64_t row, std::int64_t first, std::int64_t some,
                std::uint8_t* out) const {
        const std::byte* from = words() + 4 * (block * bits() * outputs() + row);
        if (bits() == 3) {
            for (std::int64_t i = 0; i < some; ++i)
                out[i] = std::uint8_t(code(from, outputs(), bits(), first + i));
            return;
        }
        const std::int64_t in_word = 32 / bits();
        for (std::int64_t i = first; i < first + some;) {
            const std::int64_t rest = std::min(first + some - i, in_word - i % in_word);
            out = unpack_word(word(from, i / in_word * outputs()), bits(), i % in_word, rest, out);
            i += rest;
        }
    }

    int added_;
};

/// Eight outputs share a word, the even ones in its lower half; zero points likewise.
class Awq final : public ByColumns {
  public:
    Awq(std::int64_t in, std::vector<RawTensor> parts, Groups groups)
        : ByColumns(in, std::move(parts), 4, std::move(groups)) {}

    void codes(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns,
               std::uint8_t* out) const override {
        for (std::int64_t j = 0; j < columns; ++j)
            for (std::int64_t r = 0; r < rows;) {
                const std::int64_t o = row + r, end = std::min(rows, r + 8 - o % 8);
                const std::uint32_t eight = word(words(), (column + j) * (outputs() / 8) + o / 8);
                for (std::int64_t place = o % 8; r < end; ++r, ++place)
                    out[r * columns + j] = std::uint8_t(eight >> shifts[place] & 15);
            }
    }
    void zeros(std::int64_t row, std::int64_t rows, float* out) const override {
        const std::int64_t g = groups().count;
        for (std::int64_t i = 0; i < g; ++i)
            for (std::int64_t r = 0; r < rows; ++r)
                out[r * g + i] = float(word(zero_words(), i * (outputs() / 8) + (row + r) / 8) >>
                                           shifts[(row + r) % 8] &
                                       15);
    }

  private:
    static constexpr int shifts[] = {0, 16, 4, 20, 8, 24, 12, 28};  // of the eight outputs
};

/// Groups of `size` inputs; 0: one group of all.
GroupedIntegers::Groups groups_of(std::int64_t in, std::int64_t size) {
    GroupedIntegers::Groups groups;
    groups.size = size == 0 ? in : size;
    groups.count = (in + groups.size - 1) / groups.size;
    return groups;
}

/// The group of each input.  Where the order of activations was not used, each library has its own
/// opinion of whether it is read at all, so it must be the order of the inputs.
std::vector<std::int32_t> read_order(PackedTensors& packed, std::int64_t in,
                                     const GroupedIntegers::Groups& groups, bool by_activation) {
    std::vector<std::int32_t> of = packed.order("g_idx", in, groups.count);
    bool in_order = true;
    for (std::int64_t i = 0; i < in; ++i)
        in_order = in_order && of[std::size_t(i)] == i / groups.size;
    if (!in_order && !by_activation)
        packed.refuse(
            "has a g_idx that is not the order of the inputs, expected it to be where "
            "desc_act is false");
    if (in_order) of.clear();
    return of;
}

/// In the first version of the format zero points are stored less one, so that of 0 is the largest
/// code: a library that adds without a carry, one that carries and one that adds afterwards differ.
void check_zeros(PackedTensors& packed, const RawTensor& zeros, std::int64_t outputs, int bits) {
    const std::int64_t per_group = outputs * bits / 32;
    verify(zeros);
    for (std::int64_t g = 0; g < zeros.shape[0]; ++g)
        for (std::int64_t o = 0; o < outputs; ++o)
            if (code(zeros.bytes.data() + 4 * g * per_group, 1, bits, o) == (1u << bits) - 1)
                packed.refuse(
                    fmt::format("has the zero point {} less one in group {} of output {}, of which "
                                "libraries make different numbers, expected less than {}. Use a "
                                "model of checkpoint_format gptq_v2",
                                (1 << bits) - 1, g, o, (1 << bits) - 1));
}

struct GptqForm {
    int bits = 4;
    std::int64_t group = 0;
    bool by_activation = false;
    int added = 1;
};

Unpacked unpack_gptq(const Checkpoint& file, const std::string& name, const GptqForm& form) {
    PackedTensors packed(file, name, "qweight");
    RawTensor codes = packed.open("qweight", {DType::i32}, 2);
    const std::int64_t out = codes.shape[1], in = codes.shape[0] * 32 / form.bits;
    if (codes.shape[0] % form.bits != 0 || out % 32 != 0)
        packed.refuse(
            fmt::format("is {}, expected a multiple of {} words for each of a multiple "
                        "of 32 outputs",
                        shape_text(codes.shape), form.bits));
    GroupedIntegers::Groups groups = groups_of(in, form.group);
    RawTensor scales =
        packed.take("scales", {DType::f16, DType::bf16, DType::f32}, {groups.count, out});
    RawTensor zeros = packed.take("qzeros", {DType::i32}, {groups.count, out * form.bits / 32});
    if (form.added > 0) check_zeros(packed, zeros, out, form.bits);
    if (packed.has("g_idx")) groups.of = read_order(packed, in, groups, form.by_activation);
    if (!packed.has("g_idx") && form.by_activation)
        packed.refuse("has no g_idx beside it, expected the order of its inputs");
    std::string weight = packed.stem() + "weight";
    auto matrix = std::make_shared<Gptq>(
        in, std::vector{std::move(codes), std::move(zeros), std::move(scales)}, form.bits,
        std::move(groups), form.added);
    return {std::move(weight),
            packed_tensor(std::move(matrix), {out, in}, fmt::format("GPTQ of {} bits", form.bits)),
            std::move(packed).used()};
}

/// Keys that are obeyed, or say how the weights were found and how a server runs them.
constexpr std::string_view gptq_keys[] = {
    "quant_method", "method", "bits", "group_size", "desc_act", "sym", "checkpoint_format",
    "format", "pack_dtype", "dynamic", "lm_head", "meta", "adapter", "is_marlin_format",
    // How the weights were found.
    "static_groups", "true_sequential", "damp_percent", "damp_auto_increment", "mse",
    "act_group_aware", "model_name_or_path", "model_file_base_name", "model_seqlen", "dataset",
    "tokenizer", "batch_size", "block_name_to_quantize", "module_name_preceding_first_block",
    "modules_in_block_to_quantize", "modules_to_not_convert", "pad_token_id",
    // How a server runs them.
    "use_cuda_fp16", "use_exllama", "disable_exllama", "exllama_config", "max_input_length",
    "cache_block_outputs", "backend"};

/// Rules for some modules; those that begin with "-:" leave a module as it is, which shows.
bool has_rules(const Json& dynamic) {
    if (is_empty(dynamic) || is_false(dynamic)) return false;
    return !dynamic.is_object() || !std::ranges::all_of(dynamic.object(), [](const auto& rule) {
        return rule.first.starts_with("-:");
    });
}

/// Inputs that share a scale: 0 is all of them; nullopt: it is not told.
std::optional<std::int64_t> group_size(const Json& size) {
    if (size.is_integer() && size.integer() == -1) return 0;
    if (positive(size) == 0) return std::nullopt;
    return size.integer();
}

Unpack obey_gptq(const Json& said) {
    GptqForm form;
    form.bits = int(std::min<std::int64_t>(positive(said["bits"]), 9));
    const bool bits = form.bits == 2 || form.bits == 3 || form.bits == 4 || form.bits == 8;
    const auto group = group_size(said["group_size"]);
    const Json& version =
        said["checkpoint_format"].is_null() ? said["format"] : said["checkpoint_format"];
    const bool agree =
        said["format"].is_null() ||
        is_one_of(said["format"], {version.is_string() ? std::string_view(version.string()) : ""});
    if (!has_only(said, gptq_keys) || !bits || !group || !agree ||
        !is_one_of(version, {"gptq", "gptq_v2"}) || !is_one_of(said["method"], {"gptq"}) ||
        !is_one_of(said["pack_dtype"], {"int32"}) || !is_false(said["is_marlin_format"]) ||
        !is_empty(said["adapter"]) || has_rules(said["dynamic"]))
        return nullptr;
    form.group = *group;
    form.by_activation = is_true(said["desc_act"]);
    form.added = is_one_of(version, {"gptq"}) ? 1 : 0;
    return [form](const Checkpoint& file, const std::string& name) {
        return unpack_gptq(file, name, form);
    };
}

Unpacked unpack_awq(const Checkpoint& file, const std::string& name, std::int64_t group) {
    PackedTensors packed(file, name, "qweight");
    RawTensor codes = packed.open("qweight", {DType::i32}, 2);
    const std::int64_t in = codes.shape[0], out = codes.shape[1] * 8;
    GroupedIntegers::Groups groups = groups_of(in, group);
    RawTensor scales =
        packed.take("scales", {DType::f16, DType::bf16, DType::f32}, {groups.count, out});
    RawTensor zeros = packed.take("qzeros", {DType::i32}, {groups.count, out / 8});
    std::string weight = packed.stem() + "weight";
    auto matrix = std::make_shared<Awq>(
        in, std::vector{std::move(codes), std::move(zeros), std::move(scales)}, std::move(groups));
    return {std::move(weight), packed_tensor(std::move(matrix), {out, in}, "AWQ of 4 bits"),
            std::move(packed).used()};
}

constexpr std::string_view awq_keys[] = {
    "quant_method", "method", "bits", "w_bit", "group_size", "q_group_size", "version", "format",
    "checkpoint_format", "zero_point", "modules_to_not_convert", "desc_act", "sym", "lm_head",
    "meta", "pack_dtype",
    // How a server runs them.
    "backend", "do_fuse", "fuse_max_seq_len", "modules_to_fuse", "exllama_config"};

Unpack obey_awq(const Json& said) {
    const bool bits =
        positive(said["bits"]) == 4 || (said["bits"].is_null() && positive(said["w_bit"]) == 4);
    const Json& size = said["group_size"].is_null() ? said["q_group_size"] : said["group_size"];
    const auto group = group_size(size);
    const bool plain = std::ranges::all_of(std::array{"version", "format", "checkpoint_format"},
                                           [&](const char* key) {
                                               return is_one_of(said[key], {"gemm", "GEMM"});
                                           });
    if (!has_only(said, awq_keys) || !bits || !group || !plain || !is_true(said["zero_point"]) ||
        !is_false(said["desc_act"]) || !is_one_of(said["pack_dtype"], {"int32"}))
        return nullptr;
    return [group = *group](const Checkpoint& file, const std::string& name) {
        return unpack_awq(file, name, group);
    };
}

}  // namespace

extern const PackedLayout gptq = {"GPTQ, 2, 3, 4 or 8 bits", "gptq", "qweight", obey_gptq};
extern const PackedLayout awq = {"AWQ, version gemm", "awq", "qweight", obey_awq};

}  // namespace tsdiag::checkpoint
