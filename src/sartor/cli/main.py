"""The command line. Results go to standard output, progress to standard error; bad input ends with exit code 2."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import time
from dataclasses import fields
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Annotated, Any

import typer
from rich.console import Console

from sartor.cli import audit, bench, compare, compress, export, show, tables, verify
from sartor.cli.app import AsJson, Quiet, RunPath, app, given, overridden
from sartor.cli.options import Budgets, Costs, Precision, Solver, Targets, TrustCode, among, by_target, named_budgets
from sartor.core.errors import BadInput, SartorError
from sartor.core.registry import METHODS, SPACES
from sartor.core.threads import sleep_while_waiting
from sartor.runs.progress import Bar
from sartor.version import __version__

# Importing a file of commands adds them to `app`.
__all__ = ["app", "audit", "bench", "compare", "compress", "export", "main", "tables", "verify"]
_INTERRUPTED, _TERMINATED = 130, 143  # 128 and the number of the signal
# What the system says of a disk or a path that a person gave, and not of a mistake of ours.
_REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.ENAMETOOLONG)

_DATA = ("A folder with a sub-folder a class; a .zip, .csv, .parquet or .npz; WebDataset, IDX or CIFAR files; "
         "hf://datasets/owner/name; digits, fashion-mnist.")  # fmt: skip
Latency = Annotated[list[str] | None, typer.Option(
    "--latency", help="Largest time of one call, e.g. 5ms; of one of several targets NAME=5ms.")]  # fmt: skip
Params = Annotated[str | None, typer.Option("--params", help="Largest number of parameters, e.g. 2M.")]
Macs = Annotated[str | None, typer.Option("--macs", help="Largest number of multiply-accumulates, e.g. 50M.")]
Memory = Annotated[str | None, typer.Option("--memory", help="Largest size of the weights, e.g. 4MB.")]


@app.command()
def fit(
    data: Annotated[str | None, typer.Argument(help=_DATA)] = None,
    latency: Latency = None, params: Params = None, macs: Macs = None, memory: Memory = None, budget: Budgets = None,
    out: Annotated[Path | None, typer.Option(help="The run directory; default runs/NAME.")] = None,
    method: Annotated[str | None, typer.Option(help="The search method: one that `sartor list` names, or "
                                                      "package.module:Class.", autocompletion=among(METHODS))] = None,
    space: Annotated[str | None, typer.Option(help="The search space, likewise.",
                                              autocompletion=among(SPACES))] = None,
    cost: Costs = None, solver: Solver = None,
    start: Annotated[str | None, typer.Option(help="Weights to start from: a run, safetensors, timm:NAME.")] = None,
    time_: Annotated[str | None, typer.Option("--time", help="For everything, e.g. 10min.")] = None,
    effort: Annotated[str | None, typer.Option(help="quick, standard (times), thorough (the papers').",
                                               autocompletion=among(("quick", "standard", "thorough")))] = None,
    device: Annotated[str | None, typer.Option(help="Where to train: cpu or cuda (a GPU where there is one).")] = None,
    runtime: Annotated[str | None, typer.Option(help="Cut for onnxruntime, openvino, litert or torch.")] = None,
    target: Targets = None, precision: Precision = None,
    threads: Annotated[int | None, typer.Option(help="Threads of the deployed network.")] = None,
    batch: Annotated[int | None, typer.Option(help="Images in one call of the deployed network.")] = None,
    image: Annotated[int | None, typer.Option(help="Side of the images in pixels; default from the data.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything random.")] = None,
    devices: Annotated[int | None, typer.Option(help="Processes (CPU) or GPUs on this machine.")] = None,
    nodes: Annotated[int | None, typer.Option(help="Machines; start the same command on each.")] = None,
    logger: Annotated[str | None, typer.Option(help="Curves: tensorboard, mlflow, wandb or none.")] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file with any of these options.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any option, e.g. method.passes=4.")] = None,
    quiet: Quiet = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Search, solve, train, verify and export the best network inside the budgets; without one, the method's choice."""
    from sartor.api.result import load
    from sartor.core.config import read_toml
    from sartor.pipeline import options
    from sartor.pipeline.order import fit as run_fit
    from sartor.runs.progress import Reporter

    values = read_toml(config) if config else {}
    values |= given(data=data, method=method, space=space, start=start, time=time_, effort=effort, device=device,
                    runtime=runtime, target=by_target(target), threads=threads, batch=batch, image=image,
                    seed=seed, devices=devices, nodes=nodes, logger=logger, costs=cost or None, solver=solver,
                    precision=precision)  # fmt: skip
    limits = named_budgets(budget) | given(
        latency=by_target(latency, "--latency"), params=params, macs=macs, memory=memory
    )
    values = overridden(options.grouped(values), set_, limits)
    if "data" not in values:
        raise BadInput("what to fit is missing: give a folder of images, or a name such as digits.")
    chosen = options.from_mapping(values)
    folder = out or options.default_folder(chosen.data)
    path = run_fit(chosen, folder, Reporter(quiet or None))
    if _first_process():
        show.delivered(load(path), as_json)


