#include "batches.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "tsdiag/checkpoint_series.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag {
namespace {

namespace fs = std::filesystem;

/// 7 of "batch-7.pt", "batch_0007.npz" and "batch7.safetensors".
std::optional<Index> number_of_batch(const fs::path& file) {
    constexpr std::string_view word = "batch";
    const std::string stem = file.stem().string();
    if (!stem.starts_with(word)) return std::nullopt;
    std::string_view digits = std::string_view(stem).substr(word.size());
    if (digits.starts_with('-') || digits.starts_with('_')) digits.remove_prefix(1);
    Index number = -1;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    const bool whole = error == std::errc() && end == digits.data() + digits.size();
    return whole && number >= 0 ? std::optional(number) : std::nullopt;
}

/// The files of batches in the order of their numbers; empty: `folder` is something else.
std::vector<std::pair<Index, fs::path>> batch_files(const std::string& folder) {
    std::error_code failed;
    std::vector<std::pair<Index, fs::path>> out;
    if (!fs::is_directory(folder, failed)) return out;
    for (const fs::path& file : checkpoints_in(folder)) {
        const std::optional<Index> number = number_of_batch(file);
        if (!number) return {};
        out.emplace_back(*number, file);
    }
    std::ranges::sort(out);
    return out;
}

/// What batches must have in common, in words.
std::string batch_shape(const SavedTrace& trace) {
    const TraceSummary& s = trace.summary();
    std::string merged;
    for (const auto& [layer, part] : trace.parts())
        if (layer > 0)
            merged += fmt::format(", from layer {} {} of width {}", layer, part.tokens, part.width);
    return fmt::format("{} layers of {} tokens, width {}{}, {} heads, {} states, {} attention",
                       s.layers, s.tokens, s.width, merged, s.heads,
                       s.has_states ? "with" : "without", s.has_attention ? "with" : "without");
}

}  // namespace

bool is_batches(const std::string& folder) { return batch_files(folder).size() > 1; }

TraceBatches::TraceBatches(std::string folder, std::vector<std::unique_ptr<Checkpoint>> batches)
    : folder_(std::move(folder)), batches_(std::move(batches)) {
    for (std::size_t b = 0; b < batches_.size(); ++b)
        for (const std::string& name : batches_[b]->names()) {
            names_.push_back(fs::path(batches_[b]->source()).filename().string() + "/" + name);
            places_.emplace_back(b, name);
        }
}

RawTensor TraceBatches::tensor(std::string_view name) const {
    const auto found = std::ranges::find(names_, name);
    if (found == names_.end())
        throw UsageError(fmt::format("{}: has no array '{}'.", folder_, name));
    const auto& [batch, own] = places_[std::size_t(found - names_.begin())];
    return batches_[batch]->tensor(own);
}

std::unique_ptr<TraceBatches> open_batches(const std::string& folder) {
    const std::vector<std::pair<Index, fs::path>> files = batch_files(folder);
    if (files.size() < 2) return nullptr;
    std::vector<std::unique_ptr<Checkpoint>> batches;
    for (const auto& [number, file] : files) {
        batches.push_back(open_file(file.string()));
        if (!is_trace(*batches.back()))
            throw FormatError(
                fmt::format("{}: is no trace, expected one as its name is that of a batch; name "
                            "checkpoints by their steps.",
                            file.string()));
    }
    return std::make_unique<TraceBatches>(folder, std::move(batches));
}

std::vector<SavedTrace> saved_traces(const Checkpoint& file) {
    const auto* several = dynamic_cast<const TraceBatches*>(&file);
    std::vector<SavedTrace> out;
    if (!several) {
        out.emplace_back(file);
        return out;
    }
    for (const std::unique_ptr<Checkpoint>& batch : several->batches()) {
        out.emplace_back(*batch);
        const std::string found = batch_shape(out.back()), expected = batch_shape(out.front());
        if (found != expected)
            throw ShapeError(fmt::format("{}: has {}, expected {} as in {}.", batch->source(),
                                         found, expected, several->batches().front()->source()));
    }
    return out;
}

}  // namespace tsdiag
