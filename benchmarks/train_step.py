"""One training step of a GPT-2-like model, beside PyTorch on the same machine in the same run.

    OPENBLAS_CORETYPE=SkylakeX python3 benchmarks/train_step.py build/release/tsdiag
    OPENBLAS_CORETYPE=SkylakeX python3 benchmarks/train_step.py build/release/tsdiag --tokens 64 --batch 64
    python3 benchmarks/train_step.py build/device/tsdiag --device cuda --batch 64 --steps 20

6 layers, d = 512, 8 heads, pre-norm, GELU, tied bytes vocabulary of 256; n = 512 unless told otherwise, float32,
AdamW, clipping by the global norm.  Both sides are timed in turn; a step's time is the difference of
two runs divided by the difference of their steps (tsdiag) or the time of a step after a warm-up
(PyTorch, eager, attention of baddbmm/softmax/bmm over whole batches).
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from torch import nn

LAYERS, D, HEADS, VOCAB = 6, 512, 8, 256


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu", help="of both: cpu or cuda, float32 without TF32")
    parser.add_argument("--steps", type=int, default=3, help="of tsdiag, that are timed")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=512)
    return parser.parse_args()


args = arguments()
N = args.tokens


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)
        self.register_buffer("mask", torch.full((N, N), float("-inf")).triu(1))

    def forward(self, x):
        b = x.shape[0]
        q, k, v = self.qkv(self.norm1(x)).view(b, N, 3, HEADS, D // HEADS).permute(2, 0, 3, 1, 4).reshape(
            3, b * HEADS, N, D // HEADS)
        s = torch.baddbmm(self.mask, q, k.transpose(1, 2), alpha=(D // HEADS) ** -0.5)
        o = torch.bmm(torch.softmax(s, -1), v)
        x = x + self.out(o.view(b, HEADS, N, D // HEADS).transpose(1, 2).reshape(b, N, D))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.position = nn.Embedding(VOCAB, D), nn.Embedding(N, D)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(D)

    def forward(self, ids):
        x = self.blocks(self.token(ids) + self.position(torch.arange(N, device=ids.device)))
        return self.norm(x) @ self.token.weight.T


def wait(tensor):
    if tensor.is_cuda:
        torch.cuda.synchronize()


def torch_step(model, optimiser, ids):
    wait(ids)
    start = time.perf_counter()
    optimiser.zero_grad(set_to_none=True)
    logits = model(ids)[:, :-1]
    loss = nn.functional.cross_entropy(logits.reshape(-1, VOCAB), ids[:, 1:].reshape(-1))
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
    wait(ids)
    return time.perf_counter() - start


def tsdiag_seconds(text, steps, out):
    start = time.perf_counter()
    subprocess.run([args.program, "train", f"random:gpt2,layers={LAYERS},d={D},heads={HEADS},act=gelu", "--data",
                    f"text:{text}", "--tokens", str(N), "--batch", str(args.batch), "--device", args.device, "--steps", str(steps),
                    "--eval-samples", "0", "-q", "--force", "-o", out], check=True)
    return time.perf_counter() - start


def main():
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    model = Model().to(args.device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids = torch.randint(VOCAB, (args.batch, N), device=args.device)
    torch_step(model, optimiser, ids)
    with tempfile.TemporaryDirectory() as folder:
        text = os.path.join(folder, "bytes")
        with open(text, "wb") as file:
            file.write(bytes(torch.randint(VOCAB, (20 * N,), dtype=torch.uint8).tolist()))
        ratios = []
        for _ in range(args.rounds):
            theirs = min(torch_step(model, optimiser, ids) for _ in range(2))
            short = tsdiag_seconds(text, 1, os.path.join(folder, "out"))
            ours = (tsdiag_seconds(text, 1 + args.steps, os.path.join(folder, "out")) - short) / args.steps
            ratios.append(theirs / ours)
            print(f"PyTorch {theirs:.3g} s  tsdiag {ours:.3g} s  ratio {ratios[-1]:.2f}", flush=True)
    print(f"median ratio {statistics.median(ratios):.2f}, least {min(ratios):.2f}")


if __name__ == "__main__":
    sys.exit(main())
