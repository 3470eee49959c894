import math

import numpy as np
import pytest
import torch

from sartor.core.arch import Arch
from sartor.core.errors import BadInput
from sartor.core.quadratic import Quadratic
from sartor.core.seeds import Seeds
from sartor.core.task import Task
from sartor.methods.nasi import NASI
from sartor.solvers import solve
from sartor.solvers.base import Problem
from sartor.spaces.base import Gates
from sartor.spaces.cells.darts_reduced import BOTH, DartsReduced
from sartor.spaces.cells.genotype import EDGES, OPERATIONS, Genotype

TINY = Task(3, 8, 1)


def count(net):
    return sum(p.numel() for p in net.parameters())


def one_hot(space, arch):
    return Gates(tuple(torch.eye(n)[p] for n, p in zip(space.sizes, arch.picks, strict=True)))


def test_the_space_is_as_large_as_it_says():
    assert math.prod(DartsReduced().sizes) == (42**4 * 3 * 6 * 10) ** 2
    assert math.prod(DartsReduced(single=True).sizes) == (7**4 * 2 * 3 * 4 * 5) ** 2
    assert all(not c.needs for c in DartsReduced().choices)


def test_nodes_read_two_inputs_with_two_operations_or_one_of_each():
    rng = np.random.default_rng(0)
    for single in (False, True):
        space = DartsReduced(single=single)
        for _ in range(5):
            genotype = Genotype.from_text(space.describe(space.sample(rng)))
            for reads in (*genotype.normal.nodes, *genotype.reduce.nodes):
                assert len(reads) == len({source for _, source in reads}) == len({op for op, _ in reads}) == 2 - single


@pytest.mark.parametrize("task", [TINY, Task(3, 9, 1)])
def test_what_is_drawn_during_the_search_obeys_the_laws_too(task):
    space = DartsReduced(single=True, cells=3, channels=4).fitted(task)
    torch.manual_seed(0)
    net, rng = space.supernet(task).train(), np.random.default_rng(1)
    x = torch.randn(4, 1, task.image, task.image, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        net(x, space.sample_picks(rng, 4))
        net.eval()
        for arch in [space.heaviest, *(space.sample(rng) for _ in range(3))]:
            logits = net(x, arch)
            assert logits.std() > 1e-5
            torch.testing.assert_close(net(x, one_hot(space, arch)), logits)
            torch.testing.assert_close(net(x, np.repeat([arch.picks], len(x), 0)), logits)
            torch.testing.assert_close(net.extract(arch)(x), logits)
            here = [p for p in space.parts(task) if all(arch.picks[i] == a for i, a in p.when)]
            assert sum(count(p.build()) for p in here) == count(space.network(arch, task))


def test_reduction_cells_of_the_search_network_pool_instead_of_striding():
    net = DartsReduced(single=True, cells=3, channels=4).network(DartsReduced(single=True).smallest, TINY)
    assert [type(cell.preprocess[1][0]).__name__ for cell in net.cells] == ["ReLU", "MaxPool2d", "MaxPool2d"]
    assert all(op[0].stride == 1 for cell in net.cells for node in cell.nodes for op in node)


def by_hand(space, score):
    """Top-2 of every node's inputs and operations, the better operation on the better input (B.2)."""
    drawn, cells = DartsReduced(single=True), []
    for kind in range(2):
        nodes = []
        for node in drawn.nodes[kind]:
            x, o = (np.argsort(-np.asarray(score.linear[c]))[:2] for c in (node.inputs, node.operations))
            nodes.append({(OPERATIONS[op], int(source)) for op, source in zip(o, x, strict=True)})
        cells.append(nodes)
    return cells


@pytest.mark.parametrize("scale", [1.0, 1e-4])
def test_the_solvers_answer_is_the_papers_selection(scale):
    space, drawn = DartsReduced(), DartsReduced(single=True)
    for seed in range(4):
        rng = np.random.default_rng(seed)
        score = Quadratic(drawn.sizes, 0.0, {i: scale * rng.standard_normal(n) for i, n in enumerate(drawn.sizes)})
        genotype = space.genotype(solve(Problem(space.lift(score))).arch)
        found = [[set(reads) for reads in cell.nodes] for cell in (genotype.normal, genotype.reduce)]
        assert found == by_hand(space, score)
    assert drawn.lift(score) is score


def test_equal_scores_are_lifted_too():
    drawn = DartsReduced(single=True)
    flat = Quadratic(drawn.sizes, 0.0, {i: np.zeros(n) for i, n in enumerate(drawn.sizes)})
    values = DartsReduced().lift(flat).batch(np.array([DartsReduced().smallest.picks]))
    assert values[0] == 0.0


def test_nasi_searches_it_without_data():
    space = DartsReduced(sketch_cells=2, sketch_channels=4).fitted(TINY)
    score, facts = NASI(steps=3, nu_networks=2, batch=4).at_initialisation(space, TINY, Seeds(0))
    assert score.sizes == space.sizes
    assert facts["steps"] == 3
    arch = solve(Problem(score)).arch
    assert space.network(arch, TINY)(torch.randn(2, 1, 8, 8)).shape == (2, 3)


def test_operations_that_no_option_needs_leave_and_change_nothing():
    space = DartsReduced(cells=3, channels=4).fitted(TINY)
    torch.manual_seed(0)
    net = space.supernet(TINY).eval()
    node = space.nodes[0][1]  # the second node of normal cells: inputs 0+1, 0+2, 1+2
    gone = [(node.inputs, 1), (node.inputs, 2)]  # input 2 is not read any more
    gone += [(node.operations, k) for k, both in enumerate(BOTH) if OPERATIONS.index("sep_conv_5x5") in both]
    weights = [torch.rand(n) for n in space.sizes]
    for choice, option in gone:
        weights[choice][option] = 0.0
    x, gates = torch.randn(2, 1, 8, 8), Gates(tuple(weights))
    before, size = net(x, gates), count(net)
    net.wipe(gone)
    torch.testing.assert_close(net(x, gates), before)
    edge = EDGES.index((3, 2))
    assert count(net.cells[0].edges[edge]) == 0
    assert count(net.cells[0].edges[edge - 1]) > 0
    assert count(net) < size
    net.grouped = True
    torch.testing.assert_close(net(x, gates), before)


def test_options_are_checked():
    with pytest.raises(BadInput, match="at least 2"):
        DartsReduced(sketch_cells=1)
    assert DartsReduced().sketch().choices == DartsReduced().choices
    assert DartsReduced().relaxed().choices != DartsReduced().choices
    assert isinstance(DartsReduced().heaviest, Arch)
