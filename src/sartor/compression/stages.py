"""The stages of a compression, one function each; `pipeline` says their order.

Files are those of a fit, and ``baseline.json`` (the given network), ``rounds.json`` (Algorithm 3) and
``compression.json`` (layer by layer).
"""

from __future__ import annotations

import copy
import hashlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from sartor.compression.given import Job
from sartor.compression.options import Budget
from sartor.compression.rounds import Sparse, best, restored, run_rounds, table
from sartor.compression.space import Widths
from sartor.compression.structures import layers, view
from sartor.compression.surgery import Plan, apply
from sartor.core import units
from sartor.core.arch import Arch
from sartor.core.errors import Infeasible
from sartor.core.quadratic import Limit
from sartor.costs.base import CostTable
from sartor.costs.latency.cost import corrected
from sartor.deploy.module import Deployed
from sartor.engine import checkpoint
from sartor.engine.evaluate import accuracy
from sartor.engine.network import train_network
from sartor.pipeline.options import BUDGETS
from sartor.runs.directory import Run
from sartor.solvers import cheapest
from sartor.solvers.base import Problem

_TRIES = 12
_SPARE, _USED = 2, 0.93  # how often to use room that a measurement leaves, and the share that counts as used
_TIMED = 600  # parts, at most, whose latency is measured
_BUSY, _MOMENTS = 1.25, 4


@dataclass(frozen=True, eq=False)
class Cut:
    """One compression: the job and the networks it works with, opened when a stage needs them."""

    job: Job

    @property
    def run(self) -> Run:
        """The run directory."""
        return self.job.run

    def given(self) -> nn.Module:
        """The given network as it went into the rounds: trained."""
        net = copy.deepcopy(self.job.net)
        net.load_state_dict(checkpoint.load(self.run.path / "search/given.safetensors"))
        return net.eval()

    def limits(self) -> dict[str, float]:
        """The budgets as amounts."""
        before = self.run.read("baseline.json")["costs"]
        budgets = [Budget.read(n, t) for n, t in self.job.options.budgets.items()]
        return {b.name: b.limit(before[b.name]["measured"]) for b in budgets}

    def sparse(self) -> Sparse:
        """The network and its prior after the rounds."""
        return restored(self.job, self.given(), self.run)

    def plan(self) -> Plan:
        """What was cut."""
        return Plan.from_json(self.run.read("model/plan.json"))


def data(job: Job) -> list[str]:
    """Which images are trained on, validated on, tested on."""
    job.run.write("splits.json", {
        **job.splits.to_json(), "name": job.images.name, "classes": list(job.images.class_names),
        "digest": job.images.digest(), "digest_of": job.images.digest_of,
        "task": job.task.to_json(),
        "mean": list(job.feed.mean), "std": list(job.feed.std),
        "skipped": [{"name": s.name, "reason": s.reason} for s in job.images.skipped],
    })  # fmt: skip
    return ["splits.json", "config.toml"]


def baseline(job: Job) -> list[str]:
    """The given network: trained first where it is not, evaluated, counted and timed."""
    net = job.engine.place(copy.deepcopy(job.net))
    before = accuracy(net, job.feed, job.splits.val)
    epochs = job.options.pretrain
    if epochs is None:
        untrained = before < 200.0 / job.task.classes  # less than twice what guessing gives
        epochs = 2 * int(job.options.train_options["epochs"]) if untrained else 0
    history: list[Any] = []
    if epochs:
        job.run.log(f"the given network gets {before:.1f} % right: it is trained for {epochs} epochs first")
        recipe = job.options.given_recipe(epochs)
        history = train_network(net, None, recipe, job.feed, job.splits, job.run, "given")
    checkpoint.save(job.run.path / "search/given.safetensors", net.state_dict())
    job.run.write("baseline.json", {
        "val_accuracy": accuracy(net, job.feed, job.splits.val),
        "test_accuracy": accuracy(net, job.feed, job.splits.test),
        "trained_here": epochs, "history": history, "costs": measured(job, net.cpu()),
    })  # fmt: skip
    return ["baseline.json", "search/given.safetensors"]


def measured(job: Job, net: nn.Module, file: Any = None, reference: CostTable | None = None) -> dict[str, Any]:
    """Every cost of a network, counted or timed as deployed."""
    found: dict[str, Any] = {}
    for name, cost in job.costs.items():
        entry: dict[str, Any] = {"kind": BUDGETS[name]}
        if name == "latency":
            timing = _time(job, file or _deployed(job, net), reference)
            entry |= {"measured": timing.p50, "timing": timing.to_json()}
        else:
            entry["measured"] = cost.of(net, job.shape)
        found[name] = entry
    return found


