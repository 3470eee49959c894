"""Options that several commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated

import typer

from sartor.core.errors import BadInput
from sartor.core.registry import COSTS, SOLVERS, Registry


def among(known: Registry | tuple[str, ...]) -> Callable[[str], list[str]]:
    """For the shell's completion: the names that begin as what was typed."""

    def matching(incomplete: str) -> list[str]:
        names = known.names() if isinstance(known, Registry) else known
        return [name for name in names if name.startswith(incomplete)]

    return matching


Budgets = Annotated[list[str] | None, typer.Option(
    "--budget", help="A budget of any cost, e.g. params=2M, or of your own: energy=3mJ.")]  # fmt: skip
Costs = Annotated[list[str] | None, typer.Option(
    "--cost", help="A cost to measure though it has no budget: a name, or package.module:Class.",
    autocompletion=among(COSTS))]  # fmt: skip
Solver = Annotated[str | None, typer.Option(
    "--solver", help="Who decides; `sartor list` names them. Default auto.",
    autocompletion=among(SOLVERS))]  # fmt: skip
Targets = Annotated[list[str] | None, typer.Option(
    "--target", help="Where it will run: local, ssh://user@host, profile.json; several as NAME=...")]  # fmt: skip
Precision = Annotated[str | None, typer.Option(
    "--precision", help="float32, int8, or auto: int8 where it is faster and as accurate.",
    autocompletion=among(("float32", "int8", "auto")))]  # fmt: skip
TrustCode = Annotated[bool, typer.Option("--trust-code", help="Import the code that the run's own files name.")]


def named_budgets(texts: list[str] | None) -> dict[str, str]:
    """``--budget NAME=AMOUNT``, by name."""
    found = {}
    for text in texts or []:
        name, equals, amount = text.partition("=")
        if not (name and equals and amount):
            raise BadInput(f"--budget must be NAME=AMOUNT, such as params=2M, but got {text!r}.")
        found[name] = amount
    return found


def by_target(texts: list[str] | None, option: str = "--target") -> dict[str, str] | None:
    """What is given for one target, or as ``NAME=VALUE`` for each of several, by the target's name."""
    found: dict[str, str] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        name, value = (name, value) if equals and re.fullmatch(r"[A-Za-z][\w-]*", name) else ("", text)
        if name in found:
            raise BadInput(f"{option} must be given once for each target, with its name ({option} NAME=...), but is "
                           f"{found[name]!r} and {value!r} for {name or 'one without a name'}.")  # fmt: skip
        found[name] = value
    return found or None
