"""Proxies against their definitions written out, and aggregation of ranks."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sartor.core.errors import BadInput
from sartor.core.registry import PROXIES
from sartor.proxies.aggregate import aggregate


def small():
    torch.manual_seed(3)
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(27, 2)).double()


@pytest.fixture
def batch():
    torch.manual_seed(4)
    return torch.randn(6, 1, 5, 5, dtype=torch.float64), torch.tensor([0, 1, 0, 1, 1, 0])


def weights_and_grads(net, x, y):
    weights = [net[0].weight, net[3].weight]
    return list(zip(weights, torch.autograd.grad(F.cross_entropy(net(x), y), weights), strict=True))


def test_gradient_norm_and_snip(batch):
    net = small()
    pairs = weights_and_grads(net, *batch)
    assert PROXIES["grad_norm"]()(net, *batch) == pytest.approx(sum(float(g.norm()) for _, g in pairs))
    assert PROXIES["snip"]()(net, *batch) == pytest.approx(sum(float((w * g).abs().sum().detach()) for w, g in pairs))


def test_grasp_is_the_finite_difference_of_the_gradient_along_itself(batch):
    net = small()
    x, y = batch
    pairs = weights_and_grads(net, x, y)
    step, total = 1e-5, 0.0
    moved = []
    for sign in (1, -1):
        other = small()
        with torch.no_grad():
            for weight, (_, g) in zip((other[0].weight, other[3].weight), pairs, strict=True):
                weight.add_(sign * step * g)
        moved.append([g for _, g in weights_and_grads(other, x, y)])
    for (w, _), up, down in zip(pairs, *moved, strict=True):
        total -= float((w * (up - down) / (2 * step)).sum().detach())
    assert PROXIES["grasp"]()(net, x, y) == pytest.approx(total, rel=1e-4)


def test_synflow_of_a_linear_chain_counts_every_layer_once_as_the_whole_flow():
    net = nn.Sequential(nn.Conv2d(1, 2, 1, bias=False), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3, bias=False))
    x, y = torch.randn(3, 1, 2, 2), torch.zeros(3, dtype=torch.int64)
    flow = float((net[3].weight.abs() @ net[0].weight.abs().flatten().repeat_interleave(4)).sum().detach())
    assert PROXIES["synflow"]()(net, x, y) == pytest.approx(2 * flow, rel=1e-5)


def test_fisher(batch):
    net = small()
    x, y = batch
    a = net[0](x)
    out = net[3](net[2](net[1](a)))
    ga, go = torch.autograd.grad(F.cross_entropy(out, y), (a, out))
    expected = ((a * ga).sum((2, 3)) ** 2).mean(0).sum() / 2 + ((out * go) ** 2).mean(0).sum() / 2
    assert PROXIES["fisher"]()(net, x, y) == pytest.approx(float(expected))


def test_jacobian_covariance(batch):
    net = small()
    x, y = batch
    rows = torch.autograd.functional.jacobian(lambda x: net(x).sum(1), x)
    own = np.stack([rows[n, n].flatten().numpy() for n in range(len(x))])
    values = np.linalg.eigvalsh(np.corrcoef(own)) + 1e-5
    assert PROXIES["jacob_cov"]()(net, x, y) == pytest.approx(-float(np.sum(np.log(values) + 1 / values)), rel=1e-6)
    blind = nn.Sequential(nn.Flatten(), nn.Linear(25, 2)).double()
    nn.init.zeros_(blind[1].weight)
    assert PROXIES["jacob_cov"]()(blind, x, y) == -math.inf


def test_naswot_counts_agreeing_units(batch):
    net = small()
    x, y = batch
    on = (net[0](x) > 0).flatten(1)
    kernel = np.array([[int((a == b).sum()) for b in on] for a in on], float)
    assert PROXIES["naswot"]()(net, x, y) == pytest.approx(np.linalg.slogdet(kernel)[1])


def test_zico(batch):
    net = small()
    x, y = batch
    halves = [weights_and_grads(net, x[i : i + 3], y[i : i + 3]) for i in (0, 3)]
    total = 0.0
    for layer in range(2):
        g = torch.stack([h[layer][1] for h in halves])
        deviation = g.std(0, correction=0)
        on = deviation > 0
        total += math.log(float((g.abs().mean(0)[on] / deviation[on]).sum()))
    assert PROXIES["zico"]()(net, x, y) == pytest.approx(total)
    with pytest.raises(BadInput, match="2 <= parts <= images"):
        PROXIES["zico"](parts=7)(net, x, y)


def test_counts(batch):
    net, (x, y) = small(), batch
    assert PROXIES["params"]()(net, x, y) == 3 * 9 + 3 + 27 * 2 + 2
    assert PROXIES["flops"]()(net, x, y) == 9 * 27 + 54
    assert PROXIES["layers"]()(net, x, y) == 2


@pytest.mark.parametrize("form", ["batch", "sum", "exact"])
def test_ntk_traces_agree_with_the_engine(form, batch):
    from sartor.engine.curvature import kernel as curvature

    net, (x, y) = small(), batch
    expected = {
        "batch": lambda: curvature.batch_trace(net, x, y),
        "sum": lambda: curvature.sum_trace(net, x, y),
        "exact": lambda: curvature.exact_trace(net, x),
    }[form]()
    for norm in ("batch", "running", "off"):
        assert PROXIES["ntk_trace"](form=form, norm=norm)(net, x, y) == pytest.approx(expected)


def test_aggregation_of_ranks():
    a, b = [1.0, 2.0, 3.0, 4.0], [10.0, 30.0, 20.0, 40.0]
    np.testing.assert_allclose(aggregate({"a": a, "b": b}, "mean"), np.array([1, 2.5, 2.5, 4]) / 4)
    expected = np.log(np.array([1, 2, 3, 4]) / 4) + np.log(np.array([1, 3, 2, 4]) / 4)
    np.testing.assert_allclose(aggregate({"a": a, "b": b}), expected / 2)
    assert np.argmin(aggregate({"a": [1.0, math.nan, 2.0]})) == 1
    heavy = aggregate({"a": a, "b": b[::-1]}, "mean", {"a": 3.0, "b": 1.0})
    assert np.argmax(heavy) == 3
    for wrong in ({}, {"a": a, "b": b[:2]}):
        with pytest.raises(BadInput, match="aggregation needs"):
            aggregate(wrong)


def test_expressivity_of_features_by_hand(batch):
    """Two equal uncorrelated channels have entropy log 2; a copied channel adds nothing; constant ones have none."""
    x = torch.zeros(4, 3, 1, 1, dtype=torch.float64)
    x[:, 0, 0, 0] = torch.tensor([1.0, -1.0, 1.0, -1.0])
    x[:, 1, 0, 0] = torch.tensor([1.0, 1.0, -1.0, -1.0])
    y = torch.zeros(4, dtype=torch.int64)
    proxy = PROXIES["expressivity"]()
    assert proxy(nn.Sequential(nn.Identity()), x, y) == pytest.approx(math.log(2))
    x[:, 1] = x[:, 0]
    assert proxy(nn.Sequential(nn.Identity()), x, y) == pytest.approx(0.0, abs=1e-9)
    assert proxy(nn.Sequential(nn.Identity()), torch.ones_like(x), y) == 0.0
    assert proxy(small(), *batch) > 0


def test_sum_of_image_norms_under_batch_statistics(batch):
    """Every image's own loss, with all images in the batch-norm: one backward pass an image."""
    torch.manual_seed(5)
    net = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(27, 2)).double()
    x, y = batch
    losses, expected = F.cross_entropy(net(x), y, reduction="none"), 0.0
    for loss in losses:
        expected += sum(
            float(g.pow(2).sum()) for g in torch.autograd.grad(loss, list(net.parameters()), retain_graph=True)
        )
    assert PROXIES["ntk_trace"](form="sum")(net, x, y) == pytest.approx(expected)
    assert PROXIES["ntk_trace"](form="sum", norm="running")(net, x, y) != pytest.approx(expected, rel=1e-3)
