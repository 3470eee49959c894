from __future__ import annotations

import threading
from collections.abc import Iterable
from itertools import chain

import numpy as np
import pytest
import torch

from sartor.core.errors import BadInput
from sartor.core.seeds import Seeds
from sartor.data.base import Images
from sartor.data.batches import Batches
from sartor.data.sources.arrays import Arrays, from_arrays

SEEDS = Seeds(3)


class Streamed(Images):
    """The same images, handed out as a folder too large for the memory would."""

    def __init__(self, held: Arrays, fails_at: int | None = None) -> None:
        self.name, self.task, self.class_names = held.name, held.task, held.class_names
        self.labels, self.test, self.skipped = held.labels, held.test, ()
        self._held, self._calls, self._fails_at = held, 0, fails_at

    def pixels(self, index):
        if self._calls == self._fails_at:
            raise BadInput("the disk is gone")
        self._calls += 1
        return self._held.pixels(index)

    def digest(self) -> str:
        return self._held.digest()


def source(count: int = 50) -> Arrays:
    x = np.broadcast_to(np.arange(count, dtype=np.uint8)[:, None, None], (count, 8, 8))
    return from_arrays(x, np.arange(count) % 5)


def drawn(batches: Batches, epoch: int, start: int = 0) -> list[list[int]]:
    """The images of each batch, each known by its first pixel."""
    out = []
    for x, y in batches.epoch(epoch, start):
        assert x.dtype == torch.uint8
        assert y.dtype == torch.int64
        ids = x[:, 0, 0, 0].long()
        assert torch.equal(ids % 5, y)
        out.append(ids.tolist())
    return out


def joined(lists: Iterable[list[int]]) -> list[int]:
    return list(chain.from_iterable(lists))


def make(images: Images | None = None, index: np.ndarray | None = None, batch: int = 8, **options) -> Batches:
    images = images if images is not None else source()
    return Batches(images, np.arange(5, 45) if index is None else index, batch, SEEDS, "train", **options)


def test_an_epoch_is_a_function_of_its_number():
    first, second = drawn(make(), 0), drawn(make(), 1)
    assert first == drawn(make(), 0) != second
    assert sorted(joined(first)) == sorted(joined(second)) == list(range(5, 45))


def test_starting_inside_an_epoch_continues_it():
    assert drawn(make(), 2, start=3) == drawn(make(), 2)[3:]


def test_another_name_is_another_order():
    other = Batches(source(), np.arange(5, 45), 8, SEEDS, "val")
    assert drawn(other, 0) != drawn(make(), 0)


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("drop_last", [True, False])
def test_ranks_share_the_global_batches(world, drop_last, streamed):
    images = Streamed(source()) if streamed else source()
    whole = drawn(make(index=np.arange(37), drop_last=drop_last), 4)
    ranks = [make(images, np.arange(37), drop_last=drop_last, rank=r, world=world) for r in range(world)]
    shares = [drawn(rank, 4) for rank in ranks]
    assert [joined(parts) for parts in zip(*shares, strict=True)] == whole


def test_evaluation_sees_every_image_once_in_order():
    batches = make(index=np.arange(37), shuffle=False, drop_last=False)
    assert len(batches) == 5
    assert joined(drawn(batches, 9)) == list(range(37))


@pytest.mark.parametrize("drop_last", [True, False])
def test_a_split_smaller_than_the_batch_is_one_batch(drop_last):
    batches = make(index=np.arange(5), batch=64, drop_last=drop_last)
    assert len(batches) == 1
    assert [sorted(ids) for ids in drawn(batches, 0)] == [[0, 1, 2, 3, 4]]


def test_streamed_equals_held():
    assert drawn(make(Streamed(source())), 1) == drawn(make(), 1)


def test_an_error_while_decoding_reaches_the_consumer():
    with pytest.raises(BadInput, match="disk is gone"):
        drawn(make(Streamed(source(), fails_at=2)), 0)


def test_an_abandoned_epoch_leaves_no_thread():
    before = threading.active_count()
    batches = make(Streamed(source()), batch=2).epoch(0)
    next(batches)
    batches.close()
    assert threading.active_count() == before


@pytest.mark.parametrize("options", [{"batch": 0}, {"rank": 2, "world": 2}, {"index": np.arange(0)}])
def test_impossible_batches_are_refused(options):
    with pytest.raises(BadInput, match="batches need images"):
        make(**options)
    with pytest.raises(BadInput, match="at least one image a process"):
        make(index=np.arange(3), world=4)
