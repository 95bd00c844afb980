#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <span>

#include "command.hpp"
#include "json_outputs.hpp"
#include "python_source.hpp"
#include "terminal.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/text.hpp"

/// `trace-hook`: lines of Python that save a trace of any PyTorch module.
namespace tsdiag::cli {
namespace {

struct TraceHookCommand final : Command {
    explicit TraceHookCommand(CLI::App& app);
    int run() const override;

    std::string file;  ///< a Python source with the modules; empty: none
};

constexpr std::uint64_t longest_source = std::uint64_t{16} << 20;

using Names = std::span<const std::string_view>;

/// "a Block", "an Attention".
std::string with_article(std::string_view name) {
    const bool vowel = std::string_view("AEIO").find(name.substr(0, 1)) != std::string_view::npos;
    return fmt::format("{} {}", vowel ? "an" : "a", name);
}

/// Where the modules of a layer are, as their source says.
struct Guess {
    std::string layers;         ///< behind `model.`, or behind a stage: "transformer.h"
    std::string stages;         ///< the list of stages that have layers; empty: there are none
    std::string holder, block;  ///< the classes of the model's list and of a layer; may be empty
    bool calls_block = false;   ///< the text of the list says what a layer is
    std::string attention, attention_class;  ///< member of a layer; empty: not found
    std::string norm1, norm2;
    bool norms_first = false, norms_after = false;  ///< pre-norm, post-norm; neither: unknown
    bool tokens_first = false;                      ///< (tokens, samples, width)
    bool causal = false;
    std::string causal_mask;                      ///< the object that says so; may be empty
    bool windows = false;                         ///< attention is inside windows of a grid
    bool merges = false;                          ///< some modules merge tokens
    std::string embed, final_norm, class_layers;  ///< behind `model.`; empty: not found
    /// How queries and keys are made: by nn.MultiheadAttention, by two members of the attention, or
    /// by one for q, k and v.
    bool multihead = false;
    std::string query, key, fused, heads, kv_heads;
    std::string without;              ///< why queries and keys are not saved; may be empty
    std::vector<std::string> others;  ///< lists of layers that were not taken
};

class Guesser {
  public:
    explicit Guesser(std::string_view source) : source_(source), classes_(python_classes(source)) {
        keep_modules();
    }

    /// nullopt where no list of layers is found.
    std::optional<Guess> guess() const {
        std::optional<Guess> best;
        std::vector<std::string> lists;
        for (const PythonClass& c : classes_)
            for (const auto& [name, text] : c.members)
                if (std::optional<Guess> found = list_in(c, name, text)) {
                    lists.push_back(found->layers);
                    if (!best || rank(*found) > rank(*best)) best = std::move(found);
                }
        if (!best) return best;
        read_outside(*best);
        for (const std::string& list : lists)
            if (list != best->layers && list != best->stages && list != best->class_layers)
                best->others.push_back(list);
        for (const char* word : {"is_causal", "tril", "triu", "causal", "causal_mask"})
            best->causal = best->causal || has_word(source_, word);
        best->causal_mask = causal_mask();
        best->causal = best->causal || !best->causal_mask.empty();
        return best;
    }

  private:
    /// Of lists, what speaks for one of layers.
    static int rank(const Guess& list) {
        return list.attention.empty() ? 0 : list.calls_block ? 2 : 1;
    }
    /// Classes derived from torch.nn.Module, as far as the file tells.
    void keep_modules() {
        std::vector<std::string> known;
        const auto is_module = [&](const PythonClass& c) {
            return std::ranges::any_of(c.bases, [&](const std::string& base) {
                const std::string last = base.substr(base.rfind('.') + 1);
                return last == "Module" || last == "LightningModule" ||
                       last == "GradientCheckpointingLayer" || last.ends_with("PreTrainedModel") ||
                       std::ranges::find(known, last) != known.end();
            });
        };
        for (const PythonClass& c : classes_)
            if (is_module(c)) known.push_back(c.name);
        std::erase_if(classes_, [&](const PythonClass& c) { return !is_module(c); });
    }
    const PythonClass* named(std::string_view name) const {
        const auto found = std::ranges::find(classes_, name, &PythonClass::name);
        return found == classes_.end() ? nullptr : &*found;
    }
    /// The only class with a member that attends.
    const PythonClass* only_block() const {
        const PythonClass* found = nullptr;
        for (const PythonClass& c : classes_)
            if (!attention_of(c).empty()) {
                if (found) return nullptr;
                found = &c;
            }
        return found;
    }
    static std::string lower(std::string text) {
        std::ranges::transform(text, text.begin(), [](char c) {
            return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c;
        });
        return text;
    }
    static bool sounds_like_attention(const std::string& name) {
        const std::string low = lower(name);
        return low.find("attn") != low.npos || low.find("attention") != low.npos || low == "mha" ||
               low == "sa";
    }
    /// The member of a layer that attends: a module made of a class with such a name.
    std::string attention_of(const PythonClass& block) const {
        for (const auto& [name, text] : block.members)
            for (const std::string& called : called_in(text))
                if (sounds_like_attention(called) || (sounds_like_attention(name) && named(called)))
                    return name;
        return {};
    }

