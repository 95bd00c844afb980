#pragma once
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "support/near.hpp"
#include "support/places.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/families.hpp"
#include "tsdiag/layouts.hpp"
#include "tsdiag/model.hpp"

/// Shared by the tests of models.
namespace tsdiag::test {

/// Records all events: states under "L.stage" ("embed", "final_norm" without a layer).
struct Recorder : Observer {
    bool rows = false, attention = true;
    Index sample = -1;
    std::map<std::string, std::vector<double>> states;  ///< of the last sample
    std::map<std::string, std::string> pred;
    std::vector<std::string> order;  ///< "L.stage" in order of arrival
    std::map<Index, std::vector<double>> matrix;
    std::map<Index, double> a2;
    Index blocks = 0, ended = 0;

    static std::string key(Index layer, std::string_view stage) {
        if (stage == "embed" || stage == "final_norm") return std::string(stage);
        return "layer." + std::to_string(layer) + "." + std::string(stage);
    }
    void begin_sample(Index s) override { sample = s; }
    void on_hidden(const Hidden& e) override {
        const std::string k = key(e.layer, e.stage);
        states[k] = e.x.to_host<double>();
        pred[k] = e.pred;
        order.push_back(k);
    }
    bool wants_rows(Index) const override { return rows; }
    void on_attention_rows(Index, const RowBlock&) override { ++blocks; }
    bool wants_attention(Index) const override { return attention; }
    void on_attention(const Attention& e) override {
        matrix[e.layer] = e.op.matrix().to_host<double>();
        if (!std::isnan(e.a2)) a2[e.layer] = e.a2;
    }
    void end_layer(Index) override { ++ended; }
};

/// An array of doubles in a file.
inline std::vector<double> numbers(const Checkpoint& file, const std::string& name) {
    const RawTensor raw = file.tensor(name);
    std::vector<double> out(std::size_t(raw.count()));
    widen(raw, std::span<double>(out));
    return out;
}

/// A checkpoint, its architecture and weights, ready to run.
struct Opened {
    std::shared_ptr<const Checkpoint> file;
    Architecture architecture;

    static Opened from(const std::filesystem::path& path, DetectOptions options = {});
    Model model(Type type) const {
        return Model(architecture.spec, checkpoint_weights(file, architecture, cpu(), type, false),
                     cpu(), type);
    }
};

inline Json read_json(const std::filesystem::path& path);

/// Of golden checkpoints, and the manifest of their cases.
inline const std::filesystem::path golden = std::filesystem::path(test_data()) / "golden";

/// A golden checkpoint, and what its files do not say.
struct GoldenCheckpoint {
    std::string path;
    DetectOptions options;  ///< its number of heads; the size of its images
    friend void PrintTo(const GoldenCheckpoint& c, std::ostream* out) { *out << c.path; }
};
inline std::vector<GoldenCheckpoint> golden_checkpoints() {
    std::vector<GoldenCheckpoint> out;
    std::set<std::string> seen;
    const Json manifest = read_json(golden / "manifest.json");
    for (const Json& c : manifest["cases"].array()) {
        if (!seen.insert(c["open"].string()).second) continue;
        out.push_back({c["open"].string(), {}});
        DetectOptions& options = out.back().options;
        if (const Json& heads = c["needs"]["n_heads"]; heads.is_integer())
            options.heads = heads.integer();
        if (const Json& size = c["needs"]["image_size"]; size.is_integer())
            options.config.set("image_size", size);
    }
    return out;
}

/// config.json in the folder of a model, or what Google's BERT and ALBERT have in its place; null:
/// there is none.
inline Json config_in(const std::filesystem::path& model) {
    const std::filesystem::path folder =
        std::filesystem::is_directory(model) ? model : model.parent_path();
    for (const char* name : {"config.json", "bert_config.json", "albert_config.json"})
        if (std::filesystem::exists(folder / name)) return read_json(folder / name);
    return {};
}

inline Opened Opened::from(const std::filesystem::path& path, DetectOptions options) {
    Opened out;
    if (const Json config = config_in(path); !config.is_null()) options.config = config;
    std::vector<std::string> notes;
    out.file = apply_packing(unwrap(open_checkpoint(path), nullptr), options.config, notes);
    out.file = apply_layout(out.file, options.config, notes);
    out.architecture = detect(*out.file, options);
    return out;
}

inline Json read_json(const std::filesystem::path& path) {
    std::string text;
    FILE* f = std::fopen(path.c_str(), "rb");
    if (!f) throw FormatError(path.string() + " cannot be read");
    char buffer[4096];
    for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, f)) > 0;)
        text.append(buffer, n);
    std::fclose(f);
    return Json::parse(text, path.string());
}

/// A random model with weights of one seed.
inline Model random(const std::string& text, Type type, std::uint64_t seed = 1) {
    const RandomModel drawn = random_model(text);
    return Model(drawn.spec, random_weights(drawn, Rng(seed), cpu(), type), cpu(), type);
}

/// Numbers N(0, 1) as an input of layer 0.
inline Input gaussian(Index n, Index d, Type type = Type::f64, std::uint64_t seed = 7) {
    std::vector<double> values(std::size_t(n * d));
    Rng(seed).fill_normal(std::span<double>(values), 0, 1);
    Input out;
    out.hidden = Tensor::from_host(cpu(), {1, n, d}, std::span<const double>(values), type);
    return out;
}

inline Input of_ids(std::vector<Index> ids) {
    Input input;
    input.ids = std::move(ids);
    return input;
}

}  // namespace tsdiag::test
