"""Cases of make_golden.py: known families in the files of other libraries, each written here from the description of its
format: Flax (MessagePack), Google's ViT (.npz), torchvision's ViT, llama2.c.  The forwards are those of make_golden.py.
"""
import math
import os
import struct

import numpy as np
import torch

g = None  # make_golden


# ---------------------------------------------------------------------------------------------------
# Flax: msgpack of nested dicts; an array is the extension type 1 of (shape, name of its type, bytes)

def pack(value):
    if isinstance(value, dict):
        return head(len(value), 0x80, 16, (None, 0xde, 0xdf)) + b"".join(pack(k) + pack(v) for k, v in value.items())
    if isinstance(value, (list, tuple)):
        return head(len(value), 0x90, 16, (None, 0xdc, 0xdd)) + b"".join(map(pack, value))
    if isinstance(value, str):
        return head(len(value), 0xa0, 32, (0xd9, 0xda, 0xdb)) + value.encode()
    if isinstance(value, bytes):
        return head(len(value), None, 0, (0xc4, 0xc5, 0xc6)) + value
    if isinstance(value, int):
        return bytes([value]) if value < 0x80 else struct.pack(">BI", 0xce, value)
    array = np.ascontiguousarray(value)
    inner = pack([list(array.shape), array.dtype.name, array.tobytes()])
    return head(len(inner), None, 0, (0xc7, 0xc8, 0xc9)) + b"\x01" + inner


def head(length, short, below, codes):
    """The first bytes of something of `length`, in as few bytes as the format has."""
    if length < below:
        return bytes([short | length])
    for code, limit, form in zip(codes, (1 << 8, 1 << 16, 1 << 32), (">BB", ">BH", ">BI")):
        if code is not None and length < limit:
            return struct.pack(form, code, length)


def flax_tree(weights, norm="scale"):
    """Flax's names and layouts: kernels (in, out), convolutions (height, width, in, out)."""
    tree = {}
    for name, t in weights.items():
        parts, a = name.split("."), t.numpy()
        if parts[-1] == "weight" and ("embeddings" in parts[-2] or parts[-2] in ("wte", "wpe", "embed_tokens")):
            parts[-1] = "embedding"
        elif parts[-1] == "weight" and a.ndim == 1:
            parts[-1] = norm
        elif parts[-1] == "weight":
            parts[-1], a = "kernel", a.T if a.ndim == 2 else a.transpose(2, 3, 1, 0)
        at = tree
        for part in parts[:-1]:
            at = at.setdefault(part, {})
        at[parts[-1]] = a
    return tree


def write_flax(weights, norm="scale"):
    def write(directory):
        with open(os.path.join(directory, "flax_model.msgpack"), "wb") as file:
            file.write(pack(flax_tree(weights, norm)))
    return write


def flax_bert(name):
    draw, config = g.Draw(name), g.config_bert()
    g.draw_bert(draw, config)
    trace = g.forward_bert(g.widen(draw.weights), config, draw.ids(8, 24))
    return [g.finish(name, "bert", "post-norm", trace, 3, config=config, write=write_flax(draw.weights))]


def flax_gpt2(name):
    """Flax keeps the transpose of Conv1D's (in, out), and reads it so."""
    draw, config = g.Draw(name), g.config_gpt2(n_embd=16, n_inner=20)
    g.draw_gpt2(draw, config, prefix="transformer.")
    trace = g.forward_gpt2(g.widen(draw.weights), config, draw.ids(8, 24), prefix="transformer.")
    return [g.finish(name, "gpt2", "pre-norm", trace, 2, config=config, write=write_flax(draw.weights))]


