"""The stages of a run, one function each; `order` says who comes after whom.

A stage reads files of the run directory and writes its own, whose names it returns. The two that take most of the room
have files of their own: `decision` and `training`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from sartor.core.arch import Arch
from sartor.core.errors import RunError
from sartor.costs.base import Cost, CostTable, Measured
from sartor.data.audit import audit
from sartor.data.naming import describe
from sartor.deploy.export import (
    deployed_file,
    export_onnx,
    metadata_of,
    save_weights,
    write_predict,
    write_preprocessing,
)
from sartor.methods.base import Gauge
from sartor.pipeline import ancestry, decision, precision
from sartor.pipeline.context import Context, Search
from sartor.pipeline.cut import Cut, FitCut, chosen, views
from sartor.runs.codec import encode
from sartor.runs.directory import Run, sha256
from sartor.runs.progress import Bar, span
from sartor.runs.schema import (
    EvaluationFile,
    Gauged,
    ModelFile,
    Rule,
    ScoreFile,
    Slowed,
    SolutionFile,
    SplitsFile,
    VerifyFile,
    held,
)


def data(c: Context) -> list[str]:
    """Which images are trained on, validated on, tested on; what was skipped."""
    c.run.record(SplitsFile, {
        **c.splits.to_json(),
        "name": c.images.name, "classes": list(c.images.class_names), "digest": c.images.digest(),
        "digest_of": c.images.digest_of, "task": c.task.to_json(),
        "mean": list(c.feed.mean), "std": list(c.feed.std),
        "skipped": [{"name": s.name, "reason": s.reason} for s in c.images.skipped], "native": c.images.native,
    })  # fmt: skip
    for note in c.images.notes:
        c.run.log(note)
    if c.images.kept_in is not None:
        c.run.log(f"the decoded images are kept for the next run, in {c.images.kept_in}; it may be deleted at any time")
    found = audit(c.images, c.splits)
    for line in found.lines():
        c.run.log(line)
    # The options too: a changed one would change what is resumed.
    return ["splits.json", c.run.save(found), "config.toml", "env.json", *ancestry.record(c)]


def plan(c: Search) -> None:
    """Say how the time will be spent, as far as that is known before anything is timed."""
    if c.clock.seconds is not None and not c.run.done("costs"):
        first = "parts of networks are timed first; " if any(cost.measured for cost in c.costs.values()) else ""
        c.run.log(
            f"of {span(c.clock.seconds)}: {first}up to {100 * c.share:.0f} % of the rest are the search's; then the "
            f"network is trained, and the last {span(c.ending)} export and check it"
        )


def same_data(c: Context) -> None:
    """Refuse to go on with other images than the run began with: its splits and weights would mean something else."""
    began = c.run.load(SplitsFile)
    splits = {"train": list(began.train), "val": list(began.val), "test": list(began.test)}
    if began.digest != c.images.digest() or splits != c.splits.to_json():
        raise RunError(
            f"{describe(c.options.data)} has changed since {c.run.path} was begun ({c.images.digest_of} and labels "
            "differ). Restore it, or choose another --out."
        )


def priced(c: Context) -> dict[str, tuple[str, Cost]]:
    """Every table's file, the name of its budget and its cost: in 8 bits too where these may be deployed."""
    found = {f"costs/{name}.json": (name, cost) for name, cost in c.costs.items()}
    small = {n: None if c.options.precision == "float32" else cost.int8() for n, cost in c.costs.items()}
    return found | {f"costs/int8/{name}.json": (name, cost) for name, cost in small.items() if cost}


def costs(cut: Cut, known: Sequence[str] = ()) -> list[str]:
    """Price every distinct part of the space on the target device; which tables are new beside those `known`."""
    c, files = cut.context, []
    for file, (name, cost) in priced(cut.context).items():
        if file in known:
            continue
        if c.run.writer:
            what = f"{name} in int8" if Path(file).parent.name == "int8" else name
            with c.run.reporter.bar(f"{'timing parts for' if cost.measured else 'counting'} {what}", 100) as bar:
                table = replace(cut.price(cost, partial(_tick, bar)), cost=name)
            c.run.write(file, table.to_json())
        files.append(file)
    c.engine.barrier()
    return files


def same_device(cut: Cut) -> None:
    """Refuse a target that is another device than the one that was priced."""
    for name, table in cut.tables().items():
        cost = cut.context.costs[name]
        now = cost.identity() if cost.live and table.device else {}
        other = sorted(k for k in now.keys() & table.device.keys() if now[k] != table.device[k])
        if other:
            words = ", ".join(f"{k} {now[k]} instead of {table.device[k]}" for k in other)
            raise RunError(f"this is not the device that {name} was priced on: {words}. Fit for this one instead.")


