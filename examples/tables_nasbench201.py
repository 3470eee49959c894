"""Bring your own tables, on NAS-Bench-201: 500 measured cells give a score that ranks the other 15,125.

Writes space.toml, samples.csv, held_out.csv and params.json as docs/tables.md describes them, fits the
accuracy and the latency of a phone, checks both, and draws the frontier. The tables are not part of
Sartor: set SARTOR_TEST_DATA to the folder that holds nasbench201 and nasbench201_hw.
Run: python examples/tables_nasbench201.py [folder]
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

OPERATIONS = ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3")
EDGES = ("node1.from0", "node2.from0", "node2.from1", "node3.from0", "node3.from1", "node3.from2")
DEVICES = ("pixel3", "gold_6226", "fpga")


def data_folder() -> Path | None:
    """Where the tables are, or None."""
    root = os.environ.get("SARTOR_TEST_DATA")
    return Path(root) if root and (Path(root) / "nasbench201").is_dir() else None


def operations(cell: str) -> list[str]:
    """``|op~0|+|op~0|op~1|+...`` -> the operation of every edge, in the order of EDGES."""
    return [edge.partition("~")[0] for node in cell.split("+") for edge in node.strip("|").split("|")]


def convert(root: Path, out: Path, count: int = 500, seed: int = 0) -> None:
    """The benchmark's own files as Sartor's: `count` random cells in samples.csv, the others in held_out.csv."""
    with gzip.open(root / "nasbench201/nasbench201.csv.gz", "rt") as file:
        cells = list(csv.DictReader(file))
    with gzip.open(root / "nasbench201_hw/latency_27_devices.csv.gz", "rt") as file:
        latency = {row["index"]: row for row in csv.DictReader(file)}
    out.mkdir(parents=True, exist_ok=True)
    options = json.dumps(OPERATIONS)
    (out / "space.toml").write_text("\n".join(f'[[choices]]\nname = "{e}"\noptions = {options}\n' for e in EDGES))
    order = np.random.default_rng(seed).permutation(len(cells))
    for name, part in (("samples", order[:count]), ("held_out", order[count:])):
        with open(out / f"{name}.csv", "w", newline="") as file:
            table = csv.writer(file)
            table.writerow([*EDGES, "top1", *DEVICES])
            for n in part:
                times = [latency[cells[n]["index"]][device] for device in DEVICES]
                table.writerow([*operations(cells[n]["arch"]), cells[n]["cifar10_test_200"], *times])
    each = {"none": 0, "skip_connect": 0, "nor_conv_1x1": 28_000, "nor_conv_3x3": 243_040, "avg_pool_3x3": 0}
    params = {"unit": "", "constant": 73_306, "options": dict.fromkeys(EDGES, each)}
    (out / "params.json").write_text(json.dumps(params, indent=2))


def main() -> None:
    root = data_folder()
    if root is None:
        print("skipped: set SARTOR_TEST_DATA to the folder that holds nasbench201 and nasbench201_hw.")
        return
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="nasbench201-"))
    convert(root, out)
    from sartor.tables.files import read_samples, read_space, write_score
    from sartor.tables.fit import check_tables, fit_tables, frontier_tables, limits_from, open_costs

    choices = read_space(out / "space.toml")
    scores = {}
    for target, unit in (("top1", ""), ("pixel3", "ms")):
        scores[target] = fit_tables(choices, read_samples(out / "samples.csv", choices, target), unit=unit)
        found = check_tables(choices, scores[target], read_samples(out / "held_out.csv", choices, target))
        print(f"{target}: {scores[target].facts['predictor']}, Kendall {found['kendall']['value']:.3f} "
              f"on {found['networks']} cells it has not seen")  # fmt: skip
        write_score(out / f"{target}.json", scores[target], choices)
    costs = open_costs([f"latency={out}/pixel3.json", f"params={out}/params.json"], choices)
    points = frontier_tables(choices, scores["top1"], costs, limits_from(["params=0.8M"], costs))
    print(f"{len(points.front)} cells on the frontier of top1 against the phone's latency, params <= 0.8M; the best:")
    print(points.to_json(choices, scores["top1"], costs)["points"][-1])


if __name__ == "__main__":
    main()
