"""`sartor compress`: a given network made smaller inside budgets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sartor.core.errors import BadInput


def compress(
    model: Annotated[str | None, typer.Argument(help="package.module:function, or a run of `sartor fit`.")] = None,
    data: Annotated[str | None, typer.Option(help="As for `sartor fit`; a run directory knows its own.")] = None,
    latency: Annotated[str | None, typer.Option(help="Largest time for one image, e.g. 2ms or 50%.")] = None,
    params: Annotated[str | None, typer.Option(help="Most parameters, e.g. 1M or 30%.")] = None,
    macs: Annotated[str | None, typer.Option(help="Most multiply-accumulates, e.g. 50M or 40%.")] = None,
    memory: Annotated[str | None, typer.Option(help="Largest size of the weights, e.g. 4MB or 25%.")] = None,
    structure: Annotated[str | None, typer.Option(help="Structures of table S3, e.g. filter,shape.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run directory; default runs/NAME-compressed.")] = None,
    weights: Annotated[Path | None, typer.Option(help="A safetensors file for the factory's network.")] = None,
    effort: Annotated[str | None, typer.Option(help="quick, standard or thorough.")] = None,
    device: Annotated[str | None, typer.Option(help="Where to train: cpu or cuda.")] = None,
    runtime: Annotated[str | None, typer.Option(help="Cut for onnxruntime (this CPU) or torch (--device).")] = None,
    threads: Annotated[int | None, typer.Option(help="Threads of the deployed network.")] = None,
    image: Annotated[int | None, typer.Option(help="Side of the images in pixels.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything random.")] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file with any of these options.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any option, e.g. rounds=5.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bars.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:  # fmt: skip
    """Compress a network: structured sparse priors, exact budgets, a smaller dense network out."""
    from sartor.api.result import load
    from sartor.cli import show
    from sartor.cli.main import console, emit, given, overridden
    from sartor.compression.given import inherited
    from sartor.compression.options import from_mapping
    from sartor.compression.pipeline import compress as run_compress
    from sartor.core.config import read_toml
    from sartor.runs.progress import Reporter

    values: dict[str, Any] = read_toml(config) if config else {}
    values |= given(model=model, data=data, structures=structure, weights=None if weights is None else str(weights),
                    effort=effort, device=device, runtime=runtime, threads=threads, image=image, seed=seed)  # fmt: skip
    values = overridden(values, set_, latency=latency, params=params, macs=macs, memory=memory)
    if "model" not in values:
        raise BadInput("what to compress is missing: give package.module:function, or a run directory.")
    values = inherited(values)
    if "data" not in values:
        raise BadInput("the images are missing: give --data with a folder of images, or a name such as digits.")
    options = from_mapping(values)
    folder = out or default_folder(options.model)
    path = run_compress(options, folder, Reporter(quiet or None))
    result = load(path)
    emit(result.certificate, as_json, lambda: show.certificate(path, result.certificate, console))


def default_folder(model: str) -> Path:
    """Where a compression goes when nobody says."""
    name = model.rpartition(":")[2] if ":" in model else Path(model).resolve().name
    return Path("runs") / f"{name or 'network'}-compressed"