def _deployed(job: Job, net: nn.Module) -> Deployed:
    return Deployed(copy.deepcopy(net).cpu().eval(), job.feed.mean, job.feed.std)


def _time(job: Job, model: Any, reference: CostTable | None = None) -> Any:
    """Time a network; where the machine is much slower than the table's, wait for a better moment first."""
    timings = []
    for _ in range(_MOMENTS):
        timings.append(job.costs["latency"].measure(model, job.shape, reference))
        if (timings[-1].drift or 0.0) < _BUSY:
            break
        job.run.log(f"this machine runs {timings[-1].drift:.2f} times slower than when the table was made: waiting")
        time.sleep(3.0)
    return min(timings, key=lambda t: t.drift or 1.0)


def check(cut: Cut) -> None:
    """Stop before any round where even the narrowest network is over a budget."""
    job, limits = cut.job, cut.limits()
    sparse = Sparse(job, cut.given())
    values = [torch.ones(w.channels).numpy() for w in sparse.widths]
    space = Widths(sparse.net, job.task, sparse.widths, values, sparse.branches, job.options.levels)
    for name, high in limits.items():
        form = table(job, "macs" if name == "latency" else name, space).form
        least = cheapest(form, space.rules)
        value = form(least.arch)
        if name == "latency":
            value = _time(job, _deployed(job, space.network(least.arch, job.task))).p50
        if value > high:
            kind = BUDGETS[name]
            raise Infeasible(
                f"{name} <= {units.show(high, kind)} cannot be met: the narrowest form of this network needs "
                f"{units.show(value, kind)}. Raise the budget or start from a smaller network.",
                limit=name, asked=high, least=value,
            )  # fmt: skip


def rounds(cut: Cut) -> list[str]:
    """Algorithm 3 up to its last pruning."""
    job = cut.job
    before = {n: e["measured"] for n, e in cut.run.read("baseline.json")["costs"].items()}
    sparse = Sparse(job, cut.given()).place()
    history = run_rounds(job, sparse, cut.limits(), before)
    checkpoint.save(cut.run.path / "search/sparse.safetensors", sparse.state())
    cut.run.write("rounds.json", {
        "structures": list(job.options.structures), "strength": job.options.strength, "rounds": history,
        "widths": [{"name": w.name, "channels": w.channels, "layers": sorted({s.layer for s in w.slots})}
                   for w in sparse.widths],
    })  # fmt: skip
    return ["rounds.json", "search/sparse.safetensors"]


def decide(cut: Cut) -> list[str]:
    """The most relevant network inside the budgets: solved for, built, timed, corrected until it fits."""
    job, run, limits = cut.job, cut.run, cut.limits()
    sparse = cut.sparse()
    sparse.net.cpu()
    space = sparse.space(_TIMED if "latency" in limits else None)
    tables = _tables(cut, space, limits)
    goal, tries, spare, fitting = space.score, 0, _SPARE, None
    while True:
        forms = [Limit(n, tables[n].form, high) for n, high in limits.items()]
        try:
            solution = best(Problem(goal, (*forms, *space.rules)))
        except Infeasible as error:
            tables["latency"] = _relax(cut, space, tables, error, tries)
            tries += 1
            continue
        if "latency" not in limits:
            break
        timing = _time(job, _deployed(job, space.network(solution.arch, job.task)), tables["latency"])
        if timing.high <= limits["latency"]:
            if not spare or timing.high > _USED * limits["latency"]:
                break
            spare, fitting = spare - 1, solution  # room is left: the table is too cautious here
            tables["latency"] = corrected(tables["latency"], solution.arch, timing.high, both_ways=True)
            continue
        if fitting is not None:
            solution = fitting
            break
        tries += 1
        predicted = tables["latency"].form(solution.arch)
        run.log(f"built and timed: {timing.p50:.4g} ms where {predicted:.4g} ms was predicted; correcting the table")
        tables["latency"] = _correct(cut, tables["latency"], solution.arch, timing.high, limits["latency"], tries)
    if "latency" in tables:
        run.write("costs/latency.json", tables["latency"].to_json())
    _write_solution(cut, sparse, space, solution, tables)
    files = ["score.json", "solution.json", "model/plan.json", "search/cut.safetensors"]
    return [*files, *(f"costs/{n}.json" for n in tables)]


