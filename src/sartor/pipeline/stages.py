"""The stages of a run, one function each; `pipeline` says their order.

A stage reads files of the run directory and writes its own, whose names it returns.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sartor.core import units
from sartor.core.arch import Arch, canonical
from sartor.core.errors import Infeasible, RunError, SolverError
from sartor.core.quadratic import Limit, Quadratic
from sartor.costs.base import CostTable
from sartor.costs.latency.cost import corrected
from sartor.engine import checkpoint
from sartor.engine.evaluate import accuracy, recalibrate
from sartor.engine.network import calibration, train_network
from sartor.engine.seeding import seeded
from sartor.pipeline.context import Context
from sartor.pipeline.options import BUDGETS
from sartor.runs.directory import Run
from sartor.solvers import cheapest, solve
from sartor.solvers.base import Frontier, NotSeparable, Problem, Solution
from sartor.solvers.frontier import frontier
from sartor.spaces.base import new_supernet

_TRIES = 12  # corrections of the latency table before giving up
_MOMENTS, _BUSY = 4, 1.25  # how often to wait for a machine that runs this much slower than it did


@dataclass(frozen=True, eq=False)
class Cut:
    """One budget on one search: where its files go, and which budgets must hold."""

    context: Context
    run: Run
    budgets: Mapping[str, float]

    def limits(self, tables: Mapping[str, CostTable]) -> tuple[Limit, ...]:
        """The budgets and the space's own rules."""
        budgets = (Limit(name, tables[name].form, high) for name, high in self.budgets.items())
        return (*budgets, *self.context.space.rules)

    @property
    def axis(self) -> str:
        """The cost that the frontier is drawn against: latency where it is limited, else the first budget."""
        return "latency" if "latency" in self.budgets else next(iter(self.budgets), "latency")

    def tables(self) -> dict[str, CostTable]:
        """The cost tables, with the corrections that this budget's measurements brought."""
        tables = self.context.tables()
        if (self.run.path / "latency.json").exists():
            tables["latency"] = CostTable.from_json(self.run.read("latency.json"))
        return tables


def data(c: Context) -> list[str]:
    """Which images are trained on, validated on, tested on; what was skipped."""
    c.run.write("splits.json", {
        **c.splits.to_json(),
        "name": c.images.name, "classes": list(c.images.class_names), "digest": c.images.digest(),
        "digest_of": c.images.digest_of,
        "task": c.task.to_json(),
        "mean": list(c.feed.mean), "std": list(c.feed.std),
        "skipped": [{"name": s.name, "reason": s.reason} for s in c.images.skipped],
    })  # fmt: skip
    return ["splits.json", "config.toml"]  # the options too: a changed one would change what is resumed


def same_data(c: Context) -> None:
    """Refuse to go on with other images than the run began with: its splits and weights would mean something else."""
    began = c.run.read("splits.json")
    splits = {name: index for name, index in began.items() if name in ("train", "val", "test")}
    if began.get("digest") != c.images.digest() or splits != c.splits.to_json():
        raise RunError(
            f"{c.options.data} has changed since {c.run.path} was begun ({c.images.digest_of} and labels differ). "
            "Restore it, or choose another --out."
        )


