"""Drawing a network: stages of blocks where the space's choices say so, else a table of its decisions.

The page draws every choice once, as a slot; an option is a `look`. Python fills the slots for the chosen
network and the page's script refills them for any other, from the same looks.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sartor.core.arch import Choice, active
from sartor.core.quadratic import Array
from sartor.report.files import Files
from sartor.report.text import amount, percent_suffix, signed

_STAGED = re.compile(r"^stage(\d+)\.(?:depth|block(\d+))$")
_TOKEN = re.compile(r"^([A-Za-z]+)(\d+(?:\.\d+)?)?$")
NAMES = {"e": "expansion", "k": "kernel", "se": "squeeze-excitation", "w": "width", "s": "stride"}


@dataclass
class Stage:
    """One stage: the choice that decides its depth, if any, and those of its blocks in order."""

    number: int
    depth: int | None = None
    blocks: list[int] = field(default_factory=list)


def staged(choices: Sequence[Choice]) -> list[Stage] | None:
    """The stages that choices named ``stageN.depth`` and ``stageN.blockM`` describe; None for any other space."""
    found: dict[int, Stage] = {}
    for i, choice in enumerate(choices):
        match = _STAGED.match(choice.name)
        if match is None:
            return None
        stage = found.setdefault(int(match[1]), Stage(int(match[1])))
        if match[2] is None:
            stage.depth = i
        else:
            stage.blocks.append(i)
    return [found[n] for n in sorted(found)] or None


def attributes(option: str) -> dict[str, float | bool] | None:
    """``e6_k5_se`` -> ``{"e": 6, "k": 5, "se": True}``; None where the label is not made of such words."""
    read: dict[str, float | bool] = {}
    for word in option.split("_"):
        match = _TOKEN.match(word)
        if match is None or match[1] in read:
            return None
        read[match[1]] = float(match[2]) if match[2] is not None else True
    return read


def level(key: str, value: float | bool) -> str:
    """One attribute's value in words."""
    if isinstance(value, bool):
        return "with" if value else "without"
    return f"{value:g}×{value:g}" if key == "k" else f"×{value:g}" if key == "e" else f"{value:g}"


def table_of(options: Sequence[str]) -> dict[str, list[float | bool]] | None:
    """Every attribute's value in every option (absent flags are False); None where the options do not fit together."""
    read = [attributes(o) for o in options]
    if any(r is None for r in read):
        return None
    known = [r for r in read if r is not None]
    keys = list(dict.fromkeys(k for r in known for k in r))
    columns: dict[str, list[float | bool]] = {}
    for key in keys:
        column = [r.get(key, False) for r in known]
        if len({isinstance(v, bool) for v in column}) > 1:
            return None
        columns[key] = column
    return columns


def looks(choice: Choice) -> list[dict[str, Any]]:
    """How each option is drawn: `grow` is the height in 0..1, `tone` the depth of colour, `mark` the SE cap."""
    columns = table_of(choice.options)
    plain = [{"text": o, "under": "", "grow": 0.6, "tone": 0.0, "mark": False, "name": o} for o in choice.options]
    if columns is None or not ({"e", "k"} & set(columns)):
        return plain
    for n, look in enumerate(plain):
        for key, column in columns.items():
            value, most, least = column[n], max(column), min(column)
            if key == "e":
                look |= {"under": level(key, value), "grow": round(float(value / (most or 1)), 3)}
            elif key == "k":
                look |= {"text": level(key, value), "tone": float((value - least) / ((most - least) or 1))}
            elif key == "se":
                look |= {"mark": bool(value)}
            elif value is not False:
                look["under"] = f"{look['under']} {key}{'' if value is True else level(key, value)}".strip()
        if "k" not in columns:
            look["text"] = ""
    return plain


def chosen(files: Files) -> list[int]:
    """The chosen network's picks."""
    return [int(p) for p in files.own("solution.json")["solution"]["picks"]]


def slots(choices: Sequence[Choice], picks: Sequence[int]) -> list[dict[str, Any]]:
    """Every choice with the look of its pick and whether it has any effect."""
    return [
        {"name": c.name, "on": active(c, picks), "look": looks(c)[p], "option": c.options[p]}
        for c, p in zip(choices, picks, strict=True)
    ]


def ends(files: Files) -> dict[str, Any]:
    """What goes in and what comes out of the network."""
    data = files.searched("splits.json") or {}
    task = data.get("task") or (files.own("model/arch.json") or {}).get("task") or {}
    colour = {1: "grey", 3: "RGB"}.get(task.get("channels", 0), f"{task.get('channels', '?')} channels")
    image = f"{task['image']}×{task['image']}" if "image" in task else "image"
    classes = [str(c) for c in data.get("classes", ())]
    return {"image": image, "colour": colour, "count": task.get("classes", len(classes) or None), "classes": classes}


def drawing(files: Files, contributions: list[Array] | None, prices: dict[str, list[Array]]) -> dict[str, Any]:
    """The chosen network: its stages with what each costs, its decisions as a table, and its usual string."""
    choices, picks = files.choices, chosen(files)
    axis, kind = next(((n, files.kinds[n]) for n in prices), ("", "count"))
    rows = []
    for i, slot in enumerate(slots(choices, picks)):
        if slot["on"]:
            worth = None if contributions is None else contributions[i][picks[i]]
            rows.append({
                "choice": slot["name"], "option": slot["option"],
                "worth": "" if worth is None else signed(worth) + percent_suffix(files.unit),
                "prices": [amount(price[i][picks[i]], files.kinds[n], 3) for n, price in prices.items()],
            })  # fmt: skip
    stages = staged(choices) or []
    own = prices.get(axis, [])
    totals = {s.number: sum(own[b][picks[b]] for b in s.blocks if active(choices[b], picks)) for s in stages if own}
    return {
        "slots": slots(choices, picks), "stages": stages, "ends": ends(files), "rows": rows,
        "totals": {n: amount(v, kind, 3) for n, v in totals.items()}, "costs": list(prices), "unit": files.unit,
        "string": str(files.own("solution.json").get("string", "")), "worth": contributions is not None,
    }  # fmt: skip
