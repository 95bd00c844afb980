#include <fmt/format.h>

#include <algorithm>

#include "layout.hpp"
#include "listed.hpp"
#include "mapped_file.hpp"

namespace tsdiag::checkpoint {
namespace {

constexpr std::uint64_t longest_header = 100'000'000;
constexpr std::size_t length_size = 8;  // bytes before the header that hold its length

struct TypeName {
    std::string_view name;
    DType type;
    std::int64_t bits;
};
constexpr TypeName type_names[] = {
    {"BOOL", DType::boolean, 8},    {"U8", DType::u8, 8},
    {"I8", DType::i8, 8},           {"U16", DType::u16, 16},
    {"I16", DType::i16, 16},        {"U32", DType::u32, 32},
    {"I32", DType::i32, 32},        {"U64", DType::u64, 64},
    {"I64", DType::i64, 64},        {"F8_E4M3", DType::f8_e4m3, 8},
    {"F8_E5M2", DType::f8_e5m2, 8}, {"F16", DType::f16, 16},
    {"BF16", DType::bf16, 16},      {"F32", DType::f32, 32},
    {"F64", DType::f64, 64},        {"C64", DType::c64, 64},
    {"F8_E8M0", DType::f8_e8m0, 8}, {"F8_E4M3FNUZ", DType::other, 8},
    {"F4", DType::other, 4},        {"F8_E5M2FNUZ", DType::other, 8},
    {"F6_E2M3", DType::other, 6},   {"F6_E3M2", DType::other, 6},
};

const TypeName* find_type(std::string_view name) {
    for (const TypeName& type : type_names)
        if (type.name == name) return &type;
    return nullptr;
}

/// One entry of the header; offsets count from the end of the header.
struct Described {
    std::string name;
    RawTensor tensor;
    std::uint64_t begin, end;
};

struct Header {
    Json json;
    Bytes data;
};

Header read_header(const MappedFile& file) {
    const Bytes bytes = file.bytes();
    if (bytes.size() < length_size)
        refuse(file.path(), fmt::format("has {} bytes, expected at least 8: the length of the "
                                        "safetensors header. Download it again.",
                                        bytes.size()));
    const auto length = load<std::uint64_t>(bytes.data());
    if (length > longest_header)
        refuse(file.path(), fmt::format("has a safetensors header of {} bytes, expected at most "
                                        "{}. Is this a safetensors file?",
                                        length, longest_header));
    if (length > bytes.size() - length_size)
        refuse(file.path(),
               fmt::format("has {} bytes after its length field, expected a safetensors header of "
                           "{}. It is truncated; download it again.",
                           bytes.size() - length_size, length));
    const auto n = std::size_t(length);
    Json json = Json::parse(text_of(bytes.subspan(length_size, n)), file.path(), longest_header);
    if (!json.is_object())
        refuse(file.path(),
               "has a safetensors header that is not a JSON object. Save the file again.");
    return {std::move(json), bytes.subspan(length_size + n)};
}

/// The member `key` of a tensor's description: an array of integers that are not negative.
std::vector<std::int64_t> sizes(const Json& description, std::string_view key,
                                const std::string& where, const std::string& name) {
    std::vector<std::int64_t> result;
    bool good = description[key].is_array();
    if (good)
        for (const Json& size : description[key].array()) {
            good = good && size.is_integer() && size.integer() >= 0;
            result.push_back(good ? size.integer() : 0);
        }
    if (!good)
        refuse(
            where,
            fmt::format(
                "tensor '{}' has no valid \"{}\", expected an array of sizes. Save the file again.",
                name, key));
    return result;
}

Described describe(const std::string& name, const Json& description, const std::string& where) {
    const std::string what = fmt::format("tensor '{}'", name);
    if (!description.is_object() || !description["dtype"].is_string())
        refuse(where, what +
                          " has no \"dtype\", expected an object with dtype, shape and "
                          "data_offsets. Save the file again.");
    const TypeName* type = find_type(description["dtype"].string());
    if (type == nullptr)
        refuse(where, fmt::format("{} has dtype '{}', expected a safetensors dtype (F32, F16, "
                                  "BF16, ...). Convert the tensor and save it again.",
                                  what, description["dtype"].string()));
    RawTensor tensor;
    tensor.dtype = type->type;
    tensor.dtype_name = type->name;
    tensor.shape = sizes(description, "shape", where, name);
    tensor.strides = row_major(tensor.shape);
    const std::vector<std::int64_t> offsets = sizes(description, "data_offsets", where, name);
    const auto count = element_count(tensor.shape);
    const auto bits = count ? times(*count, type->bits) : std::nullopt;
    if (!bits || *bits % 8 != 0)
        refuse(where, fmt::format("{} of dtype {} has shape {}, expected a whole number of bytes "
                                  "that fits 63 bits. Save the file again.",
                                  what, type->name, shape_text(tensor.shape)));
    if (offsets.size() != 2 || offsets[1] < offsets[0] || offsets[1] - offsets[0] != *bits / 8)
        refuse(where, fmt::format("{} of dtype {} and shape {} has data_offsets {}, expected begin "
                                  "and end to be {} bytes apart. Save the file again.",
                                  what, type->name, shape_text(tensor.shape), shape_text(offsets),
                                  *bits / 8));
    return {name, std::move(tensor), std::uint64_t(offsets[0]), std::uint64_t(offsets[1])};
}

/// The tensors must fill the data exactly: no holes, no overlap, no trailing bytes.
void check_cover(const std::vector<Described>& tensors, std::uint64_t size,
                 const std::string& where) {
    std::vector<const Described*> order;
    for (const Described& d : tensors) order.push_back(&d);
    std::sort(order.begin(), order.end(), [](const Described* a, const Described* b) {
        return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
    });
    std::uint64_t at = 0;
    for (const Described* d : order) {
        if (d->begin != at)
            refuse(where, fmt::format("tensor '{}' begins at data byte {}, expected {}: tensors "
                                      "must not overlap or leave gaps. Save the file again.",
                                      d->name, d->begin, at));
        at = d->end;
    }
    if (at != size)
        refuse(where, fmt::format("has {} bytes of data, expected {} from its header. It is {}; "
                                  "download it again.",
                                  size, at, size < at ? "truncated" : "followed by extra bytes"));
}

bool sniff_safetensors(Bytes head) {
    constexpr std::uint64_t plausible = std::uint64_t{1} << 40;  // eight letters are more
    if (head.size() < length_size + 1 || load<std::uint64_t>(head.data()) > plausible) return false;
    const std::string_view json = text_of(head.subspan(length_size));
    const std::size_t first = json.find_first_not_of(" \t\r\n");
    return first != std::string_view::npos && json[first] == '{';
}

std::unique_ptr<Checkpoint> open_safetensors(const std::filesystem::path& path) {
    const auto file = MappedFile::open(path);
    const Header header = read_header(*file);
    auto listed = std::make_unique<ListedCheckpoint>("safetensors", file->path());
    std::vector<Described> tensors;
    for (const auto& [name, description] : header.json.object()) {
        if (name != "__metadata__") {
            tensors.push_back(describe(name, description, file->path()));
            continue;
        }
        if (description.is_null()) continue;  // some writers write null
        bool texts = description.is_object();
        for (std::size_t i = 0; texts && i < description.object().size(); ++i)
            texts = description.object()[i].second.is_string();
        if (!texts)
            refuse(file->path(),
                   "has a \"__metadata__\" that is not an object of strings. Save the file again.");
        listed->set_metadata(description);
    }
    check_cover(tensors, header.data.size(), file->path());
    for (Described& d : tensors) {
        d.tensor.bytes = header.data.subspan(d.begin, d.end - d.begin);
        d.tensor.owner = file;
        listed->add(std::move(d.name), std::move(d.tensor));
    }
    return listed;
}

}  // namespace

extern const FormatEntry safetensors = {"safetensors",
                                        "Hugging Face safetensors, single or sharded",
                                        sniff_safetensors, open_safetensors};

}  // namespace tsdiag::checkpoint