def costs(c: Context) -> list[str]:
    """Price every distinct part of the space on the target device."""
    files = []
    for name, cost in c.costs.items():
        if c.run.writer:
            with c.run.reporter.bar(f"pricing {name}", 100) as bar:
                table = cost.table(c.space, c.task, lambda n, done, total, bar=bar: bar.to(100 * done // total, n))
            c.run.write(f"costs/{name}.json", table.to_json())
        files.append(f"costs/{name}.json")
    c.engine.barrier()
    return files


def check(cut: Cut) -> None:
    """Stop before any training where no network of the space can meet the budgets."""
    _solve(cut, Quadratic(cut.context.space.sizes), cut.tables())


def _solve(cut: Cut, goal: Quadratic, tables: Mapping[str, CostTable]) -> Solution:
    try:
        return solve(Problem(goal, cut.limits(tables)))
    except Infeasible as error:
        raise Infeasible(_with_units(error), limit=error.limit, asked=error.asked, least=error.least) from error


def _thrifty(cut: Cut, goal: Quadratic, tables: Mapping[str, CostTable], solution: Solution) -> Solution:
    """Of the networks that score as much, the one that costs least on the axis; a frontier gives that by itself."""
    if len(cut.budgets) < 2:
        return solution
    as_good = Limit("score", goal, low=solution.score)
    try:
        arch = cheapest(tables[cut.axis].form, (*cut.limits(tables), as_good)).arch
    except (Infeasible, SolverError):  # equal scores are a matter of the last digit; the solution stands
        return solution
    return replace(solution, arch=arch, score=goal(arch))


def _with_units(error: Infeasible) -> str:
    """The solver's message with the quantities written for people."""
    if error.limit not in BUDGETS or error.asked is None or error.least is None:
        return str(error)
    kind = BUDGETS[error.limit]
    return (
        f"{error.limit} <= {units.show(error.asked, kind)} cannot be met: the least any network of this space needs is "
        f"{units.show(error.least, kind)}. Raise the budget or choose another space."
    )


def search(c: Context) -> list[str]:
    """The method learns its score."""
    found = c.method.search(c.job)
    c.run.write("score.json", {
        "method": c.options.method, "unit": found.unit, "quality": found.quality, "facts": found.facts,
        "choices": [{"name": x.name, "options": x.options, "needs": x.needs} for x in c.space.choices],
        "score": found.score.to_json(),
    })  # fmt: skip
    return ["score.json", *found.files]


def score(c: Context) -> Quadratic:
    """The score that the search stage wrote."""
    return Quadratic.from_json(c.run.read("score.json")["score"])


def decide(cut: Cut) -> list[str]:
    """The frontier, and the best network inside the budgets that really is: each candidate is built and timed."""
    c, tries = cut.context, 0
    tables, goal = cut.tables(), score(cut.context)
    while True:
        solution = _thrifty(cut, goal, tables, _solve(cut, goal, tables))
        arch = canonical(c.space.choices, solution.arch)
        measured = _time(cut, arch, tables["latency"]) if "latency" in cut.budgets else None
        # The upper end of the median's interval must fit: what barely fits today may not when it is verified.
        if measured is None or measured.high <= cut.budgets["latency"]:
            break
        tries += 1
        c.run.log(
            f"built and timed: {measured.p50:.4g} ms (up to {measured.high:.4g}) where "
            f"{tables['latency'].form(arch):.4g} ms was predicted; correcting the table"
        )
        tables["latency"] = _correct(cut, tables["latency"], arch, measured.high, tries)
    _write_frontier(cut, goal, tables)
    cut.run.write("solution.json", {
        "budgets": dict(cut.budgets), "solution": {**solution.to_json(), "picks": list(arch.picks)},
        "architecture": arch.named(c.space.choices), "string": c.space.describe(arch),
        "drawing": c.space.draw(arch).to_json(),
        "predicted": {n: t.form(arch) for n, t in tables.items()}, "corrections": _corrections(tables["latency"]),
    })  # fmt: skip
    files = ["solution.json", "frontier.json"]
    return [*files, "latency.json"] if (cut.run.path / "latency.json").exists() else files


def _corrections(table: CostTable) -> list[dict[str, Any]]:
    """What measurements taught the table, also those of an interrupted attempt or of an earlier verification."""
    listed = table.calibration.get("corrections", [])
    return [{"picks": e["arch"], "predicted": e["predicted_ms"], "measured": e["measured_ms"]} for e in listed]


def _time(cut: Cut, arch: Arch, table: CostTable) -> Any:
    """The built network's time, measured once for all processes."""
    from sartor.deploy.module import Deployed

    c = cut.context
    timing = None
    if c.run.writer:
        timing = _measure(c, Deployed(c.space.network(arch, c.task), c.feed.mean, c.feed.std), table)
    return c.engine.agree(timing)


def _measure(c: Context, model: Any, table: CostTable) -> Any:
    """Time a network; on a machine much slower than when the table was made, wait for a better moment first.

    The reference workload tells a busy machine from a slow network. After a few tries the calmest one counts.
    """
    shape, timings = (c.task.channels, c.task.image, c.task.image), []
    for _ in range(_MOMENTS):
        timings.append(c.costs["latency"].measure(model, shape, table))
        drift = timings[-1].drift
        if drift is None or drift < _BUSY:
            break
        c.run.log(
            f"this machine runs {drift:.2f} times slower than when the table was made: waiting for a better moment"
        )
        time.sleep(3.0)
    return min(timings, key=lambda t: t.drift or 1.0)


def _correct(cut: Cut, table: CostTable, arch: Arch, measured: float, tries: int) -> CostTable:
    """The latency table after a measurement over the limit; gives up after many."""
    # A hair above the budget may be what was predicted: the correction must still exclude this network.
    table = corrected(table, arch, max(measured, cut.budgets["latency"] * 1.001))
    cut.run.write("latency.json", table.to_json())
    if tries >= _TRIES:
        raise Infeasible(
            f"{tries} networks in a row measured slower than {cut.budgets['latency']:g} ms though predicted faster: "
            "this machine is too busy to measure on. Run the same command again when it is quieter; nothing is lost."
        )
    cut.context.engine.barrier()
    return table


def _write_frontier(cut: Cut, goal: Quadratic, tables: Mapping[str, CostTable]) -> None:
    """Every optimal trade-off between the axis and the score, with all costs of every point."""
    c = cut.context
    try:
        points = frontier(goal, tables[cut.axis].form, c.space.rules)
        canon = [canonical(c.space.choices, points.arch(n)).picks for n in range(len(points))]
        points = Frontier(points.cost, points.score, np.asarray(canon, np.int64))
    except NotSeparable as error:
        c.run.log(f"the frontier is left out: {error}")
        points = Frontier(np.zeros(0), np.zeros(0), np.zeros((0, len(c.space.sizes)), np.int64))
    others = {n: t.form.batch(points.picks).tolist() for n, t in tables.items()}
    cut.run.write("frontier.json", {
        "axis": cut.axis, "kind": BUDGETS[cut.axis], "complete": len(points) > 0, **points.to_json(), "costs": others,
        "strings": [c.space.describe(points.arch(n)) for n in range(len(points))],
    })  # fmt: skip


def chosen(run: Run) -> Arch:
    """The architecture that the solve stage wrote."""
    return Arch(tuple(int(p) for p in run.read("solution.json")["solution"]["picks"]))


def train(cut: Cut) -> list[str]:
    """Fine-tune the chosen network from the supernet's weights, or train it from scratch.

    Where fine-tuning lowers the validation accuracy (few images, a short schedule), the inherited weights are kept.
    """
    with seeded(cut.context.seeds.number("network")):
        return _train(cut)


def _train(cut: Cut) -> list[str]:
    c, arch = cut.context, chosen(cut.run)
    net, teacher = _inherit(c, arch)
    before, kept = None, "trained"
    if teacher is not None:
        recalibrate(net, calibration(c.feed, c.splits), c.engine.cast(lambda x, _: net(x)))
        before = accuracy(net, c.feed, c.splits.val)
        inherited = {name: value.clone() for name, value in net.state_dict().items()}
    start = time.monotonic()
    history = train_network(net, teacher, c.train, c.feed, c.splits, cut.run, _phase(arch))
    after = accuracy(net, c.feed, c.splits.val)
    if before is not None and before > after:
        c.run.log(
            f"fine-tuning lowered the validation accuracy, {before:.2f} % to {after:.2f} %: inherited weights kept"
        )
        net.load_state_dict(inherited)
        after, kept = before, "inherited"
    results = {
        "history": history, "seconds": time.monotonic() - start, "inherited_val_accuracy": before, "kept": kept,
        "metric": c.task.metric, "val_accuracy": after, "test_accuracy": accuracy(net, c.feed, c.splits.test),
    }  # fmt: skip
    if c.run.writer:
        checkpoint.save(cut.run.path / "model/trained.safetensors", net.state_dict())
    cut.run.write("training.json", results)
    return ["training.json", "model/trained.safetensors"]


def _phase(arch: Arch) -> str:
    """A name for this network's training: another architecture must never resume from its checkpoint."""
    return f"network-{hashlib.sha256(repr(arch.picks).encode()).hexdigest()[:8]}"


def _inherit(c: Context, arch: Arch) -> tuple[Any, Any]:
    """The network to train and its teacher: from the search's weights where it left any."""
    if not (c.run.path / "search/supernet.safetensors").exists():
        return c.engine.place(c.space.network(arch, c.task)), None
    supernet = new_supernet(c.space, c.task)
    supernet.load_state_dict(checkpoint.load(c.run.path / "search/supernet.safetensors"))
    teacher = c.space.network(c.space.heaviest, c.task)
    teacher.load_state_dict(checkpoint.load(c.run.path / "search/teacher.safetensors"))
    return c.engine.place(supernet.extract(arch)), c.engine.place(teacher).eval().requires_grad_(False)


def export(cut: Cut) -> list[str]:
    """Everything a person needs to deploy the network, in one folder."""
    from sartor.deploy.export import export_onnx, save_weights, write_preprocessing
    from sartor.deploy.module import Deployed

    c, arch = cut.context, chosen(cut.run)
    files = ["model/model.onnx", "model/weights.safetensors", "model/arch.json", "model/preprocessing.json"]
    if c.run.writer:
        folder = cut.run.path / "model"
        net = trained(cut)
        error = export_onnx(Deployed(net, c.feed.mean, c.feed.std), c.task, folder / "model.onnx")
        save_weights(net, folder / "weights.safetensors")
        write_preprocessing(folder / "preprocessing.json", c.task, c.feed.mean, c.feed.std, c.images.class_names)
        cut.run.write("model/arch.json", {
            "space": {"name": c.options.space, **c.config()["space"]},
            "task": c.task.to_json(),
            "architecture": arch.named(c.space.choices), "picks": list(arch.picks), "string": c.space.describe(arch),
            "onnx_error": error,
        })  # fmt: skip
    return files


def trained(cut: Cut) -> Any:
    """The trained network, on the CPU."""
    c = cut.context
    net = c.space.network(chosen(cut.run), c.task)
    net.load_state_dict(checkpoint.load(cut.run.path / "model/trained.safetensors"))
    return net.eval()


def verify(cut: Cut) -> list[str]:
    """Every budget against the network as deployed: counted, or timed under the deployment runtime."""
    c, tables, arch = cut.context, cut.tables(), chosen(cut.run)
    shape = (c.task.channels, c.task.image, c.task.image)
    if c.run.writer:
        net, costs = trained(cut), {}
        for name, cost in c.costs.items():
            entry: dict[str, Any] = {"kind": BUDGETS[name], "predicted": tables[name].form(arch)}
            if name == "latency":
                timing = _measure(c, _as_deployed(cut, net), tables[name])
                entry |= {"measured": timing.p50, "timing": timing.to_json()}
            else:
                entry["measured"] = cost.of(net, shape)
            if name in cut.budgets:
                entry |= {"limit": cut.budgets[name], "holds": entry["measured"] <= cut.budgets[name]}
            costs[name] = entry
        fits = all(e.get("holds", True) for e in costs.values())
        cut.run.write("verify.json", {"fits": fits, "costs": costs, "device": dict(tables["latency"].device)})
    c.engine.barrier()
    return ["verify.json"]


def _as_deployed(cut: Cut, net: Any) -> Any:
    """What is timed: the exported file under ONNX Runtime, else the module with its normalisation."""
    from sartor.deploy.module import Deployed

    c = cut.context
    if c.options.runtime == "onnxruntime":
        return cut.run.path / "model/model.onnx"
    return Deployed(net, c.feed.mean, c.feed.std).to(c.engine.device)


def learn(cut: Cut) -> None:
    """After a verification over the limit: correct the table by what was measured."""
    measured = cut.run.read("verify.json")["costs"]["latency"]["measured"]
    cut.context.run.log(f"as deployed it takes {measured:.4g} ms: over the budget; correcting the table, solving again")
    _correct(cut, cut.tables()["latency"], chosen(cut.run), measured, tries=0)
