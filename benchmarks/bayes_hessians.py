"""BayesNAS's recursive Hessians (appendix C) beside exact ones: error and seconds, for weights and for switches.

Small networks in double precision, trained a little so that curvature is not chance. Exact: second derivatives by
double backward. Gauss-Newton: exact J' H J. Sampled: one backward pass a batch. Diagonal and mean: the recursion, by
entries and by means as the paper speeds it up. The error is ||found - exact|| / ||exact||, the order Spearman's.

    python benchmarks/bayes_hessians.py
"""

from __future__ import annotations

import time

import numpy as np
import torch
import torch.nn.functional as F
from _record import parser, record
from torch import nn

from sartor.engine.curvature.hessian import diagonal
from sartor.engine.curvature.recursive import recursive_diagonals


class Switched(nn.Module):
    """Three paths, each behind its switch, summed twice."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 6, 3, padding=1)
        self.paths = nn.ModuleList(nn.Conv2d(6, 6, k, padding=k // 2) for k in (1, 3, 5, 1, 3, 5))
        self.s0, self.s1, self.s2, self.s3, self.s4, self.s5 = (nn.Parameter(torch.ones(())) for _ in range(6))
        self.fc = nn.Linear(6, 10)

    def forward(self, x):  # noqa: D102
        x = torch.relu(self.stem(x))
        a, b, c, d, e, f = self.paths
        x = torch.relu(self.s0 * a(x) + self.s1 * b(x) + self.s2 * c(x))
        x = torch.relu(self.s3 * d(x) + self.s4 * e(x) + self.s5 * f(x))
        return self.fc(x.mean((2, 3)))


def networks():
    """Fully connected (C.1), convolutional with batch-norm (C.2), switches (C.3)."""
    fc = nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 16), nn.Tanh(), nn.Linear(16, 10))
    conv = nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 8, 3, padding=1),
        nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    return {
        "fully connected (C.1)": (fc, ["1.weight", "3.weight", "5.weight"]),
        "convolutions (C.2)": (conv, ["0.weight", "4.weight", "9.weight"]),
        "switches (C.3)": (Switched(), [f"s{i}" for i in range(6)]),
    }


def trained(net, x, y):
    adam = torch.optim.Adam(net.parameters(), 3e-3)
    for _ in range(120):
        adam.zero_grad()
        F.cross_entropy(net(x), y).backward()
        adam.step()
    return net.eval()


def flat(tensors):
    return np.concatenate([np.atleast_1d(t.detach().numpy()).ravel() for t in tensors])


def error(found, exact):
    return float(np.linalg.norm(flat(found) - flat(exact)) / np.linalg.norm(flat(exact)))


def compare(found, exact):
    ranks = [np.argsort(np.argsort(flat(v))) for v in (found, exact)]
    return {
        "error": error(found, exact),
        "spearman": float(np.corrcoef(*ranks)[0, 1]),
        "scale": float(flat(found).sum() / flat(exact).sum()),
    }


def timed(work):
    """The result, and the seconds of the faster of two calls."""
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        found = work()
        seconds.append(time.perf_counter() - start)
    return found, min(seconds)


def study(net, names, x, y):
    """Every way on one network."""
    tensors = [dict(net.named_parameters())[n] for n in names]
    small = [(x[i : i + 16], y[i : i + 16]) for i in range(0, len(x), 16)]
    generator = torch.Generator().manual_seed(0)
    exact, seconds = timed(lambda: diagonal(net, tensors, [(x, y)], "exact"))
    rows = {"exact": {"error": 0.0, "spearman": 1.0, "scale": 1.0, "seconds": seconds}}
    ways = {
        "gauss-newton": lambda: diagonal(net, tensors, [(x, y)], "ggn"),
        "sampled": lambda: diagonal(net, tensors, small, "sampled", generator=generator),
        "recursive, diagonal": lambda: [recursive_diagonals(net, [(x, y)], "diagonal")[n] for n in names],
        "recursive, mean": lambda: [recursive_diagonals(net, [(x, y)], "mean")[n] for n in names],
    }
    for way, work in ways.items():
        found, seconds = timed(work)
        each = {n: error([f], [e]) for n, f, e in zip(names, found, exact, strict=True)}
        rows[way] = compare(found, exact) | {"seconds": seconds, "error_by_tensor": each}
    return {"entries": sum(t.numel() for t in tensors), "images": len(x), "ways": rows}


def main():
    parser(__doc__).parse_args()
    from sklearn.datasets import load_digits

    torch.set_num_threads(1)
    torch.manual_seed(0)
    digits = load_digits()
    x = torch.from_numpy(digits.images[:128]).unsqueeze(1) / 8 - 1
    y = torch.from_numpy(digits.target[:128]).long()
    results = {}
    for title, (net, names) in networks().items():
        results[title] = study(trained(net.double(), x, y), names, x, y)
        print(title, results[title]["entries"], "entries")
        for way, row in results[title]["ways"].items():
            print(f"  {way:<20} error {row['error']:.3f}  Spearman {row['spearman']:.3f}  "
                  f"scale {row['scale']:.2f}  {row['seconds']:.3f} s")  # fmt: skip
    print(record("bayes_hessians", results))


if __name__ == "__main__":
    main()
