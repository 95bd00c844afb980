#include "adapted_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"

namespace tsdiag {
namespace {

namespace fs = std::filesystem;

/// As huggingface_hub finds it.
fs::path hub_cache() {
    const auto set = [](const char* name) {
        const char* value = std::getenv(name);
        return fs::path(value != nullptr ? value : "");
    };
    for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"})
        if (const fs::path given = set(name); !given.empty()) return given;
    if (const fs::path home = set("HF_HOME"); !home.empty()) return home / "hub";
    const fs::path cache = set("XDG_CACHE_HOME");
    return (cache.empty() ? set("HOME") / ".cache" : cache) / "huggingface" / "hub";
}

/// A name such as `bert-base-uncased` or `google/bert`, as the cache writes it; empty: it is none.
std::string name_in_cache(const std::string& name) {
    std::string folder = "models--";
    bool any = false;
    for (const char c : name) {
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                           (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
        if (!plain && (c != '/' || any)) return {};
        any = any || c == '/';
        folder += c == '/' ? std::string("--") : std::string(1, c);
    }
    return name.find("..") == name.npos ? folder : std::string();
}

/// The snapshot of a revision; empty: it is not there.
fs::path in_cache(const std::string& name, const Json& revision) {
    constexpr std::uint64_t longest_reference = 4096;
    const std::string folder = name_in_cache(name);
    const std::string wanted = revision.is_string() ? revision.string() : "main";
    if (folder.empty() || wanted.starts_with('/') || wanted.find("..") != wanted.npos) return {};
    const fs::path model = hub_cache() / folder;
    std::error_code failed;
    std::string commit = wanted;
    if (const fs::path reference = model / "refs" / wanted; fs::is_regular_file(reference, failed))
        commit = file_text(reference, "a reference", longest_reference);
    commit.resize(std::min(commit.find_first_of(" \r\n"), commit.size()));
    const bool plain = !commit.empty() && commit.find('/') == commit.npos && commit != "." &&
                       commit.find("..") == commit.npos;
    const fs::path snapshot = model / "snapshots" / commit;
    return plain && fs::is_directory(snapshot, failed) ? snapshot : fs::path();
}

struct NamedModel {
    std::string name;
    std::vector<fs::path> places;  ///< different ones at which it is
};

NamedModel named_model(const AdapterFiles& adapter) {
    const Json config = file_json(adapter.config, "an adapter_config.json");
    const Json& name = config["base_model_name_or_path"];
    NamedModel out;
    if (!name.is_string() || name.string().empty()) return out;
    out.name = name.string();
    for (const fs::path& place : {adapter.config.parent_path() / out.name, fs::path(out.name),
                                  in_cache(out.name, config["revision"])}) {
        std::error_code failed;
        const bool is_new = std::ranges::none_of(out.places, [&](const fs::path& known) {
            std::error_code ignored;
            return fs::equivalent(known, place, ignored);
        });
        if (!place.empty() && fs::exists(place, failed) && is_new) out.places.push_back(place);
    }
    return out;
}

fs::path model_named_by(const AdapterFiles& adapter) {
    const std::string where = adapter.config.string();
    const NamedModel named = named_model(adapter);
    if (named.name.empty())
        throw FormatError(
            fmt::format("{}: does not say of which model the adapter is (base_model_name_or_path); "
                        "name it with --base DIR.",
                        where));
    if (named.places.empty())
        throw FormatError(
            fmt::format("{}: is an adapter of the model '{}', which is no path from here or from "
                        "the adapter and is not in the cache of the Hub; name it with --base DIR.",
                        where, named.name));
    if (named.places.size() > 1)
        throw FormatError(fmt::format(
            "{}: is an adapter of the model '{}', which is both {} and {}; name the one "
            "that is meant with --base DIR.",
            where, named.name, named.places[0].string(), named.places[1].string()));
    return named.places.front();
}

/// The model of an adapter is none that Transformers would change by another adapter.
void require_plain(const fs::path& model) {
    if (const auto own = adapter_files(model))
        throw FormatError(
            fmt::format("{}: is a model that has an adapter itself ({}); merge both in PEFT "
                        "(merge_and_unload) and save the result, or name the file of the model to "
                        "leave it out.",
                        model.string(), own->config.filename().string()));
}

AdapterFiles adapter_at(const std::string& path) {
    std::optional<AdapterFiles> found = adapter_files(path);
    if (!found)
        throw FormatError(
            fmt::format("{}: has no adapter_config.json, expected the folder of an "
                        "adapter of PEFT (--adapter).",
                        path));
    found->beside_model = false;  // which is not the one that it is named for
    return *found;
}

}  // namespace

std::string local_model(const std::string& name) {
    std::error_code failed;
    // TensorFlow names a checkpoint by its prefix.
    if (name.starts_with("random:") || fs::exists(name, failed) ||
        fs::exists(name + ".index", failed))
        return name;
    const fs::path cached = in_cache(name, Json());
    return cached.empty() ? name : cached.string();
}

bool may_be_of_hub(const std::string& name) {
    static constexpr std::string_view endings[] = {
        ".bin", ".ckpt", ".csv",  ".gguf", ".h5",  ".index",       ".json", ".msgpack",
        ".npy", ".npz",  ".onnx", ".pt",   ".pth", ".safetensors", ".txt",  ".zip"};
    const fs::path path = name;
    std::error_code failed;
    return !name_in_cache(name).empty() && path.has_filename() &&
           std::ranges::find(endings, path.extension().string()) == std::end(endings) &&
           !(path.has_parent_path() && fs::exists(path.parent_path(), failed));
}

AdaptedModel adapted_model(const SubjectOptions& given) {
    SubjectOptions options = given;
    options.model = local_model(given.model);
    if (!given.adapter.empty()) options.adapter = local_model(given.adapter);
    if (!given.base.empty()) options.base = local_model(given.base);
    std::error_code failed;
    const bool named = !options.adapter.empty();
    const std::optional<AdapterFiles> own = adapter_files(options.model);
    // With an adapter_model the model itself lies elsewhere.
    const bool is_adapter = own && !own->beside_model && !own->weights.empty();
    if (named) {
        if (!options.base.empty())
            throw UsageError(
                "--base: names the model of an adapter, as MODEL does beside "
                "--adapter; expected one of them.");
        require_plain(options.model);
        return {options.model, adapter_at(options.adapter)};
    }
    if (!options.base.empty()) {
        if (!is_adapter)
            throw UsageError(
                fmt::format("--base: {} is no adapter of PEFT without its model, "
                            "expected adapter_config.json and adapter_model.safetensors in it.",
                            options.model));
        if (!fs::exists(options.base, failed))
            throw FormatError(fmt::format(
                "{}: no such file or directory; expected the model of an adapter.", options.base));
        require_plain(options.base);
        return {options.base, own};
    }
    if (!is_adapter) return {options.model, own};
    AdaptedModel found{model_named_by(*own), own};
    require_plain(found.model);
    return found;
}

std::vector<fs::path> places_beside(const SubjectOptions& options) {
    const AdaptedModel found = adapted_model(options);
    std::vector<fs::path> places;
    if (found.adapter) places.push_back(found.adapter->config.parent_path());
    places.push_back(module_folder(found.model).model);
    return places;
}

fs::path model_of_adapter(const fs::path& path) {
    const std::optional<AdapterFiles> found = adapter_files(path);
    if (!found || found->beside_model || found->weights.empty()) return {};
    const NamedModel named = named_model(*found);
    return named.places.size() == 1 ? named.places.front() : fs::path();
}

}  // namespace tsdiag
