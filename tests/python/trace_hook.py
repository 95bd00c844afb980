"""Runs what `tsdiag trace-hook` prints for modules of several styles, and compares what tsdiag says of their traces with
PyTorch: of one trace, of a folder of batches, of a folder of steps.

    trace_hook.py TSDIAG     exit code 77: there is no PyTorch
"""

import contextlib
import csv
import io
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from similarity import t_sim, xi_ratio

SKIPPED = 77

STOCK = '''
import torch
from torch import nn

class Net(nn.Module):
    """A model; its ``ModuleList(`` is inside of PyTorch's encoder."""

    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(24, 3, 40, dropout=0.0, norm_first=True)  # (tokens, samples, width)
        self.inner = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)

    def forward(self, x):
        return self.inner(x.transpose(0, 1)).transpose(0, 1)
'''

NANO = '''
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        self.n_head = config.n_head

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        q, k, v = (y.view(B, T, self.n_head, C // self.n_head).transpose(1, 2) for y in (q, k, v))
        s = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        s = s.masked_fill(torch.tril(torch.ones(T, T)) == 0, float("-inf"))
        return self.c_proj((F.softmax(s, -1) @ v).transpose(1, 2).reshape(B, T, C))

class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd)
        self.mlp = nn.Sequential(nn.Linear(config.n_embd, 50), nn.GELU(), nn.Linear(50, config.n_embd))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        x = x + self.mlp(self.ln_2(x))
        return x

class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.transformer = nn.ModuleDict(dict(
            drop = nn.Dropout(0.0),
            h = nn.ModuleList([Block(config) for _ in range(3)]),  # the layers
            ln_f = nn.LayerNorm(config.n_embd),
        ))

    def forward(self, x):
        for block in self.transformer.h:
            x = block(x)
        return self.transformer.ln_f(x)

class Config:
    n_embd, n_head = 24, 3

class Net(GPT):
    def __init__(self):
        super().__init__(Config)
'''

BERT = '''
import torch

class Mixing(torch.nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.num_heads: int = heads
        self.q_proj, self.out = None, torch.nn.Linear(d, d)
        self.q_proj = torch.nn.Linear(d, d)
        self.k_proj = torch.nn.Linear(
            d,
            d,
        )
        self.v_proj = torch.nn.Linear(d, d)

    def forward(self, x):
        split = lambda y: y.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        q, k, v = split(self.q_proj(x)), split(self.k_proj(x)), split(self.v_proj(x))
        p = torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1)
        return self.out((p @ v).transpose(1, 2).flatten(2))

class Layer(torch.nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.self_attention = Mixing(d, heads)
        self.norm_a = torch.nn.LayerNorm(d)
        self.feed = torch.nn.Linear(d, d)
        self.norm_b = torch.nn.LayerNorm(d)

    def forward(self, x):
        h = self.self_attention(x)
        x = self.norm_a(x + h)
        return self.norm_b(x + torch.relu(self.feed(x)))

class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList()
        for _ in range(3):
            self.layers.append(Layer(24, 3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()

    def forward(self, x):
        return self.encoder(x)
'''

# What a window attention, a merging and a layer of Swin are in three libraries; SEEN is told the states.
WINDOWS = '''
import torch
import torch.nn as nn

SEEN = []

def window_partition(x, side):
    B, H, W, C = x.shape
    x = x.view(B, H // side, side, W // side, side, C)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, side * side, C)

def joined(windows, side, n):
    C = windows.shape[-1]
    x = windows.view(-1, n // side, n // side, side, side, C)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, n, n, C)

class WindowAttention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv, self.proj = None, nn.Linear(dim, dim)
        self.qkv = nn.Linear(dim, 3 * dim)

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        p = torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1)
        return self.proj((p @ v).transpose(1, 2).flatten(2))

class SwinTransformerBlock(nn.Module):
    def __init__(self, dim, window_size, shift, norm_layer=nn.LayerNorm):
        super().__init__()
        self.window_size, self.shift = window_size, shift
        self.norm1 = norm_layer(dim)
        self.attn = WindowAttention(dim, 2)
        self.norm2 = norm_layer(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        shortcut = x
        x = self.norm1(x)
        n = round(x.shape[1] ** 0.5)
        x = torch.roll(x.unflatten(1, (n, n)), (-self.shift, -self.shift), (1, 2))
        windows = self.attn(window_partition(x, self.window_size))
        x = torch.roll(joined(windows, self.window_size, n), (self.shift, self.shift), (1, 2))
        x = shortcut + x.flatten(1, 2)
        SEEN.append(("attn", x))
        x = x + self.mlp(self.norm2(x))
        SEEN.append(("out", x))
        return x

class PatchMerging(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(4 * dim)
        self.reduction = nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x):
        n = round(x.shape[1] ** 0.5)
        x = x.unflatten(1, (n, n))
        x = torch.cat([x[:, a::2, b::2] for a, b in ((0, 0), (1, 0), (0, 1), (1, 1))], -1).flatten(1, 2)
        x = self.reduction(self.norm(x))
        SEEN.append(("merge", x))
        return x

class PatchEmbed(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.proj = nn.Conv2d(3, dim, 2, 2)

    def forward(self, x):
        x = self.proj(x).flatten(2).transpose(1, 2)
        SEEN.append(("embed", x))
        return x
'''

