"""Results on standard output: as JSON, or as a person reads them in a terminal of 80 columns.

A command ends with `emit`: the data, and a view of them. A view is lines, which are printed as they are (a path can be
copied), and tables, which fit the terminal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sartor.core.views import told
from sartor.report.files import Files
from sartor.report.sections.headline import cautions
from sartor.report.text import wilson
from sartor.runs.clock import ClockFile
from sartor.runs.codec import RunFile, encode, to_file
from sartor.runs.progress import span
from sartor.runs.schema import StagesFile

if TYPE_CHECKING:
    from sartor.api.result import Result
    from sartor.costs.base import CostTable
    from sartor.runs.schema import AuditFile, Certificate, EvaluationFile, FrontierFile, Verified

console = Console(highlight=False)
View = Iterable[str | Table]
_LEAST = 24  # columns for the description of a network
_CLASSES = 40  # shown in a terminal
_GROUPS = 20  # of images that are the same, shown in a terminal


def emit(data: Any, as_json: bool, view: Callable[[], View]) -> None:
    """Print the data as JSON, or their view."""
    if as_json:
        plain = to_file(data) if isinstance(data, RunFile) else encode(data)
        sys.stdout.write(json.dumps(plain, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    else:
        for item in view():
            console.print(item, soft_wrap=isinstance(item, str), markup=False)
    sys.stdout.flush()  # here, where a closed pipe (`sartor list | head`) is dealt with


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], clip: bool = False) -> Table:
    """Columns as wide as they need, and the last in what is left: wrapped, or with `clip` cut off."""
    cells = [list(row) for row in rows]
    *wide, _ = (max(map(len, column)) for column in zip(columns, *cells, strict=True))
    left = max(12, console.width - sum(wide) - 2 * len(wide))
    made = Table(box=None, pad_edge=False, show_header=any(columns))
    for n, title in enumerate(columns):
        made.add_column(title, no_wrap=n < len(wide), overflow="fold")
    for row in cells:
        last = row[-1] if not clip or len(row[-1]) <= left else f"{row[-1][: left - 1]}…"
        made.add_row(*(Text(cell) for cell in (*row[:-1], last)))
    return made


def facts(values: Mapping[str, Any]) -> Table:
    """A name and a value a line."""
    return table(("", ""), [(name, str(value)) for name, value in values.items()])


def delivered(result: Result, as_json: bool) -> None:
    """What a fit, another budget on it or a compression ends with."""
    emit(result.certified, as_json, lambda: certificate(result.path, result.certified))


def decided(result: Result, as_json: bool) -> None:
    """What another budget ends with where its network is not trained."""
    emit(result.solution, as_json, lambda: _decision(result))


def _decision(result: Result) -> View:
    found, kinds = result.solution, {name: table.kind for name, table in result.tables.items()}
    asked = {name: kinds[name].show(value) for name, value in found.budgets.items()}
    rows = [(name, asked.get(name, "-"), kinds[name].show(value)) for name, value in found.predicted.items()]
    yield table(("budget", "asked", "predicted"), rows)
    more = {"score": f"{found.solution.score:.3f}, by {found.solution.solver}", "architecture": found.string}
    more |= {} if found.views == 1 else {"views": told(found.views)}
    yield facts(more | {"not trained": "the same command without --no-train goes on from here"})


def certificate(path: Path, c: Certificate) -> View:
    """What was asked and what was delivered, and where to go from here."""
    yield table(("budget", "asked", "predicted", "measured", ""), [_cost(name, e) for name, e in c.costs.items()])
    gap = "not proven optimal" if c.score.gap is None else f"within {c.score.gap:.3g} of the optimum"
    proof = "proven the best by this score" if c.score.proven_optimal else gap
    files = Files.open(path)
    never = f" images: {files.origin.told()}" if files.origin else " images never searched on"
    lines = {
        f"test {c.accuracy.metric}": f"{c.accuracy.test:.2f} % on {c.accuracy.test_images}{never}",
        **_views(c),
        **_without_copies(c),
        **_started(c),
        **_precision(c),
        "score": f"{c.score.value:.3f} ({c.score.unit}), {proof} by {c.score.solver}",
    }
    if c.ranking:
        kendall, spearman = (
            f"{e.value:.2f} [{e.low:.2f}, {e.high:.2f}]" for e in (c.ranking.kendall, c.ranking.spearman)
        )
        lines["ranking"] = f"Kendall {kendall}, Spearman {spearman} on {c.ranking.networks} held-out networks"
    lines |= {"architecture": c.string, "time": _spent(files)}
    yield table(("", ""), [*lines.items(), *(("note", caution) for caution in cautions(files))])
    for title, name in (
        ("int8 model", "model/model_int8.onnx"),
        ("model", "model/model.onnx"),
        ("certificate", "certificate.json"),
        ("report", "report.html"),
    ):
        if (path / name).exists():
            yield f"{title:<13}  {path / name}"


def _spent(files: Files) -> str:
    """Where the time went, the longest first; what took less than a second is left out."""
    listed = {name: stage.seconds for name, stage in (files.own(StagesFile) or StagesFile()).stages.items()}
    clock, known = files.own(ClockFile), sum(listed.values())
    whole = known if clock is None else max(known, clock.spent)
    listed["the rest"] = whole - known
    longest = sorted(listed.items(), key=lambda item: -item[1])
    return f"{span(whole)}: " + ", ".join(f"{name} {span(s)}" for name, s in longest if s >= 1)


def _views(c: Certificate) -> dict[str, str]:
    """Where the network looks at an image more than once."""
    if c.views == 1:
        return {}
    alone = "" if c.accuracy.one_view is None else f"; the image alone: {c.accuracy.one_view:.2f} %"
    return {"views": told(c.views) + alone}


def _without_copies(c: Certificate) -> dict[str, str]:
    if c.accuracy.unseen is None:
        return {}
    return {"without copies": f"{c.accuracy.unseen:.2f} % of the test images that equal none that was trained on"}


def _started(c: Certificate) -> dict[str, str]:
    """What came from elsewhere."""
    started = c.origin.started if c.origin else None
    if started is None:
        return {}
    share = f"{100 * started.weights / started.of:.0f} % of its weights from {started.source}"
    if started.elsewhere_accuracy is None or started.fresh_accuracy is None:
        return {"start": share}
    both = f"{started.elsewhere_accuracy:.1f} % so, {started.fresh_accuracy:.1f} % fresh"
    kept = "kept" if started.kept == "elsewhere" else "a fresh start was kept"
    return {"start": f"{share}: {kept} (after a short training {both})"}


def _precision(c: Certificate) -> dict[str, str]:
    """Both precisions on the same images, where 8 bits were asked for."""
    if c.precision is None:
        return {}
    both = (("int8", c.precision.int8), ("float32", c.precision.float32))
    each = (f"{name} {f.test_accuracy:.2f} %" + (f", {f.timing.p50:.3f} ms" if f.timing else "") for name, f in both)
    return {"precision": f"{'int8' if c.precision.used else 'float32'} deployed ({c.precision.why}): {'; '.join(each)}"}


def _cost(name: str, e: Verified) -> tuple[str, ...]:
    show = partial(e.kind.show, like=e.measured if e.limit is None else e.limit)  # one unit a row
    measured = show(e.measured) + (f" (p95 {show(e.timing.p95)})" if e.timing else "")
    measured = "not measured" if e.on_device is False else measured
    if e.limit is None:
        return name, "-", show(e.predicted), measured, ""
    if e.slowed is not None:
        measured = f"{show(e.measured / e.slowed.times)} (now {show(e.measured)}: slower machine)"
    return name, show(e.limit), show(e.predicted), measured, "fits" if e.holds else "OVER"


def frontier(points: FrontierFile, tables: Mapping[str, CostTable], rows: int) -> View:
    """Every optimal trade-off, or an even selection of `rows` of them."""
    count = len(points.cost)
    if not count:
        yield "This run's score and costs do not separate: there is no complete frontier. Use `sartor solve`."
        return
    step = max(1, -(-count // rows)) if rows else 1
    chosen = sorted({*range(0, count, step), count - 1})
    kinds = points.kinds or {name: found.kind for name, found in tables.items()}
    columns = {points.axis: [points.kind.show(points.cost[n]) for n in chosen],
               "score": [f"{points.score[n]:.3f}" for n in chosen]}  # fmt: skip
    columns |= {k: [kinds[k].show(v[n]) for n in chosen] for k, v in points.costs.items() if k != points.axis}
    left_out = []
    while len(columns) > 2 and _width(columns) > console.width - _LEAST:
        left_out.append(columns.popitem()[0])
    strings = _apart([points.strings[n] for n in chosen])
    yield table((*columns, "architecture"), list(zip(*columns.values(), strings, strict=True)), clip=True)
    more = f" ({', '.join(left_out)} too)" if left_out else ""
    yield f"{len(chosen)} of {count} optimal networks; --all shows every one, --json gives them whole{more}."


def _width(columns: Mapping[str, Sequence[str]]) -> int:
    """Of these columns, each with the gap that follows it."""
    return sum(2 + max(map(len, (title, *cells))) for title, cells in columns.items())


def _apart(strings: Sequence[str]) -> list[str]:
    """Descriptions of networks without the words that all of them begin with."""
    words = [text.split(" ") for text in strings]
    same = next((k for k, column in enumerate(zip(*words, strict=False)) if len(set(column)) > 1), 0)
    return [" ".join(("…", *row[same:])) if same else " ".join(row) for row in words]


def predictions(found: Sequence[Mapping[str, Any]], top: int) -> View:
    """The likeliest classes of every image, or why a file of a folder shows none."""
    rows = []
    for entry in found:
        if "error" in entry:
            rows.append(("", f"({entry['error']})", entry["image"]))
        for n, (label, p) in enumerate(list(entry.get("probabilities", {}).items())[:top]):
            rows.append((f"{100 * p:.1f} %", label, entry["image"] if n == 0 else ""))
    yield table(("probability", "class", "image"), rows)


def evaluation(found: EvaluationFile) -> View:
    """The figure, the classes with their intervals, the worst first, and what is taken for what."""
    interval = between(found.value, found.images, found.metric)
    yield f"{found.metric} {found.value:.2f} % on {found.images} images{interval}"
    order = sorted((v, k) for k, v in enumerate(found.per_class) if v is not None)
    rows = [(f"{v:.1f} %", between(v, n := found.counts[k], found.metric, ""), str(n), found.classes[k])
            for v, k in order]  # fmt: skip
    yield table((found.metric, "95 %", "images", "class"), rows[:_CLASSES])
    if len(rows) > _CLASSES:
        yield f"the worst {_CLASSES} of {len(rows)} classes; --json gives all."
    pairs = [(str(n), f"{found.classes[a]} taken for {found.classes[b]}") for a, b, n in found.confused()[:10]]
    if pairs:
        yield table(("images", "confusion"), pairs)
    trust = found.reliability
    yield (
        f"probabilities are off by {trust.error_scaled:.1f} points on average "
        f"({trust.error:.1f} without the temperature of {trust.temperature:.3g})"
    )


def between(value: float, images: int, metric: str, before: str = " (95 %: ") -> str:
    """The interval of a share of images; nothing of another metric."""
    if metric != "accuracy":
        return ""
    low, high = wilson(value / 100, images)
    return f"{before}{100 * low:.1f} to {100 * high:.1f} %" + (")" if before else "")


def audit(found: AuditFile) -> View:
    """What was found, and the first groups of images that are the same."""
    yield from found.lines()
    yield from (f"  {group}" for group in found.groups[:_GROUPS])
    if len(found.groups) > _GROUPS:
        yield f"{_GROUPS} of {len(found.groups)} groups; --json gives all."


def prices(measured: CostTable) -> View:
    """Every part's price with its interval."""
    show = measured.kind.show
    rows = [(show(p.value), f"{show(p.low)} .. {show(p.high)}", key) for key, p in measured.prices.items()]
    in_int8 = " in int8" if measured.precision == "int8" else ""
    yield table((measured.cost + in_int8, "95 % interval", "part"), rows)


def plugins(data: Mapping[str, Any]) -> View:
    """Everything that can be chosen, by kind."""
    entries = [(kind, name, text) for kind, named in data.items() if kind != "zoo" for name, text in named.items()]
    rows = [
        (kind if n == 0 or entries[n - 1][0] != kind else "", name, text)
        for n, (kind, name, text) in enumerate(entries)
    ]
    yield table(("kind", "name", "what it is"), [*rows, ("zoo", "", ", ".join(data["zoo"]))])
