#include "relabelled.hpp"

#include <fmt/format.h>

#include "tsdiag/error.hpp"
#include "tsdiag/layouts.hpp"

namespace tsdiag::families {
namespace {

/// Merges axes so that `raw` has `shape`, which is possible where their elements follow each other.
void merge_axes(RawTensor& raw, const std::vector<Index>& shape, std::string_view where) {
    const auto fail = [&] {
        throw FormatError(fmt::format("{} is {}, which cannot be seen as {}", where,
                                      text(raw.shape), text(shape)));
    };
    std::vector<Index> strides;
    std::size_t axis = 0;
    for (const Index wanted : shape) {
        Index size = 1, stride = 1;
        while (axis < raw.shape.size() && (size < wanted || raw.shape[axis] == 1)) {
            const Index extent = raw.shape[axis];
            if (size > 1 && extent != 1 && stride != merged(raw.strides[axis], extent)) fail();
            if (extent != 1) stride = raw.strides[axis];
            size = merged(size, extent);
            if (size < 0) fail();
            ++axis;
        }
        if (size != wanted) fail();
        strides.push_back(stride);
    }
    while (axis < raw.shape.size())
        if (raw.shape[axis++] != 1) fail();
    raw.shape = shape;
    raw.strides = std::move(strides);
}

}  // namespace

Index merged(Index a, Index b) {
    Index product;
    return __builtin_mul_overflow(a, b, &product) ? -1 : product;
}

RawTensor seen(RawTensor raw, const View& view, std::string_view where) {
    const bool changed = !view.axes.empty() || view.length >= 0 || !view.shape.empty();
    if (!changed) return raw;
    // Packed matrices of a stack may be turned round, each by itself.
    const bool turned = view.axes == std::vector{0, 2, 1} && view.length < 0 && view.shape.empty();
    if (raw.dtype == DType::blocks || (raw.dtype == DType::packed && !turned) || raw.scales)
        throw FormatError(fmt::format("{} is quantised ({}), and cannot be turned round or divided",
                                      where, raw.dtype_name));
    if (!view.axes.empty()) {
        if (raw.shape.size() != view.axes.size())
            throw FormatError(fmt::format("{} is {}, expected {} dimensions", where,
                                          text(raw.shape), view.axes.size()));
        const RawTensor before = raw;
        for (std::size_t k = 0; k < view.axes.size(); ++k) {
            raw.shape[k] = before.shape[std::size_t(view.axes[k])];
            raw.strides[k] = before.strides[std::size_t(view.axes[k])];
        }
    }
    if (view.length >= 0) {
        if (raw.shape.empty() || view.first < 0 || view.first > raw.shape.front() ||
            view.length > raw.shape.front() - view.first)
            throw FormatError(fmt::format("{} is {} and does not have the rows {} to {}", where,
                                          text(raw.shape), view.first, view.first + view.length));
        if (view.length > 0) raw.offset += view.first * raw.strides.front();
        raw.shape.front() = view.length;
    }
    if (!view.shape.empty()) merge_axes(raw, view.shape, where);
    return raw;
}

void Relabelled::add(std::string there, std::string original, View view) {
    std::vector<Part> one;
    one.push_back({std::move(original), std::move(view)});
    add(std::move(there), std::move(one));
}

void Relabelled::add(std::string there, std::vector<Part> parts) {
    const std::string original = parts.front().original;
    const auto [at, is_new] = sources_.try_emplace(there, std::move(parts));
    if (!is_new)
        throw FormatError(fmt::format("{}: tensors '{}' and '{}' would both be '{}'", source(),
                                      at->second.front().original, original, there));
    names_.push_back(std::move(there));
}

RawTensor Relabelled::part(const Part& part) const {
    return seen(file_->tensor(part.original), part.view,
                fmt::format("{}: tensor '{}'", source(), part.original));
}

RawTensor Relabelled::tensor(std::string_view name) const {
    const auto found = sources_.find(name);
    if (found == sources_.end())
        throw UsageError(fmt::format("{}: has no tensor '{}'", source(), name));
    if (found->second.size() == 1) return part(found->second.front());
    std::vector<RawTensor> parts;
    for (const Part& one : found->second) parts.push_back(part(one));
    return stacked(parts, source(), fmt::format("tensor '{}'", name));
}

}  // namespace tsdiag::families