# Stages merge behind their layers, and their list is appended to.
SWIN = WINDOWS + '''
class BasicLayer(nn.Module):
    def __init__(self, dim, downsample=None):
        super().__init__()
        self.blocks = nn.ModuleList([SwinTransformerBlock(dim, 4, shift) for shift in (0, 2)])
        if downsample is not None:
            self.downsample = downsample(dim)
        else:
            self.downsample = None

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x if self.downsample is None else self.downsample(x)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch_embed = PatchEmbed(8)
        self.pos_drop = nn.Dropout(p=0.0)
        self.layers = nn.ModuleList()
        for dim, downsample in ((8, PatchMerging), (16, None)):
            layer = BasicLayer(dim, downsample)
            self.layers.append(layer)
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        x = self.pos_drop(self.patch_embed(x))
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        SEEN.append(("final_norm", x))
        return self.head(x.mean(1))
'''

# Windows go through PyTorch's own attention, (tokens, windows, width).
SWIN_OF_TORCH = SWIN.replace("self.attn = WindowAttention(dim, 2)", "self.attn = nn.MultiheadAttention(dim, 2)").replace(
    "windows = self.attn(window_partition(x, self.window_size))",
    "x = window_partition(x, self.window_size).transpose(0, 1)\n        windows = self.attn(x, x, x)[0].transpose(0, 1)")

# Stages merge in front of their layers, and their states are grids, channels last.
SWIN_OF_GRIDS = WINDOWS[:WINDOWS.index("    def forward(self, x):\n        shortcut")] + '''    def _attn(self, x):
        n = x.shape[1]
        x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        windows = self.attn(window_partition(x, self.window_size))
        return torch.roll(joined(windows, self.window_size, n), (self.shift, self.shift), (1, 2))

    def forward(self, x):
        n = x.shape[1]
        x = x + self._attn(self.norm1(x))
        SEEN.append(("attn", x.flatten(1, 2)))
        x = x.flatten(1, 2)
        x = x + self.mlp(self.norm2(x))
        SEEN.append(("out", x))
        return x.unflatten(1, (n, n))

''' + WINDOWS[WINDOWS.index("class PatchMerging"):] + '''
class Grid(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        x = self.inner(x.flatten(1, 2) if x.shape[1] == x.shape[2] else x)
        n = round(x.shape[1] ** 0.5)
        return x.unflatten(1, (n, n))

class SwinTransformerStage(nn.Module):
    def __init__(self, dim, downsample):
        super().__init__()
        if downsample:
            self.downsample = Grid(PatchMerging(dim // 2))
        else:
            self.downsample = nn.Identity()
        self.blocks = nn.Sequential(*[SwinTransformerBlock(dim, 4, shift) for shift in (0, 2)])

    def forward(self, x):
        return self.blocks(self.downsample(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch_embed = Grid(PatchEmbed(8))
        layers = []
        for dim in (8, 16):
            layers += [SwinTransformerStage(dim, dim > 8)]
        self.layers = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(16)

    def forward(self, x):
        x = self.norm(self.layers(self.patch_embed(x)))
        SEEN.append(("final_norm", x.flatten(1, 2)))
        return x
'''

