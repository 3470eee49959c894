"""Does NASI's Delta* say anything that the size of a network does not? Choices among networks of about the same size.

The network with most parameters, which needs no search, is as good as NASI's own choice or better on most spaces.
So, on the gradients of `nasi_study.py` (its best setting, four seeds) and by its deciding columns alone:

within    the largest Delta* among the networks that obey the space's rules and of which only the share q has more
          parameters; beside it the mean of that class, which is what a network drawn from it is worth
sum       parameters and w times Delta*, each in units of its deviation over the listed networks, added up: a quadratic
sized     nu of a step is what x usually is at the drawn network's size (a line through log x by log parameters), so
          that mu turns away from networks whose gradients are large for their size, not from large networks; alone,
          and within

What comes first is then judged once, by the columns that tables of the paper report and on gradients of ten other seeds
(those of benchmarks/nasi_search.py), whatever comes out.

    SARTOR_TEST_DATA=.../data python reproduce/nasi_beyond.py [--seeds 10]    # four minutes of one core
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "reproduce")]
from _record import parser, record  # noqa: E402
from nasi_data import Cifar  # noqa: E402
from nasi_study import NAMES, SEEDS, SETTINGS, Shares, gradients  # noqa: E402

from sartor.core.registry import COSTS  # noqa: E402
from sartor.core.seeds import Seeds  # noqa: E402
from sartor.core.task import Task  # noqa: E402
from sartor.methods.nasi import NASI, Reward  # noqa: E402

SETTING = "kaiming, no norm"  # what nasi_study.py found best: NASI's defaults
CLASSES, WEIGHTS, MUS = (0.5, 0.2, 0.1, 0.05, 0.02, 0.01), (0.25, 0.5, 1.0, 2.0, 4.0), (1.0, 2.0)
FIRST, TASK = 100, Task(10, 32)  # the first of the seeds that judge
RULES = [
    "plain", "most parameters",
    *(f"within {q}" for q in CLASSES), *(f"class {q}" for q in CLASSES), *(f"sum {w}" for w in WEIGHTS),
    *(f"sized, mu {m:g}" for m in MUS), *(f"sized, mu {m:g}, within {q}" for m in MUS for q in CLASSES),
]  # fmt: skip

Array = NDArray[np.float64]
Kept = dict[str, Array]


class Space:
    """A space's listed networks: their sizes, Delta* of a search, and how good they are."""

    def __init__(self, name: str, images: Cifar) -> None:
        self.name, self.images, self.shares = name, images, Shares(name)
        self.benchmark = self.shares.benchmark
        self.params = COSTS["params"]().table(self.benchmark.space, TASK).form
        self.sizes = self.params.batch(self.benchmark.table.picks)
        self.ruled = self.shares.ruled
        self.order = np.sort(-self.sizes[self.ruled])

    def among(self, share: float) -> NDArray[np.bool_]:
        """Those that obey the rules and of which at most this share is larger."""
        return self.ruled & (self.sizes >= -self.order[int(share * len(self.order))])

    def drawn(self, seed: int, steps: int) -> Array:
        """The parameters of the network that was drawn at every step."""
        method, space = NASI(**SETTINGS[SETTING]), self.benchmark.space
        nothing: Any = None
        reward = Reward(method, space, Task(10, method.side), Seeds(seed), nothing, "cpu")
        gates = [reward.gates(step, reward.logits()).weights for step in range(steps)]
        return self.params.batch([[int(g.argmax()) for g in each] for each in gates])

    def delta(self, kept: Kept, seed: int, mu: float | None) -> Array:
        """Delta* of all listed networks: of NASI's defaults, or with nu by the drawn networks' sizes."""
        method, slopes = NASI(**SETTINGS[SETTING]), torch.from_numpy(kept["slopes"])
        if mu is None:
            seen = list(zip(kept["x"].tolist(), slopes, strict=True))
            found = method.delta(seen, float(np.median(kept["around"])))[0]
        else:
            x, size = np.log(kept["x"]), np.log(self.drawn(seed, len(kept["x"])))
            usual = np.polyval(np.polyfit(size, x, 1), size)
            signs = torch.from_numpy(np.where(x > usual, 1.0 - mu, 1.0))
            found = (signs[:, None] * slopes / slopes.norm(dim=1, keepdim=True)).mean(0)
        return self.shares.totals(found.numpy())

    def chosen(self, kept: Kept, seed: int) -> dict[str, NDArray[np.int64]]:
        """The listed networks that every rule chooses: one, or a whole class."""

        def best(values: Array, among: NDArray[np.bool_]) -> NDArray[np.int64]:
            return np.array([int(np.argmax(np.where(among, values, -np.inf)))])

        plain, found = self.delta(kept, seed, None), {}
        found["plain"] = best(plain, self.ruled)
        found["most parameters"] = np.flatnonzero(self.ruled & (self.sizes == self.sizes[self.ruled].max()))
        sizes, values = (v / v[self.ruled].std() for v in (self.sizes, plain))
        for w in WEIGHTS:
            found[f"sum {w}"] = best(sizes + w * values, self.ruled)
        for q in CLASSES:
            found[f"within {q}"] = best(plain, self.among(q))
            found[f"class {q}"] = np.flatnonzero(self.among(q))
        for mu in MUS:
            sized = self.delta(kept, seed, mu)
            found[f"sized, mu {mu:g}"] = best(sized, self.ruled)
            found |= {f"sized, mu {mu:g}, within {q}": best(sized, self.among(q)) for q in CLASSES}
        return found


