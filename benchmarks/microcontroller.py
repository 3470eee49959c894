"""A microcontroller's budget, 256 KB of working memory and 1 MB of program memory: met by a network for digits and by
one for images of 32 pixels? Counted in int8: activations at the worst moment, weights.

    python benchmarks/microcontroller.py [--time 10min] [--data images of 32 pixels]

Decided and counted alone, by a made-up score, for images of 8 and 32 pixels in two spaces; with `--time` also fitted,
trained and verified (without `--data` the images of 32 pixels are digits, enlarged).
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from _record import record
from budget_kept import made_up_score

import sartor
from sartor.core.registry import COSTS, SPACES
from sartor.core.task import Task
from sartor.solvers import solve
from sartor.solvers.base import Problem

BUDGETS = {"sram": 256_000.0, "flash": 1_000_000.0}
TASKS = {"digits": Task(10, 8, 1), "32 pixels": Task(10, 32, 3)}


def enlarged(folder: Path, times: int = 4) -> Path:
    """Digits of 32 pixels, or of eight times as many as said."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.kron(digits.images / 16 * 255, np.ones((1, times, times))).astype(np.uint8)
    np.savez(folder / "enlarged.npz", x=images[..., None], y=digits.target)
    return folder / "enlarged.npz"


def decided(name: str, task: Task) -> dict:
    """The optimum inside both budgets, as its tables predict it and as the built network counts."""
    space, costs = SPACES[name]().fitted(task), {n: COSTS[n]() for n in (*BUDGETS, "params", "macs")}
    tables = {n: cost.table(space, task) for n, cost in costs.items()}
    limits = tuple(tables[n].limit(high) for n, high in BUDGETS.items())
    found = solve(Problem(made_up_score(space, task), limits))
    net = space.network(found.arch, task)
    counted = {n: cost.of(net, (task.channels, task.image, task.image)) for n, cost in costs.items()}
    predicted = {n: tables[n].form(found.arch) for n in BUDGETS}
    kept = all(counted[n] <= high for n, high in BUDGETS.items())
    return {"counted": counted, "predicted": predicted, "kept": kept, "proven": found.proven}


def fitted(name: str, data: object, folder: Path, time: str) -> dict:
    """Fit, and what its certificate and `sartor verify` say."""
    result = sartor.fit(data, out=folder / name, budgets=BUDGETS, time=time, quiet=True)
    told, checked = result.certificate, sartor.verify(result.path)
    again = {line.what: line.state for line in checked.lines if "counted again" in line.what}
    kept = {n: {k: told["budgets"][n][k] for k in ("limit", "predicted", "measured", "holds")} for n in BUDGETS}
    return {
        "data": told["data"]["name"], "test_accuracy": told["accuracy"]["test"], "time": time, "budgets": kept,
        "test_images": told["accuracy"]["test_images"], "verified": checked.holds, "again": again,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time")
    parser.add_argument("--data")
    options, results = parser.parse_args(), {}
    for space in ("mobile", "edge"):
        for what, task in TASKS.items():
            results[f"{space}, {what}"] = decided(space, task)
            print(space, what, results[f"{space}, {what}"], flush=True)
    with tempfile.TemporaryDirectory() as name:
        given = {"digits": "digits", "32 pixels": options.data or str(enlarged(Path(name)))} if options.time else {}
        for what, data in given.items():
            results[f"fitted, {what}"] = fitted(what.replace(" ", "_"), data, Path(name), options.time)
            print(what, results[f"fitted, {what}"], flush=True)
    print(record("microcontroller", {"budgets": BUDGETS, **results}))


if __name__ == "__main__":
    main()