def flax_gpt2_sharded(name):
    """Shards as Hugging Face's Flax models are saved: the index joins the keys by strokes."""
    draw, config = g.Draw(name), g.config_gpt2(n_embd=16, n_inner=20)
    g.draw_gpt2(draw, config, prefix="transformer.")
    trace = g.forward_gpt2(g.widen(draw.weights), config, draw.ids(8, 24), prefix="transformer.")
    names = list(draw.weights)
    parts = [{key: draw.weights[key] for key in part} for part in (names[:9], names[9:])]

    def leaves(tree, before=""):
        for key, value in tree.items():
            yield from leaves(value, before + key + "/") if isinstance(value, dict) else [before + key]

    def write(directory):
        index = {"metadata": {"total_size": sum(4 * t.numel() for t in draw.weights.values())}, "weight_map": {}}
        for shard, part in enumerate(parts):
            file, tree = f"flax_model-{shard + 1:05d}-of-00002.msgpack", flax_tree(part)
            with open(os.path.join(directory, file), "wb") as out:
                out.write(pack(tree))
            index["weight_map"].update({key: file for key in leaves(tree)})
        g.write_json(os.path.join(directory, "flax_model.msgpack.index.json"), index)
    return [g.finish(name, "gpt2", "pre-norm", trace, 2, config=config, write=write)]


def flax_llama(name):
    """A module called `model`, which is no wrapper; norms of its own, whose weights keep their name."""
    draw, config = g.Draw(name), g.config_llama()
    g.draw_llama(draw, config, False, False)
    trace = g.forward_llama(g.widen(draw.weights), config, draw.ids(8, 24))
    write = write_flax(draw.weights, "weight")
    return [g.finish(name, "llama", "pre-norm", trace, 2, config=config, write=write)]


def flax_vit(name):
    draw, config = g.Draw(name), g.config_vit()
    g.draw_vit(draw, config, "vit.", "vit")
    trace = g.forward_vit(g.widen(draw.weights), config, draw.normal(3, 12, 12).double(), "vit.")
    return [g.finish(name, "vit", "pre-norm", trace, 2, config=config, write=write_flax(draw.weights))]


# ---------------------------------------------------------------------------------------------------
# Google's ViT: flax.linen's attention, with (width, heads, columns); GELU by tanh, eps 1e-6

def google_name(name):
    for there, here in (("embeddings.cls_token", "cls"),
                        ("embeddings.position_embeddings", "Transformer/posembed_input/pos_embedding"),
                        ("embeddings.patch_embeddings.projection", "embedding"), ("classifier", "head"),
                        ("encoder.layer.", "Transformer/encoderblock_"),
                        (".layernorm_before", "/LayerNorm_0"), (".layernorm_after", "/LayerNorm_2"),
                        (".attention.attention.", "/MultiHeadDotProductAttention_1/"),
                        (".attention.output.dense", "/MultiHeadDotProductAttention_1/out"),
                        (".intermediate.dense", "/MlpBlock_3/Dense_0"), (".output.dense", "/MlpBlock_3/Dense_1"),
                        ("layernorm.", "Transformer/encoder_norm."), (".bias", "/bias")):
        name = name.replace(there, here)
    return name


def google_arrays(weights, heads):
    out = {}
    for name, t in weights.items():
        a, here = t.numpy(), google_name(name)
        if here.endswith(".weight"):
            here = here[:-len(".weight")] + ("/scale" if a.ndim == 1 else "/kernel")
            a = a if a.ndim == 1 else a.T if a.ndim == 2 else a.transpose(2, 3, 1, 0)
        if "Attention_1" in here:
            part = here.split("/")[-2]
            columns = weights["encoder.layer.0.attention.attention.query.bias"].numel() // heads
            if part == "out" and a.ndim == 2:
                a = a.reshape(heads, columns, -1)
            elif part != "out":
                a = a.reshape(*a.shape[:-1], heads, columns)
        out[here] = np.ascontiguousarray(a)
    return out


def google_vit(name):
    draw, config = g.Draw(name), g.config_vit(layer_norm_eps=1e-6, num_attention_heads=3)
    g.draw_vit(draw, config, "", "vit")
    trace = g.forward_vit(g.widen(draw.weights), config, draw.normal(3, 12, 12).double(), "", g.gelu_new)
    write = lambda directory: np.savez(os.path.join(directory, "vit.npz"), **google_arrays(draw.weights, 3))
    return [g.finish(name, "vit", "pre-norm", trace, 3, write=write, open_="vit.npz")]


