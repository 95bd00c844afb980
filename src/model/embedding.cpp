#include "embedding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "linear.hpp"
#include "norm.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/ops.hpp"

namespace tsdiag::model {
namespace {

struct Context {
    const ModelSpec& spec;
    const Weights& weights;
    const Backend& backend;
    Type type;
    bool allow_nonfinite;

    Tensor get(const std::string& name) const { return get_or_empty(weights, name); }
    Linear linear(const std::string& stem) const { return load_linear(weights, stem); }
    Tensor norm(const Tensor& x, const std::string& stem, NormKind kind = NormKind::layer) const {
        return normed(kind, x, load_norm(weights, stem), spec.blocks.front().norm.eps);
    }
    Tensor upload(Shape shape, const std::vector<double>& values) const {
        return Tensor::from_host(backend, shape, std::span<const double>(values), type);
    }
};

/// The caller's array checked to be finite and converted to the model's type.
Tensor taken(const Context& c, const Tensor& array, const char* what) {
    const Index bad = first_nonfinite(array);
    if (bad >= 0 && !c.allow_nonfinite)
        throw NonFiniteError(
            fmt::format("the input {} are NaN or infinite at [{}, {}]; pass --allow-nonfinite to "
                        "run the model anyway",
                        what, bad / array.cols(), bad % array.cols()));
    return cast(array, c.type);
}

/// `get` of each input, stacked into a batch.
template <class Get>
Tensor taken_of_each(const Context& c, std::span<const Input> inputs, const char* what,
                     const Get& get) {
    std::vector<Tensor> parts;
    parts.reserve(inputs.size());
    for (const Input& input : inputs) parts.push_back(taken(c, get(input), what));
    return concat_batches(parts);
}

/// Rows of a table, for each of `samples` samples in turn.
Tensor table_rows(const Context& c, const char* name, const std::vector<Index>& rows,
                  Index samples) {
    const Tensor all = c.weights.rows(name, rows);
    return samples == 1 ? all : all.reshape({samples, all.rows() / samples, all.cols()});
}

std::vector<Index> kept_tokens(const Input& input, Index n) {
    std::vector<Index> out;
    if (input.keep.empty()) {
        out.resize(std::size_t(n));
        std::iota(out.begin(), out.end(), Index{0});
        return out;
    }
    if (std::ssize(input.keep) != n)
        throw UsageError(fmt::format("the mask has {} entries, but the sample has {} tokens",
                                     input.keep.size(), n));
    for (Index i = 0; i < n; ++i)
        if (input.keep[std::size_t(i)]) out.push_back(i);
    if (out.empty())
        throw UsageError(
            fmt::format("the mask hides all {} tokens of a sample; 1 keeps a token", n));
    return out;
}

/// Row indices of the position table.  RoBERTa counts the tokens that are not padding, and padding
/// keeps its own row; otherwise positions are counted from the offset on, and rows common to all
/// samples are given once.
std::vector<Index> position_rows(const ModelSpec& spec, std::span<const Input> inputs, Index n) {
    auto out = std::vector<Index>(std::size_t(n));
    std::iota(out.begin(), out.end(), spec.embedding.position_offset);
    if (spec.embedding.padding_id < 0 || inputs.front().ids.empty()) return out;
    out.clear();
    for (const Input& input : inputs) {
        Index counted = 0;
        for (const Index id : input.ids) {
            const bool token = id != spec.embedding.padding_id;
            counted += token;
            out.push_back(token ? counted + spec.embedding.padding_id : spec.embedding.padding_id);
        }
    }
    return out;
}

/// Rows of the clusters' tables, each mapped to the model's width, (1, n, d).
Tensor cluster_rows(const Context& c, std::span<const Index> ids) {
    const Clusters& clusters = c.spec.embedding.clusters;
    std::vector<Tensor> parts;
    std::vector<Index> place(ids.size());  // of each id among the parts
    Index placed = 0;
    for (std::size_t i = 0; i < clusters.ends.size(); ++i) {
        std::vector<Index> rows;
        for (std::size_t k = 0; k < ids.size(); ++k) {
            if (ids[k] < clusters.first(i) || ids[k] >= clusters.ends[i]) continue;
            rows.push_back(ids[k] - clusters.first(i));
            place[k] = placed++;
        }
        if (rows.empty()) continue;
        const std::string name = fmt::format("embed.cluster.{}", i);
        parts.push_back(linear(c.weights.rows(name, rows), c.weights.get(name + ".map"), {}));
    }
    return gather_rows(concat_rows(parts), place);
}

/// The rows of ids in clusters for samples of one length, each by products of its own: no bit
/// depends on the others.
Tensor cluster_rows(const Context& c, std::span<const Index> ids, Index samples) {
    const std::size_t length = ids.size() / std::size_t(samples);
    std::vector<Tensor> all;
    for (std::size_t s = 0; s < std::size_t(samples); ++s)
        all.push_back(cluster_rows(c, ids.subspan(s * length, length)));
    return concat_batches(all);
}

Tensor token_rows(const Context& c, std::span<const Input> inputs) {
    const ModelSpec& s = c.spec;
    if (s.embedding.vocabulary == 0)
        throw UsageError(fmt::format(
            "{} has no token embedding; pass --input gaussian or hidden:FILE.npy", s.name));
    std::vector<Index> ids;
    for (const Input& input : inputs)
        for (std::size_t i = 0; i < input.ids.size(); ++i) {
            const bool hidden = i < input.keep.size() && !input.keep[i];
            const Index id = hidden ? 0 : input.ids[i];  // omitted below: any row will do
            if (id < 0 || id >= s.embedding.vocabulary)
                throw UsageError(fmt::format(
                    "id {} at position {} is outside the vocabulary of {} (ids 0 to {})", id, i,
                    s.embedding.vocabulary, s.embedding.vocabulary - 1));
            ids.push_back(id);
        }
    const Tensor e = s.embedding.clusters.there()
                         ? cluster_rows(c, ids, std::ssize(inputs))
                         : table_rows(c, "embed.token", ids, std::ssize(inputs));
    return s.embedding.scale == 1 ? e : scale(e, s.embedding.scale);
}

/// sin and cos of position * 10000^(-2i/d) in columns 2i and 2i + 1.
Tensor sinusoidal(const Context& c, Index n) {
    const Index d = c.spec.width;
    std::vector<double> values(std::size_t(n * d));
    for (Index p = 0; p < n; ++p)
        for (Index j = 0; j < d; ++j) {
            const double power = double(j / 2 * 2) / double(d);
            const double angle = double(p) * std::pow(10000.0, -power);
            values[std::size_t(p * d + j)] = j % 2 == 0 ? std::sin(angle) : std::cos(angle);
        }
    return c.upload({1, n, d}, values);
}

/// sin of position * f_i in column i, cos in column d/2 + i.
Tensor sin_cos(const Context& c, const std::vector<Index>& positions, Index n) {
    const ModelSpec& s = c.spec;
    const bool fairseq = s.embedding.positions == Positions::fairseq;
    const Index d = s.embedding.width, half = d / 2;
    if (d % 2 != 0 || half < 2)
        throw FormatError(fmt::format(
            "sines and cosines in two halves need an even width of at least 4, not {}", d));
    std::vector<double> values;
    for (const Index p : positions)
        for (Index j = 0; j < d; ++j) {
            const auto i = double(j % half);
            const double steps = double(fairseq ? half - 1 : half);
            const double angle = double(p) * std::pow(10000.0, -i / steps);
            const double wave = j < half ? std::sin(angle) : std::cos(angle);
            values.push_back(fairseq && p == s.embedding.padding_id ? 0 : wave);
        }
    const Tensor out = c.upload({std::ssize(positions) / n, n, d}, values);
    return fairseq ? out : multiply(out, c.get("embed.position_scale"));
}

Tensor embed_tokens(const Context& c, std::span<const Input> inputs, Index n) {
    const ModelSpec& s = c.spec;
    const bool ids = !inputs.front().ids.empty();
    if (s.embedding.positions == Positions::learned && n > s.embedding.max_tokens)
        throw UsageError(
            fmt::format("the sample has {} tokens, but the model's position table ends at {}; pass "
                        "--tokens {} or less",
                        n, s.embedding.max_tokens, s.embedding.max_tokens));
    Tensor x = ids ? token_rows(c, inputs)
                   : taken_of_each(c, inputs, "embeddings",
                                   [](const Input& input) { return input.embeddings; });
    if (s.embedding.positions == Positions::learned) {
        const std::vector<Index> rows = position_rows(s, inputs, n);
        x = add(x, table_rows(c, "embed.position", rows, std::ssize(rows) / n));
    }
    if (s.embedding.positions == Positions::sin_cos || s.embedding.positions == Positions::fairseq)
        x = add(x, sin_cos(c, position_rows(s, inputs, n), n));
    constexpr Index first = 0;
    if (s.embedding.token_types) x = add(x, c.weights.rows("embed.type", std::span(&first, 1)));
    if (s.embedding.task_rows > 0) x = add(x, c.weights.rows("embed.task", std::span(&first, 1)));
    if (s.embedding.norm) x = c.norm(x, "embed.norm", s.embedding.norm_kind);
    if (s.embedding.map) x = c.linear("embed.map")(x);
    if (s.embedding.positions == Positions::sinusoidal) x = add(x, sinusoidal(c, n));
    return x;
}

/// Patches in row-major order, each flattened as the family does: (c, y, x) or (y, x, c).
Tensor patches(const Context& c, const Tensor& image) {
    const ModelSpec& s = c.spec;
    const Index ph = s.embedding.image.patch_height, pw = s.embedding.image.patch_width,
                channels = s.embedding.image.channels;
    const Index rows = image.rows() / ph, cols = image.cols() / pw;
    const std::vector<double> pixels = image.to_host<double>();
    std::vector<double> out;
    out.reserve(std::size_t(rows * cols * ph * pw * channels));
    const auto pixel = [&](Index channel, Index y, Index x) {
        return pixels[std::size_t((channel * image.rows() + y) * image.cols() + x)];
    };
    const Index count = ph * pw * channels;
    for (Index r = 0; r < rows; ++r)
        for (Index q = 0; q < cols; ++q)
            for (Index i = 0; i < count; ++i) {
                const bool last = s.embedding.image.channels_last;
                const Index channel = last ? i % channels : i / (ph * pw);
                const Index at = last ? i / channels : i % (ph * pw);
                out.push_back(pixel(channel, r * ph + at / pw, q * pw + at % pw));
            }
    return c.upload({1, rows * cols, count}, out);
}

/// [XCIT]: the pixels, one token each, through convolutions that halve the grid.
Tensor convolved(const Context& c, const Tensor& image) {
    const ModelSpec& s = c.spec;
    Grid grid{image.rows(), image.cols()};
    Tensor x = transpose(image.reshape({1, image.batch(), grid.count()}));
    for (Index k = 0; k < s.embedding.image.convolutions; ++k) {
        const std::string at = fmt::format("embed.patch.{}", k);
        if (k > 0) x = map(Unary::gelu, x);
        x = convolve_by_two(x, c.weights.get(at + ".weight"), grid);
        x = batch_norm(x, load_batch_norm(c.weights, at + ".norm"), s.embedding.image.norm_eps);
        grid = halved(grid);
    }
    return x;
}

/// [XCIT]: of row and column, counted from 1 as a share of the grid's times 2 pi, sines and cosines
/// in alternate columns, 16 frequencies each; rows first.
Tensor fourier(const Context& c, const Grid& grid) {
    constexpr Index columns = 32;  // of a coordinate
    constexpr double eps = 1e-6;
    std::vector<double> values;
    const auto put = [&](Index at, Index count) {
        const double part = double(at + 1) / (double(count) + eps) * 2 * std::numbers::pi;
        for (Index j = 0; j < columns; ++j) {
            const double power = double(j / 2 * 2) / double(columns);
            const double angle = part * std::pow(10000.0, -power);
            values.push_back(j % 2 == 0 ? std::sin(angle) : std::cos(angle));
        }
    };
    for (Index y = 0; y < grid.rows; ++y)
        for (Index x = 0; x < grid.cols; ++x) {
            put(y, grid.rows);
            put(x, grid.cols);
        }
    return c.linear("embed.position_map")(c.upload({1, grid.count(), 2 * columns}, values));
}

/// SimpleViT: [sin x, cos x, sin y, cos y] of the patch's column x and row y, a quarter of the
/// width each.
Tensor sincos_2d(const Context& c, Index rows, Index cols) {
    const Index d = c.spec.width, quarter = d / 4;
    if (d % 4 != 0 || quarter < 2)
        throw FormatError(fmt::format(
            "two-dimensional positions need a multiple of 4 of at least 8 as width, not {}", d));
    std::vector<double> values;
    values.reserve(std::size_t(rows * cols * d));
    for (Index y = 0; y < rows; ++y)
        for (Index x = 0; x < cols; ++x)
            for (Index j = 0; j < d; ++j) {
                const Index part = j / quarter, i = j % quarter;
                const double frequency = std::pow(10000.0, -double(i) / double(quarter - 1));
                const double angle = double(part < 2 ? x : y) * frequency;
                values.push_back(part % 2 == 0 ? std::sin(angle) : std::cos(angle));
            }
    return c.upload({1, rows * cols, d}, values);
}

void require_image(const ModelSpec& s, const Tensor& image) {
    if (s.embedding.image.channels == 0)
        throw UsageError(fmt::format("{} takes tokens, not images", s.name));
    const bool fixed = s.embedding.positions == Positions::learned;
    const bool fits =
        image.batch() == s.embedding.image.channels &&
        (fixed
             ? image.rows() == s.embedding.image.height && image.cols() == s.embedding.image.width
             : image.rows() % s.embedding.image.patch_height == 0 &&
                   image.cols() % s.embedding.image.patch_width == 0 && image.shape().count() > 0);
    if (!fits)
        throw UsageError(fmt::format(
            "the image is ({}, {}, {}), expected ({}, {}, {}): channels, height, width{}",
            image.batch(), image.rows(), image.cols(), s.embedding.image.channels,
            s.embedding.image.height, s.embedding.image.width,
            fixed ? "" : ", or another multiple of the patch"));
}

Grid patch_grid(const ModelSpec& s, const Tensor& image) {
    return {image.rows() / s.embedding.image.patch_height,
            image.cols() / s.embedding.image.patch_width};
}

/// The grid of `n` hidden tokens: that of the model's images where they fit, else a square.
Grid grid_of_tokens(const ModelSpec& s, Index n) {
    if (n == s.embedding.image.patches())
        return {s.embedding.image.height / s.embedding.image.patch_height,
                s.embedding.image.width / s.embedding.image.patch_width};
    const auto side = Index(std::llround(std::sqrt(double(n))));
    if (side * side != n)
        throw UsageError(
            fmt::format("{} hidden states are neither the {} patches of an image nor a square, but "
                        "the layers of this model mix neighbours on a grid",
                        n, s.embedding.image.patches()));
    return {side, side};
}

bool needs_grid(const ModelSpec& s) {
    return std::ranges::any_of(s.blocks, [](const BlockSpec& b) {
        return b.local.kernel > 0 || b.attention.windows.side > 0 || b.merge.width > 0;
    });
}

Tensor embed_images(const Context& c, std::span<const Input> inputs) {
    const ModelSpec& s = c.spec;
    std::vector<Tensor> parts;
    for (const Input& input : inputs) {
        require_image(s, input.image);
        const Tensor pixels = taken(c, input.image, "pixels");
        parts.push_back(s.embedding.image.convolutions > 0 ? convolved(c, pixels)
                                                           : patches(c, pixels));
    }
    const Grid grid = patch_grid(s, inputs.front().image);
    Tensor x = concat_batches(parts);
    if (s.embedding.image.norms) x = c.norm(x, "embed.patch.norm1");
    if (s.embedding.image.convolutions == 0) x = c.linear("embed.patch")(x);
    if (s.embedding.image.norms) x = c.norm(x, "embed.patch.norm2");
    if (s.embedding.norm)
        x = normed(s.embedding.norm_kind, x, load_norm(c.weights, "embed.norm"),
                   s.embedding.image.norm_eps);
    Tensor prefix, position;
    if (s.embedding.prefix_tokens > 0) prefix = repeat_batches(c.get("embed.prefix"), x.batch());
    if (s.embedding.positions == Positions::learned) position = c.get("embed.position");
    if (s.embedding.positions == Positions::sincos_2d)
        position = sincos_2d(c, grid.rows, grid.cols);
    if (s.embedding.positions == Positions::fourier) position = fourier(c, grid);
    if (position.defined() && !s.embedding.prefix_has_position) x = add(x, position);
    if (prefix.defined()) x = concat_rows({prefix, x});
    if (position.defined() && s.embedding.prefix_has_position) x = add(x, position);
    return x;
}

/// Tokens of the sample, from whichever input was given.
Index token_count(const ModelSpec& s, const Input& input) {
    const int given = int(!input.ids.empty()) + int(input.embeddings.defined()) +
                      int(input.hidden.defined()) + int(input.image.defined());
    if (given != 1)
        throw UsageError(
            "a sample needs exactly one of ids, embeddings, hidden states and an image");
    if (!input.ids.empty()) return std::ssize(input.ids);
    const bool inner = input.hidden.defined();
    if (!inner && !input.embeddings.defined()) return 0;
    const Tensor& array = inner ? input.hidden : input.embeddings;
    const Index width = inner ? s.width : s.embedding.width;
    if (!inner && s.embedding.image.channels > 0)
        throw UsageError(fmt::format("{} takes images, not token embeddings", s.name));
    if (array.batch() != 1 || array.cols() != width || array.rows() < 1)
        throw UsageError(fmt::format("the {} are ({}, {}), expected (n, {})",
                                     inner ? "hidden states" : "embeddings", array.rows(),
                                     array.cols(), width));
    return array.rows();
}

/// The first tokens as a memory without gradient.
void split_memory(Batch& batch, Index memory, bool masked) {
    if (masked)
        throw UsageError(
            fmt::format("a mask cannot be combined with a memory (the first {} tokens of a "
                        "sample); omit one of them",
                        memory));
    if (batch.length <= memory)
        throw UsageError(
            fmt::format("the sample has {} tokens, of which the first {} are its memory; expected "
                        "at least {} tokens",
                        batch.length, memory, memory + 1));
    batch.memory = contiguous(batch.x.row_range(0, memory)).detached();
    batch.x = contiguous(batch.x.row_range(memory, batch.length - memory));
}

}  // namespace

Index batchable(std::span<const Input> inputs, Index most) {
    const auto shape = [](const Tensor& x) { return x.defined() ? x.shape() : Shape{}; };
    const Input& first = inputs.front();
    const auto other = std::ranges::find_if(inputs, [&](const Input& input) {
        return input.ids.size() != first.ids.size() || input.keep != first.keep ||
               shape(input.embeddings) != shape(first.embeddings) ||
               shape(input.hidden) != shape(first.hidden) ||
               shape(input.image) != shape(first.image);
    });
    return std::clamp<Index>(other - inputs.begin(), 1, std::max<Index>(most, 1));
}

Batch embed(const ModelSpec& spec, const Weights& weights, std::span<const Input> inputs,
            const Backend& backend, Type type, bool allow_nonfinite) {
    const Context c{spec, weights, backend, type, allow_nonfinite};
    const Input& first = inputs.front();
    Index n = 0;
    for (const Input& input : inputs) n = token_count(spec, input);
    Batch out;
    if (first.hidden.defined()) {
        out.x = taken_of_each(c, inputs, "hidden states",
                              [](const Input& input) { return input.hidden; });
    } else {
        out.embedded = true;
        out.x = first.image.defined() ? embed_images(c, inputs) : embed_tokens(c, inputs, n);
        if (spec.embedding.norm_before_layers)
            out.x = c.norm(out.x, "embed.pre_norm", spec.blocks.front().norm.kind);
    }
    out.length = out.x.rows();
    const std::vector<Index> kept = kept_tokens(first, out.length);
    if (needs_grid(spec)) {
        if (std::ssize(kept) < out.length)
            throw UsageError(
                fmt::format("the mask hides {} of {} tokens, but the layers of {} mix neighbours "
                            "on a grid; omit the mask",
                            out.length - std::ssize(kept), out.length, spec.name));
        out.grid = first.image.defined() ? patch_grid(spec, first.image)
                                         : grid_of_tokens(spec, out.length);
    }
    if (std::ssize(kept) < out.length) out.x = rows_of_each(out.x, kept);
    out.position.assign(kept.begin(), kept.end());
    if (spec.memory_tokens > 0) split_memory(out, spec.memory_tokens, !first.keep.empty());
    return out;
}

}  // namespace tsdiag::model
