#include "callables.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <set>

#include "tsdiag/error.hpp"

namespace tsdiag::checkpoint {
namespace {

/// Prefixes.
constexpr std::array<std::string_view, 13> usual = {
    "torch._utils._rebuild_", "torch._tensor.", "torch.storage._", "torch.nn.parameter.",
    "torch.Size", "torch.device", "torch.serialization._",
    // Of NumPy and Python.
    "numpy.core.multiarray.", "numpy._core.multiarray.", "numpy.dtype", "numpy.ndarray",
    "collections.", "_codecs.encode"};
/// Names in builtins, under either name of the module.
constexpr std::array<std::string_view, 14> containers = {
    "set",  "frozenset", "dict",  "list",  "tuple", "int",       "float",
    "bool", "complex",   "range", "slice", "bytes", "bytearray", "object"};

bool is_usual(std::string_view name) {
    if (std::ranges::any_of(usual, [&](std::string_view start) { return name.starts_with(start); }))
        return true;
    // torch.float32, torch.FloatStorage
    if (name.starts_with("torch.") && name.find('.', 6) == std::string_view::npos) return true;
    const std::size_t dot = name.find('.');
    const std::string_view module = name.substr(0, dot);
    return (module == "builtins" || module == "__builtin__") &&
           std::ranges::find(containers, name.substr(dot + 1)) != containers.end();
}

}  // namespace

std::vector<std::string> foreign_callables(const Pickle& pickle) {
    std::set<std::string> found;
    for (const PickleValue& value : pickle.values)
        if (value.is(PickleValue::Kind::global) && !is_usual(value.text)) found.insert(value.text);
    return {found.begin(), found.end()};
}

void list_callables(const Pickle& pickle, ListedCheckpoint& out) {
    const std::vector<std::string> found = foreign_callables(pickle);
    if (found.empty() || !out.metadata().is_object()) return;
    Json metadata = out.metadata();
    out.set_metadata(
        std::move(metadata.set("__callables__", Json::Array(found.begin(), found.end()))));
}

std::string foreign_pickle(Bytes file, const std::string& path) {
    constexpr std::size_t shown = 8, longest = std::size_t{1} << 24;
    std::vector<std::string> found;
    try {
        found = foreign_callables(read_pickle(file.first(std::min(longest, file.size())), path));
    } catch (const FormatError&) {  // not a pickle, or truncated
    }
    if (found.empty()) return {};
    const std::size_t more = found.size() - std::min(found.size(), shown);
    found.resize(found.size() - more);
    return fmt::format(
        "is a plain Python pickle that imports {}{}, expected a file from torch.save. Nothing was "
        "called; Python would call it, so load it only from a trusted source.",
        fmt::join(found, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace tsdiag::checkpoint
