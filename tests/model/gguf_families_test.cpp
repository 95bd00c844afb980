#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>

#include "recorder.hpp"
#include "support/files.hpp"
#include "support/gguf_writer.hpp"

/// Every architecture of GGUF: a golden checkpoint as llama.cpp's converter would write it, by its
/// published description, gives the states of the original.
namespace tsdiag::test {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

struct Key {
    const char* here;   ///< behind "ARCHITECTURE."
    const char* there;  ///< of config.json
};

struct Case {
    const char* golden;
    const char* architecture;
    std::vector<Key> keys;
    /// What the original is changed to first, where GGUF cannot say it or the number is rounded.
    const char* changes = "{}";
    std::function<void(GgufWriter&, const Json&)> more = {};
    friend void PrintTo(const Case& c, std::ostream* out) { *out << c.golden; }
};

using Keys = std::vector<Key>;
Keys operator+(Keys a, const Keys& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}
const Keys sizes = {{"context_length", "max_position_embeddings"},
                    {"embedding_length", "hidden_size"},
                    {"block_count", "num_hidden_layers"},
                    {"feed_forward_length", "intermediate_size"},
                    {"attention.head_count", "num_attention_heads"},
                    {"attention.head_count_kv", "num_key_value_heads"},
                    {"rope.freq_base", "rope_theta"}},
           rms = {{"attention.layer_norm_rms_epsilon", "rms_norm_eps"}},
           layer_norm = {{"attention.layer_norm_epsilon", "layer_norm_eps"}},
           head_dim = {{"attention.key_length", "head_dim"},
                       {"attention.value_length", "head_dim"}},
           experts = {{"expert_used_count", "num_experts_per_tok"}, {"vocab_size", "vocab_size"}},
           gpt = {{"context_length", "n_positions"},
                  {"embedding_length", "n_embd"},
                  {"feed_forward_length", "n_inner"},
                  {"block_count", "n_layer"},
                  {"attention.head_count", "n_head"},
                  {"attention.layer_norm_epsilon", "layer_norm_epsilon"}},
           falcon = {{"context_length", "max_position_embeddings"},
                     {"embedding_length", "hidden_size"},
                     {"block_count", "num_hidden_layers"},
                     {"attention.head_count", "num_attention_heads"},
                     {"attention.head_count_kv", "num_kv_heads"},
                     {"attention.layer_norm_epsilon", "layer_norm_epsilon"}};

void turns(GgufWriter& file, const char* architecture, std::uint32_t columns) {
    file.number(std::string(architecture) + ".rope.dimension_count", columns);
}
void slides(GgufWriter& file, const std::string& key, const std::string& layers) {
    file.key(key, 9, little<std::uint32_t>(7) + little(std::uint64_t(layers.size())) + layers);
}

const Case cases[] = {
    {"llama", "llama", sizes + rms, R"({"max_position_embeddings": 16, "rope_scaling": null})"},
    {"mixtral", "llama", sizes + rms + experts + Keys{{"expert_count", "num_local_experts"}}},
    {"qwen2", "qwen2", sizes + rms},
    {"qwen3", "qwen3", sizes + rms + head_dim},
    {"qwen2-moe", "qwen2moe",
     sizes + rms + experts +
         Keys{{"expert_count", "num_experts"},
              {"expert_feed_forward_length", "moe_intermediate_size"},
              {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"}}},
    {"qwen3-moe", "qwen3moe",
     sizes + rms + head_dim + experts +
         Keys{{"expert_count", "num_experts"},
              {"expert_feed_forward_length", "moe_intermediate_size"}}},
    {"olmoe", "olmoe", sizes + rms + experts + Keys{{"expert_count", "num_experts"}}},
    {"gpt-oss", "gpt-oss",
     sizes + rms + head_dim + experts +
         Keys{{"expert_count", "num_local_experts"},
              {"expert_feed_forward_length", "intermediate_size"},
              {"attention.sliding_window", "sliding_window"}},
     "{}",
     [](GgufWriter& f, const Json& config) {
         const Json& rope = config["rope_scaling"];
         const std::string a = "gpt-oss.rope.scaling.";
         f.word(a + "type", "yarn");
         f.real(a + "factor", float(rope["factor"].number()));
         f.number(a + "original_context_length",
                  std::uint32_t(rope["original_max_position_embeddings"].integer()));
         f.real(a + "yarn_beta_fast", float(rope["beta_fast"].number()));
         f.real(a + "yarn_beta_slow", float(rope["beta_slow"].number()));
     }},
    {"olmo", "olmo", sizes, "{}",
     [](GgufWriter& f, const Json&) { f.real("olmo.attention.layer_norm_epsilon", 1e-5F); }},
    {"olmo2", "olmo2", sizes + rms},
    {"gemma", "gemma", sizes + rms + head_dim},
    {"gemma2", "gemma2",
     sizes + rms + head_dim +
         Keys{{"attn_logit_softcapping", "attn_logit_softcapping"},
              {"final_logit_softcapping", "final_logit_softcapping"},
              {"attention.sliding_window", "sliding_window"}},
     R"({"query_pre_attn_scalar": 6})"},
    {"gemma3", "gemma3",
     sizes + rms + head_dim +
         Keys{{"attention.sliding_window", "sliding_window"},
              {"rope.freq_base_swa", "rope_local_base_freq"}},
     R"({"query_pre_attn_scalar": 6})",
     [](GgufWriter& f, const Json&) {
         slides(f, "gemma3.attention.sliding_window_pattern", {1, 1, 0});
     }},
    {"phi",
     "phi2",
     {{"context_length", "max_position_embeddings"},
      {"embedding_length", "hidden_size"},
      {"block_count", "num_hidden_layers"},
      {"feed_forward_length", "intermediate_size"},
      {"attention.head_count", "num_attention_heads"},
      {"attention.head_count_kv", "num_attention_heads"},
      {"attention.layer_norm_epsilon", "layer_norm_eps"}},
     "{}",
     [](GgufWriter& f, const Json&) { turns(f, "phi2", 2); }},
    {"phi3", "phi3", sizes + rms + Keys{{"attention.sliding_window", "sliding_window"}}, "{}",
     [](GgufWriter& f, const Json&) {
         turns(f, "phi3", 4);
         f.number("phi3.rope.scaling.original_context_length", 16);
     }},
    {"phi3-longrope", "phi3", sizes + rms, "{}",
     [](GgufWriter& f, const Json& config) {
         turns(f, "phi3", 6);
         f.number("phi3.attention.sliding_window", 0);
         f.number("phi3.rope.scaling.original_context_length", 12);
         f.real("phi3.rope.scaling.attn_factor",
                float(std::sqrt(1 + std::log(96.0 / 12) / std::log(12.0))));
         for (const auto& [key, name] : {std::pair{"long_factor", "rope_factors_long.weight"},
                                         {"short_factor", "rope_factors_short.weight"}}) {
             std::vector<float> factors;
             for (const Json& one : config["rope_scaling"][key].array())
                 factors.push_back(float(one.number()));
             f.floats(name, {3}, factors);
         }
     }},
    {"granite", "granite",
     sizes + rms +
         Keys{{"attention.scale", "attention_multiplier"},
              {"embedding_scale", "embedding_multiplier"},
              {"residual_scale", "residual_multiplier"},
              {"logit_scale", "logits_scaling"}},
     "{}", [](GgufWriter& f, const Json&) { turns(f, "granite", 4); }},
    {"minicpm", "minicpm", sizes + rms + Keys{{"embedding_scale", "scale_emb"}}, "{}",
     [](GgufWriter& f, const Json&) {
         f.real("minicpm.residual_scale", 0.75F);
         f.real("minicpm.logit_scale", 4);
     }},
    {"smollm3", "smollm3", sizes + rms, R"({"no_rope_layers": null, "no_rope_layer_interval": 4})"},
    {"stablelm", "stablelm",
     sizes + layer_norm + Keys{{"use_parallel_residual", "use_parallel_residual"}}, "{}",
     [](GgufWriter& f, const Json&) { turns(f, "stablelm", 2); }},
    {"cohere", "command-r", sizes + layer_norm + Keys{{"logit_scale", "logit_scale"}}, "{}",
     [](GgufWriter& f, const Json&) { f.word("command-r.rope.scaling.type", "none"); }},
    {"cohere2", "cohere2",
     sizes + layer_norm +
         Keys{{"logit_scale", "logit_scale"}, {"attention.sliding_window", "sliding_window"}},
     "{}",
     [](GgufWriter& f, const Json&) {
         turns(f, "cohere2", 4);
         slides(f, "cohere2.attention.sliding_window_pattern", {1, 0});
     }},
    {"glm4", "glm4", sizes + rms + head_dim, "{}",
     [](GgufWriter& f, const Json&) { turns(f, "glm4", 2); }},
    {"bigcode", "starcoder", gpt, "{}",
     [](GgufWriter& f, const Json&) { f.number("starcoder.attention.head_count_kv", 1); }},
    {"falcon", "falcon", falcon, R"({"num_kv_heads": 1})",
     [](GgufWriter& f, const Json&) {
         f.word("falcon.tensor_data_layout", "jploski");
         f.number("falcon.feed_forward_length", 64);
     }},
    {"falcon-grouped", "falcon", falcon, "{}",
     [](GgufWriter& f, const Json&) { f.number("falcon.feed_forward_length", 64); }},
    {"bloom",
     "bloom",
     {{"context_length", "seq_length"},
      {"embedding_length", "hidden_size"},
      {"block_count", "n_layer"},
      {"attention.head_count", "n_head"},
      {"attention.head_count_kv", "n_head"},
      {"attention.layer_norm_epsilon", "layer_norm_epsilon"}},
     "{}",
     [](GgufWriter& f, const Json&) { f.number("bloom.feed_forward_length", 64); }},
    {"mpt",
     "mpt",
     {{"context_length", "max_seq_len"},
      {"embedding_length", "d_model"},
      {"block_count", "n_layers"},
      {"attention.head_count", "n_heads"},
      {"attention.layer_norm_epsilon", "layer_norm_epsilon"}},
     "{}",
     [](GgufWriter& f, const Json&) {
         f.number("mpt.feed_forward_length", 64);
         f.real("mpt.attention.max_alibi_bias", 8);
     }},
    {"internlm2", "internlm2", sizes + rms},
    {"bert",
     "bert",
     {{"context_length", "max_position_embeddings"},
      {"embedding_length", "hidden_size"},
      {"block_count", "num_hidden_layers"},
      {"feed_forward_length", "intermediate_size"},
      {"attention.head_count", "num_attention_heads"},
      {"attention.layer_norm_epsilon", "layer_norm_eps"}},
     "{}",
     [](GgufWriter& f, const Json&) {
         f.flag("bert.attention.causal", false);
         f.number("bert.pooling_type", 2);
         f.number("tokenizer.ggml.token_type_count", 2);
     }},
    {"distilbert",
     "bert",
     {{"context_length", "max_position_embeddings"},
      {"embedding_length", "dim"},
      {"block_count", "n_layers"},
      {"feed_forward_length", "hidden_dim"},
      {"attention.head_count", "n_heads"}},
     "{}",
     [](GgufWriter& f, const Json&) {
         f.real("bert.attention.layer_norm_epsilon", 1e-12F);
         f.number("tokenizer.ggml.token_type_count", 1);
         f.flag("bert.attention.causal", false);
     }},
    {"qwen3-rope-yarn", "qwen3", sizes + rms + head_dim,
     R"({"rope_scaling": {"rope_type": "yarn", "factor": 5.0, "beta_fast": 6.0, "beta_slow": 0.5,
         "original_max_position_embeddings": 64}})",
     [](GgufWriter& f, const Json&) {
         f.word("qwen3.rope.scaling.type", "yarn");
         f.real("qwen3.rope.scaling.factor", 5);
         f.number("qwen3.rope.scaling.original_context_length", 64);
         f.real("qwen3.rope.scaling.yarn_beta_fast", 6);
         f.real("qwen3.rope.scaling.yarn_beta_slow", 0.5F);
     }},
    {"llama-rope-yarn", "llama", sizes + rms, "{}",
     [](GgufWriter& f, const Json&) {
         f.word("llama.rope.scaling.type", "yarn");
         f.real("llama.rope.scaling.factor", 4);
         f.number("llama.rope.scaling.original_context_length", 64);
     }},
};

/// Stems behind the layer's number, and of the model as a whole.
const std::map<std::string, std::string> stems = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm"},
    {"lm_head", "output"},
    {"input_layernorm", "attn_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"block_sparse_moe.gate", "ffn_gate_inp"},
    {"block_sparse_moe.experts.E.w1", "ffn_gate_exps"},
    {"block_sparse_moe.experts.E.w2", "ffn_down_exps"},
    {"block_sparse_moe.experts.E.w3", "ffn_up_exps"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.experts.E.gate_proj", "ffn_gate_exps"},
    {"mlp.experts.E.down_proj", "ffn_down_exps"},
    {"mlp.experts.E.up_proj", "ffn_up_exps"},
    {"mlp.router", "ffn_gate_inp"},
    {"self_attn.sinks", "attn_sinks"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"post_self_attn_layernorm", "post_attention_norm"},
    {"post_mlp_layernorm", "post_ffw_norm"},
    {"final_layernorm", "output_norm"},
    {"self_attn.dense", "attn_output"},
    {"mlp.fc1", "ffn_up"},
    {"mlp.fc2", "ffn_down"},
    {"wte", "token_embd"},
    {"wpe", "position_embd"},
    {"ln_f", "output_norm"},
    {"ln_1", "attn_norm"},
    {"ln_2", "ffn_norm"},
    {"attn.c_attn", "attn_qkv"},
    {"attn.c_proj", "attn_output"},
    {"mlp.c_fc", "ffn_up"},
    {"mlp.c_proj", "ffn_down"},
    {"word_embeddings", "token_embd"},
    {"word_embeddings_layernorm", "token_embd_norm"},
    {"self_attention.query_key_value", "attn_qkv"},
    {"self_attention.dense", "attn_output"},
    {"mlp.dense_h_to_4h", "ffn_up"},
    {"mlp.dense_4h_to_h", "ffn_down"},
    {"ln_mlp", "attn_norm"},
    {"ln_attn", "attn_norm_2"},
    {"norm_f", "output_norm"},
    {"norm_1", "attn_norm"},
    {"norm_2", "ffn_norm"},
    {"attn.Wqkv", "attn_qkv"},
    {"attn.out_proj", "attn_output"},
    {"ffn.up_proj", "ffn_up"},
    {"ffn.down_proj", "ffn_down"},
    {"tok_embeddings", "token_embd"},
    {"output", "output"},
    {"attention_norm", "attn_norm"},
    {"ffn_norm", "ffn_norm"},
    {"attention.wqkv", "attn_qkv"},
    {"attention.wo", "attn_output"},
    {"feed_forward.w1", "ffn_gate"},
    {"feed_forward.w2", "ffn_down"},
    {"feed_forward.w3", "ffn_up"},
    {"position_embeddings", "position_embd"},
    {"token_type_embeddings", "token_types"},
    {"LayerNorm", "token_embd_norm"},
    {"attention.self.query", "attn_q"},
    {"attention.self.key", "attn_k"},
    {"attention.self.value", "attn_v"},
    {"attention.output.dense", "attn_output"},
    {"attention.output.LayerNorm", "attn_output_norm"},
    {"intermediate.dense", "ffn_up"},
    {"output.dense", "ffn_down"},
    {"output.LayerNorm", "layer_output_norm"},
    {"attention.q_lin", "attn_q"},
    {"attention.k_lin", "attn_k"},
    {"attention.v_lin", "attn_v"},
    {"attention.out_lin", "attn_output"},
    {"sa_layer_norm", "attn_output_norm"},
    {"ffn.lin1", "ffn_up"},
    {"ffn.lin2", "ffn_down"},
    {"output_layer_norm", "layer_output_norm"},
};

struct Place {
    std::string stem, suffix, layer;
    Index expert = -1;
};
Place place_of(std::string name) {
    Place out;
    out.suffix = name.substr(name.rfind('.'));
    name.resize(name.rfind('.'));
    for (bool again = true; again;) {
        again = false;
        for (const char* prefix :
             {"model.", "transformer.", "bert.", "distilbert.", "encoder.", "embeddings."})
            if (name.starts_with(prefix)) {
                name.erase(0, std::string_view(prefix).size());
                again = true;
            }
    }
    for (const std::string_view layers : {"layers.", "h.", "blocks.", "layer."})
        if (name.starts_with(layers)) {
            const std::size_t dot = name.find('.', layers.size());
            out.layer = name.substr(layers.size(), dot - layers.size());
            name.erase(0, dot + 1);
            break;
        }
    if (const std::size_t at = name.find("experts."); at != name.npos) {
        const std::size_t from = at + std::string_view("experts.").size(),
                          dot = name.find('.', from);
        out.expert = std::stoll(name.substr(from, dot - from));
        name.replace(from, dot - from, "E");
    }
    out.stem = name;
    return out;
}

struct Array {
    std::vector<Index> shape;
    std::vector<float> x;
};
/// Row r of the result is row `from[r]`.
Array rows_of(const Array& a, const std::vector<Index>& from) {
    Array out{a.shape, {}};
    const Index columns = Index(a.x.size()) / a.shape[0];
    out.shape[0] = std::ssize(from);
    for (const Index r : from)
        out.x.insert(out.x.end(), a.x.begin() + r * columns, a.x.begin() + (r + 1) * columns);
    return out;
}
/// Rows of each head so that the two that rotate together are neighbours.
Array paired(const Array& a, Index head) {
    std::vector<Index> from;
    for (Index first = 0; first < a.shape[0]; first += head)
        for (Index i = 0; i < head / 2; ++i)
            for (const Index half : {Index{0}, head / 2}) from.push_back(first + i + half);
    return rows_of(a, from);
}
/// The queries, keys or values of a tensor in groups.
Array part_of(const Array& a, const AttentionSpec& s, Index part) {
    std::vector<Index> from;
    const Index queries = s.heads / s.kv_heads;
    for (Index g = 0; g < s.kv_heads; ++g)
        for (Index r = 0; r < (part == 0 ? queries : 1) * s.head_dim; ++r)
            from.push_back((g * (queries + 2) + (part == 0 ? 0 : queries + part - 1)) * s.head_dim +
                           r);
    return rows_of(a, from);
}

/// Experts of gpt-oss one by one, as (out, in), under names that end as others do.
using Named = std::pair<std::string, Array>;
std::vector<Named> one_by_one(std::vector<Named> arrays) {
    std::vector<Named> out;
    for (auto& [name, a] : arrays) {
        const std::string_view stack = ".mlp.experts.";
        const std::size_t at = name.find(stack);
        if (name.ends_with(".sinks")) name += ".weight";
        if (at == name.npos || std::isdigit(std::uint8_t(name[at + stack.size()]))) {
            out.emplace_back(std::move(name), std::move(a));
            continue;
        }
        const bool bias = name.ends_with("_bias"), down = name.find("down") != name.npos;
        const Index inputs = bias ? 1 : a.shape[1], columns = a.shape.back();
        for (Index e = 0; e < a.shape[0]; ++e)
            for (const Index first : down ? std::vector<Index>{0} : std::vector<Index>{0, 1}) {
                const Index step = down ? 1 : 2;
                Array one{{columns / step}, {}};
                if (!bias) one.shape.push_back(inputs);
                for (Index c = first; c < columns; c += step)
                    for (Index i = 0; i < inputs; ++i)
                        one.x.push_back(a.x[std::size_t((e * inputs + i) * columns + c)]);
                const char* part = down ? "down_proj" : first == 0 ? "gate_proj" : "up_proj";
                out.emplace_back(name.substr(0, at + stack.size()) + std::to_string(e) + "." +
                                     part + (bias ? ".bias" : ".weight"),
                                 std::move(one));
            }
    }
    return out;
}

/// A golden checkpoint and what becomes of it.
class Converted {
  public:
    explicit Converted(const Case& c) : case_(c) {
        fs::create_directory(original());
        config_ = read_json(golden / c.golden / "config.json");
        const Json changes = Json::parse(c.changes, "changes");
        for (const auto& [key, value] : changes.object()) config_.set(key, value);
        if (std::string(c.golden) == "minicpm") config_.set("scale_depth", 0.75 * std::sqrt(3.0));
        write_file(original() / "config.json", config_.dump());
        const auto file = open_checkpoint(golden / c.golden);
        std::vector<NamedArray> kept;
        for (const std::string& name : file->names()) {
            const RawTensor raw = file->tensor(name);
            Array a{raw.shape, std::vector<float>(std::size_t(raw.count()))};
            widen(raw, std::span<float>(a.x));
            if (adds_one(name))  // so that 1 + w is exact
                for (float& w : a.x) w = std::round(w * 1024) / 1024;
            arrays_.emplace_back(name, std::move(a));
        }
        for (const auto& [name, a] : arrays_) kept.push_back({name, a.shape, a.x, {}});
        write_safetensors(original() / "model.safetensors", kept, Json());
        spec_ = Opened::from(original()).architecture.spec;
        convert();
    }

    fs::path original() const { return folder_.path() / "original"; }
    const ModelSpec& spec() const { return spec_; }
    const std::vector<std::string>& names() const { return names_; }
    const Keys& keys() const { return case_.keys; }

    /// The GGUF file without this key or tensor, and with what `change` adds.
    fs::path gguf(const std::string& without = "",
                  const std::function<void(GgufWriter&)>& change = {}) const {
        GgufWriter file;
        const std::string a = std::string(case_.architecture) + ".";
        file.word("general.architecture", case_.architecture);
        file.word("general.type", "model");
        file.texts("tokenizer.ggml.tokens", std::uint64_t(spec_.embedding.vocabulary));
        for (const auto& [here, there] : case_.keys) {
            const Json& value = config_[there];
            if (here == without || value.is_null()) continue;
            if (value.is_bool())
                file.flag(a + here, value.boolean());
            else if (value.is_integer())
                file.number(a + here, std::uint32_t(value.integer()));
            else
                file.real(a + here, float(value.number()));
        }
        if (case_.more) case_.more(file, config_);
        for (std::size_t i = 0; i < names_.size(); ++i)
            if (names_[i] != without) file.floats(names_[i], written_[i].shape, written_[i].x);
        if (change) change(file);
        write_file(folder_ / "m.gguf", file.bytes());
        return folder_ / "m.gguf";
    }

  private:
    bool is(std::initializer_list<std::string_view> architectures) const {
        return std::ranges::find(architectures, std::string_view(case_.architecture)) !=
               architectures.end();
    }
    bool adds_one(const std::string& name) const {
        return is({"gemma", "gemma2", "gemma3"}) && name.find("norm") != name.npos;
    }

    void add(const std::string& name, Array a) {
        const auto found = std::ranges::find(names_, name);
        if (found == names_.end()) {
            names_.push_back(name);
            written_.push_back(std::move(a));
            return;
        }
        Array& stack = written_[std::size_t(found - names_.begin())];
        stack.x.insert(stack.x.end(), a.x.begin(), a.x.end());
        ++stack.shape[0];
    }

    void convert() {
        const AttentionSpec& s = spec_.blocks.front().attention;
        arrays_ = one_by_one(std::move(arrays_));
        std::ranges::stable_sort(arrays_, {}, [](const auto& named) {
            return std::pair(place_of(named.first).expert, place_of(named.first).layer);
        });
        for (auto& [name, a] : arrays_) {
            if (name.find("pooler") != name.npos || name.starts_with("cls.") ||
                name.starts_with("vocab_"))
                continue;
            const Place p = place_of(name);
            ASSERT_TRUE(stems.contains(p.stem)) << name;
            std::string stem = stems.at(p.stem);
            if (p.stem == "post_attention_layernorm" &&
                is({"olmo2", "gemma2", "gemma3", "gpt-oss"}))
                stem = "post_attention_norm";
            const std::string before = p.layer.empty() ? "" : "blk." + p.layer + ".";
            if (adds_one(name))
                for (float& w : a.x) w += 1;
            const bool pairs = is({"llama", "olmo", "granite", "internlm2", "minicpm", "smollm3"});
            if (pairs && (stem == "attn_q" || stem == "attn_k")) a = paired(a, s.head_dim);
            if (stem == "ffn_gate_inp_shexp") a.shape = {a.shape[1]};
            if (p.expert >= 0) a.shape.insert(a.shape.begin(), 1);
            if (is({"internlm2"}) && stem == "attn_qkv") {
                for (const Index part : {0, 1, 2}) {
                    Array one = part_of(a, s, part);
                    if (part < 2) one = paired(one, s.head_dim);
                    add(before + std::array{"attn_q", "attn_k", "attn_v"}[std::size_t(part)] +
                            p.suffix,
                        one);
                }
                continue;
            }
            if (is({"falcon", "bloom"}) && stem == "attn_qkv") {
                Array all{a.shape, {}};
                for (const Index part : {0, 1, 2}) {
                    const Array one = part_of(a, s, part);
                    all.x.insert(all.x.end(), one.x.begin(), one.x.end());
                }
                a = all;
            }
            add(before + stem + p.suffix, a);
        }
    }

    TemporaryDirectory folder_;
    Case case_;
    Json config_;
    ModelSpec spec_;
    std::vector<Named> arrays_;
    std::vector<std::string> names_;
    std::vector<Array> written_;
};

struct Ran {
    std::string refusal;
    std::map<std::string, std::vector<double>> states;
    std::map<Index, std::vector<double>> attention;
    double scale = 0, cap = 0;
    std::vector<std::string> notes;

    bool same(const Ran& other) const {
        return states == other.states && attention == other.attention && scale == other.scale &&
               cap == other.cap;
    }
    bool notes_contain(const std::string& word) const {
        return std::ranges::any_of(
            notes, [&](const std::string& line) { return line.find(word) != std::string::npos; });
    }
};
Ran run(const fs::path& path, const ModelSpec& original, Type type = Type::f32) {
    Ran out;
    try {
        const Opened opened = Opened::from(path);
        const ModelSpec& s = opened.architecture.spec;
        Input input;
        constexpr Index tokens = 14;  // beyond the original length of phi3-longrope
        for (Index i = 0; i < fitting_tokens(original, tokens); ++i)
            input.ids.push_back((5 * i + 2) % original.embedding.vocabulary);
        Recorder seen;
        opened.model(type).run(std::span(&input, 1), seen);
        out.states = seen.states;
        out.attention = seen.matrix;
        out.scale = s.head.scale;
        out.cap = s.head.cap;
        out.notes = s.provenance.defaults;
        out.notes.insert(out.notes.end(), s.provenance.warnings.begin(),
                         s.provenance.warnings.end());
    } catch (const Error& error) {
        out.refusal = error.what();
    }
    return out;
}

class EveryGgufFamily : public testing::TestWithParam<Case> {};

TEST_P(EveryGgufFamily, GivesTheStatesOfItsSafetensors) {
    const Converted model(GetParam());
    for (const Type type : {Type::f32, Type::f64}) {
        const Ran a = run(model.original(), model.spec(), type),
                  b = run(model.gguf(), model.spec(), type);
        ASSERT_EQ(a.refusal, "");
        ASSERT_EQ(b.refusal, "");
        ASSERT_FALSE(a.states.empty());
        for (const auto& [stage, x] : a.states) EXPECT_EQ(x, b.states.at(stage)) << stage;
        EXPECT_EQ(a.attention, b.attention);
        EXPECT_EQ(a.scale, b.scale);
        EXPECT_EQ(a.cap, b.cap);
    }
}

TEST_P(EveryGgufFamily, WithoutATensorIsRefusedOrTheSame) {
    const Converted model(GetParam());
    const Ran whole = run(model.original(), model.spec());
    Index refused = 0;
    for (const std::string& name : model.names()) {
        const Ran found = run(model.gguf(name), model.spec());
        EXPECT_TRUE(!found.refusal.empty() || found.same(whole)) << "without " << name;
        refused += !found.refusal.empty();
    }
    EXPECT_GT(refused, 0);
}

TEST_P(EveryGgufFamily, WithoutAKeyIsRefusedOrTheSameOrSaysWhatItTook) {
    const Converted model(GetParam());
    const Ran whole = run(model.original(), model.spec());
    for (const auto& [here, there] : model.keys()) {
        const Ran found = run(model.gguf(here), model.spec());
        EXPECT_TRUE(!found.refusal.empty() || found.same(whole) || found.notes_contain(there))
            << "without " << here;
    }
}

TEST_P(EveryGgufFamily, RefusesWhatItDoesNotKnow) {
    const Converted model(GetParam());
    const std::string a = GetParam().architecture;
    const float one = 1;
    const auto refusal = [&](const std::function<void(GgufWriter&)>& change) {
        return run(model.gguf("", change), model.spec()).refusal;
    };
    for (const char* key : {"attention.temperature_scale", "expert_shared_count",
                            "nextn_predict_layers", "attention.clamp_kqv", "other"})
        EXPECT_THAT(refusal([&](GgufWriter& f) { f.number(a + "." + key, 2); }),
                    HasSubstr(a + "." + key));
    for (const char* tensor : {"blk.0.attn_sinks.weight", "blk.0.ffn_gate.0.weight", "cls.weight",
                               "token_embd.scales", "blk.0.attn_q.lora_a"})
        EXPECT_THAT(refusal([&](GgufWriter& f) { f.floats(tensor, {1}, std::span(&one, 1)); }),
                    HasSubstr(tensor));
    EXPECT_EQ(refusal([&](GgufWriter& f) {
                  for (const char* key : {"expert_group_count", "nextn_predict_layers",
                                          "attention.clamp_kqv", "expert_weights_scale"})
                      f.number(a + "." + key, 0);
                  f.number(a + ".expert_gating_func", a == "gpt-oss" ? 3 : 1);
              }),
              "");
}

INSTANTIATE_TEST_SUITE_P(Models, EveryGgufFamily, testing::ValuesIn(cases), [](const auto& info) {
    std::string name = info.param.golden;
    std::ranges::replace(name, '-', '_');
    return name;
});

}  // namespace
}  // namespace tsdiag::test
