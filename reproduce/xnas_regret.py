"""Figures 6 and 8 of XNAS: the attenuation of gradients by a softmax, regret and correct selection by Monte Carlo.

Experts have values b ~ N(0, 1) and rewards R ~ N(b, sigma), T = 1000 steps, 1000 runs. The paper states neither the
numbers of experts nor sigmas nor learning rates: both forecasters use 0.1 here, without wipe-out; and Algorithm 1
once more with equation 4's rate and wipe-out, L being the largest reward that was drawn, against its bound.

One core, about three minutes. Run: python reproduce/xnas_regret.py [--runs 1000]
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

STEPS, RATE = 1000, 0.1
COUNTS, SIGMAS = (2, 4, 8, 16, 32, 64), (0.5, 1.0, 2.0, 5.0, 10.0)
SETTINGS = [(n, 1.0) for n in COUNTS] + [(n, s) for n in (8, 32) for s in SIGMAS if s != 1.0]


def attenuation(x):
    """Section 8.2.3: what the softmax multiplies a gradient by, x (1 - x)."""
    return x * (1 - x)


def study(count, sigma, runs, steps=STEPS):
    """Mean regret (2) and share of correct selections of the three forecasters on the same rewards."""
    g = torch.Generator().manual_seed(1000 * count + round(10 * sigma))
    values = torch.randn(runs, count, generator=g, dtype=torch.float64)
    rewards = values + sigma * torch.randn(steps, runs, count, generator=g, dtype=torch.float64)
    largest = float(rewards.abs().max())
    plain = Experts(runs, count, steps, bound=1e9, rate=RATE, wipeout=False)
    tuned = Experts(runs, count, steps, bound=largest)
    logits = torch.zeros(runs, count, dtype=torch.float64)
    own = torch.zeros(3, runs, dtype=torch.float64)
    for r in rewards:
        mixtures = plain.log_weights().exp(), torch.softmax(logits, 1), tuned.log_weights().exp()
        for n, u in enumerate(mixtures):
            own[n] += (u * r).sum(1)
        plain.step(r)
        tuned.step(r)
        logits += RATE * softmax_rewards(mixtures[1], r)
    regret = rewards.sum(0).max(1).values - own
    best = values.argmax(1)
    chosen = plain.logs.argmax(1), logits.argmax(1), tuned.scores().argmax(1)
    names = ("experts", "softmax", "experts, equation 4")
    found = {
        name: {"regret": float(regret[n].mean()), "correct": float((chosen[n] == best).double().mean())}
        for n, name in enumerate(names)
    }
    found[names[2]] |= {"worst_regret_over_bound": float((regret[2] / tuned.regret_bound()).max())}
    return {"count": count, "sigma": sigma, "largest_reward": largest, **found}


def growth(rows):
    """Exponents of the regret's growth with the number of experts N at noise 1: of ln N, and of N.

    The paper has (ln N)^0.5 for experts and N^0.5 for descent. A fixed rate makes the bound's ``ln N / eta`` its larger
    part, so that experts grow like ln N; at equation 4's, which changes with N, like its square root.
    """
    part = sorted((r for r in rows if r["sigma"] == 1.0 and r["count"] > 1), key=lambda r: r["count"])
    x = np.log([r["count"] for r in part])
    found = {}
    for name in ("experts", "experts, equation 4", "softmax"):
        y = np.log([r[name]["regret"] for r in part])
        found[name] = {"of ln N": float(np.polyfit(np.log(x), y, 1)[0]), "of N": float(np.polyfit(x, y, 1)[0])}
    return found


def draw(path, rows):
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(12.5, 3.4), layout="constrained")
    x = np.linspace(0, 1, 101)
    panels[0].plot(x, attenuation(x))
    panels[0].set(title="attenuation by the softmax", xlabel="x", ylabel="x (1 - x)")
    cuts = [("count", [r for r in rows if r["sigma"] == 1.0]), ("sigma", [r for r in rows if r["count"] == 8])]
    for panel, (axis, part) in zip(panels[1:], cuts, strict=True):
        part = sorted(part, key=lambda r: r[axis])
        right = panel.twinx()
        for n, name in enumerate(("experts", "softmax")):
            panel.plot([r[axis] for r in part], [r[name]["regret"] for r in part], f"C{n}o-", label=f"{name}: regret")
            right.plot([r[axis] for r in part], [r[name]["correct"] for r in part], f"C{n}s:", label=f"{name}: correct")
        panel.set(xscale="log", xlabel={"count": "number of experts", "sigma": "noise"}[axis], ylabel="regret")
        right.set(ylabel="share of correct selections", ylim=(0, 1.02))
        panel.legend(fontsize=7, loc="center left")
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("--runs", type=int, default=1000)
    runs = options.parse_args().runs
    rows = [study(count, sigma, runs) for count, sigma in SETTINGS]
    print(record("xnas_regret", {"runs": runs, "steps": STEPS, "rate": RATE, "settings": rows, "growth": growth(rows)}))
    draw(ROOT / "reproduce/figures/xnas_regret.png", rows)