def decided(spaces: dict[str, Space]) -> list[dict[str, Any]]:
    """Every rule's share of listed networks that the deciding column puts above its choice, best first."""
    each: dict[str, dict[str, list[float]]] = {rule: {name: [] for name in spaces} for rule in RULES}
    for name, space in spaces.items():
        for seed in SEEDS:
            kept = gradients(SETTING, name, seed, space.images)
            for rule, rows in space.chosen(kept, seed).items():
                known = rows[space.shares.known[rows]]
                each[rule][name].append(float(np.mean([space.shares.above(r) for r in known])))
    rows = [{"rule": rule, "share_above": {n: float(np.mean(v)) for n, v in by.items()}} for rule, by in each.items()]
    for row in rows:
        row["mean"] = float(np.mean(list(row["share_above"].values())))
    return sorted(rows, key=lambda r: r["mean"])


def judged(spaces: dict[str, Space], rules: list[str], seeds: int) -> dict[str, Any]:
    """Test accuracies as tables of the paper report them, on gradients that decided nothing."""
    found: dict[str, Any] = {}
    for name, space in spaces.items():
        accuracy, by = space.benchmark.table.column(space.benchmark.reports), {rule: [] for rule in rules}
        for seed in range(FIRST, FIRST + seeds):
            chosen = space.chosen(gradients(SETTING, name, seed, space.images), seed)
            for rule in rules:
                by[rule].append(float(np.nanmean(accuracy[chosen[rule]])))
        found[name] = {
            rule: {"mean": float(np.mean(v)), "std": float(np.std(v, ddof=1)) if seeds > 1 else 0.0, "seeds": v}
            for rule, v in by.items()
        }
    return found


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--seeds", type=int, default=10, help="that judge")
    given = options.parse_args()
    torch.set_num_threads(1)
    images = Cifar()
    spaces = {name: Space(name, images) for name in NAMES}
    rows = decided(spaces)
    for row in rows:
        print(f"{row['rule']:<28} {row['mean']:.4f}", {k: round(v, 4) for k, v in row["share_above"].items()})
    first = next(r["rule"] for r in rows if not r["rule"].startswith(("class", "most")))
    beside = [f"class {first.rpartition(' ')[2]}"] if "within" in first else []
    rules = list(dict.fromkeys([first, *beside, "plain", "most parameters"]))
    results = {"seeds": len(SEEDS), "decided": rows, "first": first}
    record("nasi_beyond", {**results, "judged": judged(spaces, rules, given.seeds)})


if __name__ == "__main__":
    main()