# ---------------------------------------------------------------------------------------------------
# torchvision's ViT: the same model as timm's

def torchvision_name(name):
    for there, here in (("cls_token", "class_token"), ("pos_embed", "encoder.pos_embedding"),
                        ("patch_embed.proj", "conv_proj"), ("blocks.", "encoder.layers.encoder_layer_"),
                        (".norm1", ".ln_1"), (".norm2", ".ln_2"), (".attn.qkv.", ".self_attention.in_proj_"),
                        (".attn.proj", ".self_attention.out_proj"), (".mlp.fc1", ".mlp.0"), (".mlp.fc2", ".mlp.3"),
                        ("head.", "heads.head.")):
        name = name.replace(there, here)
    return "encoder.ln." + name[len("norm."):] if name.startswith("norm.") else name


def torchvision_vit(name):
    draw = g.draw_timm(name, 3)
    trace = g.forward_timm(g.widen(draw.weights), 2, 3, draw.normal(3, 12, 12).double())
    weights = {torchvision_name(key): t for key, t in draw.weights.items()}
    write = lambda directory: g.write_torch(os.path.join(directory, "vit.pth"), weights)
    return [g.finish(name, "torchvision_vit", "pre-norm", trace, 3, write=write, open_="vit.pth", needs={"n_heads": 3})]


# ---------------------------------------------------------------------------------------------------
# llama2.c: Meta's LLaMA, whose heads rotate neighbouring columns

MATRICES = (("wq", "self_attn.q_proj"), ("wk", "self_attn.k_proj"), ("wv", "self_attn.v_proj"),
            ("wo", "self_attn.o_proj"), ("w1", "mlp.gate_proj"), ("w2", "mlp.down_proj"), ("w3", "mlp.up_proj"))