@app.command()
def pretrain(
    data: Annotated[str, typer.Argument(help="As for `sartor fit`: many images, of any classes.")],
    out: Annotated[Path, typer.Option(help="The run directory, for `sartor fit --start`.")],
    space: Annotated[str | None, typer.Option(help="The search space.", autocompletion=among(SPACES))] = None,
    method: Annotated[str | None, typer.Option(help="The search method.", autocompletion=among(METHODS))] = None,
    time_: Annotated[str | None, typer.Option("--time", help="For everything, e.g. 30min.")] = None,
    device: Annotated[str | None, typer.Option(help="Where to search and train: cpu or cuda.")] = None,
    image: Annotated[int | None, typer.Option(help="Side of the images in pixels; default from the data.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of everything random.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any option, e.g. method.passes=4.")] = None,
    quiet: Quiet = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Learn weights without a budget, for `sartor fit OTHER --start OUT`."""
    fit(data=data, out=out, space=space, method=method, time_=time_, device=device, image=image, seed=seed, set_=set_,
        quiet=quiet, as_json=as_json)  # fmt: skip


@app.command()
def solve(
    run: RunPath, latency: Latency = None, params: Params = None, macs: Macs = None, memory: Memory = None,
    budget: Budgets = None, target: Targets = None, solver: Solver = None, precision: Precision = None,
    trust_code: TrustCode = False,
    set_: Annotated[list[str] | None, typer.Option("--set", help="An option of the solver: solver.time_limit=60.")]
    = None, train: Annotated[bool, typer.Option(help="Train the network; else decide only.")] = True,
    quiet: Quiet = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Another budget on a finished run: no search again."""
    from sartor.api.result import load
    from sartor.pipeline.options import AUTO
    from sartor.pipeline.order import solve as run_solve
    from sartor.runs.progress import Reporter

    limits = named_budgets(budget) | given(
        latency=by_target(latency, "--latency"), params=params, macs=macs, memory=memory
    )
    asked = overridden({"solver": {"name": solver or AUTO}}, set_, {})
    if set(asked) != {"solver", "budgets"} or asked["budgets"]:
        raise BadInput("--set of `sartor solve` takes options of the solver, such as solver.time_limit=60.")
    chosen = asked["solver"] if solver or set_ else None
    path = run_solve(
        run, limits, Reporter(quiet or None), solver=chosen, precision=precision, target=by_target(target),
        trust_code=trust_code, train=train,
    )  # fmt: skip
    (show.delivered if train else show.decided)(load(path), as_json)


@app.command()
def frontier(
    run: RunPath,
    everything: Annotated[bool, typer.Option("--all", help="Every point.")] = False,
    as_json: AsJson = False,
) -> None:
    """Every optimal trade-off of a finished run."""
    from sartor.api.result import load

    result = load(run)
    points = result.trade_offs
    show.emit(points, as_json, lambda: show.frontier(points, result.tables, rows=0 if everything else 25))


@app.command()
def predict(
    run: RunPath, images: Annotated[list[Path], typer.Argument(help="Image files, and folders of them.")],
    top: Annotated[int, typer.Option(help="How many classes to show.", min=1)] = 3, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Classes with probabilities, from the exported model."""
    from sartor.api.result import load

    found = load(run).predict(images)
    show.emit(found, as_json, lambda: show.predictions(found, top))


@app.command("eval")
def evaluate(
    run: RunPath, data: Annotated[str, typer.Argument(help="Images with labels, as for `sartor fit`; all of them, or "
                                                           "the test images that they bring.")],
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """How good the exported model is on other images: by class, confusions, calibration."""
    from sartor.api.result import load

    found = load(run).evaluate(data)
    show.emit(found, as_json, lambda: show.evaluation(found))


@app.command()
def report(run: RunPath, as_json: AsJson = False) -> None:
    """Write report.html anew from the run's files."""
    from sartor.report.build import build
    from sartor.report.files import Files
    from sartor.runs.directory import Run

    files = Files.open(run)
    for folder in dict.fromkeys((files.base, files.path)):
        Run(folder).check()
    page = build(run)
    show.emit({"report": str(page)}, as_json, lambda: [str(page)])


@app.command("list")
def list_plugins(as_json: AsJson = False) -> None:
    """Methods, spaces, costs, solvers, runtimes, targets, proxies, predictors and published networks."""
    from sartor.core.registry import COSTS, METHODS, PREDICTORS, PROXIES, RUNTIMES, SOLVERS, SPACES, TARGETS
    from sartor.costs import published as zoo

    kinds = (METHODS, SPACES, COSTS, SOLVERS, RUNTIMES, TARGETS, PROXIES, PREDICTORS)
    registries = {registry.package.rpartition(".")[2]: registry for registry in kinds}
    data: dict[str, Any] = {k: {n: r.summary(n) for n in r.names()} for k, r in registries.items()}
    data["zoo"] = [*zoo.names(), *zoo.cells()]

    show.emit(data, as_json, lambda: show.plugins(data))


@app.command()
def measure(
    space: Annotated[str, typer.Option(help="The search space.")] = "mobile",
    cost: Annotated[str, typer.Option("--cost", help="What to measure: a name, or package.module:Class.")] = "latency",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    runtime: Annotated[str | None, typer.Option(help="What runs the parts; `sartor list` names them.")] = None,
    target: Annotated[str, typer.Option(help="Where: local, or ssh://user@host:port.")] = "local",
    precision: Annotated[str, typer.Option(help="float32, or int8 or auto: parts are then priced in both.",
                                           autocompletion=among(("float32", "int8", "auto")))] = "float32",
    threads: Annotated[int, typer.Option(help="Threads of the deployed network.")] = 1,
    batch: Annotated[int, typer.Option(help="Images in one call of it.")] = 1,
    image: Annotated[int, typer.Option(help="Side of the images in pixels.", min=1)] = 32,
    classes: Annotated[int, typer.Option(help="Number of classes.", min=1)] = 10,
    channels: Annotated[int, typer.Option(help="1 for grey images, 3 for colour.", min=1)] = 3,
    set_: Annotated[list[str] | None, typer.Option("--set", help="An option of the cost, e.g. batch=4.")] = None,
    out: Annotated[Path | None, typer.Option(help="Also write it to FILE.json, a profile for --target.")] = None,
    quiet: Quiet = False, as_json: AsJson = False,
) -> None:  # fmt: skip
    """Price every part of a space on the target: its latency, or another cost."""
    from sartor.core.config import assign
    from sartor.core.registry import COSTS, RUNTIMES, SPACES
    from sartor.core.task import Task
    from sartor.costs.base import CostTable, cache_folder
    from sartor.pipeline.options import Fit, Plug
    from sartor.runs.directory import check_writable, write_json
    from sartor.runs.progress import Reporter

    if out is not None:
        check_writable(out)
    usual = (n for n in (Fit.runtime, *RUNTIMES.names()) if device in RUNTIMES[n].devices)
    under = runtime or next(usual, Fit.runtime)
    chosen = Fit(data="", runtime=under, target=target, threads=threads, batch=batch,
                 precision=precision)  # type: ignore[arg-type]  # fmt: skip
    placed = any(field.name == "device" for field in fields(COSTS[cost]))
    options: dict[str, Any] = {"device": device} if placed else {}
    for setting in set_ or []:
        assign(options, setting)
    measured = chosen.made_cost(Plug(cost, options))
    small = None if precision == "float32" else measured.int8()
    if small is None and precision != "float32":
        raise BadInput(f"{cost} has no prices in int8 under {under}: leave --precision out.")
    task, tables, books = Task(classes, image, channels), list[CostTable](), dict[str, Any]()
    with TemporaryDirectory() as spare:
        folder = cache_folder() or Path(spare)
        for one in (measured, small) if small else (measured,):
            with Reporter(quiet or None).bar("measuring", 100) as bar:
                tick = partial(_tick, bar)
                tables.append(one.table(SPACES[space]().fitted(task), task, tick, folder))
            books |= one.profile(folder)
    data = {**tables[0].to_json(), **{t.precision: t.to_json() for t in tables[1:]}, **books}
    if out is not None:
        write_json(out, data)

    show.emit(data, as_json, lambda: (line for table in tables for line in show.prices(table)))


def _tick(bar: Bar, name: str, done: int, total: int) -> None:
    bar.to(100 * done // total, name)


@app.command("zoo")
def show_zoo(
    name: Annotated[str, typer.Argument(help="A published network, e.g. HC-A or XNAS; `sartor list` names them.")],
    classes: Annotated[int | None, typer.Option(help="Number of classes.", min=1)] = None,
    image: Annotated[int | None, typer.Option(help="Side of the images in pixels.", min=1)] = None,
    channels: Annotated[int | None, typer.Option(
        help="Width of the first cells (cell networks), or channels of the images (mobile networks).", min=1)] = None,
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """A published network: parameters, multiply-accumulates, architecture."""
    from sartor.core.task import Task
    from sartor.costs import published as zoo

    if name.lower() in (known.lower() for known in zoo.cells()):
        entry = zoo.cell_entry(name, channels, classes, image or 32)
    else:
        entry = zoo.entry(name, Task(classes or 1000, image or 224, channels or 3))

    show.emit(entry, as_json, lambda: [show.facts(entry)])


@app.callback(invoke_without_command=True)
def version(wanted: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    """Networks cut to measure: a folder of images and a budget in, the best network that provably fits out."""
    if wanted:
        show.emit(__version__, False, lambda: [__version__])
        raise typer.Exit


def main() -> None:
    """Entry point: expected errors become one message and exit code 2, Ctrl-C becomes 130, SIGTERM 143."""
    sleep_while_waiting()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name that the terminal cannot show must not end a run
            stream.reconfigure(errors="backslashreplace")
    parent, terminated = os.getppid(), []

    def terminate(number: int, frame: FrameType | None) -> None:
        terminated.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        code = app(prog_name="sartor", standalone_mode=False)  # typer turns Ctrl-C into the return value 130
        if code == _INTERRUPTED:
            raise KeyboardInterrupt
    except BaseException as error:
        if _told_by_first(parent):
            sys.exit(1)
        _explain(error, _TERMINATED if terminated else _INTERRUPTED)
    else:
        sys.exit(code or 0)
    finally:
        signal.signal(signal.SIGTERM, before)


def _explain(error: BaseException, stopped: int) -> None:
    """One message and the exit code for what was to be expected; anything else is a bug of ours and is raised."""
    if isinstance(error, SartorError):
        _fail(str(error), error.exit_code)
    if isinstance(error, (KeyboardInterrupt, typer.Abort)):
        _fail("stopped; what was computed is kept, and the same command goes on from there.", stopped)
    if hasattr(error, "format_message"):  # click's usage errors
        _fail(error.format_message(), 2)
    if isinstance(error, OSError) and error.errno in _REFUSALS:
        _fail(f"the system refused a file: {str(error)[:300]}. What was computed is kept.", 2)
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "allocate memory" in str(error)):
        _fail(f"memory ran out: {str(error)[:200] or 'Python got none'}. Ask for less.", 2)
    raise error


def _first_process() -> bool:
    """Of all that share the work, as torchrun, SLURM or Fabric's own launcher number them."""
    names = ("RANK",) if "RANK" in os.environ else ("LOCAL_RANK", "NODE_RANK", "SLURM_PROCID")
    return all(os.environ.get(name, "0") == "0" for name in names)


def _told_by_first(parent: int) -> bool:
    """Whether the first of several processes, which is not this one, says why the run ends."""
    from sartor.engine.watch import current

    watch = current()
    return watch.told_by_first() if watch is not None else not _first_process() and _ended(parent)


def _ended(parent: int) -> bool:
    """Whether the process that started this one ends, given a moment to do so."""
    limit = time.monotonic() + 5
    while os.getppid() == parent and time.monotonic() < limit:
        time.sleep(0.1)
    return os.getppid() != parent


def _fail(message: str, code: int) -> None:
    Console(stderr=True, soft_wrap=True, highlight=False).print(f"sartor: {message}", markup=False)
    sys.exit(code)
