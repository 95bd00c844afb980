#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <span>

#include "commands.hpp"
#include "json_outputs.hpp"
#include "python_source.hpp"
#include "terminal.hpp"
#include "tsdiag/error.hpp"
#include "tsdiag/file.hpp"
#include "tsdiag/text.hpp"

/// `trace-hook`: lines of Python that save a trace of any PyTorch module.
namespace tsdiag::cli {
namespace {

constexpr std::uint64_t longest_source = std::uint64_t{16} << 20;

using Names = std::span<const std::string_view>;

/// Where the modules of a layer are, as their source says.
struct Guess {
    std::string layers;         ///< behind `model.`: "transformer.h"
    std::string holder, block;  ///< the classes of the model's list and of a layer; may be empty
    std::string attention, attention_class;  ///< member of a layer; empty: not found
    std::string norm1, norm2;
    bool norms_first = false, norms_after = false;  ///< pre-norm, post-norm; neither: unknown
    bool tokens_first = false;                      ///< (tokens, samples, width)
    bool causal = false;
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
                    if (!best || (best->attention.empty() && !found->attention.empty()))
                        best = std::move(found);
                }
        if (!best) return best;
        for (const std::string& list : lists)
            if (list != best->layers) best->others.push_back(list);
        for (const char* word : {"is_causal", "tril", "triu", "causal", "causal_mask"})
            best->causal = best->causal || has_word(source_, word);
        return best;
    }

