"""Diagonals of Hessians against dense ones in double precision."""

import pytest
import torch
import torch.nn.functional as F
from gaussian import Gaussian
from torch import nn

from sartor.core.errors import BadInput
from sartor.engine.curvature import hessian
from sartor.engine.curvature.hessian import Categorical, diagonal

CLASSES, SWITCHES = 3, 6


class Switched(nn.Module):
    """Two mixtures of three operations as in a cell, with batch-norms on the batch's statistics."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(2, 4, 3, padding=1, bias=False)
        self.first = nn.ModuleList([self.conv(3), nn.MaxPool2d(3, 1, 1), nn.Identity()])
        self.second = nn.ModuleList([self.conv(1), nn.AvgPool2d(3, 1, 1, count_include_pad=False), self.conv(3)])
        self.head = nn.Linear(4, CLASSES)

    @staticmethod
    def conv(kernel):
        layers = nn.Conv2d(4, 4, kernel, padding=kernel // 2, groups=4, bias=False), nn.Conv2d(4, 4, 1, bias=False)
        return nn.Sequential(nn.ReLU(), *layers, nn.BatchNorm2d(4, affine=False))

    def forward(self, x, w):
        x = torch.tanh(self.stem(x))
        for n, ops in enumerate((self.first, self.second)):
            x = sum(w[3 * n + o] * op(x) for o, op in enumerate(ops))
        return self.head(F.softplus(x).mean((2, 3)))


def setting(count=6):
    net = Switched().double().train()
    w = torch.linspace(0.3, 1.2, SWITCHES, dtype=torch.float64).requires_grad_()
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, 2, 6, 6, generator=generator, dtype=torch.float64)
    return net, w, x, torch.arange(count) % CLASSES


def dense_hessian(net, w, x, y):
    return torch.autograd.functional.hessian(lambda v: F.cross_entropy(net(x, v), y), w.detach())


def dense_gauss_newton(net, w, x):
    jacobian = torch.autograd.functional.jacobian(lambda v: net(x, v), w.detach())  # (B, C, K)
    p = net(x, w).detach().softmax(1)
    inner = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    return torch.einsum("bck,bcd,bdl->kl", jacobian, inner, jacobian) / len(x)


@pytest.mark.parametrize("chunk", [1, 4, 64])
def test_exact_is_the_dense_hessians_diagonal(chunk):
    net, w, x, y = setting()
    found = diagonal(lambda x: net(x, w), [w], [(x, y)], "exact", chunk=chunk)[0]
    torch.testing.assert_close(found, dense_hessian(net, w, x, y).diagonal(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_gauss_newton_is_the_dense_matrixs_diagonal(chunk):
    net, w, x, y = setting()
    found = diagonal(lambda x: net(x, w), [w], [(x, y)], "ggn", chunk=chunk)[0]
    torch.testing.assert_close(found, dense_gauss_newton(net, w, x).diagonal(), rtol=1e-9, atol=1e-12)


def test_gauss_newton_by_rows_where_there_are_more_entries_than_outputs():
    net, w, x, y = setting(2)
    tensors = [w, net.head.weight]
    assert sum(t.numel() for t in tensors) > 2 * CLASSES
    found = diagonal(lambda x: net(x, w), tensors, [(x, y)], "ggn", chunk=4)
    torch.testing.assert_close(found[0], dense_gauss_newton(net, w, x).diagonal(), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found[1], diagonal(lambda x: net(x, w), tensors[1:], [(x, y)], "exact")[0])


def test_where_outputs_are_linear_in_a_switch_both_are_the_same():
    net, w, x, y = setting()
    net.eval()
    relu = nn.Sequential(nn.ReLU(), nn.Linear(6, CLASSES)).double()
    both = [diagonal(lambda x: relu(x.flatten(1)[:, :6] * w), [w], [(x, y)], how)[0] for how in ("exact", "ggn")]
    torch.testing.assert_close(*both)


def test_sampled_labels_give_gauss_newton_in_the_mean():
    net, w, x, y = setting()
    exact = dense_gauss_newton(net, w, x).diagonal()
    generator = torch.Generator().manual_seed(3)
    found = diagonal(lambda x: net(x, w), [w], [(x, y)], "sampled", generator=generator, draws=2000)[0]
    assert float(((found - exact) / exact).abs().max()) < 0.12  # four standard errors of a mean of 2000 squares
    once = [hessian.sampled_diagonal(net(x, w), [w], generator=torch.Generator().manual_seed(5))[0] for _ in (0, 1)]
    assert torch.equal(*once)


def test_the_mean_is_over_all_images_of_the_stream():
    net, w, x, y = setting(9)
    net.eval()  # images of their own: any batches give the same mean
    whole = diagonal(lambda x: net(x, w), [w], [(x, y)], "exact")[0]
    parts = [(x[:2], y[:2]), (x[2:3], y[2:3]), (x[3:], y[3:])]
    torch.testing.assert_close(diagonal(lambda x: net(x, w), [w], parts, "exact")[0], whole)
    torch.testing.assert_close(
        diagonal(lambda x: net(x, w), [w], parts, "ggn")[0], dense_gauss_newton(net, w, x).diagonal()
    )


def test_any_tensors_and_those_that_are_not_used():
    net, w, x, y = setting()
    tensors = [w, net.head.weight, torch.zeros(2, dtype=torch.float64, requires_grad=True)]
    for how in ("exact", "ggn", "sampled"):
        found = diagonal(lambda x: net(x, w), tensors, [(x, y)], how)
        assert [f.shape for f in found] == [t.shape for t in tensors]
        assert not found[2].any()
        assert (found[1] > 0).any()


def test_a_linear_models_hessian_is_known():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 4, generator=generator, dtype=torch.float64)
    y = x @ torch.ones(4, 2, dtype=torch.float64)
    w = torch.randn(4, 2, generator=generator, dtype=torch.float64).requires_grad_()
    expected = (x.pow(2).mean(0) / 0.25)[:, None].expand(4, 2)
    for how in ("exact", "ggn"):
        found = diagonal(lambda x: x @ w, [w], [(x, y)], how, likelihood=Gaussian(0.25))[0]
        torch.testing.assert_close(found, expected)
    drawn = diagonal(lambda x: x @ w, [w], [(x, y)], likelihood=Gaussian(0.25), draws=4000, generator=generator)[0]
    assert float(((drawn - expected) / expected).abs().max()) < 0.12


def test_the_training_step_may_follow_on_the_same_graph():
    net, w, x, y = setting()
    outputs = net(x, w)
    hessian.sampled_diagonal(outputs, [w], Categorical(), keep=True)
    F.cross_entropy(outputs, y).backward()
    assert w.grad is not None and net.stem.weight.grad is not None


def test_what_cannot_be_computed_is_refused():
    net, w, x, y = setting()
    with pytest.raises(BadInput, match="exact, ggn, sampled, recursive"):
        diagonal(lambda x: net(x, w), [w], [(x, y)], "diagonal")
    with pytest.raises(BadInput, match="require gradients"):
        diagonal(lambda x: net(x, w), [w.detach()], [(x, y)])
    with pytest.raises(BadInput, match="at least one batch"):
        diagonal(lambda x: net(x, w), [w], [])
