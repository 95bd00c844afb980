#!/usr/bin/env python3
"""Every metric of five golden cases, by definition and brute force, in float64.

    OPENBLAS_CORETYPE=SkylakeX nice python3 make_metrics.py      # the variable: AVX-512 machines only

Reads what make_golden.py wrote; needs python3-numpy and python3-torch (for the Jacobians by autograd).
Writes into the directory of each case

    metrics.csv    layer,stage,head,metric,value    head empty: a state, or the mean over the heads; value empty: undefined
    curves.csv     layer,stage,head,curve,x,y       local_acc
    metrics.json   a2 of each layer, and the layout

Projections and states are sums over explicit matrices Pi1 = e e^T and Pi2 = I - Pi1, similarities over
explicit pairs, Jacobians whole; speed is no concern here.
"""
import json
import math
import os
import struct

import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
PRED = {"post-norm": {"attn": "in", "norm1": "attn", "ffn": "norm1", "norm2": "ffn"},
        "pre-norm": {"attn": "in", "ffn": "attn"},
        "parallel": {"ffn": "in"}}
STAGES = {"post-norm": ["in", "sa", "attn", "norm1", "ffn", "norm2", "out"],
          "pre-norm": ["in", "norm1", "sa", "attn", "norm2", "ffn", "out"],
          "parallel": ["in", "norm1", "sa", "norm2", "ffn", "out"]}
UNDEFINED = None


