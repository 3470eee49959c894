"""In how many bits the network is deployed: 8 where that is asked for, or (`auto`) where it is faster and as good.

Parts are priced in both, and the problem is solved in both. Where the best network in 8 bits scores as much as that in
32, it is built in both forms, and these are timed together at every target before anything is trained: 8 bits are
decided on only where they take less everywhere, beyond what the measurements leave open. After training the network is
quantised (`quantising`); where that loses too much, or is slower after all, the problem is solved again in float32.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from torch import nn

from sartor.core.arch import Arch
from sartor.core.errors import BadInput, Infeasible
from sartor.core.registry import COSTS
from sartor.core.units import TIME
from sartor.costs.base import Cost
from sartor.deploy.export import INT8, TUNED, deployed_file, tell
from sartor.deploy.module import onnx_graph
from sartor.deploy.quantise import sketched
from sartor.pipeline import quantising
from sartor.pipeline.context import Context
from sartor.pipeline.cut import Cut, views
from sartor.pipeline.judging import evaluated
from sartor.pipeline.options import Plug
from sartor.pipeline.quantising import LOSS, Quantised
from sartor.runs.codec import encode
from sartor.runs.directory import atomic
from sartor.runs.schema import Compared, EvaluationFile, Int8EvaluationFile, QuantisedFile, SolutionFile, Spread
from sartor.solvers.base import Problem

Judged = tuple[dict[str, Compared], dict[str, Any]]  # by cost; and the timings by the first of them


# before training ---------------------------------------------------------------------------------


def considered(cut: Cut) -> tuple[str, ...]:
    """The precisions in which a network is looked for; float32 alone after one turned out not to be worth 8 bits."""
    asked: str = cut.context.options.precision
    if asked != "auto":
        return (asked,)
    return ("float32",) if impossible(cut) or refused(cut) else ("float32", "int8")


def impossible(cut: Cut) -> str | None:
    """Why 8 bits cannot be compared with 32 here, if so."""
    for name, cost in _judges(cut).items():
        if not cost.live:
            return f"{name} cannot be measured now, so nobody knows whether int8 is faster"
        if cost.int8() is None:
            return f"the runtime that {name} is measured under has no int8"
    return None


def _judges(cut: Cut) -> dict[str, Cost]:
    """The measured times that 8 bits must shorten: those that are limited, else those asked for, else the run's own."""
    c = cut.context
    times = {n: cost for n, cost in c.costs.items() if cost.measured and cost.kind == TIME}
    limited = {n: cost for n, cost in times.items() if n in cut.budgets}
    if limited or times:
        return limited or times
    name = next(name for name in COSTS.names() if COSTS[name].measured and COSTS[name].kind == TIME)
    return {name: c.options.made_cost(Plug(name))}


def roomier(cut: Cut) -> str:
    """The precision whose budgets have room for the network that computes most: the search learns about such."""

    def most(precision: str) -> float:
        tables = cut.tables(precision)
        try:
            return cut.context.best(Problem(tables[Cost.guide].form, cut.limits(tables))).score
        except Infeasible:
            return 0.0

    each = considered(cut)
    return each[0] if len(each) == 1 else max(each, key=most)


def forms(cut: Cut, arch: Arch) -> dict[str, Compared]:
    """Both forms of a network that is not trained yet, timed together; its weights do not matter for that."""
    c, found = cut.context, None
    net, (plain, small) = c.deployed(cut.network(arch)), sketches(cut, arch)
    if c.run.writer:
        with TemporaryDirectory() as folder:
            files = {name: Path(folder) / f"{name}.onnx" for name in ("float32", "int8")}
            files["float32"].write_bytes(plain)
            files["int8"].write_bytes(small)
            found = _timed(cut, net, files)[0]
    agreed: dict[str, Compared] = c.engine.agree(found)
    return agreed


def sketches(cut: Cut, arch: Arch) -> tuple[bytes, bytes]:
    """A network that is not trained yet as it would be deployed in 32 bits and in 8; refused where that cannot be."""
    plain = onnx_graph(cut.context.deployed(cut.network(arch)), cut.context.shape)
    return plain, sketched(plain, quantising.weight_bits(cut), strict=True)


def _timed(cut: Cut, net: nn.Module, files: Mapping[str, Path]) -> Judged:
    """Both files at every target that is there."""
    compared, timings = dict[str, Compared](), dict[str, Any]()
    for name, cost in _judges(cut).items():
        if cost.live:
            found = cost.compare(net, files, cut.context.shape)
            compared[name] = Compared(*(Spread(m.value, m.low, m.high) for m in (found["float32"], found["int8"])))
            timings = timings or {form: m.details.get("timing") for form, m in found.items()}
    return compared, timings


