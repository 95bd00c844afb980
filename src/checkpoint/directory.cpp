#include "directory.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <unordered_map>

#include "listed.hpp"
#include "mapped_file.hpp"
#include "tsdiag/adapter.hpp"
#include "tsdiag/training_folder.hpp"

namespace tsdiag::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 6> known_names = {
    "model.safetensors",  "model.safetensors.index.json",
    "pytorch_model.bin",  "pytorch_model.bin.index.json",
    "flax_model.msgpack", "flax_model.msgpack.index.json"};
/// Its index joins the keys of nested dicts by strokes.
constexpr std::string_view flax_index = ".msgpack.index.json";
constexpr std::array<std::string_view, 8> suffixes = {".safetensors", ".bin", ".pt",   ".pth",
                                                      ".ckpt",        ".npz", ".gguf", ".msgpack"};
/// Files of a training run that hold tensors but no model.
constexpr std::array<std::string_view, 5> beside_the_model = {"training_args.bin", "optimizer.",
                                                              "scheduler.", "rng_state", "scaler."};

bool is_shard(const std::string& name) { return name.find("-of-0") != std::string::npos; }

/// The files of `directory` that may be a model, sorted.
std::vector<fs::path> candidates(const fs::path& directory) {
    std::vector<fs::path> found;
    std::error_code error;
    for (fs::directory_iterator at(directory, error), end; !error && at != end;
         at.increment(error)) {
        const std::string name = at->path().filename().string();
        const bool suffix_fits = std::any_of(suffixes.begin(), suffixes.end(),
                                             [&](auto suffix) { return name.ends_with(suffix); });
        const bool other = std::any_of(beside_the_model.begin(), beside_the_model.end(),
                                       [&](auto begin) { return name.starts_with(begin); });
        std::error_code ignored;
        if (suffix_fits && !other && at->is_regular_file(ignored)) found.push_back(at->path());
    }
    if (error)
        refuse(directory.string(), fmt::format("cannot be read: {}. Check the path and its "
                                               "permissions.",
                                               error.message()));
    std::sort(found.begin(), found.end());
    return found;
}

struct Index {
    Json metadata;
    std::vector<std::pair<std::string, std::string>> file_of;  ///< tensor, shard
    std::vector<std::string> shards;                           ///< in order of first mention
};

Index read_index(const fs::path& path) {
    const auto file = MappedFile::open(path);
    const Json json = Json::parse(text_of(file->bytes()), file->path(), longest_index);
    const Json& map = json["weight_map"];
    if (!map.is_object() || map.object().empty())
        refuse(file->path(),
               "has no \"weight_map\", expected an object that maps each tensor to its shard. "
               "Download it again.");
    Index index;
    std::unordered_set<std::string> seen;
    if (json["metadata"].is_object()) index.metadata = json["metadata"];
    for (const auto& [tensor, shard] : map.object()) {
        if (!shard.is_string())
            refuse(file->path(), fmt::format("has no shard for tensor '{}' in its \"weight_map\", "
                                             "expected a file name. Download it again.",
                                             tensor));
        check_shard_name(shard.string(), file->path());
        std::string name = tensor;
        if (file->path().ends_with(flax_index)) std::ranges::replace(name, '/', '.');
        index.file_of.emplace_back(std::move(name), shard.string());
        if (seen.insert(shard.string()).second) index.shards.push_back(shard.string());
    }
    return index;
}

/// What torch.distributed.checkpoint saved.
bool is_distributed(const fs::path& directory) {
    std::error_code error;
    return fs::is_regular_file(directory / ".metadata", error);
}

bool has_index(const fs::path& directory) {
    std::error_code error;
    for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error))
        if (at->path().filename().string().ends_with(".index.json")) return true;
    return false;
}

/// The folder below that holds the model of what a trainer saved at one step: FSDP's sharded state
/// of accelerate, or the only one of DeepSpeed's beside `latest`; empty: there is none.
fs::path inner_folder(const fs::path& directory) {
    std::error_code error;
    if (const fs::path sharded = directory / "pytorch_model_fsdp_0"; is_distributed(sharded))
        return sharded;
    if (!fs::is_regular_file(directory / "latest", error)) return {};
    std::vector<fs::path> steps;
    for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error))
        if (std::error_code ignored; at->is_directory(ignored) && are_deepspeed(candidates(*at)))
            steps.push_back(at->path());
    return steps.size() == 1 ? steps[0] : fs::path();
}

/// FSDP's local states of accelerate, pytorch_model_fsdp_rank0.bin and so on?
bool are_local_states(const std::vector<fs::path>& files) {
    return !files.empty() && std::ranges::all_of(files, [](const fs::path& file) {
        return file.filename().string().starts_with("pytorch_model_fsdp_rank");
    });
}

