#!/usr/bin/env python3
"""Trains the character model of this directory: a small GPT-2 on Debian's licence texts.

    OPENBLAS_CORETYPE=SkylakeX nice python3 train_char_gpt.py      # the variable: AVX-512 machines only

Needs Debian's python3-torch and python3-numpy, reads /usr/share/common-licenses and nothing else,
downloads nothing, and writes beside itself (or to --out DIR) a Hugging Face style directory:
config.json, model.safetensors (GPT-2 names, Conv1D layout: weights stored [in, out]), vocab.json
(character -> id), tokenizer.json (the same for tokenizers), sample_ids.npy and sample_ids.txt (128 ids from the middle of the training text).
"""
import argparse
import json
import math
import os
import struct
import time

import numpy as np
import torch
import torch.nn.functional as F

LICENCES = "/usr/share/common-licenses"
# By their own names, not by the links GPL, LGPL, GFDL, which move with Debian's release.
FILES = ["Apache-2.0", "Artistic", "BSD", "GFDL-1.2", "GFDL-1.3", "GPL-1", "GPL-2", "GPL-3",
         "LGPL-2", "LGPL-2.1", "LGPL-3", "MPL-1.1", "MPL-2.0"]

N_EMBD, N_LAYER, N_HEAD, N_POSITIONS, EPS = 96, 4, 4, 128, 1e-5


def read_text():
    """All licences, one after the other; form feeds and non-ASCII characters are left out."""
    parts = []
    for name in FILES:
        with open(os.path.join(LICENCES, name), encoding="utf-8", errors="ignore") as file:
            parts.append(file.read())
    return "".join(c for c in "\n".join(parts) if c == "\n" or 32 <= ord(c) < 127)


def init_weights(vocab):
    """GPT-2's initialisation: N(0, 0.02), residual projections 0.02/sqrt(2 n_layer), biases 0."""
    d, p = N_EMBD, {}

    def normal(std, *shape):
        return torch.randn(*shape) * std

    residual = 0.02 / math.sqrt(2 * N_LAYER)
    p["wte.weight"] = normal(0.02, vocab, d)
    p["wpe.weight"] = normal(0.02, N_POSITIONS, d)
    for layer in range(N_LAYER):
        h = f"h.{layer}."
        for norm in ("ln_1", "ln_2"):
            p[h + norm + ".weight"], p[h + norm + ".bias"] = torch.ones(d), torch.zeros(d)
        for name, rows, cols, std in (("attn.c_attn", d, 3 * d, 0.02), ("attn.c_proj", d, d, residual),
                                      ("mlp.c_fc", d, 4 * d, 0.02), ("mlp.c_proj", 4 * d, d, residual)):
            p[h + name + ".weight"], p[h + name + ".bias"] = normal(std, rows, cols), torch.zeros(cols)
    p["ln_f.weight"], p["ln_f.bias"] = torch.ones(d), torch.zeros(d)
    return p


def gelu_new(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def logits_of(p, ids):
    """Pre-norm GPT-2 with tied head.  ids (b, n) -> (b, n, vocab)."""
    b, n = ids.shape
    hd = N_EMBD // N_HEAD
    mask = torch.full((n, n), float("-inf")).triu(1)
    x = p["wte.weight"][ids] + p["wpe.weight"][:n]
    for layer in range(N_LAYER):
        h = f"h.{layer}."
        y = F.layer_norm(x, (N_EMBD,), p[h + "ln_1.weight"], p[h + "ln_1.bias"], EPS)
        qkv = y @ p[h + "attn.c_attn.weight"] + p[h + "attn.c_attn.bias"]
        q, k, v = (t.view(b, n, N_HEAD, hd).transpose(1, 2) for t in qkv.split(N_EMBD, -1))
        a = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(hd) + mask, -1)
        y = (a @ v).transpose(1, 2).reshape(b, n, N_EMBD)
        x = x + y @ p[h + "attn.c_proj.weight"] + p[h + "attn.c_proj.bias"]
        y = F.layer_norm(x, (N_EMBD,), p[h + "ln_2.weight"], p[h + "ln_2.bias"], EPS)
        y = gelu_new(y @ p[h + "mlp.c_fc.weight"] + p[h + "mlp.c_fc.bias"])
        x = x + y @ p[h + "mlp.c_proj.weight"] + p[h + "mlp.c_proj.bias"]
    x = F.layer_norm(x, (N_EMBD,), p["ln_f.weight"], p["ln_f.bias"], EPS)
    return x @ p["wte.weight"].t()


