"""`sartor export` and `sartor publish`: a finished network in the forms of other runtimes, and on a hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sartor.cli import show
from sartor.cli.app import AsJson, Quiet, RunPath, app
from sartor.cli.options import TrustCode
from sartor.runs.schema import ExportFile


@app.command()
def export(
    run: RunPath,
    to: Annotated[str, typer.Option(help="The forms, e.g. openvino,litert,torchscript.")],
    data: Annotated[str | None, typer.Option(help="The run's images, where they lie elsewhere now.")] = None,
    trust_code: TrustCode = False, quiet: Quiet = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Forms for other runtimes, compared with model.onnx on 100 images, and a model card: the folder RUN/export."""
    from sartor.api.run import export as write
    from sartor.runs.directory import Run

    folder = write(run, to=to.split(","), data=data, trust_code=trust_code, quiet=quiet or None)
    found = Run(Path(run)).load(ExportFile)
    show.emit(found, as_json, lambda: view(found, folder))


@app.command()
def publish(
    run: RunPath,
    to: Annotated[str, typer.Option(help="Where: hf://USER/NAME.")],
    private: Annotated[bool, typer.Option(help="For you alone.")] = False,
    as_json: AsJson = False,
) -> None:
    """The folder that a model hub expects, RUN/hub, and its upload."""
    from sartor.pipeline.publish import publish as upload

    where = upload(Path(run), to, private)
    show.emit({"folder": str(Path(run) / "hub"), "published": where}, as_json, lambda: iter([where]))


def view(found: ExportFile, folder: Path) -> show.View:
    """The forms, and where they lie."""
    rows = [(n, f"{f.difference:.1e}", f"{f.bytes / 1e3:.1f} KB", f.version) for n, f in found.forms.items()]
    yield show.table(("form", f"differs on {found.images} images", "size", "runtime"), rows)
    yield f"model card  {folder / 'README.md'}"