/// Are they all shards of one GGUF file: NAME-00001-of-00002.gguf, ...?
bool are_one_gguf(const std::vector<fs::path>& files) {
    const auto without_number = [](const fs::path& file) {
        std::string name = file.filename().string();
        const std::size_t of = name.find("-of-0");
        return of < 5 || of == name.npos ? "" : name.erase(of - 5, 5);
    };
    return !files.empty() && std::ranges::all_of(files, [&](const fs::path& file) {
        return file.extension() == ".gguf" && !without_number(file).empty() &&
               without_number(file) == without_number(files.front());
    });
}

}  // namespace

bool has_known_name(const fs::path& directory) {
    std::error_code error;
    return std::any_of(known_names.begin(), known_names.end(),
                       [&](std::string_view name) { return fs::exists(directory / name, error); });
}

std::vector<fs::path> tensorflow_indices(const fs::path& directory) {
    std::vector<fs::path> indices;
    std::unordered_set<std::string> with_data;
    constexpr std::string_view first_data = ".data-00000-of-";
    std::error_code error;
    for (fs::directory_iterator at(directory, error), end; !error && at != end;
         at.increment(error)) {
        const std::string path = at->path().string();
        if (path.ends_with(tensorflow_ending)) indices.push_back(at->path());
        if (const std::size_t data = path.rfind(first_data); data != path.npos)
            with_data.insert(path.substr(0, data));
    }
    std::erase_if(indices, [&](const fs::path& index) {
        const std::string path = index.string();
        return !with_data.contains(path.substr(0, path.size() - tensorflow_ending.size()));
    });
    std::ranges::sort(indices);
    return indices;
}

namespace {

/// Would `open_directory` find a model there?
bool is_model(const fs::path& directory) {
    std::error_code error;
    const bool empty = fs::is_empty(directory, error);
    if (error || empty) return false;
    const std::vector<fs::path> files = candidates(directory);
    return has_known_name(directory) || is_distributed(directory) || files.size() == 1 ||
           are_one_gguf(files) || are_consolidated(files) || are_deepspeed(files) ||
           !inner_folder(directory).empty() ||
           (files.empty() && tensorflow_indices(directory).size() == 1);
}

}  // namespace

void check_shard_name(const std::string& shard, const std::string& where) {
    const bool bad = shard.empty() || shard == "." || shard.find('/') != std::string::npos ||
                     shard.find('\\') != std::string::npos ||
                     shard.find("..") != std::string::npos || shard.find('\0') != std::string::npos;
    if (bad)
        refuse(where, fmt::format("names the shard '{}', expected the plain name of a file in the "
                                  "same directory. Download the index again.",
                                  shard));
}

std::unique_ptr<Checkpoint> open_shards(const fs::path& path) {
    const Index index = read_index(path);
    std::unordered_map<std::string, std::unique_ptr<Checkpoint>> shards;
    std::unordered_map<std::string, std::unordered_set<std::string>> held;  // names, by shard
    for (const std::string& shard : index.shards) {
        const fs::path file = path.parent_path() / shard;
        std::error_code error;
        if (!fs::exists(file, error))
            refuse(path.string(),
                   fmt::format("names the shard '{}', which is missing, expected all {} shards in "
                               "the same directory. Download the missing ones.",
                               shard, index.shards.size()));
        shards[shard] = open_file(file);
        held[shard].insert(shards[shard]->names().begin(), shards[shard]->names().end());
    }
    const std::string_view format = shards.begin()->second->format();
    auto listed =
        std::make_unique<ListedCheckpoint>(format.starts_with("torch")  ? "torch, in shards"
                                           : format.starts_with("flax") ? "flax msgpack, in shards"
                                                                        : "safetensors, in shards",
                                           path.string());
    std::unordered_set<std::string> named;
    for (const auto& [name, shard] : index.file_of) {
        if (!held[shard].contains(name))
            refuse(path.string(),
                   fmt::format("places tensor '{}' in '{}', which does not contain it. The index "
                               "and the shards belong to different models; download both again.",
                               name, shard));
        listed->add(name, shards[shard]->tensor(name));
        named.insert(name);
    }
    for (const std::string& shard : index.shards)  // tensors missing from the index
        for (const std::string& name : shards[shard]->names())
            if (named.insert(name).second) listed->add(name, shards[shard]->tensor(name));
    Json metadata = shards[index.shards.front()]->metadata();
    if (index.metadata.is_object())
        for (const auto& [key, value] : index.metadata.object()) metadata.set(key, value);
    listed->set_metadata(std::move(metadata));
    return listed;
}

