"""The toy problems of XNAS (sections 8.1 and 8.2): trajectories of experts and of gradient descent through a softmax.

The paper gives no learning rate for the 3D problem: 0.1 is used, and gradient descent over several rates, since
its "struggle to recover" appears from 0.25 on. Section 8.2.2's literal gradient (-1, 0) cannot bring x beyond 1/2 in
50 steps; the figure needs the antisymmetric one (-1, +1) that the section mentions. Both are here.

One core, seconds. Run: python reproduce/xnas_toys.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from _record import parser, record  # noqa: E402

from sartor.methods.xnas.experts import Experts, softmax_rewards  # noqa: E402

RATES = (0.1, 0.25, 0.3, 0.5, 1.0)


def experts(gradient, steps, start, rate=0.1):
    """The path of u under Algorithm 1 without wipe-out; `gradient(u, t)` is the loss gradient."""
    learner = Experts(1, len(start), steps, bound=1e9, rate=rate, wipeout=False)
    learner.logs = torch.tensor([start], dtype=torch.float64)
    path = [learner.log_weights().exp()[0]]
    for t in range(steps):
        learner.step(-gradient(path[-1], t)[None])
        path.append(learner.log_weights().exp()[0])
    return torch.stack(path).numpy()


def descent(gradient, steps, start, rate=0.1):
    """The same for gradient descent through a softmax (equations 5 and 6)."""
    logits = torch.tensor(start, dtype=torch.float64)
    path = [torch.softmax(logits, 0)]
    for t in range(steps):
        logits = logits + rate * softmax_rewards(path[-1], -gradient(path[-1], t))
        path.append(torch.softmax(logits, 0))
    return torch.stack(path).numpy()


def fixed(*values):
    return lambda u, t: torch.tensor(values, dtype=torch.float64)


def shift(u, t):
    """Section 8.1: the loss 2z for 30 steps, then -y - 2z."""
    return torch.tensor([0.0, 0.0, 2.0] if t < 30 else [0.0, -1.0, -2.0], dtype=torch.float64)


def curved(u, t):
    """Section 8.2.4: 0.5 (x - 1)^2 + 0.5 y^2."""
    return torch.stack([u[0] - 1, u[1]])


PLANE = {  # name -> (gradient, start)
    "balanced": (fixed(-1.0, 0.0), [0.0, 0.0]),
    "imbalanced, literal gradient": (fixed(-1.0, 0.0), [0.0, 5.0]),
    "imbalanced, antisymmetric gradient": (fixed(-1.0, 1.0), [0.0, 5.0]),
    "quadratic": (curved, [0.0, 0.0]),
}


def results():
    axes = experts(shift, 120, [0.0] * 3)
    lead = 31 + int(np.flatnonzero(axes[31:, 2] >= axes[31:, 1] - 1e-12)[0])  # equal there, up to rounding
    return {
        "3d": {
            "experts": axes[-1].tolist(),
            "z_equals_y_at_step": lead,
            "descent": {str(rate): descent(shift, 120, [0.0] * 3, rate)[-1].tolist() for rate in RATES},
        },
        "2d": {
            name: {"experts": float(experts(g, 50, s)[-1][0]), "descent": float(descent(g, 50, s)[-1][0])}
            for name, (g, s) in PLANE.items()
        },
    }


def draw(path):
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 4, figsize=(15, 3.4), layout="constrained")
    ours, theirs = experts(shift, 120, [0.0] * 3), descent(shift, 120, [0.0] * 3, 0.5)
    for n, axis in enumerate("xyz"):
        panels[0].plot(ours[:, n], color=f"C{n}", label=f"{axis}, experts")
        panels[0].plot(theirs[:, n], color=f"C{n}", ls=":", label=f"{axis}, softmax (rate 0.5)")
    panels[0].set(title="3D: the best axis changes at step 30", xlabel="step", ylabel="weight")
    panels[0].legend(fontsize=6)
    for panel, name in zip(panels[1:], list(PLANE)[:1] + list(PLANE)[2:], strict=True):
        gradient, start = PLANE[name]
        panel.plot(experts(gradient, 50, start)[:, 0], label="experts")
        panel.plot(descent(gradient, 50, start)[:, 0], ls=":", label="softmax")
        panel.set(title=f"2D: {name}", xlabel="step", ylabel="x", ylim=(-0.02, 1.02))
        panel.legend(fontsize=7)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    parser(__doc__).parse_args()
    print(record("xnas_toys", results()))
    draw(ROOT / "reproduce/figures/xnas_toys.png")
