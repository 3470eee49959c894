from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sartor.core.errors import BadInput
from sartor.data.open import open_data

RNG = np.random.default_rng(0)


def write(path: Path, count: int, label_bytes: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = RNG.integers(0, 256, (count, 3, 32, 32), dtype=np.uint8), (np.arange(count) % classes).astype(np.uint8)
    labels = np.zeros((count, label_bytes), np.uint8)
    labels[:, -1] = y
    path.write_bytes(np.concatenate([labels, x.reshape(count, -1)], 1).tobytes())
    return x, y


def test_cifar10_batches_are_joined(tmp_path):
    parts = [write(tmp_path / f"data_batch_{k}.bin", 20, 1, 10) for k in (1, 2)]
    parts.append(write(tmp_path / "test_batch.bin", 10, 1, 10))
    (tmp_path / "batches.meta.txt").write_text("\n".join(f"kind{k}" for k in range(10)) + "\n\n")
    images = open_data(tmp_path)
    assert images.test is not None
    assert (len(images), images.test[0], images.class_names[3]) == (50, 40, "kind3")
    np.testing.assert_array_equal(images.pixels(np.arange(50)).numpy(), np.concatenate([x for x, _ in parts]))
    np.testing.assert_array_equal(images.labels, np.concatenate([y for _, y in parts]))


def test_cifar100_uses_the_fine_labels(tmp_path):
    folder = tmp_path / "cifar-100-binary"  # found inside the folder that is given
    folder.mkdir()
    _, y = write(folder / "train.bin", 300, 2, 100)
    images = open_data(tmp_path)
    assert images.test is None
    assert images.task.classes == 100
    np.testing.assert_array_equal(images.labels, y)


def test_names_have_a_default(tmp_path):
    write(tmp_path / "data_batch_1.bin", 20, 1, 10)
    assert open_data(tmp_path).class_names[9] == "truck"
    (tmp_path / "batches.meta.txt").write_text("a\nb\n")
    with pytest.raises(BadInput, match="10 class names, but holds 2"):
        open_data(tmp_path)


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "data_batch_1.bin"
    write(path, 20, 1, 10)
    whole = path.read_bytes()
    for data, says in ((whole[:-1], "whole CIFAR-10 records"), (b"", "0 bytes"), (b"\x0b" + whole[1:], "11 occurs")):
        path.write_bytes(data)
        with pytest.raises(BadInput, match=says):
            open_data(tmp_path)


@pytest.mark.parametrize("names", [("data_batch_1", "batches.meta"), ("train", "test", "meta")])
@pytest.mark.parametrize("inside", ["", "cifar-10-batches-py"])
def test_the_pickled_version_is_never_loaded(tmp_path, names, inside):
    folder = tmp_path / inside
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"\x80\x04.")
    with pytest.raises(BadInput, match=r"Download cifar-10-binary\.tar\.gz"):
        open_data(tmp_path)
