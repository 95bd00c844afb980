#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <tuple>

#include "adapted_model.hpp"
#include "trace/batches.hpp"
#include "trace/trace.hpp"
#include "tsdiag/adapter.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/families.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/layouts.hpp"
#include "tsdiag/output.hpp"
#include "tsdiag/run.hpp"

namespace tsdiag {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view random_prefix = "random:";
constexpr std::uint64_t longest_map = 1 << 20;

Json read_json(const fs::path& path) {
    Json json = file_json(path, "a config.json");
    if (!json.is_object())
        throw FormatError(
            fmt::format("{}: is not a JSON object, expected a config.json.", path.string()));
    return json;
}

/// A file with a standard Hugging Face name has its configuration beside it.
bool has_standard_name(const fs::path& file) {
    const std::string name = file.filename().string();
    return name.starts_with("model.") || name.starts_with("model-") ||
           name.starts_with("pytorch_model");
}

/// A config.json beside a file of another name is used only if it describes a model.
bool names_a_model(const fs::path& config) {
    try {
        return read_json(config)["model_type"].is_string();
    } catch (const FormatError&) {
        return false;  // not the configuration of a model
    }
}

/// A folder of FSDP's, or one of DeepSpeed's, which may have any name.
bool is_of_a_step(const fs::path& folder) {
    if (folder.filename().string().starts_with("pytorch_model_fsdp")) return true;
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
        if (at->path().filename().string().ends_with("mp_rank_00_model_states.pt")) return true;
    return false;
}

/// The path of the configuration; empty: there is none.  For a folder of DeepSpeed or FSDP it may
/// lie beside that folder.
fs::path find_config(const SubjectOptions& options, const fs::path& model, bool is_tensorflow,
                     std::vector<std::string>& notes) {
    if (!options.config.empty())
        return fs::is_directory(options.config) ? fs::path(options.config) / "config.json"
                                                : fs::path(options.config);
    const bool directory = fs::is_directory(model);
    const fs::path folder = directory ? model : model.parent_path();
    fs::path found = folder / "config.json";
    fs::path plain = folder.has_filename() ? folder : folder.parent_path();
    if (plain.empty() || plain.filename() == "." || plain.filename() == "..")
        plain = (fs::current_path() / plain / "").lexically_normal().parent_path();
    if (is_of_a_step(plain) && !fs::exists(found)) found = plain.parent_path() / "config.json";
    if (!fs::exists(found)) {  // Meta's and Mistral's own name of it
        const bool named = directory || model.filename().string().starts_with("consolidated");
        fs::path parameters = folder / "params.json";
        if (named && fs::exists(parameters)) return parameters;
        if (is_tensorflow)
            for (const char* name : {"bert_config.json", "albert_config.json"})
                if (fs::exists(folder / name)) return folder / name;
        return {};
    }
    if (directory || has_standard_name(model) || names_a_model(found)) return found;
    notes.push_back(
        fmt::format("{} has no model_type and was not read (pass it with --config to read it)",
                    found.string()));
    return {};
}

/// The family that a configuration in a file is of: by its `model_type`, or by the class of
/// Transformers that it is pickled from; empty: it is none.
std::string family_of(const Json& config) {
    constexpr std::string_view module = ".configuration_";
    if (!config.is_object()) return {};
    const Json& type = config["model_type"];
    if (type.is_string() && std::ranges::any_of(architectures(), [&](const ArchitectureEntry* one) {
            return one->name == type.string();
        }))
        return type.string();
    const Json& kind = config["__class__"];
    const std::string name = kind.is_string() ? kind.string() : std::string();
    const std::size_t begin = name.find(module);
    if (!name.starts_with("transformers.") || begin == std::string::npos) return {};
    const std::size_t from = begin + module.size();
    return name.substr(from, name.find('.', from) - from);
}

struct SavedConfig {
    Json config = {};
    bool of_script = false;  ///< among all arguments of a training
};

/// The configuration that a file has beside its tensors: an attribute of a pickled model, or what a
/// training saved with it; null where there is none that says of which family it is.
SavedConfig saved_config(const Json& metadata) {
    for (const Json* at : {&metadata, &metadata["model"], &metadata["module"], &metadata["net"],
                           &metadata["hyper_parameters"], &metadata["hparams"]})
        for (const Json* config : {&(*at)["config"], &(*at)["model_config"], at}) {
            const std::string family = family_of(*config);
            if (family.empty()) continue;
            SavedConfig out{.config = {}, .of_script = config == at};
            out.config.set("model_type", family);
            for (const auto& [key, value] : config->object())
                if (key != "model_type" && !key.starts_with('_')) out.config.set(key, value);
            return out;
        }
    return {};
}

/// Throws `FormatError` where the configuration beside a file and the one in it differ in a number,
/// a word or a switch.
void require_same_config(const SubjectOptions& options, const Json& config, const std::string& name,
                         const Json& saved) {
    if (!options.config.empty() || !saved.is_object() || !config.is_object()) return;
    const auto plain = [](const Json& v) { return v.is_number() || v.is_bool() || v.is_string(); };
    for (const auto& [key, value] : saved.object()) {
        const Json& other = config[key];
        if (changes_no_state(key, value) && changes_no_state(key, other)) continue;
        const bool numbers = value.is_number() && other.is_number();
        const bool same = numbers ? value.number() == other.number() : value.dump() == other.dump();
        if (plain(value) && plain(other) && !same && key != "transformers_version" &&
            key != "torch_dtype" && key != "dtype")
            throw FormatError(
                fmt::format("{}: says {} = {}, but {} beside it {}; pass the one that is right "
                            "with --config FILE.",
                            options.model, key, value.dump(), name, other.dump()));
    }
}

/// The model as the adapter changes it that is in its file, beside it or named.
void apply_adapters(const AdaptedModel& found, Subject& subject, DetectOptions& detection,
                    std::vector<std::string>& warnings) {
    std::error_code failed;
    std::optional<AdapterFiles> files = found.adapter;
    const bool within = holds_adapter(*subject.file);
    if (within && !files)
        files = adapter_files(fs::is_directory(found.model, failed) ? found.model
                                                                    : found.model.parent_path());
    if (!files && within)
        throw FormatError(fmt::format(
            "{}: is a model with an adapter that is not merged and no adapter_config.json beside "
            "it, which has the alpha of its scale; put that beside it, or save the result of "
            "merge_and_unload.",
            found.model.string()));
    if (!files) return;
    const std::string where = files->config.string();
    if (within != files->weights.empty())
        throw FormatError(
            within ? fmt::format("{}: is a model with an adapter that is not merged, and {} is "
                                 "another one; save the result of merge_and_unload.",
                                 found.model.string(), files->weights.string())
                   : fmt::format("{}: has no adapter_model.safetensors or adapter_model.bin beside "
                                 "it; download it, or name the file of the model to measure it "
                                 "without the adapter.",
                                 where));
    Adapter adapter{where, file_json(files->config, "an adapter_config.json"), nullptr, within};
    if (within)
        std::tie(subject.file, adapter.weights) = without_adapter(subject.file);
    else
        adapter.weights = unwrap(open_file(files->weights.string()), &subject.notes);
    if (!within && files->beside_model)
        subject.notes.push_back("the adapter beside the model is applied, as in from_pretrained");
    if (!within && !files->beside_model)
        subject.notes.push_back(fmt::format("model of the adapter: {}", found.model.string()));
    const Json& tied = detection.config["tie_word_embeddings"];
    adapter.head_is_separate = tied.is_bool() && !tied.boolean();
    subject.file =
        apply_adapter(subject.file, adapter, subject.notes, warnings, &detection.trained);
}

bool describes_a_file(const SubjectOptions& options) {
    return !options.config.empty() || options.heads || options.width || options.memory_tokens > 0 ||
           !options.ignore.empty() || !options.map.empty() || !options.adapter.empty() ||
           !options.base.empty();
}

Subject open_random(const SubjectOptions& options) {
    if (describes_a_file(options))
        throw UsageError(
            fmt::format("{}: --config, --n-heads, --width, --memory-tokens, --ignore, --map, "
                        "--adapter and --base apply to files; use keys for a random model, such as "
                        "random:bert-base,heads=8.",
                        options.model));
    Subject subject;
    subject.kind = Subject::Kind::random;
    subject.argument = options.model;
    subject.random = random_model(options.model.substr(random_prefix.size()));
    subject.random.spec.provenance.trained = false;
    return subject;
}

[[noreturn]] void refuse_missing(const std::string& model) {
    std::string_view like;  // the longest matching prefix
    for (const ArchitectureEntry* entry : architectures()) {
        if (!entry->random_names) continue;
        for (const std::string_view known : entry->random_names())
            if (model.starts_with(known) && known.size() > like.size()) like = known;
    }
    const std::string drawn = like.empty() ? std::string("random:NAME (tsdiag list random)")
                                           : fmt::format("random:{} for a random model", like);
    if (may_be_of_hub(model))
        throw FormatError(fmt::format(
            "{}: no such file or directory, and no such model in the cache of the Hub; "
            "download it with `hf download {}`, or pass the path of a checkpoint, or {}.",
            model, model, drawn));
    throw FormatError(
        fmt::format("{}: no such file or directory; expected a local path of a checkpoint, or {}.",
                    model, drawn));
}

/// The file of `subject` under the names of a map, which the report tells.
void use_map(const std::string& map, Subject& subject, DetectOptions& detection,
             std::vector<std::string>& warnings) {
    const std::string text = file_text(map, "a map of names", longest_map);
    if (detection.config.is_null()) detection.config_name = map;
    subject.file = apply_map(std::move(subject.file), text, map, detection.config);
    subject.notes.push_back(fmt::format("map of names: {} {}", map, sha256(text)));
    warnings.push_back(fmt::format(
        "Names of tensors are those that {} gives them (--map): whether the model "
        "computes as the family whose names they are is what the map says, not the file",
        map));
}

}  // namespace

