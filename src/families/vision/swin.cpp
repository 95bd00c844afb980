#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <vector>

#include "images.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/text.hpp"

/// Swin [SWIN] as HF, its authors' code and timm store it: windows of a grid, every other layer
/// with shifted ones, patches that merge between stages.
namespace tsdiag::families::swin {
namespace {

constexpr std::array hf_pairs{
    NamePair{"embed.patch", "embeddings.patch_embeddings.projection", Form::conv},
    NamePair{"embed.norm", "embeddings.norm"},
    NamePair{"layer.*.norm1", "encoder.layers.*.layernorm_before"},
    NamePair{"layer.*.attn.q", "encoder.layers.*.attention.self.query"},
    NamePair{"layer.*.attn.k", "encoder.layers.*.attention.self.key"},
    NamePair{"layer.*.attn.v", "encoder.layers.*.attention.self.value"},
    NamePair{"layer.*.attn.relative",
             "encoder.layers.*.attention.self.relative_position_bias_table"},
    NamePair{"layer.*.attn.o", "encoder.layers.*.attention.output.dense"},
    NamePair{"layer.*.norm2", "encoder.layers.*.layernorm_after"},
    NamePair{"layer.*.ffn.up", "encoder.layers.*.intermediate.dense"},
    NamePair{"layer.*.ffn.down", "encoder.layers.*.output.dense"},
    NamePair{"layer.*.merge.norm", "encoder.layers.*.downsample.norm"},
    NamePair{"layer.*.merge.map", "encoder.layers.*.downsample.reduction"},
    NamePair{"layer.*.deesc.tau", "encoder.layers.*.deesc.tau"},
    NamePair{"final_norm", "layernorm"},
};
constexpr std::array timm_pairs{
    NamePair{"embed.patch", "patch_embed.proj", Form::conv},
    NamePair{"embed.norm", "patch_embed.norm"},
    NamePair{"layer.*.norm1", "layers.*.norm1"},
    NamePair{"layer.*.attn.q", "layers.*.attn.qkv", Form::matrix, 0},
    NamePair{"layer.*.attn.k", "layers.*.attn.qkv", Form::matrix, 1},
    NamePair{"layer.*.attn.v", "layers.*.attn.qkv", Form::matrix, 2},
    NamePair{"layer.*.attn.relative", "layers.*.attn.relative_position_bias_table"},
    NamePair{"layer.*.attn.o", "layers.*.attn.proj"},
    NamePair{"layer.*.norm2", "layers.*.norm2"},
    NamePair{"layer.*.ffn.up", "layers.*.mlp.fc1"},
    NamePair{"layer.*.ffn.down", "layers.*.mlp.fc2"},
    NamePair{"layer.*.merge.norm", "layers.*.downsample.norm"},
    NamePair{"layer.*.merge.map", "layers.*.downsample.reduction"},
    NamePair{"layer.*.deesc.tau", "layers.*.deesc.tau"},
    NamePair{"final_norm", "norm"},
};
constexpr std::string_view timm_table = "layers.0.blocks.0.attn.relative_position_bias_table",
                           hf_table =
                               "encoder.layers.0.blocks.0.attention.self."
                               "relative_position_bias_table";

constexpr Index most_stages = 20;  // each doubles the width

/// What differs between the layouts.
struct Layout {
    std::string stages, patch, query, up, table, index;  ///< the last four of a block
    std::string_view anchor, norm, final_norm;
    bool hf;
};
const Layout hf{"encoder.layers.",
                "embeddings.patch_embeddings.projection.weight",
                "attention.self.query",
                "intermediate.dense.weight",
                "attention.self.relative_position_bias_table",
                "attention.self.relative_position_index",
                hf_table,
                "embeddings.norm.weight",
                "layernorm.weight",
                true};
const Layout timm{"layers.",
                  "patch_embed.proj.weight",
                  "attn.qkv",
                  "mlp.fc1.weight",
                  "attn.relative_position_bias_table",
                  "attn.relative_position_index",
                  timm_table,
                  "patch_embed.norm.weight",
                  "norm.weight",
                  false};

bool matches(const Checkpoint& file, const Json& config) {
    if (const auto declared = by_model_type(config, {"swin"})) return *declared;
    return prefix_of(file, hf_table) || prefix_of(file, timm_table);
}

/// Of layer L: its stage, and its number in it.
struct Place {
    Index stage = 0, block = 0;
};
std::vector<Place> places(const ModelSpec& spec) {
    std::vector<Place> out;
    Place at;
    for (const BlockSpec& b : spec.blocks) {
        out.push_back(at);
        at = b.merge.width > 0 ? Place{at.stage + 1, 0} : Place{at.stage, at.block + 1};
    }
    return out;
}
std::vector<Index> depths_of(const ModelSpec& spec) {
    std::vector<Index> out;
    for (const Place& p : places(spec)) {
        out.resize(std::size_t(p.stage) + 1);
        out.back() = p.block + 1;
    }
    return out;
}

/// `later`: patches merge in front of a stage, as in timm since 0.9, not behind the one before.
Names file_names(const ModelSpec& spec, std::span<const NamePair> pairs, bool later) {
    const std::vector<Place> all = places(spec);
    const auto path = [&](Index layer) {
        if (layer < 0) return std::string();
        const Place& p = all[std::size_t(layer)];
        return fmt::format("{}.blocks.{}", p.stage, p.block);
    };
    Names out = translate(spec, pairs, path);
    for (auto& [canonical, source] : out) {
        const std::size_t merge = source.file_name.find(".downsample.");
        if (merge == std::string::npos) continue;
        const std::size_t blocks = source.file_name.rfind(".blocks.", merge);
        const std::size_t stage = source.file_name.rfind('.', blocks - 1) + 1;
        const Index number = std::stoll(source.file_name.substr(stage, blocks - stage));
        source.file_name = source.file_name.substr(0, stage) +
                           std::to_string(number + (later ? 1 : 0)) +
                           source.file_name.substr(merge);
    }
    return out;
}

/// A list of the configuration, which must say what the file has.
void require_list(const Reader& r, std::string_view key, const std::vector<Index>& found) {
    const Json& said = r.value({key});
    if (said.is_null()) return;
    const auto same = [](const Json& a, Index b) { return equal(a, Json(b)); };
    if (!said.is_array() || !std::ranges::equal(said.array(), found, same))
        r.refuse(fmt::format("{} says {} = {}, but the tensors say {}", r.config_source(), key,
                             said.dump(), fmt::join(found, "-")));
}

/// The side of the windows whose table of offsets has `rows` rows.
Index side_of(const Reader& r, const std::string& table, Index rows) {
    const auto offsets = Index(std::llround(std::sqrt(double(rows))));
    if (offsets * offsets != rows || offsets % 2 == 0)
        r.refuse(fmt::format("tensor '{}{}' has {} rows, which are no square of an odd number",
                             r.prefix(), table, rows));
    constexpr Index largest = 1024;  // more patches than images have
    if (offsets > 2 * largest)
        r.refuse(fmt::format("tensor '{}{}' has {} rows, expected windows of at most {}",
                             r.prefix(), table, rows, largest));
    return (offsets + 1) / 2;
}

/// An index of another convention would read the table otherwise.
void check_index(const Checkpoint& file, const Reader& r, const std::string& name, Index side) {
    if (!r.has(name)) return;
    const RawTensor raw = file.tensor(r.prefix() + name);
    const Index places = side * side, offsets = 2 * side - 1;
    bool same = raw.count() == places * places && raw.dtype != DType::other;
    auto stored = std::vector<double>(std::size_t(same ? raw.count() : 0));
    if (same) widen(raw, std::span(stored));
    for (Index i = 0; same && i < places; ++i)
        for (Index j = 0; same && j < places; ++j)
            same =
                stored[std::size_t(i * places + j)] ==
                double((i / side - j / side + side - 1) * offsets + i % side - j % side + side - 1);
    if (!same)
        r.refuse(
            fmt::format("tensor '{}{}' is not the index of windows of {} x {} by the offsets "
                        "of rows and columns",
                        r.prefix(), name, side, side));
}

/// A window, or the grid where that is not larger.
Index fitting_side(Index side, const ModelSpec& s, Index merges) {
    const Index rows = (s.embedding.image.height / s.embedding.image.patch_height) >> merges;
    const Index cols = (s.embedding.image.width / s.embedding.image.patch_width) >> merges;
    return std::min({side, rows, cols});
}

/// Why the stages do not fit the image; empty: they do.
std::string misfit(const ModelSpec& s) {
    Index rows = s.embedding.image.height / s.embedding.image.patch_height,
          cols = s.embedding.image.width / s.embedding.image.patch_width;
    Index stage = 0;
    for (const BlockSpec& b : s.blocks) {
        const Index side = b.attention.windows.side;
        if (side < 1 || rows % side != 0 || cols % side != 0)
            return fmt::format(
                "windows of {0} x {0} do not divide the {1} x {2} patches of stage {3}", side, rows,
                cols, stage);
        if (b.merge.width == 0) continue;
        if (rows % 2 != 0 || cols % 2 != 0)
            return fmt::format("the {} x {} patches of stage {} do not merge by twos", rows, cols,
                               stage);
        rows /= 2, cols /= 2, ++stage;
    }
    return "";
}

/// Of the odd layers of a stage half a window.
void set_shifts(ModelSpec& s) {
    const std::vector<Place> all = places(s);
    for (std::size_t l = 0; l < all.size(); ++l) {
        WindowSpec& w = s.blocks[l].attention.windows;
        const Index merges = all[l].stage;
        const Index grid =
            fitting_side(std::max(s.embedding.image.height, s.embedding.image.width), s, merges);
        w.shift = all[l].block % 2 == 1 && grid > w.side ? w.side / 2 : 0;
    }
}

/// Is the grid of a layer that is shifted one window high or wide, and not both?  timm shifts along
/// the other side since its merging stands in front of a stage, the others not at all.
bool shifts_along_one_side(const ModelSpec& s) {
    const std::vector<Place> all = places(s);
    for (std::size_t l = 0; l < all.size(); ++l) {
        const Index side = s.blocks[l].attention.windows.side;
        const auto fits = [&](Index pixels, Index patch) {
            return (pixels / patch) >> all[l].stage <= side;
        };
        if (all[l].block % 2 == 1 &&
            fits(s.embedding.image.height, s.embedding.image.patch_height) !=
                fits(s.embedding.image.width, s.embedding.image.patch_width))
            return true;
    }
    return false;
}

BlockSpec read_block(Reader& r, const Layout& names, const std::string& at, Index width) {
    BlockSpec b;
    b.placement = NormPlacement::pre;
    AttentionSpec& a = b.attention;
    const std::string table = at + names.table;
    a.windows.side = side_of(r, table, r.extent(table, 0));
    a.heads = a.kv_heads = r.extent(table, 1);
    if (width % a.heads != 0)
        r.refuse(fmt::format("tensor '{}{}' has {} heads, which do not divide the width {}",
                             r.prefix(), table, a.heads, width));
    a.head_dim = width / a.heads;
    a.scale = 1 / std::sqrt(double(a.head_dim));
    b.ffn.width = r.extent(at + names.up, 0);
    return b;
}

/// The stages, with their widths, and where patches merge.
void read_stages(Reader& r, const Checkpoint& file, const Layout& names, bool later) {
    ModelSpec& s = r.spec;
    const Index stages = r.layers(names.stages);
    if (stages > most_stages)
        r.refuse(fmt::format("it has {} stages, expected at most {}", stages, most_stages));
    std::vector<Index> depths, heads, sides;
    Index width = s.width;
    const double eps = r.number({"layer_norm_eps"}, 1e-5);
    const Unary activation = r.activation({"hidden_act"}, "gelu");
    const Json& ratio = r.value({"mlp_ratio"});
    const std::string first = names.stages + "0.blocks.0.";
    const bool bias = r.part({"qkv_bias"}, first + names.query + ".bias");
    const bool learned = r.has(first + "deesc.tau");
    for (Index stage = 0; stage < stages; ++stage) {
        const std::string at = fmt::format("{}{}.", names.stages, stage);
        depths.push_back(r.layers(at + "blocks."));
        for (Index k = 0; k < depths.back(); ++k) {
            const std::string block = fmt::format("{}blocks.{}.", at, k);
            BlockSpec b = read_block(r, names, block, width);
            b.norm.eps = eps;
            b.attention.qkv_bias = bias;
            b.deesc.learned = learned;
            b.ffn.activation = activation;
            if (ratio.is_number() &&
                std::floor(ratio.number() * double(width)) != double(b.ffn.width))
                r.refuse(
                    fmt::format("{} says mlp_ratio = {}, but tensor '{}{}{}' has {} rows for "
                                "a width of {}",
                                r.config_source(), ratio.dump(), r.prefix(), block, names.up,
                                b.ffn.width, width));
            check_index(file, r, block + names.index, b.attention.windows.side);
            s.blocks.push_back(std::move(b));
        }
        heads.push_back(s.blocks.back().attention.heads);
        sides.push_back(s.blocks.back().attention.windows.side);
        if (stage + 1 == stages) break;
        const std::string map =
            fmt::format("{}{}.downsample.reduction.weight", names.stages, stage + (later ? 1 : 0));
        width = s.blocks.back().merge.width = r.extent(map, 0);
    }
    require_list(r, "depths", depths);
    require_list(r, "num_heads", heads);
    constexpr Index fewest = 2;
    read_image_size(
        r, std::max(sides.back(), fewest) * s.embedding.image.patch_height << (stages - 1));
    const Json& window = r.value({"window_size"});
    if (window.is_number())
        for (Index stage = 0; stage < stages; ++stage)
            if (const Index fits = fitting_side(window.integer(), s, stage);
                fits != sides[std::size_t(stage)])
                r.refuse(fmt::format(
                    "{} says window_size = {}, which is {} in stage {}, but its "
                    "tables are of windows of {}",
                    r.config_source(), window.dump(), fits, stage, sides[std::size_t(stage)]));
}

Architecture read(const Checkpoint& file, const DetectOptions& options) {
    Reader r(file, options, "swin");
    const Layout& names = prefix_of(file, hf_table) ? hf : timm;
    r.find_prefix(names.anchor);
    ModelSpec& s = r.spec;
    if (!names.hf) {
        check_timm_arguments(r);
        r.value({"architecture"});  // its tables of biases have the windows that it names
    }
    r.only({"use_absolute_embeddings", "ape"}, false);
    r.only({"path_norm"}, true);
    for (const std::string_view of_outputs : {"out_features", "out_indices", "stage_names"})
        r.value({of_outputs});  // of SwinBackbone: which stages it returns
    const auto [height, width] = std::pair(r.extent(names.patch, 2), r.extent(names.patch, 3));
    s.width = s.embedding.width = r.agreed({"embed_dim"}, r.extent(names.patch, 0), names.patch);
    s.embedding.image.channels =
        r.agreed({"num_channels", "in_chans"}, r.extent(names.patch, 1), names.patch);
    s.embedding.image.patch_height = r.agreed({"patch_size"}, height, names.patch);
    s.embedding.image.patch_width = width;
    s.embedding.norm = r.has(std::string(names.norm));
    const bool later = r.has(names.stages + "1.downsample.reduction.weight") &&
                       !r.has(names.stages + "0.downsample.reduction.weight");
    read_stages(r, file, names, later);
    r.agreed({"hidden_size", "num_features"}, s.last_width(), names.patch);
    r.agreed({"num_layers"}, std::ssize(depths_of(s)), names.stages + "*");
    set_shifts(s);
    if (later && shifts_along_one_side(s))
        r.refuse(
            fmt::format("images of {} x {} leave a grid as narrow as its window, in which "
                        "timm shifts along one side alone; that is not supported",
                        s.embedding.image.height, s.embedding.image.width));
    if (const std::string why = misfit(s); !why.empty())
        r.refuse(fmt::format("{}, of images of {} x {}", why, s.embedding.image.height,
                             s.embedding.image.width));
    s.embedding.max_tokens = s.embedding.image.patches();
    s.final_norm = r.has(std::string(names.final_norm));
    const std::span<const NamePair> pairs =
        names.hf ? std::span<const NamePair>(hf_pairs) : std::span<const NamePair>(timm_pairs);
    return r.finish(file_names(s, pairs, later),
                    {"head.*", "*classifier.*", "pooler.*", "embeddings.mask_token", "*decoder.*",
                     "*relative_position_index", "*.attn_mask"});
}

Names names(const ModelSpec& spec) { return file_names(spec, hf_pairs, false); }

Json config(const ModelSpec& s) {
    const BlockSpec& first = s.blocks.front();
    Json::Array depths, heads;
    for (const Index depth : depths_of(s)) depths.emplace_back(depth);
    for (std::size_t l = 0; l < s.blocks.size(); ++l)
        if (l + 1 == s.blocks.size() || s.blocks[l].merge.width > 0)
            heads.emplace_back(s.blocks[l].attention.heads);
    Json out;
    out.set("architectures", Json::Array{"SwinModel"}).set("model_type", "swin");
    out.set("embed_dim", s.width).set("hidden_size", s.last_width());
    out.set("depths", depths).set("num_heads", heads).set("num_layers", std::ssize(depths));
    out.set("window_size", first.attention.windows.side);
    out.set("mlp_ratio", double(first.ffn.width) / double(s.width));
    out.set("hidden_act", hf_activation(first.ffn.activation));
    out.set("layer_norm_eps", first.norm.eps).set("qkv_bias", first.attention.qkv_bias);
    out.set("image_size", s.embedding.image.height)
        .set("patch_size", s.embedding.image.patch_height);
    out.set("num_channels", s.embedding.image.channels).set("use_absolute_embeddings", false);
    return out.set("path_norm", true).set("initializer_range", 0.02);
}

/// The published models, [SWIN] 3.3: d and heads of the first stage, and how deep each is.
struct Published {
    std::string_view name, depths;
    Index width, heads;
};
constexpr std::array published{
    Published{"swin-tiny", "2-2-6-2", 96, 3},
    Published{"swin-small", "2-2-18-2", 96, 3},
    Published{"swin-base", "2-2-18-2", 128, 4},
    Published{"swin-large", "2-2-18-2", 192, 6},
};

std::vector<Index> read_depths(const KeyReader& k, const std::string& said) {
    std::vector<Index> out;
    for (const std::string& part : tsdiag::split(said, '-')) {
        Index depth = 0;
        const char* end = part.data() + part.size();
        const auto read = std::from_chars(part.data(), end, depth);
        if (read.ec != std::errc{} || read.ptr != end || depth < 1 || depth > 10'000)
            k.refuse(
                fmt::format("depths={} are not the numbers of layers of the stages, such as "
                            "2-2-6-2",
                            said));
        out.push_back(depth);
    }
    if (std::ssize(out) > most_stages)
        k.refuse(fmt::format("depths={} are of {} stages, expected at most {}", said, out.size(),
                             most_stages));
    return out;
}

RandomModel draw(std::string_view name, const Keys& keys) {
    KeyReader k(name, keys);
    const Published& own = *std::ranges::find(published, name, &Published::name);
    const std::vector<Index> depths =
        read_depths(k, k.text("depths").value_or(std::string(own.depths)));
    Sizes preset;
    preset.layers = 0;
    preset.d = own.width;
    preset.heads = own.heads;
    preset.ffn = 4 * own.width;
    for (const Index depth : depths) preset.layers += depth;
    const Index image = k.count("image", 224), patch = k.count("patch", 4);
    const Index channels = k.count("channels", 3), window = k.count("window", 7);
    const Sizes sizes = read_sizes(k, preset);
    const Deescalation deesc = read_deescalation(k);
    k.finish();
    if (k.has("vocab") || k.has("tokens")) k.refuse("an image model needs image= and patch=");
    if (sizes.layers != preset.layers)
        k.refuse(fmt::format("layers={} are not the {} of its stages; pass depths=2-2-6-2 alone",
                             sizes.layers, preset.layers));
    if (sizes.kv_heads != sizes.heads || sizes.head_dim * sizes.heads != sizes.d)
        k.refuse(
            "unsupported kv_heads or head_dim; the heads divide d, each with its own keys and "
            "values");
    if (image % patch != 0) k.refuse("patch does not divide image");
    BlockSpec b = block(sizes);
    b.placement = NormPlacement::pre;
    b.deesc = deesc;
    ModelSpec s = token_model("swin", sizes, b);
    s.embedding.vocabulary = 0;
    s.embedding.image.channels = channels;
    s.embedding.image.height = s.embedding.image.width = image;
    s.embedding.image.patch_height = s.embedding.image.patch_width = patch;
    s.embedding.norm = true;
    s.embedding.max_tokens = s.embedding.image.patches();
    s.final_norm = true;
    auto layer = s.blocks.begin();
    for (std::size_t stage = 0; stage < depths.size(); ++stage)
        for (Index i = 0; i < depths[stage]; ++i, ++layer) {
            layer->attention.heads = layer->attention.kv_heads = sizes.heads << stage;
            layer->ffn.width = sizes.ffn << stage;
            layer->attention.windows.side = fitting_side(window, s, Index(stage));
            const bool last = i + 1 == depths[stage];
            if (last && stage + 1 < depths.size()) layer->merge.width = sizes.d << (stage + 1);
        }
    set_shifts(s);
    if (const std::string why = misfit(s); !why.empty())
        k.refuse(fmt::format("{}; pass another image, patch or window", why));
    return drawn_normal(std::move(s),
                        "weights and relative biases N(0, 0.02^2), biases 0, norms 1 and 0");
}

}  // namespace

extern const ArchitectureEntry swin = {
    "swin",
    "Swin",
    "Swin of HF, its authors and timm: shifted windows, patches that merge between stages",
    matches,
    read,
    draw,
    [] { return names_of(published); },
    names,
    config};

}  // namespace tsdiag::families::swin