# Stages are in an encoder beside embeddings, layers give tuples, and the last norm is of the mean.
SWIN_IN_PARTS = WINDOWS.replace("        return x\n\nclass PatchMerging", "        return (x,)\n\nclass PatchMerging") + '''
class SwinStage(nn.Module):
    def __init__(self, dim, downsample):
        super().__init__()
        self.blocks = nn.ModuleList(
            [
                SwinTransformerBlock(dim, 4, 0 if i % 2 == 0 else 2)
                for i in range(2)
            ]
        )
        if downsample is not None:
            self.downsample = downsample(dim)
        else:
            self.downsample = None

    def forward(self, x):
        for block in self.blocks:
            x = block(x)[0]
        before = x
        if self.downsample is not None:
            x = self.downsample(x)
        return x, before

class SwinEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([SwinStage(8 * 2**i, PatchMerging if i < 1 else None) for i in range(2)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)[0]
        return x

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = PatchEmbed(8)
        self.encoder = SwinEncoder()
        self.layernorm = nn.LayerNorm(16)

    def forward(self, x):
        return self.layernorm(self.encoder(self.embeddings(x)).mean(1))
'''

# Behind its layers the class token attends, to the patches of a norm of all.
CLASS_LAYERS = BERT.replace('''class Encoder(''', '''class ClassAttentionBlock(torch.nn.Module):
    def __init__(self, d):
        super().__init__()
        self.mix = torch.nn.Linear(d, d)

    def forward(self, x):
        return torch.cat([self.mix(x.mean(1, keepdim=True)), x[:, 1:]], 1)

class Encoder(''').replace('''        for _ in range(3):''', '''        self.cls_attn_blocks = torch.nn.ModuleList([ClassAttentionBlock(24) for _ in range(2)])
        self.norm = torch.nn.LayerNorm(24)
        for _ in range(3):''').replace('''            x = layer(x)
        return x''', '''            x = layer(x)
        x = torch.cat([x[:, :1], x], 1)
        for layer in self.cls_attn_blocks:
            x = layer(x)
        return self.norm(x)''')

# Its heads are a list for each class, behind a norm.
CLASS_HEADS = BERT.replace("""        self.encoder = Encoder()
""", """        self.encoder = Encoder()
        self.norm = torch.nn.LayerNorm(24)
        self.class_embed = torch.nn.ModuleList([torch.nn.Linear(24, 4) for _ in range(2)])
""").replace("return self.encoder(x)", "return [head(self.norm(self.encoder(x))) for head in self.class_embed]")

ROTARY = NANO.replace("self.c_attn(x).split(C, dim=2)", "map(apply_rotary_emb, self.c_attn(x).split(C, dim=2))")

# PyTorch's own attention inside a layer of another's.
OWN_LAYER = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.norm1 = nn.LayerNorm(d)
        self.attn = nn.MultiheadAttention(d, heads, batch_first=True)
        self.norm2 = nn.LayerNorm(d)
        self.mlp = nn.Linear(d, d)

    def forward(self, x):
        h = self.norm1(x)
        x = x + self.attn(h, h, h)[0]
        return x + self.mlp(self.norm2(x))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(24, 3) for _ in range(2)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x
