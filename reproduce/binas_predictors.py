"""Figures 2, 3 and 7, table 2 and theorem 3.1 of BINAS: how well every estimator and predictor ranks, and its cost.

Takes a finished run of ``sartor fit --method binas`` and its supernet. The cost is counted in epochs of the
validation images; the judge is the run's own held-out networks, each evaluated alone. Estimators:

- the paper's protocol, one expectation a decision, with a path for every image or one for a batch;
- ours, all decisions from the same random paths: right or wrong, the right class's probability or its logarithm,
  each of them shrunk, and right or wrong led by the logarithm;
- predictors learnt from networks evaluated one by one: least squares, bilinear (equations 7 and 8), full quadratic (9),
  each also without the products that a block takes part in when it does not run (``active pairs``), and an MLP.

Squared errors, in squares of a percent of accuracy, are against the held-out networks on the images that the estimators
see: the run's own measurement sees more of them, and mirror images, so that its level is another.

    python reproduce/binas_predictors.py runs/NAME [--images 1600] [--networks 400] [--passes 2] [--epochs 256]
    python reproduce/binas_predictors.py runs/NAME --fresh DATA --seconds 240   # first trains the supernet, 80 / 20
    python reproduce/binas_predictors.py runs/NAME --fresh DATA --seed 1 --headline   # the run's own ranking alone
    python reproduce/binas_predictors.py runs/NAME --fresh digits --device cpu --seconds 240 --images 340 \
        --networks 300 --held-out 200 --epochs 64 --name binas_predictors_digits   # all of it in minutes on a CPU
    python reproduce/binas_predictors.py runs/NAME --outcomes   # ours alone: results/binas_outcomes.json
    python reproduce/binas_predictors.py runs/NAME --recorded   # ours alone, from the run's own measurements

What is there is recorded after every part, so that a run which is cut off leaves the parts that it finished; with
`--fresh` as `binas_predictors_fresh`. Few held-out networks judge little: Kendall's deviation is about 0.22 with 12 of
them, 0.03 with 400.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import kendalltau, spearmanr

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from _record import record  # noqa: E402
from binas_ablation import ablate  # noqa: E402
from binas_mlp import MLP  # noqa: E402

from sartor.core.arch import Arch, Choice  # noqa: E402
from sartor.engine import checkpoint  # noqa: E402
from sartor.engine.evaluate import correct  # noqa: E402
from sartor.methods.binas.outcomes import Outcomes  # noqa: E402
from sartor.methods.binas.tally import Tally  # noqa: E402
from sartor.pipeline import options, order, stages  # noqa: E402
from sartor.pipeline.context import open_context, reopened  # noqa: E402
from sartor.pipeline.cut import FitCut  # noqa: E402
from sartor.predictors.bilinear import Bilinear  # noqa: E402
from sartor.predictors.contributions import assemble, entries, estimate, force  # noqa: E402
from sartor.predictors.joint import Paths, correlation  # noqa: E402
from sartor.predictors.linear import LeastSquares  # noqa: E402
from sartor.predictors.quadratic import FullQuadratic  # noqa: E402
from sartor.predictors.shrinkage import shrink_score, shrink_with_hint  # noqa: E402
from sartor.runs.clock import Clock  # noqa: E402
from sartor.runs.directory import Run  # noqa: E402
from sartor.runs.progress import Reporter  # noqa: E402

BATCH = 400  # images that share a path in single-path sampling


class Study:
    """One supernet, a part of its validation images, and the held-out networks that judge."""

    def __init__(self, path: Path, images: int) -> None:
        context, _ = reopened(path, Reporter())
        self.images = len(context.splits.val)
        self.held = Run.open(path).read("score.json")["facts"]["held_out"]
        val = context.seeds.rng("predictors").permutation(context.splits.val)[:images]
        scratch = Run(path / "predictors", context.run.reporter)
        self.job = dataclasses.replace(
            context.job(), splits=dataclasses.replace(context.splits, val=np.sort(val)), run=scratch
        )
        self.choices, self.space, self.seeds = context.space.choices, context.space, context.seeds
        self.net = context.space.supernet(context.task)
        self.net.load_state_dict(checkpoint.load(path / "search/supernet.safetensors"))
        self.net = context.engine.place(self.net).eval()
        self.curves: dict[str, list[dict[str, float]]] = {}
        self.theorem: dict[str, dict[str, float]] = {}

    def measured(self, archs: Sequence[Arch]) -> list[float]:
        """The accuracy of each on the study's images, in percent."""
        index = self.job.splits.val
        return [100.0 * float(correct(partial(self.net, who=a), self.job.feed, index).mean()) for a in archs]

    @cached_property
    def alike(self) -> list[float]:
        """The held-out networks on the very images that everything else is measured on: the level is the same."""
        return self.measured([Arch(tuple(row)) for row in self.held["picks"]])

    def judge(self, name: str, epochs: float, score: Any, unit: bool = True) -> None:
        """Rank the held-out networks by the score and note how well that went; with a `unit`, the squared error too."""
        predicted = score.batch(self.held["picks"])
        point = {
            "epochs": float(epochs),
            "kendall": float(kendalltau(predicted, self.held["measured"]).statistic),
            "spearman": float(spearmanr(predicted, self.held["measured"]).statistic),
        }
        if unit:
            point["mse"] = float(np.mean((predicted - np.asarray(self.alike)) ** 2))
        self.curves.setdefault(name, []).append(point)
        print(name.ljust(34), "  ".join(f"{k} {v:.3f}" for k, v in point.items()))

    def picks(self, purpose: str, number: int, start: int, count: int, one_path: bool = False) -> np.ndarray:
        """Random paths: one for every image, or one for every `BATCH` images."""
        if not one_path:
            return self.space.sample_picks(self.seeds.rng(purpose, number, start), count)
        paths = [
            np.tile(self.space.sample(self.seeds.rng(purpose, number, start, b)).picks, (min(BATCH, count - b), 1))
            for b in range(0, count, BATCH)
        ]
        return np.concatenate(paths)


