"""Runs the blocks of docs/from-pytorch.md in order, and compares what tsdiag says with PyTorch.

    from_pytorch.py TSDIAG PAGE     exit code 77: there is no PyTorch
"""

import csv
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import types

from similarity import t_sim, xi_ratio

SKIPPED = 77


def table(folder):
    """Values of metrics.csv by (layer, stage, head, metric)."""
    with open(pathlib.Path(folder) / "metrics.csv", newline="") as file:
        return {(int(row["layer"] or -1), row["stage"], row["head"], row["metric"]): float(row["value"])
                for row in csv.DictReader(file) if row["value"] and row["tensor"] == ""}


def near(found, expected, what):
    # States are float32 and sums of 2048 entries are taken in another order.
    assert abs(found - expected) <= 1e-5 * abs(expected), f"{what}: {found}, expected {expected}"


def compare(saved):
    """What the four runs of the page say, beside PyTorch."""
    states = table("states.tsdiag")
    for layer in range(6):
        near(states[layer, "out", "", "t_sim"], t_sim(saved[f"hidden_states.{layer + 1}"]), f"t_sim {layer}")
    import torch
    attention, stages, outputs = table("attention.tsdiag"), table("stages.tsdiag"), table("outputs.tsdiag")
    for layer in range(6):
        q, k = saved[f"queries.{layer}"].double(), saved[f"keys.{layer}"].double()
        p = torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1)
        entropy = -(p * p.log()).sum(-1).mean((0, 2))
        for head in range(4):
            for run in (attention, stages, outputs):
                near(run[layer, "attn", str(head), "entropy"], entropy[head].item(), f"entropy {layer}:{head}")
            assert attention[layer, "attn", str(head), "jac_fro"] > 0
        near(stages[layer, "attn", "", "xi_ratio"],
             xi_ratio(saved[f"hidden_states.{layer}"], saved[f"attn.{layer}"]), f"xi_ratio of attn {layer}")
        near(stages[layer, "ffn", "", "xi_ratio"],
             xi_ratio(saved[f"attn.{layer}"], saved[f"ffn.{layer}"]), f"xi_ratio of ffn {layer}")


def main(program, page):
    try:
        import torch
    except ImportError:
        print("there is no PyTorch")
        return SKIPPED
    blocks = re.findall(r"^```(python|sh)\n(.*?)^```", pathlib.Path(page).read_text(), re.M | re.S)
    assert len(blocks) == 9, f"{len(blocks)} blocks"
    names = {"input_ids": None}

    def model_of_hugging_face(ids, output_hidden_states, output_attentions):
        saved = names["saved"]
        maps = []
        for layer in range(6):
            q, k = saved[f"queries.{layer}"], saved[f"keys.{layer}"]
            maps.append(torch.softmax(q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5, -1))
        return types.SimpleNamespace(hidden_states=tuple(saved[f"hidden_states.{i}"] for i in range(7)),
                                     attentions=tuple(maps))

    names["model_of_hugging_face"] = model_of_hugging_face
    environment = dict(os.environ, PATH=f"{pathlib.Path(program).parent}:{os.environ['PATH']}")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for kind, text in blocks:
            print(text, flush=True)
            if kind == "python":
                exec(compile(text, page, "exec"), names)
            else:
                done = subprocess.run(text.strip() + " --no-report",
                                      shell=True, env=environment, capture_output=True, text=True)
                assert done.returncode == 0, done.stderr
                assert "missing" not in done.stdout and "ignored" not in done.stdout, done.stdout
        compare(names["saved"])
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])))
