#include <fmt/format.h>

#include <map>

#include "names.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/table.hpp"

/// A model as a directory of HF: config.json and model.safetensors.
namespace tsdiag {
namespace {

using model::file_shape;

struct FileTensor {
    std::vector<Index> shape;
    std::vector<float> values;
};

/// Puts the rows of a canonical tensor where the file has them: the inverse of reading.
void place(const Parameter& p, const TensorSource& s, const std::vector<float>& from,
           FileTensor& to) {
    const Index out = p.vector ? p.shape.cols : p.shape.rows;
    const Index cols = p.vector ? 1 : p.shape.cols;
    const Index total = s.total > 0 ? s.total : out;
    for (Index r = 0; r < out; ++r) {
        const Index row = s.length > 0 ? r / s.length * s.stride + s.first + r % s.length : r;
        for (Index c = 0; c < cols; ++c) {
            const Index at = s.transposed ? c * total + row : row * cols + c;
            to.values[static_cast<std::size_t>(at)] = from[static_cast<std::size_t>(r * cols + c)];
        }
    }
}

/// Prefix tokens that the family keeps in tensors of their own, (1, 1, d) each.
void place_stacked(const Parameter& p, const TensorSource& s, const std::vector<float>& from,
                   std::map<std::string, FileTensor>& file) {
    std::vector<std::string> names{s.file_name};
    names.insert(names.end(), s.concat.begin(), s.concat.end());
    check(std::ssize(names) == p.shape.rows, "one tensor a stacked row");
    const auto cols = static_cast<std::ptrdiff_t>(p.shape.cols);
    for (std::size_t r = 0; r < names.size(); ++r) {
        const auto first = from.begin() + static_cast<std::ptrdiff_t>(r) * cols;
        file[names[r]] = {{1, 1, p.shape.cols}, {first, first + cols}};
    }
}

std::map<std::string, FileTensor> file_tensors(const ModelSpec& spec, const Weights& weights,
                                               const Names& names) {
    std::map<std::string, FileTensor> file;
    std::map<std::string, Parameter> known;
    for (Parameter& p : parameters(spec)) known.emplace(p.name, p);
    for (const auto& [canonical, source] : names) {
        const Parameter& p = known.at(canonical);
        const std::vector<float> values = weights.get(canonical).to_host<float>();
        weights.release();
        if (!source.concat.empty()) {
            place_stacked(p, source, values, file);
            continue;
        }
        FileTensor& to = file[source.file_name];
        if (to.shape.empty()) {
            to.shape = file_shape(p, source);
            Index count = 1;
            for (const Index extent : to.shape) count *= extent;
            to.values.resize(static_cast<std::size_t>(count));
        }
        place(p, source, values, to);
    }
    return file;
}

}  // namespace

void write_model(const ModelSpec& spec, const Weights& weights,
                 const std::filesystem::path& directory) {
    for (const ArchitectureEntry* entry : architectures()) {
        if (entry->name != spec.family || entry->names == nullptr) continue;
        const auto file = file_tensors(spec, weights, entry->names(spec));
        std::vector<NamedArray> arrays;
        for (const auto& [name, tensor] : file)
            arrays.push_back({name, tensor.shape, tensor.values, {}});
        // What no key of the family says, for `detect`.
        const BlockSpec& b = spec.blocks.front();
        Json own;
        own.set("attention", b.attention).set("causal", b.causal);
        Json config = entry->config(spec);
        config.set("torch_dtype", "float32").set("tsdiag", std::move(own));
        std::filesystem::create_directories(directory);
        Json metadata;
        metadata.set("format", "pt");
        write_safetensors(directory / "model.safetensors", arrays, metadata);
        write_atomically(directory / "config.json", config.dump(2) + "\n");
        return;
    }
    throw NotAvailable(fmt::format(
        "a model of family '{}' cannot be written, for it has no names of its own", spec.family));
}

}  // namespace tsdiag
