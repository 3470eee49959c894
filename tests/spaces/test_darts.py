import numpy as np
import pytest
import torch

from sartor.core.arch import canonical
from sartor.core.errors import BadInput, Infeasible
from sartor.core.quadratic import Limit, Quadratic
from sartor.core.task import Task
from sartor.costs import published as zoo
from sartor.costs.macs import Macs
from sartor.costs.params import Params
from sartor.engine.curvature.kernel import prepare
from sartor.solvers import solve
from sartor.solvers.base import Problem
from sartor.solvers.frontier import frontier
from sartor.spaces.base import Gates
from sartor.spaces.cells.darts import Darts
from sartor.spaces.cells.genotype import EDGES, OPERATIONS, PUBLISHED, Cell, Genotype
from sartor.spaces.cells.nets import CellNet, DropPath, Frame
from sartor.spaces.cells.ops import FactorizedReduce

CIFAR, IMAGENET, TINY = Task(10, 32), Task(1000, 224), Task(3, 8, 1)


def count(net):
    return sum(p.numel() for p in net.parameters())


def built(name, task=CIFAR, **frame):
    with torch.device("meta"):
        return CellNet(PUBLISHED[name], Frame(**frame), task)


# PAPERS.md D, to the unit
@pytest.mark.parametrize(
    "name, channels, params",
    [
        ("DARTS_V2", 16, 710_682),
        ("DARTS_V2", 36, 3_349_342),
        ("DARTS_V2", 44, 4_949_350),
        ("DARTS_V2", 50, 6_353_560),
        ("XNAS", 16, 814_618),
        ("XNAS", 36, 3_793_438),
    ],
)
def test_published_cells_at_cifar_size(name, channels, params):
    assert count(built(name, channels=channels, cells=20)) == params


def test_published_counts_of_variants():
    assert round(Macs().of(built("DARTS_V2", channels=36, cells=20), (3, 32, 32)) / 1e5) == 5284
    assert round(zoo.cell_entry("xnas", 36)["macs"] / 1e5) == 5955
    assert count(built("DARTS_V2", Task(100, 32), channels=36, cells=20)) == 3_401_272
    plain = count(built("DARTS_V2", channels=36, cells=20))
    assert count(built("DARTS_V2", channels=36, cells=20, auxiliary=True)) - plain == 476_426
    assert count(built("DARTS_V2", channels=16, cells=8)) == 246_106
    assert count(Darts(cells=8, channels=16).supernet(CIFAR)) == 1_930_618
    assert count(built("DARTS_V2", IMAGENET, channels=48, cells=14, large=True)) == 4_718_752
    assert count(built("XNAS", IMAGENET, channels=46, cells=14, large=True, stem=56, squeeze=True)) == 5_258_564
    assert count(built("XNAS", IMAGENET, channels=46, cells=14, large=True, stem=56)) == 4_886_148  # without SE


def test_published_cells_are_of_the_space_and_read_back():
    space = Darts()
    for name in ("DARTS_V1", "DARTS_V2", "XNAS"):
        genotype = PUBLISHED[name]
        arch = space.arch_of(genotype)
        assert canonical(space.choices, arch) == arch
        again = space.genotype(arch)
        assert {frozenset(n) for n in again.normal.nodes} == {frozenset(n) for n in genotype.normal.nodes}
        assert space.arch_of(again) == arch
    assert len(space.choices) == 34
    assert len(EDGES) == 14


def test_cells_outside_the_space_build_but_are_no_architecture():
    three = Cell(((("skip_connect", 0), ("sep_conv_3x3", 0), ("none", 1)), (), (), (("avg_pool_3x3", 2),)))
    genotype = Genotype(three, three)
    with pytest.raises(BadInput, match="two different sources"):
        Darts().arch_of(genotype)
    net = CellNet(genotype, Frame(4, 3), TINY)
    assert net(torch.randn(2, 1, 8, 8)).shape == (2, 3)