    std::optional<Guess> list_in(const PythonClass& c, const std::string& name,
                                 const std::string& text) const {
        Guess out;
        out.holder = c.name;
        constexpr std::string_view stock = "TransformerEncoder(";
        if (text.find(stock) != text.npos) {
            out.calls_block = true;
            out.layers = path_to(c) + name + ".layers";
            read_stock_layer(out);
            return out;
        }
        for (const std::string_view kind : {"ModuleList(", "Sequential("}) {
            const std::size_t at = text.find(kind);
            if (at == text.npos) continue;
            const std::string_view inside = kind == "ModuleList("
                                                ? std::string_view(text).substr(at)
                                                : bracketed(text, at + kind.size() - 1);
            const PythonClass* block = nullptr;
            bool stock_layer = false;
            for (const std::string& called : called_in(inside)) {
                stock_layer = stock_layer || called == "TransformerEncoderLayer";
                if (const PythonClass* found = named(called); found && !block) block = found;
            }
            if (kind == "Sequential(" && !stock_layer && (!block || attention_of(*block).empty()) &&
                inside.find('*') != 0)
                continue;  // other steps than layers
            out.calls_block = block || stock_layer;
            if (!block && !stock_layer) block = only_block();
            out.layers = path_to(c) + name + inside_dictionary(text, at);
            if (stock_layer)
                read_stock_layer(out);
            else if (block)
                read_layer(*block, out);
            return out;
        }
        return std::nullopt;
    }
    /// ".h" of nn.ModuleDict(dict(h = nn.ModuleList(...))).
    static std::string inside_dictionary(std::string_view text, std::size_t list) {
        const std::size_t dictionary = text.find("ModuleDict(");
        if (dictionary == text.npos || dictionary > list) return {};
        std::string_view before = text.substr(0, list);
        const std::size_t equals = before.find_last_of("=:");
        if (equals == before.npos) return {};
        before = before.substr(0, equals);
        constexpr std::string_view around = " \"'";
        while (!before.empty() && around.find(before.back()) != around.npos)
            before.remove_suffix(1);
        const std::size_t start = before.find_last_of(" (,{\"'");
        return "." + std::string(before.substr(start == before.npos ? 0 : start + 1));
    }
    /// A class, and where the model has it: "encoder."
    struct Held {
        const PythonClass* its = nullptr;
        std::string path = {};
    };
    /// `c` and the classes that have each other as members around it, from inside to outside.
    std::vector<Held> around(const PythonClass& c) const {
        constexpr std::size_t most = 8;
        std::vector<Held> out = {Held{&c}};
        while (out.size() < most) {
            const PythonClass* at = out.back().its;
            const PythonClass* above = nullptr;
            for (const PythonClass& holder : classes_)
                for (const auto& [name, text] : holder.members) {
                    if (above || &holder == at || text.find("ModuleList(") != text.npos) continue;
                    const std::vector<std::string> called = called_in(text);
                    if (std::ranges::find(called, at->name) == called.end()) continue;
                    for (Held& inner : out) inner.path.insert(0, name + ".");
                    above = &holder;
                }
            if (!above) return out;
            out.push_back(Held{above});
        }
        return {Held{&c}};
    }
    std::string path_to(const PythonClass& c) const { return around(c).front().path; }

    /// The class with a list of stages, each a `c`, and the name of the list: one that calls `c`,
    /// or whose elements are made before it.
    std::optional<std::pair<const PythonClass*, std::string>> list_of(const PythonClass& c) const {
        if (around(c).size() > 1) return std::nullopt;  // it is a member alone
        for (const PythonClass& holder : classes_) {
            if (&holder == &c || std::ranges::find(holder.calls, c.name) == holder.calls.end())
                continue;
            for (const auto& [name, text] : holder.members) {
                if (text.find("ModuleList(") == text.npos && text.find("Sequential(") == text.npos)
                    continue;
                const std::vector<std::string> called = called_in(text);
                const bool own = std::ranges::find(called, c.name) != called.end();
                const bool others = std::ranges::any_of(
                    called, [&](const std::string& one) { return named(one) != nullptr; });
                const bool made_before =
                    text.find(".append(") != text.npos || text.find("(*") != text.npos;
                if (own || (!others && made_before)) return std::pair(&holder, name);
            }
        }
        return std::nullopt;
    }