"""

# Attentions whose P is not softmax(q k^T / sqrt(d)) of what their projections return, and what is said of each.
BEIT_BIAS = BERT.replace("        self.v_proj", "        self.relative_position_bias = torch.nn.Parameter(torch.randn(3, 9, 9))\n"
                         "        self.v_proj").replace("** 0.5, -1)", "** 0.5 + self.relative_position_bias, -1)")
BEIT_QKV = NANO.replace("        self.n_head =", "        self.q_bias = nn.Parameter(torch.zeros(24))\n        self.n_head =").replace(
    "self.c_attn(x)", "F.linear(x, self.c_attn.weight, torch.cat([self.q_bias, 0 * self.q_bias, self.q_bias]))")
XCA = NANO.replace("CausalSelfAttention", "XCA").replace("q @ k.transpose(-2, -1)", "q.transpose(-2, -1) @ k").replace(
    "s.masked_fill(torch.tril(torch.ones(T, T)) == 0, float(\"-inf\"))", "s").replace("F.softmax(s, -1) @ v", "v @ F.softmax(s, -1)")
COSINES = BERT.replace("        p = torch", "        q, k = torch.nn.functional.normalize(q), torch.nn.functional.normalize(k)\n"
                       "        p = torch")
SIGMOID = BERT.replace("torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1)", "torch.sigmoid(q @ k.transpose(-1, -2))")
OTHER_LOGITS = ((BEIT_BIAS, "'relative_position_bias' changes the logits"), (BEIT_QKV, "c_attn is not called"),
                (XCA, "P of XCA is over channels"), (COSINES, "'normalize' changes them behind"),
                (SIGMOID, "Mixing calls no softmax"))

HEADS, LAYERS = 3, 3


def table(folder):
    with open(pathlib.Path(folder) / "metrics.csv", newline="") as file:
        return {(row["step"], int(row["layer"] or -1), row["stage"], row["head"], row["metric"]): float(row["value"])
                for row in csv.DictReader(file) if row["value"] and row["tensor"] == ""}


def near(found, expected, what):
    # States are float32 and sums of 200 entries are taken in another order; ratios of them lose digits.
    assert abs(found - expected) <= 1e-4 * abs(expected), f"{what}: {found}, expected {expected}"


def reference(torch, style, net, x):
    """States, attention and the state behind it, by this page's own forward pass."""
    layer_norm, linear = torch.nn.functional.layer_norm, torch.nn.functional.linear
    states, maps, behind = [x], [], []

    def norm(m, y):
        return layer_norm(y, (24,), m.weight, m.bias, m.eps)

    for i in range(LAYERS):
        if style == "stock":
            block = net.inner.layers[i]
            y, w, b = norm(block.norm1, x), block.self_attn.in_proj_weight, block.self_attn.in_proj_bias
            out = block.self_attn.out_proj
        elif style == "nano":
            block = net.transformer["h"][i]
            y, w, b = norm(block.ln_1, x), block.attn.c_attn.weight, block.attn.c_attn.bias
            out = block.attn.c_proj
        else:
            block = net.encoder.layers[i]
            a = block.self_attention
            y = x
            w = torch.cat([m.weight for m in (a.q_proj, a.k_proj, a.v_proj)])
            b = torch.cat([m.bias for m in (a.q_proj, a.k_proj, a.v_proj)])
            out = a.out
        q, k, v = (z.unflatten(-1, (HEADS, -1)).transpose(1, 2) for z in linear(y, w, b).chunk(3, -1))
        s = q @ k.transpose(-1, -2) / 8 ** 0.5
        if style == "nano":
            s = s + torch.full(s.shape[-2:], float("-inf")).triu(1)
        p = torch.softmax(s.double(), -1)
        maps.append(p)
        x = x + out((p.float() @ v).transpose(1, 2).flatten(2))
        behind.append(x)
        if style == "stock":
            x = x + block.linear2(torch.relu(block.linear1(norm(block.norm2, x))))
        elif style == "nano":
            x = x + block.mlp(norm(block.ln_2, x))
        else:
            x = norm(block.norm_a, x)
            x = norm(block.norm_b, x + torch.relu(block.feed(x)))
        states.append(x)
    return states, maps, behind


def compare(found, step, torch, style, net, x):
    with torch.no_grad():
        states, maps, behind = reference(torch, style, net, x)
    for layer in range(LAYERS):
        near(found[step, layer, "out", "", "t_sim"], t_sim(states[layer + 1]), f"{style} t_sim {layer}")
        near(found[step, layer, "attn", "", "xi_ratio"], xi_ratio(states[layer], behind[layer]),
             f"{style} xi_ratio {layer}")
        p = maps[layer]
        entropy = -torch.where(p > 0, p * p.log(), torch.zeros_like(p)).sum(-1).mean((0, 2))
        for head in range(HEADS):
            near(found[step, layer, "attn", str(head), "entropy"], entropy[head].item(),
                 f"{style} entropy {layer}:{head}")


def compare_seen(found, seen, what):
    """Every state that the model told of, and no other of its stages; how each layer changes its states."""
    layer = -1
    told = set()
    for stage, x in seen:
        layer += stage == "attn"
        at = max(layer, 0)
        told.add((stage, at))
        near(found["", at, stage, "", "t_sim"], t_sim(x), f"{what} t_sim of {stage} {at}")
        if stage == "attn":
            near(found["", at, stage, "", "xi_ratio"], xi_ratio(state, x), f"{what} xi_ratio {at}")
        state = x
    stages = {stage for stage, x in seen} | {"embed", "merge", "final_norm", "class"}
    extra = {(key[2], key[1]) for key in found if key[2] in stages and key[4] == "t_sim"} - told
    assert not extra, f"{what}: {extra}"


