#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "draw.hpp"
#include "head.hpp"
#include "learned.hpp"
#include "reader.hpp"
#include "tsdiag/attention.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/text.hpp"

/// From a spec and a table of names to an architecture with verified tensors.
namespace tsdiag::families {

namespace {

std::string_view title(std::string_view family) {
    for (const ArchitectureEntry* entry : architectures()) {
        if (entry->name == family) return entry->title;
        if (entry->other_name == family) return entry->other_title;
    }
    return family;
}

}  // namespace

std::string describe(const ModelSpec& spec) {
    const BlockSpec& b = spec.blocks.front();
    const Index heads = b.attention.heads, last = spec.blocks.back().attention.heads;
    const std::string grows =
        spec.last_width() == spec.width
            ? ""
            : fmt::format(" growing to d = {}, {} heads", spec.last_width(), last);
    return fmt::format("{}, {} layer{}, d = {}, {} head{}{}", title(spec.family),
                       spec.blocks.size(), spec.blocks.size() == 1 ? "" : "s", spec.width, heads,
                       heads == 1 ? "" : "s", grows);
}

void Reader::accept_gamma_beta(Names& names) const {
    constexpr std::array<std::pair<std::string_view, std::string_view>, 2> old{
        {{".weight", ".gamma"}, {".bias", ".beta"}}};
    for (auto& [canonical, source] : names)
        for (const auto& [now, then] : old) {
            if (!source.file_name.ends_with(now) || has(source.file_name)) continue;
            const std::string stem =
                source.file_name.substr(0, source.file_name.size() - now.size());
            if (has(stem + std::string(then))) source.file_name = stem + std::string(then);
        }
}

void Reader::check_tensors(const Names& names) const {
    std::unordered_map<std::string, Parameter> known;
    for (Parameter& p : parameters(spec)) known.emplace(p.name, p);
    for (const auto& [canonical, source] : names) {
        const Parameter& parameter = known.at(canonical);
        if (!file_.has(source.file_name))
            throw FormatError(
                fmt::format("{}: tensor '{}' is missing, but a {} model of {} layers needs it",
                            file_.source(), source.file_name, spec.family, spec.blocks.size()));
        const RawTensor raw = file_.tensor(source.file_name);
        if (!source.concat.empty()) continue;  // several tensors: checked when stacked
        const std::vector<Index> expected = whole_shape(spec, parameter, source);
        if (raw.shape == expected) continue;
        throw FormatError(fmt::format("{}: tensor '{}' is {}, expected {}", file_.source(),
                                      source.file_name, text(raw.shape), text(expected)));
    }
}

namespace {

std::string attention_rule(const BlockSpec& b) {
    const AttentionSpec& a = b.attention;
    std::string out = (a.gated_unit ? "gated " : "") + a.variant;
    if (!out.ends_with("attention")) out += " attention";
    std::string options;
    for (const auto& [key, value] : a.options)
        options += fmt::format("{}{}={}", options.empty() ? "" : ", ", key, value);
    if (!options.empty()) out += fmt::format(" ({})", options);
    if (a.qk_activation) out += fmt::format(", {} of queries and keys", name(*a.qk_activation));
    if (a.output_norm != OutputNorm::none) out += fmt::format(", then {}", name(a.output_norm));
    if (a.second) {
        AttentionSpec other;
        other.variant = a.second->variant;
        other.options = a.second->options;
        other.output_norm = a.second->output_norm;
        other.qk_activation = a.second->qk_activation;
        BlockSpec second;
        second.attention = std::move(other);
        second.attention.scale = a.scale;
        return out + fmt::format(", beside {}", attention_rule(second));
    }
    if (a.channels)
        out += " over channels, queries and keys of unit length, one temperature per head";
    if (a.gated_unit)
        out += fmt::format(", values of {} columns{}", a.value_columns(),
                           a.token_shift ? ", half of the columns from the previous token" : "");
    return out + fmt::format(", logits scaled by {:.6g}", a.scale);
}

/// One line per attention, "layers 0 to 5: ..."; without numbers where all layers have it.
std::vector<std::string> attention_rules(const ModelSpec& spec) {
    std::vector<std::pair<std::string, std::vector<std::string>>> found;  // with their layers
    const auto& all = spec.blocks;
    for (std::size_t first = 0, last = 0; first < all.size(); first = last) {
        const std::string rule = attention_rule(all[first]);
        while (last < all.size() && attention_rule(all[last]) == rule) ++last;
        if (last - first == all.size()) return {rule};
        auto at = std::ranges::find(found, rule, &decltype(found)::value_type::first);
        if (at == found.end()) at = found.insert(at, {rule, {}});
        at->second.push_back(last - first == 1 ? fmt::format("{}", first)
                                               : fmt::format("{} to {}", first, last - 1));
    }
    std::vector<std::string> out;
    for (const auto& [rule, layers] : found) {
        const bool one = layers.size() == 1 && layers.front().find(' ') == std::string::npos;
        out.push_back(fmt::format("layer{} {}: {}", one ? "" : "s", fmt::join(layers, ", "), rule));
    }
    return out;
}

/// Windows of a grid, and where patches merge.
std::vector<std::string> window_rules(const ModelSpec& spec) {
    std::vector<std::string> sides, merges, out;
    Index shifted = 0;
    for (std::size_t l = 0; l < spec.blocks.size(); ++l) {
        const BlockSpec& b = spec.blocks[l];
        const WindowSpec& w = b.attention.windows;
        if (w.side > 0) sides.push_back(fmt::format("{0} x {0}", w.side));
        shifted += w.shift > 0;
        if (b.merge.width > 0) merges.push_back(fmt::format("{} to d = {}", l, b.merge.width));
    }
    sides.erase(std::ranges::unique(sides).begin(), sides.end());
    if (!sides.empty())
        out.push_back(
            fmt::format("windows of {} patches, shifted by half in {} layers, with "
                        "relative biases",
                        fmt::join(sides, ", then "), shifted));
    if (!merges.empty())
        out.push_back(
            fmt::format("patches merge by fours behind layers {}", fmt::join(merges, ", ")));
    return out;
}

}  // namespace

std::vector<std::string> rules(const ModelSpec& spec) {
    const BlockSpec& b = spec.blocks.front();
    const AttentionSpec& a = b.attention;
    std::vector<std::string> out;
    const std::string shared =
        a.kv_heads == a.heads ? "" : fmt::format(" ({} for keys and values)", a.kv_heads);
    out.push_back(fmt::format(
        "{}, width {}, {} of {}{}, feed-forward {}", counted(spec.blocks.size(), "layer"),
        spec.width, counted(std::size_t(a.heads), "head"), a.head_dim, shared, b.ffn.width));
    out.push_back(fmt::format("{}-norm, activation {}{}, norm eps {}, {}", name(b.placement),
                              name(b.ffn.activation), b.ffn.gated ? ", gated" : "", b.norm.eps,
                              a.causal ? "causal" : "bidirectional"));
    for (std::string& line : attention_rules(spec)) out.push_back(std::move(line));
    std::string positions = fmt::format("positions: {}", name(spec.embedding.positions));
    if (spec.embedding.positions == Positions::learned && spec.embedding.position_offset > 0)
        positions += fmt::format(", first at row {}", spec.embedding.position_offset);
    if (spec.embedding.padding_id >= 0)
        positions += fmt::format(", padding id {}", spec.embedding.padding_id);
    if (a.rotary.columns > 0)
        positions += fmt::format(
            "; rotary, {} of {} columns, {}{}{}", a.rotary.columns, a.head_dim,
            a.rotary.learned ? "learned frequencies" : fmt::format("theta {}", a.rotary.theta),
            a.rotary.scaling.empty() ? "" : ", scaling " + a.rotary.scaling,
            a.rotary.reflected ? ", after a reflection (LRPE)" : "");
    out.push_back(positions);
    if (spec.head.scale != 1 || spec.head.cap > 0)
        out.push_back(fmt::format(
            "logits times {:.6g}{}", spec.head.scale,
            spec.head.cap > 0 ? fmt::format(", then capped at {:.6g}", spec.head.cap) : ""));
    if (b.alpha != 1 || b.ffn_alpha != 1 || spec.embedding.scale != 1)
        out.push_back(fmt::format("embedding times {:.6g}, branches times {:.6g} and {:.6g}",
                                  spec.embedding.scale, b.alpha, b.ffn_alpha));
    if (b.branch_norms) out.push_back("a norm of each branch before it is added");
    if (b.one_norm) out.push_back("one norm before both steps");
    if (!b.attention_norm) out.push_back("no norm before the first attention");
    if (b.ffn.limit > 0)
        out.push_back(fmt::format(
            "gates at most {0:.6g}, what they multiply within +-{0:.6g}, plus 1", b.ffn.limit));
    if (const LatentSpec& l = a.latent; l.rank > 0)
        out.push_back(fmt::format(
            "keys and values of {} latent columns{}, values of {}, {} rotating columns that all "
            "heads' keys share",
            l.rank, l.query_rank > 0 ? fmt::format(", queries of {}", l.query_rank) : std::string(),
            a.value_columns(), a.rotary.columns));
    const auto mixed = std::ranges::find_if(
        spec.blocks, [](const BlockSpec& block) { return block.ffn.experts.count > 0; });
    if (mixed != spec.blocks.end()) {
        const ExpertsSpec& e = mixed->ffn.experts;
        out.push_back(fmt::format(
            "mixture of {} experts, {} a token, shares {}{}{}{}", e.count, e.chosen,
            e.renormalised ? "that sum to 1" : "as the router gives them",
            e.of_input ? ", of the input" : "",
            e.scale != 1 ? fmt::format(", times {:.6g}", e.scale) : "",
            e.shared > 0 ? fmt::format(", and one of width {} for all", e.shared) : ""));
        if (e.groups > 1 || e.sigmoid)
            out.push_back(fmt::format(
                "experts are chosen{} by {}{}",
                e.groups > 1 ? fmt::format(" from {} of {} groups", e.chosen_groups, e.groups) : "",
                e.sigmoid ? "sigmoid scores" : "a softmax",
                e.corrected ? " and their corrections" : ""));
    }
    const auto without_rotation =
        a.rotary.columns == 0
            ? 0
            : std::ranges::count(spec.blocks, Index{0}, [](const BlockSpec& block) {
                  return block.attention.rotary.columns;
              });
    const auto growing = std::ranges::find_if(
        spec.blocks, [](const BlockSpec& block) { return block.attention.growth.scale != 0; });
    if (growing != spec.blocks.end())
        out.push_back(fmt::format(
            "queries at position p times 1 + {:.6g} ln(1 + floor((p + 1) / {})) in {}",
            growing->attention.growth.scale, growing->attention.growth.length,
            counted(std::size_t(std::ranges::count_if(
                        spec.blocks,
                        [](const BlockSpec& block) { return block.attention.growth.scale != 0; })),
                    "layer")));
    if (without_rotation > 0)
        out.push_back("no positions in " + counted(std::size_t(without_rotation), "layer"));
    const auto windows =
        std::count_if(spec.blocks.begin(), spec.blocks.end(),
                      [](const BlockSpec& block) { return block.attention.window > 0; });
    if (spec.embedding.clusters.there())
        out.push_back(fmt::format("token embedding in {} clusters, of {} columns and fewer",
                                  spec.embedding.clusters.ends.size(),
                                  spec.embedding.clusters.width));
    if (spec.memory_tokens > 0)
        out.push_back(
            fmt::format("the first {} tokens of a sample are its memory", spec.memory_tokens));
    if (windows > 0) out.push_back("a sliding window in " + counted(std::size_t(windows), "layer"));
    if (b.local.kernel > 0)
        out.push_back(fmt::format("local patch interaction: {0} x {0}, batch norm eps {1}",
                                  b.local.kernel, b.local.eps));
    for (std::string& line : window_rules(spec)) out.push_back(std::move(line));
    if (spec.embedding.image.convolutions > 0)
        out.push_back(fmt::format("patches by {} convolutions with batch norms",
                                  spec.embedding.image.convolutions));
    if (b.local.kernel > 0 || spec.embedding.image.convolutions > 0)
        out.push_back("batch norms use their stored mean and variance, also in training");
    if (const ClassSpec& c = spec.class_attention; c.layers > 0)
        out.push_back(
            fmt::format("{} of class attention after them, whose second norm covers {}; the loss "
                        "uses the class token",
                        counted(std::size_t(c.layers), "layer"),
                        c.all_normed ? "all tokens" : "the class token"));
    if (b.deesc.there())
        out.push_back(fmt::format(
            "de-escalation {}{}, tau {}",
            b.deesc.before_ffn ? "before the feed-forward step" : "at the end of a layer",
            b.deesc.past ? ", by the mean over the tokens so far" : "",
            b.deesc.learned ? "learned" : fmt::format("{:.6g}", b.deesc.tau)));
    if (!b.steps.empty()) out.push_back("further steps of a layer: " + steps_text(b));
    if (spec.provenance.draws)
        out.push_back(
            fmt::format("what its attention draws at random is that of seed {}, after {} "
                        "updates of its training",
                        spec.provenance.draws->seed, spec.provenance.draws->updates));
    return out;
}

/// Checks the keys that write_model adds to the family's, and the types of their values: `said` of
/// the model, or of one layer.
void Reader::require_known_keys(const Json& said, bool of_layer) const {
    struct OwnKey {
        std::string_view name;
        bool (Json::*fits)() const;
        std::string_view expected;
    };
    constexpr std::array layer{OwnKey{"attention", &Json::is_string, "a text"},
                               OwnKey{"attention_options", &Json::is_object, "an object"},
                               OwnKey{"causal", &Json::is_bool, "true or false"},
                               OwnKey{"window", &Json::is_integer, "an integer"},
                               OwnKey{"placement", &Json::is_string, "a text"},
                               OwnKey{"deesc", &Json::is_number, "a number"},
                               OwnKey{"deesc_at", &Json::is_string, "a text"},
                               OwnKey{"deesc_mean", &Json::is_string, "a text"},
                               OwnKey{"steps", &Json::is_string, "a text"},
                               OwnKey{"output_norm", &Json::is_string, "a text"}};
    constexpr std::array model{OwnKey{"memory_tokens", &Json::is_integer, "an integer"},
                               OwnKey{"layers", &Json::is_array, "a list"},
                               OwnKey{"draws", &Json::is_object, "an object"}};
    if (said.is_null() && !of_layer) return;
    if (!said.is_object())
        refuse(fmt::format("{} has {}, expected an object",
                           of_layer ? "'layers' of 'tsdiag' in its configuration"
                                    : "'tsdiag' of its configuration",
                           said.dump()));
    for (const auto& [key, value] : said.object()) {
        const auto* known = std::ranges::find(layer, key, &OwnKey::name);
        const bool of_model = known == layer.end() && !of_layer;
        if (of_model) known = std::ranges::find(model, key, &OwnKey::name);
        if (known == (of_model ? model.end() : layer.end()))
            refuse(fmt::format("'tsdiag' of its configuration has the unknown key '{}'", key));
        if (!value.is_null() && !(value.*known->fits)())
            refuse(fmt::format("'{}' of its configuration's 'tsdiag' is {}, expected {}", key,
                               value.dump(), known->expected));
    }
}

void Reader::read_steps(const std::string& text, BlockSpec& block) const {
    try {
        block.steps = steps_named(text);
        check_steps(block);
    } catch (const UsageError& e) {
        refuse(fmt::format("'steps' of its configuration: {}", e.what()));
    }
}

/// Applies the keys that write_model adds to the family's.
void Reader::apply_own_keys() {
    const Json& own = value({"tsdiag"});
    const Json& layers = own["layers"];
    if (layers.is_array() && layers.array().size() != spec.blocks.size())
        refuse(fmt::format("its configuration has the attention of {} layers, but it has {}",
                           layers.array().size(), spec.blocks.size()));
    require_known_keys(own, false);
    if (layers.is_array() && !own["steps"].is_null())
        refuse("'tsdiag' of its configuration has 'steps' beside 'layers', which have their own");
    for (std::size_t l = 0; l < spec.blocks.size(); ++l) {
        BlockSpec& b = spec.blocks[l];
        const bool listed = layers.is_array() && l < layers.array().size();
        const Json& said = listed ? layers.array()[l] : own;
        require_known_keys(said, listed);
        if (said["attention"].is_string() && said["attention"].string() != b.attention.variant) {
            b.attention.variant = said["attention"].string();
            b.attention.options.clear();  // those of the family's own attention
        }
        if (said["causal"].is_bool()) b.attention.causal = said["causal"].boolean();
        if (said["window"].is_integer()) b.attention.window = said["window"].integer();
        if (said["output_norm"].is_string())
            b.attention.output_norm = output_norm_named(said["output_norm"].string());
        if (said["placement"].is_string())
            b.placement = placement_named(said["placement"].string());
        if (said["deesc"].is_number()) b.deesc.tau = said["deesc"].number();
        if (said["deesc_at"].is_string())
            b.deesc.before_ffn = deescalates_before_ffn(said["deesc_at"].string());
        if (said["deesc_mean"].is_string())
            b.deesc.past = deescalates_by_the_past(said["deesc_mean"].string());
        if (said["steps"].is_string()) read_steps(said["steps"].string(), b);
        if (!said["attention_options"].is_object()) continue;
        for (const auto& [key, value] : said["attention_options"].object()) {
            if (!value.is_string())
                refuse(
                    fmt::format("'attention_options' of its configuration's 'tsdiag' has {} = {}, "
                                "expected a text",
                                key, value.dump()));
            b.attention.options[key] = value.string();
        }
        check_options(attention(b.attention.variant), b.attention.options);
    }
    if (own["attention"].is_string()) attention(own["attention"].string());  // or throw
    if (own["memory_tokens"].is_integer()) spec.memory_tokens = own["memory_tokens"].integer();
    if (options_.memory_tokens > 0) spec.memory_tokens = options_.memory_tokens;
    if (!own["draws"].is_null()) spec.provenance.draws = read_draws(own["draws"]);
}

Draws Reader::read_draws(const Json& said) const {
    Draws draws;
    const Json &seed = said["seed"], &updates = said["updates"];
    const std::string digits = seed.is_string() ? seed.string() : std::string();
    const char* end = digits.data() + digits.size();
    const auto [read, error] = std::from_chars(digits.data(), end, draws.seed);
    if (digits.empty() || read != end || error != std::errc() || !updates.is_integer() ||
        updates.integer() < 0 || updates.integer() > 1'000'000'000'000'000)
        refuse("'draws' of its configuration is not a seed, in digits, and the number of updates");
    draws.updates = updates.integer();
    return draws;
}

/// What the attention of the configuration learns, beside the queries.
void Reader::add_learned(Names& names) {
    for (std::size_t l = 0; l < spec.blocks.size(); ++l)
        for (const LearnedParameter& learned : learned_by(spec, Index(l), false)) {
            AttentionSpec& a = spec.blocks[l].attention;
            if (std::ranges::find(a.own, learned.name, &Parameter::name) != a.own.end()) continue;
            if (a.gated_unit) continue;  // which its family reads
            const auto query = std::ranges::find(names, fmt::format("layer.{}.attn.q.weight", l),
                                                 &std::pair<std::string, TensorSource>::first);
            if (query == names.end())
                refuse(fmt::format("layer {} has a learned {}, but no queries", l, learned.name));
            TensorSource source;
            source.file_name = beside_queries(query->second.file_name, learned.name);
            if (learned.matrix) {
                a.own.push_back({std::string(learned.name), learned.shape});
                names.emplace_back(fmt::format("layer.{}.attn.{}", l, learned.name), source);
                continue;
            }
            const Index count = has(source.file_name) ? extent(source.file_name, 0) : 1;
            if (count != 1 && count != a.heads)
                refuse(fmt::format("tensor '{}' has {} numbers, expected 1 or {}",
                                   prefix() + source.file_name, count, a.heads));
            a.own.push_back({std::string(learned.name), {1, 1, count}, true});
            names.emplace_back(fmt::format("layer.{}.attn.{}", l, learned.name), std::move(source));
        }
}

/// Those of the steps that any family may have.
void Reader::add_step_parameters(Names& names) {
    for (const Parameter& p : parameters(spec))
        if (const std::optional<LayerParameter> own = of_further_step(spec, p.name)) {
            const auto map = [&](std::string_view letter) {
                return std::ranges::find(names,
                                         fmt::format("layer.{}.attn.{}.weight", own->layer, letter),
                                         &std::pair<std::string, TensorSource>::first);
            };
            const auto query = map("q") == names.end() ? map("z") : map("q");
            check(query != names.end(), "a family has queries, or what they are made of");
            TensorSource source;
            source.file_name = beside_queries(query->second.file_name, own->name);
            names.emplace_back(p.name, std::move(source));
        }
}

/// The output head that a loss uses: the tensors of one of its own, or none where the token
/// embedding is it.
Names Reader::read_head(const Names& names) {
    const std::optional<bool> tied = switch_said({"tie_word_embeddings"});
    const bool by_default =
        has_model_type_ && config_source_.ends_with(".json") && ties_by_default(spec.family);
    Names head = output_head(file_, names, by_default && !tied ? std::optional(true) : tied,
                             tied ? "tie_word_embeddings says"
                                  : "Transformers has it where tie_word_embeddings is "
                                    "not in the configuration",
                             options_.trained, spec);
    if (std::ranges::any_of(head, [](const auto& parameter) {
            return parameter.second.file_name.ends_with(before_adapter);
        }))
        saw("the output head is the token embedding before the adapter trained it, as PEFT runs "
            "the "
            "two that were tied");
    if (tied && !*tied && spec.embedding.vocabulary > 0 && !spec.head.matrix)
        took(
            fmt::format("{} says tie_word_embeddings = false, but the file has no separate output "
                        "head: --loss lm and mlm use the token embedding instead",
                        config_source_));
    return head;
}

Architecture Reader::finish(Names names, Words unused, Words own) {
    apply_own_keys();
    for (BlockSpec& b : spec.blocks) {
        if (attention(b.attention.variant).unscaled) b.attention.scale = 1;
        if (b.norm.eps < 0)
            refuse(fmt::format("the eps of its norms is {}, expected 0 or more", b.norm.eps));
    }
    add_learned(names);
    add_step_parameters(names);
    require_place_to_deescalate(spec);
    require_fitting_steps(spec);
    for (auto& [canonical, source] : names) {
        source.file_name = prefix_ + source.file_name;
        for (std::string& more : source.concat) more = prefix_ + more;
    }
    check_tensors(names);
    Names head = read_head(names);
    check_leftovers(names, head, unused, own);
    check_keys();
    check_sources();
    check_told_sizes();
    warn_of_assumptions();
    std::ranges::move(head, std::back_inserter(names));
    spec.name = describe(spec);
    for (std::string& line : rules(spec)) saw(std::move(line));
    return {std::move(spec), std::move(names)};
}

}  // namespace tsdiag::families
