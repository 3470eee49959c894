"""The stages of a run, one function each; `order` says who comes after whom.

A stage reads files of the run directory and writes its own, whose names it returns.
"""

from __future__ import annotations

import bisect
import copy
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from sartor.core.arch import Arch, canonical
from sartor.core.errors import Infeasible, RunError, SolverError
from sartor.core.quadratic import Largest, Limit, Quadratic
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
from sartor.engine import checkpoint
from sartor.engine.evaluate import accuracy, outputs
from sartor.engine.judgement import by_halves, judged, reliability, temperature
from sartor.engine.network import Masks, settle_norms, train_network
from sartor.engine.seeding import seeded
from sartor.pipeline import precision
from sartor.pipeline.context import Context
from sartor.pipeline.cut import Cut, FitCut, Start, chosen
from sartor.pipeline.final import Final, from_elsewhere, suited
from sartor.pipeline.teaching import wide_teacher
from sartor.runs.codec import encode
from sartor.runs.directory import Run, atomic, sha256
from sartor.runs.progress import Bar, span
from sartor.runs.schema import (
    AuditFile,
    EvaluationFile,
    FrontierFile,
    ModelFile,
    Rule,
    ScoreFile,
    SolutionFile,
    SplitsFile,
    TrainingFile,
    VerifyFile,
)
from sartor.solvers import cheapest
from sartor.solvers.base import Frontier, NotSeparable, Problem, Solution
from sartor.solvers.frontier import frontier

_SHARE = 0.06  # of the training, for each of two starts to show which is better
_TRIES = 12  # corrections of a table before giving up
_SPARE, _USED = 5, 0.93  # how often to use room that a measurement leaves, and the share of a budget that is used up
_AFTER, _QUANTISING = 12.0, 20.0  # seconds for exporting, measuring and the report; and for 8 bits
_SURE = 2.0  # standard errors by which a network that was not tried must be ahead of those that were
_LEAST = 0.1  # of the time: a network that is trained for less is worth nothing


def data(c: Context) -> list[str]:
    """Which images are trained on, validated on, tested on; what was skipped."""
    c.run.record(SplitsFile, {
        **c.splits.to_json(),
        "name": c.images.name, "classes": list(c.images.class_names), "digest": c.images.digest(),
        "digest_of": c.images.digest_of, "task": c.task.to_json(),
        "mean": list(c.feed.mean), "std": list(c.feed.std),
        "skipped": [{"name": s.name, "reason": s.reason} for s in c.images.skipped],
    })  # fmt: skip
    if c.images.kept_in is not None:
        c.run.log(f"the decoded images are kept for the next run, in {c.images.kept_in}; it may be deleted at any time")
    found = audit(c.images, c.splits)
    for line in found.lines():
        c.run.log(line)
    # The options too: a changed one would change what is resumed.
    return ["splits.json", c.run.save(found), "config.toml", "env.json"]


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
    small = {n: None if c.options.precision == "float32" else cost.small() for n, cost in c.costs.items()}
    return found | {f"costs/int8/{name}.json": (name, cost) for name, cost in small.items() if cost}


def costs(cut: Cut, known: Sequence[str] = ()) -> list[str]:
    """Price every distinct part of the space on the target device; which tables are new beside those `known`."""
    c, files = cut.context, []
    for file, (name, cost) in priced(cut.context).items():
        if file in known:
            continue
        if c.run.writer:
            with c.run.reporter.bar(f"pricing {Path(file).stem}", 100) as bar:
                table = replace(cut.price(cost, partial(_tick, bar)), cost=name)
            c.run.write(file, table.to_json())
        files.append(file)
    c.engine.barrier()
    return files


