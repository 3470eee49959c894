"""The recursion is exact where nothing interacts, and equals a dense recursion everywhere."""

import pytest
import torch
import torch.nn.functional as F
from gaussian import Gaussian
from torch import nn
from torch.func import functional_call

from sartor.core.errors import BadInput
from sartor.engine.curvature.hessian import diagonal
from sartor.engine.curvature.recursive import recursive_diagonals


def dense(net, name, x, y, loss=F.cross_entropy):
    """The diagonal of the exact Hessian for one parameter."""
    start = dict(net.named_parameters())[name].detach()

    def energy(flat):
        return loss(functional_call(net, {name: flat.view_as(start)}, (x,)), y)

    hessian = torch.autograd.functional.hessian(energy, start.flatten())
    return hessian.diagonal().view_as(start)


def batch(shape, classes=4):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator, dtype=torch.float64)
    return x, torch.randint(classes, (shape[0],), generator=generator)


def test_the_last_layer_is_exact():
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(12, 4)
    ).double()
    x, y = batch((9, 1, 6, 6))
    net(x)
    found = recursive_diagonals(net, [(x[:4], y[:4]), (x[4:], y[4:])])  # a stream of unequal batches
    torch.testing.assert_close(found["5.weight"], dense(net.eval(), "5.weight", x, y), rtol=1e-9, atol=1e-12)


def test_a_chain_of_single_units_is_exact_in_every_layer():
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(1, 1), nn.Tanh(), nn.Linear(1, 1), nn.Softplus(), nn.Linear(1, 1)).double()
    x, _ = batch((7, 1))
    y = torch.linspace(-1, 1, 7, dtype=torch.float64)[:, None]
    likelihood = Gaussian(0.5)
    found = recursive_diagonals(net, [(x, y)], likelihood=likelihood)
    for name in ("0.weight", "2.weight", "4.weight"):
        torch.testing.assert_close(found[name], dense(net, name, x, y, likelihood.loss), rtol=1e-9, atol=1e-12)


class Switched(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 1)
        self.gate, self.other = nn.Parameter(torch.tensor(0.7)), nn.Parameter(torch.tensor(-0.4))

    def forward(self, x):
        y = self.fc(x)
        return self.gate * y + self.other * torch.tanh(y)


def test_switches_that_meet_at_one_output_are_exact():
    torch.manual_seed(2)
    net, (x, _) = Switched().double(), batch((5, 3))
    y, likelihood = torch.zeros(5, 1, dtype=torch.float64), Gaussian()
    found = recursive_diagonals(net, [(x, y)], likelihood=likelihood)
    for name in ("gate", "other"):
        torch.testing.assert_close(found[name], dense(net, name, x, y, likelihood.loss), rtol=1e-9, atol=1e-12)


class Calls(nn.Module):
    """A function in a module's place."""

    def __init__(self, function, *args, **options):
        super().__init__()
        self.function, self.args, self.options = function, args, options

    def forward(self, x):
        return self.function(x, *self.args, **self.options)

    def __repr__(self):
        return f"{self.function.__name__}{self.args}{self.options}"


@pytest.mark.parametrize("layer", [
    nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.Conv2d(2, 4, (3, 1), padding="same", groups=2),
    nn.Conv2d(2, 2, 3, dilation=2, padding=2), nn.MaxPool2d(2), nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(1),
    nn.AvgPool2d(3, 2, 1, count_include_pad=False), nn.AvgPool2d(3, 2, 1, ceil_mode=True),
    nn.AvgPool2d((2, 3), divisor_override=5), nn.AdaptiveAvgPool2d((4, None)),
    Calls(F.avg_pool2d, kernel_size=3, stride=2, padding=1, count_include_pad=False), Calls(F.avg_pool2d, 2),
    Calls(F.adaptive_avg_pool2d, output_size=4), Calls(torch.mean, dim=(2, 3), keepdim=True),
], ids=str)  # fmt: skip
def test_each_step_squares_the_jacobian(layer):
    """H of the input is (J o J)' H of the output: the recursion against the dense Jacobian of the layer."""
    torch.manual_seed(3)
    front = nn.Conv2d(1, 2, 1).double()
    tail = nn.LazyLinear(4)
    net = nn.Sequential(front, layer.double(), nn.Flatten(), tail).double()
    x, y = batch((1, 1, 6, 6))
    net(x)
    found = recursive_diagonals(net, [(x, y)])
    z = front(x).detach()
    out = layer(z)
    p = torch.softmax(net(x).detach(), 1)[0]
    h_out = (p - p * p) @ tail.weight.detach() ** 2
    jacobian = torch.autograd.functional.jacobian(layer, z).reshape(out.numel(), z.numel())
    h_in = (h_out @ jacobian**2).view_as(z)
    expected = (h_in * x * x).sum((0, 2, 3)).view(2, 1, 1, 1)
    torch.testing.assert_close(found["0.weight"], expected, rtol=1e-9, atol=1e-12)


def test_means_equal_entries_where_there_is_nothing_to_average():
    torch.manual_seed(4)
    net = nn.Sequential(nn.Conv2d(3, 5, 1), nn.Tanh(), nn.Flatten(), nn.Linear(5, 4)).double()
    x, y = batch((1, 3, 1, 1))
    entries, means = (recursive_diagonals(net, [(x, y)], version) for version in ("diagonal", "mean"))
    for name, value in entries.items():
        torch.testing.assert_close(means[name], value, rtol=1e-9, atol=1e-12)


def test_the_common_interface_and_modes():
    torch.manual_seed(5)
    net = nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 4)).double().train()
    x, y = batch((6, 1, 2, 2))
    found = diagonal(net, [net[4].weight], [(x, y)], "recursive")
    assert net.training
    torch.testing.assert_close(found[0], dense(net.eval(), "4.weight", x, y), rtol=1e-9, atol=1e-12)
    with pytest.raises(BadInput, match=r"not for 4\.bias"):
        diagonal(net, [net[4].bias], [(x, y)], "recursive")


class Strange(nn.Module):
    def __init__(self, decides):
        super().__init__()
        self.fc, self.decides = nn.Linear(4, 4), decides

    def forward(self, x):
        y = self.fc(x.flatten(1))
        if self.decides and y.sum() > 0:
            return -y
        return torch.cumsum(y, 1)


@pytest.mark.parametrize(("decides", "words"), [(True, "torch.fx can trace"), (False, "cumsum")])
def test_what_it_cannot_follow_is_named(decides, words):
    with pytest.raises(BadInput, match=words):
        recursive_diagonals(Strange(decides), [(torch.zeros(2, 4), torch.zeros(2, dtype=torch.long))])


def test_no_images():
    with pytest.raises(BadInput, match="at least one batch"):
        recursive_diagonals(nn.Linear(2, 2), [])
