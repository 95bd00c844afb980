"""Runs what `tsdiag trace-hook` prints for modules of several styles, and compares what tsdiag says of their traces with
PyTorch: of one trace, of a folder of batches, of a folder of steps.

    trace_hook.py TSDIAG     exit code 77: there is no PyTorch
"""

import csv
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

ROTARY = NANO.replace("self.c_attn(x).split(C, dim=2)", "map(apply_rotary_emb, self.c_attn(x).split(C, dim=2))")

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
        assert "none.py" in run(program, ["trace-hook", "none.py"], 1).stderr
        os.chdir("/")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(os.path.abspath(sys.argv[1])))
