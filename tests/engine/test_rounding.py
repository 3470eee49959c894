"""Training as in 8 bits: rounded on the way forward, not on the way back, and gone afterwards."""

from contextlib import suppress

import torch
from torch import nn

from sartor.engine.rounding import rounding


def test_weights_and_inputs_are_rounded_while_it_lasts():
    torch.manual_seed(0)
    net, x = nn.Linear(4, 3), torch.randn(16, 4)
    before, plain = net.weight.detach().clone(), net(x)
    with rounding(net):
        found = net(x)
        step = before.abs().amax(dim=1, keepdim=True) / 127
        whole = (net.weight / step).detach()
        assert torch.allclose(whole, whole.round(), atol=1e-4)
        span = (x.max() - x.min()) / 255
        expected = ((x / span).round() * span) @ ((before / step).round() * step).T + net.bias
        assert torch.allclose(found, expected, atol=1e-6) and not torch.equal(found, plain)
    assert torch.equal(net.weight, before) and torch.equal(net(x), plain)


def test_the_gradient_passes_and_what_is_learnt_stays():
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2)), torch.randn(8, 1, 4, 4)
    before = net[0].weight.detach().clone()
    optimiser = torch.optim.SGD(net.parameters(), 0.1)
    with suppress(KeyboardInterrupt), rounding(net):  # a training that is stopped leaves nothing behind
        net(x).square().mean().backward()
        optimiser.step()
        raise KeyboardInterrupt
    assert not torch.equal(net[0].weight, before)
    assert {name for name, _ in net.named_parameters()} == {"0.weight", "0.bias", "2.weight", "2.bias"}
