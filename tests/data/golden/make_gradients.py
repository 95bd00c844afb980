#!/usr/bin/env python3
"""Gradients of four golden cases by PyTorch's autograd, in float64.

    OPENBLAS_CORETYPE=SkylakeX nice python3 make_gradients.py      # the variable: AVX-512 machines only

Reads what make_golden.py wrote and runs its forward with weights that want gradients.  Writes
gradients.csv into the directory of each case, one line a gradient G of a loss L:

    loss,kind,name,norm,waves      kind: loss (norm is L), state or parameter; norm |G|_F;
                                   waves sum_i cos(i) G_i, i counting in the order of rows

States have the names of golden.npz, parameters the canonical ones of docs/architecture.md; a matrix
is (out, in).  The losses, with Y the last state, behind the final norm where there is one:

    square    |Y|_F^2 / 2
    product   sum_i sin(i) Y_i
    tokens    mean cross-entropy of ids through the output head: the next token (gpt2, llama), or
              ids 3, 8 at rows 1, 4 (bert)
    classes   cross-entropy of class 2 of 5; logits W mean_i y_i, W_i = cos(i)
"""
import csv
import json
import os

import numpy as np
import torch

import make_golden as golden
import make_metrics as metrics

HERE = os.path.dirname(os.path.abspath(__file__))


# ---------------------------------------------------------------------------------------------------
# Canonical names: name -> (the file's tensor, a function from it to (out, in)).

def same(t):
    return t


def part(which, count):
    """Columns of a fused Conv1D weight, or entries of its bias, turned to (out, in)."""
    def cut(t):
        t = t.chunk(count, -1)[which]
        return t.t() if t.dim() == 2 else t
    return cut


def turned(t):
    return t.t() if t.dim() == 2 else t


def both(canonical, stem, cut=same, bias=True):
    return {canonical + kind: (stem + kind, cut) for kind in (".weight", ".bias")[:1 + bias]}


def names_bert(config):
    e = "bert.embeddings."
    names = {"embed.token": (e + "word_embeddings.weight", same), "embed.position": (e + "position_embeddings.weight", same),
             "embed.type": (e + "token_type_embeddings.weight", same), **both("embed.norm", e + "LayerNorm")}
    for layer in range(config["num_hidden_layers"]):
        c, l = f"layer.{layer}.", f"bert.encoder.layer.{layer}."
        for short, long in zip("qkv", ("query", "key", "value")):
            names.update(both(f"{c}attn.{short}", f"{l}attention.self.{long}"))
        for short, long in (("attn.o", "attention.output.dense"), ("norm1", "attention.output.LayerNorm"),
                            ("ffn.up", "intermediate.dense"), ("ffn.down", "output.dense"), ("norm2", "output.LayerNorm")):
            names.update(both(c + short, l + long))
    p = "cls.predictions."
    names.update(both("head.transform", p + "transform.dense"))
    names.update(both("head.norm", p + "transform.LayerNorm"))
    names["head.bias"] = (p + "bias", same)
    return names


def names_gpt2(config):
    names = {"embed.token": ("wte.weight", same), "embed.position": ("wpe.weight", same)}
    for layer in range(config["n_layer"]):
        c, l = f"layer.{layer}.", f"h.{layer}."
        for which, short in enumerate("qkv"):
            names.update(both(f"{c}attn.{short}", l + "attn.c_attn", part(which, 3)))
        for short, long in (("attn.o", "attn.c_proj"), ("ffn.up", "mlp.c_fc"), ("ffn.down", "mlp.c_proj")):
            names.update(both(c + short, l + long, turned))
        names.update(both(c + "norm1", l + "ln_1"))
        names.update(both(c + "norm2", l + "ln_2"))
    names.update(both("final_norm", "ln_f"))
    return names


def names_llama(config):
    names = {"embed.token": ("model.embed_tokens.weight", same), "head.weight": ("lm_head.weight", same)}
    for layer in range(config["num_hidden_layers"]):
        c, l = f"layer.{layer}.", f"model.layers.{layer}."
        for short in "qkvo":
            names.update(both(f"{c}attn.{short}", f"{l}self_attn.{short}_proj", bias=False))
        for short in ("gate", "up", "down"):
            names.update(both(f"{c}ffn.{short}", f"{l}mlp.{short}_proj", bias=False))
        names.update(both(c + "norm1", l + "input_layernorm", bias=False))
        names.update(both(c + "norm2", l + "post_attention_layernorm", bias=False))
    names.update(both("final_norm", "model.norm", bias=False))
    return names