def run(program, words, code=0):
    done = subprocess.run([program] + words, capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done


def examine(program, torch, style, source):
    pathlib.Path("model.py").write_text(source)
    code = run(program, ["trace-hook", "model.py"]).stdout
    print(code, flush=True)
    torch.manual_seed(7)
    names = {}
    exec(compile(source, "model.py", "exec"), names)
    net = names["Net"]().eval()
    command = re.search(r"^# (tsdiag probe trace\.pt.*)$", code, re.M).group(1).split()[1:]

    def trace(x, file):
        exec(compile(code, "hook", "exec"), {"model": net, "inputs": x})
        pathlib.Path(file).parent.mkdir(exist_ok=True)
        os.replace("trace.pt", file)

    batches = [torch.randn(samples, 9, 24) for samples in (2, 3, 1)]
    trace(batches[0], "one.pt")
    run(program, ["probe", "one.pt"] + command[2:] + ["--no-report"])
    compare(table("one.tsdiag"), "", torch, style, net, batches[0])

    for i, batch in enumerate(batches):
        trace(batch, f"batches/batch-{i}.pt")
    said = run(program, ["probe", "batches"] + command[2:] + ["--no-report"]).stdout
    assert "missing" not in said, said
    compare(table("batches.tsdiag"), "", torch, style, net, torch.cat(batches))
    run(program, ["probe", "batches", "--samples", "4", "--out", "four"] + command[2:] + ["--no-report"])
    compare(table("four"), "", torch, style, net, torch.cat(batches)[:4])

    for step in (100, 20):
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.mul_(1.1)
        trace(batches[1], f"steps/step-{step}.pt")
        if step == 100:
            late = {name: value.clone() for name, value in net.state_dict().items()}
    run(program, ["probe", "steps"] + command[2:] + ["--no-report"])
    compare(table("steps.tsdiag"), "20", torch, style, net, batches[1])
    net.load_state_dict(late)
    compare(table("steps.tsdiag"), "100", torch, style, net, batches[1])


def examine_merging(program, torch, what, source, said, stages):
    """A model of 64 tokens of width 8, which merge to 16 of width 16 behind its second layer."""
    pathlib.Path("model.py").write_text(source)
    code = run(program, ["trace-hook", "model.py"]).stdout
    print(code, flush=True)
    for one in said:
        assert one in code, f"{what}: {one}"
    assert "queries." not in code and "sa.{i}" not in code, code
    names = {}
    torch.manual_seed(7)
    exec(compile(source, "model.py", "exec"), names)
    net, x = names["Net"]().eval(), torch.randn(3, 3, 16, 16)
    for file in ("once.pt", "again.pt"):  # what is left of the first run is no part of the second
        names["SEEN"].clear()
        exec(compile(code, "hook", "exec"), {"model": net, "inputs": x})
        os.replace("trace.pt", file)
    words = re.search(r"^# tsdiag probe trace\.pt(.*)$", code, re.M).group(1).split()
    assert words == ["--placement", "pre"], words
    done = run(program, ["probe", "again.pt", "--no-report", "-v"] + words).stdout
    assert "behind layer 1 the 64 tokens of width 8 merge to 16 of width 16" in " ".join(done.split()), done
    assert "missing" not in done and "ignored" not in done and "not there" not in done, done
    seen = [(stage, y.detach()) for stage, y in names["SEEN"]]
    assert stages == [stage for stage, y in seen if stage not in ("attn", "out")], seen
    compare_seen(table("again.tsdiag"), seen, what)


def examine_class(program, torch):
    pathlib.Path("model.py").write_text(CLASS_LAYERS)
    code = run(program, ["trace-hook", "model.py"]).stdout
    assert "class      model.encoder.cls_attn_blocks[-1]" in code, code
    assert "not found  modules that merge tokens, embed\n" in code, code
    names = {}
    torch.manual_seed(7)
    exec(compile(CLASS_LAYERS, "model.py", "exec"), names)
    net, x = names["Net"]().eval(), torch.randn(2, 9, 24)
    exec(compile(code, "hook", "exec"), {"model": net, "inputs": x})
    words = re.search(r"^# tsdiag probe trace\.pt(.*)$", code, re.M).group(1).split()
    run(program, ["probe", "trace.pt", "--no-report"] + words)
    found = table("trace.tsdiag")
    with torch.no_grad():
        near(found["", 2, "final_norm", "", "t_sim"], t_sim(net(x)), "t_sim of final_norm")
        y = net.encoder.norm(torch.load("trace.pt")["class.2"])
        near(found["", 2, "final_norm", "", "t_sim"], t_sim(y), "t_sim of a norm of class")
    assert ("", 2, "class", "", "t_sim") in found


def examine_heads(program, torch):
    pathlib.Path("model.py").write_text(CLASS_HEADS)
    code = run(program, ["trace-hook", "model.py"]).stdout
    assert "not found  modules that merge tokens, embed, class\n" in code, code
    names = {}
    exec(compile(CLASS_HEADS, "model.py", "exec"), names)
    exec(compile(code, "hook", "exec"), {"model": names["Net"]().eval(), "inputs": torch.randn(2, 9, 24)})
    assert "final_norm.2" in torch.load("trace.pt")


def examine_others(program, torch):
    """Layers that give no tensors."""
    given = "return self.norm_b(x + torch.relu(self.feed(x)))"
    for change, said in (((given, given.replace("return ", "return [") + "]", "layer(x)", "layer(x)[0]"), []),
                         ((given, given.replace("return ", "return dict(y=") + ")", "layer(x)", "layer(x)['y']"),
                          ["hidden_states.3: found a dict, expected a tensor"])):
        source = BERT.replace(change[0], change[1]).replace(change[2], change[3])
        pathlib.Path("model.py").write_text(source)
        code = run(program, ["trace-hook", "model.py"]).stdout
        names = {}
        exec(compile(source, "model.py", "exec"), names)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, "hook", "exec"), {"model": names["Net"]().eval(), "inputs": torch.randn(2, 9, 24)})
        for one in said:
            assert one in printed.getvalue(), printed.getvalue()
        assert "norm2.2" in torch.load("trace.pt")


