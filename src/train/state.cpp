#include "state.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "tsdiag/error.hpp"

namespace tsdiag::training {
namespace {

namespace fs = std::filesystem;

constexpr const char* state_file = "training.safetensors";

fs::path folder(const fs::path& directory, Index step) {
    return directory / "checkpoints" / fmt::format("step-{}", step);
}

/// The steps of DIR/checkpoints/step-N that hold a training state, ascending.
std::vector<Index> saved_steps(const fs::path& directory) {
    std::vector<Index> out;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(directory / "checkpoints", none)) {
        const std::string name = entry.path().filename().string();
        Index step = 0;
        if (!name.starts_with("step-")) continue;
        const auto [end, error] = std::from_chars(name.data() + 5, name.data() + name.size(), step);
        if (error == std::errc() && end == name.data() + name.size() &&
            fs::exists(entry.path() / state_file))
            out.push_back(step);
    }
    std::sort(out.begin(), out.end());
    return out;
}

/// Waits until the disk has `path`.
void flush(const fs::path& path) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return;
    fsync(file);
    close(file);
}

/// Host copies that outlive the arrays which speak of them.
class Arrays {
  public:
    void add(std::string name, const Tensor& t) {
        values_.push_back(t.to_host<float>());
        arrays_.push_back({std::move(name), {t.batch(), t.rows(), t.cols()}, values_.back(), {}});
    }
    std::span<const NamedArray> all() const { return arrays_; }

  private:
    std::vector<std::vector<float>> values_;  // a moved vector keeps its elements in place
    std::vector<NamedArray> arrays_;
};

}  // namespace

void remove_saved(const fs::path& directory) {
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(directory / "checkpoints", none))
        if (entry.path().filename().string().starts_with("step-")) fs::remove_all(entry.path());
}

Index last_saved(const fs::path& directory) {
    const std::vector<Index> steps = saved_steps(directory);
    return steps.empty() ? -1 : steps.back();
}

std::string save_state(const fs::path& directory, Index step, const ModelSpec& spec,
                       const Parameters& parameters, const Optimiser& optimiser,
                       const Json& described) {
    const fs::path whole = folder(directory, step);
    const fs::path partial = whole.string() + ".partial";
    fs::remove_all(partial);
    fs::create_directories(partial);
    std::string why;
    try {
        write_model(spec, parameters, partial);
    } catch (const NotAvailable& error) {
        why = error.what();
    }
    Arrays arrays;
    for (const auto& [name, value] : parameters.all()) arrays.add("parameter." + name, value);
    for (const auto& [name, state] : optimiser.states()) {
        arrays.add("m." + name, state.m);
        arrays.add("v." + name, state.v);
    }
    Json metadata;
    metadata.set("training", described.dump());
    write_safetensors(partial / state_file, arrays.all(), metadata);
    for (const auto& entry : fs::directory_iterator(partial)) flush(entry.path());
    fs::remove_all(whole);
    fs::rename(partial, whole);
    flush(whole.parent_path());
    const std::vector<Index> steps = saved_steps(directory);
    for (std::size_t i = 0; i + 2 < steps.size(); ++i)
        fs::remove(folder(directory, steps[i]) / state_file);
    return why;
}

Json described_state(const fs::path& directory, Index step) {
    const fs::path file = folder(directory, step) / state_file;
    const std::unique_ptr<Checkpoint> state = open_checkpoint(file);
    const Json& text = state->metadata()["training"];
    if (!text.is_string())
        throw FormatError(fmt::format("{}: holds no training state.", file.string()));
    return Json::parse(text.string(), file.string());
}

void load_state(const fs::path& directory, Index step, Parameters& parameters,
                Optimiser& optimiser) {
    const fs::path file = folder(directory, step) / state_file;
    const std::unique_ptr<Checkpoint> state = open_checkpoint(file);
    const auto read = [&](const std::string& name, const Tensor& like) {
        if (!state->has(name))
            throw FormatError(fmt::format("{}: lacks '{}'.", file.string(), name));
        const RawTensor raw = state->tensor(name);
        const Shape shape = like.shape();
        if (raw.shape != std::vector<Index>{shape.batch, shape.rows, shape.cols} ||
            raw.dtype != DType::f32)
            throw FormatError(fmt::format(
                "{}: '{}' is {} of {} elements, expected float32 of {} x {} x {}.", file.string(),
                name, raw.dtype_name, raw.count(), shape.batch, shape.rows, shape.cols));
        std::vector<float> values(static_cast<std::size_t>(raw.count()));
        widen(raw, std::span<float>(values));
        return Tensor::from_host(like.backend(), shape, std::span<const float>(values),
                                 like.type());
    };
    for (const std::string& name : parameters.names()) {
        const Tensor like = parameters.get(name);
        parameters.set(name, read("parameter." + name, like));
        if (state->has("m." + name))
            optimiser.restore(name, {read("m." + name, like), read("v." + name, like)});
    }
}

}  // namespace tsdiag::training
