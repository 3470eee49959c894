"""A look at the images before they are used: what is there twice, contradicts itself, is rare or shows nothing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sartor.data.base import Images, Index, Splits
from sartor.data.labels import counts
from sartor.runs.schema import FEW, AuditFile, Findings, Group, Member

_ENLARGED, _CROPPED = 2.0, 3.0  # times larger than it was; times as long as wide


def audit(images: Images, splits: Splits) -> AuditFile:
    """What is suspicious about the images, and where the splits have the same ones."""
    alike, found = images.alike, _Names(images, splits)
    groups = [Group(_same(alike.exact[g]), tuple(map(found.member, g.tolist()))) for g in alike.groups(alike.near)]
    leaks = [image for g in groups for image in g.leaks]
    twice = sum(len(g) for g in alike.groups(alike.exact))
    per_class = counts(images.labels, images.task.classes)
    enlarged, cropped = _sizes(images)
    return AuditFile(
        images=len(images), side=images.task.image, classes=images.class_names, per_class=tuple(per_class.tolist()),
        groups=tuple(groups), leaks=tuple(sorted(leaks)), blank=_where(alike.blank), enlarged=enlarged, cropped=cropped,
        plain=int((alike.plain & ~alike.blank).sum()),
        findings=Findings(
            exact=twice, near=sum(len(g.members) for g in groups) - twice, leaks=len(leaks),
            contradictions=sum(len(g.members) for g in groups if g.contradicts), blank=int(alike.blank.sum()),
            enlarged=len(enlarged), cropped=len(cropped), few=int((per_class < FEW).sum()),
            imbalance=float(per_class.max() / max(1, per_class.min())),
        ),
    )  # fmt: skip


class _Names:
    """What the images are called, which split they are in, and what they show."""

    def __init__(self, images: Images, splits: Splits) -> None:
        self._images = images
        self._split = {int(i): name for name in ("train", "val", "test") for i in getattr(splits, name)}

    def member(self, image: int) -> Member:
        given, task, labels = self._images, self._images.task, self._images.labels[[image]]
        shows = tuple(name for k, name in enumerate(given.class_names) if task.members(labels, k)[0])
        return Member(image, given.files[image] if given.files else f"image {image}", self._split[image], shows)


def _sizes(images: Images) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Those that were made far larger, and those of which a strip was cut out; none where sizes are not known."""
    if images.sizes is None:
        return (), ()
    shorter, longer = images.sizes.min(1), images.sizes.max(1)
    return _where(shorter * _ENLARGED < images.task.image), _where(longer > _CROPPED * shorter)


def _where(mask: NDArray[np.bool_]) -> tuple[int, ...]:
    return tuple(np.flatnonzero(mask).tolist())


def _same(numbers: Index) -> bool:
    return bool((numbers == numbers[0]).all())
