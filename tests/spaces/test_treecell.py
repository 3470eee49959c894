import numpy as np
import pytest
import torch
from torch import nn

from sartor.core.arch import canonical
from sartor.core.errors import BadInput
from sartor.core.quadratic import Limit, Quadratic
from sartor.core.task import Task
from sartor.costs.params import Params
from sartor.solvers import solve
from sartor.solvers.base import Problem
from sartor.spaces.base import Gates
from sartor.spaces.treecell.nets import Half, TreeCell, operation
from sartor.spaces.treecell.space import TreeCells
from sartor.spaces.treecell.tree import EDGES, PATHS, ROOTS, SUBSETS, cells_of, children, through, way

CIFAR, TINY = Task(10, 32), Task(3, 8, 1)


def count(net):
    return sum(p.numel() for p in net.parameters())


@pytest.fixture(scope="module")
def space():
    return TreeCells(blocks=1, channels=4, alpha=6).fitted(TINY)


@pytest.fixture
def net(space):
    torch.manual_seed(0)
    made = space.supernet(TINY).train()
    with torch.no_grad():
        made(torch.randn(8, 1, 8, 8) * 2, space.heaviest)
    return made.eval()


def test_the_tree_has_nine_paths_of_three_edges():
    assert len(PATHS) == 9
    assert sorted(e for p in PATHS for e in way(p) if len(e) == 3) == sorted(PATHS)
    assert {e for p in PATHS for e in way(p)} == set(EDGES)
    assert sum(len(through(root)) for root in ROOTS) == 9
    assert all(len(children(e)) in (2, 3) for e in EDGES if e not in PATHS)
    assert len(SUBSETS[0]) * len(SUBSETS[1]) + len(SUBSETS[0]) + len(SUBSETS[1]) + 1 == 2**9


def test_the_paper_s_network():
    # 18 bottlenecks a stage, alpha 84: the tree cell's authors report 5.7 M with all paths, BayesNAS 3.4 M for some
    space = TreeCells(blocks=18, channels=16, alpha=84).fitted(CIFAR)
    with torch.device("meta"):
        net = space.network(space.heaviest, CIFAR)
        assert count(net) == 5_794_602
        rest = count(space.network(space.smallest, CIFAR))
        wide = TreeCells(blocks=18, channels=16, alpha=150).fitted(CIFAR)
        assert int(count(wide.network(wide.heaviest, CIFAR)) / 1e5) == 143  # they report 14.3 M
    slots = space.frame(CIFAR).slots
    assert rest == 3 * 9 * 16 + 2 * 16 + 2 * slots[-1].outputs + 10 * slots[-1].outputs + 10  # shortcuts have none
    assert (len(slots), slots[0].width, slots[-1].width, slots[-1].outputs) == (54, 18, 100, 400)
    assert [s.stride for s in slots].count(2) == 2
    assert slots[-1].out_side == 8
    assert len(space.circuit(CIFAR)) == 54 * 15


def test_a_cell_is_what_the_tree_says():
    torch.manual_seed(0)
    cell, x = TreeCell(PATHS, 4, 1, 2).eval(), torch.randn(2, 4, 6, 6)
    e = cell.edges
    one, two = e["1"](x), e["2"](x)
    first, pooled = e["11"](one), e["12"](one)
    halves = torch.cat([e["111"].op(first[:, :2]), e["112"].op(first[:, 2:])], 1)  # split and concatenated
    large, small = e["21"](two), e["22"](two)
    expected = halves + e["121"](pooled) + e["122"](pooled)
    expected = expected + sum(e[f"21{k}"](large) for k in (1, 2, 3)) + e["221"](small) + e["222"](small)
    torch.testing.assert_close(cell(x), expected)
    weights = torch.rand(9)
    alone = torch.stack([cell(x, [p]) for p in PATHS])
    torch.testing.assert_close(cell(x, weights=weights), torch.einsum("p,p...->...", weights, alone))


def test_operations():
    assert [type(m).__name__ for m in operation("sep5", 4)] == ["BatchNorm2d", "ReLU", "Conv2d", "Conv2d"]
    assert operation("conv3", 4, 2, 2)[2].groups == 2
    assert operation("conv1", 4, 1, 2)[2].groups == 1
    assert isinstance(operation("max3", 4), nn.MaxPool2d)
    y = Half(nn.Identity(), 4, second=True)(torch.ones(1, 4, 2, 2))
    assert y[:, :2].sum() == 0
    assert y[:, 2:].sum() == 8


