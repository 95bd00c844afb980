"""Writes adamw.csv: parameters after each of eight steps of torch.optim.AdamW in float64.

A 3 x 4 matrix that decays and a vector of 5 that does not; w0(i) = cos(i), the gradient of step t is
sin(i + 2 t) / t, the rate 0.1 / t, betas (0.8, 0.95), eps 1e-3, weight decay 0.2.
"""
import torch


def run(count, decay):
    w = torch.cos(torch.arange(count, dtype=torch.float64)).requires_grad_()
    optimiser = torch.optim.AdamW([w], lr=1.0, betas=(0.8, 0.95), eps=1e-3, weight_decay=decay)
    for step in range(1, 9):
        w.grad = torch.sin(torch.arange(count, dtype=torch.float64) + 2 * step) / step
        optimiser.param_groups[0]["lr"] = 0.1 / step
        optimiser.step()
        yield step, w.detach().tolist()


with open("adamw.csv", "w") as out:
    print("tensor,step,index,value", file=out)
    for name, count, decay in (("matrix", 12, 0.2), ("vector", 5, 0.0)):
        for step, values in run(count, decay):
            for i, value in enumerate(values):
                print(f"{name},{step},{i},{value!r}", file=out)
