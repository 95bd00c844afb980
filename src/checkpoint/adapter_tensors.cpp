#include "adapter_tensors.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "bytes.hpp"
#include "listed.hpp"
#include "tsdiag/adapter.hpp"

namespace tsdiag {
namespace checkpoint {
namespace {

constexpr std::string_view peft_prefix = "base_model.model.";
constexpr std::string_view of_lora = ".lora_";
constexpr std::string_view wrapped_layer = ".base_layer.", wrapped_module = ".original_module.",
                           saved_modules = ".modules_to_save.";

std::string without_peft(std::string_view name) {
    return std::string(name.substr(name.starts_with(peft_prefix) ? peft_prefix.size() : 0));
}

/// `name` without the first `part` in it, and without the name behind `part` where `and_next`.
std::string without_part(std::string name, std::string_view part, bool and_next = false) {
    const std::size_t at = name.find(part);
    if (at == name.npos) return name;
    const std::size_t behind = at + part.size();
    const std::size_t dot = and_next ? name.find('.', behind) : behind - 1;
    return dot == name.npos ? name : name.replace(at, dot + 1 - at, ".");
}

/// What the name of a tensor says.
struct AdapterName {
    enum Kind { a, b, magnitude, bias, whole, unknown } kind = whole;
    bool embedding = false;
    std::string module;   ///< of the model; of `whole` the name of the tensor
    std::string adapter;  ///< the name of the adapter in it: "default"; mostly none
};

/// The parts of names that say what a tensor is, and whether `.weight` stands behind them.
struct AdapterMarker {
    std::string_view part;
    AdapterName::Kind kind;
    bool embedding, with_weight, without_weight;
};
constexpr std::array adapter_markers{
    AdapterMarker{".lora_A", AdapterName::a, false, true, false},
    AdapterMarker{".lora_B", AdapterName::b, false, true, false},
    AdapterMarker{".lora_embedding_A", AdapterName::a, true, false, true},
    AdapterMarker{".lora_embedding_B", AdapterName::b, true, false, true},
    AdapterMarker{".lora_magnitude_vector", AdapterName::magnitude, false, true, true}};

AdapterName adapter_name(const std::string& full) {
    constexpr std::string_view ending = ".weight", of_bias = ".bias";
    const std::string name = without_peft(full);
    for (const AdapterMarker& marker : adapter_markers) {
        const std::size_t at = name.rfind(marker.part);
        if (at == name.npos) continue;
        std::string_view rest = std::string_view(name).substr(at + marker.part.size());
        if (!rest.empty() && rest.front() != '.') continue;
        AdapterName out{marker.kind, marker.embedding, name.substr(0, at), {}};
        const bool weight = rest.ends_with(ending);
        const bool bias = marker.part == ".lora_B" && rest.ends_with(of_bias);
        if (bias) out.kind = AdapterName::bias;
        rest.remove_suffix(weight ? ending.size() : bias ? of_bias.size() : 0);
        if (!rest.empty()) out.adapter = rest.substr(1);
        const bool known = bias || (weight ? marker.with_weight : marker.without_weight);
        if (!known || out.adapter.find('.') != std::string::npos) out.kind = AdapterName::unknown;
        return out;
    }
    AdapterName out;
    if (name.find(of_lora) != name.npos) out.kind = AdapterName::unknown;
    out.module = without_part(without_part(name, wrapped_layer), saved_modules, true);
    return out;
}

[[noreturn]] void twice(const Checkpoint& file, const std::string& one, const std::string& other) {
    refuse(file.source(),
           fmt::format("tensors '{}' and '{}' are both of one place, expected one of "
                       "them. Remove the other.",
                       one, other));
}

}  // namespace

bool is_plain_float(const RawTensor& raw) {
    const bool floating = raw.dtype == DType::f16 || raw.dtype == DType::bf16 ||
                          raw.dtype == DType::f32 || raw.dtype == DType::f64;
    return floating && raw.scales == nullptr;
}

bool is_of_wrapped_layer(std::string_view name) { return name.find(wrapped_layer) != name.npos; }

AdapterTensors::AdapterTensors(const Checkpoint& file) {
    std::set<std::string> adapters;
    for (const std::string& name : file.names()) {
        const AdapterName read = adapter_name(name);
        const RawTensor raw = file.tensor(name);
        if (read.kind == AdapterName::unknown)
            refuse(file.source(),
                   fmt::format("has the tensor '{}', which is none of LoRA's that are known "
                               "(lora_A, lora_B, lora_embedding_A and _B, lora_magnitude_vector). "
                               "Merge it with its model in PEFT (merge_and_unload) and save the "
                               "result.",
                               name));
        if (!is_plain_float(raw))
            refuse(file.source(),
                   fmt::format("tensor '{}' has dtype {}, expected f16, bf16, f32 or "
                               "f64. Save the adapter in one of these.",
                               name, raw.dtype_name));
        if (!read.adapter.empty()) adapters.insert(read.adapter);
        if (read.kind == AdapterName::whole) {
            const auto [at, is_new] = whole.try_emplace(read.module, AdapterTensor{name, raw});
            if (!is_new) twice(file, at->second.name, name);
            continue;
        }
        LowRankTensors& of = modules[read.module];
        if (read.kind == AdapterName::a || read.kind == AdapterName::b) {
            if ((of.a || of.b) && of.embedding != read.embedding)
                refuse(file.source(),
                       fmt::format("tensors '{}' and '{}' are of a matrix and of an embedding, "
                                   "expected both of one. Save the adapter again.",
                                   (of.a ? of.a : of.b)->name, name));
            of.embedding = read.embedding;
        }
        std::optional<AdapterTensor>& place = read.kind == AdapterName::a      ? of.a
                                              : read.kind == AdapterName::b    ? of.b
                                              : read.kind == AdapterName::bias ? of.bias
                                                                               : of.magnitude;
        if (place) twice(file, place->name, name);
        place = AdapterTensor{name, raw};
    }
    if (adapters.size() > 1)
        refuse(file.source(), fmt::format("holds the adapters {}, expected one. Save one of them.",
                                          fmt::join(adapters, ", ")));
}

}  // namespace checkpoint

bool holds_adapter(const Checkpoint& file) {
    const auto has = [&](std::string_view part) {
        return std::ranges::any_of(
            file.names(), [&](const std::string& name) { return name.find(part) != name.npos; });
    };
    return has(checkpoint::wrapped_layer) && has(checkpoint::of_lora);
}

std::pair<std::shared_ptr<const Checkpoint>, std::shared_ptr<const Checkpoint>> without_adapter(
    const std::shared_ptr<const Checkpoint>& file) {
    using namespace checkpoint;
    auto model = std::make_shared<ListedCheckpoint>(file->format(), file->source()),
         adapter = std::make_shared<ListedCheckpoint>(file->format(), file->source());
    model->set_metadata(file->metadata());
    for (const std::string& name : file->names()) {
        const bool of_adapter =
            name.find(of_lora) != name.npos || name.find(saved_modules) != name.npos;
        if (of_adapter)
            adapter->add(name, file->tensor(name));
        else
            model->add(
                without_part(without_part(without_peft(name), wrapped_layer), wrapped_module),
                file->tensor(name));
    }
    return {model, adapter};
}

}  // namespace tsdiag