    /// Whether a text of nn.ModuleDict has `word` = a call.
    static bool has_key(std::string_view text, std::string_view word) {
        for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
            const std::size_t end = text.find_first_not_of(" \"'", at + word.size());
            if (end == text.npos || (text[end] != '=' && text[end] != ':') || at == 0 ||
                std::string_view(" ,({\"'").find(text[at - 1]) == text.npos)
                continue;
            const std::string_view value = text.substr(end);
            if (value.substr(0, value.find(',')).find('(') != text.npos) return true;
        }
        return false;
    }
    /// The module of that name, or of that key of an nn.ModuleDict among the members; empty: none.
    static std::string module_of(const PythonClass& c, std::string_view word, bool norm) {
        for (const auto& [name, text] : c.members) {
            if (text.find("ModuleDict(") != text.npos) {
                if (has_key(text, word)) return fmt::format("{}.{}", name, word);
            } else if (name == word && (norm ? makes_norm(text) : !called_in(text).empty())) {
                return name;
            }
        }
        return {};
    }
    static bool makes_norm(std::string_view text) {
        return std::ranges::any_of(called_in(text), [](const std::string& one) {
            return one.ends_with("Norm") || one.ends_with("norm") || one == "norm_layer";
        });
    }
    /// Stages around the layers, and what stands before and behind them.
    void read_outside(Guess& out) const {
        static constexpr std::array<std::string_view, 7> embeds{
            "pos_drop",         "drop",      "embeddings", "patch_embed",
            "patch_embeddings", "embedding", "embed"};
        static constexpr std::array<std::string_view, 10> norms{
            "norm",   "layernorm",        "final_norm", "ln_f",    "norm_f",
            "ln_out", "final_layer_norm", "layer_norm", "ln_post", "post_layernorm"};
        const PythonClass* holder = named(out.holder);
        if (!holder) return;
        if (const auto stages = list_of(*holder)) {
            holder = stages->first;
            out.stages = path_to(*holder) + stages->second;
            out.holder = holder->name;
        }
        const auto first = [](const Held& held, Names names, bool norm, std::string& to) {
            for (const std::string_view name : names)
                if (const std::string found = module_of(*held.its, name, norm);
                    to.empty() && !found.empty())
                    to = held.path + found;
        };
        for (const Held& held : around(*holder)) {
            first(held, embeds, false, out.embed);
            first(held, norms, true, out.final_norm);
            for (const auto& [name, text] : held.its->members)
                if (text.find("ModuleList(") != text.npos && is_of_class_token(name, text))
                    out.class_layers = held.path + name;
        }
        out.merges = merges_tokens();
    }
    bool merges_tokens() const {
        return std::ranges::any_of(classes_, [](const PythonClass& c) {
            return c.name.ends_with("PatchMerging") || !c.member("downsample").empty() ||
                   !c.member("patch_merging").empty();
        });
    }
    /// A list of layers in which the class token alone attends; not one of heads ("class_embed").
    static bool is_of_class_token(const std::string& name, std::string_view text) {
        const bool layers = name.ends_with("blocks") || name.ends_with("layers");
        return (layers && (name.starts_with("cls_") || name.starts_with("class_"))) ||
               std::ranges::any_of(called_in(text), [](const std::string& one) {
                   return one.find("ClassAtt") != one.npos;
               });
    }

    void read_stock_layer(Guess& out) const {
        out.block = "TransformerEncoderLayer";
        out.attention = "self_attn";
        out.attention_class = "MultiheadAttention";
        out.multihead = true;
        out.norm1 = "norm1", out.norm2 = "norm2";
        out.norms_first = source_.find("norm_first=True") != source_.npos;
        out.norms_after = !out.norms_first;
        out.tokens_first = source_.find("batch_first=True") == source_.npos;
    }

    void read_layer(const PythonClass& block, Guess& out) const {
        out.block = block.name;
        out.attention = attention_of(block);
        if (out.attention.empty()) return;
        const std::string_view text = block.member(out.attention);
        out.windows = has_word(source_, "window_partition") ||
                      (merges_tokens() && has_word(source_, "window_size"));
        if (out.windows)
            out.without =
                "attention is inside windows: put the maps of a sample into one, attentions.L, "
                "rows and columns in the order of the states";
        read_norms(block, out);
        const std::vector<std::string> called = called_in(text);
        if (!named("MultiheadAttention") &&
            std::ranges::find(called, "MultiheadAttention") != called.end()) {
            out.attention_class = "MultiheadAttention";
            if (out.windows) return;  // whose axes are not those of the states
            out.multihead = true;
            out.tokens_first = text.find("batch_first=True") == text.npos;
            return;
        }
        for (const std::string& name : called)
            if (const PythonClass* its = named(name)) {
                out.attention_class = name;
                if (!out.windows) read_projections(*its, out);
                return;
            }
        out.without = "the class of the attention is in another file";
    }