def same_device(cut: Cut) -> None:
    """Refuse a target that is another device than the one that was priced."""
    for name, table in cut.tables().items():
        cost = cut.context.costs[name]
        now = cost.identity() if cost.live and table.device and hasattr(cost, "identity") else {}
        other = sorted(k for k in now.keys() & table.device.keys() if now[k] != table.device[k])
        if other:
            words = ", ".join(f"{k} {now[k]} instead of {table.device[k]}" for k in other)
            raise RunError(f"this is not the device that {name} was priced on: {words}. Fit for this one instead.")


def _tick(bar: Bar, name: str, done: int, total: int) -> None:
    bar.to(100 * done // total, name)


def search(cut: FitCut, prepared: object = None) -> list[str]:
    """The method learns its score."""
    c = cut.context
    job = c.job(cut.limits(cut.tables(precision.roomier(cut))), prepared)
    if job.seconds is not None:
        left, share = span(c.clock.left), span(job.seconds)
        c.run.log(f"of the {left} that are left, about {share} are the search's; most of the rest trains the network")
    found = c.method.search(job)
    c.run.record(ScoreFile, {
        "method": c.config()["method"]["name"], "unit": found.unit, "quality": found.quality, "facts": found.facts,
        "choices": [{"name": x.name, "options": x.options, "needs": x.needs} for x in c.space.choices],
        "score": found.score.to_json(), "rules": [encode(Rule.of(rule)) for rule in c.space.rules],
    })  # fmt: skip
    return ["score.json", *found.files]


# the decision ------------------------------------------------------------------------------------


def check(cut: Cut) -> None:
    """Stop before any training where no network of the space can meet the budgets."""
    _each(cut, lambda bits: _best(cut, Quadratic(cut.space.sizes), cut.tables(bits)))


Answer = TypeVar("Answer")


def _each(cut: Cut, solve: Callable[[str], Answer]) -> dict[str, Answer]:
    """The answers in every precision that may be deployed; one that has none counts only if there is no other."""
    found, failed = dict[str, Answer](), list[Infeasible]()
    for bits in precision.considered(cut):
        try:
            found[bits] = solve(bits)
        except Infeasible as error:
            failed.append(error)
    if not found:
        raise min(failed, key=lambda error: math.inf if error.least is None else error.least)
    return found


def decide(cut: Cut) -> list[str]:
    """The frontier, and the best network inside the budgets that really is, in the precision that allows a better one.

    In equal ones it is float32.
    """
    goal = cut.goal()
    found = _each(cut, lambda bits: _fitting(cut, goal, cut.tables(bits)))
    worth = {bits: _worth(cut, goal, arch) for bits, (_, arch, _) in found.items()}
    best = max(worth, key=lambda bits: worth[bits])
    if len(worth) > 1:
        told = " and ".join(f"{value:.4g} in {bits}" for bits, value in worth.items())
        cut.context.run.log(f"the best network inside the budgets scores {told}: {best} is chosen")
    solution, arch, tables = found[best]
    for n, table in tables.items():
        if table.corrections or table.precision == "int8" or (cut.run.path / f"{n}.json").exists():
            cut.keep(table)
    return _write_decision(cut, goal, tables, solution, arch)


def _fitting(cut: Cut, goal: Quadratic, tables: dict[str, CostTable]) -> tuple[Solution, Arch, dict[str, CostTable]]:
    """The best network inside the budgets by the tables, each candidate built and measured; and the tables after that.

    A network over its budget corrects the table, and the problem is solved again. So does one that leaves room which
    the table did not know of, a few times, in both directions; the best of those that fitted stays, together with the
    tables that led to it.
    """
    c = cut.context
    fits: tuple[Solution, Arch, dict[str, CostTable]] | None = None
    tries, spare = 0, _SPARE
    while True:
        try:
            solution = _preferred(cut, goal, tables, _thrifty(cut, goal, tables, _best(cut, goal, tables)))
        except Infeasible:
            if fits is None:
                raise
            break
        arch = canonical(cut.space.choices, solution.arch)
        if fits is not None and arch == fits[1]:
            break
        found = _built(cut, arch, tables)
        # The upper end of the interval must fit: what barely fits today may not when it is verified.
        over = [n for n, m in found.items() if m.high > cut.budgets[n]]
        roomy = [n for n, m in found.items() if m.high < min(_USED * cut.budgets[n], tables[n].form(arch))]
        if not over and (fits is None or _worth(cut, goal, arch) > _worth(cut, goal, fits[1])):
            fits = solution, arch, dict(tables)
        if fits is not None and (spare == 0 or not (over or roomy)):
            break
        spare -= fits is not None
        tries += bool(over)
        for n in over:
            show = c.costs[n].kind.show
            c.run.log(
                f"built and measured: {show(found[n].value)} (up to {show(found[n].high)}) where "
                f"{show(tables[n].form(arch))} was predicted; correcting the {n} table"
            )
            # Between a network that fitted and one that is over lies the answer: then half a correction is enough.
            amount = found[n].high if fits is None else math.sqrt(found[n].high * tables[n].form(arch))
            tables[n] = _correct(cut, tables[n], arch, amount, tries)
        for n in roomy if not over else ():
            tables[n] = cut.correct(tables[n], arch, found[n].high, both_ways=True)
    return fits


def _built(cut: Cut, arch: Arch, tables: Mapping[str, CostTable]) -> dict[str, Measured]:
    """What a network that is not trained yet comes to: its weights do not matter for that."""
    net = cut.network(arch)
    return {n: cut.measure(n, net, tables[n]) for n in cut.measured}


def _preferred(cut: Cut, goal: Quadratic, tables: Mapping[str, CostTable], solution: Solution) -> Solution:
    """The score's optimum, or the best network inside the limits that was tried.

    An optimum that was not tried is the best of very many guesses: it must promise more, by twice its error.
    """
    limits, optimum = cut.limits(tables), canonical(cut.space.choices, solution.arch)
    promise = _worth(cut, goal, optimum) - (0.0 if optimum in cut.tried() else _SURE * _doubt(goal, optimum))
    better = [a for a, v in cut.tried().items() if v > promise and all(limit.holds(a) for limit in limits)]
    if not better:
        return solution
    arch = max(better, key=partial(_worth, cut, goal))
    return replace(solution, arch=arch, score=goal(arch), solver="trials")


def _doubt(goal: Quadratic, arch: Arch) -> float:
    """The standard error of the score, its terms taken as independent."""
    if goal.errors is None:
        return 0.0
    errors = goal.errors
    terms = [errors.constant, *(v[arch.picks[i]] for i, v in errors.linear.items())]
    terms += [t[arch.picks[i], arch.picks[j]] for (i, j), t in errors.pairs.items()]
    return float(np.linalg.norm(terms)) if terms else 0.0


def _worth(cut: Cut, goal: Quadratic, arch: Arch) -> float:
    """What a trial showed, else the score."""
    return cut.tried().get(arch, goal(arch))


def _best(cut: Cut, goal: Quadratic, tables: dict[str, CostTable]) -> Solution:
    """The optimum; where the tables say that nothing fits, what they call cheapest is measured first, and believed."""
    for _ in range(_TRIES):
        try:
            return cut.context.best(Problem(goal, cut.limits(tables)))
        except Infeasible as error:
            name, problem = error.limit, error
        if not any(_relax(cut, tables, n) for n in cut.measured if name in (n, None)):
            break
    if name is None or name not in cut.budgets or problem.asked is None or problem.least is None:
        raise problem
    form = tables[name].form
    least = _least(cut, tables, name, form.steps) if isinstance(form, Largest) else problem.least
    raise cut.impossible(name, cut.budgets[name], least) from problem


def _least(cut: Cut, tables: Mapping[str, CostTable], name: str, steps: list[float]) -> float:
    """The smallest budget that can be met of a cost that goes by its largest part, the other limits aside."""

    def met(high: float) -> bool:
        try:
            cut.context.best(Problem(Quadratic(cut.space.sizes), (tables[name].limit(high), *cut.space.rules)))
        except Infeasible:
            return False
        return True

    return steps[bisect.bisect_left(steps, True, key=met)]


def _relax(cut: Cut, tables: dict[str, CostTable], name: str) -> bool:
    """Whether the network that the table calls cheapest measures less than that; the table then learns it."""
    others = [limit for limit in cut.limits(tables) if limit.name != name]
    if not tables[name].form.sums:
        return False
    try:
        arch = cheapest(tables[name].form, others).arch
    except (Infeasible, SolverError):
        return False
    predicted, found = tables[name].form(arch), _built(cut, arch, tables)[name].high
    if found >= 0.98 * predicted:
        return False
    show = cut.context.costs[name].kind.show
    cut.context.run.log(f"the cheapest network measures {show(found)} where {show(predicted)} was predicted")
    tables[name] = cut.correct(tables[name], arch, found, both_ways=True)
    return True


def _thrifty(cut: Cut, goal: Quadratic, tables: Mapping[str, CostTable], solution: Solution) -> Solution:
    """Of the networks that score as much, the one that costs least on the axis; a frontier gives that by itself."""
    if len(cut.budgets) < 2:
        return solution
    as_good = Limit("score", goal, low=solution.score)
    try:
        arch = cheapest(tables[cut.axis].form, (*cut.limits(tables), as_good), known=solution.arch).arch
    except (Infeasible, SolverError):  # equal scores are a matter of the last digit; the solution stands
        return solution
    return replace(solution, arch=arch, score=goal(arch))


def _correct(cut: Cut, table: CostTable, arch: Arch, measured: float, tries: int) -> CostTable:
    """The table after a measurement over the limit; gives up after many."""
    limit = cut.budgets[table.cost]
    # A hair above the budget may be what was predicted: the correction must still exclude this network.
    table = cut.correct(table, arch, max(measured, limit * 1.001))
    if tries + 1 >= _TRIES:
        raise Infeasible(
            f"{_TRIES} networks in a row measured over {table.kind.show(limit)} though predicted below: this machine "
            "is too busy to measure on. Run the same command again when it is quieter; nothing is lost."
        )
    return table


def _write_decision(
    cut: Cut, goal: Quadratic, tables: Mapping[str, CostTable], solution: Solution, arch: Arch
) -> list[str]:
    if cut.traded:
        _write_frontier(cut, goal, tables)
    corrected = [n for n in tables if (cut.run.path / f"{n}.json").exists()]
    drawing = cut.space.draw(arch)
    if drawing.warning:
        cut.context.run.log(f"warning: {drawing.warning}")
    cut.run.record(SolutionFile, {
        "budgets": dict(cut.budgets), "solution": {**solution.to_json(), "picks": list(arch.picks)},
        "architecture": arch.named(cut.space.choices), "string": cut.space.describe(arch),
        "drawing": drawing.to_json(), "predicted": {n: t.form(arch) for n, t in tables.items()},
        "corrections": [entry for n in corrected for entry in tables[n].corrections],
    })  # fmt: skip
    own = cut.decided(arch) + ["frontier.json"] * cut.traded
    return ["solution.json", *(f"{n}.json" for n in corrected), *own]


def _write_frontier(cut: Cut, goal: Quadratic, tables: Mapping[str, CostTable]) -> None:
    """Every optimal trade-off between the axis and the score, with all costs of every point."""
    space = cut.space
    try:
        points = frontier(goal, tables[cut.axis].form, space.rules)
        canon = [canonical(space.choices, points.arch(n)).picks for n in range(len(points))]
        points = Frontier(points.cost, points.score, np.asarray(canon, np.int64))
    except NotSeparable as error:
        cut.context.run.log(f"the frontier is left out: {error}")
        points = Frontier(np.zeros(0), np.zeros(0), np.zeros((0, len(space.sizes)), np.int64))
    cut.run.record(FrontierFile, {
        "axis": cut.axis, "kind": tables[cut.axis].kind.to_json(), "complete": len(points) > 0, **points.to_json(),
        "costs": {n: t.form.batch(points.picks).tolist() for n, t in tables.items()},
        "kinds": {n: t.kind.to_json() for n, t in tables.items()},
        "strings": [space.describe(points.arch(n)) for n in range(len(points))],
    })  # fmt: skip


# the network -------------------------------------------------------------------------------------


def train(cut: Cut) -> list[str]:
    """Train the chosen network, from what it inherits or from scratch, as `final` says, on all images but the test's.

    Where validation images are kept aside and training lowers their accuracy, the inherited weights are kept.
    A network that another budget of this search has trained is taken from there.
    """
    c, arch = cut.context, chosen(cut.run)
    files = ["training.json", "model/trained.safetensors", EvaluationFile.NAME]
    known = _trained_before(cut, arch)
    if known is not None:
        c.run.log(f"this network was trained before, in {known.path}: its weights are taken")
        files = [name for name in files if (known.path / name).is_file()]  # older runs have no evaluation
        _copy(known, cut.run, files)
        return files
    with seeded(c.seeds.number("network")):
        begin = cut.start(arch)
    recipe, least = c.train, None
    if cut.elsewhere:
        begin, recipe, least = _better(cut, arch, begin)
    net, masks, before, kept = begin.net, Masks(begin.net, begin.masks), None, "trained"
    everything = c.train.images == "all"
    if begin.inherited:
        masks.apply()
        settle_norms(net, c.feed, c.splits)
        before = accuracy(net, c.feed, c.splits.val)
        inherited = {name: value.clone() for name, value in net.state_dict().items()}
    start = time.monotonic()
    splits = replace(c.splits, train=np.union1d(c.splits.train, c.splits.val)) if everything else c.splits
    teacher = begin.teacher if c.train.teacher else None
    seconds = cut.seconds if c.train.epochs or cut.seconds is not None else _left(cut)
    if teacher is None and c.train.teaching and not c.train.epochs and cut.seconds is None:
        teacher = wide_teacher(c, net, c.train.teaching * _left(cut), least if before is None else before)
        seconds = _left(cut)
    suit = partial(suited, recipe, images=len(splits.train), taught=teacher is not None) if everything else None
    history = train_network(net, teacher, recipe, c.feed, splits, cut.run, cut.phase(arch), masks, seconds, suit)
    after = None if everything else accuracy(net, c.feed, c.splits.val)
    if before is not None and after is not None and before > after:
        c.run.log(
            f"fine-tuning lowered the validation accuracy, {before:.2f} % to {after:.2f} %: inherited weights kept"
        )
        net.load_state_dict(inherited)
        after, kept = before, "inherited"
    cut.run.record(TrainingFile, {
        "history": history, "seconds": time.monotonic() - start, "inherited_val_accuracy": before, "kept": kept,
        "metric": c.task.metric, "val_accuracy": after, "teacher": teacher and teacher.told,
        **_tested(c, cut.run, net, everything), **begin.facts,
    })  # fmt: skip
    if c.run.writer:
        checkpoint.save(cut.run.path / "model/trained.safetensors", net.state_dict())
    return files


def _better(cut: Cut, arch: Arch, begin: Start) -> tuple[Start, Final, float]:
    """The start that is ahead of a fresh one on validation images after a small share of the time; else a fresh one.

    With it its recipe, and what it got right of those images.
    """
    c, found = cut.context, {}
    recipes = {"start": from_elsewhere(c.train), "fresh": c.train}
    with seeded(c.seeds.number("network")):
        fresh = Start(c.engine.place(cut.network(arch)))
    seconds = _SHARE * _left(cut) if not c.train.epochs else None
    for name, start in (("start", begin), ("fresh", fresh)):
        net, short = copy.deepcopy(start.net), replace(recipes[name], epochs=math.ceil(_SHARE * c.train.epochs))
        train_network(net, None, short, c.feed, c.splits, cut.run, f"{name}-{cut.phase(arch)}", None, seconds)
        found[name] = accuracy(net, c.feed, c.splits.val)
    c.run.log(
        f"after {100 * _SHARE:.0f} % of the training, {found['start']:.2f} % of the validation images are right with "
        f"weights from elsewhere, {found['fresh']:.2f} % with fresh ones"
    )
    best = max(found, key=found.__getitem__)  # the first of equals
    return begin if best == "start" else fresh, recipes[best], found[best]


def _after(c: Context) -> float:
    """Seconds that are kept for what comes after training."""
    return _AFTER + (0.0 if c.options.precision == "float32" else _QUANTISING)


def _left(cut: Cut) -> float:
    """Seconds for training the network: what is left of the time.

    A network that is trained because another one was over its budget as deployed gets half as many as that one, at
    least, and one that comes after a search that took too long a part of the time: else nothing good comes out.
    """
    c = cut.context
    before = [float(cut.run.read(str(p.relative_to(cut.run.path)))["seconds"]) for p in _plans(cut)]
    least = max([_LEAST * (c.clock.seconds or 0.0), *(s / 2 for s in before)])
    left = max(0.0, c.clock.left - _after(c))
    if left < least:
        c.run.log(f"the network is trained for {span(least)}, longer than the {span(left)} that are left of the time")
    return max(left, least)


def _plans(cut: Cut) -> list[Path]:
    """The plans of networks that this budget had trained."""
    own = f"{cut.phase(chosen(cut.run))}.plan.json"
    return sorted(p for p in cut.run.path.glob("search/network-*.plan.json") if p.name != own)


def _tested(c: Context, run: Run, net: nn.Module, everything: bool) -> dict[str, Any]:
    """What the network gets right of the test images: of all, of every class, and of those that are no copies.

    All about it goes into evaluation.json. The temperature is fitted on the validation images, or, where they were
    trained on (`everything`), on each half of the test's to judge the other.
    """
    net.eval()
    logits, labels = outputs(net, c.feed, c.splits.test)
    if everything:
        heat, scaled = by_halves(c.task, logits, labels)
    else:
        heat = temperature(c.task, *outputs(net, c.feed, c.splits.val))
        scaled = logits / heat
    trust = reliability(c.task, logits, scaled, labels, heat, "test, by halves" if everything else "validation")
    told = judged(logits, labels, c.images, c.splits.test, c.task, c.images.class_names, trust)
    if run.writer:
        run.save(told)
    by_class = told.per_class
    found: dict[str, Any] = {
        "test_accuracy": told.value, "per_class": by_class,
        "balanced_accuracy": float(np.mean([value for value in by_class if value is not None])),
    }  # fmt: skip
    leaks = c.run.load(AuditFile).leaks if (c.run.path / AuditFile.NAME).is_file() else ()
    unseen = torch.from_numpy(~np.isin(c.splits.test, leaks)).to(logits.device)
    if leaks and unseen.any():
        found["unseen_accuracy"] = c.task.measure(logits[unseen], labels[unseen])
        c.run.log(
            f"test {c.task.metric} {found['test_accuracy']:.2f} %; without the {len(leaks)} test images that equal, or "
            f"nearly, one that was trained on: {found['unseen_accuracy']:.2f} %"
        )
    return found


def _trained_before(cut: Cut, arch: Arch) -> Run | None:
    """Another budget of the same search that chose and trained the same network."""
    base = cut.context.run
    if not cut.traded:  # no budget on the search: what its picks mean is its own
        return None
    for path in (base.path, *sorted(base.path.glob("cuts/*"))):
        run = Run(path)
        same = path != cut.run.path and (path / "solution.json").is_file() and chosen(run) == arch
        if same and run.done("solve") and run.done("train"):
            return run
    return None


def _copy(source: Run, run: Run, files: Sequence[str]) -> None:
    if run.writer:
        for name in files:
            with atomic(run.path / name) as tmp:
                shutil.copyfile(source.path / name, tmp)


def export(cut: Cut) -> list[str]:
    """Everything a person needs to deploy the network, in one folder."""
    c, arch, folder = cut.context, chosen(cut.run), cut.run.path / "model"
    if c.run.writer:
        net = cut.trained()
        save_weights(net, folder / "weights.safetensors")
        # The certificate, which is made later, has the same two hashes, and this file's own.
        hashes = {"weights_sha256": sha256(folder / "weights.safetensors"), "data_sha256": c.images.digest()}
        told = metadata_of(c.task, c.images.class_names, **hashes, **_heat(cut.run))
        error = export_onnx(c.deployed(net), c.task, folder / "model.onnx", told)
        write_predict(folder / "predict.py")
        write_preprocessing(folder / "preprocessing.json", c.task, c.feed.mean, c.feed.std, c.images.class_names)
        cut.run.record(ModelFile, {
            **cut.described(), "task": c.task.to_json(), "architecture": arch.named(cut.space.choices),
            "picks": list(arch.picks), "string": cut.space.describe(arch), "onnx_error": error,
        })  # fmt: skip
    names = ("model.onnx", "weights.safetensors", "arch.json", "preprocessing.json", "labels.json", "labels.txt")
    return [*(f"model/{name}" for name in (*names, "predict.py")), *precision.export(cut)]


def _heat(run: Run) -> dict[str, str]:
    """What the model file says of the divisor that calibrates its logits."""
    if not (run.path / EvaluationFile.NAME).is_file():
        return {}
    return {"temperature": f"{run.load(EvaluationFile).reliability.temperature:.6g}"}


def verify(cut: Cut) -> list[str]:
    """Every budget against the network as deployed: counted, or measured on the exported file.

    On a device that is not there nothing can be measured: then what its profile predicts stands there, and says so.
    """
    c, tables, arch = cut.context, cut.tables(), chosen(cut.run)
    net, found, file = cut.trained(), {}, deployed_file(cut.run.path)
    for name, table in tables.items():
        live, predicted = c.costs[name].live, table.form(arch)
        measured = cut.measure(name, net, table, file) if live else Measured.exact(predicted)
        entry: dict[str, Any] = {
            "kind": table.kind.to_json(), "predicted": predicted, "measured": measured.value, **measured.details,
            "device": dict(table.device) or None, "on_device": live if c.costs[name].measured else None,
        }  # fmt: skip
        if name in cut.budgets:
            entry |= {"limit": cut.budgets[name], "holds": measured.value <= cut.budgets[name]}
        found[name] = entry
    fits = all(e.get("holds", True) for e in found.values())
    device = next((dict(t.device) for t in tables.values() if t.device), None) or c.runtime().identity()
    cut.run.record(VerifyFile, {"fits": fits, "costs": found, "device": device})
    c.engine.barrier()
    return ["verify.json"]


def learn(cut: Cut) -> None:
    """After a verification over the limit: correct the tables by what was measured."""
    tables, arch, verified = cut.tables(), chosen(cut.run), cut.run.load(VerifyFile).costs
    for name in [n for n, e in verified.items() if e.holds is False]:
        amount, show = verified[name].measured, tables[name].kind.show
        if not cut.context.costs[name].measured:
            raise SolverError(
                f"the {name} table says {show(tables[name].form(arch))} of the chosen network, which has "
                f"{show(amount)}: the cost counts its parts differently from the whole."
            )
        cut.context.run.log(f"as deployed, {name} is {show(amount)}: over the budget; the table is corrected")
        _correct(cut, tables[name], arch, amount, tries=0)
