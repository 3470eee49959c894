"""Are budgets kept? Ten budgets from tightest to loosest; each network solved for, exported and timed as deployed.

The loop is that of `sartor fit` without the training: solve, build, time; over the budget, correct the
table and solve again. Then all ten are exported and the files timed afresh, in one sitting at the end.

    python benchmarks/budget_kept.py [--preset small]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from _record import record
from latency_table import TASKS

from sartor.core.quadratic import Limit
from sartor.costs.base import Price, distinct, priced
from sartor.costs.latency.cost import Latency, as_deployed
from sartor.costs.macs import Macs
from sartor.deploy.export import export_onnx
from sartor.solvers import solve
from sartor.solvers.base import Problem
from sartor.spaces.mobile.space import Mobile


def made_up_score(space, task):
    """Larger blocks score more, each by its own luck: what matters here is only that budgets bind."""
    parts, rng = list(space.parts(task)), np.random.default_rng(0)
    macs = Macs().table(space, task).prices
    return priced(space, parts, {k: Price.exact(macs[k].value * rng.uniform(0.5, 1.5)) for k in distinct(parts)})


def fitting(cost, space, task, score, table, budget):
    """The best network that was measured within the budget, and every try before it."""
    image, tries = (task.channels, task.image, task.image), []
    for _ in range(12):
        arch = solve(Problem(score, (Limit("latency", table.form, high=budget),))).arch
        timing = cost.time(as_deployed(space, arch, task), image, table)
        tries.append({"predicted_ms": table.form(arch), "measured_ms": timing.p50, "high_ms": timing.high})
        if timing.high <= budget:
            break
        table = cost.correct(table, arch, max(timing.high, 1.001 * budget))
    return arch, tries


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="small", choices=TASKS)
    options = parser.parse_args()
    cost, space, task = Latency(), Mobile(preset=options.preset), TASKS[options.preset]
    table = cost.table(space, task)
    score = made_up_score(space, task)
    least, most = table.calibration["measured_ms"][:2]
    budgets = np.geomspace(1.1 * least, most, 10)
    chosen = [fitting(cost, space, task, score, table, b) for b in budgets]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{i}.onnx" for i in range(len(chosen))]
        for (arch, _), file in zip(chosen, files, strict=True):
            export_onnx(as_deployed(space, arch, task), task, file)
        for budget, (arch, tries), file in zip(budgets, chosen, files, strict=True):
            timing = cost.time(file, (task.channels, task.image, task.image), table)
            kept = timing.p50 <= budget
            rows.append({
                "budget_ms": float(budget), "picks": list(arch.picks), "tries": tries, "measured_p50_ms": timing.p50,
                "measured_p95_ms": timing.p95, "drift": timing.drift, "kept": bool(kept),
            })  # fmt: skip
            print(
                f"budget {budget:7.4f} ms: measured {timing.p50:7.4f} ms ({timing.p50 / budget:.1%}), "
                f"{len(tries)} tries, drift {timing.drift:.3f}: {'kept' if kept else 'BROKEN'}"
            )
    kept = sum(r["kept"] for r in rows)
    print(f"{kept} of {len(rows)} budgets kept")
    print(record("budget_kept", {"device": cost.identity(), "preset": options.preset, "kept": kept, "budgets": rows}))


if __name__ == "__main__":
    main()
