"""The main job from Python: `fit`, `solve`, `compress`, `compare`, `audit`; the command line's options as keywords.

A test holds these signatures to the options' own dataclasses; what is None is left to those.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sartor.api.result import Result, load
from sartor.core.errors import BadInput
from sartor.core.threads import sleep_while_waiting

if TYPE_CHECKING:
    from torch import nn

    from sartor.compression.options import Hessian
    from sartor.costs.base import Cost
    from sartor.deploy.runtimes.base import Runtime
    from sartor.methods.base import Method
    from sartor.runs.schema import AuditFile, CompareFile
    from sartor.runs.verification import Verification
    from sartor.solvers.base import Solver
    from sartor.spaces.base import Space

Amount = str | float
Group = Mapping[str, Any]
Effort = Literal["quick", "standard", "thorough"]
Device = Literal["cpu", "cuda"]
Precision = Literal["float32", "int8", "auto"]


def fit(
    data: object,
    *,
    out: str | Path | None = None,
    latency: Amount | Mapping[str, Amount] | None = None,
    params: Amount | None = None,
    macs: Amount | None = None,
    memory: Amount | None = None,
    budgets: Mapping[str, Amount] | None = None,
    method: str | Group | Method | type[Method] | None = None,
    space: str | Group | Space | type[Space] | None = None,
    costs: str | Group | Iterable[str | Cost | type[Cost]] | None = None,
    solver: str | Group | Solver | type[Solver] | None = None,
    runtime: str | Runtime | type[Runtime] | None = None,
    target: str | Mapping[str, str] | None = None,
    start: str | Path | None = None,
    precision: Precision | None = None,
    time: str | float | None = None,
    effort: Effort | None = None,
    device: Device | None = None,
    threads: int | None = None,
    batch: int | None = None,
    image: int | None = None,
    seed: int | None = None,
    val: float | None = None,
    test: float | None = None,
    train: Group | None = None,
    devices: int | None = None,
    nodes: int | None = None,
    logger: str | None = None,
    quiet: bool | None = None,
) -> Result:
    """Search, solve, train, verify and export a network for `data` inside the budgets.

    `data` is a path, a name, ``"package.module:function"``, a pair of arrays, a sequence of (image, label), a torch
    `Dataset` or a data set of Hugging Face's. Budgets: `latency` ("5ms"), `params` ("2M"), `macs` ("50M"), `memory`
    ("4MB"), any of them, and in `budgets` those of further costs; without one the method's own selection decides.
    `method`, `space`, `costs`, `solver` and `runtime`
    are names, ``"package.module:Class"``, classes or instances; ``method={"passes": 4}`` and the like set a group's own
    options, ``{"name": "xnas", "epochs": 20}`` both. `val` and `test` are the shares of images kept aside, `train`
    the recipe of the network that comes out. `target` says where it will run (docs/targets.md): ``"ssh://pi@pi4"``, or
    several at once, ``target={"laptop": "local", "pi": "ssh://pi@pi4"}`` with ``latency={"laptop": "5ms", "pi":
    "20ms"}``. `start` is a finished run, a safetensors file or timm:NAME, whose weights go into the
    search and the network, where they prove better than fresh ones. `logger` says where curves go:
    tensorboard, mlflow, wandb or none. The same call resumes an interrupted run.
    """
    sleep_while_waiting()
    from sartor.pipeline.options import default_folder, from_mapping
    from sartor.pipeline.order import fit as run
    from sartor.runs.progress import Reporter

    limits = _given(latency=latency, params=params, macs=macs, memory=memory) | dict(budgets or {})
    chosen = _given(
        method=method, space=space, costs=costs, solver=solver, runtime=runtime, target=target, time=time,
        start=_path(start), precision=precision,
        effort=effort, device=device, threads=threads, batch=batch, image=image, seed=seed, val=val, test=test,
        train=train, devices=devices, nodes=nodes, logger=logger,
    )  # fmt: skip
    values = {"data": _path(data), "budgets": limits, **chosen}
    folder = Path(out) if out is not None else default_folder(data)
    return load(run(from_mapping(values), folder, Reporter(quiet)), trust_code=True)


def solve(
    run: str | Path,
    *,
    latency: Amount | Mapping[str, Amount] | None = None,
    params: Amount | None = None,
    macs: Amount | None = None,
    memory: Amount | None = None,
    budgets: Mapping[str, Amount] | None = None,
    solver: str | Group | Solver | type[Solver] | None = None,
    precision: Precision | None = None,
    data: object = None,
    target: str | Mapping[str, str] | None = None,
    trust_code: bool = False,
    train: bool = True,
    quiet: bool | None = None,
) -> Result:
    """Another budget on a finished run: no search again. `data` is needed again where it was an object in Python.

    With ``train=False`` it ends with the decision: the result has `arch` and `frontier`, and the same call without it
    trains that network. `precision` may be another than the run's.
    `target` is where the device is now: a run that was solved with its profile is then measured and verified on it.

    A run with a space, method or cost from outside Sartor names code in its files, which is imported only where
    `trust_code` says that it may be.
    """
    sleep_while_waiting()
    from sartor.pipeline.order import solve as start
    from sartor.runs.progress import Reporter

    limits = _given(latency=latency, params=params, macs=macs, memory=memory) | dict(budgets or {})
    path = start(
        Path(run), limits, Reporter(quiet), solver=solver, precision=precision, data=data, target=target,
        trust_code=trust_code, train=train,
    )  # fmt: skip
    return load(path, trust_code=trust_code)


def compress(
    model: nn.Module | str | Path,
    data: object = None,
    *,
    out: str | Path | None = None,
    latency: Amount | Mapping[str, Amount] | None = None,
    params: Amount | None = None,
    macs: Amount | None = None,
    memory: Amount | None = None,
    budgets: Mapping[str, Amount] | None = None,
    costs: str | Group | Iterable[str | Cost | type[Cost]] | None = None,
    solver: str | Group | Solver | type[Solver] | None = None,
    runtime: str | Runtime | type[Runtime] | None = None,
    target: str | Mapping[str, str] | None = None,
    precision: Precision | None = None,
    effort: Effort | None = None,
    device: Device | None = None,
    threads: int | None = None,
    image: int | None = None,
    seed: int | None = None,
    val: float | None = None,
    test: float | None = None,
    train: Group | None = None,
    weights: str | Path | None = None,
    structures: str | Sequence[str] | None = None,
    rounds: int | None = None,
    epochs: int | None = None,
    pretrain: int | None = None,
    strength: float | None = None,
    rate: float | None = None,
    batch: int | None = None,
    hessian: Hessian | None = None,
    hessian_images: int | None = None,
    gradual: bool | None = None,
    levels: int | None = None,
    trust_code: bool = False,
    quiet: bool | None = None,
) -> Result:
    """Make a network smaller inside budgets: BayesNAS's structural compression, an exact solver, fine-tuning.

    `model` is an `nn.Module`, ``"package.module:function"`` or a run directory (`trust_code`: see `solve`); `data` as
    for `fit`. Budgets as there, or as shares of the given network: ``compress(net, "photos/", latency="2ms",
    macs="40%")``. The other options are those of `sartor.compression.options.Compression`.
    """
    sleep_while_waiting()
    from sartor.compression.given import default_folder, inherited
    from sartor.compression.options import from_mapping
    from sartor.compression.order import compress as run
    from sartor.runs.progress import Reporter

    named = isinstance(model, (str, Path))
    name = str(model) if named else f"{type(model).__module__}:{type(model).__qualname__}"
    limits = _given(latency=latency, params=params, macs=macs, memory=memory) | dict(budgets or {})
    options = _given(
        costs=costs, solver=solver, runtime=runtime, target=target, effort=effort, device=device, threads=threads,
        precision=precision, image=image, seed=seed, val=val, test=test, train=train,
        weights=None if weights is None else str(weights),
        structures=structures, rounds=rounds, epochs=epochs, pretrain=pretrain, strength=strength, rate=rate,
        batch=batch, hessian=hessian, hessian_images=hessian_images, gradual=gradual, levels=levels,
        data=_path(data),
    )  # fmt: skip
    values = {"model": name, "budgets": limits, **options}
    values = inherited(values) if named else values
    if "data" not in values:
        raise BadInput("the images are missing: give a folder of images, or a name such as 'digits'.")
    folder = Path(out) if out is not None else default_folder(name)
    path = run(
        from_mapping(values), folder, Reporter(quiet), None if isinstance(model, (str, Path)) else model, trust_code
    )
    return load(path, trust_code=trust_code or ":" in name)


def compare(
    run: str | Path,
    *,
    time: str | float | None = None,
    timm: Sequence[str] = (),
    trust_code: bool = False,
    quiet: bool | None = None,
) -> CompareFile:
    """What could have been trained instead of a finished run's network, inside the same budgets.

    ResNets, MobileNets, networks of `timm` by name and others of the run's own space: each is the largest that fits,
    trained by the same engine on the same images, all together for `time` ("5min"; a number is seconds), by default
    each as long as the run's network was. The same call resumes; the run's report shows the result.
    """
    sleep_while_waiting()
    from sartor.pipeline.compare import compare as start
    from sartor.runs.directory import Run
    from sartor.runs.progress import Reporter
    from sartor.runs.schema import CompareFile

    return Run(start(Path(run), time, timm, Reporter(quiet), trust_code)).load(CompareFile)


def export(
    run: str | Path,
    *,
    to: Sequence[str],
    data: object = None,
    trust_code: bool = False,
    quiet: bool | None = None,
) -> Path:
    """The network of a finished run for other runtimes: ``openvino``, ``litert``, ``torchscript``, any of them.

    A runtime of one's own that has a form is named as ``package.module:Class``. Each form is compared with the ONNX
    file on 100 images of the run (`data`, where they lie elsewhere now) and refused where a probability differs by a
    thousandth, in int8 by five hundredths; certificate and report repeat it. The folder that is returned, RUN/export,
    has a model card, too.
    """
    from sartor.compression.given import reopen
    from sartor.pipeline.exports import export as write
    from sartor.pipeline.order import report
    from sartor.runs.directory import Run
    from sartor.runs.progress import Reporter

    path, reporter = Path(run), Reporter(quiet)
    folder = write(path, list(to), lambda: reopen(path, trusted=trust_code), _path(data), reporter)
    report(path, Run(path, reporter))
    return folder


def audit(
    data: object,
    *,
    image: int | None = None,
    seed: int | None = None,
    val: float | None = None,
    test: float | None = None,
    quiet: bool | None = None,
) -> AuditFile:
    """What is suspicious about images, as a fit of them would find it: copies, contradictions, leaks, rare classes.

    `data` as for `fit`, as are the options that decide how it is read and split: `image`, `seed`, `val`, `test`.
    """
    from sartor.data.audit import audit as look
    from sartor.pipeline.context import drawn, read_images
    from sartor.pipeline.options import from_mapping
    from sartor.runs.progress import Reporter

    given = from_mapping({"data": _path(data), **_given(image=image, seed=seed, val=val, test=test)})
    images = read_images(given, Reporter(quiet))
    return look(images, drawn(given, images))


def verify(
    run: str | Path,
    *,
    data: object = None,
    here: bool = False,
    trust_code: bool = False,
    signed_by: str | Path | None = None,
) -> Verification:
    """Everything that a finished run claims, checked again from its directory alone; or a further budget of it.

    Hashes, what files say of each other, costs counted again from the ONNX file, the proof of optimality repeated. With
    `data` the test accuracy is measured again from model.onnx, with `here` the latency on this machine; `signed_by` is
    the public key (a PEM file) of whoever must have signed the certificate.
    """
    from sartor.compression.given import reopen
    from sartor.pipeline.verification import Ask
    from sartor.pipeline.verification import verify as check

    path = Path(run)
    key = None if signed_by is None else Path(signed_by)
    return check(path, lambda: reopen(path, trusted=trust_code), Ask(_path(data), here, key, trust_code))


def _given(**values: Any) -> dict[str, Any]:
    """Only what was given."""
    return {name: value for name, value in values.items() if value is not None}


def _path(data: object) -> object:
    """Paths as text, which config.toml records; objects as they are."""
    return str(data) if isinstance(data, Path) else data
