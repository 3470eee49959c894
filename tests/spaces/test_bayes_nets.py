import itertools
import json

import pytest
import torch

from sartor.core.errors import BadInput
from sartor.core.task import Task
from sartor.costs import published as zoo
from sartor.spaces.cells.bayes_nets import BayesNet, operation
from sartor.spaces.cells.darts import Darts
from sartor.spaces.cells.genotype import INPUTS, PUBLISHED, Cell, Genotype
from sartor.spaces.cells.nets import Frame

NAMES = [name for name in PUBLISHED if name.startswith("BayesNAS")]


def by_hand(genotype: Genotype) -> int:
    """Parameters of the evaluation network, added up from PAPERS.md D without building anything."""

    def op(name: str, c: int, stride: int) -> int:
        if name == "skip_connect":
            return 2 * c + c * c if stride == 2 else 0
        if not name.startswith("sep"):
            return 0
        kernel = int(name[-1])
        return 2 * (2 * c + c * kernel**2 + c * c)

    total, width = 3 * 9 * 108, 36
    before = last = 108
    after_reduction = False
    for k in range(20):
        reduces = k in (6, 13)  # after the sixth and the twelfth normal cell
        width *= 2 if reduces else 1
        total += sum(2 * c + c * width for c in (before, last)) + (before**2 if after_reduction else 0)
        for reads in (genotype.reduce if reduces else genotype.normal).nodes:
            total += sum(op(name, width, 2 if reduces and source < INPUTS else 1) for name, source in reads)
        before, last, after_reduction = last, 4 * width, reduces
    return total + 2 * last + 10 * last + 10


@pytest.mark.parametrize("name", NAMES)
def test_parameters_to_the_unit(name):
    entry = zoo.cell_entry(name.lower())
    assert entry["params"] == by_hand(PUBLISHED[name])
    assert (entry["name"], entry["channels"], entry["cells"]) == (name, 36, 20)
    assert json.loads(json.dumps(entry)) == entry


def test_the_published_count():
    assert len(NAMES) == 3
    assert zoo.cell_entry("BayesNAS-0.01")["params"] == 2_575_702  # PAPERS.md D
    for name in NAMES[1:]:
        assert zoo.cell_entry(name)["params"] < 3.5e6


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("task", [Task(3, 8, 1), Task(3, 9, 1)])
def test_networks_run_and_learn_on_images_of_any_side(name, task):
    torch.manual_seed(0)
    net = BayesNet(PUBLISHED[name], Frame(4, 6), task)
    for cell in net.cells:
        cell.drop.path_p = 0.2
    features, logits = net.trace(torch.randn(2, 1, task.image, task.image))
    assert logits.shape == (2, 3)
    side = task.image
    sides = [side, side, side, -(-side // 2), -(-side // 2), -(-side // 4), -(-side // 4)]
    assert [f.shape[-1] for f in features] == sides
    logits.square().sum().backward()
    unused = {n for n, p in net.named_parameters() if p.grad is None}
    assert not unused


def test_operations_keep_the_paper_s_order_and_pads():
    layers = operation("sep_conv_3x3", 4, 2)
    assert [type(layer).__name__ for layer in layers] == ["BatchNorm2d", "ReLU", "Conv2d", "Conv2d"] * 2
    negative = -torch.ones(1, 4, 5, 5)
    for stride, side in itertools.product((1, 2), (4, 5, 7, 8)):  # the border is of zeros
        x = torch.randn(2, 4, side, side) - 2
        padded = torch.nn.functional.max_pool2d(torch.nn.functional.pad(x, (1,) * 4), 3, stride)
        assert torch.equal(operation("max_pool_3x3", 4, stride)(x), padded)
    assert operation("avg_pool_3x3", 4, 1)(negative)[0, 0, 0, 0] == pytest.approx(-4 / 9)
    assert operation("dil_conv_3x3", 4, 1)[2].groups == 1
    for name in ("sep_conv_5x5", "dil_conv_5x5", "max_pool_3x3", "avg_pool_3x3", "skip_connect"):
        for stride in (1, 2):
            assert operation(name, 4, stride)(torch.randn(2, 4, 7, 7)).shape == (
                2,
                4,
                7 // stride + stride - 1,
                7 // stride + stride - 1,
            )
    with pytest.raises(BadInput, match="left out"):
        operation("none", 4, 1)


def test_a_node_without_operations_is_zero():
    cell = Cell(((("sep_conv_3x3", 1),), ()), (2, 3))
    net = BayesNet(Genotype(cell, cell), Frame(4, 3), Task(2, 8)).eval()
    assert not net.trace(torch.randn(1, 3, 8, 8))[0][1][:, 4:].any()


def test_cells_with_several_operations_an_edge_are_not_of_the_darts_space():
    with pytest.raises(BadInput, match="two different sources"):
        Darts().arch_of(PUBLISHED["BayesNAS-0.01"])


def test_large_images_have_a_strided_stem():
    entry = zoo.cell_entry("BayesNAS-0.01", image=64)
    assert (entry["cells"], entry["classes"]) == (14, 1000)