    /// Norms by where `forward` calls them: around the attention or before it.
    static void read_norms(const PythonClass& block, Guess& out) {
        std::vector<std::string> norms;
        for (const auto& [name, text] : block.members)
            if (makes_norm(text)) norms.push_back(name);
        const std::string& forward = block.forward;
        std::string call = "self." + out.attention + "(";
        if (forward.find(call) == forward.npos) call.insert(5, "_");  // a method around it
        const std::size_t at = forward.find(call);
        if (at == forward.npos || norms.size() != 2) return;
        const std::string_view arguments = bracketed(forward, at + call.size() - 1);
        const std::string_view first = arguments.substr(0, arguments.find_first_of(",="));
        const std::size_t line = forward.rfind('\n', at) + 1;
        for (std::size_t k = 0; k < 2; ++k) {
            const std::string norm = "self." + norms[k] + "(";
            const std::size_t named_before = forward.rfind(std::string(first) + " = " + norm, at);
            const bool before = arguments.find(norm) != arguments.npos ||
                                forward.find(norm) < line ||
                                (!first.empty() && named_before != forward.npos);
            const std::size_t around = forward.find(norm, line);
            const std::size_t other = forward.find("self." + norms[1 - k] + "(", line);
            const bool after = around != forward.npos && (other == forward.npos || around < other);
            if (before) out.norms_first = true;
            if (!before && !after) continue;
            if (!before && out.norms_first) continue;
            out.norm1 = norms[k], out.norm2 = norms[1 - k];
            if (before) return;
        }
        // In windows a norm behind attention is that of its branch, before the sum.
        out.norms_after = !out.norm1.empty() && !out.windows;
    }

