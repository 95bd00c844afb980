#pragma once
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tsdiag/run.hpp"

/// The settings of a run, one entry each: run.json tells their values, and results are taken again
/// only where those that decide numbers are equal.
namespace tsdiag {

/// What is only known when the model is open.
struct ResolvedSettings {
    std::vector<std::string> metrics = {};
    Index memory = 0;  ///< bytes
    Index layers = 0;  ///< of the model
    Index batch = 0;   ///< samples that go through a layer together
};

struct Setting {
    std::string_view name;  ///< in `settings` of run.json
    /// None: it is not given, and run.json does not name it.
    std::optional<Json> (*value)(const RunOptions& options, const ResolvedSettings& resolved);
    /// Whether numbers of a table depend on it, by its value and by the contents of `files`.
    bool decides = true;
    std::vector<std::filesystem::path> (*files)(const RunOptions& options) = nullptr;
    bool shown = true;  ///< false: another part of run.json tells it
};
std::span<const Setting> settings();

/// The files of a model or an adapter: those of its folder, sorted, without those that only a
/// training reads; or the one that it is, and those that are read with it.  None where there is
/// neither.
std::vector<std::filesystem::path> files_of_model(const std::filesystem::path& path);

/// `settings` of run.json.
Json describe_settings(const RunOptions& options, const ResolvedSettings& resolved);

}  // namespace tsdiag
