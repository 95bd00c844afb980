#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "names.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/table.hpp"
#include "tsdiag/weights.hpp"

/// A model as a directory of HF: config.json and model.safetensors.
namespace tsdiag {
namespace {

using families::whole_shape;

/// A canonical parameter and where its rows go; `row` >= 0: that row alone (stacked prefix tokens).
struct Piece {
    Parameter parameter;
    TensorSource source;
    Index row = -1;
};
/// One tensor of the file.
struct FileTensor {
    std::string name;
    std::vector<Index> shape;
    std::vector<Piece> pieces;
    Index count() const {
        Index out = 1;
        for (const Index extent : shape) out *= extent;
        return out;
    }
};

/// The tensors of the file in the order of their use.
std::vector<FileTensor> file_tensors(const ModelSpec& spec, const Names& names) {
    std::map<std::string, Parameter> known;
    for (Parameter& p : parameters(spec)) known.emplace(p.name, p);
    std::vector<FileTensor> out;
    std::map<std::string, std::size_t> index;
    const auto add = [&](const std::string& name, std::vector<Index> shape, Piece piece) {
        const auto [at, fresh] = index.emplace(name, out.size());
        if (fresh) out.push_back({name, std::move(shape), {}});
        out[at->second].pieces.push_back(std::move(piece));
    };
    for (const auto& [canonical, source] : names) {
        const Parameter& p = known.at(canonical);
        if (source.concat.empty()) {
            add(source.file_name, whole_shape(spec, p, source), {p, source});
            continue;
        }
        check(std::ssize(source.concat) + 1 == p.shape.rows, "one tensor a stacked row");
        add(source.file_name, {1, 1, p.shape.cols}, {p, source, 0});
        for (Index r = 1; r < p.shape.rows; ++r)
            add(source.concat[std::size_t(r - 1)], {1, 1, p.shape.cols}, {p, source, r});
    }
    return out;
}

/// Copies a canonical tensor's rows to their place in the file: the inverse of reading.
void place(const Piece& piece, const std::vector<float>& from, std::vector<float>& to) {
    const Parameter& p = piece.parameter;
    const TensorSource& s = piece.source;
    const Index out = p.vector ? p.shape.cols : p.shape.rows;
    const Index cols = p.vector ? 1 : p.shape.cols;
    if (piece.row >= 0) {
        const auto first = from.begin() + std::ptrdiff_t(piece.row * cols);
        std::copy(first, first + std::ptrdiff_t(cols), to.begin());
        return;
    }
    const Index total = s.total > 0 ? s.total : out;
    const Index before = std::max<Index>(s.slice, 0) * total * cols;  // of a stack
    for (Index r = 0; r < out; ++r) {
        const Index row = s.length > 0 ? r / s.length * s.stride + s.first + r % s.length : r;
        for (Index c = 0; c < cols; ++c) {
            const Index at = before + (s.transposed ? c * total + row : row * cols + c);
            to[std::size_t(at)] = from[std::size_t(r * cols + c)] - float(s.plus);
        }
    }
}

std::vector<float> assembled(const FileTensor& tensor, const Weights& weights) {
    std::vector<float> out(std::size_t(tensor.count()));
    for (const Piece& piece : tensor.pieces)
        place(piece, weights.get(piece.parameter.name).to_host<float>(), out);
    weights.release();
    return out;
}

/// Bounds of the shards: none exceeds `limit` bytes unless one tensor does.
std::vector<std::span<const FileTensor>> shards(std::span<const FileTensor> tensors, Index limit) {
    std::vector<std::span<const FileTensor>> out;
    std::size_t first = 0;
    Index bytes = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        const Index more = 4 * tensors[i].count();
        if (i > first && bytes + more > limit) {
            out.push_back(tensors.subspan(first, i - first));
            first = i;
            bytes = 0;
        }
        bytes += more;
    }
    out.push_back(tensors.subspan(first));
    return out;
}

void write_tensors(std::span<const FileTensor> tensors, const Weights& weights,
                   const std::filesystem::path& file) {
    std::vector<std::vector<float>> values;
    std::vector<NamedArray> arrays;
    for (const FileTensor& t : tensors) {
        values.push_back(assembled(t, weights));
        arrays.push_back({t.name, t.shape, values.back(), {}});
    }
    write_safetensors(file, arrays, Json(Json::Object{{"format", "pt"}}));
}

/// model.safetensors, or numbered shards and their index.
void write_weights(const ModelSpec& spec, const Names& names, const Weights& weights,
                   const std::filesystem::path& directory, Index shard_bytes) {
    const std::vector<FileTensor> tensors = file_tensors(spec, names);
    const auto parts = shards(tensors, shard_bytes);
    if (parts.size() == 1) return write_tensors(tensors, weights, directory / "model.safetensors");
    Json::Object where;
    Index bytes = 0;
    for (std::size_t k = 0; k < parts.size(); ++k) {
        const std::string name =
            fmt::format("model-{:05}-of-{:05}.safetensors", k + 1, parts.size());
        write_tensors(parts[k], weights, directory / name);
        for (const FileTensor& t : parts[k]) {
            where.emplace_back(t.name, name);
            bytes += 4 * t.count();
        }
    }
    Json index;
    index.set("metadata", Json(Json::Object{{"total_size", bytes}}));
    index.set("weight_map", std::move(where));
    write_atomically(directory / "model.safetensors.index.json", index.dump(2) + "\n");
}

/// Settings of a layer that no key of a family expresses.
Json attention_json(const BlockSpec& b) {
    const AttentionSpec& a = b.attention;
    Json out, options;
    for (const auto& [key, value] : a.options) options.set(key, value);
    out.set("attention", a.variant).set("causal", a.causal).set("window", a.window);
    if (!options.is_null()) out.set("attention_options", std::move(options));
    out.set("placement", tsdiag::name(b.placement));
    if (b.deesc.there()) out.set("deesc", b.deesc.tau);
    if (b.deesc.before_ffn) out.set("deesc_at", "ffn");
    if (b.deesc.past) out.set("deesc_mean", "past");
    if (!b.steps.empty()) out.set("steps", steps_text(b));
    return out.set("output_norm", tsdiag::name(a.output_norm));
}

}  // namespace