@pytest.mark.parametrize("task", [Task(4, 9, 1), Task(4, 33, 3), Task(4, 70, 3)])
def test_odd_sides_build_and_are_priced_exactly(task):
    space = Darts(cells=4, channels=4).fitted(task)
    arch = space.sample(np.random.default_rng(0))
    shape = (task.channels, task.image, task.image)
    net = space.network(arch, task)
    assert net(torch.randn(2, *shape)).shape == (2, 4)
    for cost in (Params(), Macs()):
        assert cost.table(space, task).form(arch) == cost.of(net, shape)


def test_xnas_network_for_imagenet_is_of_the_space_and_priced_exactly():
    options = {"cells": 14, "channels": 46, "stem_width": 56, "squeeze": True, "pool_norm": False}
    with torch.device("meta"):
        net = Darts(**options).network(Darts().arch_of(PUBLISHED["XNAS"]), IMAGENET)
    assert count(net) == zoo.cell_entry("XNAS", image=224)["params"]
    small = Darts(cells=6, channels=4, stem_width=6, squeeze=True).fitted(CIFAR)
    for arch in (small.heaviest, small.sample(np.random.default_rng(0))):
        assert Params().table(small, CIFAR).form(arch) == count(small.network(arch, CIFAR))
    plain = Darts(cells=6, channels=4, stem_width=6).fitted(CIFAR)
    assert count(plain.network(plain.heaviest, CIFAR)) < count(small.network(small.heaviest, CIFAR))


def test_reduction_loses_no_pixel():
    reduce = FactorizedReduce(1, 2)
    x = torch.zeros(1, 1, 6, 6)
    x[0, 0, 3, 3] = 1.0
    assert reduce.eval()(x).abs().sum() > 0


def test_search_network_of_another_size():
    space = Darts(cells=6, channels=8, search_cells=3, search_channels=4).fitted(TINY)
    net = space.supernet(TINY)
    assert len(net.cells) == 3
    assert net.extract(space.heaviest).cells[0].nodes[0][0][1].in_channels == 4
    assert len(space.network(space.heaviest, TINY).cells) == 6


def test_the_frontier_keeps_the_two_inputs_rule_and_is_exact_node_by_node():
    space = Darts()
    rng = np.random.default_rng(0)
    score = Quadratic(space.sizes, 0.0, {i: rng.normal(size=n) for i, n in enumerate(space.sizes)})
    cost = Params().table(space.fitted(CIFAR), CIFAR).form
    found = frontier(score, cost)
    assert len(found) > 10
    for n in range(0, len(found), 50):
        genotype = space.genotype(found.arch(n))
        assert all(len({s for _, s in reads}) == 2 for reads in (*genotype.normal.nodes, *genotype.reduce.nodes))


def test_a_space_of_one_cell_has_one_answer_with_and_without_a_budget():
    space = Darts(cells=3, channels=4, only="XNAS").fitted(TINY)
    arch = space.arch_of(PUBLISHED["XNAS"])
    cost = Params().table(space, TINY).form
    score = Quadratic(space.sizes, 0.0, {i: np.arange(n) * 1.0 for i, n in enumerate(space.sizes)})
    assert solve(Problem(score, space.rules)).arch == arch
    assert len(frontier(score, cost, space.rules)) == 1
    with pytest.raises(Infeasible):
        solve(Problem(score, (Limit("params", cost, cost(arch) - 1), *space.rules)))
    assert Darts().rules == ()


def test_mixture_opens_every_edge():
    space = Darts(cells=3, channels=4).fitted(TINY)
    weights = {i: torch.full((7,), 1 / 7) for i in space.forecasters(TINY)}
    gates = space.mixture(weights).weights
    for kind in (0, 1):
        for edge in range(14):
            share = space.openness(kind, edge, gates)
            assert share is None or float(share) == pytest.approx(1.0)
    assert set(space.forecasters(TINY).values()) == {1, 2}


