"""Every method that mixes, draws or switches works on tree cells and on NASI's cells too."""

from dataclasses import fields, replace

import numpy as np
import pytest
import tiny

from sartor.core.config import build
from sartor.core.quadratic import Limit
from sartor.core.registry import COSTS, METHODS
from sartor.methods.bayesnas.method import BayesNAS
from sartor.methods.bayesnas.search import Search
from sartor.solvers import solve
from sartor.solvers.base import Problem
from sartor.spaces.cells.darts_reduced import DartsReduced
from sartor.spaces.treecell.space import TreeCells
from sartor.spaces.treecell.tree import EDGES, PATHS, cells_of

SPACES = {
    "treecell": TreeCells(blocks=1, channels=4, alpha=6),
    "darts_reduced": DartsReduced(cells=3, channels=4, sketch_cells=2, sketch_channels=4),
}
SHORT = {**tiny.QUICK["method"], "steps": 2, "nu_networks": 2, "epochs": 1, "networks": 20, "rounds": 1}


def job(path, space):
    made = tiny.job(path)
    return replace(made, space=SPACES[space].fitted(made.task))


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("name", ["bayesnas", "darts", "nasi", "random", "random_sharing", "xnas"])
def test_methods_keep_a_budget(name, space, tmp_path):
    given = job(tmp_path, space)
    known = {f.name for f in fields(METHODS[name])}
    found = build(METHODS[name], {k: v for k, v in SHORT.items() if k in known}, "method").search(given)
    values = found.score.batch([given.space.sample(np.random.default_rng(k)).picks for k in range(10)])
    assert np.isfinite(values).all()
    assert np.ptp(values) > 0
    table = COSTS["params"]().table(given.space, given.task)
    budget = 0.5 * (table.form(given.space.smallest) + table.form(given.space.heaviest))
    solution = solve(Problem(found.score, (*given.space.rules, Limit("params", table.form, budget))))
    assert solution.proven
    net = given.space.network(solution.arch, given.task)
    assert sum(p.numel() for p in net.parameters()) <= budget


def test_without_a_budget_the_network_is_what_the_switches_leave(tmp_path):
    """Algorithm 1: every cell's switches are its own, so cells come out different."""
    given = job(tmp_path, "treecell")
    search = Search(given, BayesNAS(rounds=1, batch=16))
    names = [s.name for s in search.circuit.switches]
    w, weak = (
        np.ones(len(names)),
        ("block1.12.max3", "block2.2.conv3", "block3.1.conv3", "block3.2.conv3", "block1.213.avg3"),
    )
    w[[names.index(name) for name in weak]] = 1e-9
    search.relevance.update(w, np.full(len(names), 0.5))
    search.relevance.prune(1)
    on = search.relevance.on.reshape(-1, len(EDGES))
    cells = cells_of(solve(Problem(search.score())).arch)
    assert cells == [
        tuple(p for p in PATHS if not p.startswith("12") and p != "213"),
        tuple(p for p in PATHS if p.startswith("1")),
        (),
    ]
    assert [set(c) for c in cells] == [
        {e for e, alive in zip(EDGES, r, strict=True) if alive and e in PATHS} for r in on
    ]
    search._wipe()
    assert [sorted(set(EDGES) - b.cell.gone) for b in search.net.net.blocks] == [
        sorted(e for e, alive in zip(EDGES, row, strict=True) if alive) for row in on
    ]