  private:
    /// Classes derived from torch.nn.Module, as far as the file tells.
    void keep_modules() {
        std::vector<std::string> known;
        const auto is_module = [&](const PythonClass& c) {
            return std::ranges::any_of(c.bases, [&](const std::string& base) {
                const std::string last = base.substr(base.rfind('.') + 1);
                return last == "Module" || last == "LightningModule" ||
                       last.ends_with("PreTrainedModel") ||
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
    /// "encoder." where another class has this one as its member `encoder`.
    std::string path_to(const PythonClass& c) const {
        constexpr int deepest = 8;
        std::string out;
        const PythonClass* at = &c;
        for (int depth = 0; depth < deepest; ++depth) {
            const PythonClass* above = nullptr;
            for (const PythonClass& holder : classes_)
                for (const auto& [name, text] : holder.members) {
                    if (above || &holder == at || text.find("ModuleList(") != text.npos) continue;
                    const std::vector<std::string> called = called_in(text);
                    if (std::ranges::find(called, at->name) == called.end()) continue;
                    out.insert(0, name + ".");
                    above = &holder;
                }
            if (!above) return out;
            at = above;
        }
        return {};
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
        read_norms(block, out);
        const std::vector<std::string> called = called_in(text);
        if (std::ranges::find(called, "MultiheadAttention") != called.end()) {
            out.attention_class = "MultiheadAttention";
            out.multihead = true;
            out.tokens_first = text.find("batch_first=True") == text.npos;
            return;
        }
        for (const std::string& name : called)
            if (const PythonClass* its = named(name)) {
                out.attention_class = name;
                return read_projections(*its, out);
            }
        out.without = "the class of the attention is in another file";
    }

    /// Norms by where `forward` calls them: around the attention or before it.
    static void read_norms(const PythonClass& block, Guess& out) {
        std::vector<std::string> norms;
        for (const auto& [name, text] : block.members) {
            const std::vector<std::string> called = called_in(text);
            if (std::ranges::any_of(called, [](const std::string& one) {
                    return one.ends_with("Norm") || one.ends_with("norm");
                }))
                norms.push_back(name);
        }
        const std::string& forward = block.forward;
        const std::string call = "self." + out.attention + "(";
        const std::size_t at = forward.find(call);
        if (at == forward.npos || norms.size() != 2) return;
        const std::string_view arguments = bracketed(forward, at + call.size() - 1);
        const std::string_view first = arguments.substr(0, arguments.find_first_of(",="));
        const std::size_t line = forward.rfind('\n', at) + 1;
        for (std::size_t k = 0; k < 2; ++k) {
            const std::string norm = "self." + norms[k] + "(";
            const std::size_t named_before = forward.rfind(std::string(first) + " = " + norm, at);
            const bool before = arguments.find(norm) != arguments.npos ||
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
        out.norms_after = !out.norm1.empty();
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
        for (const char* word : {"rotary", "rope", "RotaryEmbedding", "apply_rotary_pos_emb",
                                 "apply_rotary_emb", "q_norm", "k_norm", "alibi", "freqs_cis"})
            if (has_word(source_, word)) {
                out.without = fmt::format(
                    "'{}' changes them behind their projections: save q and k where they meet",
                    word);
                return;
            }
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
    }

    std::string source_;
    std::vector<PythonClass> classes_;
};

/// The lines of the hook.
class HookWriter {
  public:
    HookWriter(const Guess& guess, std::string file) : g_(guess), file_(std::move(file)) {}

    std::string text() {
        head();
        line("import torch\n");
        line("blocks = model.{}", g_.layers.empty() ? "layers" : g_.layers);
        line("saved, hooks = {{}}, []");
        line("def keep(name, x):");
        line("    x = x[0] if isinstance(x, tuple) else x");
        line("    saved[name] = x{}.detach().cpu().clone()",
             g_.tokens_first ? ".transpose(0, 1)" : "");
        if (has_heads()) {
            line("def heads(x, count):");
            line("    return x.unflatten(-1, (count, -1)).transpose(1, 2)");
        }
        if (g_.multihead) {
            line("def queries_and_keys(m, args, i):");
            line(
                "    q, k, _ = torch.nn.functional.linear(args[0], m.in_proj_weight, "
                "m.in_proj_bias).chunk(3, -1)");
            line("    for name, x in ((\"queries\", q), (\"keys\", k)):");
            line(
                "        saved[f\"{{name}}.{{i}}\"] = heads(x{}, "
                "m.num_heads).detach().cpu()",
                g_.tokens_first ? ".transpose(0, 1)" : "");
        }
        line("\nfor i, block in enumerate(blocks):");
        before("block", "hidden_states.{i}");
        after("block", "hidden_states.{i + 1}");
        attention();
        stages();
        line("model(inputs)  # with gradients: without, PyTorch's own layers skip these hooks");
        line("torch.save(saved, \"trace.pt\")");
        line("for hook in hooks:");
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
            return;
        }
        line("# Guessed from {}, to be checked:", file_);
        line("#   layers     model.{}, in class {}{}", g_.layers, g_.holder,
             g_.block.empty() ? "" : fmt::format(", each a {}", g_.block));
        for (const std::string& other : g_.others) line("#              not model.{}", other);
        if (g_.attention.empty()) {
            line("#   attention  not found: only the states are saved");
            return;
        }
        line("#   attention  block.{}{}", g_.attention,
             g_.attention_class.empty() ? "" : fmt::format(", a {}", g_.attention_class));
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
            line("#   queries    and keys are in_proj of nn.MultiheadAttention");
        else if (!g_.fused.empty())
            line("#   queries    and keys are the first two thirds of {}", g_.fused);
        else
            line("#   queries    {}, keys {}, heads {}", g_.query, g_.key, g_.heads);
        if (has_heads())
            line("#   logits     divided by the root of the columns of a head, or --scale X{}",
                 g_.causal ? "; causal, as the file speaks of it" : "");
        if (g_.tokens_first)
            line("#   axes       (tokens, samples, width): batch_first=True is not there");
    }

    void hook(std::string_view module, std::string_view kind, std::string_view arguments,
              std::string_view work) {
        line("    hooks.append({}.register_forward_{}hook(lambda m, args, {}i=i: {}))", module,
             kind, arguments, work);
    }
    void after(std::string_view module, std::string_view name) {
        hook(module, "", "out, ", fmt::format("keep(f\"{}\", out)", name));
    }
    void before(std::string_view module, std::string_view name) {
        hook(module, "pre_", "", fmt::format("keep(f\"{}\", args[0])", name));
    }
    void attention() {
        if (!has_heads()) return;
        const std::string module = "block." + g_.attention;
        if (g_.multihead) return hook(module, "pre_", "", "queries_and_keys(m, args, i)");
        const auto count = [&](const std::string& name) {
            return fmt::format("{}={}.{}", "n", module, name);
        };
        const auto projection = [&](const std::string& member, const std::string& name,
                                    const std::string& heads_of, std::string_view part) {
            hook(fmt::format("{}.{}", module, member), "", "out, " + count(heads_of) + ", ",
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
        after("block." + g_.attention, "sa.{i}");
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

    const Guess& g_;
    std::string file_, out_;
};

}  // namespace

int run_command(const TraceHookCommand& command) {
    std::optional<Guess> guess;
    if (!command.file.empty())
        guess = Guesser(file_text(command.file, "a Python source", longest_source)).guess();
    const std::string name = visible(std::filesystem::path(command.file).filename().string());
    const std::string text = HookWriter(guess.value_or(Guess()), name).text();
    print_json("trace-hook", Json().set("text", text));
    print(text);
    return 0;
}

}  // namespace tsdiag::cli
