#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "layouts.hpp"

/// Names and layouts of TensorFlow 1, as google-research/bert and google-research/albert have them:
/// variables of nested scopes, matrices (in, out).
namespace tsdiag::families {
namespace {

/// Variables of the optimizer and of mixed precision, beside each or at the top.
constexpr std::array optimizer_variables{
    "*/adam_m",          "*/adam_v",  "*/AdamWeightDecayOptimizer*",
    "*/lamb_m",          "*/lamb_v",  "global_step",
    "good_steps",        "bad_steps", "loss_scale",
    "current_loss_scale"};

bool is_tensorflow_bert(const Checkpoint& file) {
    return file.format() == "tensorflow" && file.has("bert/embeddings/word_embeddings");
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
    for (std::size_t at = 0; (at = text.find(from, at)) != text.npos; at += to.size())
        text.replace(at, from.size(), to);
}

struct Scope {
    std::string_view here, there;
};
/// Of ALBERT's scopes, in this order, what Hugging Face's modules are called.
constexpr std::array albert_scopes{
    Scope{"bert/", "albert/"},
    Scope{"ffn_1/intermediate/output/dense", "ffn_output"},
    Scope{"ffn_1/intermediate/dense", "ffn"},
    Scope{"/attention_1/self/", "/attention/"},
    Scope{"/attention_1/output/", "/attention/"},
    Scope{"LayerNorm_1/", "full_layer_layer_norm/"},
    Scope{"/encoder/transformer/", "/encoder/"},
    Scope{"group_", "albert_layer_groups/"},
    Scope{"cls/predictions/transform/", "predictions/"},
    Scope{"cls/predictions/", "predictions/"},
    Scope{"albert/pooler/dense/", "albert/pooler/"},
    Scope{"cls/seq_relationship/", "sop_classifier/classifier/"},
};

/// The path in Hugging Face's ALBERT.
std::string albert_path(std::string name) {
    const std::size_t inner = name.find("/inner_group_");
    const bool in_layer = inner != name.npos;
    // Its own norm is behind the attention; the others of that name are the embedding's and head's.
    if (in_layer) {
        const std::size_t norm = name.find("/LayerNorm/");
        if (norm != name.npos) name.replace(norm, 1, "/attention/");
        replace_all(name, "/inner_group_", "/albert_layers/");
    }
    for (const auto& [here, there] : albert_scopes) replace_all(name, here, there);
    return name;
}

/// layer_3 as layer.3, and scopes joined by dots.
std::string dotted(std::string_view name) {
    std::string out;
    while (!name.empty()) {
        const std::size_t slash = name.find('/');
        std::string part(name.substr(0, slash));
        constexpr std::string_view layer = "layer_";
        const bool digits =
            part.size() > layer.size() && std::all_of(part.begin() + layer.size(), part.end(),
                                                      [](char c) { return c >= '0' && c <= '9'; });
        if (part.starts_with(layer) && digits) part[layer.size() - 1] = '.';
        out += (out.empty() ? "" : ".") + part;
        name.remove_prefix(slash == name.npos ? name.size() : slash + 1);
    }
    return out;
}

std::string rename_tensorflow_bert(const Checkpoint& file, Relabelled& out, Json& config) {
    const bool albert = std::ranges::any_of(file.names(), [](const std::string& name) {
        return name.starts_with("bert/encoder/transformer/");
    });
    std::size_t left_out = 0;
    for (const std::string& name : file.names()) {
        if (std::ranges::any_of(optimizer_variables,
                                [&](const char* pattern) { return glob(pattern, name); })) {
            ++left_out;
            continue;
        }
        std::string there = dotted(albert ? albert_path(name) : name);
        const std::size_t dot = there.rfind('.') + 1;  // 0 where there is none
        const std::string before = there.substr(0, dot), last = there.substr(dot);
        View view;
        if (last == "kernel") {
            there = before + "weight";
            view.axes = {1, 0};
        } else if (last == "gamma" || last == "beta") {
            there = before + (last == "gamma" ? "weight" : "bias");
        } else if (last == "output_weights" || last == "output_bias") {
            // Of the heads: (labels, width), as PyTorch has it.
            there = (dot == 0 ? "classifier." : before) +
                    (last == "output_weights" ? "weight" : "bias");
        } else if (last.ends_with("_embeddings")) {
            there += ".weight";
        }
        out.add(std::move(there), name, std::move(view));
    }
    std::string note = fmt::format("names and layouts of TensorFlow's {}, read as those of PyTorch",
                                   albert ? "ALBERT" : "BERT");
    if (config["model_type"].is_null()) {
        config.set("model_type", albert ? "albert" : "bert");
        // Its authors' word: their code computed the error function when BERT was released, and the
        // approximation since, with which ALBERT was trained.
        const Json& said = config["hidden_act"];
        const bool gelu = said.is_string() && said.string() == "gelu";
        if (gelu && albert) config.set("hidden_act", "gelu_new");
        if (gelu)
            note += albert ? "; GELU by its approximation with tanh"
                           : "; GELU by the error function, as when BERT was released";
    }
    if (left_out > 0) note += fmt::format("; skipped {} variables of the optimizer", left_out);
    return note;
}

}  // namespace

const Layout tensorflow_bert = {"BERT in TensorFlow", is_tensorflow_bert, rename_tensorflow_bert};

}  // namespace tsdiag::families