def decided(cut: Cut, worth: Mapping[str, float], small: Arch | None) -> tuple[str, str | None, dict[str, Compared]]:
    """The precision to deploy, why that one, and both forms of `small`, the best network in 8 bits, where it mattered.

    `worth` is what the best network in each precision promises.
    """
    asked = cut.context.options.precision
    if asked != "auto":
        if small is not None:
            sketches(cut, small)
        return asked, None, {}
    if small is None or worth["int8"] < worth.get("float32", -np.inf):
        before = cut.run.load(QuantisedFile).why if refused(cut) else None
        return "float32", before or impossible(cut) or "a better network fits", {}
    try:
        compared = forms(cut, small)
    except BadInput as error:  # there is nothing to quantise
        return "float32", str(error), {}
    slow = [name for name, both in compared.items() if not both.faster]
    if slow:
        return "float32", f"int8 is not faster by {' and '.join(slow)}", compared
    return "int8", "as good a network fits, and it is faster", compared


# after training ----------------------------------------------------------------------------------


def refused(cut: Cut) -> bool:
    """Whether a trained network turned out not to be worth 8 bits."""
    return (cut.run.path / QuantisedFile.NAME).is_file() and not cut.run.load(QuantisedFile).used


def export(cut: Cut) -> list[str]:
    """Quantise what was exported; which files that leaves. The 8-bit file is there only if it is what is deployed."""
    c, run = cut.context, cut.run
    for name in (INT8, TUNED, Int8EvaluationFile.NAME) if run.writer else ():
        (run.path / name).unlink(missing_ok=True)
    if c.options.precision == "float32" or (c.options.precision == "auto" and impossible(cut)):
        return []
    if run.writer:
        _export(cut)
    c.engine.barrier()
    written = (QuantisedFile.NAME, INT8, TUNED, Int8EvaluationFile.NAME)
    return [name for name in written if (run.path / name).is_file()]


def _export(cut: Cut) -> None:
    """Make the 8-bit form, compare it with the other one, and keep it where it is deployed."""
    c, run, small = cut.context, cut.run, cut.precision == "int8"
    try:
        made = quantising.make(cut, tune=small)
    except BadInput as error:
        if small:
            raise BadInput(f"{error} Use --precision float32: what was trained is not lost.") from error
        c.run.log(f"{error} It is deployed in float32.")
        (run.path / QuantisedFile.NAME).unlink(missing_ok=True)
        return
    files = {"float32": deployed_file(run.path), "int8": run.path / INT8}
    with atomic(files["int8"]) as tmp:
        tmp.write_bytes(made.graph)
    compared, timings = _timed(cut, c.deployed(cut.trained(), views(run)), files)
    against = _against(made, compared)
    used = small and (c.options.precision == "int8" or against is None)
    why = (against or "as accurate and faster") if small else run.load(SolutionFile).why or "float32 was decided on"
    right = {name: _evaluated(c, file) for name, file in files.items()}
    if used:
        tell(files["int8"], temperature=f"{right['int8'][0].reliability.temperature:.6g}")
        run.save(Int8EvaluationFile(**vars(right["int8"][0])))
    chosen_on = {"float32": made.in_float, "int8": made.best}
    run.record(QuantisedFile, {
        "asked": c.options.precision, "used": used, "why": why, "way": str(made),
        "reduce_range": quantising.weight_bits(cut) < 8, "calibration_images": made.calibrated,
        "validation_images": made.chosen_on, "held_out": quantising.deciding(cut)[1], "metric": c.task.metric,
        "tried": {str(w): v for w, v in made.shares.items()}, "compared": encode(compared),
        **{n: {**found, "val_accuracy": chosen_on[n], "bytes": files[n].stat().st_size, "timing": timings.get(n)}
           for n, (_, found) in right.items()},
    })  # fmt: skip
    for name in () if used else (INT8, TUNED):
        (run.path / name).unlink(missing_ok=True)
    told = "; ".join(f"{n} takes {_told(both)}" for n, both in compared.items()) or "not timed"
    c.run.log(
        f"int8 ({made}): {c.task.metric} {made.best:.2f} % against {made.in_float:.2f} % on {made.chosen_on} images; "
        f"{told}: {why}; deployed in {'int8' if used else 'float32'}"
    )


def _against(made: Quantised, compared: Mapping[str, Compared]) -> str | None:
    """What speaks against deploying 8 bits, if anything does."""
    if any(both.slower for both in compared.values()):
        return "slower"
    return f"{made.lost:.2f} points less accurate" if made.lost > LOSS else None


def _told(both: Compared) -> str:
    return f"{TIME.show(both.int8.value)} against {TIME.show(both.float32.value)}"


def _evaluated(c: Context, file: Path) -> tuple[EvaluationFile, dict[str, Any]]:
    """What a file gets right of the test images."""
    val = None if c.train.images == "all" else quantising.judged_on(c, file, c.splits.val)
    return evaluated(c, quantising.judged_on(c, file, c.splits.test), val)
