#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "adapted_model.hpp"
#include "settings.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/checkpoint_series.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/pictures.hpp"
#include "tsdiag/tokenizer.hpp"

namespace tsdiag {
namespace {

namespace fs = std::filesystem;

/// Digests eight bytes at a time; detects changed files, not forged ones.
class ContentDigest {
  public:
    void add(const char* bytes, std::size_t count) {
        for (; count >= 8; bytes += 8, count -= 8) {
            std::uint64_t word = 0;
            std::memcpy(&word, bytes, 8);
            mix(word);
        }
        std::uint64_t rest = 0;
        std::memcpy(&rest, bytes, count);
        mix(rest);
        mix(count);
    }
    void add(const std::string& text) { add(text.data(), text.size()); }
    std::string text() const { return fmt::format("{:016x}", state_ ^ (state_ >> 31)); }

  private:
    void mix(std::uint64_t word) {
        state_ = (state_ ^ word) * 0x9E3779B97F4A7C15u;
        state_ ^= state_ >> 29;
    }
    std::uint64_t state_ = 0xCBF29CE484222325u;
};

void add_file(const fs::path& file, ContentDigest& digest,
              std::string_view expected = "a checkpoint") {
    std::error_code failed;
    if (!fs::is_regular_file(file, failed))
        throw FormatError(
            fmt::format("{}: is not a regular file, expected {}.", file.string(), expected));
    std::ifstream in(file, std::ios::binary);
    if (!in) throw FormatError(fmt::format("{}: cannot be read.", file.string()));
    std::vector<char> buffer(1u << 20);
    while (in.read(buffer.data(), std::streamsize(buffer.size())) || in.gcount() > 0)
        digest.add(buffer.data(), std::size_t(in.gcount()));
    if (in.bad()) throw FormatError(fmt::format("{}: cannot be read.", file.string()));
}

bool is_of_the_model(const fs::path& file) {
    const std::string name = file.filename().string();
    for (const std::string_view other :
         {"training_args.bin", "optimizer.", "scheduler.", "rng_state", "scaler.", "files.sha256"})
        if (name.starts_with(other)) return false;
    return true;
}

std::vector<fs::path> files_in(const fs::path& folder) {
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
        if (entry.is_regular_file() && is_of_the_model(entry.path())) files.push_back(entry.path());
    std::ranges::sort(files);
    return files;
}

/// What is read with a file of a model, config.json among it.
std::vector<fs::path> files_beside(const fs::path& model) {
    std::vector<fs::path> files = tokenizer_files(model);
    std::erase(files, model);
    if (const fs::path file = preprocessor_file(model); !file.empty()) files.push_back(file);
    if (const auto adapter = adapter_files(model.parent_path())) files.push_back(adapter->config);
    return files;
}

void add_model(const fs::path& model, ContentDigest& digest) {
    const fs::path path = module_folder(model).model;
    if (!fs::is_directory(path)) {
        add_file(path, digest);
        for (const fs::path& file : files_beside(path)) add_file(file, digest);
        return;
    }
    for (const fs::path& file : files_in(path)) {
        digest.add(file.filename().string());
        add_file(file, digest);
    }
}

}  // namespace

std::vector<fs::path> files_of_model(const fs::path& path) {
    std::error_code failed;
    if (fs::is_regular_file(path, failed)) {
        std::vector<fs::path> files = files_beside(path);
        files.insert(files.begin(), path);
        return files;
    }
    const fs::path folder = module_folder(path).model;
    return fs::is_directory(folder, failed) ? files_in(folder) : std::vector<fs::path>();
}

std::string contents_digest(const fs::path& checkpoint) {
    ContentDigest digest;
    add_model(checkpoint, digest);
    if (const fs::path model = model_of_adapter(checkpoint); !model.empty())
        add_model(model, digest);
    return digest.text();
}

std::string settings_digest(const RunOptions& options) {
    ContentDigest digest;
    digest.add(TSDIAG_VERSION);
    digest.add("attentions draw by the seed");  // results of before are measured anew
    for (const Setting& setting : settings()) {
        if (!setting.decides) continue;
        digest.add(std::string(setting.name));
        if (const auto value = setting.value(options, {}))
            digest.add(value->is_string() ? value->string() : value->dump());
        if (!setting.files) continue;
        for (const fs::path& file : setting.files(options)) {
            digest.add(file.filename().string());
            add_file(file, digest, fmt::format("what --{} names", setting.name));
        }
    }
    return digest.text();
}

}  // namespace tsdiag
