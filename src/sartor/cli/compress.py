"""`sartor compress`: a given network made smaller inside budgets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sartor.cli import show
from sartor.cli.app import AsJson, Quiet, app, given, overridden
from sartor.cli.options import Budgets, Costs, Solver, Targets, TrustCode, by_target, named_budgets
from sartor.core.errors import BadInput


@app.command()
def compress(
    model: Annotated[str | None, typer.Argument(help="package.module:function, or a run of `sartor fit`.")] = None,
    data: Annotated[str | None, typer.Option(help="As for `sartor fit`; a run directory knows its own.")] = None,
    latency: Annotated[list[str] | None, typer.Option(help="Largest time of one call, e.g. 2ms or 50%; of one of "
                                                           "several targets NAME=2ms.")] = None,
    params: Annotated[str | None, typer.Option(help="Most parameters, e.g. 1M or 30%.")] = None,
    macs: Annotated[str | None, typer.Option(help="Most multiply-accumulates, e.g. 50M or 40%.")] = None,
    memory: Annotated[str | None, typer.Option(help="Largest size of the weights, e.g. 4MB or 25%.")] = None,
    budget: Budgets = None, cost: Costs = None, solver: Solver = None,
    structure: Annotated[str | None, typer.Option(help="Structures of table S3, e.g. filter,shape.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run directory; default runs/NAME-compressed.")] = None,
    weights: Annotated[Path | None, typer.Option(help="A safetensors file for the factory's network.")] = None,
    effort: Annotated[str | None, typer.Option(help="quick, standard or thorough.")] = None,
    device: Annotated[str | None, typer.Option(help="Where to train: cpu or cuda (a GPU where there is one).")] = None,
    runtime: Annotated[str | None, typer.Option(help="Cut for onnxruntime (this CPU) or torch (--device).")] = None,
    target: Targets = None,
    threads: Annotated[int | None, typer.Option(help="Threads of the deployed network.")] = None,
    image: Annotated[int | None, typer.Option(help="Side of the images in pixels.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything random.")] = None,
    trust_code: TrustCode = False,
    config: Annotated[Path | None, typer.Option(help="A TOML file with any of these options.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any option, e.g. rounds=5.")] = None,
    quiet: Quiet = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Compress a network: structured sparse priors, exact budgets, a smaller dense network out."""
    from sartor.api.result import load
    from sartor.compression.given import default_folder, inherited
    from sartor.compression.options import Compression, from_mapping
    from sartor.compression.order import compress as run_compress
    from sartor.core.config import read_toml
    from sartor.pipeline.options import grouped
    from sartor.runs.progress import Reporter

    values: dict[str, Any] = read_toml(config) if config else {}
    values |= given(model=model, data=data, structures=structure, weights=None if weights is None else str(weights),
                    effort=effort, device=device, runtime=runtime, target=by_target(target), threads=threads,
                    image=image, seed=seed, costs=cost or None, solver=solver)  # fmt: skip
    limits = named_budgets(budget) | given(
        latency=by_target(latency, "--latency"), params=params, macs=macs, memory=memory
    )
    values = overridden(grouped(values, Compression), set_, limits)
    if "model" not in values:
        raise BadInput("what to compress is missing: give package.module:function, or a run directory.")
    values = inherited(values)
    if "data" not in values:
        raise BadInput("the images are missing: give --data with a folder of images, or a name such as digits.")
    options = from_mapping(values)
    path = run_compress(options, out or default_folder(options.model), Reporter(quiet or None), None, trust_code)
    show.delivered(load(path), as_json)