def traced(code, source, torch):
    """What the hook saves of a model of that source."""
    names = {}
    torch.manual_seed(7)
    exec(compile(source, "model.py", "exec"), names)
    net = names["Net"]().eval()
    exec(compile(code, "hook", "exec"), {"model": net, "inputs": torch.randn(2, 9, 24)})
    for m in net.modules():
        assert "forward" not in vars(m) and not m._forward_hooks and not m._forward_pre_hooks, m
    return torch.load("trace.pt")


def examine_names(program, torch):
    """A layer and a norm that are given their states by name, in any order, save what they do by position."""
    code = hook_of(program, BERT)
    given = traced(code, BERT, torch)
    head = "    def forward(self, x):\n        h = self.self_attention(x)"
    for takes, calls in (("x", "x=x"), ("src, mask=None", "mask=None, src=x"), ("hidden_states=None", "hidden_states=x"),
                         ("mask, x", "mask=torch.ones(1), x=x"), ("mask, hidden_states", "torch.ones(1), hidden_states=x"),
                         ("*args, **kwargs", "mask=None, src=x"), ("x=None, hidden_states=None", "hidden_states=x")):
        first = "(*args, *kwargs.values())[-1]" if "args" in takes else "hidden_states" if "hidden" in takes else takes.split(",")["mask, x" == takes]
        source = BERT.replace(head, f"    def forward(self, {takes}):\n        x = {first}\n        h = self.self_attention(x)")
        source = source.replace("layer(x)", f"layer({calls})").replace("self.norm_b(x", "self.norm_b(input=x")
        named = traced(code, source, torch)
        assert sorted(given) == sorted(named) and all(given[name].equal(named[name]) for name in given), takes
    unknown = BERT.replace(head, head.replace("self, x", "self, **other").replace("h =", "x = other['tokens']\n        h ="))
    try:
        traced(code, unknown.replace("layer(x)", "layer(mask=None, tokens=x)"), torch)
        raise AssertionError("was traced")
    except ValueError as error:
        assert "hidden_states.0: which of mask, tokens is the state is not known: pass it first" in str(error), error


