"""What every decision adds to the score and to the costs, read off the quadratics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from sartor.core.arch import Choice, active
from sartor.core.quadratic import Array, Quadratic
from sartor.core.units import Kind
from sartor.report import figures
from sartor.report.figures import Row
from sartor.report.files import Files
from sartor.report.sections.network import columns
from sartor.report.text import Html, Unit, amount, percent_suffix, signed
from sartor.spaces.drawing import Drawing, Stage

_Z = 1.96  # standard errors in half of a 95 % interval


def effects(form: Quadratic, choices: Sequence[Choice], hub: bool) -> list[Array]:
    """What each option of each choice adds to `form` while the choice has an effect.

    A term that joins a block to the depth it needs is the block's: so the effects of a network's active
    decisions add up to the form. With `hub` the depth also gets, on average over the blocks' options, the
    terms of the blocks that it switches on: what going deeper changes, as `sartor.insight.explain` counts it too.
    Any other interaction is averaged over the other choice's options.
    """
    found = [np.array(form.linear.get(i, np.zeros(n))) for i, n in enumerate(form.sizes)]
    for i, j, table, kind in _joined(form, choices):
        if kind == "needed" and not hub:
            continue
        found[i] = found[i] + (table[:, _allowed(choices[i], j)] if kind == "needs" else table).mean(1)
    return found


def spreads(errors: Quadratic, choices: Sequence[Choice], hub: bool) -> list[Array]:
    """The standard errors of `effects`, the terms taken as independent."""
    squares = [np.array(errors.linear.get(i, np.zeros(n))) ** 2 for i, n in enumerate(errors.sizes)]
    for i, j, table, kind in _joined(errors, choices):
        if kind == "needs":  # the same measurement stands at every option that switches the choice on
            squares[i] = squares[i] + table[:, _allowed(choices[i], j)].mean(1) ** 2
        elif kind == "free" or hub:
            squares[i] = squares[i] + (table**2).sum(1) / table.shape[1] ** 2
    return [np.sqrt(s) for s in squares]


def _joined(form: Quadratic, choices: Sequence[Choice]) -> list[tuple[int, int, Array, str]]:
    """Every pair term seen from both of its choices, and whether the first needs the second or is needed by it."""
    found = []
    for (a, b), table in form.pairs.items():
        for i, j, t in ((a, b, table), (b, a, table.T)):
            needs, needed = (any(o == y for o, _ in choices[x].needs) for x, y in ((i, j), (j, i)))
            found.append((i, j, t, "needs" if needs else "needed" if needed else "free"))
    return found


def _allowed(choice: Choice, other: int) -> list[int]:
    return [a for o, allowed in choice.needs if o == other for a in allowed]


def prices(files: Files) -> dict[str, list[Array]]:
    """What each option of each choice costs, by cost; in the chosen network's frame where that matters."""
    forms = {n: t.form.around(files.solution.arch) for n, t in files.tables.items() if t.form.sums}
    return {n: effects(form, files.choices, hub=True) for n, form in forms.items()}


def contributions(files: Files) -> list[Array] | None:
    """What each option of each choice adds to the score."""
    score = files.score
    return effects(score, files.choices, hub=False) if score else None


class _Contrast:
    """Averages of entries against the average of all of them, with standard errors.

    All entries are measured on the same images and paths, so their errors rise and fall together; what they
    share cancels in a difference, and taking the rest as independent errs on the safe side.
    """

    def __init__(self, values: Array, errors: Array | None, costs: Array | None) -> None:
        self.values, self.errors, self.costs = values, errors, costs

    def row(self, label: str, members: Array, picked: bool, title: str = "") -> Row:
        weights = members / members.sum() - 1 / len(members)
        half = None if self.errors is None else _Z * float(np.sqrt((weights**2 * self.errors**2).sum()))
        price = None if self.costs is None else float(weights @ self.costs)
        return Row(label, float(weights @ self.values), half, price, picked, title)


def decisions(files: Files) -> dict[str, Any] | None:
    """Forests a stage (or a choice), a heat map by block, and the table of everything."""
    score, choices = files.score, files.choices
    if score is None or not choices:
        return None
    costs = prices(files)
    axis = next(iter(costs), None)

    def entries(hub: bool) -> _Entries:
        errors = spreads(score.errors, choices, hub) if score.errors else None
        own = costs[axis] if axis else None
        return _Entries(choices, effects(score, choices, hub), errors, own, files.kind(axis or ""))

    each, single = entries(hub=True), entries(hub=False)
    drawing, picks = files.drawing, files.solution.solution.picks
    stages = drawing.stages
    cards = [(s.title, each.stage(s, picks, drawing)) for s in stages] if stages else each.plain(picks)
    everything = [r for _, rows in cards for r in rows]
    extra = Unit.of([r.price for r in everything if r.price is not None], each.kind)
    dearest = max((abs(r.price) for r in everything if r.price is not None), default=0.0) or 1.0
    drawn = figures.Forest(figures.reach(everything), dearest, signed, extra.difference)
    return {
        "cards": [(title, drawn.html(rows)) for title, rows in cards],
        "heat": single.heat([b for s in stages for b in s.blocks], picks),
        "table": single.table(costs, files.kinds, percent_suffix(files.unit)),
        "costs": list(costs),
        "unit": files.unit,
        "axis": axis,
        "errors": score.errors is not None,
        "stages": bool(stages),
        "accuracy": files.unit.startswith("%"),
    }