const ModelSpec& Subject::spec() const {
    return kind == Kind::random ? random.spec : architecture.spec;
}

std::string_view name(Subject::Kind kind) {
    constexpr std::array<std::string_view, 3> names{"checkpoint", "random", "trace"};
    return names[std::size_t(kind)];
}

std::unique_ptr<Checkpoint> open_file(const std::string& given) {
    const std::string path = local_model(given);
    std::error_code failed;
    if (!fs::exists(path, failed)) {
        const std::string index = path + ".index";  // TensorFlow names a checkpoint by its prefix
        if (!fs::exists(index, failed)) refuse_missing(path);
        return open_checkpoint(index);
    }
    if (std::unique_ptr<Checkpoint> batches = open_batches(path)) return batches;
    try {
        return open_checkpoint(module_folder(path).model);
    } catch (const NotAvailable& error) {
        throw FormatError(error.what());
    }
}

Subject open_subject(const SubjectOptions& given) {
    if (given.model.starts_with(random_prefix)) return open_random(given);

    Subject subject;
    subject.argument = given.model;
    const AdaptedModel adapted = adapted_model(given);
    SubjectOptions options = given;
    options.model = adapted.model.string();
    std::unique_ptr<Checkpoint> file = open_file(options.model);
    if (!adapted.adapter && options.model != given.model)
        subject.notes.push_back(fmt::format("model in the cache of the Hub: {}", options.model));
    if (is_trace(*file)) {
        const bool has_adapter = adapted.adapter && !adapted.adapter->weights.empty();
        if (describes_a_file(options) || has_adapter)
            throw UsageError(
                fmt::format("{}: is a trace; --config, --n-heads, --width, --memory-tokens, "
                            "--ignore, --map, --adapter and --base do not apply.",
                            options.model));
        subject.kind = Subject::Kind::trace;
        subject.file = std::move(file);
        return subject;
    }
    const std::string other = options.map.empty() ? other_dump(*file) : std::string();
    subject.file = unwrap(std::move(file), &subject.notes);
    const ModuleFolder modules = module_folder(options.model);
    if (!modules.others.empty())
        subject.notes.push_back(
            fmt::format("modules.json: the transformer alone is measured, not {}",
                        fmt::join(modules.others, ", ")));
    DetectOptions detection;
    // What a GGUF file says of itself precedes a config.json beside it.
    const bool complete = subject.file->format().starts_with("gguf") && options.config.empty();
    if (const fs::path config =
            complete ? fs::path()
                     : find_config(options, modules.model, subject.file->format() == "tensorflow",
                                   subject.notes);
        !config.empty()) {
        detection.config = read_json(config);
        detection.config_name = config.string();
        subject.notes.push_back(fmt::format("configuration: {}", config.string()));
        // Of Meta's files, which it configures where there is no config.json.
        if (const fs::path parameters = config.parent_path() / "params.json";
            options.config.empty() && parameters != config && fs::exists(parameters) &&
            subject.file->has("layers.0.attention.wq.weight"))
            detection.also_said.emplace_back(parameters.string(), read_json(parameters));
    }
    // The metadata of safetensors are texts about the file.
    SavedConfig saved = subject.file->format().starts_with("safetensors")
                            ? SavedConfig()
                            : saved_config(subject.file->metadata());
    require_same_config(options, detection.config, detection.config_name, saved.config);
    if (detection.config.is_null() && !saved.config.is_null()) {
        detection.config = std::move(saved.config);
        detection.config_of_script = saved.of_script;
        detection.config_name = "the configuration in the file";
        subject.notes.push_back("configuration: in the file itself");
    }
    detection.config_given = !options.config.empty();
    detection.heads = options.heads;
    detection.width = options.width;
    detection.memory_tokens = options.memory_tokens;
    detection.ignore = options.ignore;
    std::vector<std::string> scaled;
    subject.file = apply_scales(std::move(subject.file), detection.config, scaled);
    subject.file = apply_packing(std::move(subject.file), detection.config, scaled);
    subject.file = apply_layout(std::move(subject.file), detection.config, subject.notes);
    apply_adapters(adapted, subject, detection, scaled);
    if (!options.map.empty()) use_map(options.map, subject, detection, scaled);
    try {
        subject.architecture = detect(*subject.file, detection);
    } catch (const FormatError&) {
        if (other.empty()) throw;
        throw FormatError(fmt::format("{}: {}.", options.model, other));
    }
    std::ranges::move(scaled, std::back_inserter(subject.architecture.spec.provenance.warnings));
    return subject;
}

std::string Subject::deescalated() const {
    if (kind != Kind::random) return {};
    std::string text = argument + ",deesc=0.5";
    try {
        random_model(std::string_view(text).substr(random_prefix.size()));
    } catch (const UsageError&) {
        return {};
    }
    return text;
}

}  // namespace tsdiag
