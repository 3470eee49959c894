"""``sartor bench`` and ``sartor score``: methods and proxies on tabular benchmarks, proxies on people's own images."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sartor.cli.app import AsJson, app
from sartor.cli.options import among
from sartor.cli.show import emit

if TYPE_CHECKING:
    from sartor.core.seeds import Seeds
    from sartor.core.task import Task
    from sartor.data.base import Images
    from sartor.spaces.base import Space

SpaceName = Annotated[str, typer.Option("--space", help="The search space.")]
Sets = Annotated[list[str] | None, typer.Option("--set", help="Any option, e.g. method.mu=1 or space.cells=1.")]
# What ranked best together on NAS-Bench-201, CIFAR-10: reproduce/nasi_proxies.py.
BEST = "synflow,jacob_cov,expressivity,zico,params"
EFFORTS = ("quick", "standard", "thorough")
FIGURES = (".png", ".svg", ".pdf")
Device = Annotated[str, typer.Option("--device", help="cpu or cuda.")]
Workers = Annotated[int, typer.Option("--workers", help="Processes that measure proxies, one thread each.", min=1)]
Batch = Annotated[int, typer.Option("--batch", help="Images of a proxy's batch.", min=2)]


def _options(sets: list[str] | None, *groups: str) -> dict[str, dict[str, Any]]:
    from sartor.core.config import assign
    from sartor.core.errors import BadInput

    values: dict[str, Any] = {}
    for setting in sets or []:
        assign(values, setting)
    unknown = sorted(set(values) - set(groups))
    if unknown:
        raise BadInput(f"--set takes options of {', '.join(groups)} here, but got {', '.join(unknown)}.")
    return {group: values.get(group, {}) for group in groups}


def _space(name: str, options: dict[str, Any], task: Task) -> Space:
    from sartor.core.config import build
    from sartor.core.registry import SPACES

    space: Space = build(SPACES[name], options, "space").fitted(task)
    return space


def _batch(images: Images | None, task: Task, count: int, seeds: Seeds) -> Any:
    """A batch of the images, normalised, or of Gaussian noise with random labels."""
    import numpy as np
    import torch

    from sartor.data.augment import statistics

    if images is None:
        x = torch.randn(count, task.channels, task.image, task.image, generator=seeds.torch("score images"))
        return x, torch.from_numpy(seeds.rng("score labels").integers(task.classes, size=count))
    every = np.arange(len(images))
    mean, std = (torch.tensor(v)[:, None, None] for v in statistics(images, every))
    index = seeds.rng("score images").choice(every, min(count, len(every)), replace=False)
    return (images.pixels(index).float() - mean) / std, torch.from_numpy(images.labels[index])


def _limits(texts: list[str] | None) -> dict[str, float]:
    from sartor.core.errors import BadInput

    limits = {}
    for text in texts or []:
        name, _, value = text.partition("=")
        try:
            limits[name] = float(value)
        except ValueError as error:
            raise BadInput(f"--limit must be COLUMN=NUMBER, such as raspi4=10, but got {text!r}.") from error
    return limits


@app.command()
def bench(
    table: Annotated[list[Path], typer.Option("--table", help="CSV of architectures and results; further ones are "
                                                              "joined by their column index.")],
    target: Annotated[str, typer.Option("--target", help="The column to maximise.")],
    space: SpaceName = "nasbench201",
    method: Annotated[str, typer.Option("--method", help="nasi, random, evolution or binas.")] = "nasi",
    effort: Annotated[str, typer.Option("--effort", help="Of nasi: quick, standard, or thorough, the paper's.",
                                        autocompletion=among(EFFORTS))] = "standard",
    seeds: Annotated[int, typer.Option("--seeds", help="How many searches.", min=1)] = 10,
    queries: Annotated[int, typer.Option("--queries", help="Rows that a method other than nasi may look up.",
                                         min=1)] = 100,
    limit: Annotated[list[str] | None, typer.Option("--limit", help="A budget on a column, e.g. raspi4=10.")] = None,
    data: Annotated[str | None, typer.Option("--data", help="Images to search on; without any, noise.")] = None,
    classes: Annotated[int, typer.Option("--classes", help="Where no images are given.", min=2)] = 10,
    image: Annotated[int, typer.Option("--image", help="Where no images are given.", min=1)] = 32,
    channels: Annotated[int, typer.Option("--channels", help="Where no images are given.", min=1)] = 3,
    proxy: Annotated[str | None, typer.Option("--proxy", help="Proxies to correlate with the target instead of "
                                                              "searching, e.g. synflow,ntk_trace.")] = None,
    samples: Annotated[int, typer.Option("--samples", help="Networks to correlate over.", min=3)] = 200,
    batch: Batch = 32, device: Device = "cpu", workers: Workers = 1,
    set_: Sets = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Judge a method, or proxies, on a tabular benchmark: accuracy reached, its rank, seconds."""
    import numpy as np

    from sartor.bench import run as benches
    from sartor.bench.tables import read_table
    from sartor.core.arch import Arch
    from sartor.core.errors import BadInput
    from sartor.core.seeds import Seeds
    from sartor.core.task import Task
    from sartor.data.open import open_data
    from sartor.proxies.scoring import Scoring
    from sartor.spaces.capabilities import sketch

    images = open_data(data) if data else None
    task = images.task if images is not None else Task(classes, image, channels)
    options = _options(set_, "method", "space", "proxy")
    built = _space(space, options["space"], task)
    found = benches.Bench(built, task, read_table(table, built), target, _limits(limit), images, device)
    if proxy is None:
        result = benches.run(found, method, seeds, queries, options["method"], effort)
        emit(result, as_json, lambda: _reached(result))
        return
    if options["method"] or effort != "standard":
        raise BadInput("--effort and --set method.* are a search's, but --proxy searches nothing: leave them out.")
    streams = Seeds(0)
    rows = np.flatnonzero(found.allowed())
    rows = streams.rng("bench samples").choice(rows, min(samples, len(rows)), replace=False)
    archs = [Arch(tuple(found.table.picks[r].tolist())) for r in rows]
    ready = _batch(images, task, batch, streams)
    values, speed = Scoring(
        space=sketch(built), task=task, names=proxy.split(","), options=options["proxy"], batch=ready, seeds=streams,
        device=device, workers=workers,
    )(archs)  # fmt: skip
    ranking = benches.correlate(values, found.values[rows], streams.rng("bench bootstrap"))
    result = {"target": target, "networks": len(rows), "batch": len(ready[1]), "proxies": ranking, "per_second": speed}
    emit(result, as_json, lambda: _correlations(result))


