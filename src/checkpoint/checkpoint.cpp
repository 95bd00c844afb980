#include "tsdiag/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "layout.hpp"
#include "listed.hpp"
#include "mapped_file.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag {
namespace {

struct TypeFacts {
    DType type;
    std::string_view name;
    std::size_t bytes;
};
constexpr TypeFacts type_facts[] = {
    {DType::boolean, "bool", 1},    {DType::u8, "u8", 1},           {DType::i8, "i8", 1},
    {DType::u16, "u16", 2},         {DType::i16, "i16", 2},         {DType::u32, "u32", 4},
    {DType::i32, "i32", 4},         {DType::u64, "u64", 8},         {DType::i64, "i64", 8},
    {DType::f8_e4m3, "f8_e4m3", 1}, {DType::f8_e5m2, "f8_e5m2", 1}, {DType::f8_e8m0, "f8_e8m0", 1},
    {DType::f16, "f16", 2},         {DType::bf16, "bf16", 2},       {DType::f32, "f32", 4},
    {DType::f64, "f64", 8},         {DType::c64, "c64", 8},         {DType::c128, "c128", 16},
    {DType::blocks, "blocks", 0},   {DType::packed, "packed", 0},   {DType::other, "other", 0},
};

const TypeFacts& facts_of(DType type) {
    for (const TypeFacts& facts : type_facts)
        if (facts.type == type) return facts;
    check(false, "every DType has its facts");
    return type_facts[0];
}

/// FNV-1a, 64 bits.
class Digest {
  public:
    void add(std::string_view text) {
        add(std::uint64_t(text.size()));
        for (const char c : text) mix(static_cast<unsigned char>(c));
    }
    void add(std::uint64_t number) {
        for (int shift = 0; shift < 64; shift += 8) mix((number >> shift) & 0xff);
    }
    std::uint64_t value() const { return hash_; }

  private:
    void mix(std::uint64_t byte) { hash_ = (hash_ ^ byte) * 0x100000001b3u; }
    std::uint64_t hash_ = 0xcbf29ce484222325u;
};

}  // namespace

std::string_view name(DType type) { return facts_of(type).name; }
std::size_t bytes_of(DType type) { return facts_of(type).bytes; }
double rounding_of(DType type) {
    return type == DType::bf16  ? 0x1p-8
           : type == DType::f16 ? 0x1p-11
           : type == DType::f32 ? 0x1p-24
           : type == DType::f64 ? 0x1p-53
                                : 0;
}

std::int64_t RawTensor::count() const {
    if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
    const auto product = checkpoint::element_count(shape);
    check(product.has_value(), "the shape of a tensor was checked when its file was opened");
    return *product;
}

bool RawTensor::contiguous() const {
    std::int64_t expected = 1;
    if (count() == 0) return true;
    for (std::size_t k = shape.size(); k-- > 0;) {
        if (shape[k] == 1) continue;
        if (strides[k] != expected) return false;
        expected *= shape[k];
    }
    return true;
}

void release_pages(const RawTensor& tensor) {
    if (tensor.packed)
        for (const RawTensor& part : tensor.packed->parts()) release_pages(part);
    const checkpoint::Owner* owner = checkpoint::owner_of(tensor);
    if (owner != nullptr && owner->mapped()) checkpoint::drop_pages(tensor.bytes);
}

bool Checkpoint::has(std::string_view name) const {
    const std::vector<std::string>& all = names();
    return std::find(all.begin(), all.end(), name) != all.end();
}

std::string header_digest(const Checkpoint& file) {
    Digest digest;
    std::error_code none;
    const auto size = std::filesystem::file_size(file.source(), none);
    digest.add(none ? 0 : std::uint64_t(size));
    for (const std::string& name : file.names()) {
        const RawTensor tensor = file.tensor(name);
        digest.add(name);
        digest.add(tensor.dtype_name);
        digest.add(tensor.shape.size());
        for (const std::int64_t extent : tensor.shape) digest.add(std::uint64_t(extent));
        digest.add(tensor.bytes.size());
    }
    return fmt::format("{:016x}", digest.value());
}

namespace checkpoint {

void ListedCheckpoint::add(std::string name, RawTensor tensor) {
    if (!tensors_.emplace(name, std::move(tensor)).second)
        refuse(source_, fmt::format("two tensors are named '{}', expected different names. Rename "
                                    "one of them when saving the file.",
                                    name));
    names_.push_back(std::move(name));
}

RawTensor ListedCheckpoint::tensor(std::string_view name) const {
    const auto found = tensors_.find(std::string(name));
    if (found == tensors_.end()) unknown_tensor(*this, name);
    return found->second;
}

void unknown_tensor(const Checkpoint& file, std::string_view name) {
    const std::string near = nearest(std::string(name), file.names());
    throw UsageError(fmt::format("{}: no tensor is named '{}' among {}. {}", file.source(), name,
                                 file.names().size(),
                                 near.empty() ? "List the names with `tsdiag inspect`."
                                              : fmt::format("Did you mean '{}'?", near)));
}

}  // namespace checkpoint
}  // namespace tsdiag
