"""How well the score of trials ranks networks that it has not seen, trained as long as those of the last rung but one.

Takes a finished run of `sartor fit` (method trials), draws networks inside its budgets that were not tried, trains each
as a trial of that rung was trained, and compares the order that the score gives them with the one they come in.

    python benchmarks/held_out.py --run runs/a --count 24 --name trials_held_out
"""

from __future__ import annotations

import argparse
import json
import shutil
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from _record import record

from sartor.core.arch import Arch
from sartor.insight.ranking import quality
from sartor.methods.trials.bench import Bench, Work
from sartor.methods.trials.field import Field
from sartor.pipeline.context import reopened
from sartor.pipeline.cut import FitCut
from sartor.runs.progress import Reporter
from sartor.runs.schema import ScoreFile, TrialsFile


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--count", type=int, default=24)
    parser.add_argument("--name", default="trials_held_out")
    args = parser.parse_args()
    with TemporaryDirectory() as spare:  # weights of these networks are nobody's business
        measured = tried(args.run, args.count, Path(spare))
    found = quality([m["predicted"] for m in measured], [m["measured"] for m in measured], np.random.default_rng(0))
    print(json.dumps(found, indent=2))
    config = tomllib.loads((args.run / "config.toml").read_text(encoding="utf-8"))
    options = {n: config.get(n) for n in ("data", "budgets", "time", "image", "seed")}
    options["data"] = Path(str(options["data"])).name
    print(record(args.name, {"options": options, "ranking": found, "networks": measured}))


def tried(path: Path, count: int, spare: Path) -> list[dict[str, Any]]:
    """Networks that were not tried: what the score says of each, and what it measures."""
    context, budgets = reopened(path, Reporter(silent=True))
    cut = FitCut(context, context.run, dict(context.options.budgets) | budgets)
    tables = cut.tables()
    known, score = context.run.load(TrialsFile), context.run.load(ScoreFile).score
    job = context.job(limits=cut.limits(tables), macs=tables["macs"].form)
    field, seen = Field(job), {t.picks for t in known.trials}
    field.most = known.most
    drawn = [a for a in field.drawn(3 * count + len(seen)) if a.picks not in seen]
    rng = np.random.default_rng(1)
    some = [drawn[k] for k in sorted(rng.permutation(len(drawn))[:count])]
    (spare / "search").mkdir()
    for name in ("splits.json", "config.toml"):
        shutil.copy(path / name, spare / name)
    bench = Bench.of(job, context.method.recipe(0))  # type: ignore[attr-defined]
    bench = Bench(bench.space, bench.feed, bench.splits, spare, bench.recipe, None)
    rung, found = max(0, known.rungs - 2), []
    for arch in some:
        trial = bench.measure(Work(arch, 0, "held out", "", None, known.epochs * 3.0**rung, known.pace, True))
        found.append({"picks": list(arch.picks), "network": context.space.describe(Arch(arch.picks)),
                      "predicted": score(arch), "measured": trial.accuracy, "epochs": trial.epochs})  # fmt: skip
        print(found[-1], flush=True)
    return found


if __name__ == "__main__":
    main()
