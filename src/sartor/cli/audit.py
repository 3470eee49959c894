"""`sartor audit`: a look at the images before anything is trained."""

from __future__ import annotations

from typing import Annotated

import typer

from sartor.cli import show
from sartor.cli.app import AsJson, Quiet, app


@app.command()
def audit(
    data: Annotated[str, typer.Argument(help="As for `sartor fit`.")],
    image: Annotated[int | None, typer.Option(help="Side of the images in pixels; default from the data.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of the splits.")] = None,
    quiet: Quiet = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Copies, contradictions, leaks into the test, rare classes: what a fit would find in these images."""
    from sartor.api.run import audit as look

    found = look(data, image=image, seed=seed, quiet=quiet or None)
    show.emit(found, as_json, lambda: show.audit(found))
