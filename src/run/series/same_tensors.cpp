#include "same_tensors.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "adapted_model.hpp"
#include "tsdiag/adapter.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/run.hpp"

namespace tsdiag {
namespace {

/// The tensors that are measured.
std::unique_ptr<Checkpoint> open_tensors(const std::string& path) {
    std::unique_ptr<Checkpoint> file = open_file(path);
    return is_trace(*file) ? std::move(file) : unwrap(std::move(file), nullptr);
}

/// The bytes of the elements in row-major order, little-endian.
std::vector<std::byte> row_major(const RawTensor& t) {
    const std::size_t size = bytes_of(t.dtype);
    const bool complex = t.dtype == DType::c64 || t.dtype == DType::c128;
    const auto number = std::ptrdiff_t(complex ? size / 2 : size);
    std::vector<std::byte> out(std::size_t(t.count()) * size);
    std::vector<std::int64_t> index(t.shape.size(), 0);
    std::int64_t element = t.offset;
    for (auto at = out.begin(); at != out.end();) {
        std::memcpy(&*at, t.bytes.data() + std::size_t(element) * size, size);
        for (const auto end = at + std::ptrdiff_t(size); at != end; at += number)
            if (t.big_endian) std::reverse(at, at + number);
        for (std::size_t k = index.size(); k-- > 0;) {
            element += t.strides[k];
            if (++index[k] < t.shape[k]) break;
            element -= t.strides[k] * index[k];
            index[k] = 0;
        }
    }
    return out;
}

bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

bool same_elements(const RawTensor& a, const RawTensor& b) {
    const std::size_t size = bytes_of(a.dtype);
    if (a.bytes.empty() && a.count() != 0) return false;  // such as sparse ones: nobody reads them
    if (size == 0)  // quantised, or known by name only: as they are stored
        return a.offset == b.offset && a.strides == b.strides && same_bytes(a.bytes, b.bytes);
    if (a.count() == 0) return true;
    if (!a.contiguous() || !b.contiguous() || a.big_endian != b.big_endian)
        return same_bytes(row_major(a), row_major(b));
    const auto stored = [&](const RawTensor& t) {
        return t.bytes.subspan(std::size_t(t.offset) * size, std::size_t(t.count()) * size);
    };
    return same_bytes(stored(a), stored(b));
}

bool same_tensor(const RawTensor& a, const RawTensor& b);

bool same_parts(const RawTensor& a, const RawTensor& b) {
    if (a.packed == nullptr || b.packed == nullptr) return a.packed == b.packed;
    const std::vector<RawTensor>&of_a = a.packed->parts(), &of_b = b.packed->parts();
    return a.packed->columns() == b.packed->columns() &&
           std::ranges::equal(of_a, of_b, same_tensor);
}

bool same_scales(const RawTensor& a, const RawTensor& b) {
    if (a.scales == nullptr || b.scales == nullptr) return a.scales == b.scales;
    const BlockScales &of_a = *a.scales, &of_b = *b.scales;
    return of_a.unit == of_b.unit && of_a.columns == of_b.columns &&
           of_a.block_rows == of_b.block_rows && of_a.block_columns == of_b.block_columns &&
           same_tensor(of_a.factors, of_b.factors);
}

bool same_tensor(const RawTensor& a, const RawTensor& b) {
    if (a.dtype != b.dtype || a.shape != b.shape || a.blocks != b.blocks) return false;
    if (a.dtype == DType::other && a.dtype_name != b.dtype_name) return false;
    if (!same_scales(a, b)) return false;
    return a.dtype == DType::packed ? same_parts(a, b) : same_elements(a, b);
}

/// Those of the files alone, without adapters.
bool same_stored(const std::string& a, const std::string& b) {
    const std::unique_ptr<Checkpoint> first = open_tensors(a), second = open_tensors(b);
    std::vector<std::string> names = first->names(), others = second->names();
    std::ranges::sort(names);
    std::ranges::sort(others);
    if (names != others) return false;
    return std::ranges::all_of(first->names(), [&](const std::string& name) {
        const RawTensor one = first->tensor(name), other = second->tensor(name);
        const bool same = same_tensor(one, other);
        release_pages(one);
        release_pages(other);
        return same;
    });
}

/// Neither has an adapter, or both have one of the same scale and of one model.
bool same_adapters(const std::string& a, const std::string& b) {
    const std::optional<AdapterFiles> first = adapter_files(a), second = adapter_files(b);
    if (!first || !second) return !first && !second;
    const auto config = [](const AdapterFiles& files) {
        return file_json(files.config, "an adapter_config.json").dump();
    };
    const auto model = [](const std::string& path) {
        std::error_code failed;
        return std::filesystem::weakly_canonical(model_of_adapter(path), failed);
    };
    if (config(*first) != config(*second) || model(a) != model(b)) return false;
    if (first->weights.empty() || second->weights.empty())
        return first->weights.empty() && second->weights.empty();
    return same_stored(first->weights.string(), second->weights.string());
}

}  // namespace

bool same_tensors(const std::string& a, const std::string& b) {
    return same_adapters(a, b) && same_stored(a, b);
}

}  // namespace tsdiag
