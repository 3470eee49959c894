"""Cells of any wiring: rules, genotypes, switches, both forms of the search network."""

import numpy as np
import pytest
import torch

from sartor.core.arch import Arch, canonical
from sartor.core.errors import BadInput
from sartor.core.quadratic import Limit, Quadratic
from sartor.core.registry import COSTS
from sartor.core.task import Task
from sartor.deploy.export import export_onnx
from sartor.deploy.module import Deployed
from sartor.solvers import cheapest, solve
from sartor.solvers.base import Problem
from sartor.spaces.base import Gates
from sartor.spaces.cells.freecells import ON, FreeCells
from sartor.spaces.cells.genotype import EDGES, OPERATIONS, PUBLISHED, Cell, Genotype

TASK = Task(4, 12, 3)
SPACE = FreeCells(cells=3, channels=4).fitted(TASK)


def images(count=4):
    return torch.randn(count, 3, 12, 12, generator=torch.Generator().manual_seed(0))


def net():
    torch.manual_seed(0)
    return SPACE.supernet(TASK)


def test_samples_keep_the_rules_and_rules_are_broken_by_a_node_that_reads_nothing():
    rng = np.random.default_rng(0)
    for _ in range(30):
        arch = SPACE.sample(rng)
        assert all(rule.holds(arch) for rule in SPACE.rules)
    picks = list(SPACE.heaviest.picks)
    for edge in (0, 1):
        for operation in range(len(OPERATIONS)):
            picks[SPACE.choice_of(0, edge, operation)] = 1 - ON
    broken = [rule.name for rule in SPACE.rules if not rule.holds(Arch(tuple(picks)))]
    assert broken == ["normal.node1 reads something"]


def test_every_operation_has_a_choice_of_its_own():
    hubs = [SPACE.hub(kind) for kind in (0, 1)]
    rest = [SPACE.choice_of(k, e, o) for k in (0, 1) for e in range(len(EDGES)) for o in range(len(OPERATIONS))]
    assert sorted(hubs + rest) == list(range(len(SPACE.choices)))


def test_genotypes_there_and_back():
    rng = np.random.default_rng(1)
    for arch in (SPACE.heaviest, SPACE.smallest, *(SPACE.sample(rng) for _ in range(10))):
        genotype = SPACE.genotype(arch)
        assert SPACE.arch_of(genotype) == canonical(SPACE.choices, arch)
        assert Genotype.from_text(SPACE.describe(arch)) == genotype
    assert SPACE.genotype(SPACE.arch_of(PUBLISHED["DARTS_V2"])).normal.concat == (2, 3, 4, 5)


@pytest.mark.parametrize(
    "cell",
    [
        Cell(((("skip_connect", 0),),) * 3, (2, 3, 4)),
        Cell(((("skip_connect", 0), ("skip_connect", 0)), (), (), ()), (2,)),
        Cell(((("skip_connect", 0),), (("skip_connect", 0),), (), ()), (2,)),
    ],
)
def test_other_cells_are_refused(cell):
    with pytest.raises(BadInput, match="of this space"):
        SPACE.arch_of(Genotype(cell, cell))


def test_a_dead_nodes_channels_are_gone():
    pool = ((("max_pool_3x3", 0),), (), (), (("sep_conv_3x3", 0),))
    arch = SPACE.arch_of(Genotype(Cell(pool, (2, 5)), Cell(pool, (2, 5))))
    made = SPACE.network(arch, TASK)
    assert made.classifier.linear.in_features == 2 * 16
    assert made.cells[1].preprocess[1][1].in_channels == 2 * 4


def test_a_network_with_dead_nodes_is_exported_for_any_batch(tmp_path):
    reads = ((("max_pool_3x3", 0),), (), (), (("sep_conv_3x3", 1),))
    arch = SPACE.arch_of(Genotype(Cell(reads, (2, 5)), Cell(reads, (2, 5))))
    model = Deployed(SPACE.network(arch, TASK), (0.0,) * 3, (1.0,) * 3)
    assert export_onnx(model, TASK, tmp_path / "model.onnx") < 1e-2


def test_the_cheapest_network_is_the_smallest_and_only_means_only():
    table = COSTS["params"]().table(SPACE, TASK)
    assert cheapest(table.form, SPACE.rules).value == table.form(SPACE.smallest)
    alone = FreeCells(cells=3, channels=4, only="XNAS").fitted(TASK)
    solution = solve(Problem(Quadratic(alone.sizes), (Limit("params", table.form, 1e9), *alone.rules)))
    assert alone.genotype(solution.arch).normal.depth == PUBLISHED["XNAS"].normal.depth


def test_the_circuit_is_the_cells_wiring():
    circuit = SPACE.circuit(TASK)
    assert len(circuit) == 2 * 14 * 8
    assert SPACE.counts(TASK) == (1, 2)
    assert sum(s.places for s in circuit.switches) == 14 * 8 * 3
    last = circuit.switches[14 * 8 - 1]
    assert (last.name, last.reads, last.feeds) == ("normal.node4.from4.dil_conv_5x5", "normal.4", "normal.5")
    assert len(circuit.predecessors[14 * 8 - 1]) == 4 * 7
    on = np.ones(len(circuit), bool)
    on[: 2 * 8] = False  # node 1 of the normal cell reads nothing
    left = circuit.alive(on)
    assert not left[[i for i, s in enumerate(circuit.switches) if s.reads == "normal.2"]].any()
    assert left[14 * 8 :].all()
    assert not circuit.severed(on)
    on[: 14 * 8] = False
    assert len(circuit.severed(on)) == 1


