from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sartor.core.errors import BadInput
from sartor.data.base import Splits
from sartor.data.sources.arrays import Arrays, from_arrays
from sartor.data.split import split


def source(counts: list[int], test_counts: list[int] | None = None) -> Arrays:
    y = np.repeat(np.arange(len(counts)), counts)
    x = np.zeros((len(y), 8, 8), np.uint8)
    if test_counts is None:
        return from_arrays(x, y)
    y_test = np.repeat(np.arange(len(counts)), test_counts)
    return from_arrays(x, y, x_test=np.zeros((len(y_test), 8, 8), np.uint8), y_test=y_test)


def stream(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@settings(deadline=None, max_examples=60)
@given(
    counts=st.lists(st.integers(3, 60), min_size=2, max_size=6),
    val=st.floats(0.01, 0.6),
    test=st.floats(0.01, 0.39),
    seed=st.integers(0, 1000),
)
def test_splits_are_a_partition_with_every_class_in_each(counts, val, test, seed):
    images = source(counts)
    parts = split(images, stream(seed), val, test)
    joined = np.concatenate([parts.train, parts.val, parts.test])
    assert sorted(joined.tolist()) == list(range(len(images)))
    for part, share in ((parts.val, val), (parts.test, test)):
        got = np.bincount(images.labels[part], minlength=len(counts))
        assert (got >= 1).all()
        assert (got <= np.maximum(1, np.array(counts) * share + 0.5)).all()
    assert set(images.labels[parts.train]) == set(range(len(counts)))


@settings(deadline=None, max_examples=30)
@given(counts=st.lists(st.integers(2, 40), min_size=2, max_size=5), seed=st.integers(0, 1000))
def test_the_sources_own_test_images_stay_the_test_split(counts, seed):
    images = source(counts, [4] * len(counts))
    parts = split(images, stream(seed))
    assert parts.test.tolist() == images.test.tolist()
    assert not set(parts.test) & (set(parts.train) | set(parts.val))
    assert len(parts.train) + len(parts.val) + len(parts.test) == len(images)
    for part in (parts.train, parts.val):
        assert set(images.labels[part]) == set(range(len(counts)))


def test_same_stream_same_split_and_another_stream_another():
    images = source([30, 30])
    first, again, other = (split(images, stream(seed)) for seed in (1, 1, 2))
    assert first.to_json() == again.to_json() == Splits.from_json(first.to_json()).to_json()
    assert first.to_json() != other.to_json()


def test_shares_are_those_asked_for():
    parts = split(source([100, 200]), stream(), val=0.2, test=0.15)
    assert (len(parts.train), len(parts.val), len(parts.test)) == (195, 60, 45)


def test_small_classes_are_named():
    with pytest.raises(BadInput, match=r"at least 3 usable images.*'1' \(2\)\. Add images"):
        split(source([5, 2]), stream())
    with pytest.raises(BadInput, match=r"at least 2 usable images.*train and validation.*'0' \(1\)"):
        split(source([1, 2], [3, 3]), stream())
    with pytest.raises(BadInput, match="and 3 more"):
        split(source([2] * 8), stream())


@pytest.mark.parametrize(("val", "test"), [(0, 0.1), (0.5, 0.5), (1.0, 0.1), (-0.1, 0.1), (0.1, 0)])
def test_impossible_shares_are_refused(val, test):
    with pytest.raises(BadInput, match="leave some for training"):
        split(source([5, 5]), stream(), val, test)


@pytest.mark.parametrize("seed", range(5))
def test_several_labels_an_image_are_all_in_every_split_in_their_shares(seed):
    rng = np.random.default_rng(seed)
    labels = (rng.random((600, 6)) < [0.5, 0.3, 0.1, 0.05, 0.02, 0.4]).astype(np.float32)
    labels[:4, 4], labels[:2, 5] = 1, 0
    images = Arrays(torch.zeros((600, 1, 8, 8), dtype=torch.uint8), labels, list("abcdef"), name="many")
    splits = split(images, np.random.default_rng(seed))
    parts = [splits.train, splits.val, splits.test]
    assert sorted(np.concatenate(parts).tolist()) == list(range(600))
    for part, share in zip(parts, (0.65, 0.2, 0.15), strict=True):
        found = labels[part].sum(0)
        assert (found >= 1).all()
        assert np.abs(found - share * labels.sum(0)).max() <= 3
        assert abs(len(part) - share * 600) < 30
    again = split(images, np.random.default_rng(seed))
    assert again.train.tolist() == splits.train.tolist() != split(images, np.random.default_rng(9)).train.tolist()


def test_a_label_of_two_images_cannot_be_split():
    labels = np.zeros((12, 2), np.float32)
    labels[:, 0], labels[:2, 1] = 1, 1
    images = Arrays(torch.zeros((12, 1, 8, 8), dtype=torch.uint8), labels, ["a", "rare"], name="many")
    with pytest.raises(BadInput, match=r"'rare' \(2\)"):
        split(images, np.random.default_rng(0))
