"""The application that every file of commands adds to, and what several commands share."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

_FIRST = ("fit", "predict", "eval", "solve", "frontier", "report", "audit", "compare", "verify", "compress", "pretrain")


class Ordered(TyperGroup):
    """The commands in the order in which a person meets them."""

    def list_commands(self, ctx: Any) -> list[str]:
        """What most people want first; the rest as it was added."""
        names = super().list_commands(ctx)
        return [*(n for n in _FIRST if n in names), *(n for n in names if n not in _FIRST)]


_LOOK: dict[str, Any] = {
    "no_args_is_help": True,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
}
app = typer.Typer(
    name="sartor",
    cls=Ordered,
    help="Networks cut to measure: a folder of images and a budget in, the best network that provably fits out.",
    **_LOOK,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars.")]
RunPath = Annotated[Path, typer.Argument(help="A run directory made by `sartor fit`.")]


def group(name: str, summary: str) -> typer.Typer:
    """A command that has commands of its own."""
    inner = typer.Typer(name=name, help=summary, add_completion=False, **_LOOK)
    app.add_typer(inner)
    return inner


def given(**values: Any) -> dict[str, Any]:
    """Only what was given on the command line."""
    return {name: value for name, value in values.items() if value is not None}


def overridden(values: dict[str, Any], settings: list[str] | None, budgets: Mapping[str, str]) -> dict[str, Any]:
    """What a file says, with the command line's budgets and ``--set`` options put over it."""
    from sartor.core.config import assign

    under = values.setdefault("budgets", {})
    if isinstance(under, dict):  # anything else is refused later, with its name
        under |= budgets
    for setting in settings or []:
        assign(values, setting)
    return values
