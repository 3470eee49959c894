"""What a compression does before the stages of every run.

Its files besides theirs are ``baseline.json`` (the given network), ``rounds.json`` (Algorithm 3) and
``compression.json`` (layer by layer).
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from sartor.compression.cut import Narrowing
from sartor.compression.rounds import Sparse, run_rounds, table
from sartor.compression.space import Widths
from sartor.engine import checkpoint
from sartor.engine.evaluate import accuracy
from sartor.engine.network import train_network
from sartor.runs.schema import BaselineFile, RoundsFile
from sartor.solvers import cheapest


def baseline(cut: Narrowing) -> list[str]:
    """The given network: trained first where it is not, evaluated, counted and measured."""
    c, run = cut.context, cut.run
    net = c.engine.place(copy.deepcopy(c.net))
    before = accuracy(net, c.feed, c.splits.val)
    epochs = c.options.pretrain
    if epochs is None:
        untrained = before < 200.0 / c.task.classes  # less than twice what guessing gives
        epochs = 2 * c.train.epochs if untrained else 0
    history: list[Any] = []
    if epochs:
        run.log(f"the given network gets {before:.1f} % right: it is trained for {epochs} epochs first")
        history = train_network(net, None, c.options.given_recipe(epochs), c.feed, c.splits, run, "given",
                                title="training the given network")  # fmt: skip
    checkpoint.save(run.path / "search/given.safetensors", net.state_dict())
    costs = {}
    for name, cost in c.costs.items():
        found = cut.measure(name, net)
        costs[name] = {"kind": cost.kind.to_json(), "measured": found.value, **found.details}
    run.record(BaselineFile, {
        "val_accuracy": accuracy(net, c.feed, c.splits.val), "test_accuracy": accuracy(net, c.feed, c.splits.test),
        "trained_here": epochs, "history": history, "costs": costs,
    })  # fmt: skip
    return ["baseline.json", "search/given.safetensors"]


def check(cut: Narrowing) -> None:
    """Stop before any round where even the narrowest network is over a budget."""
    c, sparse = cut.context, Sparse(cut.context, cut.given())
    values = [np.ones(w.channels) for w in sparse.widths]
    space = Widths(sparse.net, c.task, sparse.widths, values, sparse.branches, c.options.levels)
    for name, high in cut.budgets.items():
        cost = c.costs[name]
        form = table(c, c.costs[cost.guide] if cost.measured else cost, space).form
        least = cheapest(form, space.rules).arch
        value = cut.measure(name, space.network(least, c.task)).value if cost.measured else form(least)
        if value > high:
            raise cut.impossible(name, high, value)


def rounds(cut: Narrowing) -> list[str]:
    """Algorithm 3 up to its last pruning."""
    c = cut.context
    sparse = Sparse(c, cut.given()).place()
    history = run_rounds(c, sparse, cut.budgets, cut.before)
    checkpoint.save(cut.run.path / "search/sparse.safetensors", sparse.state())
    cut.run.record(RoundsFile, {
        "structures": list(c.options.structures), "strength": c.options.strength, "rounds": history,
        "widths": [{"name": w.name, "channels": w.channels, "layers": sorted({s.layer for s in w.slots})}
                   for w in sparse.widths],
    })  # fmt: skip
    return ["rounds.json", "search/sparse.safetensors"]
