"""The NTK's trace and its approximations against the dense Jacobian in double precision."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sartor.engine.curvature import kernel as curvature
from sartor.engine.curvature.kernel import LOSSES, prepare

CLASSES = 3


def net(norm=False):
    torch.manual_seed(0)
    made = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4) if norm else nn.Identity(), nn.ReLU(), nn.Conv2d(4, 3, 3, 2),
        nn.Tanh(), nn.Flatten(), nn.Linear(12, CLASSES),
    )  # fmt: skip
    return made.double()


def batch(count=5):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, 2, 7, 7, generator=generator, dtype=torch.float64)
    return x, torch.arange(count) % CLASSES


def dense(made, x):
    """The (images * outputs, parameters) Jacobian, a row at a time."""
    rows = []
    out = made(x)
    for value in out.flatten():
        grads = torch.autograd.grad(value, list(made.parameters()), retain_graph=True)
        rows.append(torch.cat([g.flatten() for g in grads]))
    return torch.stack(rows)


@pytest.mark.parametrize("chunk", [1, 2, 8])
def test_the_exact_trace_is_the_dense_kernels(chunk):
    made, (x, _) = net(), batch()
    jacobian = dense(made, x)
    kernel = jacobian @ jacobian.T
    assert curvature.exact_trace(made, x, chunk) == pytest.approx(float(kernel.trace()), rel=1e-12)
    assert curvature.exact_trace(made, x) == pytest.approx(float(torch.linalg.eigvalsh(kernel).abs().sum()), rel=1e-10)
    assert curvature.joint_trace(made, x, chunk) == pytest.approx(float(kernel.trace()), rel=1e-12)


def test_the_joint_trace_knows_of_batch_statistics_and_moves_none():
    made, (x, _) = net(norm=True).train(), batch()
    before = copy.deepcopy(made.state_dict())
    found = curvature.joint_trace(made, x)
    for name, value in made.state_dict().items():
        assert torch.equal(value, before[name])
    assert found == pytest.approx(float(dense(made, x).pow(2).sum()), rel=1e-10)


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_the_sum_of_norms_and_the_batchs_norm(loss):
    made, (x, y) = net(), batch()
    each = []
    for image, label in zip(x, y, strict=True):
        grads = torch.autograd.grad(loss(made(image[None]), label[None]), list(made.parameters()))
        each.append(torch.cat([g.flatten() for g in grads]))
    rows = torch.stack(each)
    assert curvature.sum_trace(made, x, y, loss, chunk=2) == pytest.approx(float(rows.pow(2).sum()), rel=1e-10)
    assert curvature.batch_trace(made, x, y, loss) == pytest.approx(float(rows.mean(0).pow(2).sum()), rel=1e-10)


def test_jensens_inequality_of_equation_11():
    made, (x, y) = net(), batch(6)
    total = sum(3 * curvature.batch_trace(made, x[i : i + 3], y[i : i + 3]) for i in (0, 3))
    assert total <= curvature.sum_trace(made, x, y)


def test_drawn_weights_have_their_variance_and_depend_on_the_seed_alone():
    for init, variance in (("kaiming", 2 / 288), ("lecun", 1 / 288), ("xavier", 2 / (288 + 576))):
        layers = [nn.Conv2d(32, 64, 3) for _ in range(3)]
        for layer, seed in zip(layers, (0, 0, 1), strict=True):
            prepare(layer, init, "off", 1.0, seed)
        assert float(layers[0].weight.detach().var()) == pytest.approx(variance, rel=0.05)
        assert not layers[0].bias.any()
        assert torch.equal(layers[0].weight, layers[1].weight)
        assert not torch.equal(layers[0].weight, layers[2].weight)
    layer = nn.Conv2d(32, 64, 3)
    prepare(layer, "default", "off")
    assert float(layer.weight.detach().var()) == pytest.approx(1 / 288 / 3, rel=0.05)
    kept = layer.weight.detach().clone()
    prepare(layer, "keep", "off", 2.0)
    assert torch.equal(layer.weight, 2 * kept)


def test_without_norms_nothing_is_normalised_and_nothing_of_them_is_trained():
    made, (x, _) = net(norm=True), batch()
    prepare(made, "keep", "off")
    bare = [m for m in made if not isinstance(m, nn.BatchNorm2d | nn.Identity)]
    torch.testing.assert_close(made(x), nn.Sequential(*bare)(x))

    class Other(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm2d(2)

        def forward(self, x):
            return self.norm(x)

    other = Other().double()
    prepare(other, "keep", "off")
    torch.testing.assert_close(other(x), x, rtol=1e-4, atol=1e-4)
    assert not curvature.weights(other)


def test_norm_modes():
    made = net(norm=True)
    prepare(made, "keep", "batch")
    assert made.training
    prepare(made, "keep", "running")
    assert not made.training


def test_mean_squared_error_is_the_mean_over_images_of_the_summed_squares():
    f, y = torch.randn(4, 3), torch.tensor([0, 1, 2, 0])
    expected = ((f - F.one_hot(y, 3)) ** 2).sum(1).mean()
    torch.testing.assert_close(LOSSES["mse"](f, y), expected)