    static std::string first_member(const PythonClass& c, Names names) {
        for (const std::string_view name : names)
            if (!c.member(name).empty()) return std::string(name);
        return {};
    }
    void read_projections(const PythonClass& attention, Guess& out) const {
        static constexpr std::array<std::string_view, 8> queries{"q_proj", "query", "wq", "to_q",
                                                                 "w_q",    "W_q",   "q",  "Wq"};
        static constexpr std::array<std::string_view, 8> keys{"k_proj", "key", "wk", "to_k",
                                                              "w_k",    "W_k", "k",  "Wk"};
        static constexpr std::array<std::string_view, 6> all{"qkv",     "c_attn",   "to_qkv",
                                                             "in_proj", "qkv_proj", "Wqkv"};
        static constexpr std::array<std::string_view, 9> counts{
            "num_heads",           "n_heads", "n_head", "nhead",     "heads",
            "num_attention_heads", "h",       "nheads", "head_count"};
        static constexpr std::array<std::string_view, 5> kv_counts{
            "num_kv_heads", "n_kv_heads", "num_key_value_heads", "n_kv_head", "kv_heads"};
        out.without = other_logits(attention);
        if (!out.without.empty()) return;
        out.heads = first_member(attention, counts);
        out.kv_heads = first_member(attention, kv_counts);
        out.query = first_member(attention, queries);
        out.key = first_member(attention, keys);
        out.fused = out.query.empty() || out.key.empty() ? first_member(attention, all) : "";
        if (out.heads.empty())
            out.without = fmt::format("no member of {} counts the heads", attention.name);
        else if (!out.fused.empty() && !out.kv_heads.empty())
            out.without = "keys have other heads than queries";
        else if (out.fused.empty() && (out.query.empty() || out.key.empty()))
            out.without =
                fmt::format("no members of {} are known as their projections", attention.name);
        const std::string text = with_bases(attention);
        for (const std::string& one : {out.fused, out.query, out.key})
            if (!one.empty() && text.find("self." + one + ".weight") != text.npos)
                out.without = fmt::format("{} is not called, its weight is used alone", one);
    }
    /// The statements of a class and of those in this file that it is derived from.
    std::string with_bases(const PythonClass& c) const {
        std::string out = c.text;
        for (const std::string& base : c.bases)
            if (const PythonClass* its = named(base); its && its != &c) out += its->text;
        return out;
    }
    /// The object of xformers or PyTorch in the source that, as a bias of the logits, is the causal
    /// mask and nothing else; empty: there is none.
    std::string causal_mask() const {
        for (const char* other : {"LowerTriangularMaskWithTensorBias", "BlockDiagonalCausalMask",
                                  "add_bias", "make_local_attention"})
            if (has_word(source_, other)) return {};
        for (const char* mask : {"LowerTriangularMask", "LowerTriangularFromBottomRightMask",
                                 "causal_upper_left", "causal_lower_right"})
            if (has_word(source_, mask)) return mask;
        return {};
    }
    /// Why softmax(q k^T / sqrt(d)) of the projections is not P, as names in the source tell;
    /// empty: nothing tells so.
    std::string other_logits(const PythonClass& attention) const {
        const std::string text = with_bases(attention);
        static constexpr std::array<std::string_view, 2> channels{"xca", "channel"};
        if (!name_with(attention.name, channels).empty())
            return fmt::format("P of {} is over channels, not over tokens", attention.name);
        for (const char* word : {"rotary", "rope", "RotaryEmbedding", "apply_rotary_pos_emb",
                                 "apply_rotary_emb", "q_norm", "k_norm", "alibi", "freqs_cis"})
            if (has_word(source_, word)) return changed_by(word);
        for (const char* word : {"normalize", "l2norm", "q_ln", "k_ln", "q_layernorm",
                                 "k_layernorm", "norm_q", "norm_k", "query_norm", "key_norm"})
            if (has_word(text, word)) return changed_by(word);
        // A bias, a scale that is learned, a cap, a further key, a window, a mix of heads.
        static constexpr std::array<std::string_view, 17> others{
            "rel_pos",  "relative_pos", "relative_att",   "rel_bias",    "position_bias",
            "pos_bias", "bias_table",   "r_w_bias",       "temperature", "logit_scale",
            "softcap",  "sink",         "sliding_window", "slopes",      "proj_l",
            "talking",  "make_local"};
        // Elsewhere it may say whether projections have a bias.
        static constexpr std::array<std::string_view, 2> added{"attn_bias", "attention_bias"};
        std::string found = name_with(text, others);
        if (found.empty() && causal_mask().empty()) found = name_with(attention.forward, added);
        if (!found.empty())
            return fmt::format(
                "'{}' changes the logits, P is not softmax(q k^T / sqrt(d)): save it as "
                "attentions.L",
                found);
        for (const char* alone : {"q.softmax(", "k.softmax(", "softmax(q,", "softmax(k,"})
            if (text.find(alone) != text.npos)
                return fmt::format("{} takes a softmax of queries or keys alone", attention.name);
        const std::vector<std::string> called = called_in(text);
        if (std::ranges::none_of(called, may_be_softmax))
            return fmt::format("{} calls no softmax", attention.name);
        return {};
    }
    static std::string changed_by(std::string_view word) {
        return fmt::format(
            "'{}' changes them behind their projections: save q and k where they meet", word);
    }
    /// A softmax, or a function that attends.
    static bool may_be_softmax(const std::string& called) {
        const std::string low = lower(called);
        return low.find("softmax") != low.npos || low.find("attend") != low.npos ||
               (sounds_like_attention(called) && low.find("drop") == low.npos);
    }

    std::string source_;
    std::vector<PythonClass> classes_;
};

/// A hook before a module is told of no argument that is given by name: these take the place of its
/// `forward`.
constexpr std::string_view in_place_of_forward =
    R"(def instead(m, call):  # sees arguments that are given by name, too
    own, forward = vars(m).get("forward"), m.forward
    def remove():
        vars(m).pop("forward", None)
        if own:
            m.forward = own
    m.forward = lambda *args, **kwargs: call(forward, args, kwargs)
    hooks.append(types.SimpleNamespace(remove=remove))
def first(forward, args, given, name):  # the state, which may be given by name, behind a mask
    if args and given.get("hidden_states") is None:
        return args
    words = ["hidden_states", *inspect.signature(forward).parameters][:2]
    for word in (*words, "x", "src", "tgt", "input", "inputs"):
        if isinstance(given.get(word), (torch.Tensor, tuple, list)) and "mask" not in word:
            return given[word]
    raise ValueError(f"{name}: which of {', '.join(given)} is the state is not known: pass it first, without its name")
def before(m, name):
    def call(forward, args, kwargs):
        keep(name, first(forward, args, kwargs, name))
        return forward(*args, **kwargs)
    instead(m, call)
)";