def test_architectures_read_back(space):
    rng = np.random.default_rng(0)
    for arch in [space.heaviest, space.smallest, *(space.sample(rng) for _ in range(20))]:
        assert space.read(space.describe(arch)) == arch == canonical(space.choices, arch)
    assert space.describe(space.smallest) == "- - -"
    assert cells_of(space.read("111 - 122+213")) == [("111",), (), ("122", "213")]
    for wrong in ("111", "111 112 113", "a b c"):
        with pytest.raises(BadInput, match="3 blocks"):
            space.read(wrong)


def test_a_block_without_paths_is_its_shortcut(space, net):
    x = torch.randn(2, 1, 8, 8)
    features, logits = net.trace(x, space.smallest)
    assert logits.shape == (2, 3)
    torch.testing.assert_close(features[1][:, : features[0].shape[1]], features[0])
    assert not features[1][:, features[0].shape[1] :].any()


def test_one_path_costs_its_three_edges_and_the_bottleneck(space):
    table = Params().table(space, TINY)
    base = table.form(space.smallest)
    slot = space.frame(TINY).slots[0]
    c = slot.width
    bottleneck = 2 * slot.inputs + slot.inputs * c + 2 * c + c * slot.outputs + 2 * slot.outputs
    conv3, max3, sep3 = 2 * c + c * c // 2 * 9, 0, 2 * c + 9 * c + c * c
    assert table.form(space.read("121 - -")) - base == bottleneck + conv3 + max3 + sep3
    assert table.form(space.read("121+122 - -")) - table.form(space.read("121 - -")) == 2 * c + 25 * c + c * c


def test_budgets_are_solved_exactly_by_the_frontier(space):
    rng = np.random.default_rng(0)
    linear = {i: rng.standard_normal(n) for i, n in enumerate(space.sizes)}
    table = Params().table(space, TINY)
    budget = 0.5 * table.form(space.heaviest)
    found = solve(Problem(Quadratic(space.sizes, 0.0, linear), (Limit("params", table.form, budget),)))
    assert found.proven
    assert found.solver == "frontier"
    assert count(space.network(found.arch, TINY)) <= budget


# switches ------------------------------------------------------------------------------------------


def test_switches_of_ones_are_the_whole_network_and_of_a_mask_the_network_without(space, net):
    x = torch.randn(3, 1, 8, 8)
    circuit = space.circuit(TINY)
    torch.testing.assert_close(space.switched(net, x, torch.ones(len(circuit))), net(x, space.heaviest))
    names = [s.name for s in circuit.switches]
    w = torch.ones(len(circuit))
    for off in ("block1.12.max3", "block2.2.conv3", "block3.213.avg3"):
        w[names.index(off)] = 0.0
    cells = [[p for p in PATHS if not p.startswith(gone)] for gone in ("12", "2", "213")]
    torch.testing.assert_close(space.switched(net, x, w), net(x, space.arch_of(cells)))


def test_an_edge_depends_on_the_one_that_it_follows(space):
    circuit = space.circuit(TINY)
    names = [s.name for s in circuit.switches]
    before = circuit.predecessors[names.index("block2.121.sep3")]
    assert [names[i] for i in before] == ["block2.12.max3"]
    assert circuit.predecessors[names.index("block2.1.conv3")] is None
    on = np.ones(len(circuit), bool)
    on[names.index("block2.12.max3")] = False
    gone = {names[i] for i in np.flatnonzero(on & ~circuit.alive(on))}
    assert gone == {"block2.121.sep3", "block2.122.sep5"}
    on[[i for i, n in enumerate(names) if n.startswith("block2.") and len(n.split(".")[1]) == 3]] = False
    assert not any(circuit.alive(on)[15:30])
    assert circuit.severed(circuit.alive(on)) == []  # the shortcut connects