def in_pairs(t, columns):
    """Rows i and i + columns / 2 of each head become neighbours."""
    heads = t.shape[0] // columns
    return t.view(heads, 2, columns // 2, -1).transpose(1, 2).reshape(t.shape)


def quantise(t, group):
    """Codes in [-127, 127] and a scale for each `group` elements."""
    rows = t.reshape(-1, group)
    scale = rows.abs().max(1).values / 127
    return torch.round(rows / scale[:, None]).to(torch.int8), scale


def write_llama2c(weights, c, version, group):
    heads, d, layers, tokens = c["num_attention_heads"], c["hidden_size"], c["num_hidden_layers"], c["max_position_embeddings"]
    shared = "lm_head.weight" not in weights
    of = lambda name: weights["model." + name]
    part = lambda stem: [of(f"layers.{l}.{stem}.weight") for l in range(layers)]
    matrices = {short: [in_pairs(t, d // heads) if short in ("wq", "wk") else t for t in part(stem)]
                for short, stem in MATRICES}
    embedding, norm, output = [of("embed_tokens.weight")], [of("norm.weight")], [] if shared else [weights["lm_head.weight"]]
    before, after = part("input_layernorm"), part("post_attention_layernorm")
    flat = lambda ts: b"".join(t.contiguous().numpy().astype("<f4").tobytes() for t in ts)
    sizes = [d, c["intermediate_size"], layers, heads, c["num_key_value_heads"], c["vocab_size"], tokens]
    if version == 0:
        sizes[5] *= 1 if shared else -1
        attention = [t for short in ("wq", "wk", "wv", "wo") for t in matrices[short]]
        forward = [t for short in ("w1", "w2", "w3") for t in matrices[short]]
        angles = torch.arange(tokens).double()[:, None] * g.inverse_frequencies(c, d // heads, tokens)
        return struct.pack("<7i", *sizes) + flat(embedding + before + attention + after + forward + norm
                                                 + [angles.cos(), angles.sin()] + output)
    start = b"24ka" + struct.pack("<i7iB", version, *sizes, shared) + (struct.pack("<i", group) if version == 2 else b"")
    start += bytes(256 - len(start)) + flat(before + after + norm)
    rest = embedding + [t for short, _ in MATRICES for t in matrices[short]] + output
    if version == 1:
        return start + flat(rest)
    pairs = [quantise(t, group) for t in rest]
    return start + b"".join(q.numpy().tobytes() + flat([s]) for q, s in pairs)


def make_llama2c(name, version, shared, group=4):
    draw, c = g.Draw(name), g.config_llama(num_attention_heads=4, num_key_value_heads=2)
    g.draw_llama(draw, c, False, False)
    if shared:
        del draw.weights["lm_head.weight"]
    weights = g.widen(draw.weights)
    if version == 2:
        for key, t in draw.weights.items():
            if t.dim() == 2:
                q, s = quantise(t, group)
                weights[key] = (q.double() * s.double()[:, None]).reshape(t.shape)
    trace = g.forward_llama(weights, c, draw.ids(8, c["vocab_size"]))

    def write(directory):
        with open(os.path.join(directory, "llama.bin"), "wb") as file:
            file.write(write_llama2c(draw.weights, c, version, group))
    return [g.finish(name, "llama", "pre-norm", trace, 4, write=write, open_="llama.bin")]


# ---------------------------------------------------------------------------------------------------
# TensorFlow 1: a bundle of a data file and an index in the layout of LevelDB's tables

CRC = []
for byte in range(256):
    for _ in range(8):
        byte = byte >> 1 ^ (0x82f63b78 if byte & 1 else 0)
    CRC.append(byte)


def masked_crc(data):
    """CRC-32C, rotated right by 15 bits, plus a constant."""
    crc = 0xffffffff
    for byte in data:
        crc = crc >> 8 ^ CRC[(crc ^ byte) & 255]
    crc ^= 0xffffffff
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def varint(value):
    out = b""
    while value >= 0x80:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def field(number, value):
    """Of a protocol buffer: a number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def table_block(entries, interval=3):
    """Keys without what they share with the one before, but for every `interval`-th."""
    out, restarts, before = b"", [], b""
    for i, (key, value) in enumerate(entries):
        shared = 0
        if i % interval == 0:
            restarts.append(len(out))
        else:
            while shared < min(len(key), len(before)) and key[shared] == before[shared]:
                shared += 1
        out += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        before = key
    return out + b"".join(struct.pack("<I", at) for at in restarts + [len(restarts)])


def write_table(path, entries, per_block=7):
    data, handles = b"", []

    def put(block):
        nonlocal data
        at = len(data)
        data += block + b"\0" + struct.pack("<I", masked_crc(block + b"\0"))
        return varint(at) + varint(len(block))
    for first in range(0, len(entries), per_block):
        some = entries[first:first + per_block]
        handles.append((some[-1][0] + b"~", put(table_block(some))))
    footer = put(table_block([])) + put(table_block(handles, 1))
    data += footer + bytes(40 - len(footer)) + struct.pack("<Q", 0xdb4775248b80fb57)
    with open(path, "wb") as file:
        file.write(data)


def write_tensorflow(prefix, arrays):
    data, entries = b"", [(b"", field(1, 1) + field(3, field(1, 1)))]
    for name, a in sorted(arrays.items()):
        a = np.ascontiguousarray(a)
        raw = a.tobytes()
        shape = b"".join(field(2, field(1, size)) for size in a.shape)
        entry = field(1, {"float32": 1, "int64": 9}[a.dtype.name]) + field(2, shape)
        entry += (field(4, len(data)) if data else b"") + field(5, len(raw))
        entries.append((name.encode(), entry + varint(6 << 3 | 5) + struct.pack("<I", masked_crc(raw))))
        data += raw
    with open(prefix + ".data-00000-of-00001", "wb") as file:
        file.write(data)
    write_table(prefix + ".index", entries)


def tensorflow_arrays(weights, rename):
    out = {"global_step": np.array(7, dtype="int64")}
    for name, t in weights.items():
        a, here = t.numpy(), rename(name)
        if here.endswith("_embeddings/weight"):
            here = here[:-len("/weight")]
        elif here.endswith("LayerNorm/weight") or here.endswith("LayerNorm_1/weight"):
            here = here[:-len("weight")] + "gamma"
        elif "LayerNorm" in here:
            here = here[:-len("bias")] + "beta"
        elif here.endswith("/weight"):
            here, a = here[:-len("weight")] + "kernel", a.T
        out[here] = np.ascontiguousarray(a)
    out["bert/pooler/dense/kernel/adam_m"] = np.zeros((2, 2), dtype="float32")
    return out


def bert_variable(name):
    name = name.replace("encoder.layer.", "encoder.layer_").replace("cls.predictions.bias", "cls.predictions.output_bias")
    return name.replace(".", "/")


def albert_variable(name):
    for there, here in (("albert.", "bert."), (".encoder.albert_layer_groups.", ".encoder.transformer.group_"),
                        (".albert_layers.", ".inner_group_"), (".attention.LayerNorm", ".LayerNorm"),
                        (".full_layer_layer_norm", ".LayerNorm_1"), (".attention.dense", ".attention_1.output.dense"),
                        (".attention.", ".attention_1.self."), (".ffn_output", ".ffn_1.intermediate.output.dense"),
                        (".ffn.", ".ffn_1.intermediate.dense."), ("bert.pooler.", "bert.pooler.dense."),
                        ("predictions.bias", "cls.predictions.output_bias"),
                        ("predictions.dense", "cls.predictions.transform.dense"),
                        ("predictions.LayerNorm", "cls.predictions.transform.LayerNorm")):
        if not (there == ".attention." and ".attention_1." in name):
            name = name.replace(there, here)
    return name.replace(".", "/")


GOOGLE_KEYS = ("attention_probs_dropout_prob", "embedding_size", "hidden_act", "hidden_dropout_prob", "hidden_size",
               "initializer_range", "inner_group_num", "intermediate_size", "max_position_embeddings",
               "num_attention_heads", "num_hidden_groups", "num_hidden_layers", "type_vocab_size", "vocab_size")


def of_google(config):
    """The configuration as their code writes it: no family, no eps."""
    return {key: config[key] for key in GOOGLE_KEYS if key in config}


def tensorflow_bert(name):
    draw, config = g.Draw(name), g.config_bert()
    g.draw_bert(draw, config)
    draw.put("cls.predictions.bias", 24, std=0.2)
    draw.linear("cls.predictions.transform.dense", 18, 18)
    draw.norm("cls.predictions.transform.LayerNorm", 18)
    trace = g.forward_bert(g.widen(draw.weights), config, draw.ids(8, 24))

    def write(directory):
        g.write_json(os.path.join(directory, "bert_config.json"), of_google(config))
        write_tensorflow(os.path.join(directory, "bert_model.ckpt"), tensorflow_arrays(draw.weights, bert_variable))
    return [g.finish(name, "bert", "post-norm", trace, 3, write=write, open_="bert_model.ckpt.index",
                     note="bert_config.json beside it")]


def tensorflow_albert(name):
    draw, config = g.draw_albert(name)
    trace = g.forward_albert(g.widen(draw.weights), config, draw.ids(8, 36))

    def write(directory):
        g.write_json(os.path.join(directory, "albert_config.json"), {**of_google(config), "hidden_act": "gelu"})
        write_tensorflow(os.path.join(directory, "model.ckpt-best"), tensorflow_arrays(draw.weights, albert_variable))
    return [g.finish(name, "albert", "post-norm", trace, 2, write=write, open_="model.ckpt-best.index",
                     note="albert_config.json beside it, whose gelu is gelu_new")]


# ---------------------------------------------------------------------------------------------------
# TransformerLens: GPT-2 with (heads, width, columns); folded, its norms have no weights

def lens_weights(w, heads, folded):
    out = {"embed.W_E": w["wte.weight"], "pos_embed.W_pos": w["wpe.weight"]}
    d = w["wte.weight"].shape[1]
    norms = {"ln_f": "ln_final"}
    for l in range(2):
        here, there = f"h.{l}.", f"blocks.{l}."
        for part, short in enumerate("QKV"):
            columns = slice(part * d, (part + 1) * d)
            out[f"{there}attn.W_{short}"] = w[here + "attn.c_attn.weight"][:, columns].view(d, heads, -1).transpose(0, 1)
            out[f"{there}attn.b_{short}"] = w[here + "attn.c_attn.bias"][columns].view(heads, -1)
        out[there + "attn.W_O"] = w[here + "attn.c_proj.weight"].view(heads, -1, d)
        out[there + "attn.b_O"] = w[here + "attn.c_proj.bias"]
        for name, short in (("c_fc", "in"), ("c_proj", "out")):
            out[f"{there}mlp.W_{short}"], out[f"{there}mlp.b_{short}"] = w[f"{here}mlp.{name}.weight"], w[f"{here}mlp.{name}.bias"]
        out[there + "attn.mask"] = torch.tril(torch.ones(12, 12)).bool()
        out[there + "attn.IGNORE"] = torch.tensor(-math.inf)
        norms |= {f"h.{l}.ln_1": there + "ln1", f"h.{l}.ln_2": there + "ln2"}
    if not folded:
        for name, short in norms.items():
            out[short + ".w"], out[short + ".b"] = w[name + ".weight"], w[name + ".bias"]
    out["unembed.W_U"] = w["wte.weight"].t().contiguous()
    out["unembed.b_U"] = torch.zeros(w["wte.weight"].shape[0])
    return {name: t.contiguous() for name, t in out.items()}


def make_lens(name, folded, **changes):
    draw, c = g.Draw(name), g.config_gpt2(n_embd=16, n_head=4, n_inner=20, activation_function="gelu_new")
    g.draw_gpt2(draw, c)
    if folded:
        for key, t in draw.weights.items():
            if "ln_" in key:
                t.fill_(1.0 if key.endswith("weight") else 0.0)
    trace = g.forward_gpt2(g.widen(draw.weights), c, draw.ids(8, 24))
    config = {"n_layers": 2, "d_model": 16, "n_ctx": 12, "d_head": 4, "n_heads": 4, "d_mlp": 20, "act_fn": "gelu_new",
              "d_vocab": 24, "eps": 1e-5, "normalization_type": "LNPre" if folded else "LN", "attention_dir": "causal",
              "use_attn_scale": True, "attn_only": False, "positional_embedding_type": "standard", "seed": 3,
              "model_name": "custom", "n_params": 4096, "d_vocab_out": 24, "parallel_attn_mlp": False}
    write = lambda directory: g.write_torch(os.path.join(directory, "model_final.pth"), lens_weights(draw.weights, 4, folded))
    return [g.finish(name, "transformer_lens", "pre-norm", trace, 4, config=config, write=write, open_="model_final.pth")]


CASES = {
    "transformer-lens": lambda name: make_lens(name, False),
    "transformer-lens-folded": lambda name: make_lens(name, True),
    "tensorflow-bert": tensorflow_bert, "tensorflow-albert": tensorflow_albert,
    "flax-bert": flax_bert, "flax-gpt2": flax_gpt2, "flax-gpt2-sharded": flax_gpt2_sharded, "flax-llama": flax_llama, "flax-vit": flax_vit, "google-vit": google_vit,
    "torchvision-vit": torchvision_vit,
    "llama2c-old": lambda name: make_llama2c(name, 0, False),
    "llama2c-old-shared": lambda name: make_llama2c(name, 0, True),
    "llama2c-1": lambda name: make_llama2c(name, 1, True),
    "llama2c-2": lambda name: make_llama2c(name, 2, False),
}


def register(golden):
    """Adds the cases to those of make_golden.py, given as a module."""
    global g
    g = golden
    for name, function in CASES.items():
        golden.case(name)(function)
