"""Drop-path's schedule and the auxiliary head, in the one loop."""

from dataclasses import replace

import tiny
import torch

from sartor.engine.fit import Training, fit
from sartor.engine.network import train_network
from sartor.engine.recipe import Recipe
from sartor.spaces.cells.darts import Darts


def test_paths_are_dropped_more_and_more_and_the_auxiliary_head_is_gone_after_training(tmp_path):
    job = tiny.job(tmp_path)
    space = Darts(cells=3, channels=4).fitted(job.task)
    torch.manual_seed(0)
    net = space.network(space.smallest, job.task)
    before = {name: value.shape for name, value in net.state_dict().items()}
    recipe = Recipe(epochs=2, batch=16, drop_path=0.4, auxiliary=0.4, augment="none")
    seen = []

    def loss(x, y, rng):
        seen.append(net.cells[0].drop.path_p)
        return {"loss": torch.nn.functional.cross_entropy(net(x), y)}

    fit(Training("paths", net, loss, recipe, job.feed, job.splits.train, job.run))
    assert sorted(set(seen)) == [0.0, 0.2]
    assert net.cells[0].drop.path_p == 0.0
    history = train_network(net, None, recipe, job.feed, job.splits, job.run, "head")
    assert len(history) == 2
    assert {name: value.shape for name, value in net.state_dict().items()} == before
    alone = train_network(net, None, replace(recipe, auxiliary=0.0), job.feed, job.splits, job.run, "alone")
    assert history[0]["loss"] > alone[0]["loss"]  # two losses are more than one