void write_model(const ModelSpec& spec, const Weights& weights,
                 const std::filesystem::path& directory, Index shard_bytes) {
    for (const ArchitectureEntry* entry : architectures()) {
        if (entry->name != spec.family || entry->names == nullptr) continue;
        if (std::ranges::any_of(spec.blocks,
                                [](const BlockSpec& b) { return b.attention.second.has_value(); }))
            throw NotAvailable(
                "a model with two attentions side by side in a layer cannot be written, because no "
                "layout of a file has them");
        // Settings that no key of the family expresses, for `detect`.
        Json own = attention_json(spec.blocks.front());
        const auto& all = spec.blocks;
        const auto same = [&](const BlockSpec& b) {
            return attention_json(b).dump() == own.dump();
        };
        if (!std::all_of(all.begin(), all.end(), same)) {
            Json::Array layers;
            for (const BlockSpec& b : all) layers.push_back(attention_json(b));
            own = Json();
            own.set("layers", layers);
        }
        if (spec.memory_tokens > 0) own.set("memory_tokens", spec.memory_tokens);
        if (spec.provenance.draws &&
            spec.draws_at_random())  // a seed may exceed the integers of JSON
            own.set("draws", Json()
                                 .set("seed", fmt::format("{}", spec.provenance.draws->seed))
                                 .set("updates", spec.provenance.draws->updates));
        Json config = entry->config(spec);
        config.set("torch_dtype", "float32").set("tsdiag", std::move(own));
        write_weights(spec, entry->names(spec), weights, directory, shard_bytes);
        write_atomically(directory / "config.json", config.dump(2) + "\n");
        return;
    }
    throw NotAvailable(fmt::format(
        "a model of family '{}' cannot be written, because it has no tensor names of its own",
        spec.family));
}

}  // namespace tsdiag