def _tick(bar: Bar, name: str, done: int, total: int) -> None:
    bar.to(100 * done // total, name)


def search(cut: FitCut, prepared: object = None) -> list[str]:
    """The method learns its score."""
    c = cut.context
    tables = cut.tables(precision.roomier(cut))
    macs = tables[Cost.guide].form if Cost.guide in tables else None
    gauge = Gauge(tuple(cut.measured), partial(_gauged, cut, tables)) if cut.measured else None
    job = c.job(limits=cut.limits(tables), macs=macs, gauge=gauge, prepared=prepared)
    if job.seconds is not None:
        left, share, rest = c.clock.left, job.seconds, c.clock.left - job.seconds - c.ending
        c.run.log(
            f"of the {span(left)} that are left: up to {span(share)} of search, {span(rest)} to train what it finds"
        )
    found = c.method.search(job)
    c.run.record(ScoreFile, {
        "method": c.config()["method"]["name"], "unit": found.unit, "quality": found.quality, "facts": found.facts,
        "choices": [{"name": x.name, "options": x.options, "needs": x.needs} for x in c.space.choices],
        "score": found.score.to_json(), "rules": [encode(Rule.of(rule)) for rule in c.space.rules],
    })  # fmt: skip
    return ["score.json", *found.files]


def _gauged(cut: Cut, tables: Mapping[str, CostTable], arch: Arch) -> Gauged:
    """A network built and measured; the upper end of what it comes to."""
    found = {n: m.high for n, m in decision.built(cut, arch, tables).items()}
    show = {n: tables[n].kind.show for n in found}
    told = " and ".join(f"{show[n](v)} where {show[n](tables[n].form(arch))} was predicted" for n, v in found.items())
    cut.run.log(f"built and measured before the trials: {cut.space.describe(arch)}, {told}")
    return Gauged(arch.picks, tables[cut.measured[0]].precision, found)


def export(cut: Cut) -> list[str]:
    """Everything a person needs to deploy the network, in one folder."""
    c, arch, looks, folder = cut.context, chosen(cut.run), views(cut.run), cut.run.path / "model"
    if c.run.writer:
        net = cut.trained()
        save_weights(net, folder / "weights.safetensors")
        # The certificate, which is made later, has the same two hashes, and this file's own.
        hashes = {"weights_sha256": sha256(folder / "weights.safetensors"), "data_sha256": c.images.digest()}
        told = metadata_of(c.task, c.images.class_names, **hashes, **_heat(cut.run))
        error = export_onnx(c.deployed(net, looks), c.task, folder / "model.onnx", told)
        write_predict(folder / "predict.py")
        names = c.images.class_names
        write_preprocessing(folder / "preprocessing.json", c.task, c.feed.mean, c.feed.std, names, looks)
        cut.run.record(ModelFile, {
            **cut.described(), "task": c.task.to_json(), "architecture": arch.named(cut.space.choices),
            "picks": list(arch.picks), "string": cut.space.describe(arch), "onnx_error": error,
        })  # fmt: skip
    files = ("model.onnx", "weights.safetensors", "arch.json", "preprocessing.json", "labels.json", "labels.txt")
    return [*(f"model/{name}" for name in (*files, "predict.py")), *precision.export(cut)]


def _heat(run: Run) -> dict[str, str]:
    """What the model file says of the divisor that calibrates its logits."""
    if not (run.path / EvaluationFile.NAME).is_file():
        return {}
    return {"temperature": f"{run.load(EvaluationFile).reliability.temperature:.6g}"}


def _slowed(cut: Cut, name: str, measured: float) -> Slowed | None:
    """Where a trained network is over its limit: a device that has become slower since the network was chosen.

    Then it was inside, built and not trained yet; it is built and measured again. A neighbour who came in between does
    not make a training worthless.
    """
    before, limit = cut.run.load(SolutionFile).built.get(name), cut.budgets[name]
    if before is None or measured <= limit:
        return None
    now = cut.measure(name, cut.network(chosen(cut.run)), cut.tables()[name], views=views(cut.run)).value
    if now <= before or not held(measured, limit, slowed := Slowed(before, now)):
        return None
    show = cut.context.costs[name].kind.show
    cut.run.log(
        f"the device has become slower: the network as built took {show(before)} before its training and takes "
        f"{show(now)} now; the trained one, {show(measured)} now, then takes {show(measured / slowed.times)}"
    )
    return slowed


def verify(cut: Cut) -> list[str]:
    """Every budget against the network as deployed: counted, or measured on the exported file.

    On a device that is not there nothing can be measured: then what its profile predicts stands there, and says so.
    """
    c, tables, decided = cut.context, cut.tables(), cut.run.load(SolutionFile)
    net, found, file = cut.trained(), {}, deployed_file(cut.run.path)
    for name, table in tables.items():
        live, predicted = c.costs[name].live, decided.times.get(name, 1.0) * table.form(decided.arch)
        measured = cut.measure(name, net, table, file, decided.views) if live else Measured.exact(predicted)
        entry: dict[str, Any] = {
            "kind": table.kind.to_json(), "predicted": predicted, "measured": measured.value, **measured.details,
            "device": dict(table.device) or None, "on_device": live if c.costs[name].measured else None,
        }  # fmt: skip
        if name in cut.budgets:
            slowed = _slowed(cut, name, measured.value) if live else None
            holds = held(measured.value, cut.budgets[name], slowed)
            entry |= {"limit": cut.budgets[name], "holds": holds, "slowed": slowed and encode(slowed)}
        found[name] = entry
    fits = all(e.get("holds", True) for e in found.values())
    priced = next((dict(t.device) for t in tables.values() if "processor" in t.device), None)
    device = priced or replace(c.runtime(), precision=cut.precision).identity()
    cut.run.record(VerifyFile, {"fits": fits, "costs": found, "device": device})
    c.engine.barrier()
    return ["verify.json"]
