"""Drawing a network as its space says: stages of blocks, else a table of its decisions.

The page draws every choice once, as a slot; an option is a `look`. Python fills the slots for the chosen
network and the page's script refills them for any other, from the same looks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sartor.core.arch import Choice, active
from sartor.core.quadratic import Array
from sartor.report.files import Files
from sartor.report.text import amount, percent_suffix, signed
from sartor.runs.schema import SplitsFile
from sartor.spaces.drawing import Aspect, Drawing

_KEYS = {"height": "Tall: more {}.", "tone": "Strong colour: larger {}.", "mark": "Capped: {}."}


@dataclass
class Look:
    """How an option is drawn: `grow` is the height in 0..1, `tone` the depth of colour, `mark` the word of the cap."""

    name: str
    text: str
    under: str = ""
    grow: float = 0.6
    tone: float = 0.0
    mark: str = ""


def columns(options: Sequence[str], drawing: Drawing) -> list[tuple[Aspect, list[float | bool]]]:
    """Every aspect with its values over the options; none where the drawing does not know all options."""
    if not all(o in drawing.options for o in options):
        return []
    return [(aspect, [drawing.options[o][n] for o in options]) for n, aspect in enumerate(drawing.aspects)]


def looks(choice: Choice, drawing: Drawing) -> list[Look]:
    """How each option is drawn."""
    found = columns(choice.options, drawing)
    toned = any(aspect.shows == "tone" for aspect, _ in found)
    drawn = [Look(o, "" if found and not toned else o) for o in choice.options]
    for aspect, values in found:
        most, least = max(values), min(values)
        for look, value in zip(drawn, values, strict=True):
            if aspect.shows == "height":
                look.under, look.grow = aspect.text(value), round(float(value / (most or 1)), 3)
            elif aspect.shows == "tone":
                look.text, look.tone = aspect.text(value), float((value - least) / ((most - least) or 1))
            elif aspect.shows == "mark":
                look.mark = (aspect.short or aspect.name) if value else ""
            elif value is not False:
                words = aspect.short or aspect.name
                look.under = f"{look.under} {words}{'' if value is True else f' {aspect.text(value)}'}".strip()
    return drawn


def legend(drawing: Drawing) -> str:
    """What height, colour and caps of the boxes mean."""
    named = {a.shows: f"{a.name} ({a.short})" if a.short else a.name for a in drawing.aspects}
    return " ".join(words.format(named[shows]) for shows, words in _KEYS.items() if shows in named)


def slots(choices: Sequence[Choice], picks: Sequence[int], drawing: Drawing) -> list[dict[str, Any]]:
    """Every choice with the look of its pick and whether it has any effect."""
    return [
        {"name": c.name, "on": active(c, picks), "look": looks(c, drawing)[p], "option": c.options[p]}
        for c, p in zip(choices, picks, strict=True)
    ]


def ends(files: Files) -> dict[str, Any]:
    """What goes in and what comes out of the network."""
    data = files.searched(SplitsFile)
    if data is None:
        return {"image": "image", "colour": "? channels", "count": None}
    task = data.task
    colour = {1: "grey", 3: "RGB"}.get(task.channels, f"{task.channels} channels")
    return {"image": f"{task.image}×{task.image}", "colour": colour, "count": task.classes}


def network(files: Files, contributions: list[Array] | None, prices: dict[str, list[Array]]) -> dict[str, Any]:
    """The chosen network: its stages with what each costs, its decisions as a table, and its usual string."""
    choices, picks, drawing = files.choices, files.solution.solution.picks, files.drawing
    shown = slots(choices, picks, drawing)
    rows = []
    for i, slot in enumerate(shown):
        if slot["on"]:
            worth = None if contributions is None else contributions[i][picks[i]]
            rows.append(
                {
                    "choice": slot["name"],
                    "option": slot["option"],
                    "worth": "" if worth is None else signed(worth) + percent_suffix(files.unit),
                    "prices": [amount(price[i][picks[i]], files.kinds[n], 3) for n, price in prices.items()],
                }
            )
    totals = []
    for axis in list(prices)[:1]:
        own = [[prices[axis][b][picks[b]] for b in s.blocks if active(choices[b], picks)] for s in drawing.stages]
        totals = [amount(sum(values), files.kinds[axis], 3) for values in own]
    return {
        "slots": shown, "stages": drawing.stages, "ends": ends(files), "rows": rows, "totals": totals,
        "legend": legend(drawing), "costs": list(prices), "unit": files.unit, "string": files.solution.string,
        "worth": contributions is not None,
    }  # fmt: skip
