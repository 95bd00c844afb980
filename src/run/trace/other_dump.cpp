#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "array_names.hpp"
#include "arrays.hpp"
#include "trace.hpp"

namespace tsdiag {
namespace {

/// What a file is where one of its names has such a part.
struct Sign {
    std::string_view part;
    enum Place { at_start, anywhere, at_end } place = anywhere;
    std::string_view what;
};

constexpr std::string_view merge = "; merge both (merge_and_unload) and save the result";
constexpr std::string_view of_lora =
    "is a LoRA adapter without its model, which an adapter_config.json beside "
    "adapter_model.safetensors names";
constexpr std::string_view parametrized =
    "has weights that torch.nn.utils computes from others; make them permanent (prune.remove, "
    "remove_weight_norm, parametrize.remove_parametrizations) and save the state_dict";

constexpr std::string_view of_halves =
    "is what an encoder-decoder returned, of which each half is a trace of its own; save one half "
    "as hidden_states.L and attentions.L";
constexpr std::string_view two_stacks =
    "looks like an encoder-decoder, whose decoder attends to another sequence, and no family is "
    "one; save the states and maps of a pass of one half as hidden_states.L and attentions.L";
constexpr std::string_view two_towers =
    "looks like the two towers of CLIP, or that of text, which no family is; pass --ignore "
    "'text_model.*' for that of images, or save the states and maps of a pass of one as "
    "hidden_states.L and attentions.L";
constexpr std::string_view other_towers =
    "looks like the two towers of CLIP under OpenAI's names, which no family has; save the states "
    "and maps of a pass of one as hidden_states.L and attentions.L";
constexpr std::string_view siglip = "the tower of images of SigLIP";
constexpr std::string_view megatron =
    "looks like a model of Megatron-LM, whose layout is not read; convert it to that of "
    "Transformers by Megatron's own tools, or save the states and maps of a pass as "
    "hidden_states.L and attentions.L";
constexpr std::string_view state_space =
    "looks like a state-space model (Mamba), which has no map of its tokens and which no family "
    "is; save the states of a pass as hidden_states.L";
constexpr std::string_view recurrent =
    "looks like a recurrent network, which has no map of its tokens and which no family is; save "
    "the states of a pass as hidden_states.L";
constexpr std::string_view t5 =
    "looks like T5 or the encoder of one, which no family is; save the states and maps of a pass "
    "as "
    "hidden_states.L and attentions.L";
constexpr std::string_view of_sound =
    "looks like wav2vec 2.0 or one of its kind (HuBERT, WavLM), whose input is sound, which no "
    "family takes; save the states and maps of a pass as hidden_states.L and attentions.L";
constexpr std::string_view whisper =
    "looks like the encoder of Whisper, whose input is sound, which no family takes; save the "
    "states and maps of a pass as hidden_states.L and attentions.L";
constexpr std::string_view of_tables =
    "looks like FT-Transformer, whose tokens are the columns of a table, which no family takes; "
    "save a trace of a pass (hidden_states.L) by the lines that tsdiag trace-hook prints";
constexpr std::string_view u_net =
    "looks like the U-Net or the autoencoder of a diffusion model, whose attention stands between "
    "convolutions and which no family is; save the states and maps of a pass as hidden_states.L "
    "and "
    "attentions.L";
constexpr std::string_view convolutional =
    "looks like a convolutional network, which no family is; save the states of a pass as "
    "hidden_states.L, a row for each position";

// The first that is found counts.
constexpr std::array signs{
    Sign{"encoder_hidden_states", Sign::at_start, of_halves},
    Sign{"decoder_hidden_states", Sign::at_start, of_halves},
    Sign{"reshaped_hidden_states", Sign::at_start,
         "holds states on a grid, with channels first; save hidden_states beside them, or "
         "x.flatten(2).transpose(1, 2) of each as hidden_states.L"},
    Sign{"blocks.0.hook_", Sign::at_start,
         "is a cache of TransformerLens; save blocks.L.hook_resid_pre as hidden_states.L, the last "
         "hook_resid_post behind them, and attn.hook_pattern as attentions.L"},
    Sign{"blocks.0.attn.hook_", Sign::at_start,
         "is a cache of TransformerLens; save blocks.L.attn.hook_pattern as attentions.L"},
    // Before what is said of the weights of its convolution of positions.
    Sign{"feature_extractor.conv_layers.", Sign::anywhere, of_sound},
    Sign{".base_layer.", Sign::anywhere,
         "is a model with an adapter that is not merged; save the result of merge_and_unload"},
    Sign{"._packed_params", Sign::anywhere,
         "is quantised by torch.ao.quantization, whose packed weights are not read; save the model "
         "before it was quantised"},
    Sign{"shadow_params.", Sign::at_start,
         "holds averaged parameters without their names (torch_ema); copy them into the model "
         "(ema.copy_to) and save its state_dict"},
    Sign{"decoder_blocks.", Sign::at_start,
         "looks like a masked autoencoder (MAE) with its decoder; pass --ignore 'decoder_*' "
         "--ignore mask_token to measure its encoder"},
    Sign{".mlp_tokens.", Sign::anywhere,
         "looks like an MLP-Mixer, which has no attention and which no family is; save the states "
         "of a pass as hidden_states.L"},
    Sign{"flat_param", Sign::anywhere,
         "holds the flat parameters of FSDP, which have no names; save a full state dict"},
    Sign{"parametrizations.", Sign::anywhere, parametrized},
    Sign{".weight_orig", Sign::at_end, parametrized},
    Sign{".weight_g", Sign::at_end, parametrized},
    Sign{".multihead_attn.in_proj_weight", Sign::anywhere,
         "has layers of torch.nn.TransformerDecoder, which attend to a memory that the file does "
         "not "
         "have; save the states and maps of a pass as hidden_states.L and attentions.L"},
    Sign{".EncDecAttention.", Sign::anywhere, two_stacks},   // T5
    Sign{".encoder_attn.", Sign::anywhere, two_stacks},      // BART, Marian, Whisper, fairseq
    Sign{".cross_attn.query.", Sign::anywhere, two_stacks},  // Whisper's own
    Sign{".SelfAttention.", Sign::anywhere, t5},
    Sign{"feature_tokenizer.", Sign::anywhere, of_tables},  // rtdl
    Sign{".attention.W_out.", Sign::anywhere, of_tables},   // its authors' other packages
    Sign{"down_blocks.", Sign::anywhere, u_net},            // of diffusers
    Sign{"input_blocks.", Sign::anywhere, u_net},           // of its authors
    Sign{"text_model.encoder.layers.", Sign::anywhere, two_towers},
    Sign{"transformer.resblocks.", Sign::anywhere, other_towers},  // OpenAI's and OpenCLIP's
    Sign{"language_model.encoder.layers.", Sign::anywhere, megatron},
    Sign{".self_attention.linear_qkv.", Sign::anywhere, megatron},
    Sign{".A_log", Sign::at_end, state_space},
    Sign{".time_mix_k", Sign::at_end, recurrent},      // RWKV
    Sign{".att.time_decay", Sign::at_end, recurrent},  // its later versions
    Sign{".att.x_r", Sign::at_end, recurrent},
    Sign{"weight_hh_l0", Sign::anywhere, recurrent},
};
/// Kinds of models that no family is, whose states and maps can be saved all the same.  Signs are
/// such that no model of a family has them.
constexpr std::array known_kinds{
    Sign{"emb_layer_norm_after", Sign::anywhere, "ESM, a model of proteins"},
    Sign{"rot_emb.inv_freq", Sign::at_end, "ESM, a model of proteins"},
    Sign{"attention.self.rotary_embeddings.inv_freq", Sign::at_end, "ESM, a model of proteins"},
    Sign{".src_attn.linears.", Sign::anywhere,
         "the Annotated Transformer, whose decoder attends to another sequence"},
    Sign{".attn.q_bias", Sign::at_end, "BEiT or EVA in timm"},
    Sign{"relative_position_bias.relative_position_bias_table", Sign::anywhere, "BEiT"},
    Sign{".cpb_mlp.", Sign::anywhere, "version 2 of Swin, whose logits are cosines"},
    Sign{".continuous_position_bias_mlp.", Sign::anywhere,
         "version 2 of Swin, whose logits are cosines"},
    Sign{"mask_decoder.", Sign::anywhere, "Segment Anything (SAM)"},
    Sign{"adaLN_modulation.", Sign::anywhere,
         "a diffusion transformer (DiT), whose layers the time of the noise steers"},
    Sign{"double_blocks.", Sign::anywhere, "a diffusion transformer of two streams (Flux)"},
    Sign{".attn.add_q_proj.", Sign::anywhere,
         "a diffusion transformer of two streams (Stable Diffusion 3, Flux)"},
    Sign{"vision_model.encoder.layers.", Sign::at_start, siglip},
    Sign{"embeddings.latents", Sign::anywhere, "Perceiver, whose latents attend to its inputs"},
    Sign{"attn_layers.layers.", Sign::anywhere,
         "a model of x-transformers, whose layers are what its script chose"},
    Sign{".sa.heads.0.", Sign::anywhere,
         "a GPT whose heads are modules of their own, as in lectures"},
    Sign{".query_global.", Sign::anywhere,
         "Longformer, whose tokens attend in a window and to global ones"},
    Sign{"x_position_embeddings", Sign::anywhere, "LayoutLM, whose tokens have places on a page"},
    Sign{"roformer.", Sign::at_start, "RoFormer"},
    Sign{".rel_attn.", Sign::anywhere, "XLNet"},
    Sign{"attentions.0.q_lin.", Sign::anywhere, "XLM or FlauBERT"},
    Sign{"tokens_embed.weight", Sign::at_end, "the first GPT, whose norms stand behind its steps"},
};
// All names have such a part.
constexpr std::array wholes{
    Sign{"lora_", Sign::anywhere, of_lora},
    Sign{"ia3_", Sign::anywhere, "is an IA3 adapter without its model"},
    Sign{"prompt_embeddings", Sign::anywhere, "is a prompt of prompt tuning without its model"},
};

bool has(const std::string& name, const Sign& sign) {
    return sign.place == Sign::at_start ? name.starts_with(sign.part)
           : sign.place == Sign::at_end ? name.ends_with(sign.part)
                                        : name.find(sign.part) != std::string::npos;
}

/// What a file without weights is by the names of its metadata, or of its arrays of integers; empty
/// where they do not tell.
std::string beside_a_model(const Checkpoint& file) {
    constexpr std::string_view pass = "; pass the checkpoint beside it";
    const Json& said = file.metadata();
    const auto is = [&](std::string_view what) { return std::string(what) + std::string(pass); };
    const Json& kind = said["__class__"];
    if (kind.is_string() && kind.string().find("TrainingArguments") != std::string::npos)
        return is("holds the arguments of a training, not a model");
    const std::vector<std::string>& names = file.names();
    const auto plain = [&](const std::string& name) {
        const RawTensor raw = file.tensor(name);
        return raw.dtype <= DType::i64 && raw.shape.size() <= 1;
    };
    if (names.empty()) {
        if (said.contains("param_groups"))
            return is("is the state of an optimiser, not of a model");
        if (said.contains("last_epoch")) return is("is the state of a schedule, not of a model");
        return {};
    }
    if (std::ranges::find(names, "input_ids") != names.end())
        return "is a batch of inputs, not a model or its states; save input_ids as .npy for "
               "--input ids:FILE";
    // Of PyTorch's generator on the CPU and of NumPy's.
    constexpr Index bytes = 5056, words = 624;
    const bool random = std::ranges::any_of(names, [&](const std::string& name) {
        const Index count = file.tensor(name).count();
        return count == bytes || count == words || name.find("rng") != std::string::npos;
    });
    if (random && std::ranges::all_of(names, plain))
        return is("holds states of generators of random numbers, not a model");
    return {};
}

/// What is wrong with arrays whose names are, or are meant for, those of maps or states; empty:
/// nothing.
std::string nearly_a_trace(const Checkpoint& file) {
    for (const std::string& name : file.names()) {
        const ArrayName read = read_array_name(name);
        const std::vector<std::int64_t> shape = file.tensor(name).shape;
        if (read.kind == "attentions" && read.layer && shape.size() == 2 && shape[0] == shape[1])
            return fmt::format(
                "holds '{}' {} without an axis of heads; save maps as (heads, tokens, tokens), "
                "P[None] "
                "of a single head",
                name, shape_text(shape));
        if (shape.size() >= 3 && has_rows_of_shares(file.tensor(name))) {
            const std::string layer = only_number(name);
            return fmt::format(
                "holds '{}', whose rows are nonnegative and sum to 1, as those of maps; name it "
                "attentions.{}, and states hidden_states.L",
                name, layer.empty() ? "L" : layer);
        }
        const std::string usual = usual_name(name);
        const bool maps = usual.starts_with("attentions."),
                   states = usual.starts_with("hidden_states.");
        if ((maps && shape.size() >= 3) || (states && shape.size() >= 2))
            return fmt::format("holds '{}', a name that is not read; name it {}", name, usual);
    }
    return {};
}

/// States or maps, of equal shapes, under names of modules with numbers.
bool are_outputs(const Checkpoint& file) {
    const std::vector<std::string>& names = file.names();
    if (names.size() < 2) return false;
    const auto shape = file.tensor(names.front()).shape;
    return shape.size() >= 2 && shape.size() <= 4 &&
           std::ranges::all_of(names, [&](const std::string& name) {
               return file.tensor(name).shape == shape &&
                      std::ranges::any_of(name,
                                          [](unsigned char c) { return std::isdigit(c) != 0; });
           });
}

/// Of models that no family is; empty: none of these.
std::string known_kind(const std::vector<std::string>& names) {
    const bool clip = std::ranges::any_of(
        names, [](const std::string& name) { return name.ends_with("pre_layrnorm.weight"); });
    for (const Sign& kind : known_kinds)
        if (!(clip && kind.what == siglip) &&
            std::ranges::any_of(names, [&](const std::string& name) { return has(name, kind); }))
            return fmt::format(
                "looks like {}, and no family is one; save the states and maps of a pass as "
                "hidden_states.L and attentions.L",
                kind.what);
    return {};
}

/// Tensors that lost the names of a model, in words; empty: none.
std::string_view without_names(const std::vector<std::string>& names) {
    constexpr std::size_t fewest = 8;  // a user's own few arrays may have any names
    if (names.size() < fewest) return {};
    const auto digits = [](const std::string& name) {
        return name.find_first_not_of("0123456789") == name.npos;
    };
    if (std::ranges::all_of(names, digits))
        return "holds a list of tensors without names; save the state_dict of the model";
    const bool dotted = std::ranges::any_of(
        names, [](const std::string& name) { return name.find('.') != name.npos; });
    const auto named_by_ema = [](const std::string& name) {
        return name.ends_with("weight") && !name.ends_with("_weight");
    };
    if (!dotted && std::ranges::count_if(names, named_by_ema) > 1)
        return "has names without dots, as an average of weights keeps them (LitEma); copy it into "
               "the model (ema.copy_to) and save its state_dict";
    return {};
}

/// Is a name one of an attention?
bool attends(const std::vector<std::string>& names) {
    return std::ranges::any_of(names, [](const std::string& name) {
        return name.find("attn") != name.npos || name.find("attention") != name.npos;
    });
}

/// Two convolutions over time before layers: Transformers' names and OpenAI's own.
bool hears(const Checkpoint& file) {
    constexpr std::string_view first = "conv1.weight";
    return std::ranges::any_of(file.names(), [&](const std::string& name) {
        if (!name.ends_with(first)) return false;
        const std::string before = name.substr(0, name.size() - first.size());
        return file.tensor(name).shape.size() == 3 && file.has(before + "conv2.weight") &&
               file.tensor(before + "conv2.weight").shape.size() == 3 &&
               (file.has(before + "layers.0.self_attn.q_proj.weight") ||
                file.has(before + "blocks.0.attn.query.weight"));
    });
}

/// Are most of its matrices kernels?
bool convolves(const Checkpoint& file) {
    Index matrices = 0, kernels = 0;
    for (const std::string& name : file.names()) {
        const std::size_t rank = file.tensor(name).shape.size();
        if (!name.ends_with(".weight") || rank < 2) continue;
        ++matrices;
        kernels += rank == 4;
    }
    return 2 * kernels > matrices;
}

}  // namespace

std::string other_dump(const Checkpoint& file) {
    const std::vector<std::string>& names = file.names();
    if (std::string what = beside_a_model(file); !what.empty() || names.empty()) return what;
    if (names.size() == 1 && (names.front() == "array" || names.front() == "tensor"))
        return fmt::format(
            "is one array {} without a name; save it by numpy.savez as hidden_states "
            "(layers, tokens, width) or as attentions (layers, heads, tokens, tokens)",
            shape_text(file.tensor(names.front()).shape));
    if (file.format().ends_with("TorchScript"))
        return "is a TorchScript archive, whose code is not run, and its tensors have the names of "
               "no known family; save the states and maps of a pass as hidden_states.L and "
               "attentions.L";
    for (const Sign& sign : wholes)
        if (std::ranges::all_of(names, [&](const std::string& name) { return has(name, sign); }))
            return std::string(sign.what) + std::string(merge);
    const bool has_maps = attends(names);
    for (const Sign& sign : signs) {
        // Layers of a hybrid, or behind a transformer.
        if (has_maps && (sign.what == state_space || sign.what == recurrent)) continue;
        if (std::ranges::any_of(names, [&](const std::string& name) { return has(name, sign); }))
            return std::string(sign.what);
    }
    if (hears(file)) return std::string(whisper);
    if (std::string what = known_kind(names); !what.empty()) return what;
    for (const std::string& name : names)
        if (const auto inner = inner_array(name))
            return fmt::format(
                "holds '{}', {} inside '{}'; save what is in it alone, one forward pass a "
                "file",
                name, inner->second == "attentions" ? "maps" : "states", inner->first);
    const auto named = [&](std::string_view one) {
        return std::ranges::find(names, one) != names.end();
    };
    if (named("last_hidden_state") || named("logits") ||
        std::ranges::any_of(names,
                            [](const auto& name) { return name.starts_with("past_key_values"); }))
        return "is what a model returned without its states and maps; call it with "
               "output_hidden_states=True and output_attentions=True";
    const auto any_ends = [&](std::string_view with) {
        return std::ranges::any_of(names, [&](const auto& name) { return name.ends_with(with); });
    };
    if (any_ends(".exp_avg") && !any_ends(".weight"))
        return "is the state of an optimiser, not of a model; pass the checkpoint beside it";
    if (std::string what = nearly_a_trace(file); !what.empty()) return what;
    if (are_outputs(file))
        return fmt::format(
            "holds {} arrays {} ('{}', ...) under names that do not tell what they are; "
            "name them hidden_states.L or attentions.L",
            names.size(), shape_text(file.tensor(names.front()).shape), names.front());
    if (const std::string_view what = without_names(names); !what.empty()) return std::string(what);
    if (std::ranges::all_of(names,
                            [&](const auto& name) { return file.tensor(name).count() == 0; }))
        return "holds empty tensors alone, as ZeRO-3 leaves them on each rank; gather them first "
               "(zero_to_fp32.py)";
    return !has_maps && convolves(file) ? std::string(convolutional) : std::string();
}

}  // namespace tsdiag