@app.command()
def score(
    data: Annotated[str, typer.Argument(help="Images, as `sartor fit` takes them, or `noise` for none.")],
    space: SpaceName = "mobile",
    proxy: Annotated[str, typer.Option("--proxy", help="Proxies, e.g. synflow,ntk_trace.")] = BEST,
    samples: Annotated[int, typer.Option("--samples", help="Random networks to look at.", min=1)] = 100,
    batch: Batch = 32, device: Device = "cpu", workers: Workers = 1,
    image: Annotated[int | None, typer.Option("--image", help="Side of the images in pixels.", min=1)] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of networks, weights and the batch.")] = 0,
    whole: Annotated[bool, typer.Option("--whole", help="The networks themselves, not their sketches.")] = False,
    plot: Annotated[Path | None, typer.Option("--plot", help="Also draw every pair of proxies (PNG, SVG).")] = None,
    set_: Sets = None, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Rank random networks of a space by training-free proxies on a batch of images."""
    import numpy as np

    from sartor.core.seeds import Seeds
    from sartor.core.task import Task
    from sartor.data.open import open_data
    from sartor.proxies.aggregate import aggregate
    from sartor.proxies.scoring import Scoring
    from sartor.spaces.capabilities import sketch

    if plot is not None:
        _check_plot(plot)
    options, streams = _options(set_, "space", "proxy"), Seeds(seed)
    images = None if data == "noise" else open_data(data, image)
    task = images.task if images is not None else Task(10, image or 32)
    built = _space(space, options["space"], task)
    rng = streams.rng("score networks")
    archs = list(dict.fromkeys(built.sample(rng) for _ in range(samples)))
    ready = _batch(images, task, batch, streams)
    looked = built if whole else sketch(built)
    values, speed = Scoring(
        space=looked, task=task, names=proxy.split(","), options=options["proxy"], batch=ready, seeds=streams,
        device=device, workers=workers,
    )(archs)  # fmt: skip
    total = aggregate(values)
    order = np.argsort(-total, kind="stable")
    rows = [
        {"arch": built.describe(archs[n]), "aggregate": float(total[n]),
         **{name: float(v[n]) if np.isfinite(v[n]) else None for name, v in values.items()}}
        for n in order
    ]  # fmt: skip
    if plot is not None:
        _plot(plot, values)
    emit({"networks": rows, "per_second": speed, "batch": len(ready[1])}, as_json, lambda: _ranked(rows, speed))


def _check_plot(path: Path) -> None:
    """Refuse a figure that could not be written, before anything is measured for it."""
    from sartor.core.errors import BadInput
    from sartor.runs.directory import check_writable

    if path.suffix.lower() not in FIGURES:
        raise BadInput(f"--plot must end in {', '.join(FIGURES)}, but is {str(path)!r}.")
    check_writable(path)


def _plot(path: Path, values: dict[str, Any]) -> None:
    """Scatter of the ranks of every pair of proxies."""
    from scipy.stats import rankdata

    from sartor.core.errors import require
    from sartor.runs.directory import atomic

    require("matplotlib", "figures").use("Agg")
    plt: Any = require("matplotlib.pyplot", "figures")
    names = list(values)
    figure, axes = plt.subplots(len(names), len(names), figsize=(2.2 * len(names),) * 2, squeeze=False)
    for i, a in enumerate(names):
        for j, b in enumerate(names):
            axes[i][j].scatter(rankdata(values[b]), rankdata(values[a]), s=3)
            axes[i][j].set(xticks=[], yticks=[], xlabel=b if i == len(names) - 1 else "", ylabel=a if j == 0 else "")
    figure.tight_layout()
    with atomic(path) as tmp:
        figure.savefig(tmp, format=path.suffix[1:].lower())
    plt.close(figure)


def _reached(r: dict[str, Any]) -> list[str]:
    lines = []
    for x in r["runs"]:
        lines.append(f"{x['value']:10.4f}  rank {x['rank']:<6} {x['seconds']:8.2f} s  {x['arch']}")
        lines += [f"            warning: {x['warning']}"] if x["warning"] else []
    return [
        *lines,
        f"{r['method']}: {r['target']} {r['mean']:.3f} +- {r['std']:.3f}, best {r['best']:.3f}, median rank "
        f"{r['rank']:.0f} of {r['networks']}, {r['seconds']:.2f} s a search, {r['queries']} queries",
        f"the table: mean {r['table']['mean']:.3f}, best {r['table']['best']:.3f}",
    ]


def _correlations(r: dict[str, Any]) -> list[str]:
    lines = [f"{r['networks']} networks, {r['target']}: Spearman (Kendall), all and where the trace is below nu"]
    for name, found in r["proxies"].items():
        texts = [f"{q['spearman']['value']:7.3f} ({q['kendall']['value']:6.3f})" for q in found.values()]
        speed = r["per_second"].get(name)
        lines.append(f"{name:<12} {'  '.join(texts)}" + (f"  {speed:8.1f} networks/s" if speed else ""))
    return lines


def _ranked(rows: list[dict[str, Any]], speed: dict[str, float], most: int = 20) -> list[str]:
    lines = []
    for row in rows[:most]:
        numbers = "  ".join(f"{name} {row[name]:.6g}" for name in speed if row[name] is not None)
        lines.append(f"{row['arch']}\n    {numbers}")
    return [*lines, *(f"{name}: {rate:.1f} networks a second" for name, rate in speed.items())]
