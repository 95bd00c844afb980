#include "draw.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "learned.hpp"
#include "reader.hpp"
#include "tsdiag/attention.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/text.hpp"

namespace tsdiag::families {

void KeyReader::refuse(const std::string& what) const {
    throw UsageError(fmt::format("random:{}: {}", name_, what));
}

bool KeyReader::has(std::string_view key) const {
    for (const auto& [known, value] : keys_)
        if (known == key) return true;
    return false;
}

std::optional<std::string> KeyReader::text(std::string_view key) {
    asked_.emplace(key);
    for (const auto& [known, value] : keys_)
        if (known == key) return value;
    return std::nullopt;
}

namespace {
template <class T>
std::optional<T> parsed(const std::string& text) {
    T out{};
    const char* last = text.data() + text.size();
    const auto [end, error] = std::from_chars(text.data(), last, out);
    if (error != std::errc{} || end != last) return std::nullopt;
    return out;
}
}  // namespace

Index KeyReader::count(std::string_view key, Index fallback, Index most) {
    const auto said = text(key);
    if (!said) return fallback;
    const auto value = parsed<Index>(*said);
    if (!value || *value < 1 || *value > most)
        refuse(fmt::format("{}={} must be a whole number from 1 to {}", key, *said, most));
    return *value;
}

double KeyReader::number(std::string_view key, double fallback) {
    const auto said = text(key);
    if (!said) return fallback;
    const auto value = parsed<double>(*said);
    if (!value || !std::isfinite(*value)) refuse(fmt::format("{}={} must be a number", key, *said));
    return *value;
}

bool KeyReader::flag(std::string_view key, bool fallback) {
    const auto said = text(key);
    if (!said) return fallback;
    if (*said != "0" && *said != "1") refuse(fmt::format("{}={} must be 0 or 1", key, *said));
    return *said == "1";
}

void KeyReader::finish() const {
    for (const auto& [key, value] : keys_) {
        if (asked_.contains(key)) continue;
        const std::string near = nearest(key, asked_);
        std::string all;
        for (const std::string& known : asked_) all += (all.empty() ? "" : ", ") + known;
        refuse(fmt::format("unknown key '{}'{}; it has {}", key,
                           near.empty() ? "" : fmt::format(" (did you mean '{}'?)", near), all));
    }
}

namespace {

Unary read_activation(KeyReader& keys, Unary fallback) {
    const auto said = keys.text("act");
    if (!said) return fallback;
    if (const auto op = activation_named(*said)) return *op;
    keys.refuse(fmt::format(
        "unknown act={}; expected gelu, gelu_new, quick_gelu, relu, silu, tanh, sigmoid or linear",
        *said));
}

/// Each layer's attention; the keys' options go to the attentions that have them.
void read_attentions(KeyReader& keys, Sizes& s) {
    s.attention = keys.text("attention").value_or(s.attention);
    s.attentions = layer_attentions(s.attention, s.layers);
    const auto said = keys.text("output_norm");
    std::map<std::string, bool> reached;
    const auto complete = [&](LayerAttention& layer) {
        const AttentionEntry& entry = attention(layer.variant);
        for (const AttentionOption& option : entry.options) {
            if (keys.kept(option.name)) continue;
            if (const auto value = keys.text(option.name))
                reached[std::string(option.name)] |=
                    layer.options.emplace(option.name, *value).second;
        }
        layer.options.insert(layer.preset.begin(), layer.preset.end());
        check_options(entry, layer.options);
        if (said) layer.output_norm = output_norm_named(*said);
        if (s.causal && !entry.facts.causal())
            keys.refuse(fmt::format("attention={} cannot be causal", layer.variant));
    };
    for (LayerAttention& layer : s.attentions) {
        complete(layer);
        for (LayerAttention& other : layer.second) complete(other);
    }
    for (const auto& [option, some] : reached)
        if (!some)
            keys.refuse(
                fmt::format("{} has no effect, because every layer sets it after a colon", option));
}

void set_attention(const LayerAttention& from, AttentionSpec& to) {
    to.variant = from.variant;
    to.options = from.options;
    to.output_norm = from.output_norm;
    for (const LayerAttention& other : from.second)
        to.second = {other.variant, other.options, other.output_norm};
}

void require_fitting(const KeyReader& keys, const Sizes& s) {
    if (s.head_dim * s.heads != s.d && !keys.has("head_dim") && s.d % s.heads != 0)
        keys.refuse(fmt::format("heads={} does not divide d={}", s.heads, s.d));
    if (s.heads % s.kv_heads != 0)
        keys.refuse(fmt::format("kv_heads={} does not divide heads={}", s.kv_heads, s.heads));
    if (!(s.eps >= 0)) keys.refuse(fmt::format("eps={} must not be negative", s.eps));
}

}  // namespace

Sizes sizes_of(std::string_view name, std::span<const NamedSizes> named, Sizes rest) {
    for (const NamedSizes& s : named) {
        if (s.name != name) continue;
        rest.layers = s.layers;
        rest.d = s.d;
        rest.heads = s.heads;
        rest.ffn = 4 * s.d;
    }
    return rest;
}

Sizes read_sizes(KeyReader& keys, Sizes preset) {
    constexpr Index deepest = 10'000;  // ten times the deepest that was published
    Sizes s = preset;
    s.layers = keys.count("layers", preset.layers, deepest);
    s.d = keys.count("d", preset.d);
    s.heads = keys.count("heads", preset.heads);
    const Index kv = preset.kv_heads > 0 ? preset.kv_heads : preset.heads;
    const bool grouped = kv < preset.heads && s.heads % (preset.heads / kv) == 0;
    s.kv_heads = keys.count("kv_heads", grouped ? s.heads / (preset.heads / kv) : s.heads);
    const bool own_columns = preset.head_dim > 0 && !keys.has("d") && !keys.has("heads");
    if (!keys.has("head_dim") && !own_columns && s.d % s.heads != 0)
        keys.refuse(
            fmt::format("heads={} does not divide d={}; pass a divisor as heads=N", s.heads, s.d));
    s.head_dim = keys.count("head_dim", own_columns ? preset.head_dim : s.d / s.heads);
    const double ratio = double(preset.ffn) / double(preset.d);
    const auto scaled = Index(std::llround(ratio * double(s.d)));
    s.ffn = keys.count("ffn", std::max<Index>(scaled, 1));
    s.tokens = keys.count("tokens", preset.tokens);
    s.vocab = keys.count("vocab", preset.vocab);
    s.eps = keys.number("eps", preset.eps);
    s.act = read_activation(keys, preset.act);
    s.causal = keys.flag("causal", preset.causal);
    read_attentions(keys, s);
    if (const auto steps = keys.text("step")) s.steps = steps_named(*steps);
    require_fitting(keys, s);
    return s;
}

bool deescalates_before_ffn(std::string_view place) {
    if (place != "end" && place != "ffn")
        throw UsageError(fmt::format("unknown deesc_at={}; expected end or ffn", place));
    return place == "ffn";
}

bool deescalates_by_the_past(std::string_view mean) {
    if (mean != "all" && mean != "past")
        throw UsageError(fmt::format("unknown deesc_mean={}; expected all or past", mean));
    return mean == "past";
}

void require_place_to_deescalate(const ModelSpec& spec) {
    for (const BlockSpec& b : spec.blocks)
        if (b.deesc.there() && b.deesc.before_ffn &&
            (b.placement == NormPlacement::parallel || b.ffn.width == 0))
            throw UsageError(
                "deesc_at=ffn: a layer has no feed-forward step after its attention; pass "
                "deesc_at=end");
}

namespace {

bool learns_a_matrix(const std::string& variant, const AttentionOptions& options) {
    const AttentionEntry& entry = attention(variant);
    constexpr Index any = Index{1} << 20;
    return entry.learned &&
           std::ranges::any_of(entry.learned(options, {.tokens = any, .longest = any}),
                               [](const LearnedParameter& p) { return p.matrix; });
}

/// What an attention learns of all heads of a layer cannot be that of half of them.
void refuse_matrices_side_by_side(const AttentionSpec& a) {
    for (const auto& [variant, options] :
         {std::pair(a.variant, a.options), std::pair(a.second->variant, a.second->options)})
        if (learns_a_matrix(variant, options))
            throw UsageError(
                fmt::format("attention={}+{}: {} learns a matrix of all heads of a layer; put them "
                            "in layers of their own",
                            a.variant, a.second->variant, variant));
}

}  // namespace

void require_fitting_steps(const ModelSpec& spec) {
    for (const BlockSpec& b : spec.blocks) {
        if (b.attention.second) refuse_matrices_side_by_side(b.attention);
        const AttentionSpec& a = b.attention;
        if (b.local.kernel > 0 && b.placement != NormPlacement::pre)
            throw UsageError(fmt::format("placement={}: the layers of {} are pre-norm",
                                         name(b.placement), spec.family));
        const auto alibi = a.options.find("alibi");
        const bool ordered =
            a.causal || a.window > 0 || (alibi != a.options.end() && alibi->second != "0");
        if (a.second && (a.windows.side > 0 || a.channels || a.gated_unit || b.shares >= 0))
            throw UsageError(
                fmt::format("attention={}+{}: {} takes one attention a layer, not two side by side",
                            a.variant, a.second->variant, spec.family));
        if (a.windows.side > 0 && !attention(a.variant).facts.windows)
            throw UsageError(fmt::format(
                "attention={} does not support windows of a grid; {} supports softmax or "
                "polynomial",
                a.variant, spec.family));
        if (a.windows.side > 0 && ordered)
            throw UsageError(fmt::format(
                "{} attends in windows of a grid; omit causal, window and alibi", spec.family));
        if (!a.channels) continue;
        if (!attention(a.variant).facts.channels)
            throw UsageError(fmt::format(
                "attention={} does not support channels; {} supports softmax or polynomial",
                a.variant, spec.family));
        if (ordered)
            throw UsageError(fmt::format(
                "{} attends over channels, which have no order; omit causal, window and alibi",
                spec.family));
        if (a.output_norm != OutputNorm::none)
            throw UsageError(fmt::format("{} has no output norm", spec.family));
    }
}

Deescalation read_deescalation(KeyReader& keys) {
    Deescalation out;
    out.tau = keys.number("deesc", 0);
    out.before_ffn = deescalates_before_ffn(keys.text("deesc_at").value_or("end"));
    out.learned = keys.flag("deesc_learned", false);
    out.past = deescalates_by_the_past(keys.text("deesc_mean").value_or("all"));
    if (!keys.has("deesc") && (out.before_ffn || out.learned || out.past))
        keys.refuse("deesc_at, deesc_learned and deesc_mean need deesc=TAU");
    return out;
}

BlockSpec block(const Sizes& s) {
    BlockSpec b;
    AttentionSpec& a = b.attention;
    b.norm.eps = s.eps;
    a.heads = s.heads;
    a.kv_heads = s.kv_heads;
    a.head_dim = s.head_dim;
    b.ffn.width = s.ffn;
    b.ffn.activation = s.act;
    set_attention(s.attentions.front(), a);
    a.scale = 1 / std::sqrt(double(s.head_dim));
    a.causal = s.causal;
    b.steps = s.steps;
    return b;
}

ModelSpec token_model(std::string_view family, const Sizes& s, const BlockSpec& block) {
    ModelSpec spec;
    spec.family = family;
    spec.width = spec.embedding.width = s.d;
    spec.embedding.vocabulary = s.vocab;
    spec.embedding.max_tokens = s.tokens;
    spec.blocks.assign(std::size_t(s.layers), block);
    for (std::size_t l = 0; l < spec.blocks.size(); ++l) {
        AttentionSpec& a = spec.blocks[l].attention;
        a.second.reset();
        set_attention(s.attentions[l], a);
        const Index sides = a.second ? 2 : 1;
        a.heads = sides * s.heads;
        a.kv_heads = sides * s.kv_heads;
    }
    return spec;
}

Draw normal_law(const Parameter& p, double deviation, Index padding) {
    if (p.vector) {
        const bool one = !p.name.ends_with(".bias");  // weights of norms and layer scales
        return {one ? Draw::Law::one : Draw::Law::zero, 0, -1};
    }
    return {Draw::Law::normal, deviation, p.name == "embed.token" ? padding : -1};
}

namespace {

/// Adds what attentions learn to the parameters; the law of each by its name.
std::map<std::string, Draw> add_learned(ModelSpec& spec) {
    std::map<std::string, Draw> laws;
    for (std::size_t l = 0; l < spec.blocks.size(); ++l)
        for (const LearnedParameter& learned : learned_by(spec, Index(l), true)) {
            const std::string name(learned.name);
            auto& own = spec.blocks[l].attention.own;
            if (std::ranges::find(own, name, &Parameter::name) != own.end()) continue;
            own.push_back({name, learned.shape, !learned.matrix});
            const Draw::Law law = !learned.matrix                       ? Draw::Law::constant
                                  : learned.law == tsdiag::Law::uniform ? Draw::Law::uniform
                                                                        : Draw::Law::normal;
            laws.emplace(fmt::format("layer.{}.attn.{}", l, name),
                         Draw{law, learned.matrix ? learned.spread : learned.start, -1});
        }
    return laws;
}

/// ", learned attention scale 0.25", each name once.
std::string laws_in_words(const std::map<std::string, Draw>& laws) {
    std::string out;
    std::set<std::string> said;
    for (const auto& [name, draw] : laws) {
        const std::string own = name.substr(name.rfind('.') + 1);
        if (!said.insert(own).second) continue;
        const std::string law = draw.law == Draw::Law::constant ? fmt::format("{:.6g}", draw.spread)
                                : draw.law == Draw::Law::uniform
                                    ? fmt::format("U(-{0:.6g}, {0:.6g})", draw.spread)
                                    : fmt::format("N(0, {:.6g}^2)", draw.spread);
        out += fmt::format(", learned attention {} {}", own, law);
    }
    return out;
}

}  // namespace

RandomModel drawn(ModelSpec spec, const Law& law, std::string_view how) {
    require_place_to_deescalate(spec);
    require_fitting_steps(spec);
    for (const BlockSpec& b : spec.blocks) check_steps(b);
    RandomModel out;
    const Deescalation deesc = spec.blocks.front().deesc;
    for (BlockSpec& b : spec.blocks)
        if (attention(b.attention.variant).unscaled) b.attention.scale = 1;
    std::map<std::string, Draw> laws = add_learned(spec);
    std::string also = laws_in_words(laws);
    if (deesc.learned) also += fmt::format(", tau of de-escalation {:.6g}", deesc.tau);
    for (Parameter& p : parameters(spec)) {
        const auto own = laws.find(p.name);
        const Draw draw = own != laws.end() ? own->second
                          : p.start         ? Draw{Draw::Law::constant, *p.start}
                                            : law(p);
        out.tensors.push_back({std::move(p.name), p.shape, draw});
    }
    spec.provenance.trained = false;
    spec.name = describe(spec);
    spec.provenance.recognised = rules(spec);
    spec.provenance.defaults.push_back(fmt::format("initialisation: {}{}", how, also));
    out.spec = std::move(spec);
    return out;
}

RandomModel drawn_normal(ModelSpec spec, std::string_view how) {
    return drawn(
        std::move(spec), [](const Parameter& p) { return normal_law(p, 0.02); }, how);
}

}  // namespace tsdiag::families
