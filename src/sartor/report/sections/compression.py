"""A compression: the network before and after, layer by layer, and what each round of Algorithm 3 left."""

from __future__ import annotations

from typing import Any

from sartor.report.files import Files
from sartor.report.text import Unit, amount, number


def compression(files: Files) -> dict[str, Any] | None:
    """The tables of compression.json and rounds.json; None for a run that compressed nothing."""
    found, rounds = files.own("compression.json"), files.own("rounds.json")
    if not found:
        return None
    layers, totals = found["layers"], found["totals"]
    sides = [r[w] for r in layers for w in ("before", "after") if r[w]]
    units = {key: Unit.of([side[key] for side in sides], kind) for key, kind in (("macs", "count"), ("ms", "time"))}
    wholes = {key: Unit.of([totals["before"][key]], kind) for key, kind in (("macs", "count"), ("ms", "time"))}
    return {
        "rows": [_row(r["layer"], r["kind"], r["before"], r["after"], units) for r in layers],
        "total": _row("all layers", "", totals["before"], totals["after"], wholes),
        "network": [_whole(name, e) for name, e in found["network"].items()],
        "accuracy": [f"{found['accuracy'][k]:.2f} %" for k in ("before", "after")],
        "gone": found["gone"],
        "zeros": _zeros(totals["after"]),
        "rounds": [_round(r) for r in (rounds or {}).get("rounds", ())],
        "structures": ", ".join((rounds or {}).get("structures", ())),
        "strength": number((rounds or {}).get("strength", 0.0), 3),
    }


def _row(name: str, kind: str, before: Any, after: Any, units: dict[str, Unit]) -> dict[str, Any]:
    """One line: sizes, weights, multiply-accumulates and milliseconds, before and after."""

    def sizes(side: Any) -> str:
        return f"{side['in']} → {side['out']}" if "in" in side else ""

    def cells(side: Any) -> list[str]:
        if not side:
            return ["gone", "0", "0", "0"]
        return [sizes(side), number(side["weights"]), *(units[k].show(side[k]) for k in ("macs", "ms"))]

    left = 0.0 if not after else after["macs"] / before["macs"] if before["macs"] else 1.0
    return {"layer": name, "kind": kind, "before": cells(before), "after": cells(after), "left": f"{100 * left:.0f} %"}


def _whole(name: str, entry: Any) -> dict[str, str]:
    return {
        "name": name, "before": amount(entry["before"], entry["kind"]), "after": amount(entry["after"], entry["kind"]),
        "left": f"{100 * entry['after'] / entry['before']:.0f} %" if entry["before"] else "",
    }  # fmt: skip


def _zeros(after: Any) -> str | None:
    """Weights that are zero inside kernels that stayed: they save memory when stored sparsely, and no time."""
    zeros = after["weights"] - after["nonzero"]
    return f"{number(zeros)} of {number(after['weights'])}" if zeros else None


def _round(r: Any) -> dict[str, str]:
    return {
        "round": str(r["round"]), "weights": f"{100 * r['weights'] / r['of_weights']:.1f} %",
        "channels": str(r["channels"]), "loss": number(r["loss"], 3), "penalty": number(r["penalty"], 3),
        "trained": f"{r['val_trained']:.2f} %", "pruned": f"{r['val_pruned']:.2f} %",
    }  # fmt: skip