def write_safetensors(path, tensors):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name in sorted(tensors):
        size = 4 * tensors[name].numel()
        header[name] = {"dtype": "F32", "shape": list(tensors[name].shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(tensors):
            file.write(tensors[name].detach().contiguous().numpy().astype("<f4").tobytes())


def write_tokenizer(path, vocab):
    """A character is a token: Unigram over single characters.  Without an id for unknown ones these are refused."""
    model = {"type": "Unigram", "unk_id": None, "byte_fallback": False,
             "vocab": [[character, 0.0] for character in sorted(vocab, key=vocab.get)]}
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
             "pre_tokenizer": None, "post_processor": None, "decoder": {"type": "Fuse"}, "model": model}
    with open(path, "w") as file:
        json.dump(whole, file)
        file.write("\n")


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--out", default=os.path.dirname(os.path.abspath(__file__)))
    options.add_argument("--steps", type=int, default=2500)
    options.add_argument("--batch", type=int, default=16)
    options.add_argument("--rate", type=float, default=3e-3)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--threads", type=int, default=1)
    options = options.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    os.makedirs(options.out, exist_ok=True)

    text = read_text()
    vocab = {c: i for i, c in enumerate(sorted(set(text)))}
    data = torch.tensor([vocab[c] for c in text])
    # The last twentieth of every licence would be the fair split, but all quote each other:
    # so no claim of generalisation is made and everything is trained on.
    p = {name: t.requires_grad_() for name, t in init_weights(len(vocab)).items()}
    decayed = [t for t in p.values() if t.dim() == 2]
    others = [t for t in p.values() if t.dim() != 2]
    optimiser = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=options.rate, betas=(0.9, 0.95))
    print(f"{len(text)} characters, {len(vocab)} distinct, {sum(t.numel() for t in p.values())} parameters", flush=True)

    def batch(count):
        starts = torch.randint(len(data) - N_POSITIONS - 1, (count,))
        rows = torch.stack([data[s:s + N_POSITIONS + 1] for s in starts])
        return rows[:, :-1], rows[:, 1:]

    start, mean = time.time(), None
    for step in range(options.steps):
        warm = min(1.0, (step + 1) / 100)
        rate = options.rate * warm * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * step / options.steps)))
        for group in optimiser.param_groups:
            group["lr"] = rate
        x, y = batch(options.batch)
        loss = F.cross_entropy(logits_of(p, x).flatten(0, 1), y.flatten())
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(p.values(), 1.0)
        optimiser.step()
        mean = loss.item() if mean is None else 0.98 * mean + 0.02 * loss.item()
        if step % 50 == 0 or step + 1 == options.steps:
            print(f"step {step:5d}  loss {mean:.4f} nats/char  {time.time() - start:.0f} s", flush=True)

    with torch.no_grad():
        total = 0.0
        for _ in range(20):
            x, y = batch(32)
            total += F.cross_entropy(logits_of(p, x).flatten(0, 1), y.flatten()).item() / 20
        print(f"final loss {total:.4f} nats/char over 20 x 32 windows of {N_POSITIONS} characters of the training text")

    config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new",
              "n_embd": N_EMBD, "n_layer": N_LAYER, "n_head": N_HEAD, "n_positions": N_POSITIONS, "n_inner": None,
              "layer_norm_epsilon": EPS, "initializer_range": 0.02, "scale_attn_weights": True,
              "scale_attn_by_inverse_layer_idx": False, "reorder_and_upcast_attn": False, "tie_word_embeddings": True,
              "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "bos_token_id": None, "eos_token_id": None,
              "torch_dtype": "float32", "vocab_size": len(vocab)}
    with open(os.path.join(options.out, "config.json"), "w") as file:
        json.dump(config, file, indent=2)
        file.write("\n")
    with open(os.path.join(options.out, "vocab.json"), "w") as file:
        json.dump(vocab, file, indent=0)
        file.write("\n")
    write_tokenizer(os.path.join(options.out, "tokenizer.json"), vocab)
    write_safetensors(os.path.join(options.out, "model.safetensors"), {"transformer." + k: t for k, t in p.items()})
    middle = len(data) // 2
    sample = data[middle:middle + N_POSITIONS].numpy().astype(np.int64)
    np.save(os.path.join(options.out, "sample_ids.npy"), sample)
    with open(os.path.join(options.out, "sample_ids.txt"), "w") as file:
        file.write(" ".join(str(i) for i in sample) + "\n")


if __name__ == "__main__":
    main()