def names_vit(config):
    e = "vit.embeddings."
    names = {"embed.patch.weight": (e + "patch_embeddings.projection.weight", lambda t: t.flatten(1)),
             "embed.patch.bias": (e + "patch_embeddings.projection.bias", same),
             "embed.prefix": (e + "cls_token", lambda t: t[0]), "embed.position": (e + "position_embeddings", lambda t: t[0])}
    for layer in range(config["num_hidden_layers"]):
        c, l = f"layer.{layer}.", f"vit.encoder.layer.{layer}."
        for short, long in zip("qkv", ("query", "key", "value")):
            names.update(both(f"{c}attn.{short}", f"{l}attention.attention.{long}"))
        for short, long in (("attn.o", "attention.output.dense"), ("norm1", "layernorm_before"), ("ffn.up", "intermediate.dense"),
                            ("ffn.down", "output.dense"), ("norm2", "layernorm_after")):
            names.update(both(c + short, l + long))
    names.update(both("final_norm", "vit.layernorm"))
    return names


# ---------------------------------------------------------------------------------------------------
# Losses

def waves(shape, wave):
    return wave(torch.arange(int(np.prod(shape))).double()).reshape(shape)


def cross_entropy(logits, targets):
    return (torch.logsumexp(logits, -1) - logits[torch.arange(len(targets)), targets]).mean()


def square(w, y, ids):
    return (y * y).sum() / 2


def product(w, y, ids):
    return (waves(y.shape, torch.sin) * y).sum()


def classes(w, y, ids):
    return cross_entropy((waves((5, y.shape[1]), torch.cos) @ y.mean(0))[None], torch.tensor([2]))


def tokens_bert(w, y, ids):
    p = "cls.predictions."
    x = golden.gelu(golden.affine(w, p + "transform.dense", y[[1, 4]]))
    x = golden.layer_norm(w, p + "transform.LayerNorm", x, 1e-12)
    return cross_entropy(x @ w["bert.embeddings.word_embeddings.weight"].t() + w[p + "bias"], torch.tensor([3, 8]))


def tokens_by(matrix):
    return lambda w, y, ids: cross_entropy(y[:-1] @ w[matrix].t(), ids[1:])


CASES = {
    "bert": (golden.forward_bert, {}, names_bert, {"square": square, "product": product, "tokens": tokens_bert}),
    "gpt2": (golden.forward_gpt2, {}, names_gpt2, {"square": square, "tokens": tokens_by("wte.weight")}),
    "llama": (golden.forward_llama, {}, names_llama, {"product": product, "tokens": tokens_by("lm_head.weight")}),
    "vit": (golden.forward_vit, {"prefix": "vit."}, names_vit, {"square": square, "classes": classes}),
}


def lines(name):
    forward, more, names_of, losses = CASES[name]
    directory = os.path.join(HERE, name)
    with open(os.path.join(directory, "config.json")) as file:
        config = json.load(file)
    file = metrics.read_safetensors(os.path.join(directory, "model.safetensors"))
    given = np.load(os.path.join(directory, "golden.npz"))
    inputs = torch.from_numpy(given["image" if "image" in given else "ids"])
    for loss, of in losses.items():
        w = {key: torch.from_numpy(t).requires_grad_() for key, t in file.items()}
        trace = forward(w, config, inputs, **more)
        states = {key: t for key, t in trace.items() if t.is_floating_point() and "attentions" not in key and key != "image"}
        for t in states.values():
            t.retain_grad()
        last = trace.get("final_norm", trace[f"layer.{config.get('num_hidden_layers', config.get('n_layer')) - 1}.out"])
        value = of(w, last, inputs)
        value.backward()
        yield [loss, "loss", "", repr(value.item()), ""]
        found = [("state", key, t.grad) for key, t in states.items()]
        found += [("parameter", key, cut(w[at].grad)) for key, (at, cut) in names_of(config).items() if w[at].grad is not None]
        for kind, key, g in found:
            yield [loss, kind, key, repr(g.norm().item()), repr((waves(g.shape, torch.cos) * g).sum().item())]


def main():
    torch.set_num_threads(1)
    for name in CASES:
        with open(os.path.join(HERE, name, "gradients.csv"), "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows([["loss", "kind", "name", "norm", "waves"], *lines(name)])


if __name__ == "__main__":
    main()
