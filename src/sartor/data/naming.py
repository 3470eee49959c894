"""How data is named in a run's files, and whether that name is code; nothing is opened here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from sartor.core.registry import load

OBJECT = "an object in Python: "
_ADDRESS = re.compile(r"[a-z]+://")
_REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def is_code(given: object) -> bool:
    """Whether `given` is ``package.module:name``, and no path that happens to look so."""
    return isinstance(given, str) and bool(_REFERENCE.fullmatch(given)) and not Path(given).exists()


def describe(given: object) -> str:
    """What config.toml says about data: the name or path; of an object its type, for splits.json has its digest."""
    return str(given) if isinstance(given, str | Path) else f"{OBJECT}{type(given).__qualname__}"


def named_code(options: Mapping[str, object]) -> list[str]:
    """The code that options name, which using them would run: as data, as a plug-in, or inside one."""
    found = [text for key, value in options.items() if key != "data" for text in _texts(value)]
    return [*found, str(options["data"])] if is_code(options.get("data")) else found


def refuse_code(options: Mapping[str, object]) -> None:
    """Stop where options that a file gives name code."""
    for text in named_code(options):
        load(text, trusted=False)


def _texts(value: object) -> list[str]:
    """Every text with a colon, however deep: to a registry each is a reference, but for an address (ssh://host)."""
    if isinstance(value, Mapping | list):
        return [text for inner in (value.values() if isinstance(value, Mapping) else value) for text in _texts(inner)]
    return [value] if isinstance(value, str) and ":" in value and not _ADDRESS.match(value) else []
