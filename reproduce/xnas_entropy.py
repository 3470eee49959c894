"""Figure 2 of XNAS in miniature: the mean normalised entropy of a mixture against weight decay on its logits.

The paper's points are searches on CIFAR-10. Here the forecasters are those of section 8.3 (eight experts, rewards
R ~ N(b, 1), 1000 steps), learnt as DARTS learns them: gradient descent through a softmax, Adam(0.5, 0.999) with weight
decay. The trend is the paper's claim; the values are not comparable with its figure.

One core, seconds. Run: python reproduce/xnas_entropy.py
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from _record import parser, record  # noqa: E402

from sartor.methods.xnas.experts import Experts, softmax_rewards  # noqa: E402

RUNS, EXPERTS, STEPS, RATE = 200, 8, 1000, 3e-3
DECAYS = (0.0, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)


def rewards(steps):
    g = torch.Generator().manual_seed(0)
    values = torch.randn(RUNS, EXPERTS, generator=g, dtype=torch.float64)
    return values + torch.randn(steps, RUNS, EXPERTS, generator=g, dtype=torch.float64)


def entropy(decay, steps=STEPS):
    """Equations 54 and 55 at the end."""
    logits = torch.zeros(RUNS, EXPERTS, dtype=torch.float64, requires_grad=True)
    adam = torch.optim.Adam([logits], RATE, (0.5, 0.999), weight_decay=decay)
    for r in rewards(steps):
        logits.grad = -softmax_rewards(torch.softmax(logits.detach(), 1), r)
        adam.step()
    u = torch.softmax(logits.detach(), 1)
    return float(-(u * u.log()).sum(1).mean() / math.log(EXPERTS))


def experts_entropy(steps=STEPS):
    """The same rewards to Algorithm 1, clamped to 3: no decay, equation 4's rate."""
    learner = Experts(RUNS, EXPERTS, steps, bound=3.0)
    for r in rewards(steps):
        learner.step(r)
    return float(learner.entropy.mean())


def draw(path, found):
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots(figsize=(5, 3), layout="constrained")
    panel.plot([d or 3e-5 for d in DECAYS], found["softmax"], "o-", label="softmax, Adam")
    panel.axhline(found["experts"], ls=":", label="experts")
    panel.set(
        xscale="log", xlabel="weight decay (leftmost: none)", ylabel="mean normalised entropy", ylim=(-0.02, 1.02)
    )
    panel.legend()
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    parser(__doc__).parse_args()
    found = {"decays": list(DECAYS), "softmax": [entropy(d) for d in DECAYS], "experts": experts_entropy()}
    print(found, record("xnas_entropy", found))
    draw(ROOT / "reproduce/figures/xnas_entropy.png", found)