class _Entries:
    """Values, errors and prices of all options of all choices, cut in several ways."""

    def __init__(
        self,
        choices: Sequence[Choice],
        values: list[Array],
        errors: list[Array] | None,
        costs: list[Array] | None,
        kind: Kind,
    ) -> None:
        self.choices, self.values, self.errors, self.costs, self.kind = choices, values, errors, costs, kind

    def _contrast(self, which: Sequence[int]) -> _Contrast:
        def joined(parts: list[Array]) -> Array:
            return np.concatenate([parts[i] for i in which])

        errors = None if self.errors is None else joined(self.errors)
        return _Contrast(joined(self.values), errors, None if self.costs is None else joined(self.costs))

    def _options(self, i: int, picks: Sequence[int], prefix: str = "") -> list[Row]:
        contrast, options = self._contrast([i]), self.choices[i].options
        return [
            contrast.row(f"{prefix}{o}", np.eye(len(options))[n], picks[i] == n, f"{self.choices[i].name} = {o}")
            for n, o in enumerate(options)
        ]

    def stage(self, stage: Stage, picks: Sequence[int], drawing: Drawing) -> list[Row]:
        """A stage's depths, then its blocks' options averaged by what they differ by."""
        rows = self._options(stage.depth, picks, "depth ") if stage.depth is not None else []
        same = {self.choices[b].options for b in stage.blocks}
        aspects = columns(next(iter(same)), drawing) if len(same) == 1 else []
        if not aspects:
            return rows + [r for b in stage.blocks for r in self._options(b, picks, f"{self.choices[b].name} ")]
        contrast = self._contrast(stage.blocks)
        for aspect, values in aspects:
            if len(set(values)) < 2:
                continue
            rows.append(Row("", 0.0))
            for value in dict.fromkeys(values):
                members = np.tile([float(v == value) for v in values], len(stage.blocks))
                label = f"{aspect.short or aspect.name} {aspect.text(value)}"
                title = f"{aspect.name} {aspect.text(value)}: average of {int(members.sum())} entries"
                rows.append(contrast.row(label, members, False, title))
        return rows

    def plain(self, picks: Sequence[int]) -> list[tuple[str, list[Row]]]:
        """Every choice with its options."""
        return [(c.name, self._options(i, picks)) for i, c in enumerate(self.choices)]

    def heat(self, blocks: Sequence[int], picks: Sequence[int]) -> Html | None:
        """Block by block against the options they have in common; None where they have none in common."""
        if not blocks or len({self.choices[i].options for i in blocks}) != 1:
            return None
        rows = []
        for i in blocks:
            titles = [self._title(i, n) for n in range(len(self.choices[i].options))]
            rows.append(
                (
                    self.choices[i].name,
                    self.values[i].tolist(),
                    titles,
                    picks[i] if active(self.choices[i], picks) else None,
                )
            )
        widest = max(float(np.abs(self.values[i]).max()) for i in blocks) or 1.0
        columns = [o.replace("_", " ") for o in self.choices[blocks[0]].options]
        places = 1 if widest >= 0.5 else 2  # contributions of a hundredth must not all read 0.0
        return figures.heat(columns, rows, widest, lambda v: signed(v, places))

    def _title(self, i: int, n: int) -> str:
        words = f"{self.choices[i].name} = {self.choices[i].options[n]}: {signed(self.values[i][n])}"
        if self.errors is not None:
            words += f" ± {_Z * self.errors[i][n]:.2f}"
        return words if self.costs is None else f"{words}, {amount(self.costs[i][n], self.kind, 3)}"

    def table(self, costs: dict[str, list[Array]], kinds: dict[str, Kind], suffix: str) -> list[dict[str, Any]]:
        """Every option of every choice: its value, standard error and all its prices."""
        rows = []
        for i, choice in enumerate(self.choices):
            for n, option in enumerate(choice.options):
                rows.append(
                    {
                        "choice": choice.name if n == 0 else "",
                        "option": option,
                        "value": signed(self.values[i][n], 3) + suffix,
                        "error": "" if self.errors is None else f"{self.errors[i][n]:.3f}",
                        "prices": [amount(c[i][n], kinds[name], 3) for name, c in costs.items()],
                    }
                )
        return rows