def undone(made, w):
    """Weights that undo what a node's sum is divided by."""
    parts, start = [], 0
    for kind, places in enumerate(SPACE.counts(TASK)):
        rows = w[start : start + 14 * 8 * places].view(14, 8, places)
        shares = made._shares(kind, w.device).to(w.dtype)
        parts.append(torch.cat([rows[:, :1], rows[:, 1:] / shares], 1).flatten())
        start += rows.numel()
    return torch.cat(parts)


def test_switches_are_weights_of_operations_and_both_forms_agree():
    made, x, circuit = net().double(), images().double(), SPACE.circuit(TASK)
    w = torch.ones(len(circuit.owner), dtype=torch.float64)
    whole = made(x, SPACE.heaviest)
    torch.testing.assert_close(SPACE.switched(made, x, undone(made, w)), whole, rtol=1e-5, atol=1e-5)
    assert made.training  # in evaluation there is only one form
    w = torch.rand(len(circuit.owner), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    w.requires_grad_()
    logits, grads = [], []
    for grouped in (False, True):
        made.grouped = grouped
        logits.append(SPACE.switched(made, x, w))
        grads.append(torch.autograd.grad(logits[-1].pow(2).sum(), w)[0])
    torch.testing.assert_close(*logits)
    torch.testing.assert_close(*grads)
    assert (grads[0] != 0).all()


def test_wiped_operations_leave_the_computation():
    made, x, circuit = net().double(), images().double(), SPACE.circuit(TASK)
    w = torch.rand(len(circuit.owner), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    gone = [i for i, s in enumerate(circuit.switches) if s.pick and (s.name.startswith("normal.node1") or i % 3)]
    for i in gone:
        w[circuit.slices[i]] = 0.0
    expected = SPACE.switched(made, x, undone(made, w))
    before = sum(p.numel() for p in made.parameters())
    made.wipe([circuit.switches[i].pick for i in gone])
    assert sum(p.numel() for p in made.parameters()) < 0.6 * before
    for grouped in (False, True):
        made.grouped = grouped
        torch.testing.assert_close(SPACE.switched(made, x, undone(made, w)), expected, rtol=1e-5, atol=1e-5)


PAPERS = FreeCells(cells=3, channels=4, order="bn_relu_conv").fitted(TASK)


def test_the_papers_order_has_the_papers_parameters_and_prices_them():
    """BN-ReLU-Conv (D.1): the published cells' evaluation network to the unit, and every part of any network."""
    whole = FreeCells(**FreeCells.papers_size(Task(10, 32))).fitted(Task(10, 32))
    table = COSTS["params"]().table(whole, Task(10, 32))
    assert table.form(whole.arch_of(PUBLISHED["BayesNAS-0.01"])) == 2_575_702  # PAPERS.md D
    rng, params = np.random.default_rng(0), COSTS["params"]().table(PAPERS, TASK).form
    for arch in (PAPERS.heaviest, PAPERS.smallest, *(PAPERS.sample(rng) for _ in range(4))):
        built = PAPERS.network(arch, TASK)
        assert params(arch) == sum(p.numel() for p in built.parameters())
        assert built(images()).shape == (4, 4)


@torch.no_grad()
def test_the_search_network_in_the_papers_order_is_the_networks_it_stands_for():
    torch.manual_seed(0)
    made, x, rng = PAPERS.supernet(TASK).train(), images(), np.random.default_rng(0)
    assert sum(isinstance(m, torch.nn.ReLU) for m in made.modules()) > 0
    for _ in range(3):
        made(images(8) * 2, PAPERS.sample_picks(rng, 8))
    made.eval()
    alive = [PAPERS.heaviest]
    while len(alive) < 4:
        picks = list(PAPERS.sample(rng).picks)
        picks[PAPERS.hub(0)] = picks[PAPERS.hub(1)] = 0  # all nodes live
        if all(rule.holds(Arch(tuple(picks))) for rule in PAPERS.rules):
            alive.append(Arch(tuple(picks)))
    for arch in alive:
        one_hot = Gates(tuple(torch.eye(n)[p] for n, p in zip(PAPERS.sizes, arch.picks, strict=True)))
        torch.testing.assert_close(made.extract(arch)(x), made(x, arch), atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(made(x, one_hot), made(x, arch), atol=1e-4, rtol=1e-4)
    with pytest.raises(BadInput, match="cannot take over weights"):
        made.extract(PAPERS.smallest)


def test_the_papers_order_is_exported(tmp_path):
    """Max-poolings of negative values show whether a runtime takes their border for what it is."""
    net = PAPERS.network(PAPERS.smallest, TASK)
    torch.nn.init.constant_(net.stem.weight, -0.1)
    assert export_onnx(Deployed(net, (0.0,) * 3, (255.0,) * 3), TASK, tmp_path / "model.onnx") < 1e-4


def test_every_cell_has_weights_of_its_own():
    made, x, circuit = net().double().eval(), images().double(), SPACE.circuit(TASK)
    w = torch.ones(len(circuit.owner), dtype=torch.float64, requires_grad=True)
    number = next(i for i, s in enumerate(circuit.switches) if s.name == "reduce.node1.from0.sep_conv_3x3")
    grad = torch.autograd.grad(SPACE.switched(made, x, w).pow(2).sum(), w)[0][circuit.slices[number]]
    assert grad.shape == (2,) and grad[0] != grad[1]