def test_a_wiped_operation_changes_neither_outputs_nor_gradients_of_the_others():
    space = Darts(cells=3, channels=4).fitted(TINY)
    x = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def run(wipe):
        torch.manual_seed(0)
        net = space.supernet(TINY).double()
        gone = [(i, o) for i in space.forecasters(TINY) for o in (2, 3, 5)]
        weights = {i: torch.full((7,), 0.25, dtype=torch.float64) for i in space.forecasters(TINY)}
        for i, o in gone:
            weights[i][o] = 0.0
        leaves = {i: w.requires_grad_() for i, w in weights.items()}
        if wipe:
            net.wipe(gone)
            assert count(net) < 0.7 * count(space.supernet(TINY))
        out = net(x, space.mixture(leaves))
        out.square().sum().backward()
        gates = torch.stack([w.grad for w in leaves.values()])[:, [0, 1, 4, 6]]
        return out, gates, {n: p.grad for n, p in net.named_parameters() if p.grad is not None}

    (full, rewards, grads), (less, fewer, left) = run(False), run(True)
    torch.testing.assert_close(less, full)
    torch.testing.assert_close(fewer, rewards)
    assert len(left) < len(grads)
    for name, grad in left.items():
        torch.testing.assert_close(grad, grads[name])


def test_auxiliary_head_works_in_training_only_and_drop_path_keeps_the_mean():
    net = CellNet(PUBLISHED["XNAS"], Frame(4, 4, auxiliary=True), Task(3, 16))
    net.train()(torch.randn(2, 3, 16, 16))
    assert net.auxiliary_logits.shape == (2, 3)
    net.eval()(torch.randn(2, 3, 16, 16))
    assert net.auxiliary_logits is None
    drop = DropPath().train()
    x = torch.ones(4000, 1, 1, 1)
    assert torch.equal(drop(x), x)
    drop.path_p = 0.2
    torch.manual_seed(0)
    assert float(drop(x).mean()) == pytest.approx(1.0, abs=0.05)
    assert torch.equal(drop.eval()(x), x)


def test_options_are_checked():
    with pytest.raises(BadInput, match="at least 2"):
        Darts(cells=1)
    with pytest.raises(BadInput, match="at least 4 pixels"):
        Darts().fitted(Task(2, 3))
    with pytest.raises(BadInput, match="DARTS_V2"):
        zoo.cell_entry("nope")
    assert set(OPERATIONS) == set(Darts().choices[0].options)


def test_without_batch_norms_the_mixture_runs_on_every_device():
    space = Darts(cells=3, channels=4).fitted(TINY)
    torch.manual_seed(0)
    net = space.supernet(TINY)
    prepare(net, "kaiming", "off")
    x, gates = torch.randn(2, 1, 8, 8), Gates(tuple(torch.rand(n) for n in space.sizes))
    plain = net(x, gates)
    net.grouped = True  # as on a GPU
    torch.testing.assert_close(net(x, gates), plain)


@pytest.mark.parametrize("task", [TINY, Task(3, 9, 1)])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("some_wiped", [False, True])
def test_the_grouped_mixture_equals_the_plain_one(task, training, some_wiped):
    space = Darts(cells=3, channels=4).fitted(task)
    x = torch.randn(6, 1, task.image, task.image, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rng = np.random.default_rng(0)
    gone = [(i, int(o)) for i in space.forecasters(task) for o in rng.permutation(7)[: rng.integers(1, 7)]]
    found = []
    for grouped in (False, True):
        torch.manual_seed(0)
        net = space.supernet(task).double().train()
        net.grouped = False
        with torch.no_grad():
            net(x + 1, space.mixture({i: torch.full((7,), 1 / 7).double() for i in space.forecasters(task)}))
        net.train(training).grouped = grouped
        if some_wiped:
            net.wipe(gone)
        drawn = np.random.default_rng(1)
        leaves = {i: torch.tensor(drawn.random(7)).requires_grad_() for i in space.forecasters(task)}
        out = net(x, space.mixture(leaves))
        out.square().sum().backward()
        rewards = torch.stack([w.grad for w in leaves.values()])
        grads = {n: p.grad for n, p in net.named_parameters() if p.grad is not None}
        statistics = {n: b for n, b in net.named_buffers() if b.is_floating_point()}
        found.append((out, rewards, grads, statistics))
    (out, rewards, grads, statistics), (other, more, theirs, kept) = found
    torch.testing.assert_close(other, out)
    torch.testing.assert_close(more, rewards)
    assert grads.keys() == theirs.keys()
    for name, grad in grads.items():
        torch.testing.assert_close(theirs[name], grad, msg=name)
    for name, value in statistics.items():
        torch.testing.assert_close(kept[name], value, msg=name)