namespace {

/// Refuses a folder without a checkpoint that is known as something else.
void refuse_foreign_folder(const fs::path& directory) {
    std::error_code failed;
    if (fs::exists(directory / "model_index.json", failed))
        refuse(
            directory.string(),
            "is a pipeline of diffusers, whose parts no family is. Save the states and maps of a "
            "pass of one part as hidden_states.L and attentions.L.");
    if (fs::exists(directory / "latest_checkpointed_iteration.txt", failed) ||
        fs::exists(directory / "mp_rank_00" / "model_optim_rng.pt", failed))
        refuse(directory.string(),
               "is a checkpoint of Megatron-LM, whose layout is not read. Convert it to the one of "
               "Transformers by Megatron's own tools.");
    for (const auto& entry : fs::directory_iterator(directory, failed))
        if (entry.path().extension() == ".onnx")
            refuse(
                directory.string(),
                fmt::format("holds an ONNX model ({}) and no checkpoint. Use the original model.",
                            entry.path().filename().string()));
}

}  // namespace

std::unique_ptr<Checkpoint> open_directory(const fs::path& directory) {
    for (const std::string_view name : known_names) {
        const fs::path file = directory / name;
        std::error_code error;
        if (!fs::exists(file, error)) continue;
        return name.ends_with(".index.json") ? open_shards(file) : open_file(file);
    }
    if (is_distributed(directory)) return open_distributed(directory);
    if (const fs::path inner = inner_folder(directory); !inner.empty())
        return open_directory(inner);
    std::vector<fs::path> files = candidates(directory);
    const auto holds = [&](const char* name) {
        std::error_code error;
        return fs::exists(directory / name, error);
    };
    if (holds("run.json") && holds("metrics.csv") &&
        std::ranges::all_of(files, [](const fs::path& f) { return f.filename() == "maps.npz"; }))
        refuse(directory.string(),
               "is a result of tsdiag, not a model. Open its report.html, or rebuild that with "
               "tsdiag report.");
    if (are_consolidated(files)) return open_consolidated(files);
    if (are_deepspeed(files)) return open_deepspeed(files);
    if (are_local_states(files))
        refuse(directory.string(),
               "holds the local states of FSDP's processes, whose parts have no names, expected "
               "one model. Save a full or a sharded state dict (fsdp_state_dict_type).");
    if (files.size() == 1 || are_one_gguf(files)) return open_file(files.front());
    if (files.empty()) files = tensorflow_indices(directory);
    if (files.size() == 1) return open_tensorflow(files.front());
    if (files.empty()) refuse_foreign_folder(directory);
    std::vector<std::string> names;
    for (const fs::path& file : files)
        if (names.size() < 8) names.push_back(file.filename().string());
    if (files.empty())
        refuse(directory.string(),
               fmt::format("contains no model, expected {}, or one file that ends in {}. If the "
                           "file has another name, pass its path.",
                           fmt::join(known_names, ", "), fmt::join(suffixes, ", ")));
    const bool sharded = std::all_of(names.begin(), names.end(), is_shard);
    refuse(directory.string(),
           fmt::format("contains {} possible model files ({}), expected one{}. {}", files.size(),
                       fmt::join(names, ", "), sharded ? " with an index *.index.json" : "",
                       sharded ? "Download the index as well." : "Pass the path of the file."));
}

}  // namespace tsdiag::checkpoint

namespace tsdiag {

std::vector<std::filesystem::path> checkpoints_below(const std::filesystem::path& directory) {
    using namespace checkpoint;
    std::vector<fs::path> found = candidates(directory);
    std::erase_if(found, [](const fs::path& file) {
        const std::string name = file.filename().string();
        return is_shard(name) || name.starts_with("adapter_model.") ||
               std::ranges::find(known_names, name) != std::end(known_names);
    });
    std::error_code error;
    for (fs::directory_iterator at(directory, error), end; !error && at != end;
         at.increment(error)) {
        std::error_code ignored;
        if (at->path().filename().string().starts_with('.') || !at->is_directory(ignored)) continue;
        if (is_model(at->path())) found.push_back(at->path());
    }
    const fs::path below = directory / "checkpoints";  // the usual place of trainers
    if (found.empty() && fs::is_directory(below, error)) return checkpoints_below(below);
    std::sort(found.begin(), found.end());
    return found;
}

std::vector<std::filesystem::path> checkpoints_in(const std::filesystem::path& directory) {
    using namespace checkpoint;
    if (has_known_name(directory) || has_index(directory) || is_distributed(directory)) return {};
    if (adapter_files(directory) || !inner_folder(directory).empty()) return {};
    if (module_folder(directory).model != directory) return {};
    const std::vector<fs::path> files = candidates(directory);
    if (are_consolidated(files) || are_deepspeed(files) || are_local_states(files)) return {};
    const auto shard = [](const fs::path& file) { return is_shard(file.filename().string()); };
    if (std::ranges::any_of(files, shard)) return {};
    std::vector<fs::path> found = checkpoints_below(directory);
    if (files.size() == 1 && found == files) return {};
    if (found.empty() && !tensorflow_indices(directory).empty()) return {};
    return found;
}

}  // namespace tsdiag
