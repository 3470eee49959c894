"""Drop-path's schedule and the auxiliary head, in the one loop."""

import pytest
import tiny
import torch

from sartor.engine.fit import Training, fit
from sartor.engine.network import train_network
from sartor.engine.recipe import Recipe
from sartor.spaces.cells.darts import Darts


def test_paths_are_dropped_more_and_more(tmp_path):
    job = tiny.job(tmp_path)
    space = Darts(cells=3, channels=4).fitted(job.task)
    torch.manual_seed(0)
    net = space.network(space.smallest, job.task)
    recipe = Recipe(epochs=2, batch=16, drop_path=0.4, augment="none")
    seen = []

    def loss(x, y, rng):
        seen.append(net.cells[0].drop.path_p)
        return {"loss": torch.nn.functional.cross_entropy(net(x), y)}

    fit(Training("paths", net, loss, recipe, job.feed, job.splits.train, job.run))
    assert sorted(set(seen)) == [0.0, 0.2]
    assert net.cells[0].drop.path_p == 0.0


def test_the_auxiliary_head_adds_its_share_of_the_loss_and_is_gone_after_training(tmp_path):
    """At a rate of next to nothing no weight moves: all that differs is the weight of the head's loss."""
    first = {}
    for weight in (0.0, 0.4, 0.8):
        job = tiny.job(tmp_path / str(weight))
        space = Darts(cells=3, channels=4).fitted(job.task)
        torch.manual_seed(0)
        net = space.network(space.smallest, job.task)
        before = {name: value.shape for name, value in net.state_dict().items()}
        recipe = Recipe(epochs=1, batch=16, lr=1e-12, auxiliary=weight, augment="none")
        first[weight] = train_network(net, None, recipe, job.feed, job.splits, job.run, "head")[0]["loss"]
        assert {name: value.shape for name, value in net.state_dict().items()} == before
    head = (first[0.4] - first[0.0]) / 0.4
    assert 0.1 < head < 10  # a cross-entropy of its own
    assert first[0.8] - first[0.0] == pytest.approx(0.8 * head, rel=1e-4)