def read_safetensors(path):
    """Float tensors of a file, widened to float64."""
    with open(path, "rb") as file:
        data = file.read()
    (size,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__" and entry["dtype"] == "F32":
            begin, end = (8 + size + at for at in entry["data_offsets"])
            tensors[name] = np.frombuffer(data[begin:end], "<f4").astype(np.float64).reshape(entry["shape"])
    return tensors


# ---------------------------------------------------------------------------------------------------
# Hidden states

def squared(x):
    return float((x * x).sum())


def projectors(n):
    pi1 = np.full((n, n), 1.0 / n)
    return pi1, np.eye(n) - pi1


def t_sim(x):
    return squared(projectors(len(x))[0] @ x) / squared(x)


def t_div(x):
    return squared(projectors(len(x))[1] @ x) / squared(x)


def t_cos(x):
    pairs = [x[i] @ x[j] / math.sqrt((x[i] @ x[i]) * (x[j] @ x[j])) for i in range(len(x)) for j in range(i + 1, len(x))]
    return sum(pairs) / len(pairs)


def state_metrics(x):
    return {"t_sim": t_sim(x), "t_div": t_div(x), "t_cos": t_cos(x), "fro": math.sqrt(squared(x)),
            "stable_rank": squared(x) / np.linalg.norm(x, 2) ** 2}


def step_metrics(x, y):
    """From the state x before the step to y after it."""
    pi1, pi2 = projectors(len(x))
    xi1, xi2 = (squared(pi @ y) / squared(pi @ x) for pi in (pi1, pi2))
    return {"xi1": xi1, "xi2": xi2, "xi_ratio": xi1 / xi2, "r": t_div(x) / t_div(y)}


# ---------------------------------------------------------------------------------------------------
# Attention.  A head is described by its projections, W_Q (d, hd) acting as x W_Q + b_Q, and by the
# map from them to the logits.

class Head:
    def __init__(self, wq, bq, wk, bk, wv, wo, between=lambda q, k: (q, k), causal=False):
        self.wq, self.bq, self.wk, self.bk = (torch.as_tensor(np.ascontiguousarray(t)) for t in (wq, bq, wk, bk))
        self.wv, self.wo, self.between, self.causal = wv, wo, between, causal

    def logits(self, x, wq, wk):
        q, k = self.between(x @ wq + self.bq, x @ wk + self.bk)
        return q @ k.t() / math.sqrt(wq.shape[1])

    def activation(self, s):
        if self.causal:
            s = s.masked_fill(torch.ones_like(s).triu(1).bool(), -math.inf)
        return torch.softmax(s, -1)


def halves(x, channels, base):
    """Rotary embedding of x (n, hd) on its first channels: pairs (i, i + channels/2), angle p base^(-2i/channels)."""
    out, half = [], channels // 2
    for p in range(len(x)):
        row = list(x[p])
        for i in range(half):
            angle = p * base ** (-2.0 * i / channels)
            a, b = x[p, i], x[p, i + half]
            row[i] = a * math.cos(angle) - b * math.sin(angle)
            row[i + half] = b * math.cos(angle) + a * math.sin(angle)
        out.append(torch.stack(row))
    return torch.stack(out)


def heads_bert(w, config, layer):
    h, l = config["num_attention_heads"], f"bert.encoder.layer.{layer}.attention."
    hd = config["hidden_size"] // h
    part = lambda name, k: (w[f"{l}self.{name}.weight"][k * hd:(k + 1) * hd].T, w[f"{l}self.{name}.bias"][k * hd:(k + 1) * hd])
    return [Head(*part("query", k), *part("key", k), part("value", k)[0],
                 w[l + "output.dense.weight"][:, k * hd:(k + 1) * hd].T) for k in range(h)]


def heads_gpt2(w, config, layer):
    h, d, l = config["n_head"], config["n_embd"], f"h.{layer}.attn."
    hd = d // h
    part = lambda which, k: (w[l + "c_attn.weight"][:, which * d + k * hd:which * d + (k + 1) * hd],
                             w[l + "c_attn.bias"][which * d + k * hd:which * d + (k + 1) * hd])
    return [Head(*part(0, k), *part(1, k), part(2, k)[0], w[l + "c_proj.weight"][k * hd:(k + 1) * hd], causal=True)
            for k in range(h)]


def heads_llama(w, config, layer):
    """LLaMA and Qwen3: query head k reads key/value head k // (H / KV)."""
    h, groups, l = config["num_attention_heads"], config["num_key_value_heads"], f"model.layers.{layer}.self_attn."
    hd = config.get("head_dim") or config["hidden_size"] // h
    theta, eps, zero = config["rope_theta"], config["rms_norm_eps"], np.zeros(hd)

    def normed(name, x):
        if l + name not in w:
            return x
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * torch.as_tensor(w[l + name])

    def between(q, k):
        return (halves(normed(name, x), hd, theta) for name, x in (("q_norm.weight", q), ("k_norm.weight", k)))

    rows = lambda name, k: w[l + name + ".weight"][k * hd:(k + 1) * hd].T
    return [Head(rows("q_proj", k), zero, rows("k_proj", k * groups // h), zero, rows("v_proj", k * groups // h),
                 w[l + "o_proj.weight"][:, k * hd:(k + 1) * hd].T, between, causal=True) for k in range(h)]


def heads_neox(w, config, layer):
    h, d, l = config["num_attention_heads"], config["hidden_size"], f"gpt_neox.layers.{layer}.attention."
    hd = d // h
    rotary = int(hd * config["rotary_pct"])
    between = lambda q, k: (halves(x, rotary, config["rotary_emb_base"]) for x in (q, k))
    part = lambda which, k: (w[l + "query_key_value.weight"][(3 * k + which) * hd:(3 * k + which + 1) * hd].T,
                             w[l + "query_key_value.bias"][(3 * k + which) * hd:(3 * k + which + 1) * hd])
    return [Head(*part(0, k), *part(1, k), part(2, k)[0], w[l + "dense.weight"][:, k * hd:(k + 1) * hd].T,
                 between, causal=True) for k in range(h)]


def jacobian(function, at):
    """d vec f / d vec at, whole."""
    j = torch.autograd.functional.jacobian(function, at)
    return j.reshape(-1, at.numel()).numpy()


def window(i, m, size):
    """First and one past the last index of the nested window of `size` tokens around i: left first, spilling over."""
    left, right, e = 0, 0, size - 1
    a, b = i, m - 1 - i
    k = min(a, b)
    if e <= 2 * k:
        left, right = (e + 1) // 2, e // 2
    elif a < b:
        left, right = a, e - a
    else:
        left, right = e - b, b
    return i - left, i + right + 1


def local_acc(p):
    n = len(p)
    return [sum(p[i, slice(*window(i, n, size))].sum() for i in range(n)) / n for size in range(1, n + 1)]


def lambda2(p, causal):
    """Second largest modulus; a triangular matrix has its eigenvalues on the diagonal."""
    values = np.diag(p) if causal else np.linalg.eigvals(p)
    return float(sorted(abs(values))[-2])


def delta_pi(p):
    """|P - 1 pi^T| in l2(pi); undefined unless pi is positive and unique."""
    values, vectors = np.linalg.eig(p.T)
    at = int(np.argmin(abs(values - 1)))
    pi = np.real(vectors[:, at] / vectors[:, at].sum())
    if (pi <= 1e-12).any() or sum(abs(values - 1) < 1e-9) > 1:
        return UNDEFINED
    root = np.sqrt(pi)
    return np.linalg.norm(root[:, None] * (p - pi[None, :]) / root[None, :], 2)


def head_metrics(head, p, x, residual, a2, layout):
    """All attention metrics of one head, and what the layer's estimates average."""
    n = len(p)
    pi1, pi2 = projectors(n)
    e = np.full(n, 1 / math.sqrt(n))
    xt = torch.as_tensor(x)
    s = head.logits(xt, head.wq, head.wk)
    assert abs(head.activation(s).numpy() - p).max() < 1e-13, "attention differs from the golden one"

    l2, delta = lambda2(p, head.causal), np.linalg.norm(pi2 @ p, 2)
    omega = np.linalg.norm(e @ p @ pi2 @ x) / np.linalg.norm(e @ x)
    mu1, mu2 = (math.sqrt(squared(pi @ p @ x) / squared(pi @ x)) for pi in (pi1, pi2))
    m1, m2 = (squared(pi @ p @ x) / squared(pi @ residual) for pi in (pi1, pi2))
    logs = np.log(np.where(p > 0, p, 1.0))
    dp_ds = jacobian(head.activation, s)
    same_row = dp_ds.reshape(n, n, n, n)[np.arange(n), :, np.arange(n), :]
    post = layout == "post-norm"
    curve = local_acc(p)
    values = {
        "lambda2_abs": l2, "spectral_gap": 1 - l2 ** 2, "gap": 1 - l2, "delta": delta, "omega": omega, "mu1": mu1, "mu2": mu2,
        "est1": ((1 - omega) ** 2 - delta ** 2) * a2 / (1 + a2 * delta ** 2) if post and omega < 1 else UNDEFINED,
        "est2": a2 * (1 - l2 ** 2) / (1 + a2 * l2 ** 2) if post else UNDEFINED,
        "est_mu": (1 + a2 * m1) / (1 + a2 * m2) - 1,
        "delta_pi": UNDEFINED if head.causal else delta_pi(p),
        "dobrushin": max(abs(p[i] - p[j]).sum() / 2 for i in range(n) for j in range(n)),
        "attn_fro": math.sqrt(squared(p)),
        "jac_fro": np.linalg.norm(dp_ds),
        "jac_q_fro": np.linalg.norm(jacobian(lambda wq: head.activation(head.logits(xt, wq, head.wk)), head.wq)),
        "jac_k_fro": np.linalg.norm(jacobian(lambda wk: head.activation(head.logits(xt, head.wq, wk)), head.wk)),
        "dp_ds_max": abs(same_row).max(),
        "entropy": -(p * logs).sum() / n,
        "row_max": abs(p).max(1).mean(),
        "neg_mass": abs(p[p < 0]).sum() / abs(p).sum(),
        "row_sum_dev": abs(p.sum(1) - 1).max(),
        "local_auc": sum(curve) / n}
    return values, curve, {"omega": omega, "delta": delta, "l2": l2, "m1": m1, "m2": m2}


def layer_means(heads, parts, a2, layout):
    """Means over the heads where a metric is defined; the estimates from the heads' means of their ingredients."""
    means = {}
    for metric in heads[0]:
        defined = [h[metric] for h in heads if h[metric] is not UNDEFINED]
        means[metric] = sum(defined) / len(defined) if defined else UNDEFINED
    mean = lambda f, which: sum(f(part) for part in which) / len(which)
    if layout == "post-norm":
        small = [part for part in parts if part["omega"] < 1]        # the heads where est1 is defined
        if small:
            delta2 = mean(lambda part: part["delta"] ** 2, small)
            means["est1"] = (mean(lambda part: (1 - part["omega"]) ** 2, small) - delta2) * a2 / (1 + a2 * delta2)
        l2 = mean(lambda part: part["l2"] ** 2, parts)
        means["est2"] = a2 * (1 - l2) / (1 + a2 * l2)
    means["est_mu"] = (1 + a2 * mean(lambda part: part["m1"], parts)) / (1 + a2 * mean(lambda part: part["m2"], parts)) - 1
    return means


# ---------------------------------------------------------------------------------------------------

HEADS = {"bert": heads_bert, "gpt2": heads_gpt2, "llama": heads_llama, "qwen3": heads_llama, "gpt-neox": heads_neox}


def measure(name, layout, layers):
    directory = os.path.join(HERE, name)
    golden = np.load(os.path.join(directory, "golden.npz"))
    weights = read_safetensors(os.path.join(directory, "model.safetensors"))
    with open(os.path.join(directory, "config.json")) as file:
        config = json.load(file)
    rows, curves, a2s = [], [], []

    def add(layer, stage, head, values):
        rows.extend((layer, stage, head, metric, value) for metric, value in values.items())

    for layer in range(layers):
        state = {stage: golden[f"layer.{layer}.{stage}"] for stage in STAGES[layout]}
        if layer == 0:
            add(0, "embed", "", state_metrics(golden["embed"]))
        for stage, x in state.items():
            add(layer, stage, "", state_metrics(x))
            if stage in PRED[layout]:
                add(layer, stage, "", step_metrics(state[PRED[layout][stage]], x))
        add(layer, "out", "", {"r_layer": t_div(state["in"]) / t_div(state["out"])})

        heads = HEADS[name](weights, config, layer)
        x = state["in"] if layout == "post-norm" else state["norm1"]
        a2 = sum(squared(h.wv @ h.wo) for h in heads) / x.shape[1]
        a2s.append(a2)
        results = [head_metrics(h, golden[f"layer.{layer}.attentions"][k], x, state["in"], a2, layout)
                   for k, h in enumerate(heads)]
        for k, (values, curve, _) in enumerate(results):
            add(layer, "attn", k, values)
            curves.extend((layer, "attn", k, "local_acc", (i + 1) / len(curve), y) for i, y in enumerate(curve))
        add(layer, "attn", "", layer_means([r[0] for r in results], [r[2] for r in results], a2, layout))
        mean_curve = np.mean([r[1] for r in results], 0)
        curves.extend((layer, "attn", "", "local_acc", (i + 1) / len(mean_curve), y) for i, y in enumerate(mean_curve))
    if "final_norm" in golden:
        add(layers - 1, "final_norm", "", state_metrics(golden["final_norm"]))

    write_csv(os.path.join(directory, "metrics.csv"), "layer,stage,head,metric,value", rows)
    write_csv(os.path.join(directory, "curves.csv"), "layer,stage,head,curve,x,y", curves)
    with open(os.path.join(directory, "metrics.json"), "w") as file:
        json.dump({"layout": layout, "a2": a2s}, file, indent=2)
        file.write("\n")
    print(f"{name}: {len(rows)} values, {sum(row[-1] is UNDEFINED for row in rows)} undefined")


def write_csv(path, header, rows):
    with open(path, "w") as file:
        file.write(header + "\n")
        for row in rows:
            cells = ["" if cell is UNDEFINED else "%.17g" % cell if isinstance(cell, float) else str(cell) for cell in row]
            assert "nan" not in cells and "inf" not in cells, row
            file.write(",".join(cells) + "\n")


def check_local_acc():
    """Values known by hand: uniform and causal uniform, 8 tokens."""
    uniform = np.full((8, 8), 1 / 8)
    assert np.allclose(local_acc(uniform), np.arange(1, 9) / 8)
    triangle = np.tril(np.ones((8, 8))) / np.arange(1, 9)[:, None]
    known = [.339732, .554464, .570089, .722321, .755804, .866369, .920685, 1]
    assert np.allclose(local_acc(triangle), known, atol=1e-6)


def main():
    torch.set_num_threads(1)
    check_local_acc()
    with open(os.path.join(HERE, "manifest.json")) as file:
        cases = {entry["name"]: entry for entry in json.load(file)["cases"]}
    for name in HEADS:
        measure(name, cases[name]["layout"], cases[name]["layers"])


if __name__ == "__main__":
    main()
