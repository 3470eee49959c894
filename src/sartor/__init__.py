"""Sartor: networks cut to measure. A folder of images and a budget in, the best network that provably fits out.

>>> import sartor
>>> result = sartor.fit("photos/", latency="5ms", params="4M")      # doctest: +SKIP
>>> result.certificate["budgets"]["latency"]["measured"]            # doctest: +SKIP
>>> result.predict(["cat.jpg"])                                     # doctest: +SKIP

Importing the package does not import torch; that happens when something needs it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sartor.api.result import Result, load
from sartor.core.arch import Arch, Choice
from sartor.core.errors import BadInput, Diverged, Infeasible, MissingDependency, RunError, SartorError, SolverError
from sartor.core.quadratic import Limit, Quadratic
from sartor.core.task import Task
from sartor.version import __version__ as __version__

__all__ = [
    # the main job
    "fit", "solve", "compress", "load", "Result",
    # what methods, costs and solvers speak
    "Arch", "Choice", "Limit", "Quadratic", "Task",
    # errors
    "BadInput", "Diverged", "Infeasible", "MissingDependency", "RunError", "SartorError", "SolverError",
]  # fmt: skip


def fit(data: str | Path, *, out: str | Path | None = None, quiet: bool | None = None, **options: Any) -> Result:
    """Search, solve, train, verify and export a network for `data` inside the budgets.

    Budgets: `latency` ("5ms"), `params` ("2M"), `macs` ("50M"), `memory` ("4MB"), any of them; without one the
    method's own selection decides. Other options are the command line's: `method`, `space`, `effort`, `device`,
    `runtime`, `threads`, `seed`, `image`, `devices`, `nodes`; ``method={"passes": 4}`` and the like set a group's own
    options. The same call resumes an interrupted run.
    """
    from sartor.pipeline import options as opts
    from sartor.pipeline import order as pipeline
    from sartor.runs.progress import Reporter

    if not isinstance(data, (str, Path)):
        raise BadInput(f"data must be a path or a name, but is a {type(data).__name__}. Save arrays with numpy.savez.")
    values: dict[str, Any] = {"data": str(data), **options}
    values["budgets"] = {n: values.pop(n) for n in list(values) if n in opts.BUDGETS}
    folder = Path(out) if out is not None else opts.default_folder(data)
    return load(pipeline.fit(opts.from_mapping(values), folder, Reporter(quiet)))


def solve(run: str | Path, *, quiet: bool | None = None, **budgets: str | float) -> Result:
    """Another budget on a finished run: no search again."""
    from sartor.pipeline import order as pipeline
    from sartor.pipeline.options import parse_budgets
    from sartor.runs.progress import Reporter

    return load(pipeline.solve(Path(run), parse_budgets(budgets), Reporter(quiet)))


def compress(
    model: Any,
    data: str | Path | None = None,
    *,
    out: str | Path | None = None,
    quiet: bool | None = None,
    **options: Any,
) -> Result:
    """Make a network smaller inside budgets: BayesNAS's structural compression, an exact solver, fine-tuning.

    `model` is an `nn.Module`, ``"package.module:function"`` or a run directory; `data` as for `fit`. Budgets as there,
    or as shares of the given network: ``compress(net, "photos/", latency="2ms", macs="40%")``. Other options are the
    command line's: `structures` ("filter,shape"), `effort`, `rounds`, `epochs`, `strength`, `device`, `seed`, ...
    """
    from sartor.cli.compress import default_folder
    from sartor.compression.given import inherited
    from sartor.compression.options import from_mapping
    from sartor.compression.pipeline import compress as run
    from sartor.pipeline import options as opts
    from sartor.runs.progress import Reporter

    named = isinstance(model, (str, Path))
    name = str(model) if named else f"{type(model).__module__}:{type(model).__qualname__}"
    values: dict[str, Any] = {"model": name, **options}
    if data is not None:
        values["data"] = str(data)
    values["budgets"] = {n: str(values.pop(n)) for n in list(values) if n in opts.BUDGETS}
    values = inherited(values) if named else values
    if "data" not in values:
        raise BadInput("the images are missing: give a folder of images, or a name such as 'digits'.")
    folder = Path(out) if out is not None else default_folder(name)
    return load(run(from_mapping(values), folder, Reporter(quiet), None if named else model))
