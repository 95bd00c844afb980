#!/usr/bin/env python3
"""Tiny checkpoints of every family, each with the states that an independent forward computes.

    OPENBLAS_CORETYPE=SkylakeX nice python3 make_golden.py [CASE...]   # the variable: AVX-512 only

Needs Debian's python3-torch and python3-numpy.  Each CASE becomes a directory beside this script: a
model in its library's own file layout, with seeded random weights, and golden.npz with the input and
the float64 states of a plain forward over the weights as stored (rounded first where the file is
f16 or bf16, then widened).  manifest.json lists the cases.  Nothing here shares code with tsdiag:
the rules are those that each library's own modelling code follows.

The three layouts record the stages of one layer L under "layer.{L}.{stage}":

    post-norm   in, sa, attn = in + sa, norm1, ffn = norm1 + FFN(norm1), norm2, out
    pre-norm    in, norm1, sa, attn = in + sa, norm2, ffn = attn + FFN(norm2), out
    parallel    in, norm1, sa, norm2, ffn = in + sa + FFN(norm2), out

`sa` is the attention branch after output projection, its bias, and layer scale.
"""
import argparse
import collections
import enum
import json
import math
import os
import shutil
import struct
import sys
import types
import zlib

import numpy as np
import torch
import torch.nn.functional as F

import decoders
import encoders
import layouts

HERE = os.path.dirname(os.path.abspath(__file__))
INF = float("inf")


# ---------------------------------------------------------------------------------------------------
# Drawing weights

class Draw:
    """Seeded weights of one model, far enough from trivial that every term of the forward matters."""

    def __init__(self, name):
        self.generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        self.weights = collections.OrderedDict()

    def normal(self, *shape, mean=0.0, std=1.0):
        return mean + std * torch.randn(*shape, generator=self.generator)

    def put(self, name, *shape, mean=0.0, std=0.25):
        self.weights[name] = self.normal(*shape, mean=mean, std=std)

    def linear(self, name, inputs, outputs, bias=True):
        """nn.Linear: weight [out, in].  The scale keeps outputs of order one."""
        self.put(name + ".weight", outputs, inputs, std=min(0.3, 1.2 / math.sqrt(inputs)))
        if bias:
            self.put(name + ".bias", outputs, std=0.2)

    def conv1d(self, name, inputs, outputs):
        """GPT-2's Conv1D: weight [in, out]."""
        self.put(name + ".weight", inputs, outputs, std=min(0.3, 1.2 / math.sqrt(inputs)))
        self.put(name + ".bias", outputs, std=0.2)

    def norm(self, name, width, bias=True, gamma=".weight", beta=".bias"):
        self.put(name + gamma, width, mean=1.0, std=0.25)
        if bias:
            self.put(name + beta, width, std=0.2)

    def ids(self, count, vocabulary):
        return torch.randint(2, vocabulary, (count,), generator=self.generator)


# ---------------------------------------------------------------------------------------------------
# The pieces of a forward, all in float64

class Trace(collections.OrderedDict):
    def stage(self, layer, name, x):
        self[f"layer.{layer}.{name}"] = x
        return x


def widen(weights):
    return {name: t.double() if t.is_floating_point() else t for name, t in weights.items()}


def under(weights, prefix):
    """The weights below `prefix`, without it."""
    return {name[len(prefix):]: t for name, t in weights.items() if name.startswith(prefix)}


def gelu(x):
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def gelu_new(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def silu(x):
    return x * torch.sigmoid(x)


def affine(w, name, x):
    y = x @ w[name + ".weight"].t()
    return y + w[name + ".bias"] if name + ".bias" in w else y


def affine_conv1d(w, name, x):
    return x @ w[name + ".weight"] + w[name + ".bias"]


def layer_norm(w, name, x, eps):
    centred = x - x.mean(-1, keepdim=True)
    y = centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + eps) * w[name + ".weight"]
    return y + w[name + ".bias"] if name + ".bias" in w else y


def rms_norm(weight, x, eps):
    return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps))