constexpr std::string_view queries_of_multihead =
    R"(def queries_and_keys(m, i):  # of nn.MultiheadAttention, called by position or by name
    def call(forward, args, kwargs):
        given = inspect.signature(forward).bind(*args, **kwargs).arguments
        mask, hidden, causal = given.get("attn_mask"), given.get("key_padding_mask"), False
        if hidden is not None:
            saved["attention_mask"] = (hidden == 0)[..., None, None, :].cpu()
        if mask is not None:
            later = torch.ones_like(mask, dtype=torch.bool).triu(1)
            hides, sees = (mask, ~mask) if mask.dtype == torch.bool else (mask < -1000, mask == 0)
            causal = bool((hides == later).all() and (sees != later).all())
        first = saved.setdefault("is_causal", torch.tensor([float(causal)]))
        if m.bias_k is not None or m.add_zero_attn:
            print(f"queries.{i}: not saved, as there are keys of no token")
        elif bool(first) != causal or not (mask is None or causal):  # its P in place of them
            maps = forward(**{**given, "need_weights": True, "average_attn_weights": False})[1]
            saved[f"attentions.{i}"] = maps.detach().cpu()
        else:
            same = m.in_proj_weight is not None
            w = m.in_proj_weight.chunk(3) if same else (m.q_proj_weight, m.k_proj_weight)
            b = (None, None) if m.in_proj_bias is None else m.in_proj_bias.chunk(3)
            for name, x, w, b in zip(("queries", "keys"), (given["query"], given["key"]), w, b):
                x = heads(torch.nn.functional.linear(x, w, b), m.num_heads)
                x = x if m.batch_first or x.dim() == 3 else x.transpose(0, 2)
                saved[f"{name}.{i}"] = x.detach().cpu().clone()
        return forward(*args, **kwargs)
    instead(m, call)
)";

/// The lines of the hook.
class HookWriter {
  public:
    HookWriter(const Guess& guess, std::string file) : g_(guess), file_(std::move(file)) {}

    std::string text() {
        head();
        line("import inspect, types");
        line("import torch\n");
        if (g_.stages.empty())
            line("blocks = model.{}", g_.layers.empty() ? "layers" : g_.layers);
        else
            line("blocks = [block for stage in model.{} for block in stage.{}]", g_.stages,
                 g_.layers);
        line("saved, hooks, ran = {{}}, [], []  # ran: the layers, as they end");
        line("def keep(name, x):");
        line("    x = next(iter(x), None) if isinstance(x, (tuple, list)) else x");
        line("    if not isinstance(x, torch.Tensor):");
        line(
            "        return print(f\"{{name}}: found a {{type(x).__name__}}, expected a tensor\")");
        if (!has_heads()) {
            line("    if x.dim() == 4:  # a grid");
            line("        first = x.shape[2] == x.shape[3] != x.shape[1]");
            line("        if name == \"hidden_states.0\":");
            line(
                "            print(\"grids of states: channels are taken to come\", "
                "\"first\" if first else \"last\")");
            line("        x = x.flatten(2).transpose(1, 2) if first else x.flatten(1, 2)");
        }
        line("    saved[name] = x{}.detach().cpu().clone()",
             g_.tokens_first ? ".transpose(0, 1)" : "");
        if (has_heads()) {
            line("def heads(x, count):");
            line("    return x.unflatten(-1, (count, -1)).transpose(-3, -2)");
        }
        out_ += in_place_of_forward;
        if (g_.multihead) out_ += queries_of_multihead;
        if (may_merge()) {
            line("def merged(m, args, out):  # behind layer ran[-1]");
            line("    if ran and not isinstance(m, torch.nn.Identity):");
            line("        if f\"hidden_states.{{ran[-1] + 1}}\" in saved:");
            line(
                "            saved[f\"out.{{ran[-1]}}\"] = saved[f\"hidden_states.{{ran[-1] + "
                "1}}\"]");
            line("        keep(f\"merge.{{ran[-1]}}\", out)");
        }
        line("\nfor i, block in enumerate(blocks):");
        before("block", "hidden_states.{i}");
        after("block", "hidden_states.{i + 1}");
        hook("block", "out, ", "ran.append(i)");
        attention();
        stages();
        outside();
        line("model(inputs)  # with gradients: without, PyTorch's own layers skip these hooks");
        leave_out();
        line("torch.save(saved, \"trace.pt\")");
        line("for hook in reversed(hooks):");
        line("    hook.remove()");
        line("# tsdiag probe trace.pt{}{}", g_.causal && has_heads() ? " --causal" : "",
             stage_names() ? fmt::format(" --placement {}", g_.norms_first ? "pre" : "post") : "");
        line(
            "# Of several batches save batches/batch-0.pt, batches/batch-1.pt, ..., of several "
            "steps steps/step-100.pt, ...;");
        line("# tsdiag probe batches, tsdiag probe steps");
        return std::move(out_);
    }

