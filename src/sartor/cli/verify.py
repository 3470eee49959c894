"""`sartor verify`: what a finished run claims, checked again; `sartor sign`: who says so."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sartor.cli import show
from sartor.cli.app import AsJson, app
from sartor.cli.options import TrustCode
from sartor.core.errors import BadInput
from sartor.runs.verification import Verification


@app.command()
def verify(
    run: Annotated[Path, typer.Argument(help="A run directory of `sartor fit` or `compress`, or RUN/cuts/BUDGET.")],
    data: Annotated[str | None, typer.Option(help="The images: measure the test accuracy of model.onnx.")] = None,
    here: Annotated[bool, typer.Option("--here", help="Measure the latency on this machine too.")] = False,
    signed_by: Annotated[Path | None, typer.Option(help="A public key (PEM): whose signature it must carry.")] = None,
    trust_code: TrustCode = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Check all that a finished run claims, from its directory alone; exit code 2 where something differs."""
    from sartor.api.run import verify as check

    found = check(run, data=data, here=here, trust_code=trust_code, signed_by=signed_by)
    show.emit({"run": found.run, "holds": found.holds, "lines": found.lines}, as_json, lambda: view(found))
    if not found.holds:
        raise typer.Exit(2)


def view(found: Verification) -> show.View:
    """A line for everything that was checked, and how many of each."""
    for line in found.lines:
        told = ": " + "; ".join(
            f"{title}{text}" for title, text in (("expected ", line.expected), ("", line.found)) if text is not None
        )
        yield f"{line.state:<17}  {line.what}{told if len(told) > 2 else ''}"
    yield f"{found.run}: {found.summary()}"


@app.command()
def sign(
    run: Annotated[Path | None, typer.Argument(help="A finished run, or RUN/cuts/BUDGET.")] = None,
    key: Annotated[Path | None, typer.Option(help="Your private key, a PEM file.")] = None,
    new_key: Annotated[Path | None, typer.Option(help="Make a key pair instead: this file, and FILE.pub.")] = None,
    as_json: AsJson = False,
) -> None:
    """Sign a run's certificate, and with it every file that it vouches for; `verify --signed-by` checks it."""
    from sartor.pipeline.verification import folders
    from sartor.runs import signature

    if (new_key is None) == (run is None or key is None):
        raise BadInput("give either a run with --key FILE, or --new-key FILE to make a key first.")
    if new_key is not None:
        made = signature.new_key(new_key)
        show.emit(
            {"private": str(new_key), "public": str(made)},
            as_json,
            lambda: [f"{new_key}: keep it", f"{made}: give it away"],
        )
    elif run is not None and key is not None:
        cut = folders(run).cut
        cut.check()
        name = cut.path / signature.sign(cut, key)
        show.emit({"signature": str(name)}, as_json, lambda: [str(name)])
