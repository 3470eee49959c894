"""A compression: the network before and after, layer by layer, and what each round of Algorithm 3 left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sartor.core.units import COUNT, TIME
from sartor.report.files import Files
from sartor.report.text import Unit, amount, number
from sartor.runs.schema import Change, CompressionFile, LayerSize, LayerTotal, PruningRound, RoundsFile


def compression(files: Files) -> dict[str, Any] | None:
    """The tables of compression.json and rounds.json; None for a run that compressed nothing."""
    found, rounds = files.own(CompressionFile), files.own(RoundsFile)
    if found is None:
        return None
    totals = found.totals
    each = _Units.of([side for r in found.layers for side in (r.before, r.after) if side])
    whole = _Units.of([totals.before])
    return {
        "rows": [_row(r.layer, r.kind, r.before, r.after, each) for r in found.layers],
        "total": _row("all layers", "", totals.before, totals.after, whole),
        "network": [_whole(name, e) for name, e in found.network.items()],
        "accuracy": [f"{value:.2f} %" for value in (found.accuracy.before, found.accuracy.after)],
        "gone": found.gone,
        "zeros": _zeros(totals.after),
        "rounds": [_round(r) for r in rounds.rounds] if rounds else [],
        "structures": ", ".join(rounds.structures) if rounds else "",
        "strength": number(rounds.strength, 3) if rounds else "",
    }


@dataclass(frozen=True)
class _Units:
    """The units of a column of multiply-accumulates and of one of times."""

    macs: Unit
    ms: Unit

    @classmethod
    def of(cls, sides: Sequence[LayerTotal]) -> _Units:
        return cls(Unit.of([s.macs for s in sides], COUNT), Unit.of([s.ms for s in sides], TIME))

    def cells(self, side: LayerTotal | None) -> list[str]:
        if side is None:
            return ["gone", "0", "0", "0"]
        sizes = f"{side.in_} → {side.out}" if isinstance(side, LayerSize) else ""
        return [sizes, number(side.weights), self.macs.show(side.macs), self.ms.show(side.ms)]


def _row(name: str, kind: str, before: LayerTotal, after: LayerTotal | None, units: _Units) -> dict[str, Any]:
    """One line: sizes, weights, multiply-accumulates and milliseconds, before and after."""
    left = 0.0 if after is None else after.macs / before.macs if before.macs else 1.0
    cells = {"before": units.cells(before), "after": units.cells(after)}
    return {"layer": name, "kind": kind, **cells, "left": f"{100 * left:.0f} %"}


def _whole(name: str, change: Change) -> dict[str, str]:
    left = f"{100 * change.after / change.before:.0f} %" if change.before else ""
    before, after = (amount(v, change.kind) for v in (change.before, change.after))
    return {"name": name, "before": before, "after": after, "left": left}


def _zeros(after: LayerTotal) -> str | None:
    """Weights that are zero inside kernels that stayed: they save memory when stored sparsely, and no time."""
    zeros = after.weights - after.nonzero
    return f"{number(zeros)} of {number(after.weights)}" if zeros else None


def _round(r: PruningRound) -> dict[str, str]:
    return {
        "round": str(r.round),
        "weights": f"{100 * r.weights / r.of_weights:.1f} %",
        "channels": str(r.channels),
        "loss": number(r.loss, 3),
        "penalty": number(r.penalty, 3),
        "trained": f"{r.val_trained:.2f} %",
        "pruned": f"{r.val_pruned:.2f} %",
    }
