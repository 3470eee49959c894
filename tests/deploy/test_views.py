"""Several views inside a network: the same as flipping, padding and averaging by hand."""

import numpy as np
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from sartor.core.errors import BadInput
from sartor.core.views import VIEWS, told
from sartor.costs.macs import Macs
from sartor.costs.params import Params
from sartor.deploy.count import counted
from sartor.deploy.export import export_onnx
from sartor.deploy.module import Deployed
from sartor.deploy.views import Views, viewed


def network(channels=3, classes=5):
    torch.manual_seed(0)
    body = nn.Sequential(
        nn.Conv2d(channels, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 6, 3)
    )
    return nn.Sequential(body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, classes)).eval()


def by_hand(net, x, views):
    """Each view by flipping and reflecting padding, one after the other."""
    total = 0.0
    for weight, moved, mirrored in VIEWS[views]:
        seen = x.flip(-1) if mirrored else x
        if moved:
            # A pixel stands where the one `moved` further down, and right of it in the image as it lies, was.
            right = -moved if mirrored else moved
            padded, side = F.pad(seen, (1, 1, 1, 1), mode="reflect"), x.shape[-1]
            seen = padded[:, :, 1 + moved : 1 + moved + side, 1 + right : 1 + right + side]
        total = total + weight * net(seen)
    return total


@pytest.mark.parametrize("views", sorted(VIEWS))
@pytest.mark.parametrize("side", [9, 12])
def test_views_are_moved_and_mirrored_images_and_their_mean(views, side):
    net = network().double()
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(3, 3, side, side)))
    looking = viewed(net, views, side).double()
    assert sum(weight for weight, *_ in VIEWS[views]) == 1
    assert len({tuple(view) for view in VIEWS[views]}) == views
    with torch.no_grad():
        torch.testing.assert_close(looking(x), by_hand(net, x, views), rtol=1e-12, atol=1e-12)
        # Two or more views cannot tell an image from its mirror image, but for how it is moved.
        if views == 2:
            torch.testing.assert_close(looking(x), looking(x.flip(-1)), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("views", [2, 6])
def test_the_exported_graph_takes_any_batch_and_counts_every_view(views, tmp_path):
    from sartor.core.task import Task

    net, task = network(), Task(5, 12)
    looking = Deployed(viewed(net, views, 12), (120.0,) * 3, (60.0,) * 3)
    export_onnx(looking, task, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for batch in (1, 4):
        x = np.random.default_rng(batch).integers(0, 256, (batch, 3, 12, 12)).astype(np.float32)
        with torch.no_grad():
            expected = looking(torch.from_numpy(x)).numpy()
        np.testing.assert_allclose(session.run(None, {"image": x})[0], expected, atol=1e-5)
    one = Deployed(net, (120.0,) * 3, (60.0,) * 3)
    assert (
        Macs().of(looking, (3, 12, 12)) == views * Macs().of(one, (3, 12, 12)) == counted(tmp_path / "model.onnx").macs
    )
    assert Params().of(looking, (3, 12, 12)) == Params().of(one, (3, 12, 12))


def test_other_numbers_of_views_are_refused_and_one_is_the_network_itself():
    net = network()
    assert viewed(net, 1, 12) is net
    with pytest.raises(BadInput, match="views must be one of 1, 2, 6, but got 3"):
        Views(net, 3, 12)
    assert all(str(views) in told(views) for views in VIEWS)