def _tables(cut: Cut, space: Widths, limits: Mapping[str, float]) -> dict[str, CostTable]:
    """Parameters, multiply-accumulates and memory always; latency where it is limited, as corrected so far."""
    job, run, found = cut.job, cut.run, {}
    for name in job.costs:
        if name == "latency" and name not in limits:
            continue
        path = run.path / f"costs/{name}.json"
        if path.exists() and name == "latency":
            known = CostTable.from_json(run.read(f"costs/{name}.json"))
            if known.form.sizes == space.sizes:
                found[name] = known
                continue
        with run.reporter.bar(f"pricing {name}", 100) as bar:
            found[name] = table(job, name, space, lambda n, done, total, bar=bar: bar.to(100 * done // total, n))
        run.write(f"costs/{name}.json", found[name].to_json())
    return found


def _relax(cut: Cut, space: Widths, tables: Mapping[str, CostTable], error: Infeasible, tries: int) -> CostTable:
    """Where the latency table says that nothing fits: time what it calls fastest, and believe that if it is faster.

    The table is calibrated on networks with all their branches, and overestimates those that have lost some.
    """
    job, limits = cut.job, cut.limits()
    if "latency" not in limits or tries >= _TRIES:
        raise error
    others = [Limit(n, tables[n].form, high) for n, high in limits.items() if n != "latency"]
    least = cheapest(tables["latency"].form, (*others, *space.rules))
    took = _time(job, _deployed(job, space.network(least.arch, job.task)), tables["latency"]).high
    if took >= 0.98 * tables["latency"].form(least.arch):
        raise _with_units(error) from error
    cut.run.log(f"the narrowest takes {took:.4g} ms where {tables['latency'].form(least.arch):.4g} ms was predicted")
    found = corrected(tables["latency"], least.arch, took, both_ways=True)
    cut.run.write("costs/latency.json", found.to_json())
    return found


def _with_units(error: Infeasible) -> Infeasible:
    if error.limit not in BUDGETS or error.asked is None or error.least is None:
        return error
    kind = BUDGETS[error.limit]
    return Infeasible(
        f"{error.limit} <= {units.show(error.asked, kind)} cannot be met: the least that is left of this network needs "
        f"{units.show(error.least, kind)}. Raise the budget or start from a smaller network.",
        limit=error.limit, asked=error.asked, least=error.least,
    )  # fmt: skip


def _correct(cut: Cut, latency: CostTable, arch: Arch, took: float, limit: float, tries: int) -> CostTable:
    latency = corrected(latency, arch, max(took, 1.001 * limit))
    cut.run.write("costs/latency.json", latency.to_json())
    if tries >= _TRIES:
        raise Infeasible(
            f"{tries} networks in a row measured slower than {limit:g} ms though predicted faster: this machine is too "
            "busy to measure on, or the network cannot be narrowed that far. Run the same command again when it is "
            "quieter; nothing is lost."
        )
    return latency


def _write_solution(cut: Cut, sparse: Sparse, space: Widths, solution: Any, tables: Mapping[str, CostTable]) -> None:
    run, arch, limits = cut.run, solution.arch, cut.limits()
    plan = space.plan(arch)
    run.write("model/plan.json", plan.to_json())
    small = space.network(arch, cut.job.task)
    checkpoint.save(run.path / "search/cut.safetensors", {"net": small.state_dict(), "masks": _masks(sparse, plan)})
    run.write("score.json", {
        "method": "bayesnas compression", "unit": "loss, to be expected", "quality": None,
        "facts": {"structures": list(cut.job.options.structures), "strength": cut.job.options.strength},
        "choices": [{"name": x.name, "options": x.options, "needs": x.needs} for x in space.choices],
        "score": space.score.to_json(),
    })  # fmt: skip
    corrections = tables["latency"].calibration.get("corrections", []) if "latency" in tables else []
    run.write("solution.json", {
        "budgets": limits, "solution": solution.to_json(), "architecture": arch.named(space.choices),
        "string": space.describe(arch), "drawing": space.draw(arch).to_json(),
        "predicted": {n: t.form(arch) for n, t in tables.items()},
        "corrections": [{"picks": e["arch"], "predicted": e["predicted_ms"], "measured": e["measured_ms"]}
                        for e in corrections],
    })  # fmt: skip


@torch.no_grad()
def _masks(sparse: Sparse, plan: Plan) -> dict[str, torch.Tensor]:
    """Which weights of the cut network are alive: those inside kernels that were pruned stay zero from here on."""
    alive = copy.deepcopy(sparse.net)
    known = layers(alive)
    for name, prior in sparse.prior.layers.items():
        view(known[name], known[name].weight).copy_(prior.alive.cpu())
    cut = layers(apply(alive, plan))
    return {f"{name}.weight": layer.weight != 0 for name, layer in cut.items()}


def small_network(cut: Cut) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """The cut network with the weights it inherited, and which of its weights are alive."""
    saved = checkpoint.load(cut.run.path / "search/cut.safetensors")
    net = apply(cut.given(), cut.plan())
    net.load_state_dict(saved["net"])
    return net, dict(saved["masks"])


def train(cut: Cut) -> list[str]:
    """Fine-tune the small network with the given one as its teacher; zeros inside kernels stay zeros."""
    from sartor.compression.finetune import finetune

    job, run = cut.job, cut.run
    net, masks = small_network(cut)
    teacher = job.engine.place(cut.given()).eval().requires_grad_(False)
    before = run.read("baseline.json")["val_accuracy"]
    name = f"network-{hashlib.sha256(repr(run.read('solution.json')['solution']['picks']).encode()).hexdigest()[:8]}"
    start = time.monotonic()
    history, inherited = finetune(job, net, teacher, masks, name)
    run.write("training.json", {
        "history": history, "seconds": time.monotonic() - start, "inherited_val_accuracy": inherited, "kept": "trained",
        "metric": job.task.metric, "val_accuracy": accuracy(net, job.feed, job.splits.val),
        "test_accuracy": accuracy(net, job.feed, job.splits.test), "given_val_accuracy": before,
    })  # fmt: skip
    checkpoint.save(run.path / "model/trained.safetensors", net.state_dict())
    return ["training.json", "model/trained.safetensors"]


def trained(cut: Cut) -> nn.Module:
    """The fine-tuned network, on the CPU."""
    net = apply(cut.given(), cut.plan())
    net.load_state_dict(checkpoint.load(cut.run.path / "model/trained.safetensors"))
    return net.cpu().eval()


def export(cut: Cut) -> list[str]:
    """ONNX, weights, labels, preprocessing and how to rebuild the network in Python."""
    from sartor.deploy.export import export_onnx, save_weights, write_preprocessing

    job, folder, net = cut.job, cut.run.path / "model", trained(cut)
    error = export_onnx(_deployed(job, net), job.task, folder / "model.onnx")
    save_weights(net, folder / "weights.safetensors")
    write_preprocessing(folder / "preprocessing.json", job.task, job.feed.mean, job.feed.std, job.images.class_names)
    solution = cut.run.read("solution.json")
    cut.run.write("model/arch.json", {
        "given": job.options.model, "task": job.task.to_json(),
        "architecture": solution["architecture"], "picks": solution["solution"]["picks"],
        "string": solution["string"], "onnx_error": error,
    })  # fmt: skip
    names = ("model.onnx", "weights.safetensors", "arch.json", "labels.json", "labels.txt", "preprocessing.json")
    return [f"model/{n}" for n in names]


def verify(cut: Cut) -> list[str]:
    """Every budget against the network as deployed."""
    job, run, limits = cut.job, cut.run, cut.limits()
    net, predicted = trained(cut), run.read("solution.json")["predicted"]
    latency = CostTable.from_json(run.read("costs/latency.json")) if "latency" in limits else None
    file = run.path / "model/model.onnx" if job.options.runtime == "onnxruntime" else None
    costs = measured(job, net, file, latency)
    for name, entry in costs.items():
        entry["predicted"] = predicted.get(name, entry["measured"])
        if name in limits:
            entry |= {"limit": limits[name], "holds": entry["measured"] <= limits[name]}
    fits = all(e.get("holds", True) for e in costs.values())
    run.write("verify.json", {"fits": fits, "costs": costs, "device": job.costs["latency"].identity()})
    return ["verify.json"]


def learn(cut: Cut) -> None:
    """After a verification over the limit: correct the latency table by what was measured."""
    took = cut.run.read("verify.json")["costs"]["latency"]["measured"]
    cut.run.log(f"as deployed it takes {took:.4g} ms: over the budget; correcting the table, solving again")
    latency = CostTable.from_json(cut.run.read("costs/latency.json"))
    picks = cut.run.read("solution.json")["solution"]["picks"]
    _correct(cut, latency, Arch(tuple(picks)), took, cut.limits()["latency"], tries=0)
