"""NAS-Bench-1Shot1: sizes of the spaces, strings, a cell by hand."""

import math

import numpy as np
import pytest
import torch

from sartor.core.arch import Arch
from sartor.core.errors import BadInput
from sartor.core.quadratic import Quadratic
from sartor.core.task import Task
from sartor.solvers import solve
from sartor.solvers.base import Problem
from sartor.spaces.base import Gates
from sartor.spaces.nasbench1shot1.space import NasBench1Shot1

TASK = Task(3, 9, 1)


@pytest.mark.parametrize(("variant", "count"), [("S1", 14_580), ("S2", 29_160), ("S3", 1_312_200)])
def test_the_spaces_have_the_published_numbers_of_encodings(variant, count):
    """With loose ends: the parents of a node times three operations a node."""
    assert math.prod(NasBench1Shot1(variant=variant).sizes) == count


@pytest.mark.parametrize("variant", ["S1", "S2", "S3"])
def test_strings_are_read_and_written(variant):
    space = NasBench1Shot1(variant=variant)
    rng = np.random.default_rng(0)
    for _ in range(20):
        arch = space.sample(rng)
        assert space.read(space.describe(arch)) == arch
    for text in ("", "nonsense", space.describe(space.heaviest)[:-10]):
        with pytest.raises(BadInput, match="must be written"):
            space.read(text)


@pytest.mark.parametrize("variant", ["S2", "S3"])
@torch.no_grad()
def test_the_other_variants_keep_the_supernets_laws(variant):
    """The conformance tests see S1."""
    torch.manual_seed(0)
    space = NasBench1Shot1(variant=variant, cells=3, channels=4).fitted(TASK)
    net = space.supernet(TASK).eval()
    x = torch.randn(4, 1, 9, 9)
    rng = np.random.default_rng(1)
    for _ in range(3):
        arch = space.sample(rng)
        logits = net(x, arch)
        hot = Gates(tuple(torch.eye(n)[p] for n, p in zip(space.sizes, arch.picks, strict=True)))
        for other in (net(x, hot), net(x, np.repeat([arch.picks], 4, 0)), net.extract(arch)(x)):
            torch.testing.assert_close(logits, other, atol=1e-5, rtol=1e-5)
        here = [p for p in space.parts(TASK) if all(arch.picks[i] == a for i, a in p.when)]
        count = sum(q.numel() for p in here for q in p.build().parameters())
        assert count == sum(q.numel() for q in space.network(arch, TASK).parameters())


@torch.no_grad()
def test_a_cell_by_hand():
    """Node 1 pools the projected input, node 2 pools input and node 1; the output keeps nodes 1 and 2."""
    space = NasBench1Shot1(variant="S1", cells=3, channels=2)
    arch = space.read("maxpool3x3(0) maxpool3x3(0,1) maxpool3x3(0,1) maxpool3x3(0,1) output(1,2)")
    cell = space.network(arch, TASK).eval().cells[0]
    x = torch.randn(1, 2, 9, 9)
    pool = torch.nn.MaxPool2d(3, 1, 1)
    one = pool(cell.projections["0"](x))
    two = pool(cell.projections["1"](x) + one)
    torch.testing.assert_close(cell(x), torch.cat([torch.zeros_like(one), one, two, 0 * one, 0 * one], 1))


def test_nodes_that_nothing_reads_are_warned_of():
    """An output that reads the first node leaves the others dead: so NASI's answers on S1 looked."""
    space = NasBench1Shot1(variant="S1")
    dead = space.read("maxpool3x3(0) maxpool3x3(0,1) maxpool3x3(0,1) maxpool3x3(0,1) output(0,1)")
    assert space.draw(dead).graphs[0].unread == ("maxpool3x3 2", "maxpool3x3 3", "maxpool3x3 4")
    assert "nothing reads maxpool3x3 2, maxpool3x3 3, maxpool3x3 4 of the cell" in space.draw(dead).warning
    whole = space.read("maxpool3x3(0) maxpool3x3(0,1) maxpool3x3(1,2) maxpool3x3(2,3) output(0,4)")
    assert space.draw(whole).warning == ""


@pytest.mark.parametrize("variant", ["S1", "S2", "S3"])
def test_a_solver_chooses_no_cell_with_unread_nodes_unless_told(variant):
    """For random scores: the rules say what the drawing says, and forbid nothing else."""
    space, free = NasBench1Shot1(variant=variant), NasBench1Shot1(variant=variant, unread=True)
    rng, warned = np.random.default_rng(0), 0
    for _ in range(20):
        score = Quadratic(space.sizes, 0.0, {i: rng.normal(size=n) for i, n in enumerate(space.sizes)})
        assert not space.draw(solve(Problem(score, space.rules)).arch).warning
        warned += bool(space.draw(solve(Problem(score, free.rules)).arch).warning)
        arch = space.sample(rng)
        assert all(rule.holds(arch) for rule in space.rules) == (not space.draw(arch).warning)
    assert warned


def test_bad_options_are_refused():
    for wrong in ({"variant": "S4"}, {"cells": 4}, {"channels": 0}):
        with pytest.raises(BadInput, match="must be"):
            NasBench1Shot1(**wrong)
    with pytest.raises(BadInput, match="at least 8 pixels"):
        NasBench1Shot1().fitted(Task(2, 7))
    assert NasBench1Shot1().sketch().cells == 3
    assert isinstance(NasBench1Shot1().smallest, Arch)