def examine_multihead(program, torch):
    """By position, by name, with masks: what is saved gives the P of the model."""
    pathlib.Path("model.py").write_text(OWN_LAYER)
    code = run(program, ["trace-hook", "model.py"]).stdout
    given = traced(code, OWN_LAYER, torch)
    q, k = given["queries.1"], given["keys.1"]
    named = traced(code, OWN_LAYER.replace("(h, h, h)", "(query=h, value=h, key=h)"), torch)
    assert sorted(given) == sorted(named) and all(given[name].equal(named[name]) for name in given)

    def with_mask(words):
        return traced(code, OWN_LAYER.replace("(h, h, h)", f"(h, h, h, {words})"), torch)

    own = traced(code, OWN_LAYER.replace("self.attn(h, h, h)[0]", "self.kept(*self.attn(h, h, h, average_attn_weights=False))")
                 .replace("    def forward(self, x):", "    def kept(self, x, p):\n        torch.save(p, 'p.pt')\n        return x\n\n"
                          "    def forward(self, x):", 1), torch)
    assert own["queries.1"].equal(q)
    p = (q @ k.transpose(-1, -2) / 8 ** 0.5).softmax(-1)
    # float32, sums of 24 entries in another order
    assert (p - torch.load("p.pt")).abs().max() < 1e-6
    for later in ("torch.ones(9, 9).bool().triu(1)", "torch.full((9, 9), -1e9).triu(1)"):
        causal = with_mask("attn_mask=" + later)
        assert causal["is_causal"].item() == 1 and "queries.0" in causal and "attentions.0" not in causal
        assert "pass --causal" in run(program, ["probe", "trace.pt", "--placement", "pre"], 2).stderr
        run(program, ["probe", "trace.pt", "--placement", "pre", "--causal", "--no-report", "--force"])
    bias = with_mask("attn_mask=torch.arange(81.).view(9, 9) / 40")
    assert "queries.0" not in bias and bias["attentions.0"].shape == (2, 3, 9, 9)
    padded = with_mask("key_padding_mask=torch.arange(9)[None].repeat(2, 1) > 6")
    assert padded["attention_mask"].sum().item() == 14 and "queries.0" in padded
    run(program, ["probe", "trace.pt", "--placement", "pre", "--no-report", "--force"])
    assert "is false, but --causal" in run(program, ["probe", "trace.pt", "--placement", "pre", "--causal"], 2).stderr
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        more = traced(code, OWN_LAYER.replace("batch_first", "add_zero_attn=True, batch_first"), torch)
    assert "queries.0: not saved, as there are keys of no token" in printed.getvalue() and "queries.0" not in more


def hook_of(program, source):
    pathlib.Path("model.py").write_text(source)
    return run(program, ["trace-hook", "model.py"]).stdout


def examine_other_logits(program, torch):
    for source, said in OTHER_LOGITS:
        code = hook_of(program, source)
        assert "queries    not saved: " in code and said in code, code
        saved = traced(code, source, torch)
        assert "hidden_states.3" in saved and "queries.0" not in saved, sorted(saved)
    # The bias of a projection is none of the logits.
    flag = NANO.replace("self.n_head =", "attention_bias = True\n        self.n_head =")
    assert flag != NANO and "queries.0" in traced(hook_of(program, flag), flag, torch)


def examine_causal_masks(program, torch):
    """An object that stands for the causal mask is no change of the logits; one that adds a bias is."""
    def with_mask(name):
        return NANO.replace("s = s.masked_fill(torch.tril(torch.ones(T, T)) == 0, float(\"-inf\"))",
                            f"attn_bias = {name}()\n        s = attn_bias.added(s)")
    for name in ("LowerTriangularMask", "causal_lower_right"):
        code = hook_of(program, with_mask(name))
        assert f"; causal, by {name}\n" in code and "changes the logits" not in code, code
        assert re.search(r"^# tsdiag probe trace\.pt --causal", code, re.M), code
    for name in ("LowerTriangularMaskWithTensorBias", "LowerTriangularMask().add_bias"):
        code = hook_of(program, with_mask(name))
        assert "'attn_bias' changes the logits" in code, code