def paper(study: Study, name: str, passes: int, one_path: bool) -> Any:
    """The paper's protocol at growing cost: shares of the images first, then whole passes."""
    todo, count = entries(study.choices), len(study.job.splits.val)
    purpose = "single" if one_path else "multi"
    base = Tally(study.job, f"{purpose}-base", passes)
    base.run(study.net, lambda row, _, start, n: study.picks(purpose, row, start, n, one_path))
    rows = len(todo) * passes
    tally = Tally(study.job, purpose, rows)

    def path(row: int, _: int, start: int, n: int) -> np.ndarray:
        return force(study.picks(purpose, row // len(todo), start, n, one_path), todo[row % len(todo)].condition)

    tally.run(study.net, path)
    right = tally.right.reshape(passes, len(todo), count)
    order = np.random.default_rng(0).permutation(count)
    score = None
    for share in (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0):
        some = order[: max(2, int(share * count))]
        score = estimate(study.choices, 100.0 * base.right[0, some], 100.0 * right[0][:, some])
        study.judge(name, (1 + len(todo)) * share, score)
    for used in range(2, passes + 1):
        score = estimate(study.choices, 100.0 * base.right[:used].mean(0), 100.0 * right[:used].mean(0))
        study.judge(name, (1 + len(todo)) * used, score)
    for part, of in ablate(score, study.choices).items():
        what = f"table 2{', single-path' if one_path else ''}: {part}"
        study.judge(what, (1 + len(todo)) * passes, of, unit=part == "full")
    exact = 100.0 * base.right.mean(), 100.0 * right.mean((0, 2))
    study.theorem[f"{purpose}-path"] = bound(study.choices, *exact, study.held["picks"], study.alike)
    return score


def bound(
    choices: Sequence[Choice], mean: float, conditional: np.ndarray, picks: Any, measured: Any
) -> dict[str, float]:
    """Theorem 3.1: what is measured departs from the mean by the sum of contributions, each times 1 + O(N epsilon).

    epsilon is the largest share by which one decision changes the expected accuracy, N the number of decisions; how
    many networks, measured on the images of the mean, lie within N epsilon times the sum of their contributions'
    sizes, and the factor of it that all of them would need. `conditional` is in the order of `entries`.
    """
    sizes, measured = tuple(len(c.options) for c in choices), np.asarray(measured, np.float64)
    delta = np.asarray(conditional, np.float64) - mean
    off = np.abs(measured - assemble(choices, sizes, mean, delta).batch(picks))
    epsilon = float(np.abs(delta).max() / mean)
    room = len(choices) * epsilon * assemble(choices, sizes, 0.0, np.abs(delta)).batch(picks)
    return {"decisions": len(choices), "epsilon": epsilon, "n_epsilon": len(choices) * epsilon,
            "share_within": float((off <= room).mean()),
            "factor_for_all": float((off[room > 0] / room[room > 0]).max(initial=0.0)),
            "mean_departure": float(off.mean()), "spread": float(np.std(measured))}  # fmt: skip


def jointly(study: Study, epochs: int) -> None:
    """Ours: every random path speaks about all decisions."""
    tally = Tally(study.job, "joint", epochs)
    tally.run(study.net, lambda row, _, start, n: study.picks("joint", row, start, n))
    ours(study, Outcomes.of(tally, partial(study.picks, "joint")).picks, tally.right, tally.likelihood)


def recorded(study: Study, run: Path) -> None:
    """The same from the epochs in which the run itself saw all images."""
    saved = checkpoint.load(run / "search/joint.tally.safetensors")
    right, likelihood = (saved[name].numpy() for name in ("right", "likelihood"))
    most, count = saved["per_forward"], right.shape[1]
    starts = range(0, count, most)
    paths = [
        study.space.sample_picks(study.seeds.rng("paths", row, s), min(most, count - s))
        for row in range(len(right)) for s in starts
    ]  # fmt: skip
    ours(study, np.concatenate(paths), right, likelihood)


def ours(study: Study, picks: np.ndarray, right: np.ndarray, likelihood: np.ndarray) -> None:
    """Every kind of outcome, (epochs, images) of it, at growing cost."""
    epochs, count = right.shape
    least = 2 * sum(len(c.options) for c in study.choices) / count  # fewer determine no contributions
    for used in sorted({*(2**k for k in range(2, 10) if least <= 2**k < epochs), epochs}):
        some, ids = picks[: used * count], np.tile(np.arange(count), used)
        kinds = {
            "right or wrong": right[:used].reshape(-1),
            "probability": np.exp(likelihood[:used]).reshape(-1),
            "likelihood": likelihood[:used].reshape(-1),
        }
        scores, paths = {}, Paths(study.choices, some, ids)
        for name, outcome in kinds.items():
            scores[name] = paths.estimate(100.0 * outcome, redrawn="paths")
            unit = name == "right or wrong"  # the others' unit is not accuracy
            study.judge(f"ours, {name}", used, scores[name], unit)
            study.judge(f"ours, {name}, shrunk", used, shrink_score(scores[name], study.choices), unit)
        together = correlation(kinds["right or wrong"], kinds["likelihood"], ids)
        both = shrink_with_hint(scores["right or wrong"], scores["likelihood"], together, study.choices)
        study.judge("ours, right or wrong, led by likelihood", used, both)


def learnt(study: Study, networks: int) -> None:
    """Predictors fitted to networks that were evaluated one by one: an epoch each."""
    rng = study.seeds.rng("learnt")
    archs = [study.space.sample(rng) for _ in range(networks)]
    measured = study.measured(archs)
    picks = np.array([a.picks for a in archs])
    predictors = {
        "least squares": LeastSquares(),
        "bilinear (7, 8)": Bilinear(inactive=True),
        "bilinear, active pairs": Bilinear(),
        "quadratic (9)": FullQuadratic(inactive=True),
        "quadratic, active pairs": FullQuadratic(),
        "MLP": MLP(),
    }
    for used in [*(n for n in (50, 100, 200, 400, 800) if n < networks), networks]:
        for name, predictor in predictors.items():
            fitted = predictor.fit(picks[:used], measured[:used], study.choices, np.random.default_rng(0))
            study.judge(f"learnt, {name}", used, fitted)
    for components in [n for n in (5, 10, 20, 40, 80, 160, 320, 640) if n < networks]:  # figure 7
        fitted = FullQuadratic(components=components, inactive=True).fit(
            picks, measured, study.choices, np.random.default_rng(0)
        )
        study.judge(f"figure 7: quadratic (9), {components} components", networks, fitted)


def searched(args: argparse.Namespace) -> None:
    """The supernet, its score and held-out networks, in so many seconds, on four fifths of the images."""
    asked = {
        "data": str(args.fresh), "seed": args.seed, "device": args.device, "val": 0.2,
        "method": {"name": "binas", "held_out": args.held_out},
        "space": {"name": "mobile", "preset": args.preset},
    }  # fmt: skip
    context = open_context(options.from_mapping(asked), args.run, Reporter(quiet=True))
    clock = Clock(context.run, args.seconds / context.method.share + 20)
    cut = FitCut(dataclasses.replace(context, clock=clock), context.run, {})
    with cut.run.locked():
        order.begin(context)
        order.price(cut)
        cut.run.stage("search", lambda: stages.search(cut), "search")


def headline(args: argparse.Namespace) -> None:
    """How well the run's own score ranks its own held-out networks, beside those of other seeds that are there."""
    found = []
    for path in sorted(args.run.parent.glob(f"{args.run.name.rstrip('0123456789')}*/score.json")):
        run = Run.open(path.parent)
        score, splits = run.read("score.json"), run.read("splits.json")
        facts = score["facts"]
        found.append({
            "run": path.parent.name, "training_images": len(splits["train"]), "validation_images": len(splits["val"]),
            "ranking": score["quality"], "held_out_networks": len(facts["held_out"]["measured"]),
            "spread": float(np.std(facts["held_out"]["measured"])),
            "epochs": {name: len(history) for name, history in facts["history"].items()},
            "validation_epochs": facts["validation_epochs"],
        })  # fmt: skip
    values = [f["ranking"]["kendall"]["value"] for f in found]
    print(record("binas_headline", {"kendall_mean": float(np.mean(values)), "kendall": values, "runs": found}), values)


def figure(curves: dict[str, list[dict[str, float]]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fig, axis = plt.subplots(figsize=(8, 5))
    for name, points in curves.items():
        style = "-" if name.startswith("ours") else "--" if name.startswith("learnt") else "-."
        axis.plot([p["epochs"] for p in points], [p["kendall"] for p in points], style, marker="o", ms=3, label=name)
    axis.set(xscale="log", xlabel="validation epochs", ylabel="Kendall's tau on held-out networks")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=7)
    path.parent.mkdir(exist_ok=True)
    fig.savefig(path, dpi=120, bbox_inches="tight")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--images", type=int, default=1600)
    parser.add_argument("--networks", type=int, default=400)
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=256)
    parser.add_argument("--fresh", type=Path, help="data to train the supernet on first")
    parser.add_argument("--seconds", type=float, default=240.0, help="of that")
    parser.add_argument("--held-out", type=int, default=0, help="networks that judge; 0: as many as the time allows")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--preset", default="small", help="of the mobile space")
    parser.add_argument("--name", help="of the record; default: binas_predictors, with --fresh binas_predictors_fresh")
    parser.add_argument("--headline", action="store_true", help="only the ranking of the run's own score")
    parser.add_argument("--recorded", action="store_true", help="only ours, from the run's own measurements")
    parser.add_argument("--outcomes", action="store_true", help="only ours: which kind of outcome ranks best")
    args = parser.parse_args()
    torch.manual_seed(0)
    if args.fresh:
        searched(args)
        if not args.name:
            headline(args)
    if args.headline:
        return
    study = Study(args.run, args.images)
    about = {
        "data": study.job.feed.images.name, "image": study.job.task.image, "validation_images": args.images,
        "held_out_networks": len(study.held["measured"]),
    }  # fmt: skip
    if args.recorded:
        recorded(study, args.run)
        record("binas_outcomes_recorded", {**about, "validation_images": study.images, "curves": study.curves})
        return
    parts: list[Callable[[], Any]] = [lambda: jointly(study, args.epochs)]
    if not args.outcomes:
        parts = [
            lambda: paper(study, "paper, multi-path", args.passes, one_path=False),
            lambda: paper(study, "paper, single-path", args.passes, one_path=True),
            lambda: learnt(study, args.networks), *parts,
        ]  # fmt: skip
    for part in parts:
        part()
        curves = {k: v for k, v in study.curves.items() if not k.startswith(("table 2", "figure 7"))}
        name = "binas_outcomes" if args.outcomes else "binas_predictors"
        file = args.name or f"{name}{'_fresh' if args.fresh else ''}"
        record(file, {
            **about, "curves": study.curves, "theorem_3_1": study.theorem,
            "paper_epochs": args.passes * (1 + sum(study.space.sizes)),
        })  # fmt: skip
        if not args.outcomes:
            figure(curves, ROOT / f"reproduce/figures/{file}.png")


if __name__ == "__main__":
    main()
