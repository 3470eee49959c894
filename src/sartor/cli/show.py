"""Results as a person reads them in a terminal."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sartor.core import units
from sartor.core.registry import COSTS


def certificate(path: Path, c: dict[str, Any], console: Console) -> None:
    """What was asked and what was delivered, and where to go from here."""
    table = Table("budget", "asked", "predicted", "measured", "", box=None, pad_edge=False)
    for name, e in c["costs"].items():
        show = partial(units.show, kind=e["kind"], like=e.get("limit", e["measured"]))  # one unit a row
        measured = show(e["measured"])
        if "timing" in e:
            measured += f" (p95 {show(e['timing']['p95'])})"
        verdict = ("fits" if e["holds"] else "OVER") if "limit" in e else ""
        table.add_row(name, show(e["limit"]) if "limit" in e else "-", show(e["predicted"]), measured, verdict)
    console.print(table)
    accuracy, score, ranking = c["accuracy"], c["score"], c["ranking"]
    console.print(f"test accuracy  {accuracy['test']:.2f} % on {accuracy['test_images']} images never searched on")
    proof = "proven optimal" if score["proven_optimal"] else f"within {score['gap']} of the optimum"
    console.print(f"score          {score['value']:.3f} ({score['unit']}), {proof} by {score['solver']}")
    if ranking:
        k, s = ranking["kendall"], ranking["spearman"]
        console.print(
            f"ranking        Kendall {k['value']:.2f} [{k['low']:.2f}, {k['high']:.2f}], Spearman {s['value']:.2f} "
            f"[{s['low']:.2f}, {s['high']:.2f}] on {ranking['networks']} held-out networks",
            markup=False,
        )
    console.print(f"architecture   {c['string']}", markup=False)
    for title, name in (("model", "model/model.onnx"), ("certificate", "certificate.json"), ("report", "report.html")):
        if (path / name).exists():
            console.print(f"{title:<14} {path / name}", markup=False)


def frontier(data: dict[str, Any], console: Console, rows: int) -> None:
    """Every optimal trade-off, or an even selection of `rows` of them."""
    count = len(data["cost"])
    if not count:
        console.print("This run's score and costs do not separate: there is no complete frontier. Use `sartor solve`.")
        return
    step = max(1, -(-count // rows)) if rows else 1
    axis, kinds = data["axis"], data.get("kinds") or {n: COSTS[n].kind for n in data["costs"]}
    table = Table(axis, "score", *(n for n in data["costs"] if n != axis), "architecture", box=None, pad_edge=False)
    chosen = sorted({*range(0, count, step), count - 1})
    for n in chosen:
        others = [units.show(v[n], kinds[k]) for k, v in data["costs"].items() if k != axis]
        table.add_row(units.show(data["cost"][n], data["kind"]), f"{data['score'][n]:.3f}", *others, data["strings"][n])
    console.print(table)
    console.print(f"{len(chosen)} of {count} optimal networks shown; --all shows every one, --json gives them as data.")


def predictions(names: list[str], found: list[dict[str, Any]], top: int, console: Console) -> None:
    """The likeliest classes of every image."""
    table = Table("image", "class", "probability", box=None, pad_edge=False)
    for name, entry in zip(names, found, strict=True):
        for n, (label, p) in enumerate(list(entry["probabilities"].items())[:top]):
            table.add_row(Text(name if n == 0 else ""), Text(label), f"{100 * p:.1f} %")
    console.print(table)
