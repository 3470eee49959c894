"""How data is named in a run's files, and whether that name is code; nothing is opened here."""

from __future__ import annotations

import re
from pathlib import Path

from sartor.core.registry import load

OBJECT = "an object in Python: "
_REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def is_code(given: object) -> bool:
    """Whether `given` is ``package.module:name``, and no path that happens to look so."""
    return isinstance(given, str) and bool(_REFERENCE.fullmatch(given)) and not Path(given).exists()


def describe(given: object) -> str:
    """What config.toml says about data: the name or path; of an object its type, for splits.json has its digest."""
    return str(given) if isinstance(given, str | Path) else f"{OBJECT}{type(given).__qualname__}"


def refuse_code(given: object) -> None:
    """Stop where data that a file names is code, which opening it would run."""
    if is_code(given):
        load(str(given), trusted=False)