def test_a_score_of_switches_keeps_exactly_what_is_relevant(space):
    """As BayesNAS makes its score: the sum over the switches that an option has."""
    rng, circuit = np.random.default_rng(3), space.circuit(TINY)
    on = circuit.alive(rng.random(len(circuit)) < 0.7)
    values = np.where(on, 1.0, -1.0) * rng.random(len(circuit))
    tables = {i: np.zeros(n) for i, n in enumerate(space.sizes)}
    for switch, value in zip(circuit.switches, values, strict=True):
        for choice, option in switch.picks:
            tables[choice][option] += value
    linear, pairs = {}, {}
    for choice, row in tables.items():
        if space.choices[choice].needs:
            ((hub, allowed),) = space.choices[choice].needs
            pairs[hub, choice] = np.zeros((4, len(row)))
            pairs[hub, choice][list(allowed)] = row
        else:
            linear[choice] = row
    cells = cells_of(solve(Problem(Quadratic(space.sizes, 0.0, linear, pairs))).arch)
    for number, paths in enumerate(cells):
        block = on[15 * number : 15 * number + 15]
        assert set(paths) == {e for e, alive in zip(EDGES, block, strict=True) if alive and e in PATHS}


def test_what_is_wiped_leaves_and_changes_nothing_else(space, net):
    circuit, x = space.circuit(TINY), torch.randn(3, 1, 8, 8)
    names, w = [s.name for s in circuit.switches], torch.rand(len(circuit)) + 0.5
    gone = [n for n in names if n.startswith(("block1.12", "block2.", "block3.213"))]
    for name in gone:
        w[names.index(name)] = 0.0
    size = count(net)
    net.wipe([p for name in gone for p in circuit.switches[names.index(name)].picks])
    w.requires_grad_()
    after = space.switched(net, x, w)
    assert count(net) < size
    assert count(net.blocks[1].cell) == 0
    assert count(net.blocks[0].cell.edges["12"]) == 0 < count(net.blocks[0].cell.edges["1"])
    after.sum().backward()
    assert not w.grad[15:30].any()
    assert w.grad[0] != 0
    left = [[p for p in PATHS if not p.startswith("12")], [], [p for p in PATHS if p != "213"]]
    arch = space.arch_of(left)
    torch.testing.assert_close(net(x, arch), net.extract(arch)(x))
    torch.testing.assert_close(net(x, arch), space.switched(net, x, torch.ones(len(circuit))))


def test_the_shares_of_a_mixture(space, net):
    """A path weighs what the options with it weigh, times its branch; the block what its branches weigh."""
    weights = [torch.rand(n) for n in space.sizes]
    paths, share = net.path_weights(1, weights)
    hub, first, second = weights[3:6]
    for n, path in enumerate(PATHS):
        branch, live, subsets = (first, (0, 1), SUBSETS[0]) if path[0] == "1" else (second, (0, 2), SUBSETS[1])
        expected = hub[list(live)].sum() * sum(branch[k] for k, kept in enumerate(subsets) if path in kept)
        torch.testing.assert_close(paths[n], expected)
    torch.testing.assert_close(share, hub[:3].sum())
    gates = Gates(tuple(w.requires_grad_() for w in weights))
    net(torch.randn(2, 1, 8, 8), gates).sum().backward()
    assert all(w.grad is not None and w.grad.abs().sum() > 0 for w in weights)


def test_sizes_follow_the_image():
    assert TreeCells().fitted(CIFAR).blocks == 6
    assert TreeCells().fitted(TINY).blocks == 2
    large = TreeCells(blocks=1).fitted(Task(10, 64))
    assert (large.stem, large.frame(Task(10, 64)).slots[0].side) == ("large", 16)
    assert large.network(large.heaviest, Task(10, 64))(torch.randn(2, 3, 64, 64)).shape == (2, 10)
    assert TreeCells(blocks=2).sketch().choices == TreeCells(blocks=2).choices
    odd = TreeCells(blocks=1, channels=4, alpha=6).fitted(Task(3, 9, 1))
    assert odd.network(odd.heaviest, Task(3, 9, 1))(torch.randn(2, 1, 9, 9)).shape == (2, 3)


def test_options_are_checked():
    with pytest.raises(BadInput, match="at least 1"):
        TreeCells(blocks=0)
    with pytest.raises(BadInput, match="alpha"):
        TreeCells(alpha=-1)
    with pytest.raises(BadInput, match="4 pixels"):
        TreeCells().fitted(Task(2, 3))
