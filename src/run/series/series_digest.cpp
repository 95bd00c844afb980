#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>

#include "inputs.hpp"
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

void add_file(const fs::path& file, ContentDigest& digest) {
    std::error_code failed;
    if (!fs::is_regular_file(file, failed))
        throw FormatError(
            fmt::format("{}: is not a regular file, expected a checkpoint.", file.string()));
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

void add_path(const fs::path& path, ContentDigest& digest) {
    if (!fs::is_directory(path)) return add_file(path, digest);
    std::vector<fs::path> files;
    for (const fs::directory_entry& entry : fs::directory_iterator(path))
        if (entry.is_regular_file() && is_of_the_model(entry.path())) files.push_back(entry.path());
    std::ranges::sort(files);
    for (const fs::path& file : files) {
        digest.add(file.filename().string());
        add_file(file, digest);
    }
}

/// A setting that may name a file: "ids:FILE", or the file itself.
void add_named(const std::string& setting, ContentDigest& digest) {
    digest.add(setting);
    const std::size_t colon = setting.find(':');
    for (const std::string& name :
         {setting, colon == std::string::npos ? std::string() : setting.substr(colon + 1)}) {
        std::error_code failed;
        if (!name.empty() && fs::is_regular_file(name, failed)) add_file(name, digest);
    }
}

}  // namespace

std::string contents_digest(const fs::path& checkpoint) {
    ContentDigest digest;
    add_path(module_folder(checkpoint).model, digest);
    std::error_code failed;
    if (!fs::is_directory(checkpoint, failed)) {  // config.json is among them
        for (const fs::path& file : tokenizer_files(checkpoint))
            if (file != checkpoint) add_file(file, digest);
        if (const fs::path file = preprocessor_file(checkpoint); !file.empty())
            add_file(file, digest);
    }
    return digest.text();
}

std::string settings_digest(const RunOptions& o) {
    ContentDigest digest;
    const auto add = [&](const auto& value) { digest.add(fmt::format("{}", value)); };
    digest.add(TSDIAG_VERSION);
    add_named(o.subject.config, digest);
    add(o.subject.heads.value_or(-1));
    add(o.subject.width.value_or(-1));
    add(o.subject.memory_tokens);
    for (const std::string& name : o.subject.ignore) digest.add("ignore " + name);
    if (!o.subject.map.empty()) {
        digest.add("map");
        add_named(o.subject.map, digest);
    }
    add_named(o.input, digest);
    if (o.has_text()) {
        digest.add("text " + o.text);
        add_named(o.text_file, digest);
        digest.add(o.tokenizer);  // that of the model is in `contents_digest`
        if (!o.tokenizer.empty())
            for (const fs::path& file : tokenizer_files(o.tokenizer)) add_file(file, digest);
    }
    if (!o.images.empty()) {
        digest.add("images " + o.images);
        std::vector<fs::path> files = picture_files(o.images);
        const auto most = std::size_t(o.samples > 0 ? o.samples : usual_pictures);
        if (files.size() > most) files.resize(most);
        for (const fs::path& file : files) {
            digest.add(file.filename().string());
            digest.add(picture_bytes(file));
        }
        add_named(o.preprocessor, digest);  // that of the model is in `contents_digest`
    }
    if (!o.has_input() && o.own_input) digest.add(o.own_input->digest);
    for (const Index value : {o.tokens, o.samples, o.trials, o.first_layer, o.last_layer})
        add(value);
    add(o.seed);
    digest.add(o.redraw);
    digest.add(o.loss);
    add_named(o.labels, digest);
    add_named(o.mask, digest);
    for (const Index head : o.heads) add(head);
    for (const std::string& probe : o.probes) digest.add("probe " + probe);
    add(o.dtype ? int(*o.dtype) : -1);
    digest.add(o.device);
    add(int(o.products));
    add(int(o.allow_nonfinite));
    add(o.tolerance);
    digest.add(o.spectra);
    add(o.cross_check);
    for (const auto& [layer, head] : o.maps) digest.add(fmt::format("map {} {}", layer, head));
    if (!o.trace.given()) return digest.text();
    digest.add("trace " + o.trace.attention);
    add(int(o.trace.causal));
    for (const std::optional<double>& number : {o.trace.scale, o.trace.a2})
        digest.add(number ? fmt::format("{}", *number) : "none");
    if (o.trace.placement) digest.add(std::string(name(*o.trace.placement)));
    return digest.text();
}

}  // namespace tsdiag
