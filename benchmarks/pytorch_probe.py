#!/usr/bin/python3
"""What a PyTorch notebook with hooks costs: the peer of `tsdiag probe random:bert-base --probes core`.

    python3 benchmarks/pytorch_probe.py --tokens 512 --eigenvalues dense

An encoder of BERT-base's sizes with drawn weights reads one sequence of random ids.  Timed are the plain forward pass
and, by forward hooks, the `core` metrics of docs/metrics.md for every stage of every layer and every head, in float32,
stage by stage.  Eigenvalues come from LAPACK (`dense`) or from ARPACK (`arpack`), delta from singular values.

Needs Debian's python3-torch, python3-scipy and libopenblas0-pthread (tools/setup-debian benchmark).  Prints JSON:
seconds of each stage (medians over --repeat runs), the mean over layers and heads of each metric, and the machine.
"""
import argparse
import json
import math
import os
import platform
import statistics
import time


def cpu_field(name):
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
        for line in lines:
            if line.startswith(name):
                return line.split(":", 1)[1].strip()
    return ""


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--tokens", type=int, default=512)
parser.add_argument("--samples", type=int, default=1, help="in one batch; of more than one the forward pass alone")
parser.add_argument("--eigenvalues", choices=["dense", "arpack", "none"], default="dense",
                    help="none: neither lambda2_abs nor delta")
parser.add_argument("--repeat", type=int, default=3, help="timed runs with hooks")
parser.add_argument("--forward-repeat", type=int, default=7, help="timed runs of the plain forward pass")
parser.add_argument("--threads", type=int, default=os.cpu_count())
parser.add_argument("--seed", type=int, default=0)
options = parser.parse_args()

# OpenBLAS 0.3.21 does not recognise newer processors; it reads these variables first.
if "avx512f" in cpu_field("flags"):
    os.environ.setdefault("OPENBLAS_CORETYPE", "SkylakeX")
os.environ["OPENBLAS_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(options.threads)

import numpy as np  # noqa: E402
import scipy.sparse.linalg  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402

LAYERS, HEADS, WIDTH, INNER, VOCABULARY, POSITIONS = 12, 12, 768, 3072, 30522, 512


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.probabilities = nn.Identity()

    def split(self, x):
        return x.view(*x.shape[:2], HEADS, -1).transpose(1, 2)

    def forward(self, x):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        p = self.probabilities(torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), dim=-1))
        return self.o((p @ v).transpose(1, 2).reshape(x.shape))


class Layer(nn.Module):
    """The stages of a post-norm layer, each an identity that a hook can listen to."""
    STAGES = {"in": None, "sa": None, "attn": "in", "norm1": "attn", "ffn": "norm1", "norm2": "ffn", "out": None}

    def __init__(self):
        super().__init__()
        self.attention = SelfAttention()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, eps=1e-12), nn.LayerNorm(WIDTH, eps=1e-12)
        self.up, self.down = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
        self.stages = nn.ModuleDict({"at_" + stage: nn.Identity() for stage in self.STAGES})

    def at(self, stage, x):
        return self.stages["at_" + stage](x)

    def forward(self, x):
        x = self.at("in", x)
        x = self.at("attn", x + self.at("sa", self.attention(x)))
        x = self.at("norm1", self.norm1(x))
        x = self.at("ffn", x + self.down(nn.functional.gelu(self.up(x))))
        return self.at("out", self.at("norm2", self.norm2(x)))


class Encoder(nn.Module):
    def __init__(self, tokens):
        super().__init__()
        self.token, self.position = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(max(POSITIONS, tokens), WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids):
        x = self.norm(self.token(ids) + self.position(torch.arange(ids.shape[1])))
        for layer in self.layers:
            x = layer(x)
        return x


class Stopwatch:
    def __init__(self):
        self.seconds = {}

    def run(self, stage, function, *arguments):
        begin = time.perf_counter()
        result = function(*arguments)
        self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - begin
        return result


def state_metrics(x):
    """Of (n, d): t_sim, t_div, t_cos, fro, and the squared parts that xi and r need."""
    n = x.shape[0]
    mean = x.mean(0)
    total, along = x.square().sum(), n * mean.square().sum()
    across = (x - mean).square().sum()
    unit = (x / x.norm(dim=1, keepdim=True)).sum(0).square().sum()
    return {"t_sim": (along / total).item(), "t_div": (across / total).item(),
            "t_cos": ((unit - n) / (n * (n - 1))).item(), "fro": total.sqrt().item(),
            "along": along.item(), "across": across.item()}


def step_metrics(now, before):
    xi1, xi2 = now["along"] / before["along"], now["across"] / before["across"]
    return {"xi1": xi1, "xi2": xi2, "xi_ratio": xi1 / xi2, "r": before["t_div"] / now["t_div"]}


def row_metrics(p):
    """Of (h, n, n): attn_fro, jac_fro, entropy, row_max, neg_mass, row_sum_dev of each head."""
    squares = p.square()
    s2, s3 = squares.sum(-1), (squares * p).sum(-1)
    return {"attn_fro": s2.sum(-1).sqrt(), "jac_fro": (s2 - 2 * s3 + s2.square()).sum(-1).clamp(min=0).sqrt(),
            "entropy": -torch.xlogy(p, p).sum(-1).mean(-1), "row_max": p.abs().amax(-1).mean(-1),
            "neg_mass": p.clamp(max=0).abs().sum((-1, -2)) / p.abs().sum((-1, -2)),
            "row_sum_dev": (p.sum(-1) - 1).abs().amax(-1)}


