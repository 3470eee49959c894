from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from sartor.core.errors import BadInput
from sartor.data.open import open_data
from sartor.data.sources import fashion_mnist
from sartor.data.sources.idx import read_idx

RNG = np.random.default_rng(0)


def encode(array: np.ndarray) -> bytes:
    return bytes((0, 0, 8, array.ndim)) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def write(folder: Path, name: str, array: np.ndarray, packed: bool) -> None:
    data = encode(array)
    (folder / f"{name}{'.gz' if packed else ''}").write_bytes(gzip.compress(data) if packed else data)


def fill(folder: Path, dot: bool = False, packed: bool = False) -> np.ndarray:
    x, y = RNG.integers(0, 256, (15, 9, 9), dtype=np.uint8), (np.arange(15) % 3).astype(np.uint8)
    sign = "." if dot else "-"
    for part, share in (("train", slice(0, 12)), ("t10k", slice(12, 15))):
        write(folder, f"{part}-images{sign}idx3-ubyte", x[share], packed)
        write(folder, f"{part}-labels{sign}idx1-ubyte", y[share], packed)
    return x


@pytest.mark.parametrize("dot", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_the_usual_names(tmp_path, dot, packed):
    x = fill(tmp_path, dot, packed)
    images = open_data(tmp_path)
    assert images.test is not None
    assert images.test.tolist() == [12, 13, 14]
    assert images.class_names == ("0", "1", "2")
    np.testing.assert_array_equal(images.pixels(np.arange(15))[:, 0].numpy(), x)


def test_test_files_are_optional(tmp_path):
    fill(tmp_path)
    for path in tmp_path.glob("t10k*"):
        path.unlink()
    assert open_data(tmp_path).test is None


def test_fashion_mnist_where_debian_installs_it(tmp_path, monkeypatch):
    x, y = RNG.integers(0, 256, (30, 28, 28), dtype=np.uint8), (np.arange(30) % 10).astype(np.uint8)
    write(tmp_path, "train-images-idx3-ubyte", x, True)
    write(tmp_path, "train-labels-idx1-ubyte", y, True)
    monkeypatch.setattr(fashion_mnist, "FOLDER", tmp_path)
    images = open_data("fashion-mnist")
    assert (images.name, images.class_names[9], images.task.image) == ("fashion-mnist", "Ankle boot", 28)


def test_missing_files_are_named(tmp_path):
    fill(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").unlink()
    with pytest.raises(BadInput, match="train labels are missing"):
        open_data(tmp_path)
    (tmp_path / "train-images-idx3-ubyte").unlink()
    with pytest.raises(BadInput, match="only test files"):
        open_data(tmp_path)


def test_several_sets_in_one_folder_are_refused(tmp_path):
    fill(tmp_path)
    write(tmp_path, "emnist-train-images-idx3-ubyte", np.zeros((3, 9, 9), np.uint8), False)
    with pytest.raises(BadInput, match="one IDX data set, but holds 2"):
        open_data(tmp_path)


GOOD = encode(np.zeros((3, 4, 4), np.uint8))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "IDX file of unsigned bytes"),
        (GOOD[:10], "IDX file of unsigned bytes"),
        (GOOD[:-1], "holds fewer"),
        (GOOD + b"x", "holds more"),
        (b"\0\0\x0d" + GOOD[3:], "begins with 0x00000d03"),
        (GOOD[:4] + b"\xff" * 12, "header says"),
        (GOOD[:4] + b"\0" * 12, "must hold some images"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_malformed_files_are_refused(tmp_path, data, says, packed):
    path = tmp_path / ("a.gz" if packed else "a")
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(BadInput, match=says):
        read_idx(path, 3)


def test_damaged_gzip_is_refused(tmp_path):
    path = tmp_path / "a.gz"
    whole = gzip.compress(encode(RNG.integers(0, 256, (30, 9, 9), dtype=np.uint8)))
    damaged = bytearray(whole)
    damaged[20:200] = bytes(180)
    for data in (b"no gzip at all", whole[:-50], bytes(damaged)):
        path.write_bytes(data)
        with pytest.raises(BadInput):
            read_idx(path, 3)


def test_unequal_counts_are_refused(tmp_path):
    fill(tmp_path)
    write(tmp_path, "train-labels-idx1-ubyte", np.zeros(5, np.uint8), False)
    with pytest.raises(BadInput, match="12 images and 5 labels"):
        open_data(tmp_path)
