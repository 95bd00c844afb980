#include <fmt/format.h>
#include <fmt/ranges.h>

#include "directory.hpp"
#include "mapped_file.hpp"
#include "tsdiag/file.hpp"

/// Folders of sentence-transformers: modules.json lists what a sentence passes through.
namespace tsdiag {
namespace {

namespace fs = std::filesystem;
using checkpoint::refuse;

/// "Pooling" of "sentence_transformers.models.Pooling".
std::string last_word(const std::string& type) { return type.substr(type.rfind('.') + 1); }

/// A module's folder inside the folder of all.
fs::path inside(const fs::path& folder, const std::string& path, const std::string& list) {
    if (path.empty()) return folder;
    checkpoint::check_shard_name(path, list);
    return folder / path;
}

}  // namespace

ModuleFolder module_folder(const fs::path& path) {
    std::error_code error;
    const fs::path list = path / "modules.json";
    ModuleFolder out{path, {}};
    if (!fs::is_directory(path, error) || !fs::is_regular_file(list, error)) return out;
    const std::string source = list.string();
    const Json modules = file_json(list, "a list of modules");
    if (!modules.is_array())
        refuse(source, "is not a list, expected the modules of a sentence transformer.");
    std::vector<std::string> folders;
    for (const Json& module : modules.array()) {
        if (!module["type"].is_string() || !module["path"].is_string())
            refuse(source, "has a module without a type or a path. Download it again.");
        const std::string type = last_word(module["type"].string());
        if (type == "Transformer")
            folders.push_back(module["path"].string());
        else
            out.others.push_back(type);
    }
    if (folders.empty()) return {path, {}};
    if (folders.size() > 1)
        refuse(source, fmt::format("lists {} transformers, in '{}'. Pass the path of one.",
                                   folders.size(), fmt::join(folders, "' and '")));
    out.model = inside(path, folders.front(), source);
    return out;
}

}  // namespace tsdiag
