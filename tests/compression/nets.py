"""Small networks of every kind that compression must follow."""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """A residual block; `stride` 2 gives it a convolution as its shortcut."""

    def __init__(self, into, out, stride=1):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(into, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.c2, self.b2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        plain = into == out and stride == 1
        self.short = nn.Sequential() if plain else nn.Sequential(nn.Conv2d(into, out, 1, stride), nn.BatchNorm2d(out))

    def forward(self, x):
        return F.relu(self.b2(self.c2(F.relu(self.b1(self.c1(x))))) + self.short(x))


class Residual(nn.Module):
    def __init__(self, classes=3, channels=1):
        super().__init__()
        self.stem = nn.Conv2d(channels, 6, 3, padding=1)
        self.a, self.b = Block(6, 6), Block(6, 8, 2)
        self.fc = nn.Linear(8 * 16, classes)

    def forward(self, x):
        return self.fc(self.b(self.a(self.stem(x))).flatten(1))


class Concat(nn.Module):
    """Two paths, one depthwise, put beside each other."""

    def __init__(self, classes=3, channels=1):
        super().__init__()
        self.left = nn.Conv2d(channels, 5, 3, padding=1)
        self.right = nn.Conv2d(channels, 4, 1)
        self.depth = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.join = nn.Conv2d(9, 7, 1)
        self.pool = nn.AdaptiveAvgPool2d(2)
        self.fc = nn.Linear(28, classes)

    def forward(self, x):
        y = torch.cat([F.relu(self.left(x)), F.relu(self.depth(self.right(x)))], 1)
        return self.fc(self.pool(F.relu(self.join(y))).flatten(1))


class Deciding(Residual):
    """Its forward pass looks at values: torch.fx cannot trace it."""

    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else super().forward(-x)


def matrix(classes=3):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 20), nn.ReLU(), nn.Linear(20, 12), nn.ReLU(), nn.Linear(12, classes)
    )


def plain(classes=3, channels=1):
    return nn.Sequential(
        nn.Conv2d(channels, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(12, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(16, classes),
    )  # fmt: skip


def no_network():
    return 3


def warm(net, shape=(8, 1, 8, 8)):
    """Batch-norm statistics and affine terms that are not the initial ones, then evaluation mode."""
    generator = torch.Generator().manual_seed(1)
    net.train()
    with torch.no_grad():
        net(torch.randn(shape, generator=generator))
        for module in net.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.uniform_(0.5, 1.5, generator=generator)
                module.bias.normal_(0, 0.3, generator=generator)
    return net.eval()


FACTORIES = {"residual": Residual, "concat": Concat, "matrix": matrix, "plain": plain}
