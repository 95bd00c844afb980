#include "renamed.hpp"

#include <fmt/format.h>

#include "engine/names.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::families {

Renamed::Original Renamed::original(std::string_view name) const {
    const auto found = original_.find(name);
    return found == original_.end() ? Original{std::string(name)} : found->second;
}

RawTensor Renamed::tensor(std::string_view name) const {
    const Original from = original(name);
    RawTensor raw = slice_of(file_.tensor(from.name), from.slice);
    if (!from.as_row || raw.shape.size() != 1) return raw;
    raw.strides.insert(raw.strides.begin(), raw.shape.front());
    raw.shape.insert(raw.shape.begin(), 1);
    return raw;
}

void Renamed::restore(Architecture& found, bool paired) const {
    const AttentionSpec& attention = found.spec.blocks.front().attention;
    const Index head = attention.head_dim;
    if (paired && attention.rotary.columns != head)
        throw FormatError(fmt::format(
            "{}: {} of {} columns of a head are rotated, which is not supported in this format.",
            source(), attention.rotary.columns, head));
    for (auto& [canonical, source] : found.tensors) {
        const Original from = original(source.file_name);
        source.file_name = from.name;
        source.slice = from.slice;
        if (from.as_row) source.shape = file_.tensor(from.name).shape;
        for (std::string& more : source.concat) more = original(more).name;
        for (const char* part :
             {"*.attn.q.weight", "*.attn.q.bias", "*.attn.k.weight", "*.attn.k.bias"})
            if (paired && glob(part, canonical)) source.paired_head = head;
    }
    for (std::string& name : found.spec.provenance.ignored) name = original(name).name;
    if (paired)
        found.spec.provenance.recognised.push_back(
            "rows of queries and keys are stored in pairs that rotate together; undone");
}

}  // namespace tsdiag::families
