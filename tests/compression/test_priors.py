"""Updates as printed, and a planted problem: the inputs that matter survive."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sartor.compression.flow import scale_free
from sartor.compression.priors import LayerPrior, Prior
from sartor.compression.structures import of_layer, view
from sartor.engine.curvature.recursive import recursive_diagonals


def test_updates_are_those_of_algorithm_3():
    torch.manual_seed(0)
    conv = nn.Conv2d(4, 3, 3).double()
    prior = LayerPrior(conv, of_layer(conv, ["channel"]))
    prior.omega["channel"] = torch.rand(1, 4, 1, 1, dtype=torch.float64) + 0.5
    before, hessian, strength = prior.omega["channel"].clone(), torch.rand_like(conv.weight), 0.01
    prior.update(hessian, strength)
    gamma = conv.weight.detach().pow(2).sum((0, 2, 3), keepdim=True).sqrt() / before  # table S3 (e)
    torch.testing.assert_close(prior.gamma["channel"], gamma)
    c = 1 / (1 / gamma + hessian / strength)  # (B.0.3)
    alpha = -c / gamma**2 + 1 / gamma  # (B.0.4)
    torch.testing.assert_close(prior.omega["channel"], alpha.abs().sum((0, 2, 3), keepdim=True).sqrt())


@pytest.mark.parametrize("names", [("row", "column"), ("row-column",), ("filter", "shape")])
def test_omega_is_the_slope_of_the_marginal_likelihood(names):
    """omega^2 = dv/dgamma (A.2.7), where v = log|Gamma^-1 + H| + log|Gamma| and priors that meet multiply."""
    torch.manual_seed(1)
    layer = (nn.Linear(5, 4) if "row" in names[0] else nn.Conv2d(3, 4, 2)).double()
    prior = LayerPrior(layer, of_layer(layer, names))
    for omega in prior.omega.values():
        omega.uniform_(0.5, 1.5)
    hessian, strength = torch.rand_like(layer.weight) * 3, 0.7
    prior.update(hessian, strength)

    def v():
        """Over all weights, where Gamma^-1 is gathered group by group."""
        precision = torch.zeros_like(prior.weight)
        for s in prior.structures:
            precision = precision + s.spread(1 / prior.gamma[s.name])
        h = torch.diag(view(layer, hessian).flatten() / strength)
        inverse = torch.diag(precision.flatten())
        return (torch.logdet(inverse + h) + torch.logdet(torch.inverse(inverse))).item()

    for s in prior.structures:
        gamma, step = prior.gamma[s.name].view(-1), 1e-6
        for g in range(len(gamma)):
            value = gamma[g].item()
            ends = []
            for moved in (value + step, value - step):
                gamma[g] = moved
                ends.append(v())
            gamma[g] = value
            slope = (ends[0] - ends[1]) / (2 * step)
            assert prior.omega[s.name].flatten()[g].item() ** 2 == pytest.approx(slope, rel=1e-5)


def test_a_dead_row_asks_nothing_of_the_columns_it_crosses():
    torch.manual_seed(2)
    linear, small, hessian = nn.Linear(4, 3), nn.Linear(4, 2), torch.rand(3, 4)
    with torch.no_grad():
        linear.weight[1] = 0.0
        small.weight.copy_(linear.weight[[0, 2]])
    whole, without = (LayerPrior(layer, of_layer(layer, ["row", "column"])) for layer in (linear, small))
    whole.update(hessian, 0.1)
    without.update(hessian[[0, 2]], 0.1)
    torch.testing.assert_close(whole.omega["column"], without.omega["column"])
    assert all(torch.isfinite(omega).all() for omega in whole.omega.values())


def test_relevance_is_the_rise_of_a_quadratic_energy():
    """E = 1/2 h (w - a)^2 with the penalty balanced at w: E(0) - E(w) is what the relevance says, exactly."""
    h, omega = 3.0, 0.7
    linear = nn.Linear(1, 1, bias=False).double()
    with torch.no_grad():
        linear.weight.fill_(0.4)
    prior = LayerPrior(linear, of_layer(linear, ["column"]))
    prior.omega["column"].fill_(omega)
    prior.update(torch.full_like(linear.weight, h), 1.0)
    a = 0.4 + omega / h  # then dE/dw = -omega
    expected = 0.5 * h * a**2 - 0.5 * h * (0.4 - a) ** 2
    torch.testing.assert_close(prior.relevance.item(), expected)


def test_pruned_groups_stay_zero_and_take_their_bias():
    linear = nn.Linear(3, 2)
    prior = Prior(nn.Sequential(linear), {"0": ["row"]}, 1.0)
    with torch.no_grad():
        linear.weight[1] = 0.0
    left = prior.update({"0.weight": torch.ones(2, 3)})
    assert left == {"0": {"row": 1}}
    assert linear.bias[1] == 0 and linear.bias[0] != 0
    with torch.no_grad():
        linear.weight[1] = 5.0  # as a step of momentum would
    prior.proximal(0.0)
    assert (linear.weight[1] == 0).all()
    again = Prior(nn.Sequential(nn.Linear(3, 2)), {"0": ["row"]}, 1.0)
    again.load_state_dict(prior.state_dict())
    assert torch.equal(again.layers["0"].alive, prior.layers["0"].alive)


def test_planted_groups_survive_where_a_batch_norm_undoes_their_scale():
    """Without holding the layer's norm the penalty takes the accuracy with it: 0.77 to 0.86 after two rounds."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(2000, 10, generator=generator)
    y = (x[:, [1, 4, 7]] @ torch.tensor([[2.0, -2, 0], [-1, 0, 2], [0, 2, -2]])).argmax(1)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 16, bias=False), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
    prior = Prior(net, {"0": ["column"], "3": ["column"]}, 0.03, scale_free(net, x[:2]))
    optimiser = torch.optim.SGD(net.parameters(), 0.3)
    for _ in range(3):
        net.train()
        for _ in range(150):
            part = torch.randint(2000, (200,), generator=generator)
            optimiser.zero_grad()
            F.cross_entropy(net(x[part]), y[part]).backward()
            optimiser.step()
            norm = float(net[0].weight.detach().norm())
            prior.proximal(0.3)
            assert abs(float(net[0].weight.detach().norm()) - norm) < 1e-4 * norm
        net.eval()
        prior.update(recursive_diagonals(net, [(x, y)]))
    assert (net[0].weight != 0).any(0).nonzero().flatten().tolist() == [1, 4, 7]
    assert (net(x).argmax(1) == y).float().mean() > 0.95


def test_planted_inputs_survive():
    """Ten inputs, three of them carry the class: after a few rounds only those are read."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(2000, 10, generator=generator)
    y = (x[:, [1, 4, 7]] @ torch.tensor([[2.0, -2, 0], [-1, 0, 2], [0, 2, -2]])).argmax(1)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 3))
    prior = Prior(net, {"0": ["column"], "2": ["column"]}, 0.01)
    optimiser = torch.optim.SGD(net.parameters(), 0.3)
    for _ in range(4):
        for _ in range(150):
            part = torch.randint(2000, (200,), generator=generator)
            optimiser.zero_grad()
            F.cross_entropy(net(x[part]), y[part]).backward()
            optimiser.step()
            prior.proximal(0.3)
        prior.update(recursive_diagonals(net, [(x, y)]))
    read = (net[0].weight != 0).any(0).nonzero().flatten().tolist()
    assert read == [1, 4, 7]
    assert (net(x).argmax(1) == y).float().mean() > 0.95