def windows(n):
    """First and last-plus-one column of the nested windows of 1..n tokens around each row, spilling over the border."""
    row, size = torch.arange(n).view(-1, 1), torch.arange(1, n + 1)
    first = torch.minimum((row - size // 2).clamp(min=0), n - size)
    return first, first + size


def local_attention(p, first, last):
    """local_acc (h, n) and local_auc (h)."""
    prefix = nn.functional.pad(p.cumsum(-1), (1, 0))
    index = (p.shape[0], -1, -1)
    curve = (prefix.gather(-1, last.expand(*index)) - prefix.gather(-1, first.expand(*index))).mean(1)
    return {"local_acc": curve, "local_auc": curve.mean(-1)}


def centred_norm(p):
    return torch.linalg.svdvals(p - p.mean(-2, keepdim=True))[:, 0]


def second_eigenvalue_dense(p):
    return torch.linalg.eigvals(p).abs().sort(-1, descending=True).values[:, 1]


def second_eigenvalue_arpack(p):
    result = []
    for head in p.numpy():
        try:
            values = scipy.sparse.linalg.eigs(head, k=2, which="LM", return_eigenvectors=False)
        except scipy.sparse.linalg.ArpackNoConvergence:
            not_converged.append(1)
            values = [np.nan, np.nan]
        result.append(np.sort(np.abs(values))[0])
    return torch.tensor(np.array(result))


not_converged = []


class Notebook:
    """Hooks on every stage and every attention; keeps numbers only."""

    def __init__(self, model, tokens):
        self.watch, self.metrics, self.states = Stopwatch(), {}, {}
        self.first, self.last = windows(tokens)
        for layer in model.layers:
            for stage in Layer.STAGES:
                layer.stages["at_" + stage].register_forward_hook(self.on_state(stage))
            layer.attention.probabilities.register_forward_hook(self.on_attention)

    def keep(self, metrics):
        for name, value in metrics.items():
            mean = value if isinstance(value, float) else torch.nanmean(value.float()).item()
            self.metrics.setdefault(name, []).append(mean)

    def on_state(self, stage):
        def measure(x):
            now = self.states[stage] = state_metrics(x[0])
            self.keep(now)
            if Layer.STAGES[stage]:
                self.keep(step_metrics(now, self.states[Layer.STAGES[stage]]))
            if stage == "out":
                self.keep({"r_layer": self.states["in"]["t_div"] / now["t_div"]})
        return lambda module, inputs, output: self.watch.run("states", measure, output)

    def on_attention(self, module, inputs, output):
        p = output[0]
        self.keep(self.watch.run("rows", row_metrics, p))
        self.keep(self.watch.run("local", local_attention, p, self.first, self.last))
        if options.eigenvalues != "none":
            self.keep({"delta": self.watch.run("delta", centred_norm, p)})
            second = second_eigenvalue_dense if options.eigenvalues == "dense" else second_eigenvalue_arpack
            self.keep({"lambda2_abs": self.watch.run("lambda2", second, p)})


def median_seconds(function, repeat):
    seconds = []
    for _ in range(repeat):
        begin = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def linear_algebra():
    """The BLAS that this process has really loaded."""
    with open("/proc/self/maps", encoding="utf-8") as lines:
        files = {os.path.realpath(line.split()[-1]) for line in lines if "blas" in line}
    return sorted(os.path.basename(file) for file in files if os.path.basename(file).startswith("lib"))


def main():
    torch.manual_seed(options.seed)
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    model = Encoder(options.tokens).eval()
    ids = torch.randint(VOCABULARY, (options.samples, options.tokens))
    model(ids)  # warm-up: the first run starts threads and allocates memory
    stages = {"forward": median_seconds(lambda: model(ids), options.forward_repeat)}
    if options.samples > 1:
        return print(json.dumps({"tokens": options.tokens, "seconds": stages}))
    notebook = Notebook(model, options.tokens)
    runs = []
    for _ in range(options.repeat):
        notebook.watch.seconds.clear()
        begin = time.perf_counter()
        model(ids)
        runs.append({**notebook.watch.seconds, "total": time.perf_counter() - begin})
    stages |= {stage: statistics.median(run[stage] for run in runs) for stage in runs[0]}
    values = {name: float(np.nanmean(list_)) for name, list_ in notebook.metrics.items() if name not in ("along", "across")}
    print(json.dumps({
        "tokens": options.tokens, "eigenvalues": options.eigenvalues, "threads": options.threads,
        "seconds": stages, "not_converged": len(not_converged) // max(options.repeat, 1), "means": values,
        "machine": {"processor": cpu_field("model name"), "torch": torch.__version__, "python": platform.python_version(),
                    "blas": linear_algebra(), "coretype": os.environ.get("OPENBLAS_CORETYPE", "")}}, indent=1))


main()