  private:
    template <class... T>
    void line(fmt::format_string<T...> words, T&&... values) {
        out_ += fmt::format(words, std::forward<T>(values)...) + "\n";
    }
    bool has_heads() const {
        return g_.multihead || (g_.without.empty() && !g_.attention.empty() &&
                                (!g_.fused.empty() || !g_.query.empty()));
    }
    /// Without a source nobody knows.
    bool may_merge() const { return g_.merges || g_.layers.empty(); }
    bool stage_names() const {
        return !g_.attention.empty() && !g_.norm1.empty() && (g_.norms_first || g_.norms_after);
    }

    void head() {
        line("# model: your module; inputs: a batch for it (docs/from-pytorch.md).");
        if (file_.empty() || g_.layers.empty()) {
            line("# {}", file_.empty()
                             ? "model.layers: put the list of your layers here, or let `tsdiag "
                               "trace-hook FILE.py` guess it."
                             : "No list of layers was found in it: put yours in place of "
                               "model.layers.");
            line(
                "# Where model.layers are stages: [block for stage in model.layers for block in "
                "stage.blocks].");
            line(
                "# Modules that merge tokens are found by their names; embed.0, final_norm.L and "
                "class.L are not looked for.");
            return;
        }
        line("# Guessed from {}, to be checked:", file_);
        line("#   layers     {}, in class {}{}",
             g_.stages.empty()
                 ? "model." + g_.layers
                 : fmt::format("stage.{} of each stage of model.{}", g_.layers, g_.stages),
             g_.holder, g_.block.empty() ? "" : ", each " + with_article(g_.block));
        for (const std::string& other : g_.others) line("#              not model.{}", other);
        if (g_.merges)
            line(
                "#   merging    modules named downsample or patch_merging, or of a class "
                "...PatchMerging");
        const std::pair<const char*, std::string> others[] = {
            {"embed", g_.embed},
            {"final_norm", g_.final_norm},
            {"class", g_.class_layers.empty() ? "" : g_.class_layers + "[-1]"}};
        for (const auto& [stage, module] : others)
            if (!module.empty()) line("#   {:10} model.{}", stage, module);
        std::string missing = g_.merges ? "" : ", modules that merge tokens";
        for (const auto& [stage, module] : others)
            if (module.empty()) missing += fmt::format(", {}", stage);
        if (!missing.empty()) line("#   not found  {}", missing.substr(2));
        attention_head();
    }

    void attention_head() {
        if (g_.attention.empty()) {
            line("#   attention  not found: only the states are saved");
            return;
        }
        line("#   attention  block.{}{}", g_.attention,
             g_.attention_class.empty() ? "" : ", " + with_article(g_.attention_class));
        if (stage_names())
            line("#   norms      block.{} {} attention, block.{} {} the feed-forward step",
                 g_.norm1, g_.norms_first ? "before" : "behind", g_.norm2,
                 g_.norms_first ? "before" : "behind");
        else
            line(
                "#   norms      their order was not found: stages inside the layers are not saved");
        if (!has_heads())
            line("#   queries    not saved: {}", g_.without);
        else if (g_.multihead)
            line(
                "#   queries    and keys are in_proj of nn.MultiheadAttention; its maps where a "
                "mask is not causal");
        else if (!g_.fused.empty())
            line("#   queries    and keys are the first two thirds of {}", g_.fused);
        else
            line("#   queries    {}, keys {}, heads {}", g_.query, g_.key, g_.heads);
        if (has_heads())
            line("#   logits     divided by the root of the columns of a head, or --scale X{}",
                 !g_.causal               ? ""
                 : g_.causal_mask.empty() ? "; causal, as the file speaks of it"
                                          : fmt::format("; causal, by {}", g_.causal_mask));
        if (g_.tokens_first)
            line("#   axes       (tokens, samples, width): batch_first=True is not there");
    }

