"""A module of one's own with four searchable places: one keeps the shape, one changes it."""

from dataclasses import dataclass
from functools import partial

from torch import nn

from sartor.spaces.slots import Slots


def conv(inputs, outputs, kernel, stride=1):
    layer = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU())


class Net(nn.Module):
    def __init__(self, width, classes, channels):
        super().__init__()
        self.stem = conv(channels, width, 3)
        self.body = nn.Sequential(nn.Identity(), nn.Identity(), nn.Identity())
        self.down = nn.Identity()
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x):
        x = self.stem(x)
        return self.head(self.down(x + self.body(x)).mean((2, 3)))


@dataclass(frozen=True)
class Own(Slots):
    """A small residual network."""

    width: int = 8

    def module(self, task):
        return Net(self.width, task.classes, task.channels)

    def places(self):
        w = self.width
        same = {"skip": nn.Identity, "conv3": partial(conv, w, w, 3), "conv5": partial(conv, w, w, 5)}
        down = {f"conv{k}": partial(conv, w, 2 * w, k, 2) for k in (1, 3, 5)}
        return {"body.0": same, "body.1": same, "body.2": same, "down": down}
