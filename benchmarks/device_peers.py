"""PyTorch on the device: what gpu/bench sets beside the numbers of tsdiag_device_benchmarks.

    python3 benchmarks/device_peers.py

Float32 without TF32.  Prints rows of the same table: BERT-large's forward pass at batch 32 and 512 tokens, alone and with
the statistics of all heads that a hook would take, and torch.linalg.eigvals of row-stochastic matrices in float64, a
few of them, for the time of one.
"""
import statistics
import time

import torch
from torch import nn

LAYERS, D, HEADS, N, BATCH = 24, 1024, 16, 512, 32


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)
        self.norm1, self.norm2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.observe = lambda p: None

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, HEADS, D // HEADS).permute(2, 0, 3, 1, 4)
        p = torch.softmax(q @ k.transpose(-1, -2) * (D // HEADS) ** -0.5, -1)  # diagnostics need P
        self.observe(p)
        x = self.norm1(x + self.out((p @ v).transpose(1, 2).reshape(b, n, D)))
        return self.norm2(x + self.down(nn.functional.gelu(self.up(x))))


def statistics_of(p):
    """Of each head: Frobenius norms of P and of its Jacobian, entropy, the mean of the largest entries of rows, the area
    under the locally accumulated attention."""
    squares = p.square().sum(-1)
    jacobian = squares - 2 * p.pow(3).sum(-1) + squares.square()
    entropy = -torch.special.xlogy(p, p).sum(-1).mean(-1)
    n = p.shape[-1]
    distance = (torch.arange(n, device=p.device)[:, None] - torch.arange(n, device=p.device)).abs().flatten()
    by_distance = p.new_zeros(*p.shape[:-2], n).index_add_(-1, distance, p.flatten(-2))
    local = by_distance.cumsum(-1).mean(-1) / n
    return torch.stack([squares.sum(-1).sqrt(), jacobian.sum(-1).sqrt(), entropy, p.amax(-1).mean(-1), local]).cpu()


def seconds(work, runs=5):
    times = []
    for run in range(runs + 1):
        torch.cuda.synchronize()
        start = time.perf_counter()
        work()
        torch.cuda.synchronize()
        if run > 0:
            times.append(time.perf_counter() - start)
    return statistics.median(times)


@torch.no_grad()
def main():
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(0)
    model = nn.Sequential(*[Layer() for _ in range(LAYERS)]).cuda()
    x = torch.randn(BATCH, N, D, device="cuda")
    print(f"| PyTorch {torch.__version__}: BERT-large sizes, {BATCH} x {N}: forward | {seconds(lambda: model(x)):.4g} | | |")
    for layer in model:
        layer.observe = statistics_of
    taken = seconds(lambda: model(x))
    print(f"| PyTorch: the same with statistics of all heads, eager | {taken:.4g} | | |")
    for n, count in ((1024, 4), (4096, 1)):
        p = torch.softmax(torch.randn(count, n, n, device="cuda", dtype=torch.float64), -1)
        taken = seconds(lambda: torch.linalg.eigvals(p), 1)
        print(f"| PyTorch: torch.linalg.eigvals, {count} matrices, n = {n} | {taken:.4g} | {1e3 * taken / count:.4g} ms each | |")


if __name__ == "__main__":
    main()
