"""Token similarity and escalation of PyTorch tensors, (samples, tokens, width), by their definitions."""


def parts(x):
    """|Pi1 X|^2 and |Pi2 X|^2 of each sample."""
    x = x.double()
    mean = x.mean(1, keepdim=True)
    return (mean ** 2).sum((1, 2)) * x.shape[1], ((x - mean) ** 2).sum((1, 2))


def t_sim(x):
    one, two = parts(x)
    return (one / (one + two)).mean().item()


def xi_ratio(x, y):
    (x1, x2), (y1, y2) = parts(x), parts(y)
    return ((y1 / x1) / (y2 / x2)).mean().item()