def split_heads(x, heads):
    """(n, heads * hd) -> (heads, n, hd)."""
    n, width = x.shape
    return x.view(n, heads, width // heads).transpose(0, 1)


def join_heads(x):
    heads, n, hd = x.shape
    return x.transpose(0, 1).reshape(n, heads * hd)


def attend(q, k, v, scale, visible=None):
    """P = softmax(scale q k^T) where visible, 0 elsewhere.  Returns P (heads, n, n) and P v joined."""
    logits = scale * (q @ k.transpose(1, 2))
    if visible is not None:
        logits = logits.masked_fill(~visible, -INF)
    p = torch.softmax(logits, -1)
    return p, join_heads(p @ v)


def causal(n, window=None):
    """True where key j is visible to query i: j <= i, and i - window < j with a window."""
    i, j = torch.arange(n)[:, None], torch.arange(n)[None, :]
    seen = j <= i
    return seen if window is None else seen & (j > i - window)


def rotate(x, angles, length=1):
    """Rotary embedding, halves convention, on the first 2 * angles.shape[1] channels of x (h, n, hd)."""
    half = angles.shape[1]
    cos, sin = length * torch.cos(angles), length * torch.sin(angles)
    a, b, rest = x[..., :half], x[..., half:2 * half], x[..., 2 * half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


def post_norm(t, layer, x, attention, norm1, ffn, norm2):
    t.stage(layer, "in", x)
    p, sa = attention(x)
    t.stage(layer, "attentions", p)
    t.stage(layer, "sa", sa)
    y = t.stage(layer, "norm1", norm1(t.stage(layer, "attn", x + sa)))
    y = t.stage(layer, "norm2", norm2(t.stage(layer, "ffn", y + ffn(y))))
    return t.stage(layer, "out", y)


def pre_norm(t, layer, x, norm1, attention, norm2, ffn):
    t.stage(layer, "in", x)
    p, sa = attention(t.stage(layer, "norm1", norm1(x)))
    t.stage(layer, "attentions", p)
    t.stage(layer, "sa", sa)
    y = t.stage(layer, "attn", x + sa)
    z = t.stage(layer, "ffn", y + ffn(t.stage(layer, "norm2", norm2(y))))
    return t.stage(layer, "out", z)


def parallel(t, layer, x, norm1, attention, norm2, ffn):
    t.stage(layer, "in", x)
    p, sa = attention(t.stage(layer, "norm1", norm1(x)))
    t.stage(layer, "attentions", p)
    t.stage(layer, "sa", sa)
    z = t.stage(layer, "ffn", x + sa + ffn(t.stage(layer, "norm2", norm2(x))))
    return t.stage(layer, "out", z)


# ---------------------------------------------------------------------------------------------------
# Forwards.  `w` holds float64 weights under the names of the file.

def forward_bert(w, config, ids, prefix="bert.", mask=None):
    """BERT and RoBERTa.  Token types are all 0, as when none are given.

    Without `mask` every position is attended to, padding too: that is what the reference does when
    it gets ids alone.  With one (1 = keep), hidden keys have no weight; hidden queries still have rows.
    """
    w = {name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias"): t
         for name, t in under(w, prefix).items()}
    heads, eps = config["num_attention_heads"], config["layer_norm_eps"]
    scale = 1 / math.sqrt(config["hidden_size"] // heads)
    visible = None if mask is None else mask.bool()[None, None, :]
    t, n = Trace(ids=ids), len(ids)
    if mask is not None:
        t["mask"] = mask
    if config["model_type"] == "roberta":
        real = (ids != config["pad_token_id"]).long()
        positions = torch.cumsum(real, 0) * real + config["pad_token_id"]
    else:
        positions = torch.arange(n)
    e = "embeddings."
    x = w[e + "word_embeddings.weight"][ids] + w[e + "position_embeddings.weight"][positions] \
        + w[e + "token_type_embeddings.weight"][0]
    x = t["embed"] = layer_norm(w, e + "LayerNorm", x, eps)
    for layer in range(config["num_hidden_layers"]):
        l = under(w, f"encoder.layer.{layer}.")

        def attention(x):
            q, k, v = (split_heads(affine(l, "attention.self." + part, x), heads)
                       for part in ("query", "key", "value"))
            p, context = attend(q, k, v, scale, visible)
            return p, affine(l, "attention.output.dense", context)

        x = post_norm(t, layer, x, attention,
                      lambda x: layer_norm(l, "attention.output.LayerNorm", x, eps),
                      lambda x: affine(l, "output.dense", gelu(affine(l, "intermediate.dense", x))),
                      lambda x: layer_norm(l, "output.LayerNorm", x, eps))
    return t


def forward_albert(w, config, ids, prefix="albert."):
    """Embeddings and their norm in embedding_size, mapped to hidden_size.  Every applied sub-layer counts as a layer."""
    w = under(w, prefix)
    heads, eps = config["num_attention_heads"], config["layer_norm_eps"]
    act = {"gelu": gelu, "gelu_new": gelu_new}[config["hidden_act"]]
    scale = 1 / math.sqrt(config["hidden_size"] // heads)
    t, n = Trace(ids=ids), len(ids)
    e = "embeddings."
    x = w[e + "word_embeddings.weight"][ids] + w[e + "position_embeddings.weight"][:n] \
        + w[e + "token_type_embeddings.weight"][0]
    x = affine(w, "encoder.embedding_hidden_mapping_in", layer_norm(w, e + "LayerNorm", x, eps))
    t["embed"] = x
    applied = 0
    for i in range(config["num_hidden_layers"]):
        group = int(i / (config["num_hidden_layers"] / config["num_hidden_groups"]))
        for inner in range(config["inner_group_num"]):
            l = under(w, f"encoder.albert_layer_groups.{group}.albert_layers.{inner}.")

            def attention(x):
                q, k, v = (split_heads(affine(l, "attention." + part, x), heads)
                           for part in ("query", "key", "value"))
                p, context = attend(q, k, v, scale)
                return p, affine(l, "attention.dense", context)

            x = post_norm(t, applied, x, attention,
                          lambda x: layer_norm(l, "attention.LayerNorm", x, eps),
                          lambda x: affine(l, "ffn_output", act(affine(l, "ffn", x))),
                          lambda x: layer_norm(l, "full_layer_layer_norm", x, eps))
            applied += 1
    return t


def forward_distilbert(w, config, ids, prefix="distilbert."):
    w = under(w, prefix)
    heads, eps = config["n_heads"], 1e-12
    scale = 1 / math.sqrt(config["dim"] // heads)
    t, n = Trace(ids=ids), len(ids)
    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][:n]
    x = t["embed"] = layer_norm(w, "embeddings.LayerNorm", x, eps)
    for layer in range(config["n_layers"]):
        l = under(w, f"transformer.layer.{layer}.")

        def attention(x):
            q, k, v = (split_heads(affine(l, f"attention.{part}_lin", x), heads) for part in "qkv")
            p, context = attend(q, k, v, scale)
            return p, affine(l, "attention.out_lin", context)

        x = post_norm(t, layer, x, attention,
                      lambda x: layer_norm(l, "sa_layer_norm", x, eps),
                      lambda x: affine(l, "ffn.lin2", gelu(affine(l, "ffn.lin1", x))),
                      lambda x: layer_norm(l, "output_layer_norm", x, eps))
    return t


def forward_gpt2(w, config, ids, prefix="", product=affine_conv1d, act=gelu_new):
    """GPT-2 with Conv1D weights; nanoGPT is the same with nn.Linear weights and the exact GELU."""
    w = under(w, prefix)
    heads, eps, n = config["n_head"], config.get("layer_norm_epsilon", 1e-5), len(ids)
    t = Trace(ids=ids)
    x = t["embed"] = w["wte.weight"][ids] + w["wpe.weight"][:n]
    for layer in range(config["n_layer"]):
        l = under(w, f"h.{layer}.")
        scale = 1 / math.sqrt(config["n_embd"] // heads)
        if config.get("scale_attn_by_inverse_layer_idx"):
            scale /= layer + 1

        def attention(x):
            q, k, v = (split_heads(part, heads) for part in product(l, "attn.c_attn", x).chunk(3, -1))
            p, context = attend(q, k, v, scale, causal(n))
            return p, product(l, "attn.c_proj", context)

        x = pre_norm(t, layer, x, lambda x: layer_norm(l, "ln_1", x, eps), attention,
                     lambda x: layer_norm(l, "ln_2", x, eps),
                     lambda x: product(l, "mlp.c_proj", act(product(l, "mlp.c_fc", x))))
    t["final_norm"] = layer_norm(w, "ln_f", x, eps)
    return t


def forward_gpt_neo(w, config, ids, prefix="transformer."):
    """Logits are NOT divided by sqrt(hd).  A local layer sees the window_size last keys, itself included."""
    w = under(w, prefix)
    heads, eps, n = config["num_heads"], config["layer_norm_epsilon"], len(ids)
    kinds = [kind for pattern, times in config["attention_types"] for _ in range(times) for kind in pattern]
    t = Trace(ids=ids)
    x = t["embed"] = w["wte.weight"][ids] + w["wpe.weight"][:n]
    for layer in range(config["num_layers"]):
        l = under(w, f"h.{layer}.")
        visible = causal(n, config["window_size"] if kinds[layer] == "local" else None)

        def attention(x):
            q, k, v = (split_heads(affine(l, f"attn.attention.{part}_proj", x), heads) for part in "qkv")
            p, context = attend(q, k, v, 1.0, visible)
            return p, affine(l, "attn.attention.out_proj", context)

        x = pre_norm(t, layer, x, lambda x: layer_norm(l, "ln_1", x, eps), attention,
                     lambda x: layer_norm(l, "ln_2", x, eps),
                     lambda x: affine(l, "mlp.c_proj", gelu_new(affine(l, "mlp.c_fc", x))))
    t["final_norm"] = layer_norm(w, "ln_f", x, eps)
    return t


def forward_transformer_xl(w, config, ids, prefix="transformer.", memory=0):
    """Dai et al. (2019), section 3.3: logits (q_i + u) k_j + (q_i + v) W_R R_(i-j), term by term.  The first `memory`
    tokens are a segment of their own, whose layer inputs the others attend to besides their own."""
    w = under(w, prefix)
    heads, hd, eps, d = config["n_head"], config["d_head"], config["layer_norm_epsilon"], config["d_model"]
    bounds = [0] + config["cutoffs"] + [config["vocab_size"]]
    window = config["mem_len"] if config["same_length"] else INF

    def embed(token):
        if config["div_val"] == 1:
            return w["word_emb.emb_layers.0.weight"][token]
        i = next(i for i in range(len(bounds)) if token < bounds[i + 1])
        return w[f"word_emb.emb_projs.{i}"] @ w[f"word_emb.emb_layers.{i}.weight"][token - bounds[i]]

    def sinusoids(distance):
        if config["clamp_len"] > 0:
            distance = min(distance, config["clamp_len"])
        angles = distance / 10000 ** (torch.arange(0, d, 2).double() / d)
        return torch.cat([angles.sin(), angles.cos()])

    def biases(l):
        own = l if config["untie_r"] else w
        return tuple(own[("dec_attn." if config["untie_r"] else "") + name] for name in ("r_w_bias", "r_r_bias"))

    def attend_to(l, x, before):
        """`before`: the states in front of x, normed as x is."""
        keys, m = torch.cat([before, x]), len(before)
        wq, wk, wv = l["dec_attn.qkv_net.weight"].chunk(3)
        q, k, v = split_heads(x @ wq.t(), heads), split_heads(keys @ wk.t(), heads), split_heads(keys @ wv.t(), heads)
        content, position = biases(l)
        p = torch.zeros(heads, len(x), len(keys)).double()
        for i in range(len(x)):
            seen = [j for j in range(m + i + 1) if m + i - j < window]
            for h in range(heads):
                s = [(q[h, i] + content[h]) @ k[h, j] + (q[h, i] + position[h])
                     @ (l["dec_attn.r_net.weight"] @ sinusoids(m + i - j)).view(heads, hd)[h] for j in seen]
                p[h, i, seen] = torch.softmax(torch.stack(s) / math.sqrt(hd), 0)
        return p, join_heads(p @ v) @ l["dec_attn.o_net.weight"].t()

    t = Trace(ids=ids)
    x = math.sqrt(d) * torch.stack([embed(int(token)) for token in ids])
    before, x = x[:memory], x[memory:]
    t["embed"] = x
    for layer in range(config["n_layer"]):
        l = under(w, f"layers.{layer}.")
        norm1 = lambda x: layer_norm(l, "dec_attn.layer_norm", x, eps)
        norm2 = lambda x: layer_norm(l, "pos_ff.layer_norm", x, eps)
        ffn = lambda x: affine(l, "pos_ff.CoreNet.3", torch.relu(affine(l, "pos_ff.CoreNet.0", x)))
        none = torch.zeros(0, d).double()

        def apply(t, x, before):
            if config["pre_lnorm"]:
                return pre_norm(t, layer, x, norm1, lambda x: attend_to(l, x, norm1(before) if len(before) else none),
                                norm2, ffn)
            return post_norm(t, layer, x, lambda x: attend_to(l, x, before), norm1, ffn, norm2)

        x, before = apply(t, x, before), apply(Trace(), before, none) if memory else before
    return t


def forward_gpt_neox(w, config, ids, prefix="gpt_neox."):
    """q, k, v interleaved per head; the first int(hd * rotary_pct) channels rotate."""
    w = under(w, prefix)
    heads, eps, n = config["num_attention_heads"], config["layer_norm_eps"], len(ids)
    hd = config["hidden_size"] // heads
    rotary = int(hd * config["rotary_pct"])
    inverse = config["rotary_emb_base"] ** (-torch.arange(0, rotary, 2).double() / rotary)
    angles = torch.arange(n).double()[:, None] * inverse
    t = Trace(ids=ids)
    x = t["embed"] = w["embed_in.weight"][ids]
    block = parallel if config["use_parallel_residual"] else pre_norm
    for layer in range(config["num_hidden_layers"]):
        l = under(w, f"layers.{layer}.")

        def attention(x):
            qkv = affine(l, "attention.query_key_value", x).view(n, heads, 3, hd)
            q, k, v = (qkv[:, :, part].transpose(0, 1) for part in range(3))
            p, context = attend(rotate(q, angles), rotate(k, angles), v, 1 / math.sqrt(hd), causal(n))
            return p, affine(l, "attention.dense", context)

        x = block(t, layer, x, lambda x: layer_norm(l, "input_layernorm", x, eps), attention,
                  lambda x: layer_norm(l, "post_attention_layernorm", x, eps),
                  lambda x: affine(l, "mlp.dense_4h_to_h", gelu(affine(l, "mlp.dense_h_to_4h", x))))
    t["final_norm"] = layer_norm(w, "final_layer_norm", x, eps)
    return t


def inverse_frequencies(config, hd, n):
    """Rotary frequencies (hd/2) under config["rope_scaling"], for an input of n tokens."""
    base = config["rope_theta"]
    scaling = config.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "dynamic":
        # Length and reference length as in the reference: positions of this input, and
        # max_position_embeddings; below it nothing changes.
        factor, reference = scaling["factor"], config["max_position_embeddings"]
        if n > reference:
            base *= (factor * n / reference - (factor - 1)) ** (hd / (hd - 2))
    f = base ** (-torch.arange(0, hd, 2).double() / hd)
    if kind == "linear":
        f = f / scaling["factor"]
    if kind == "llama3":
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        reference, scaled = scaling["original_max_position_embeddings"], []
        for value in f.tolist():
            wavelength = 2 * math.pi / value
            if wavelength < reference / high:
                scaled.append(value)
            elif wavelength > reference / low:
                scaled.append(value / scaling["factor"])
            else:
                s = (reference / wavelength - low) / (high - low)
                scaled.append((1 - s) * value / scaling["factor"] + s * value)
        f = torch.tensor(scaled, dtype=torch.float64)
    if kind == "yarn":                                        # arXiv 2309.00071: by the turns of each pair, as a mask of pairs
        length = scaling.get("original_max_position_embeddings") or config["max_position_embeddings"]
        pair = [hd * math.log(length / (2 * math.pi * scaling.get(key, default))) / (2 * math.log(base))
                for key, default in (("beta_fast", 32), ("beta_slow", 1))]
        if scaling.get("truncate", True):
            pair = [math.floor(pair[0]), math.ceil(pair[1])]
        first, last = max(pair[0], 0), min(pair[1], hd - 1)
        kept = torch.tensor([min(max((last - i) / ((last - first) or 0.001), 0), 1) for i in range(hd // 2)], dtype=torch.float64)
        f = kept * f + (1 - kept) * f / scaling["factor"]
    if kind in ("longrope", "su"):
        far = n > config["original_max_position_embeddings"]
        f = f / torch.tensor(scaling["long_factor" if far else "short_factor"], dtype=torch.float64)
    return f


def stretch(config):
    """What the scaling multiplies cos and sin by."""
    scaling = config.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind not in ("yarn", "longrope", "su") or "attention_factor" in scaling:
        return scaling.get("attention_factor", 1.0)
    if kind != "yarn":
        before = config["original_max_position_embeddings"]
        return math.sqrt(1 + math.log(config["max_position_embeddings"] / before, before))
    one, other = (0.1 * m * math.log(scaling["factor"]) + 1
                  for m in ((scaling["mscale"], scaling["mscale_all_dim"]) if "mscale" in scaling else (1, 0)))
    return one / other


def forward_llama(w, config, ids, prefix="model."):
    """LLaMA, Mistral (sliding window), Qwen2 (q, k, v biases), Qwen3 (q and k norms before rotation)."""
    w = under(w, prefix)
    heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
    hd = config.get("head_dim") or config["hidden_size"] // heads
    eps, n = config["rms_norm_eps"], len(ids)
    angles = torch.arange(n).double()[:, None] * inverse_frequencies(config, hd, n)
    window = config.get("sliding_window") if config.get("use_sliding_window", True) else None
    t = Trace(ids=ids)
    x = t["embed"] = w["embed_tokens.weight"][ids]
    for layer in range(config["num_hidden_layers"]):
        l = under(w, f"layers.{layer}.")

        def attention(x):
            q = split_heads(affine(l, "self_attn.q_proj", x), heads)
            k = split_heads(affine(l, "self_attn.k_proj", x), groups)
            v = split_heads(affine(l, "self_attn.v_proj", x), groups)
            if "self_attn.q_norm.weight" in l:
                q = rms_norm(l["self_attn.q_norm.weight"], q, eps)
                k = rms_norm(l["self_attn.k_norm.weight"], k, eps)
            q, k = rotate(q, angles, stretch(config)), rotate(k, angles, stretch(config))
            k, v = (part.repeat_interleave(heads // groups, 0) for part in (k, v))
            p, context = attend(q, k, v, 1 / math.sqrt(hd), causal(n, window))
            return p, affine(l, "self_attn.o_proj", context)

        x = pre_norm(t, layer, x, lambda x: rms_norm(l["input_layernorm.weight"], x, eps), attention,
                     lambda x: rms_norm(l["post_attention_layernorm.weight"], x, eps),
                     lambda x: affine(l, "mlp.down_proj",
                                      silu(affine(l, "mlp.gate_proj", x)) * affine(l, "mlp.up_proj", x)))
    t["final_norm"] = rms_norm(w["norm.weight"], x, eps)
    return t


def conv_patches(w, name, image):
    """Patches of image (c, height, width) by a convolution with stride = kernel, row by row: (N, d)."""
    kernel = w[name + ".weight"]
    y = F.conv2d(image[None], kernel, w[name + ".bias"], stride=kernel.shape[-1])
    return y[0].flatten(1).t()


def forward_vit(w, config, image, prefix, act=gelu):
    """HF ViT and DeiT: cls (and distillation) token first, then positions.  The image comes normalised."""
    w = under(w, prefix)
    heads, eps = config["num_attention_heads"], config["layer_norm_eps"]
    scale = 1 / math.sqrt(config["hidden_size"] // heads)
    t = Trace(image=image)
    first = [w["embeddings." + name][0] for name in ("cls_token", "distillation_token") if "embeddings." + name in w]
    x = torch.cat(first + [conv_patches(w, "embeddings.patch_embeddings.projection", image)])
    x = t["embed"] = x + w["embeddings.position_embeddings"][0]
    for layer in range(config["num_hidden_layers"]):
        l = under(w, f"encoder.layer.{layer}.")

        def attention(x):
            q, k, v = (split_heads(affine(l, "attention.attention." + part, x), heads)
                       for part in ("query", "key", "value"))
            p, context = attend(q, k, v, scale)
            return p, affine(l, "attention.output.dense", context)

        x = pre_norm(t, layer, x, lambda x: layer_norm(l, "layernorm_before", x, eps), attention,
                     lambda x: layer_norm(l, "layernorm_after", x, eps),
                     lambda x: affine(l, "output.dense", act(affine(l, "intermediate.dense", x))))
    t["final_norm"] = layer_norm(w, "layernorm", x, eps)
    return t


def forward_timm(w, layers, heads, image):
    """timm's ViT: eps 1e-6; q and k norms are LayerNorms over hd; layer scales multiply the branches."""
    eps = 1e-6
    t = Trace(image=image)
    first = [w[name][0] for name in ("cls_token", "dist_token") if name in w]
    x = torch.cat(first + [conv_patches(w, "patch_embed.proj", image)])
    x = t["embed"] = x + w["pos_embed"][0]
    for layer in range(layers):
        l = under(w, f"blocks.{layer}.")

        def attention(x):
            q, k, v = (split_heads(part, heads) for part in affine(l, "attn.qkv", x).chunk(3, -1))
            if "attn.q_norm.weight" in l:
                q, k = layer_norm(l, "attn.q_norm", q, eps), layer_norm(l, "attn.k_norm", k, eps)
            p, context = attend(q, k, v, 1 / math.sqrt(q.shape[-1]))
            return p, affine(l, "attn.proj", context) * l.get("ls1.gamma", 1.0)

        x = pre_norm(t, layer, x, lambda x: layer_norm(l, "norm1", x, eps), attention,
                     lambda x: layer_norm(l, "norm2", x, eps),
                     lambda x: affine(l, "mlp.fc2", gelu(affine(l, "mlp.fc1", x))) * l.get("ls2.gamma", 1.0))
    t["final_norm"] = layer_norm(w, "norm", x, eps)
    return t


def batch_norm(w, name, x):
    """In inference, over the channels of x (c, height, width)."""
    scale = w[name + ".weight"] / torch.sqrt(w[name + ".running_var"] + 1e-5)
    shift = w[name + ".bias"] - w[name + ".running_mean"] * scale
    return x * scale[:, None, None] + shift[:, None, None]


def fourier_positions(rows, cols):
    """XCiT: (rows cols, 64), the row's 32 columns first; a place counts from 1, as a share of its axis, times 2 pi."""
    def waves(count):
        place = torch.arange(1, count + 1).double() / (count + 1e-6) * 2 * math.pi
        angle = place[:, None] / 10000.0 ** (torch.arange(16).double() / 16)
        return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
    return torch.cat([waves(rows)[:, None].expand(rows, cols, 32), waves(cols)[None].expand(rows, cols, 32)], -1).flatten(0, 1)


def forward_xcit(w, layers, heads, image, tokens_norm):
    """XCiT, arXiv 2106.09681: equation (2) for the attention, 3.3 for the local interaction, 3.4 for class attention (CaiT);
    the order of the steps, eps and positions of the authors' code.  P is (h, dh, dh): row c mixes the channels of V."""
    eps, t, x = 1e-6, Trace(image=image), image
    stem = sorted({int(name.split(".")[2]) for name in w if name.startswith("patch_embed.proj.")})
    for at in stem:
        x = x if at == 0 else gelu(x)
        x = batch_norm(w, f"patch_embed.proj.{at}.1", F.conv2d(x[None], w[f"patch_embed.proj.{at}.0.weight"], stride=2, padding=1)[0])
    d, rows, cols = x.shape
    x = x.flatten(1).t()
    positions = next(name[:-len(".weight")] for name in w if name.endswith("token_projection.weight"))
    kernel = w[positions + ".weight"]
    x = t["embed"] = x + fourier_positions(rows, cols) @ kernel.flatten(1).t() + w[positions + ".bias"]
    for layer in range(layers):
        l = under(w, f"blocks.{layer}.")
        t.stage(layer, "in", x)
        y = t.stage(layer, "norm1", layer_norm(l, "norm1", x, eps))
        q, k, v = (split_heads(part, heads) for part in affine(l, "attn.qkv", y).chunk(3, -1))        # (h, n, dh)
        q, k = (part / part.pow(2).sum(-2, keepdim=True).sqrt() for part in (q, k))                   # columns of length 1
        p = torch.softmax(torch.einsum("hna,hnb->hab", q, k) * l["attn.temperature"], -1)
        t.stage(layer, "attentions", p)
        out = torch.einsum("hab,hnb->hna", p, v)
        sa = t.stage(layer, "sa", l["gamma1"] * affine(l, "attn.proj", join_heads(out)))
        x = t.stage(layer, "attn", x + sa)
        y = t.stage(layer, "norm3", layer_norm(l, "norm3", x, eps))
        y = y.t().reshape(d, rows, cols)
        y = F.conv2d(y[None], l["local_mp.conv1.weight"], l["local_mp.conv1.bias"], padding=1, groups=d)[0]
        y = batch_norm(l, "local_mp.bn", gelu(y))
        y = F.conv2d(y[None], l["local_mp.conv2.weight"], l["local_mp.conv2.bias"], padding=1, groups=d)[0]
        x = t.stage(layer, "local", x + l["gamma3"] * y.flatten(1).t())
        y = t.stage(layer, "norm2", layer_norm(l, "norm2", x, eps))
        x = t.stage(layer, "ffn", x + l["gamma2"] * affine(l, "mlp.fc2", gelu(affine(l, "mlp.fc1", y))))
        t.stage(layer, "out", x)
    x = torch.cat([w["cls_token"][0], x])
    at = 0
    while f"cls_attn_blocks.{at}.norm1.weight" in w:
        l = under(w, f"cls_attn_blocks.{at}.")
        y = layer_norm(l, "norm1", x, eps)
        q, k, v = affine(l, "attn.qkv", y).chunk(3, -1) if "attn.qkv.weight" in l else (affine(l, "attn." + s, y) for s in "qkv")
        _, context = attend(split_heads(q[:1], heads), split_heads(k, heads), split_heads(v, heads), 1 / math.sqrt(d // heads))
        x = x + l["gamma1"] * torch.cat([affine(l, "attn.proj", context), y[1:]])
        x = torch.cat([layer_norm(l, "norm2", x[:1], eps), layer_norm(l, "norm2", x[1:], eps) if tokens_norm else x[1:]])
        x = x + torch.cat([l["gamma2"] * affine(l, "mlp.fc2", gelu(affine(l, "mlp.fc1", x[:1]))), x[1:]])
        at += 1
    t.stage(layers - 1, "class", x)
    t["final_norm"] = layer_norm(w, "norm", x, eps)
    return t


def windows_of(grid, side):
    """(rows, cols, ...) -> (windows, side^2, ...), as the authors' window_partition."""
    rows, cols = grid.shape[:2]
    parts = grid.view(rows // side, side, cols // side, side, *grid.shape[2:]).transpose(1, 2)
    return parts.reshape(-1, side * side, *grid.shape[2:])


def window_labels(rows, cols, side, shift):
    """The authors' regions of the shifted grid: attention between different ones is masked by -100."""
    labels, count = torch.zeros(rows, cols), 0
    for down in (slice(0, -side), slice(-side, -shift), slice(-shift, None)) if shift else (slice(None),):
        for right in (slice(0, -side), slice(-side, -shift), slice(-shift, None)) if shift else (slice(None),):
            labels[down, right] = count
            count += 1
    return windows_of(labels, side)


def window_index(side):
    """The authors' relative_position_index."""
    at = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")).flatten(1)
    apart = (at[:, :, None] - at[:, None, :] + side - 1).permute(1, 2, 0)
    return apart[..., 0] * (2 * side - 1) + apart[..., 1]


def forward_swin(w, depths, heads, window, image, patch, names):
    """Swin, arXiv 2103.14030, step by step as its authors' code: roll, windows, masked softmax, roll back; a stage's end merges
    patches.  `names`: of the file, see make_swin.  P (heads, n, n) has the tokens window by window, and in a window region by
    region, where it is block-diagonal but for entries of exp(-100)."""
    eps, t = 1e-5, Trace(image=image)
    x = F.conv2d(image[None], w[names["patch"] + ".weight"], w[names["patch"] + ".bias"], stride=patch)[0]
    rows, cols = x.shape[1:]
    x = t["embed"] = layer_norm(w, names["embed_norm"], x.flatten(1).t(), eps)
    layer = 0
    for stage, depth in enumerate(depths):
        side = min(window, rows, cols)
        for block in range(depth):
            l = under(w, names["block"].format(stage, block))
            shift = side // 2 if block % 2 == 1 and min(rows, cols) > side else 0
            h, d = heads[stage], x.shape[1]
            t.stage(layer, "in", x)
            y = t.stage(layer, "norm1", layer_norm(l, names["norm1"], x, eps))
            y = windows_of(torch.roll(y.view(rows, cols, d), (-shift, -shift), (0, 1)), side)      # (windows, side^2, d)
            if "qkv" in names:
                q, k, v = affine(l, names["qkv"], y).chunk(3, -1)
            else:
                q, k, v = (affine(l, names[part], y) for part in ("query", "key", "value"))
            q, k, v = (part.view(len(y), side * side, h, d // h).transpose(1, 2) for part in (q, k, v))
            bias = l[names["table"]][window_index(side).view(-1)].view(side * side, side * side, h).permute(2, 0, 1)
            labels = window_labels(rows, cols, side, shift)
            mask = (labels[:, None, :] != labels[:, :, None]) * -100.0
            p = torch.softmax(q @ k.transpose(-2, -1) / math.sqrt(d // h) + bias + mask[:, None], -1)
            out = affine(l, names["proj"], (p @ v).transpose(1, 2).reshape(len(y), side * side, d))
            out = out.view(rows // side, cols // side, side, side, d).transpose(1, 2).reshape(rows, cols, d)
            sa = torch.roll(out, (shift, shift), (0, 1)).reshape(rows * cols, d)
            order = [torch.argsort(part, stable=True) for part in labels]
            t.stage(layer, "attentions", torch.stack([torch.block_diag(*(
                p[k][head][order[k]][:, order[k]] for k in range(len(p)))) for head in range(h)]))
            t.stage(layer, "sa", sa)
            x = t.stage(layer, "attn", x + sa)
            y = t.stage(layer, "norm2", layer_norm(l, names["norm2"], x, eps))
            x = t.stage(layer, "ffn", x + affine(l, names["fc2"], gelu(affine(l, names["fc1"], y))))
            t.stage(layer, "out", x)
            layer += 1
        if stage + 1 == len(depths):
            break
        m = under(w, names["merge"].format(stage, stage + 1))
        x = x.view(rows, cols, -1)
        x = torch.cat([x[0::2, 0::2], x[1::2, 0::2], x[0::2, 1::2], x[1::2, 1::2]], -1).flatten(0, 1)
        rows, cols = rows // 2, cols // 2
        x = t.stage(layer - 1, "merge", affine(m, "reduction", layer_norm(m, "norm", x, eps)))
    t["final_norm"] = layer_norm(w, names["final_norm"], x, eps)
    return t


def sincos_2d(rows, cols, d):
    """SimpleViT's positions: [sin x, cos x, sin y, cos y], d/4 frequencies 10000^(-i/(d/4 - 1))."""
    omega = 10000.0 ** (-torch.arange(d // 4).double() / (d // 4 - 1))
    y = torch.arange(rows).double().repeat_interleave(cols)[:, None] * omega
    x = torch.arange(cols).double().repeat(rows)[:, None] * omega
    return torch.cat([x.sin(), x.cos(), y.sin(), y.cos()], 1)


def forward_vit_pytorch(w, layers, heads, image, patch, generation):
    """The generations a, b, c, d of vit_pytorch.ViT, and "simple" for SimpleViT.

    a and b have no norm over all tokens at the end: mlp_head.0 norms the pooled token, after the
    transformer; so they have no final_norm here.
    """
    eps = 1e-5
    t = Trace(image=image)
    channels, height, width = image.shape
    rows, cols = height // patch, width // patch
    x = image.view(channels, rows, patch, cols, patch).permute(1, 3, 2, 4, 0).reshape(rows * cols, -1)
    if generation == "a":
        x = affine(w, "to_patch_embedding.1", x)
    else:
        x = layer_norm(w, "to_patch_embedding.1", x, eps)
        x = layer_norm(w, "to_patch_embedding.3", affine(w, "to_patch_embedding.2", x), eps)
    if generation == "simple":
        x = x + sincos_2d(rows, cols, x.shape[1])
    else:
        d = x.shape[1]
        x = torch.cat([w["cls_token"].view(1, d), x]) + w["pos_embedding"].view(-1, d)
    t["embed"] = x
    fn = "fn." if generation in "ab" else ""
    to_out = "to_out" if generation == "simple" else "to_out.0"
    norm2, fc1, fc2 = {"a": ("norm", "fn.net.0", "fn.net.3"), "b": ("norm", "fn.net.0", "fn.net.3"),
                       "c": ("net.0", "net.1", "net.4"), "d": ("net.0", "net.1", "net.4"),
                       "simple": ("net.0", "net.1", "net.3")}[generation]
    for layer in range(layers):
        l = under(w, f"transformer.layers.{layer}.")

        def attention(x):
            q, k, v = (split_heads(part, heads) for part in affine(l, f"0.{fn}to_qkv", x).chunk(3, -1))
            p, context = attend(q, k, v, 1 / math.sqrt(q.shape[-1]))
            return p, affine(l, f"0.{fn}{to_out}", context)

        x = pre_norm(t, layer, x, lambda x: layer_norm(l, "0.norm", x, eps), attention,
                     lambda x: layer_norm(l, "1." + norm2, x, eps),
                     lambda x: affine(l, "1." + fc2, gelu(affine(l, "1." + fc1, x))))
    if "transformer.norm.weight" in w:
        t["final_norm"] = layer_norm(w, "transformer.norm", x, eps)
    return t


# ---------------------------------------------------------------------------------------------------
# Other attentions.  P is formed and multiplied, whatever shortcut the library takes.

def inverse_by_iteration(k, largest, steps=6):
    """Steps towards the inverse of k (heads, m, m), from its transpose over `largest`."""
    z, one = k.transpose(1, 2) / largest, torch.eye(k.shape[-1], dtype=k.dtype)
    for _ in range(steps):
        kz = k @ z
        z = 0.25 * z @ (13 * one - kz @ (15 * one - kz @ (7 * one - kz)))
    return z


def nystrom(q, k, landmarks):
    """P = softmax(q l_k^T) Z softmax(l_q k^T); q and k come scaled.  The largest column sum is that of all heads."""
    heads, n, hd = q.shape
    mean = lambda x: x.reshape(heads, landmarks, n // landmarks, hd).mean(2)
    lq, lk = mean(q), mean(k)
    kernel = lambda a, b: torch.softmax(a @ b.transpose(1, 2), -1)
    k2 = kernel(lq, lk)
    return kernel(q, lk) @ inverse_by_iteration(k2, k2.sum(-2).max()) @ kernel(lq, k)


def convolution(kernel, n):
    """The matrix of a convolution along n tokens: kernel (heads, 1, width, 1), zeros outside."""
    heads, _, width, _ = kernel.shape
    c = torch.zeros(heads, n, n, dtype=kernel.dtype)
    for i in range(n):
        for j in range(max(0, i - width // 2), min(n, i + width // 2 + 1)):
            c[:, i, j] = kernel[:, 0, j - i + width // 2, 0]
    return c


def forward_nystromformer(w, config, ids, prefix="nystromformer."):
    """BERT with landmarks; positions start at row 2; equal num_landmarks and segment_means_seq_len: softmax."""
    w = under(w, prefix)
    heads, eps, n = config["num_attention_heads"], config["layer_norm_eps"], len(ids)
    hd = config["hidden_size"] // heads
    t, e = Trace(ids=ids), "embeddings."
    x = w[e + "word_embeddings.weight"][ids] + w[e + "position_embeddings.weight"][2:n + 2] \
        + w[e + "token_type_embeddings.weight"][0]
    x = t["embed"] = layer_norm(w, e + "LayerNorm", x, eps)
    for layer in range(config["num_hidden_layers"]):
        l = under(w, f"encoder.layer.{layer}.")

        def attention(x):
            q, k, v = (split_heads(affine(l, "attention.self." + part, x), heads) for part in ("query", "key", "value"))
            q, k = q / hd ** 0.25, k / hd ** 0.25
            if config["num_landmarks"] == config["segment_means_seq_len"]:
                p = torch.softmax(q @ k.transpose(1, 2), -1)
            else:
                p = nystrom(q, k, config["num_landmarks"])
            if "attention.self.conv.weight" in l:
                p = p + convolution(l["attention.self.conv.weight"], n)
            return p, affine(l, "attention.output.dense", join_heads(p @ v))

        x = post_norm(t, layer, x, attention, lambda x: layer_norm(l, "attention.output.LayerNorm", x, eps),
                      lambda x: affine(l, "output.dense", gelu_new(affine(l, "intermediate.dense", x))),
                      lambda x: layer_norm(l, "output.LayerNorm", x, eps))
    return t


def big_bird_blocks(row, blocks, random):
    """The blocks of keys whose products a block of queries is a softmax of, some of them several times."""
    last = blocks - 1
    if row in (0, last):
        return list(range(blocks))
    beside = [b for b in (row - 1, row, row + 1) if b not in (0, last)]
    return [0] + beside + [last] + random * [0]            # in evaluation every random block is the first


def forward_big_bird(w, config, ids, prefix="bert."):
    """BigBird of transformers in evaluation; the sample is long enough for its blocks and padded to whole ones."""
    w = under(w, prefix)
    heads, eps, n, d = config["num_attention_heads"], config["layer_norm_eps"], len(ids), config["hidden_size"]
    block, random = config["block_size"], config["num_random_blocks"]
    blocks = -(-n // block)
    assert n > (5 + 2 * random) * block
    t, e = Trace(ids=ids), "embeddings."
    words = w[e + "word_embeddings.weight"][ids] * (math.sqrt(d) if config["rescale_embeddings"] else 1)
    x = words + w[e + "position_embeddings.weight"][:n] + w[e + "token_type_embeddings.weight"][0]
    x = t["embed"] = layer_norm(w, e + "LayerNorm", x, eps)
    for layer in range(config["num_hidden_layers"]):
        l = under(w, f"encoder.layer.{layer}.")

        def attention(x):
            q, k, v = (split_heads(affine(l, "attention.self." + part, x), heads) for part in ("query", "key", "value"))
            s = q @ k.transpose(1, 2) / math.sqrt(d // heads)
            p = torch.zeros_like(s)
            for row in range(blocks):
                rows = slice(row * block, min((row + 1) * block, n))
                columns = [j for b in big_bird_blocks(row, blocks, random) for j in range(b * block, min((b + 1) * block, n))]
                shares = torch.softmax(s[:, rows][:, :, columns], -1)
                for at, j in enumerate(columns):           # a key that is there twice has two shares
                    p[:, rows, j] += shares[:, :, at]
            return p, affine(l, "attention.output.dense", join_heads(p @ v))

        x = post_norm(t, layer, x, attention, lambda x: layer_norm(l, "attention.output.LayerNorm", x, eps),
                      lambda x: affine(l, "output.dense", gelu_new(affine(l, "intermediate.dense", x))),
                      lambda x: layer_norm(l, "output.LayerNorm", x, eps))
    return t


def forward_nystrom_attention(w, layers, heads, landmarks, x):
    """lucidrains: no embedding; the formula with landmarks even where they are all tokens."""
    t, n = Trace(hidden=x), len(x)
    for layer in range(layers):
        l = under(w, f"layers.{layer}.")

        def attention(x):
            q, k, v = (split_heads(part, heads) for part in affine(l, "0.fn.to_qkv", x).chunk(3, -1))
            p = nystrom(q / math.sqrt(q.shape[-1]), k, landmarks) + convolution(l["0.fn.res_conv.weight"], n)
            return p, affine(l, "0.fn.to_out.0", join_heads(p @ v))

        x = pre_norm(t, layer, x, lambda x: layer_norm(l, "0.norm", x, 1e-5), attention,
                     lambda x: layer_norm(l, "1.norm", x, 1e-5),
                     lambda x: affine(l, "1.fn.net.3", gelu(affine(l, "1.fn.net.0", x))))
    return t


def rotate_pairs(x, angles):
    """Rotary embedding of neighbouring channels, on the first 2 * angles.shape[1] of x (h, n, hd)."""
    width = 2 * angles.shape[1]
    cos, sin = (f(angles).repeat_interleave(2, -1) for f in (torch.cos, torch.sin))
    turned = torch.stack([-x[..., 1:width:2], x[..., 0:width:2]], -1).reshape(*x.shape[:-1], width)
    return torch.cat([x[..., :width] * cos + turned * sin, x[..., width:]], -1)


def angles_of(n, width, start=0):
    return torch.arange(start, start + n).double()[:, None] * 10000.0 ** (-torch.arange(0, width, 2).double() / width)


def forward_performer(w, layers, ids, causal_model=False, generalized=False, rotary=False):
    """performer-pytorch: stored random features; where causal, 1e-6 on each sum of key features."""
    t, n, d = Trace(ids=ids), len(ids), w["token_emb.weight"].shape[1]
    table = w["pos_emb.emb"] if rotary else w["pos_emb.emb.weight"]
    x = t["embed"] = w["token_emb.weight"][ids] + table[:n]
    for layer in range(layers):
        l = under(w, f"performer.net.layers.{layer}.")
        features = l["0.fn.fast_attention.projection_matrix"]
        m, hd = features.shape

        def attention(x):
            q, k, v = (split_heads(affine(l, f"0.fn.to_{part}", x), d // hd) for part in "qkv")
            if rotary:
                q, k = rotate_pairs(q, angles_of(n, hd)), rotate_pairs(k, angles_of(n, hd))
            q, k = q * hd ** -0.25, k * hd ** -0.25
            u, z = q @ features.t(), k @ features.t()
            if generalized:
                a, b = u.clamp(min=0) + 1e-3, z.clamp(min=0) + 1e-3
            else:
                square = lambda x: x.pow(2).sum(-1, keepdim=True) / 2
                a = (torch.exp(u - square(q) - u.amax(-1, keepdim=True)) + 1e-4) / math.sqrt(m)
                b = (torch.exp(z - square(k) - z.amax((-1, -2), keepdim=True)) + 1e-4) / math.sqrt(m)
            p = a @ b.transpose(1, 2)
            if causal_model:
                p = p * causal(n)
                p = p / (a * (b.cumsum(1) + 1e-6)).sum(-1, keepdim=True)
            else:
                p = p / p.sum(-1, keepdim=True)
            return p, affine(l, "0.fn.to_out", join_heads(p @ v))

        def feed_forward(x):
            y = affine(l, "1.fn.fn.w1", x)
            if y.shape[1] == 2 * l["1.fn.fn.w2.weight"].shape[1]:
                y, v = y.chunk(2, -1)
                return affine(l, "1.fn.fn.w2", gelu(y) * v)
            return affine(l, "1.fn.fn.w2", gelu(y))

        x = pre_norm(t, layer, x, lambda x: layer_norm(l, "0.norm", x, 1e-5), attention,
                     lambda x: layer_norm(l, "1.norm", x, 1e-5), feed_forward)
    t["final_norm"] = layer_norm(w, "norm", x, 1e-5)
    return t


def forward_linformer(w, layers, heads, ids):
    """lucidrains: keys and values are mixed along the tokens; one head of keys may serve all, and be the values."""
    t, n = Trace(ids=ids), len(ids)
    x = t["embed"] = w["token_emb.weight"][ids] + w["pos_emb.weight"][:n]
    for layer in range(layers):
        l = under(w, f"linformer.net.layers.{layer}.")

        def attention(x):
            q = split_heads(affine(l, "0.fn.to_q", x), heads)
            hd = q.shape[-1]
            split = lambda y: split_heads(y, y.shape[1] // hd)
            k, e = split(affine(l, "0.fn.to_k", x)), l["0.fn.proj_k"]
            v, f = (split(affine(l, "0.fn.to_v", x)), l["0.fn.proj_v"]) if "0.fn.to_v.weight" in l else (k, e)
            p = torch.softmax(q @ (e.t() @ k).transpose(1, 2) / math.sqrt(hd), -1) @ f.t()
            return p, affine(l, "0.fn.to_out", join_heads(p @ v))

        x = pre_norm(t, layer, x, lambda x: layer_norm(l, "0.norm", x, 1e-5), attention,
                     lambda x: layer_norm(l, "1.norm", x, 1e-5),
                     lambda x: affine(l, "1.fn.w2", gelu(affine(l, "1.fn.w1", x))))
    return t


def t5_bucket(distance, buckets, causal_model):
    """The bucket of key minus query, as torch computes it in float32."""
    steps, out = -distance, torch.zeros_like(distance)
    if not causal_model:
        buckets //= 2
        out = out + (steps < 0).long() * buckets
        steps = steps.abs()
    steps, exact = steps.clamp(min=0), buckets // 2
    far = exact + (torch.log(steps.float() / exact) / math.log(128 / exact) * (buckets - exact)).long()
    return out + torch.where(steps < exact, steps, far.clamp(max=buckets - 1))


def gated_unit(t, layer, x, norm, attention):
    """A gated attention unit: no feed-forward behind it.  attention(normed) -> P (n, n), branch."""
    t.stage(layer, "in", x)
    p, sa = attention(t.stage(layer, "norm1", norm(x)))
    t.stage(layer, "attentions", p[None])
    t.stage(layer, "sa", sa)
    y = t.stage(layer, "attn", x + sa)
    return t.stage(layer, "out", y)


def forward_flash(w, config, ids):
    """FLASH-pytorch: relu(.)^2 inside groups, a linear part over all of them, SiLU gates, half of the columns shifted."""
    t, n = Trace(ids=ids), len(ids)
    g, is_causal = config["group_size"], config["causal"]
    d = w["token_emb.weight"].shape[1]
    wave = angles_of(n, d)
    x = t["embed"] = w["token_emb.weight"][ids] + torch.cat([wave.sin(), wave.cos()], -1) * w["abs_pos_emb.scale"]
    i, j = torch.arange(n)[:, None], torch.arange(n)[None, :]
    for layer in range(config["depth"]):
        l = under(w, f"layers.{layer}.")

        def norm(x):
            if "norm.g" in l:
                return x / (x.norm(dim=-1, keepdim=True) * d ** -0.5).clamp(min=1e-5) * l["norm.g"]
            return layer_norm(l, "norm", x, 1e-5)

        def attention(x):
            half = -(-d // 2)
            if config["shift_tokens"]:
                x = torch.cat([F.pad(x[:, :half], (0, 0, 1, -1)), x[:, half:]], -1)
            v, gate = silu(affine(l, "to_hidden.0", x)).chunk(2, -1)
            z = silu(affine(l, "to_qk.0", x))
            s = z.shape[1]
            turned = [rotate_pairs((z * a + b)[None], angles_of(n, min(32, s)))[0]
                      for a, b in zip(l["qk_offset_scale.gamma"], l["qk_offset_scale.beta"])]
            quad_q, lin_q, quad_k, lin_k = turned
            table = l["rel_pos_bias.relative_attention_bias.weight"][:, 0]
            bias = table[t5_bucket(j - i, len(table), is_causal)] * math.sqrt(s)
            near = (i // g == j // g) & ((j <= i) | (not is_causal))
            p = (quad_q @ quad_k.t() / g + bias).clamp(min=0) ** 2 * near
            if is_causal:
                p = p + lin_q @ lin_k.t() / g * (j // g < i // g)
            else:
                p = p + lin_q @ lin_k.t() / n
            return p, affine(l, "to_out", gate * (p @ v))

        x = gated_unit(t, layer, x, norm, attention)
    t["final_norm"] = layer_norm(w, "to_logits.0", x, 1e-5)
    return t


def forward_gau(w, layers, x, is_causal):
    """GAU of FLASH-pytorch on features: relu(q k^T / n)^2."""
    t, n = Trace(hidden=x), len(x)
    for layer in range(layers):
        l = under(w, f"layers.{layer}.")

        def attention(x):
            v, gate = silu(affine(l, "to_hidden.0", x)).chunk(2, -1)
            z = silu(affine(l, "to_qk.0", x))
            q, k = (z * a + b for a, b in zip(l["offsetscale.gamma"], l["offsetscale.beta"]))
            p = (q @ k.t() / n).clamp(min=0) ** 2
            return (p := p * causal(n) if is_causal else p), affine(l, "to_out.0", gate * (p @ v))

        x = gated_unit(t, layer, x, lambda x: layer_norm(l, "norm", x, 1e-5), attention)
    return t


def simple_rms(x):
    return x / (x.norm(dim=-1, keepdim=True) / math.sqrt(x.shape[-1]) + 1e-8)


def forward_transnormer(w, config, ids, prefix):
    """TransNormer: chunks in early layers (with LRPE restarting in each), q k^T v in late ones, LRPE after phi.

    Without causal masks the last chunk is filled with zero keys, which a softmax gives weight.
    """
    w, n = under(w, prefix), len(ids)
    language, heads, chunk = config["language"], config["heads"], config["chunk_size"]
    d = w["embed_tokens.weight"].shape[1]
    hd = d // heads
    t = Trace(ids=ids)
    real = (ids != 1).long()
    positions = torch.cumsum(real, 0) * real + 1
    if language:
        f = torch.exp(torch.arange(d // 2).double() * -(math.log(10000) / (d // 2 - 1)))
        wave = positions[:, None] * f
        x = w["embed_tokens.weight"][ids] * math.sqrt(d) + torch.cat([wave.sin(), wave.cos()], -1) * real[:, None]
    else:
        x = simple_rms(w["embed_tokens.weight"][ids] + w["embed_positions.weight"][positions])
    t["embed"] = x
    layers = config["layers"]
    act = {"swish": silu, "identity": lambda x: x}[config["glu_act"]]
    phi = {"elu": F.elu, "1+elu": lambda x: 1 + F.elu(x)}[config["linear_act_fun"]]
    for layer in range(layers):
        l = under(w, f"layers.{layer}.")
        v_mirror = l["self_attn.urpe.v"].reshape(-1)
        theta = l["self_attn.urpe.theta"].reshape(-1) if "self_attn.urpe.theta" in l \
            else 10000.0 ** (-torch.arange(0, hd // 2 * 2, 2).double() / (hd // 2 * 2))

        def lrpe(x):
            x = x - 2 * (x @ v_mirror)[..., None] * v_mirror
            return rotate_pairs(x, torch.arange(x.shape[-2]).double()[:, None] * theta)

        def local(q, k, v):
            q, p = q / math.sqrt(hd), torch.zeros(heads, n, n, dtype=torch.float64)
            for first in range(0, n, chunk):
                last, pad = min(first + chunk, n), max(0, first + chunk - n)
                fill = lambda x: F.pad(x[:, first:last], (0, 0, 0, pad))
                s = lrpe(fill(q)) @ lrpe(fill(k)).transpose(1, 2)
                if config["use_softmax"]:
                    s = torch.softmax(s.masked_fill(~causal(chunk), -INF) if language else s, -1)
                else:
                    s = s.clamp(min=0) * causal(chunk) if language else s.clamp(min=0)
                p[:, first:last, first:last] = s[:, :last - first, :last - first]
            y = join_heads(p @ v)
            return p, y if config["use_softmax"] else simple_rms(y)

        def late(q, k, v):
            p = lrpe(phi(q)) @ lrpe(phi(k)).transpose(1, 2)
            p = p * causal(n) if language else p
            return p, simple_rms(join_heads(p @ v))

        def attention(x):
            q, k, v = (split_heads(affine(l, f"self_attn.{part}_proj", x), heads) for part in "qkv")
            p, y = (local if layer < layers // 2 else late)(q, k, v)
            return p, affine(l, "self_attn.out_proj", y)

        ffn = lambda x: affine(l, "glu.l3", act(affine(l, "glu.l1", x)) * affine(l, "glu.l2", x))
        if language:
            x = pre_norm(t, layer, x, simple_rms, attention, simple_rms, ffn)
        else:
            x = post_norm(t, layer, x, attention, simple_rms, ffn, simple_rms)
    if language:
        t["final_norm"] = simple_rms(x)
    return t


# ---------------------------------------------------------------------------------------------------
# Writing files

SAFETENSORS = {torch.float64: "F64", torch.int64: "I64", torch.float32: "F32", torch.float16: "F16",
               torch.bfloat16: "BF16", torch.bool: "BOOL", torch.uint8: "U8"}


def raw(t):
    t = t.contiguous()
    return (t.view(torch.int16) if t.dtype == torch.bfloat16 else t).numpy().tobytes()


def write_safetensors(path, tensors):
    """Buffer ordered by falling element size, then name; header padded with spaces to 8 bytes."""
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name in names:
        t = tensors[name]
        size = t.numel() * t.element_size()
        header[name] = {"dtype": SAFETENSORS[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in names:
            file.write(raw(tensors[name]))


def write_torch(path, thing, legacy=False):
    torch.save(thing, path, _use_new_zipfile_serialization=not legacy)


def write_sharded(directory, tensors, stem, ending, write, shards=2):
    """Shards of nearly equal numbers of tensors, and the index that names them."""
    names = list(tensors)
    size = -(-len(names) // shards)
    index = {"metadata": {"total_size": sum(t.numel() * t.element_size() for t in tensors.values())}, "weight_map": {}}
    for shard in range(shards):
        file = f"{stem}-{shard + 1:05d}-of-{shards:05d}.{ending}"
        part = collections.OrderedDict((name, tensors[name]) for name in names[shard * size:(shard + 1) * size])
        write(os.path.join(directory, file), part)
        index["weight_map"].update({name: file for name in part})
    write_json(os.path.join(directory, f"{stem}.{ending}.index.json"), index)


def write_json(path, thing):
    with open(path, "w") as file:
        json.dump(thing, file, indent=2)
        file.write("\n")


def write_trace(path, trace):
    np.savez(path, **{name: t.detach().numpy() for name, t in trace.items()})


# ---------------------------------------------------------------------------------------------------
# Cases

CASES = collections.OrderedDict()


def case(name):
    def add(function):
        CASES[name] = function
        return function
    return add


def finish(name, family, layout, trace, heads, weights=None, config=None, write=None, open_="", needs=None, note=None,
           golden="golden.npz", model=None, stochastic=True):
    """Writes the directory of a case and returns its lines in the manifest."""
    directory = os.path.join(HERE, model or name)
    os.makedirs(directory, exist_ok=True)
    if config is not None:
        write_json(os.path.join(directory, "config.json"), config)
    if write is not None:
        write(directory)
    elif weights is not None:
        write_safetensors(os.path.join(directory, "model.safetensors"), weights)
    write_trace(os.path.join(directory, golden), trace)
    layers = 1 + max(int(key.split(".")[1]) for key in trace if key.startswith("layer."))
    for layer in range(layers if stochastic else 0):
        rows = trace[f"layer.{layer}.attentions"].sum(-1)
        assert (rows - 1).abs().max() < 1e-12, (name, layer)
    n, width = trace["layer.0.in"].shape
    entry = {"name": name, "open": os.path.join(model or name, open_).rstrip("/"), "golden": f"{model or name}/{golden}",
             "family": family, "layout": layout, "layers": layers, "heads": heads, "width": width, "tokens": n,
             "input": next(kind for kind in ("image", "hidden", "ids") if kind in trace), "mask": "mask" in trace,
             "final_norm": "final_norm" in trace, "needs": needs or {}}
    if note:
        entry["note"] = note
    return entry


# BERT-like

def draw_bert(draw, config, prefix="bert.", gamma=".weight", beta=".bias", pooler=True):
    d, ff = config["hidden_size"], config["intermediate_size"]
    e = prefix + "embeddings."
    draw.put(e + "word_embeddings.weight", config["vocab_size"], d, std=0.7)
    draw.put(e + "position_embeddings.weight", config["max_position_embeddings"], d, std=0.4)
    draw.put(e + "token_type_embeddings.weight", config["type_vocab_size"], d, std=0.4)
    draw.norm(e + "LayerNorm", d, gamma=gamma, beta=beta)
    for layer in range(config["num_hidden_layers"]):
        l = f"{prefix}encoder.layer.{layer}."
        for part in ("query", "key", "value"):
            draw.linear(l + "attention.self." + part, d, d)
        draw.linear(l + "attention.output.dense", d, d)
        draw.norm(l + "attention.output.LayerNorm", d, gamma=gamma, beta=beta)
        draw.linear(l + "intermediate.dense", d, ff)
        draw.linear(l + "output.dense", ff, d)
        draw.norm(l + "output.LayerNorm", d, gamma=gamma, beta=beta)
    if pooler:
        draw.linear(prefix + "pooler.dense", d, d)


def config_bert(**changes):
    return {"architectures": ["BertForMaskedLM"], "model_type": "bert", "hidden_size": 18, "num_hidden_layers": 2,
            "num_attention_heads": 3, "intermediate_size": 26, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
            "max_position_embeddings": 12, "type_vocab_size": 2, "vocab_size": 24, "pad_token_id": 0,
            "position_embedding_type": "absolute", "initializer_range": 0.02, "hidden_dropout_prob": 0.1,
            "attention_probs_dropout_prob": 0.1, "torch_dtype": "float32", **changes}


@case("bert")
def bert(name):
    draw, config = Draw(name), config_bert()
    draw_bert(draw, config)
    draw.put("cls.predictions.bias", 24, std=0.2)
    draw.linear("cls.predictions.transform.dense", 18, 18)
    draw.norm("cls.predictions.transform.LayerNorm", 18)
    trace = forward_bert(widen(draw.weights), config, draw.ids(9, 24))
    return [finish(name, "bert", "post-norm", trace, 3, draw.weights, config)]


@case("bert-gamma")
def bert_gamma(name):
    draw, config = Draw(name), config_bert(num_attention_heads=2, hidden_size=12, intermediate_size=20, vocab_size=24)
    del config["layer_norm_eps"], config["position_embedding_type"], config["torch_dtype"]   # as in the oldest files
    draw_bert(draw, config, gamma=".gamma", beta=".beta")
    draw.weights["bert.embeddings.position_ids"] = torch.arange(12)[None]
    draw.linear("cls.seq_relationship", 12, 2)
    trace = forward_bert(widen(draw.weights), {**config, "layer_norm_eps": 1e-12}, draw.ids(7, 24))
    write = lambda directory: write_torch(os.path.join(directory, "pytorch_model.bin"), draw.weights)
    return [finish(name, "bert", "post-norm", trace, 2, config=config, write=write,
                   note="LayerNorm.gamma/.beta, position_ids buffer, config without layer_norm_eps (default 1e-12)")]


@case("roberta")
def roberta(name):
    draw = Draw(name)
    config = config_bert(architectures=["RobertaForMaskedLM"], model_type="roberta", layer_norm_eps=1e-5, pad_token_id=1,
                         bos_token_id=0, eos_token_id=2, max_position_embeddings=14, type_vocab_size=1, hidden_size=12,
                         num_attention_heads=3, intermediate_size=20)
    draw_bert(draw, config, prefix="roberta.", pooler=False)
    draw.weights["roberta.embeddings.position_ids"] = torch.arange(14)[None]
    draw.linear("lm_head.dense", 12, 12)
    draw.norm("lm_head.layer_norm", 12)
    draw.put("lm_head.bias", 24, std=0.2)
    ids = draw.ids(8, 24)
    ids[3] = 1                                            # padding inside, so that the cumulative sum shows
    ids[6:] = 1
    w = widen(draw.weights)
    plain = forward_bert(w, config, ids, prefix="roberta.")
    masked = forward_bert(w, config, ids, prefix="roberta.", mask=(ids != 1).long())
    return [finish(name, "roberta", "post-norm", plain, 3, draw.weights, config,
                   note="ids 3, 6, 7 are padding: position 1; they are attended to, as without attention_mask"),
            finish(name + "-masked", "roberta", "post-norm", masked, 3, model=name, golden="golden_masked.npz",
                   note="the same model and ids with array mask = (ids != pad), 1 = keep: hidden keys get no weight, "
                        "hidden rows are still computed, as the reference computes them")]


def draw_albert(name):
    draw, d, e, ff = Draw(name), 12, 8, 20
    config = {"architectures": ["AlbertForMaskedLM"], "model_type": "albert", "embedding_size": e, "hidden_size": d,
              "num_hidden_layers": 3, "num_hidden_groups": 2, "inner_group_num": 2, "num_attention_heads": 2,
              "intermediate_size": ff, "hidden_act": "gelu_new", "layer_norm_eps": 1e-12, "max_position_embeddings": 12,
              "type_vocab_size": 2, "vocab_size": 36, "pad_token_id": 0}
    draw.put("albert.embeddings.word_embeddings.weight", 36, e, std=0.7)
    draw.put("albert.embeddings.position_embeddings.weight", 12, e, std=0.4)
    draw.put("albert.embeddings.token_type_embeddings.weight", 2, e, std=0.4)
    draw.norm("albert.embeddings.LayerNorm", e)
    draw.linear("albert.encoder.embedding_hidden_mapping_in", e, d)
    for group in range(2):
        for inner in range(2):
            l = f"albert.encoder.albert_layer_groups.{group}.albert_layers.{inner}."
            for part in ("query", "key", "value", "dense"):
                draw.linear(l + "attention." + part, d, d)
            draw.norm(l + "attention.LayerNorm", d)
            draw.linear(l + "ffn", d, ff)
            draw.linear(l + "ffn_output", ff, d)
            draw.norm(l + "full_layer_layer_norm", d)
    draw.linear("albert.pooler", d, d)
    draw.put("predictions.bias", 36, std=0.2)
    return draw, config


@case("albert")
def albert(name):
    draw, config = draw_albert(name)
    trace = forward_albert(widen(draw.weights), config, draw.ids(6, 36))
    return [finish(name, "albert", "post-norm", trace, 2, draw.weights, config,
                   note="layers counts applied sub-layers: 3 hidden layers x inner_group_num 2, groups 0 0 1")]


@case("distilbert")
def distilbert(name):
    draw, d, ff = Draw(name), 16, 20
    config = {"architectures": ["DistilBertForMaskedLM"], "model_type": "distilbert", "dim": d, "n_layers": 2, "n_heads": 2,
              "hidden_dim": ff, "activation": "gelu", "sinusoidal_pos_embds": False, "max_position_embeddings": 12,
              "vocab_size": 24, "pad_token_id": 0, "tie_weights_": True}
    draw.put("distilbert.embeddings.word_embeddings.weight", 24, d, std=0.7)
    draw.put("distilbert.embeddings.position_embeddings.weight", 12, d, std=0.4)
    draw.norm("distilbert.embeddings.LayerNorm", d)
    for layer in range(2):
        l = f"distilbert.transformer.layer.{layer}."
        for part in ("q_lin", "k_lin", "v_lin", "out_lin"):
            draw.linear(l + "attention." + part, d, d)
        draw.norm(l + "sa_layer_norm", d)
        draw.linear(l + "ffn.lin1", d, ff)
        draw.linear(l + "ffn.lin2", ff, d)
        draw.norm(l + "output_layer_norm", d)
    trace = forward_distilbert(widen(draw.weights), config, draw.ids(7, 24))
    return [finish(name, "distilbert", "post-norm", trace, 2, draw.weights, config)]


# GPT-2 and its kin

def draw_gpt2(draw, config, prefix=""):
    d, ff = config["n_embd"], config["n_inner"] or 4 * config["n_embd"]
    draw.put(prefix + "wte.weight", config["vocab_size"], d, std=0.7)
    draw.put(prefix + "wpe.weight", config["n_positions"], d, std=0.4)
    for layer in range(config["n_layer"]):
        l = f"{prefix}h.{layer}."
        draw.norm(l + "ln_1", d)
        draw.conv1d(l + "attn.c_attn", d, 3 * d)
        draw.conv1d(l + "attn.c_proj", d, d)
        draw.norm(l + "ln_2", d)
        draw.conv1d(l + "mlp.c_fc", d, ff)
        draw.conv1d(l + "mlp.c_proj", ff, d)
    draw.norm(prefix + "ln_f", d)


def config_gpt2(**changes):
    return {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 12, "n_layer": 2, "n_head": 2,
            "n_positions": 12, "n_ctx": 12, "n_inner": None, "activation_function": "gelu_new",
            "layer_norm_epsilon": 1e-5, "scale_attn_weights": True, "vocab_size": 24, **changes}


@case("gpt2")
def gpt2(name):
    draw, config = Draw(name), config_gpt2(n_embd=16, n_head=2)
    draw_gpt2(draw, config)
    for layer in range(2):
        draw.weights[f"h.{layer}.attn.bias"] = torch.tril(torch.ones(12, 12))[None, None]
    trace = forward_gpt2(widen(draw.weights), config, draw.ids(8, 24))
    return [finish(name, "gpt2", "pre-norm", trace, 2, draw.weights, config, note="no prefix, buffers h.L.attn.bias")]


@case("gpt2-prefixed")
def gpt2_prefixed(name):
    draw, config = Draw(name), config_gpt2(n_layer=2, n_inner=20, scale_attn_by_inverse_layer_idx=True)
    draw_gpt2(draw, config, prefix="transformer.")
    for layer in range(2):
        draw.weights[f"transformer.h.{layer}.attn.bias"] = torch.tril(torch.ones(12, 12)).bool()[None, None]
        draw.weights[f"transformer.h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    trace = forward_gpt2(widen(draw.weights), config, draw.ids(7, 24), prefix="transformer.")
    draw.weights["lm_head.weight"] = draw.weights["transformer.wte.weight"]
    write = lambda directory: write_torch(os.path.join(directory, "pytorch_model.bin"), draw.weights)
    return [finish(name, "gpt2", "pre-norm", trace, 2, config=config, write=write,
                   note="pytorch_model.bin, lm_head shares the storage of wte, logits divided also by L + 1")]


@case("gpt2-legacy")
def gpt2_legacy(name):
    draw, config = Draw(name), config_gpt2(n_inner=20)
    draw_gpt2(draw, config)
    trace = forward_gpt2(widen(draw.weights), config, draw.ids(7, 24))
    write = lambda directory: write_torch(os.path.join(directory, "pytorch_model.bin"), draw.weights, legacy=True)
    return [finish(name, "gpt2", "pre-norm", trace, 2, config=config, write=write, note="PyTorch's format before 1.6")]


@case("gpt2-protocol1")
def gpt2_protocol1(name):
    draw, config = Draw(name), config_gpt2(n_inner=20)
    draw_gpt2(draw, config)
    trace = forward_gpt2(widen(draw.weights), config, draw.ids(7, 24))
    write = lambda directory: torch.save(draw.weights, os.path.join(directory, "pytorch_model.bin"), pickle_protocol=1)
    return [finish(name, "gpt2", "pre-norm", trace, 2, config=config, write=write, note="a pickle of protocol 1")]


@case("gpt2-deepspeed")
def gpt2_deepspeed(name):
    """The folder of a step of DeepSpeed's ZeRO up to stage 2: the model, and each process's part of the optimizer."""
    draw, config = Draw(name), config_gpt2(n_inner=20)
    draw_gpt2(draw, config, prefix="transformer.")
    trace = forward_gpt2(widen(draw.weights), config, draw.ids(7, 24), prefix="transformer.")
    shapes = collections.OrderedDict((key, value.shape) for key, value in draw.weights.items())
    states = {"module": draw.weights, "buffer_names": [], "optimizer": None, "param_shapes": [shapes],
              "frozen_param_shapes": None, "shared_params": {}, "lr_scheduler": None, "data_sampler": None,
              "random_ltd": None, "sparse_tensor_module_names": [], "skipped_steps": 0, "global_steps": 3,
              "global_samples": 24, "dp_world_size": 1, "mp_world_size": 1,
              "ds_config": {"train_batch_size": 8, "zero_optimization": {"stage": 2}}, "ds_version": "0.14.0"}
    flat = torch.cat([value.flatten() for value in draw.weights.values()])[:12].clone()
    optimizer = {"optimizer_state_dict": {"zero_stage": 2, "single_partition_of_fp32_groups": [flat]}, "ds_version": "0.14.0"}

    def write(directory):
        torch.save(states, os.path.join(directory, "mp_rank_00_model_states.pt"))
        torch.save(optimizer, os.path.join(directory, "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"))
    return [finish(name, "gpt2", "pre-norm", trace, 2, config=config, write=write, open_="mp_rank_00_model_states.pt",
                   note="a folder of DeepSpeed, with a part of the optimizer")]


@case("gpt2-zero3")
def gpt2_zero3(name):
    """What a trainer saves of two processes of DeepSpeed's ZeRO, stage 3, laid out as its zero_to_fp32.py reads it: each
    has half of the elements of every parameter, padded. Matrices and vectors are two groups of the optimizer, the
    embedding is frozen and in bfloat16, and the head shares it."""
    draw, config, world = Draw(name), config_gpt2(n_inner=21), 2
    draw_gpt2(draw, config, prefix="transformer.")
    frozen, shared = "transformer.wte.weight", "lm_head.weight"
    draw.weights[frozen] = draw.weights[frozen].bfloat16().float()
    trace = forward_gpt2(widen(draw.weights), config, draw.ids(7, 24), prefix="transformer.")
    stage = enum.IntEnum("ZeroStageEnum", {"weights": 3}, module="deepspeed.runtime.zero.config")
    for depth in range(1, 5):
        part = ".".join(stage.__module__.split(".")[:depth])
        sys.modules.setdefault(part, types.ModuleType(part))
    sys.modules[stage.__module__].ZeroStageEnum = stage

    def part(value, rank):
        size = -(-value.numel() // world)
        return F.pad(value.flatten(), (0, size * world - value.numel()))[rank * size:(rank + 1) * size].clone()
    groups = [collections.OrderedDict((key, value) for key, value in draw.weights.items()
                                      if key != frozen and (value.dim() > 1) == matrices) for matrices in (True, False)]
    shapes = lambda group: collections.OrderedDict((key, value.shape) for key, value in group.items())

    def write(directory):
        folder = os.path.join(directory, "global_step3")
        os.makedirs(folder)
        with open(os.path.join(directory, "latest"), "w") as file:
            file.write("global_step3")
        for rank in range(world):
            module = collections.OrderedDict((key, torch.empty(0)) for key in [*draw.weights, shared])
            states = {"module": module, "buffer_names": [], "optimizer": None, "param_shapes": [shapes(g) for g in groups],
                      "frozen_param_shapes": shapes({frozen: draw.weights[frozen]}), "shared_params": {shared: frozen},
                      "frozen_param_fragments": {frozen: part(draw.weights[frozen], rank).bfloat16()},
                      "lr_scheduler": None, "global_steps": 3, "dp_world_size": world, "mp_world_size": 1,
                      "ds_config": {"zero_optimization": {"stage": 3}}, "ds_version": "0.14.0"}
            flat = [torch.cat([part(value, rank) for value in group.values()]) for group in groups]
            optimizer = {"zero_stage": 3 if rank else stage.weights, "partition_count": world, "fp32_flat_groups": flat,
                         "optimizer_state_dict": {"state": {}, "param_groups": []}}
            stem = os.path.join(folder, f"zero_pp_rank_{rank}_mp_rank_00")
            torch.save(states, stem + "_model_states.pt")
            torch.save({"optimizer_state_dict": optimizer, "ds_version": "0.14.0"}, stem + "_optim_states.pt")
    return [finish(name, "gpt2", "pre-norm", trace, 2, config=config, write=write,
                   note="stage 3 of DeepSpeed's ZeRO: parts of two processes, a frozen and a shared parameter")]


@case("nanogpt")
def nanogpt(name):
    draw, d = Draw(name), 12
    arguments = {"n_layer": 2, "n_head": 2, "n_embd": d, "block_size": 12, "bias": False, "vocab_size": 24, "dropout": 0.0}
    draw.put("transformer.wte.weight", 24, d, std=0.7)
    draw.put("transformer.wpe.weight", 12, d, std=0.4)
    for layer in range(2):
        l = f"transformer.h.{layer}."
        draw.norm(l + "ln_1", d, bias=False)
        draw.linear(l + "attn.c_attn", d, 3 * d, bias=False)
        draw.linear(l + "attn.c_proj", d, d, bias=False)
        draw.norm(l + "ln_2", d, bias=False)
        draw.linear(l + "mlp.c_fc", d, 4 * d, bias=False)
        draw.linear(l + "mlp.c_proj", 4 * d, d, bias=False)
    draw.norm("transformer.ln_f", d, bias=False)
    trace = forward_gpt2(widen(draw.weights), arguments, draw.ids(7, 24), prefix="transformer.", product=affine, act=gelu)
    draw.weights["lm_head.weight"] = draw.weights["transformer.wte.weight"]
    model = collections.OrderedDict(("_orig_mod." + key, t) for key, t in draw.weights.items())
    moments = {0: {"step": torch.tensor(3.0), "exp_avg": draw.normal(12, d), "exp_avg_sq": draw.normal(12, d) ** 2}}
    checkpoint = {"model": model, "optimizer": {"state": moments, "param_groups": [{"lr": 1e-3, "params": [0]}]},
                  "model_args": arguments, "iter_num": 3, "best_val_loss": torch.tensor(2.5), "config": {"dataset": "none"}}
    write = lambda directory: write_torch(os.path.join(directory, "ckpt.pt"), checkpoint)
    return [finish(name, "nanogpt", "pre-norm", trace, 2, write=write, open_="ckpt.pt",
                   note="_orig_mod. prefix, nn.Linear layout, no biases, exact GELU, sizes and heads in model_args")]


@case("gpt-neo")
def gpt_neo(name):
    draw, d, ff = Draw(name), 12, 20
    config = {"architectures": ["GPTNeoForCausalLM"], "model_type": "gpt_neo", "hidden_size": d, "num_layers": 4,
              "num_heads": 2, "intermediate_size": ff, "attention_types": [[["global", "local"], 2]],
              "attention_layers": ["global", "local", "global", "local"], "window_size": 3,
              "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "max_position_embeddings": 12, "vocab_size": 24}
    draw.put("transformer.wte.weight", 24, d, std=0.7)
    draw.put("transformer.wpe.weight", 12, d, std=0.4)
    for layer in range(4):
        l = f"transformer.h.{layer}."
        draw.norm(l + "ln_1", d)
        for part in "qkv":
            draw.linear(l + f"attn.attention.{part}_proj", d, d, bias=False)
        draw.linear(l + "attn.attention.out_proj", d, d)
        draw.weights[l + "attn.attention.bias"] = causal(12, 3 if layer % 2 else None)[None, None]
        draw.weights[l + "attn.attention.masked_bias"] = torch.tensor(-1e9)
        draw.norm(l + "ln_2", d)
        draw.linear(l + "mlp.c_fc", d, ff)
        draw.linear(l + "mlp.c_proj", ff, d)
    draw.norm("transformer.ln_f", d)
    trace = forward_gpt_neo(widen(draw.weights), config, draw.ids(7, 24))
    return [finish(name, "gpt_neo", "pre-norm", trace, 2, draw.weights, config,
                   note="logits not scaled; layers 1 and 3 see the last 3 keys")]


def draw_transformer_xl(name, **changes):
    draw, d, ff, hd = Draw(name), 12, 20, 5
    config = {"architectures": ["TransfoXLLMHeadModel"], "model_type": "transfo-xl", "vocab_size": 24, "cutoffs": [9, 15],
              "d_model": d, "d_embed": 8, "n_head": 2, "d_head": hd, "d_inner": ff, "n_layer": 3, "div_val": 2,
              "pre_lnorm": False, "mem_len": 4, "same_length": True, "clamp_len": 3, "untie_r": True, "attn_type": 0,
              "adaptive": True, "proj_share_all_but_first": True, "sample_softmax": -1, "dropout": 0.1, "dropatt": 0.0,
              "init": "normal", "init_std": 0.02, "eos_token_id": 0, "layer_norm_epsilon": 1e-5, **changes}
    t, bounds = "transformer.", [0] + config["cutoffs"] + [24]
    parts = 1 if config["div_val"] == 1 else len(bounds) - 1
    for i in range(parts):
        rows = 24 if parts == 1 else bounds[i + 1] - bounds[i]
        columns = config["d_embed"] // config["div_val"] ** i
        draw.put(f"{t}word_emb.emb_layers.{i}.weight", rows, columns, std=0.4)
        if parts > 1:
            draw.put(f"{t}word_emb.emb_projs.{i}", d, columns, std=0.3)
    draw.weights[t + "pos_emb.inv_freq"] = 1 / 10000 ** (torch.arange(0, d, 2) / d)
    biases = lambda where: [draw.put(where + bias, 2, hd, std=0.6) for bias in ("r_w_bias", "r_r_bias")]
    if not config["untie_r"]:
        biases(t)
    for layer in range(config["n_layer"]):
        l = f"{t}layers.{layer}."
        draw.linear(l + "dec_attn.qkv_net", d, 3 * 2 * hd, bias=False)
        draw.linear(l + "dec_attn.o_net", 2 * hd, d, bias=False)
        draw.linear(l + "dec_attn.r_net", d, 2 * hd, bias=False)
        draw.norm(l + "dec_attn.layer_norm", d)
        if config["untie_r"]:
            biases(l + "dec_attn.")
        draw.linear(l + "pos_ff.CoreNet.0", d, ff)
        draw.linear(l + "pos_ff.CoreNet.3", ff, d)
        draw.norm(l + "pos_ff.layer_norm", d)
    draw.put("crit.cluster_weight", len(bounds) - 2, config["d_embed"])
    draw.put("crit.cluster_bias", len(bounds) - 2)
    for i in range(parts):
        draw.put(f"crit.out_layers.{i}.bias", 24 if parts == 1 else bounds[i + 1] - bounds[i])
    if parts > 1:
        draw.put("crit.out_projs.0", d, config["d_embed"])
    return draw, config


@case("transformer-xl")
def transformer_xl(name):
    draw, config = draw_transformer_xl(name)
    trace = forward_transformer_xl(widen(draw.weights), config, torch.tensor([3, 17, 9, 14, 15, 23, 8]))
    return [finish(name, "transformer_xl", "post-norm", trace, 2, draw.weights, config,
                   note="embedding in three clusters; a token sees 4 keys, distances up to 3")]


@case("transformer-xl-memory")
def transformer_xl_memory(name):
    draw, config = draw_transformer_xl(name, d_embed=12, div_val=1, pre_lnorm=True, untie_r=False, same_length=False,
                                       clamp_len=-1)
    trace = forward_transformer_xl(widen(draw.weights), config, draw.ids(9, 24), memory=4)
    return [finish(name, "transformer_xl", "pre-norm", trace, 2, draw.weights, config, needs={"memory_tokens": 4},
                   note="4 tokens of memory; u and v of all layers together; one table")]


def make_neox(name, d, heads, ff, pct, parallel_residual, buffers):
    draw, vocabulary = Draw(name), 24
    config = {"architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "hidden_size": d, "num_hidden_layers": 2,
              "num_attention_heads": heads, "intermediate_size": ff, "hidden_act": "gelu", "rotary_pct": pct,
              "rotary_emb_base": 10000, "max_position_embeddings": 16, "layer_norm_eps": 1e-5,
              "use_parallel_residual": parallel_residual, "tie_word_embeddings": False, "vocab_size": vocabulary}
    draw.put("gpt_neox.embed_in.weight", vocabulary, d, std=0.7)
    for layer in range(2):
        l = f"gpt_neox.layers.{layer}."
        draw.norm(l + "input_layernorm", d)
        draw.norm(l + "post_attention_layernorm", d)
        draw.linear(l + "attention.query_key_value", d, 3 * d)
        draw.linear(l + "attention.dense", d, d)
        draw.linear(l + "mlp.dense_h_to_4h", d, ff)
        draw.linear(l + "mlp.dense_4h_to_h", ff, d)
        if buffers:
            rotary = int(d // heads * pct)
            draw.weights[l + "attention.rotary_emb.inv_freq"] = 10000.0 ** (-torch.arange(0, rotary, 2) / rotary)
            draw.weights[l + "attention.bias"] = causal(16)[None, None]
            draw.weights[l + "attention.masked_bias"] = torch.tensor(-1e9)
    draw.norm("gpt_neox.final_layer_norm", d)
    draw.put("embed_out.weight", vocabulary, d)
    trace = forward_gpt_neox(widen(draw.weights), config, draw.ids(7, vocabulary))
    return [finish(name, "gpt_neox", "parallel" if parallel_residual else "pre-norm", trace, heads, draw.weights, config)]


@case("gpt-neox")
def gpt_neox(name):
    return make_neox(name, 32, 2, 20, 0.25, True, True)


@case("gpt-neox-serial")
def gpt_neox_serial(name):
    return make_neox(name, 16, 2, 20, 0.5, False, False)


# LLaMA and its kin

def draw_llama(draw, config, bias=False, head_norm=False):
    d, ff, heads, groups = (config[key] for key in ("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads"))
    hd = config.get("head_dim") or d // heads
    draw.put("model.embed_tokens.weight", config["vocab_size"], d, std=0.7)
    for layer in range(config["num_hidden_layers"]):
        l = f"model.layers.{layer}."
        draw.norm(l + "input_layernorm", d, bias=False)
        draw.linear(l + "self_attn.q_proj", d, heads * hd, bias=bias)
        draw.linear(l + "self_attn.k_proj", d, groups * hd, bias=bias)
        draw.linear(l + "self_attn.v_proj", d, groups * hd, bias=bias)
        draw.linear(l + "self_attn.o_proj", heads * hd, d, bias=False)
        if head_norm:
            draw.norm(l + "self_attn.q_norm", hd, bias=False)
            draw.norm(l + "self_attn.k_norm", hd, bias=False)
        draw.norm(l + "post_attention_layernorm", d, bias=False)
        draw.linear(l + "mlp.gate_proj", d, ff, bias=False)
        draw.linear(l + "mlp.up_proj", d, ff, bias=False)
        draw.linear(l + "mlp.down_proj", ff, d, bias=False)
    draw.norm("model.norm", d, bias=False)
    if not config["tie_word_embeddings"]:
        draw.put("lm_head.weight", config["vocab_size"], d)


def config_llama(**changes):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16, "intermediate_size": 20,
            "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "max_position_embeddings": 16,
            "attention_bias": False, "mlp_bias": False, "vocab_size": 24, **changes}


def make_llama(name, family="llama", n=7, bias=False, head_norm=False, dtype=torch.float32, write=None, note=None, **changes):
    draw, config = Draw(name), config_llama(**changes)
    draw_llama(draw, config, bias, head_norm)
    weights = collections.OrderedDict((key, t.to(dtype)) for key, t in draw.weights.items())
    trace = forward_llama(widen(weights), config, draw.ids(n, config["vocab_size"]))
    writer = None if write is None else lambda directory: write(directory, weights)
    return [finish(name, family, "pre-norm", trace, config["num_attention_heads"], weights, config, write=writer, note=note)]


@case("llama")
def llama(name):
    return make_llama(name, hidden_size=16, num_attention_heads=4, num_key_value_heads=2, intermediate_size=20, n=8)


@case("llama-rope-llama3")
def llama_rope_llama3(name):
    return make_llama(name, rope_theta=100.0, note="one frequency kept, two blended, one divided by the factor",
                      rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                    "original_max_position_embeddings": 64})


@case("llama-rope-linear")
def llama_rope_linear(name):
    return make_llama(name, rope_scaling={"type": "linear", "factor": 4.0}, note="the older key `type`")


@case("llama-rope-dynamic")
def llama_rope_dynamic(name):
    return make_llama(name, n=9, max_position_embeddings=6, rope_scaling={"rope_type": "dynamic", "factor": 2.0},
                      note="9 tokens, more than max_position_embeddings 6: the base grows")


@case("llama-rope-yarn")
def llama_rope_yarn(name):
    return make_llama(name, n=9, rope_theta=100.0, max_position_embeddings=256, note="two pairs blended, one divided",
                      rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64})


@case("qwen3-rope-yarn")
def qwen3_rope_yarn(name):
    return make_llama(name, "qwen3", head_norm=True, model_type="qwen3", architectures=["Qwen3ForCausalLM"], head_dim=8,
                      num_attention_heads=4, num_key_value_heads=2,
                      rope_theta=50.0, max_position_embeddings=320, note="no whole pairs, a ratio of two temperatures",
                      use_sliding_window=False, sliding_window=None, max_window_layers=2, tie_word_embeddings=True,
                      rope_scaling={"rope_type": "yarn", "factor": 5.0, "beta_fast": 6.0, "beta_slow": 0.5, "truncate": False,
                                    "mscale": 3.0, "mscale_all_dim": 0.5, "original_max_position_embeddings": 64})


@case("llama-f16")
def llama_f16(name):
    return make_llama(name, dtype=torch.float16, hidden_size=12, torch_dtype="float16")


@case("llama-bf16")
def llama_bf16(name):
    return make_llama(name, dtype=torch.bfloat16, hidden_size=12, torch_dtype="bfloat16")


@case("llama-f64")
def llama_f64(name):
    return make_llama(name, dtype=torch.float64, hidden_size=12, torch_dtype="float64")


@case("llama-sharded")
def llama_sharded(name):
    return make_llama(name, hidden_size=12, num_key_value_heads=2, tie_word_embeddings=True,
                      write=lambda directory, w: write_sharded(directory, w, "model", "safetensors", write_safetensors))


@case("mistral")
def mistral(name):
    return make_llama(name, family="mistral", model_type="mistral", architectures=["MistralForCausalLM"], sliding_window=3,
                      num_attention_heads=4, num_key_value_heads=2, note="key j is visible to i iff i - 3 < j <= i")


@case("qwen2")
def qwen2(name):
    return make_llama(name, family="qwen2", bias=True, model_type="qwen2", architectures=["Qwen2ForCausalLM"],
                      rms_norm_eps=1e-6, rope_theta=1e6, tie_word_embeddings=True, use_sliding_window=False,
                      sliding_window=4, max_window_layers=2, num_attention_heads=4, num_key_value_heads=2,
                      note="biases on q, k, v; sliding_window 4 is set but use_sliding_window is false")


@case("qwen3")
def qwen3(name):
    return make_llama(name, family="qwen3", head_norm=True, model_type="qwen3", architectures=["Qwen3ForCausalLM"],
                      rms_norm_eps=1e-6, rope_theta=1e6, tie_word_embeddings=True, head_dim=6, num_attention_heads=4,
                      num_key_value_heads=2, use_sliding_window=False, sliding_window=None, max_window_layers=2,
                      note="head_dim 6: 4 x 6 is not hidden_size 16; q_norm and k_norm before rotation")


# Vision

def config_vit(**changes):
    return {"architectures": ["ViTForImageClassification"], "model_type": "vit", "hidden_size": 12, "num_hidden_layers": 2,
            "num_attention_heads": 2, "intermediate_size": 20, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
            "qkv_bias": True, "image_size": 12, "patch_size": 4, "num_channels": 3, **changes}


def draw_vit(draw, config, prefix, family):
    d, ff = config["hidden_size"], config["intermediate_size"]
    e = prefix + "embeddings."
    patches = (config["image_size"] // config["patch_size"]) ** 2
    draw.put(e + "cls_token", 1, 1, d, std=0.5)
    if family == "deit":
        draw.put(e + "distillation_token", 1, 1, d, std=0.5)
    draw.put(e + "position_embeddings", 1, patches + (2 if family == "deit" else 1), d, std=0.4)
    draw.put(e + "patch_embeddings.projection.weight", d, 3, 4, 4, std=0.15)
    draw.put(e + "patch_embeddings.projection.bias", d, std=0.2)
    for layer in range(config["num_hidden_layers"]):
        l = f"{prefix}encoder.layer.{layer}."
        for part in ("query", "key", "value"):
            draw.linear(l + "attention.attention." + part, d, d)
        draw.linear(l + "attention.output.dense", d, d)
        draw.linear(l + "intermediate.dense", d, ff)
        draw.linear(l + "output.dense", ff, d)
        draw.norm(l + "layernorm_before", d)
        draw.norm(l + "layernorm_after", d)
    draw.norm(prefix + "layernorm", d)
    for head in (["cls_classifier", "distillation_classifier"] if family == "deit" else ["classifier"]):
        draw.linear(head, d, 5)


def make_vit(name, config, prefix, family):
    draw = Draw(name)
    draw_vit(draw, config, prefix, family)
    trace = forward_vit(widen(draw.weights), config, draw.normal(3, 12, 12).double(), prefix)
    return [finish(name, family, "pre-norm", trace, config["num_attention_heads"], draw.weights, config)]


@case("vit")
def vit(name):
    return make_vit(name, config_vit(), "vit.", "vit")


@case("deit")
def deit(name):
    config = config_vit(architectures=["DeiTForImageClassificationWithTeacher"], model_type="deit", num_attention_heads=4)
    return make_vit(name, config, "deit.", "deit")


def draw_timm(name, heads, layer_scale=False, head_norm=False, distilled=False):
    draw, d, ff, layers = Draw(name), 12, 20, 2
    draw.put("cls_token", 1, 1, d, std=0.5)
    if distilled:
        draw.put("dist_token", 1, 1, d, std=0.5)
    draw.put("pos_embed", 1, 11 if distilled else 10, d, std=0.4)
    draw.put("patch_embed.proj.weight", d, 3, 4, 4, std=0.15)
    draw.put("patch_embed.proj.bias", d, std=0.2)
    for layer in range(layers):
        l = f"blocks.{layer}."
        draw.norm(l + "norm1", d)
        draw.linear(l + "attn.qkv", d, 3 * d)
        if head_norm:
            draw.norm(l + "attn.q_norm", d // heads)
            draw.norm(l + "attn.k_norm", d // heads)
        draw.linear(l + "attn.proj", d, d)
        if layer_scale:
            draw.put(l + "ls1.gamma", d, mean=0.5, std=0.3)
        draw.norm(l + "norm2", d)
        draw.linear(l + "mlp.fc1", d, ff)
        draw.linear(l + "mlp.fc2", ff, d)
        if layer_scale:
            draw.put(l + "ls2.gamma", d, mean=0.5, std=0.3)
    draw.norm("norm", d)
    draw.linear("head", d, 5)
    if distilled:
        draw.linear("head_dist", d, 5)
    return draw


def make_timm(name, heads, layer_scale=False, head_norm=False, distilled=False, note=None):
    draw = draw_timm(name, heads, layer_scale, head_norm, distilled)
    trace = forward_timm(widen(draw.weights), 2, heads, draw.normal(3, 12, 12).double())
    write, path = None, "model.safetensors"
    if distilled:
        path = "deit.pth"
        write = lambda directory: write_torch(os.path.join(directory, path), {"model": draw.weights})
    return [finish(name, "timm_vit", "pre-norm", trace, heads, draw.weights, write=write, open_=path,
                   needs={"n_heads": heads}, note=note)]


@case("timm-vit")
def timm_vit(name):
    return make_timm(name, 2)


@case("timm-vit-ls")
def timm_vit_ls(name):
    return make_timm(name, 4, layer_scale=True, note="layer scales ls1, ls2")


@case("timm-vit-qknorm")
def timm_vit_qknorm(name):
    return make_timm(name, 2, head_norm=True, note="LayerNorms over hd on q and k, eps 1e-6")


@case("timm-deit")
def timm_deit(name):
    return make_timm(name, 2, distilled=True, note="distilled, as released: a .pth with the weights under `model`")


def make_xcit(name, patch, heads, size, timm=False, layers=2, note=None):
    """timm's names, with the configuration that it writes, or the authors' file."""
    draw, d, ff = Draw(name), 16, 24

    def norm(name):
        draw.norm(name, d)

    def batch_norm(name, width):
        draw.norm(name, width)
        draw.put(name + ".running_mean", width, std=0.3)
        draw.weights[name + ".running_var"] = draw.normal(width, std=0.5).exp()
        draw.weights[name + ".num_batches_tracked"] = torch.tensor(7)

    def scale(name):
        draw.put(name, d, mean=0.7, std=0.3)

    draw.put("cls_token", 1, 1, d, std=0.5)
    count = {8: 3, 16: 4}[patch]
    widths = [3] + [d >> (count - 1 - k) for k in range(count)]
    for k in range(count):
        draw.put(f"patch_embed.proj.{2 * k}.0.weight", widths[k + 1], widths[k], 3, 3, std=1 / math.sqrt(9 * widths[k]))
        batch_norm(f"patch_embed.proj.{2 * k}.1", widths[k + 1])
    positions = ("pos_embed" if timm else "pos_embeder") + ".token_projection"
    draw.put(positions + ".weight", d, 64, 1, 1, std=0.1)
    draw.put(positions + ".bias", d, std=0.1)
    for layer in range(layers):
        l = f"blocks.{layer}."
        norm(l + "norm1")
        draw.linear(l + "attn.qkv", d, 3 * d)
        draw.put(l + "attn.temperature", heads, 1, 1, mean=1.5, std=0.5)
        draw.linear(l + "attn.proj", d, d)
        norm(l + "norm2")
        draw.linear(l + "mlp.fc1", d, ff)
        draw.linear(l + "mlp.fc2", ff, d)
        norm(l + "norm3")
        for conv in ("conv1", "conv2"):
            draw.put(l + f"local_mp.{conv}.weight", d, 1, 3, 3, std=0.4)
            draw.put(l + f"local_mp.{conv}.bias", d, std=0.2)
        batch_norm(l + "local_mp.bn", d)
        for k in (1, 2, 3):
            scale(l + f"gamma{k}")
    for layer in range(2):
        l = f"cls_attn_blocks.{layer}."
        norm(l + "norm1")
        for part in ("q", "k", "v") if timm else ("qkv",):
            draw.linear(l + "attn." + part, d, d * len(part))
        draw.linear(l + "attn.proj", d, d)
        norm(l + "norm2")
        draw.linear(l + "mlp.fc1", d, ff)
        draw.linear(l + "mlp.fc2", ff, d)
        scale(l + "gamma1")
        scale(l + "gamma2")
    norm("norm")
    draw.linear("head", d, 5)
    tokens_norm = not timm
    trace = forward_xcit(widen(draw.weights), layers, heads, draw.normal(3, *size).double(), tokens_norm)
    config, write, path = None, None, ""
    if timm:
        config = {"architecture": "xcit_nano_12_p16_224", "num_classes": 5, "num_features": d, "global_pool": "token",
                  "pretrained_cfg": {"input_size": [3, *size], "num_classes": 5, "classifier": "head"}}
    else:
        path = "xcit.pth"
        write = lambda directory: write_torch(os.path.join(directory, path), {"model": draw.weights})
    return [finish(name, "xcit", "pre-norm", trace, heads, draw.weights, config=config, write=write, open_=path, note=note)]


@case("xcit")
def xcit(name):
    return make_xcit(name, 8, 4, (24, 32), note="the authors' file: one qkv for class attention, whose norms are of all tokens")


@case("xcit-timm")
def xcit_timm(name):
    return make_xcit(name, 16, 2, (48, 32), timm=True, note="timm's names; class attention norms the class token alone")


SWIN_TIMM = {"patch": "patch_embed.proj", "embed_norm": "patch_embed.norm", "block": "layers.{}.blocks.{}.",
             "norm1": "norm1", "qkv": "attn.qkv", "table": "attn.relative_position_bias_table", "proj": "attn.proj",
             "norm2": "norm2", "fc1": "mlp.fc1", "fc2": "mlp.fc2", "merge": "layers.{1}.downsample.", "final_norm": "norm"}
SWIN_AUTHORS = {**SWIN_TIMM, "merge": "layers.{0}.downsample."}
SWIN_HF = {"patch": "swin.embeddings.patch_embeddings.projection", "embed_norm": "swin.embeddings.norm",
           "block": "swin.encoder.layers.{}.blocks.{}.", "norm1": "layernorm_before", "query": "attention.self.query",
           "key": "attention.self.key", "value": "attention.self.value",
           "table": "attention.self.relative_position_bias_table", "proj": "attention.output.dense",
           "norm2": "layernorm_after", "fc1": "intermediate.dense", "fc2": "output.dense",
           "merge": "swin.encoder.layers.{0}.downsample.", "final_norm": "swin.layernorm"}


def make_swin(name, names, depths, window, size, patch=2, d=8, ratio=1.5, index=True, masks=False,
              config=None, path="", note=None):
    """`index`, `masks`: the buffers beside the weights."""
    draw, heads = Draw(name), [2 << stage for stage in range(len(depths))]
    draw.put(names["patch"] + ".weight", d, 3, patch, patch, std=0.4)
    draw.put(names["patch"] + ".bias", d, std=0.2)
    draw.norm(names["embed_norm"], d)
    rows, cols, width = size[0] // patch, size[1] // patch, d
    for stage, depth in enumerate(depths):
        side = min(window, rows, cols)
        for block in range(depth):
            l = names["block"].format(stage, block)
            draw.norm(l + names["norm1"], width)
            for part in ("qkv",) if "qkv" in names else ("query", "key", "value"):
                draw.linear(l + names[part], width, width * len(part) if part == "qkv" else width)
            draw.put(l + names["table"], (2 * side - 1) ** 2, heads[stage], std=0.8)
            if index:
                draw.weights[l + names["table"].replace("bias_table", "index")] = window_index(side)
            if masks and block % 2 == 1 and min(rows, cols) > side:
                labels = window_labels(rows, cols, side, side // 2)
                draw.weights[l + "attn_mask"] = (labels[:, None, :] != labels[:, :, None]) * -100.0
            draw.linear(l + names["proj"], width, width)
            draw.norm(l + names["norm2"], width)
            draw.linear(l + names["fc1"], width, int(ratio * width))
            draw.linear(l + names["fc2"], int(ratio * width), width)
        if stage + 1 < len(depths):
            m = names["merge"].format(stage, stage + 1)
            draw.norm(m + "norm", 4 * width)
            draw.linear(m + "reduction", 4 * width, 2 * width, bias=False)
            rows, cols, width = rows // 2, cols // 2, 2 * width
    draw.norm(names["final_norm"], width)
    draw.linear({"layers.{1}.downsample.": "head.fc", "layers.{0}.downsample.": "head"}.get(names["merge"], "classifier"), width, 5)
    trace = forward_swin(widen(draw.weights), depths, heads, window, draw.normal(3, *size).double(), patch, names)
    write = None
    if path:
        write = lambda directory: write_torch(os.path.join(directory, path), {"model": draw.weights})
    return [finish(name, "swin", "pre-norm", trace, heads[0], draw.weights, config=config, write=write, open_=path, note=note)]


@case("swin")
def swin(name):
    config = {"architectures": ["SwinForImageClassification"], "model_type": "swin", "image_size": 12, "patch_size": 2,
              "num_channels": 3, "embed_dim": 8, "hidden_size": 16, "depths": [2, 2], "num_heads": [2, 4], "num_layers": 2,
              "window_size": 3, "mlp_ratio": 1.5, "qkv_bias": True, "hidden_act": "gelu", "layer_norm_eps": 1e-05,
              "use_absolute_embeddings": False, "path_norm": True, "drop_path_rate": 0.1, "encoder_stride": 32,
              "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "initializer_range": 0.02}
    return make_swin(name, SWIN_HF, [2, 2], 3, (12, 12), config=config,
                     note="Hugging Face's names; the second stage is one window, which does not shift")


@case("swin-authors")
def swin_authors(name):
    return make_swin(name, SWIN_AUTHORS, [1, 2, 1], 2, (16, 16), masks=True, path="swin.pth",
                     note="the authors' file: patches merge at the end of a stage, index and masks as buffers")


@case("swin-timm")
def swin_timm(name):
    config = {"architecture": "swin_tiny_patch4_window7_224", "num_classes": 5, "num_features": 16, "global_pool": "avg",
              "pretrained_cfg": {"input_size": [3, 8, 16], "num_classes": 5, "classifier": "head.fc"}}
    return make_swin(name, SWIN_TIMM, [2, 1], 2, (8, 16), index=False, config=config,
                     note="timm's names since 0.9: patches merge at the start of a stage; a grid of 4 x 8")


def make_vit_pytorch(name, generation, heads=2, hd=8, d=12, ff=20, layers=2, patch=4):
    draw = Draw(name)
    patch_width, inner = 3 * patch * patch, heads * hd
    size = 12 if generation == "simple" else 8
    tokens = (size // patch) ** 2 + 1
    if generation == "a":
        draw.linear("to_patch_embedding.1", patch_width, d)
    else:
        draw.norm("to_patch_embedding.1", patch_width)
        draw.linear("to_patch_embedding.2", patch_width, d)
        draw.norm("to_patch_embedding.3", d)
    if generation == "d":
        draw.put("cls_token", 1, d, std=0.5)
        draw.put("pos_embedding", tokens, d, std=0.4)
    elif generation != "simple":
        draw.put("cls_token", 1, 1, d, std=0.5)
        draw.put("pos_embedding", 1, tokens, d, std=0.4)
    for layer in range(layers):
        a, m = f"transformer.layers.{layer}.0.", f"transformer.layers.{layer}.1."
        draw.norm(a + "norm", d)
        if generation in "ab":
            draw.linear(a + "fn.to_qkv", d, 3 * inner, bias=False)
            draw.linear(a + "fn.to_out.0", inner, d)
            draw.norm(m + "norm", d)
            draw.linear(m + "fn.net.0", d, ff)
            draw.linear(m + "fn.net.3", ff, d)
        else:
            draw.linear(a + "to_qkv", d, 3 * inner, bias=False)
            if generation == "simple":
                draw.linear(a + "to_out", inner, d, bias=False)
            else:
                draw.linear(a + "to_out.0", inner, d)
            draw.norm(m + "net.0", d)
            draw.linear(m + "net.1", d, ff)
            draw.linear(m + ("net.3" if generation == "simple" else "net.4"), ff, d)
    if generation in "ab":
        draw.norm("mlp_head.0", d)
        draw.linear("mlp_head.1", d, 5)
    else:
        draw.norm("transformer.norm", d)
        draw.linear("linear_head" if generation == "simple" else "mlp_head", d, 5)
    trace = forward_vit_pytorch(widen(draw.weights), layers, heads, draw.normal(3, size, size).double(), patch, generation)
    write = lambda directory: write_torch(os.path.join(directory, "model.pt"), draw.weights)
    needs = {"n_heads": heads}
    if generation == "simple":
        needs["image_size"] = size                        # positions are not stored; the image input tells as well
    return [finish(name, "simple_vit" if generation == "simple" else "vit_pytorch", "pre-norm", trace, heads,
                   write=write, open_="model.pt", needs=needs,
                   note="no final_norm: mlp_head.0 norms the pooled token only" if generation in "ab" else None)]


@case("vit-pytorch-a")
def vit_pytorch_a(name):
    return make_vit_pytorch(name, "a")


@case("vit-pytorch-b")
def vit_pytorch_b(name):
    return make_vit_pytorch(name, "b")


@case("vit-pytorch-c")
def vit_pytorch_c(name):
    return make_vit_pytorch(name, "c")


@case("vit-pytorch-d")
def vit_pytorch_d(name):
    return make_vit_pytorch(name, "d")


@case("simple-vit")
def simple_vit(name):
    return make_vit_pytorch(name, "simple")


# Other attentions

def make_nystromformer(name, n, note=None, **changes):
    draw, d, ff = Draw(name), 18, 26
    config = {"architectures": ["NystromformerForMaskedLM"], "model_type": "nystromformer", "hidden_size": d,
              "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": ff, "hidden_act": "gelu_new",
              "layer_norm_eps": 1e-5, "max_position_embeddings": 14, "type_vocab_size": 2, "vocab_size": 24,
              "num_landmarks": 4, "segment_means_seq_len": 12, "conv_kernel_size": 5, "inv_coeff_init_option": False, **changes}
    e = "nystromformer.embeddings."
    draw.put(e + "word_embeddings.weight", 24, d, std=0.7)
    draw.put(e + "position_embeddings.weight", 16, d, std=0.4)
    draw.put(e + "token_type_embeddings.weight", 2, d, std=0.4)
    draw.norm(e + "LayerNorm", d)
    draw.weights[e + "position_ids"] = torch.arange(14)[None] + 2
    for layer in range(2):
        l = f"nystromformer.encoder.layer.{layer}."
        for part in ("query", "key", "value"):
            draw.linear(l + "attention.self." + part, d, d)
        draw.put(l + "attention.self.conv.weight", 3, 1, 5, 1, std=0.3)
        draw.linear(l + "attention.output.dense", d, d)
        draw.norm(l + "attention.output.LayerNorm", d)
        draw.linear(l + "intermediate.dense", d, ff)
        draw.linear(l + "output.dense", ff, d)
        draw.norm(l + "output.LayerNorm", d)
    draw.linear("cls.predictions.transform.dense", d, d)
    trace = forward_nystromformer(widen(draw.weights), config, draw.ids(n, 24))
    return [finish(name, "nystromformer", "post-norm", trace, 3, draw.weights, config, note=note, stochastic=False)]


@case("nystromformer")
def nystromformer(name):
    return make_nystromformer(name, 12)


@case("nystromformer-softmax")
def nystromformer_softmax(name):
    return make_nystromformer(name, 9, segment_means_seq_len=4, note="4 landmarks, segments of 4 tokens: softmax")


@case("big-bird")
def big_bird(name):
    draw = Draw(name)
    config = config_bert(architectures=["BigBirdForPreTraining"], model_type="big_bird", hidden_act="gelu_new",
                         max_position_embeddings=20, attention_type="block_sparse", block_size=2, num_random_blocks=1,
                         use_bias=True, rescale_embeddings=True, sep_token_id=3)
    draw_bert(draw, config, pooler=False)
    draw.linear("bert.pooler", 18, 18)
    draw.put("cls.predictions.bias", 24, std=0.2)
    trace = forward_big_bird(widen(draw.weights), config, draw.ids(19, 24))
    return [finish(name, "big_bird", "post-norm", trace, 3, draw.weights, config,
                   note="19 tokens in 10 blocks, the last of one; embeddings times sqrt(width)")]


def make_nystrom_attention(name, landmarks, n, note=None):
    draw, d, ff, heads, layers = Draw(name), 12, 24, 3, 2
    for layer in range(layers):
        l = f"layers.{layer}."
        draw.norm(l + "0.norm", d)
        draw.linear(l + "0.fn.to_qkv", d, 3 * heads * 5, bias=False)
        draw.linear(l + "0.fn.to_out.0", heads * 5, d)
        draw.put(l + "0.fn.res_conv.weight", heads, 1, 7, 1, std=0.3)
        draw.norm(l + "1.norm", d)
        draw.linear(l + "1.fn.net.0", d, ff)
        draw.linear(l + "1.fn.net.3", ff, d)
    trace = forward_nystrom_attention(widen(draw.weights), layers, heads, landmarks, draw.normal(n, d).double())
    return [finish(name, "nystrom_attention", "pre-norm", trace, heads, draw.weights, {"num_landmarks": landmarks}, note=note,
                   stochastic=False)]


@case("nystrom-attention")
def nystrom_attention(name):
    return make_nystrom_attention(name, 4, 12)


@case("nystrom-attention-whole")
def nystrom_attention_whole(name):
    return make_nystrom_attention(name, 6, 6, note="as many landmarks as tokens: the formula all the same")


def make_performer(name, glu=False, rotary=False, note=None, **arguments):
    draw, d, hd, m, tokens, layers = Draw(name), 18, 6, 10, 12, 2
    ff = 20
    draw.put("token_emb.weight", 24, d, std=0.7)
    if rotary:
        for table, width in (("pos_emb", d), ("layer_pos_emb", hd)):
            wave = angles_of(tokens, width)
            draw.weights[table + ".emb"] = torch.cat([wave.sin(), wave.cos()], -1).float()
    else:
        draw.put("pos_emb.emb.weight", tokens, d, std=0.4)
    for layer in range(layers):
        l = f"performer.net.layers.{layer}."
        draw.norm(l + "0.norm", d)
        for part in "qkv":
            draw.linear(l + f"0.fn.to_{part}", d, d, bias=False)
        draw.put(l + "0.fn.fast_attention.projection_matrix", m, hd, std=1.0)
        draw.weights[l + "0.fn.fast_attention.calls_since_last_redraw"] = torch.tensor(3)
        draw.linear(l + "0.fn.to_out", d, d)
        draw.norm(l + "1.norm", d)
        draw.linear(l + "1.fn.fn.w1", d, 2 * ff if glu else ff)
        draw.linear(l + "1.fn.fn.w2", ff, d)
        draw.weights[f"performer.proj_updater.instance.net.layers.{layer}.0.norm.weight"] = draw.weights[l + "0.norm.weight"]
    draw.norm("norm", d)
    draw.linear("to_out", d, 24)
    trace = forward_performer(widen(draw.weights), layers, draw.ids(9, 24), arguments.get("causal", False),
                              arguments.get("generalized_attention", False), rotary)
    write = lambda directory: write_torch(os.path.join(directory, "pytorch_model.bin"), draw.weights)
    return [finish(name, "performer", "pre-norm", trace, d // hd, config=arguments or None, write=write, note=note,
                   stochastic=not arguments.get("causal", False))]


@case("performer")
def performer(name):
    return make_performer(name, note="heads by the projection; no configuration")


@case("performer-causal")
def performer_causal(name):
    return make_performer(name, causal=True, glu=True, rotary=True,
                          note="causal, gated feed-forward, stored sines and cosines, rotary pairs")


@case("performer-relu")
def performer_relu(name):
    return make_performer(name, generalized_attention=True)


def make_linformer(name, one_kv_head=False, share_kv=False, note=None):
    draw, d, heads, hd, tokens, k, layers = Draw(name), 16, 2, 8, 10, 4, 2
    draw.put("token_emb.weight", 24, d, std=0.7)
    draw.put("pos_emb.weight", tokens, d, std=0.4)
    for layer in range(layers):
        l = f"linformer.net.layers.{layer}."
        draw.norm(l + "0.norm", d)
        draw.put(l + "0.fn.proj_k", tokens, k, std=0.4)
        draw.linear(l + "0.fn.to_q", d, heads * hd, bias=False)
        draw.linear(l + "0.fn.to_k", d, hd if one_kv_head else heads * hd, bias=False)
        if not share_kv:
            draw.put(l + "0.fn.proj_v", tokens, k, std=0.4)
            draw.linear(l + "0.fn.to_v", d, hd if one_kv_head else heads * hd, bias=False)
        draw.linear(l + "0.fn.to_out", heads * hd, d)
        draw.norm(l + "1.norm", d)
        draw.linear(l + "1.fn.w1", d, 4 * d)
        draw.linear(l + "1.fn.w2", 4 * d, d)
    draw.linear("to_logits", d, 24)
    trace = forward_linformer(widen(draw.weights), layers, heads, draw.ids(tokens, 24))
    return [finish(name, "linformer", "pre-norm", trace, heads, draw.weights, needs={} if one_kv_head else {"n_heads": heads},
                   note=note, stochastic=False)]


@case("linformer")
def linformer(name):
    return make_linformer(name)


@case("linformer-shared")
def linformer_shared(name):
    return make_linformer(name, one_kv_head=True, share_kv=True, note="one head of keys, which are the values, too")


def make_flash(name, n, scale_norm, note=None, **arguments):
    draw, d, s, layers = Draw(name), 14, 8, 2
    config = {"group_size": 24, "causal": False, "shift_tokens": True, **arguments}
    draw.put("token_emb.weight", 24, d, std=0.7)
    draw.put("abs_pos_emb.scale", 1, mean=0.8, std=0.1)
    draw.weights["abs_pos_emb.inv_freq"] = 10000.0 ** (-torch.arange(0, d, 2) / d)
    for layer in range(layers):
        l = f"layers.{layer}."
        draw.weights[l + "rotary_pos_emb.freqs"] = 10000.0 ** (-torch.arange(0, s, 2) / s)
        draw.put(l + "rel_pos_bias.relative_attention_bias.weight", 32, 1, std=0.2)
        if scale_norm:
            draw.put(l + "norm.g", 1, mean=1.0, std=0.2)
        else:
            draw.norm(l + "norm", d)
        draw.linear(l + "to_hidden.0", d, 4 * d)
        draw.linear(l + "to_qk.0", d, s)
        draw.put(l + "qk_offset_scale.gamma", 4, s, std=1.2)
        draw.put(l + "qk_offset_scale.beta", 4, s, std=0.4)
        draw.linear(l + "to_out", 2 * d, d)
    draw.norm("to_logits.0", d)
    draw.linear("to_logits.1", d, 24)
    trace = forward_flash(widen(draw.weights), {**config, "depth": layers}, draw.ids(n, 24))
    return [finish(name, "flash", "pre-norm", trace, 1, draw.weights, config, note=note, stochastic=False)]


@case("flash")
def flash(name):
    return make_flash(name, 40, True, note="40 tokens in groups of 24, ScaleNorm, columns shifted by a token")


@case("flash-causal")
def flash_causal(name):
    return make_flash(name, 29, False, causal=True, shift_tokens=False, group_size=8, note="LayerNorm, groups of 8")


@case("gau")
def gau(name):
    draw, d, s, layers = Draw(name), 14, 8, 2
    for layer in range(layers):
        l = f"layers.{layer}."
        draw.norm(l + "norm", d)
        draw.linear(l + "to_hidden.0", d, 4 * d)
        draw.linear(l + "to_qk.0", d, s)
        draw.put(l + "offsetscale.gamma", 2, s, std=1.5)
        draw.put(l + "offsetscale.beta", 2, s, std=0.5)
        draw.linear(l + "to_out.0", 2 * d, d)
    trace = forward_gau(widen(draw.weights), layers, draw.normal(9, d).double(), True)
    return [finish(name, "gau", "pre-norm", trace, 1, draw.weights, {"causal": True}, stochastic=False)]


def make_transnormer(name, language, softmax, n, glu_act="swish", theta=True, heads=2, d=16, note=None):
    draw, ff, layers, chunk, vocabulary = Draw(name), int(8 / 3 * d), 3, 6, 24
    hd, prefix = d // heads, "decoder." if language else "encoder.sentence_encoder."
    draw.put(prefix + "embed_tokens.weight", vocabulary, d, std=0.3 if language else 0.7)
    if not language:
        draw.put(prefix + "embed_positions.weight", 22, d, std=0.4)
    for layer in range(layers):
        l = f"{prefix}layers.{layer}."
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            draw.linear(l + "self_attn." + part, d, d)
        if theta:
            f = 10000.0 ** (-torch.arange(0, hd // 2 * 2, 2) / hd)
            draw.weights[l + "self_attn.urpe.theta"] = (f * (1 + 0.3 * draw.normal(hd // 2)))[None, None]
        v = draw.normal(hd)
        draw.weights[l + "self_attn.urpe.v"] = v / v.norm()
        draw.linear(l + "glu.l1", d, ff)
        draw.linear(l + "glu.l2", d, ff)
        draw.linear(l + "glu.l3", ff, d)
    linear_map = "1+elu" if softmax else "elu"
    ids = draw.ids(n, vocabulary)
    trace = forward_transnormer(widen(draw.weights), {
        "language": language, "heads": heads, "chunk_size": chunk, "layers": layers, "glu_act": glu_act,
        "linear_act_fun": linear_map, "use_softmax": softmax}, ids, prefix)
    side = "decoder" if language else "encoder"
    kind = ("transnormer_t" if language else "roberta_transnormer_t") + ("2" if softmax else "1")
    draw.weights[("decoder.output_projection" if language else "encoder.lm_head") + ".weight"] = \
        draw.weights[prefix + "embed_tokens.weight"]
    if not language:
        draw.linear("encoder.lm_head.dense", d, d)
    else:
        draw.weights["decoder.embed_positions._float_tensor"] = torch.zeros(1)
    arguments = argparse.Namespace(**{"arch": kind, side + "_attention_heads": heads, side + "_layers": layers,
                                      side + "_chunk_size": chunk, "use_softmax": softmax, "linear_act_fun": linear_map,
                                      "glu_act": glu_act, side + "_attention_types": [2, 1, 1]})
    checkpoint = {"args": None, "cfg": {"model": arguments, "task": {"_name": "language_modeling"}}, "model": draw.weights,
                  "optimizer_history": [{"num_updates": 3}], "extra_state": {"epoch": 1},
                  "last_optimizer_state": {"state": {0: {"exp_avg": draw.normal(3)}}, "param_groups": []}}
    write = lambda directory: write_torch(os.path.join(directory, "checkpoint_best.pt"), checkpoint)
    return [finish(name, "transnormer", "pre-norm" if language else "post-norm", trace, heads, write=write,
                   open_="checkpoint_best.pt", note=note, stochastic=False)]


@case("transnormer1-lm")
def transnormer1_lm(name):
    return make_transnormer(name, True, False, 15, note="chunks of 6 in layer 0 of 3; learned LRPE frequencies")


@case("transnormer2-lm")
def transnormer2_lm(name):
    return make_transnormer(name, True, True, 15, glu_act="identity", theta=False,
                            note="glu_act identity: what the repository's code made of its word swish for some time")


@case("transnormer1-mlm")
def transnormer1_mlm(name):
    return make_transnormer(name, False, False, 15)


@case("transnormer2-mlm")
def transnormer2_mlm(name):
    return make_transnormer(name, False, True, 15, heads=2, d=14,
                            note="zero keys fill the last chunk and take weight; heads of 7 columns, the last one unrotated")


# Wrappers

@case("lightning-bert")
def lightning_bert(name):
    draw, config = Draw(name), config_bert(hidden_size=12, num_attention_heads=2, intermediate_size=20, vocab_size=24)
    draw_bert(draw, config)
    trace = forward_bert(widen(draw.weights), config, draw.ids(7, 24))
    state = collections.OrderedDict(("model." + key, t) for key, t in draw.weights.items())
    checkpoint = {"epoch": 2, "global_step": 30, "pytorch-lightning_version": "1.9.5", "state_dict": state,
                  "loops": {"fit_loop": {"state_dict": {}}}, "callbacks": {"ModelCheckpoint": {"best_model_score": torch.tensor(0.5)}},
                  "optimizer_states": [{"state": {0: {"exp_avg": draw.normal(24, 12)}}, "param_groups": [{"lr": 1e-3, "params": [0]}]}],
                  "lr_schedulers": [], "hparams_name": "kwargs",
                  "hyper_parameters": argparse.Namespace(lr=1e-3, name="tiny")}
    write = lambda directory: write_torch(os.path.join(directory, "last.ckpt"), checkpoint)
    return [finish(name, "bert", "post-norm", trace, 2, write=write, open_="last.ckpt", needs={"n_heads": 2},
                   note="prefix model.bert., no configuration: eps 1e-12 and erf GELU are the family's defaults; "
                        "hyper_parameters is an argparse.Namespace")]


@case("bert-sharded")
def bert_sharded(name):
    draw, config = Draw(name), config_bert(hidden_size=12, num_attention_heads=3, intermediate_size=20, vocab_size=24,
                                           architectures=["BertModel"])
    draw_bert(draw, config, prefix="")
    trace = forward_bert(widen(draw.weights), config, draw.ids(7, 24), prefix="")
    write = lambda directory: write_sharded(directory, draw.weights, "pytorch_model", "bin", write_torch)
    return [finish(name, "bert", "post-norm", trace, 3, config=config, write=write, note="BertModel: no prefix")]


# ---------------------------------------------------------------------------------------------------

def check_against_torch():
    """The layers above against torch.nn.TransformerEncoderLayer with the same weights."""
    draw, config = Draw("check"), config_bert(num_hidden_layers=1, layer_norm_eps=1e-5)
    draw_bert(draw, config, prefix="")
    w, ids = widen(draw.weights), draw.ids(9, 24)
    l = under(w, "encoder.layer.0.")
    qkv = {kind: torch.cat([l[f"attention.self.{part}.{kind}"] for part in ("query", "key", "value")]) for kind in ("weight", "bias")}
    theirs = {"self_attn.in_proj_weight": qkv["weight"], "self_attn.in_proj_bias": qkv["bias"]}
    for mine, name in (("attention.output.dense", "self_attn.out_proj"), ("intermediate.dense", "linear1"),
                       ("output.dense", "linear2"), ("attention.output.LayerNorm", "norm1"), ("output.LayerNorm", "norm2")):
        theirs.update({f"{name}.{kind}": l[f"{mine}.{kind}"] for kind in ("weight", "bias")})
    trace = forward_bert(w, config, ids, prefix="")
    for first, expected in ((False, trace["layer.0.out"]), (True, None)):
        layer = torch.nn.TransformerEncoderLayer(18, 3, 26, dropout=0.0, activation="gelu", layer_norm_eps=1e-5,
                                                 batch_first=True, norm_first=first).double().train()
        layer.load_state_dict(theirs)
        got = layer(trace["layer.0.in"][None])[0]
        if first:                                             # pre-norm: the same weights under ViT's names
            v = {"embeddings.cls_token": torch.zeros(1, 0, 18).double()}
            names = (("attention.self.query", "attention.attention.query"), ("attention.self.key", "attention.attention.key"),
                     ("attention.self.value", "attention.attention.value"), ("attention.output.dense", "attention.output.dense"),
                     ("intermediate.dense", "intermediate.dense"), ("output.dense", "output.dense"),
                     ("attention.output.LayerNorm", "layernorm_before"), ("output.LayerNorm", "layernorm_after"))
            v.update({f"encoder.layer.0.{b}.{kind}": l[f"{a}.{kind}"] for a, b in names for kind in ("weight", "bias")})
            v.update({f"layernorm.{kind}": l[f"output.LayerNorm.{kind}"] for kind in ("weight", "bias")})
            v["embeddings.patch_embeddings.projection.weight"] = torch.eye(18).double().view(18, 18, 1, 1)
            v["embeddings.patch_embeddings.projection.bias"] = torch.zeros(18).double()
            v["embeddings.position_embeddings"] = torch.zeros(1, 9, 18).double()
            image = trace["layer.0.in"].t().reshape(18, 3, 3)
            expected = forward_vit(v, config, image, "")["layer.0.out"]
        assert (got - expected).abs().max() < 1e-12, "disagrees with torch.nn.TransformerEncoderLayer"


def main():
    torch.set_num_threads(1)
    check_against_torch()
    chosen = sys.argv[1:] or list(CASES)
    path = os.path.join(HERE, "manifest.json")
    manifest = {}
    if sys.argv[1:] and os.path.exists(path):
        with open(path) as file:
            manifest = {entry["name"]: entry for entry in json.load(file)["cases"]}
    produced = {}
    for name in chosen:
        keep = {}                                             # what the other scripts wrote
        directory = os.path.join(HERE, name)
        for extra in ("metrics.csv", "curves.csv", "metrics.json", "gradients.csv"):
            if os.path.exists(os.path.join(directory, extra)):
                with open(os.path.join(directory, extra), "rb") as file:
                    keep[extra] = file.read()
        shutil.rmtree(directory, ignore_errors=True)
        entries = CASES[name](name)
        for extra, content in keep.items():
            with open(os.path.join(directory, extra), "wb") as file:
                file.write(content)
        produced.update({entry["name"]: entry for entry in entries})
        size = sum(os.path.getsize(os.path.join(directory, f)) for f in os.listdir(directory))
        print(f"{name:20s} {size / 1000:6.1f} kB")
    manifest.update(produced)
    order = {name: at for at, name in enumerate(CASES)}
    base = lambda entry: entry["name"].replace("-masked", "")
    cases = sorted(manifest.values(), key=lambda entry: (order[base(entry)], entry["name"]))
    write_json(path, {"cases": cases})


decoders.register(sys.modules[__name__])
encoders.register(sys.modules[__name__])
layouts.register(sys.modules[__name__])

if __name__ == "__main__":
    main()
