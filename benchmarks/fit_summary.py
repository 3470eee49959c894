"""What finished fits delivered and where their time went, from the runs' own files, into one result file.

    python benchmarks/fit_summary.py NAME RUN [RUN ...]

A run says itself where it was made, with what and when, so the result may be written on another machine.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

from _record import parser


def summary(run: Path) -> dict:
    """One run."""

    def read(name):
        return json.loads((run / f"{name}.json").read_text())

    certificate, training, stages = read("certificate"), read("training"), read("stages")
    config = tomllib.loads((run / "config.toml").read_text())
    rates = [h["images_per_second"] for h in training["history"]]
    return {
        "asked": {"time_s": config.get("time"), "budgets": config["budgets"], "effort": config["effort"]},
        "data": certificate["data"],
        "accuracy": certificate["accuracy"],
        "costs": {
            n: {k: e.get(k) for k in ("limit", "predicted", "measured")} for n, e in certificate["costs"].items()
        },
        "ranking": certificate["ranking"],
        "training": {"seconds": training["seconds"], "epochs": len(rates), "images_per_second": max(rates)},
        "seconds": {name: s["seconds"] for name, s in stages.items() if isinstance(s, dict)},
        "architecture": certificate["string"],
        "code": certificate["code"],
        "device": certificate["device"],
        "environment": certificate["environment"],
        "made": certificate["made"],
        "rivals": [rival(p.parent) for p in sorted(run.glob("compare/*/*/verify.json"))],
    }


def rival(folder: Path) -> dict:
    """A network that was trained beside a run; its comparison may have been cut off after it."""
    training, solution = (json.loads((folder / f"{n}.json").read_text()) for n in ("training", "solution"))
    return {
        "group": folder.name, "network": solution["string"], "test": training["test_accuracy"],
        "seconds": training["seconds"], "epochs": len(training["history"]),
    }  # fmt: skip


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("name", help="of the result")
    options.add_argument("runs", type=Path, nargs="+")
    given = options.parse_args()
    path = Path(__file__).resolve().parent / "results" / f"{given.name}.json"
    path.write_text(json.dumps({"name": given.name, "runs": {r.name: summary(r) for r in given.runs}}, indent=2) + "\n")
    print(path)