def main(program):
    try:
        import torch
    except ImportError:
        print("there is no PyTorch")
        return SKIPPED
    for style, source in (("stock", STOCK), ("nano", NANO), ("bert", BERT)):
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            examine(program, torch, style, source)
            os.chdir("/")
    merging = "merging    modules named downsample"
    stages = "[block for stage in model.{} for block in stage.blocks]"
    inside = "not saved: attention is inside windows"
    for what, source, said, states in (
            ("swin", SWIN, (merging, stages.format("layers"), inside, "embed      model.pos_drop",
                            "final_norm model.norm", "not found  class\n"), ["embed", "merge", "final_norm"]),
            ("torch", SWIN_OF_TORCH, (merging, stages.format("layers"), inside), ["embed", "merge", "final_norm"]),
            ("grids", SWIN_OF_GRIDS, (merging, stages.format("layers"), inside, "embed      model.patch_embed",
                                      "final_norm model.norm"), ["embed", "merge", "final_norm"]),
            ("parts", SWIN_IN_PARTS, (merging, stages.format("encoder.layers"), inside,
                                      "embed      model.embeddings", "final_norm model.layernorm"),
             ["embed", "merge"])):
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            examine_merging(program, torch, what, source, said, states)
            os.chdir("/")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        examine_class(program, torch)
        examine_heads(program, torch)
        examine_others(program, torch)
        examine_names(program, torch)
        examine_multihead(program, torch)
        examine_other_logits(program, torch)
        examine_causal_masks(program, torch)
        os.chdir("/")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        pathlib.Path("model.py").write_text(ROTARY)
        said = run(program, ["trace-hook", "model.py"]).stdout
        assert "'apply_rotary_emb' changes them behind their projections" in said, said
        assert "queries." not in said and "ln_1.register" in said, said
        for text in ("", "class A:\n  pass", "((((", "'''", "class", "self.x = nn.ModuleList(", "\\"):
            pathlib.Path("model.py").write_text(text)
            compile(run(program, ["trace-hook", "model.py"]).stdout, "hook", "exec")
        # Without a source: the lines as they are, of a model whose layers are model.layers.
        torch.manual_seed(7)
        layer = torch.nn.TransformerEncoderLayer(24, 3, 40, dropout=0.0, batch_first=True)
        net, x = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval(), torch.randn(2, 9, 24)
        exec(compile(run(program, ["trace-hook"]).stdout, "hook", "exec"), {"model": net, "inputs": x})
        run(program, ["probe", "trace.pt", "--no-report"])
        with torch.no_grad():
            near(table("trace.tsdiag")["", 1, "out", "", "t_sim"], t_sim(net(x)), "t_sim")
        # States on grids, and where their channels are.
        for x in (torch.randn(2, 5, 8, 8), torch.randn(2, 8, 8, 5), torch.randn(2, 4, 8, 5)):
            net = torch.nn.Module()
            net.layers, net.forward = torch.nn.ModuleList([torch.nn.GELU()]), lambda x: net.layers[0](x)
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(run(program, ["trace-hook"]).stdout, "hook", "exec"), {"model": net, "inputs": x})
            first = x.shape[1] == 5
            assert printed.getvalue().endswith("first\n" if first else "last\n"), printed.getvalue()
            assert torch.load("trace.pt")["hidden_states.0"].equal(
                x.flatten(2).transpose(1, 2) if first else x.flatten(1, 2))
        # A layer may be a stage: what merges inside it is its own.
        names = {}
        exec(compile(SWIN_OF_GRIDS, "model.py", "exec"), names)
        net, x = names["Net"]().eval(), torch.randn(2, 3, 16, 16)
        exec(compile(run(program, ["trace-hook"]).stdout, "hook", "exec"), {"model": net, "inputs": x})
        assert sorted(torch.load("trace.pt")) == [f"hidden_states.{i}" for i in range(3)]
        run(program, ["probe", "trace.pt", "--no-report", "--force"])
        with torch.no_grad():
            found = table("trace.tsdiag")
            near(found["", 1, "merge", "", "t_sim"], t_sim(net.layers(net.patch_embed(x)).flatten(1, 2)), "t_sim")
        assert "none.py" in run(program, ["trace-hook", "none.py"], 1).stderr
        os.chdir("/")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(os.path.abspath(sys.argv[1])))
