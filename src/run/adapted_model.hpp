#pragma once
#include <filesystem>
#include <optional>
#include <vector>

#include "tsdiag/adapter.hpp"
#include "tsdiag/run.hpp"

/// Which model an adapter changes.
namespace tsdiag {

struct AdaptedModel {
    std::filesystem::path model;          ///< the one that is opened
    std::optional<AdapterFiles> adapter;  ///< none: it is as its file says
};

/// The model and the adapter that the options name: MODEL --adapter DIR, an adapter as MODEL, or
/// an adapter beside a model.  The model of an adapter is `--base`, else the
/// `base_model_name_or_path` of its configuration: a path, from the folder of the adapter or from
/// the current one, or a name in the cache of the Hub.  Nothing is downloaded.  Throws
/// `FormatError` where it is not found, or found twice; `UsageError` for options that contradict
/// each other.
AdaptedModel adapted_model(const SubjectOptions& options);

/// Could `name`, which is no path, be that of a model of the Hub?
bool may_be_of_hub(const std::string& name);

/// Where what lies beside the model (a tokenizer, a preprocessor) is looked for: where the adapter
/// is, if one is applied, then where the model is.
std::vector<std::filesystem::path> places_beside(const SubjectOptions& options);

/// The model that an adapter's own configuration names; empty: `path` is no adapter, a model lies
/// beside it, or the model is not found.
std::filesystem::path model_of_adapter(const std::filesystem::path& path);

}  // namespace tsdiag
