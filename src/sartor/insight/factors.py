"""Reading names: the group and position of a choice, the factors and levels of its options."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from sartor.core.arch import Choice
from sartor.spaces.drawing import Drawing

WORDS = {"e": "expansion", "k": "kernel", "se": "squeeze-excitation"}

Parse = Callable[[str], Mapping[str, str]]


def factors(option: str) -> dict[str, str]:
    """``e3_k5_se`` -> expansion 3, kernel 5, squeeze-excitation on; the hook for other notations has this signature."""
    found = {}
    for token in option.split("_"):
        match = re.fullmatch(r"([A-Za-z]+)(\d+(?:\.\d+)?)?", token)
        if match is None:
            return {}
        name, level = match.groups()
        found[WORDS.get(name, name)] = "on" if level is None else level
    return found if any(level != "on" for level in found.values()) else {}


def drawn(drawing: Drawing) -> Parse:
    """What the space itself says its options differ by; by their names where it says nothing."""

    def read(option: str) -> dict[str, str]:
        named = zip(drawing.aspects, drawing.options.get(option, ()), strict=False)
        return {a.name: "on" if v is True else f"{v:g}" for a, v in named if v is not False}

    return read if drawing.options else factors


def place(choice: Choice) -> tuple[str, str]:
    """The group and the position in it: ``stage3.block2`` -> stage3, block2."""
    group, dot, position = choice.name.rpartition(".")
    return (group, position) if dot else (choice.name, "")


def number(level: str) -> float:
    """The level as a number; infinite where it is none."""
    try:
        return float(level)
    except ValueError:
        return math.inf


def levels_of(choice: Choice, parse: Parse = factors) -> dict[str, dict[str, tuple[int, ...]]]:
    """Factor -> level -> the options that have it; options that are plain numbers are levels of the position."""
    read = [parse(option) for option in choice.options]
    if all(math.isfinite(number(option)) for option in choice.options):
        read = [{place(choice)[1] or choice.name: option} for option in choice.options]
    elif not all(read):
        read = [{"option": option} for option in choice.options]
    table: dict[str, dict[str, tuple[int, ...]]] = {}
    for factor in sorted({f for levels in read for f in levels}):
        mine = [levels.get(factor, "off") for levels in read]
        table[factor] = {level: tuple(o for o, m in enumerate(mine) if m == level) for level in dict.fromkeys(mine)}
    return table