    void hook(std::string_view module, std::string_view arguments, std::string_view work) {
        line("    hooks.append({}.register_forward_hook(lambda m, args, {}i=i: {}))", module,
             arguments, work);
    }
    void after(std::string_view module, std::string_view name) {
        hook(module, "out, ", fmt::format("keep(f\"{}\", out)", name));
    }
    void before(std::string_view module, std::string_view name) {
        line("    before({}, f\"{}\")", module, name);
    }
    void attention() {
        if (!has_heads()) return;
        const std::string module = "block." + g_.attention;
        if (g_.multihead) return line("    queries_and_keys({}, i)", module);
        const auto count = [&](const std::string& name) {
            return fmt::format("{}={}.{}", "n", module, name);
        };
        const auto projection = [&](const std::string& member, const std::string& name,
                                    const std::string& heads_of, std::string_view part) {
            hook(fmt::format("{}.{}", module, member), "out, " + count(heads_of) + ", ",
                 fmt::format("keep(f\"{}.{{i}}\", heads(out{}, n))", name, part));
        };
        if (!g_.fused.empty()) {
            projection(g_.fused, "queries", g_.heads, ".chunk(3, -1)[0]");
            projection(g_.fused, "keys", g_.heads, ".chunk(3, -1)[1]");
        } else {
            projection(g_.query, "queries", g_.heads, "");
            projection(g_.key, "keys", g_.kv_heads.empty() ? g_.heads : g_.kv_heads, "");
        }
    }
    void stages() {
        if (!stage_names()) return;
        if (!g_.windows) after("block." + g_.attention, "sa.{i}");
        const std::string first = "block." + g_.norm1, second = "block." + g_.norm2;
        if (g_.norms_first) {
            after(first, "attention_inputs.{i}");
            before(second, "attn.{i}");
            after(second, "norm2.{i}");
            after("block", "ffn.{i}");
        } else {
            before(first, "attn.{i}");
            after(first, "norm1.{i}");
            before(second, "ffn.{i}");
            after(second, "norm2.{i}");
        }
    }

    /// What merges tokens, and what stands before the layers and behind them.
    void outside() {
        line("hooks.append(model.register_forward_pre_hook(lambda m, args: ran.clear()))");
        if (may_merge()) {
            line("inside = {{m for block in blocks for m in block.modules()}}");
            line("for name, m in model.named_modules():");
            line(
                "    if m not in inside and (name.split(\".\")[-1] in (\"downsample\", "
                "\"patch_merging\") or type(m).__name__.endswith(\"PatchMerging\")):");
            line("        hooks.append(m.register_forward_hook(merged))");
        }
        const auto keep = [&](const std::string& module, std::string_view work) {
            line("hooks.append(model.{}.register_forward_hook(lambda m, args, out: {}))", module,
                 work);
        };
        if (!g_.embed.empty()) keep(g_.embed, "None if ran else keep(\"embed.0\", out)");
        if (!g_.class_layers.empty())
            keep(g_.class_layers + "[-1]", "keep(f\"class.{ran[-1]}\", out)");
        if (!g_.final_norm.empty())
            keep(g_.final_norm, "keep(f\"final_norm.{ran[-1]}\", out) if ran else None");
    }
    /// States that turn out to have other tokens, as before a class token or behind a mean.
    void leave_out() {
        std::string states;
        if (!g_.embed.empty()) states += "(\"embed.0\", \"hidden_states.0\", 0), ";
        constexpr const char* last = "f\"hidden_states.{len(blocks)}\"";
        constexpr const char* one = "f\"class.{len(blocks) - 1}\"";
        if (!g_.class_layers.empty()) states += fmt::format("({}, {}, 1), ", one, last);
        if (!g_.final_norm.empty())
            states += fmt::format("(f\"final_norm.{{len(blocks) - 1}}\", {}, 0), ",
                                  g_.class_layers.empty() ? last : one);
        if (states.empty()) return;
        line("for name, like, more in [{}]:", states.substr(0, states.size() - 2));
        line(
            "    if name in saved and (like not in saved or saved[name][:, more:].shape != "
            "saved[like].shape):");
        line("        print(name, \"is left out: it is\", tuple(saved.pop(name).shape))");
    }

    const Guess& g_;
    std::string file_, out_;
};

}  // namespace

TraceHookCommand::TraceHookCommand(CLI::App& app) {
    app.add_option("FILE", file, "Python source of the module, whose names are guessed")
        ->type_name("");
}

int TraceHookCommand::run() const {
    std::optional<Guess> guess;
    if (!file.empty()) guess = Guesser(file_text(file, "a Python source", longest_source)).guess();
    const std::string name = visible(std::filesystem::path(file).filename().string());
    const std::string text = HookWriter(guess.value_or(Guess()), name).text();
    print_json("trace-hook", Json().set("text", text));
    print(text);
    return 0;
}

extern const CommandEntry trace_hook_command = {
    .name = "trace-hook",
    .about = "print lines of Python that save a trace of any PyTorch module",
    .examples = R"(Examples:
  tsdiag trace-hook                    for any module; says what to put in
  tsdiag trace-hook model.py >> run.py    with the names of its modules, guessed)",
    .make = made<TraceHookCommand>};

}  // namespace tsdiag::cli
