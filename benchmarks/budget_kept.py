"""Are budgets kept, and used? Ten budgets from tightest to loosest on the default space, each decided as `fit` does.

A search whose score is made up, then `sartor solve` for every budget, which trains for an epoch of noise: the optimum
built and timed, the table corrected, room used; exported, and verified as deployed, until it fits. At the end all ten
files are timed afresh, in one sitting.

    python benchmarks/budget_kept.py [--image 32] [--space mobile]
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from _record import record

import sartor
from sartor.core.registry import SPACES
from sartor.core.task import Task
from sartor.costs.base import CostTable, Price, distinct, priced
from sartor.costs.latency.cost import Latency
from sartor.costs.macs import Macs
from sartor.methods.base import Found, Job, Method
from sartor.runs.directory import read_file
from sartor.solvers import cheapest

USED = 0.93  # of a budget


def made_up_score(space, task):
    """Larger blocks score more, each by its own luck: what matters here is only that budgets bind."""
    parts, rng = list(space.parts(task)), np.random.default_rng(0)
    macs = Macs().table(space, task).prices
    return priced(space, parts, {k: Price.exact(macs[k].value * rng.uniform(0.5, 1.5)) for k in distinct(parts)})


@dataclass(frozen=True, kw_only=True)
class MadeUp(Method):
    """A score without a search."""

    def search(self, job: Job) -> Found:
        """Nothing is trained."""
        return Found(made_up_score(job.space, job.task), "made up")


def searched(space: str, image: int, out: Path) -> Path:
    """A run on random images of which only the decisions matter."""
    rng = np.random.default_rng(0)
    np.savez(out / "noise.npz", x=rng.integers(0, 256, (80, image, image, 3), np.uint8), y=np.arange(80) % 4)
    sartor.fit(
        str(out / "noise.npz"), out=out / "run", latency="1s", space=space, method=MadeUp(), train={"epochs": 1},
        device="cpu", effort="thorough", quiet=True,
    )  # fmt: skip
    return out / "run"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image", type=int, default=32)
    parser.add_argument("--space", default="edge")
    given = parser.parse_args()
    cost, rows = Latency(), []
    with tempfile.TemporaryDirectory() as name:
        run, task = searched(given.space, given.image, Path(name)), Task(4, given.image)
        space, shape = SPACES[given.space]().fitted(task), (3, given.image, given.image)
        table = read_file(run / "costs/latency.json", CostTable)
        most = table.form(space.heaviest)
        budgets = np.geomspace(1.5 * cheapest(table.form, space.rules).value, 0.8 * most, 10).tolist()
        archs, files = [], {}
        for budget in budgets:
            found = sartor.solve(run, latency=f"{budget:.6f}ms", trust_code=True, quiet=True)
            archs.append(found.arch)
            files[f"{budget:.6f}"] = found.path / "model/model.onnx"
        timed = cost.times(files, shape, table)
        for budget, arch, timing in zip(budgets, archs, timed.values(), strict=True):
            kept = timing.p50 <= budget
            rows.append({
                "budget_ms": budget, "picks": list(arch.picks), "predicted_ms": table.form(arch),
                "measured_p50_ms": timing.p50, "measured_p95_ms": timing.p95, "drift": timing.drift, "kept": kept,
                "used": timing.p50 / budget,
            })  # fmt: skip
            print(
                f"budget {budget:8.4f} ms: measured {timing.p50:8.4f} ms ({timing.p50 / budget:.1%}), first predicted "
                f"{table.form(arch):8.4f}, drift {timing.drift:.3f}: {'kept' if kept else 'BROKEN'}"
            )
    kept, used = sum(r["kept"] for r in rows), float(np.median([r["used"] for r in rows]))
    print(f"{kept} of {len(rows)} budgets kept, median share used {used:.3f} ({USED} asked)")
    told = {"device": cost.identity(), "space": given.space, "image": given.image, "kept": kept, "used": used}
    print(record("budget_kept", {**told, "budgets": rows}))


if __name__ == "__main__":
    main()
