#pragma once
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "recorder.hpp"
#include "tsdiag/checkpoint.hpp"
#include "tsdiag/error.hpp"

namespace tsdiag::test {

/// A checkpoint in memory: float32 tensors that a test names, fills and corrupts.
class MemoryFile final : public Checkpoint {
  public:
    void add(const std::string& name, std::vector<std::int64_t> shape, float value = 0.5F) {
        std::int64_t count = 1;
        for (const std::int64_t extent : shape) count *= extent;
        auto data = std::make_shared<std::vector<float>>(std::size_t(count), value);
        if (!tensors_.contains(name)) names_.push_back(name);
        tensors_[name] = {std::move(shape), std::move(data), DType::f32};
    }
    void remove(const std::string& name) {
        tensors_.erase(name);
        std::erase(names_, name);
    }
    std::vector<float>& values(const std::string& name) { return *tensors_.at(name).data; }
    void set_dtype(const std::string& name, DType type) { tensors_.at(name).dtype = type; }
    void set_metadata(Json metadata) { metadata_ = std::move(metadata); }

    const std::vector<std::string>& names() const override { return names_; }
    RawTensor tensor(std::string_view name) const override {
        const auto found = tensors_.find(std::string(name));
        if (found == tensors_.end()) throw UsageError("no tensor " + std::string(name));
        const Stored& stored = found->second;
        RawTensor out;
        out.dtype = stored.dtype;
        out.dtype_name = std::string(tsdiag::name(stored.dtype));
        out.shape = stored.shape;
        out.strides.assign(stored.shape.size(), 1);
        for (std::size_t k = stored.shape.size(); k-- > 1;)
            out.strides[k - 1] = out.strides[k] * stored.shape[k];
        out.bytes = std::as_bytes(std::span<const float>(*stored.data));
        out.owner = stored.data;
        return out;
    }
    const Json& metadata() const override { return metadata_; }
    std::string_view format() const override { return "memory"; }
    std::string source() const override { return "memory.file"; }

  private:
    struct Stored {
        std::vector<std::int64_t> shape;
        std::shared_ptr<std::vector<float>> data;
        DType dtype = DType::f32;
    };
    std::vector<std::string> names_;
    std::unordered_map<std::string, Stored> tensors_;
    Json metadata_ = Json::Object();
};

/// A BERT of two layers, d = 8, as HF names it, without prefix.
inline std::shared_ptr<MemoryFile> tiny_bert() {
    auto file = std::make_shared<MemoryFile>();
    const auto linear = [&](const std::string& stem, std::int64_t out, std::int64_t in) {
        file->add(stem + ".weight", {out, in}, 0.01F);
        file->add(stem + ".bias", {out}, 0.02F);
    };
    const auto norm = [&](const std::string& stem) {
        file->add(stem + ".weight", {8}, 1.F);
        file->add(stem + ".bias", {8}, 0.F);
    };
    file->add("embeddings.word_embeddings.weight", {20, 8}, 0.1F);
    file->add("embeddings.position_embeddings.weight", {6, 8}, 0.2F);
    file->add("embeddings.token_type_embeddings.weight", {2, 8}, 0.3F);
    norm("embeddings.LayerNorm");
    for (const std::string layer : {"encoder.layer.0.", "encoder.layer.1."}) {
        for (const char* part : {"query", "key", "value"})
            linear(layer + "attention.self." + part, 8, 8);
        linear(layer + "attention.output.dense", 8, 8);
        norm(layer + "attention.output.LayerNorm");
        linear(layer + "intermediate.dense", 16, 8);
        linear(layer + "output.dense", 8, 16);
        norm(layer + "output.LayerNorm");
    }
    return file;
}

/// The message of the `E` that `action` throws, or a note that it threw none.
template <class E, class Action>
std::string thrown(Action action) {
    try {
        action();
    } catch (const E& e) {
        return e.what();
    } catch (const std::exception& e) {
        return std::string("another error: ") + e.what();
    }
    return "nothing was thrown";
}

/// The names and shapes of a golden file, without its configuration and metadata.
inline std::shared_ptr<MemoryFile> copy_of(const std::string& path) {
    const auto file = unwrap(open_checkpoint(golden / path), nullptr);
    auto out = std::make_shared<MemoryFile>();
    for (const std::string& name : file->names()) out->add(name, file->tensor(name).shape, 0.01F);
    return out;
}

/// What is read from it, with a configuration and a number of heads where it lacks them.
inline ModelSpec spec_of(const Checkpoint& file, const std::string& config = "", Index heads = 0) {
    DetectOptions options;
    if (!config.empty()) options.config = Json::parse(config, "config.json");
    if (heads > 0) options.heads = heads;
    return detect(file, options).spec;
}

}  // namespace tsdiag::test
