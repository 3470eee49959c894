from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from sartor.core.errors import BadInput
from sartor.data.open import open_data
from sartor.data.picture import square
from sartor.data.sources.arrays import fit_square, from_arrays
from sartor.data.sources.npz import open_npz

RNG = np.random.default_rng(0)
Y = np.arange(12) % 3


def pictures(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def save(path: Path, **arrays: np.ndarray) -> Path:
    np.savez_compressed(path, **arrays)
    return path


@pytest.mark.parametrize("shape", [(12, 10, 10), (12, 10, 10, 1), (12, 10, 10, 3), (12, 1, 10, 10), (12, 3, 10, 10)])
def test_every_layout_gives_the_same_pixels(shape):
    x = pictures(*shape)
    images = from_arrays(x, Y)
    expected = x[:, None] if x.ndim == 3 else x if shape[1] in (1, 3) else x.transpose(0, 3, 1, 2)
    np.testing.assert_array_equal(images.pixels(np.arange(12)).numpy(), expected)
    assert (images.task.classes, images.task.image, images.task.channels) == (3, 10, expected.shape[1])
    assert images.class_names == ("0", "1", "2")


def test_pixels_are_taken_in_the_order_asked_for():
    x = pictures(12, 8, 8)
    np.testing.assert_array_equal(from_arrays(x, Y).pixels(np.array([5, 0, 5]))[:, 0].numpy(), x[[5, 0, 5]])


def test_labels_of_any_numbers_become_positions():
    images = from_arrays(pictures(4, 8, 8), np.array([10, -3, 7, 10]))
    assert images.class_names == ("-3", "7", "10")
    assert images.labels.tolist() == [2, 0, 1, 2]


@pytest.mark.parametrize(
    ("x", "y", "says"),
    [
        (np.zeros((4, 8, 8)), [0, 1, 0, 1], "uint8 values 0..255, but holds float64: multiply by 255"),
        (np.zeros((4, 8, 8), np.int32), [0, 1, 0, 1], "convert to uint8"),
        (np.zeros((4, 8), np.uint8), [0, 1, 0, 1], r"shape .* but has \(4, 8\)"),
        (np.zeros((4, 2, 8, 8), np.uint8), [0, 1, 0, 1], "Transpose or convert"),
        (np.zeros((0, 8, 8), np.uint8), [], "at least one image"),
        (np.zeros((4, 8, 8), np.uint8), [0, 1, 0], "equally long, but hold 4 images, 3 labels"),
        (np.zeros((4, 8, 8), np.uint8), [0.5, 1, 0, 1], "one integer for each image"),
        (np.zeros((4, 8, 8), np.uint8), [1, 1, 1, 1], "at least two classes"),
    ],
)
def test_bad_arrays_are_refused(x, y, says):
    with pytest.raises(BadInput, match=says):
        from_arrays(x, np.asarray(y))


def test_npz_with_names_and_test_arrays(tmp_path):
    x, x_test = pictures(12, 8, 8, 3), pictures(3, 8, 8, 3)
    path = save(tmp_path / "a.npz", x=x, y=Y, classes=np.array(["α", "b", "c"]), x_test=x_test, y_test=np.arange(3))
    images = open_data(path)
    assert images.class_names == ("α", "b", "c")
    assert images.test is not None
    assert images.test.tolist() == [12, 13, 14]
    np.testing.assert_array_equal(images.pixels(images.test).numpy(), x_test.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("marks", [("train", "test"), (b"train", b"test"), (0, 1), (False, True)])
def test_npz_with_a_split_array(tmp_path, marks):
    x = pictures(12, 8, 8)
    split = np.array([marks[k % 4 == 0] for k in range(12)])
    images = open_npz(save(tmp_path / "a.npz", x=x, y=Y, split=split))
    assert images.test is not None
    np.testing.assert_array_equal(images.pixels(images.test)[:, 0].numpy(), x[::4])
    assert images.labels[images.test].tolist() == Y[::4].tolist()


def test_npz_parts_are_joined_in_the_order_of_their_names(tmp_path):
    parts = [pictures(6, 8, 8, 3) for _ in range(3)]
    for k, part in enumerate(parts):
        name = ("c_train_0", "c_train_1", "c_test_0")[k]
        save(tmp_path / f"{name}.npz", x=part, y=np.arange(6) % 2, index=np.arange(6))
    images = open_data(tmp_path)
    assert images.test is not None
    assert images.test.tolist() == list(range(12, 18))
    np.testing.assert_array_equal(images.pixels(np.arange(18)).numpy(), np.concatenate(parts).transpose(0, 3, 1, 2))


def test_npz_parts_of_different_shapes_are_refused(tmp_path):
    save(tmp_path / "train0.npz", x=pictures(6, 8, 8), y=np.arange(6) % 2)
    save(tmp_path / "train1.npz", x=pictures(6, 9, 9), y=np.arange(6) % 2)
    with pytest.raises(BadInput, match="one shape"):
        open_data(tmp_path)


def test_malformed_npz_are_refused(tmp_path):
    path = tmp_path / "a.npz"
    for arrays, says in (
        ({"y": Y}, r"x \(uint8 images\) and y .*, but holds y"),
        ({"x": pictures(12, 8, 8), "y": np.array([None] * 12)}, "never loaded"),
        ({"x": pictures(12, 8, 8), "y": Y, "classes": np.array(["a", "b"])}, r"labels must lie in 0\.\.1"),
        ({"x": pictures(12, 8, 8), "y": Y, "split": np.array(["train"] * 11 + ["what"])}, "with \\['what'\\]"),
        ({"x": pictures(12, 8, 8), "y": Y, "x_test": pictures(2, 8, 8)}, "belong together"),
        ({"x": pictures(12, 8, 8), "y": Y, "x_test": pictures(2, 9, 9), "y_test": Y[:2]}, "shape of the others"),
    ):
        np.savez(path, allow_pickle=True, **arrays)
        with pytest.raises(BadInput, match=says):
            open_data(path)
    whole = path.read_bytes()
    for content in (b"", b"garbage", whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(BadInput, match=r"readable \.npz"):
            open_data(path)


def test_digits_have_ten_classes_of_eight_pixels():
    images = open_data("digits")
    assert (len(images), images.task.classes, images.task.image, images.task.channels) == (1797, 10, 8, 1)
    pixels = images.pixels(np.arange(len(images)))
    assert (int(pixels.min()), int(pixels.max())) == (0, 255)


@pytest.mark.parametrize("shape", [(20, 30), (30, 20), (16, 16), (5, 9)])
def test_resizing_takes_the_centre_square(shape):
    x = torch.zeros((2, 1, *shape), dtype=torch.uint8)
    height, width = shape
    x[..., height // 2 - 1 : height // 2 + 1, width // 2 - 1 : width // 2 + 1] = 255
    out = fit_square(x, 16)
    assert out.shape == (2, 1, 16, 16)
    assert out[0, 0, 7:9, 7:9].float().mean() > 100
    assert fit_square(x, None).shape[-1] == max(8, min(shape))


def test_resizing_down_averages():
    checks = torch.tensor([[0, 200], [200, 0]], dtype=torch.uint8).repeat(16, 16)[None, None]
    inner = fit_square(checks, 8)[..., 1:-1, 1:-1].float()
    assert (inner - 100).abs().max() <= 6


def test_the_side_is_checked():
    for side in (0, -8, 7, 5000):
        with pytest.raises(BadInput, match="8 to 1024"):
            open_data("digits", side)


def test_the_digest_follows_every_part():
    x, x_test = pictures(12, 8, 8), pictures(3, 8, 8)
    first = from_arrays(x, Y).digest()
    assert first == from_arrays(x.copy(), Y.copy()).digest()
    other = x.copy()
    other[3, 4, 5] ^= 1
    digests = {
        first,
        from_arrays(other, Y).digest(),
        from_arrays(x, (Y + 1) % 3).digest(),
        from_arrays(x, Y, classes=["a", "b", "c"]).digest(),
        from_arrays(x, Y, x_test=x_test, y_test=np.arange(3)).digest(),
    }
    assert len(digests) == 5


def test_the_shared_cifar_parts_open_as_one_source():
    if "SARTOR_TEST_DATA" not in os.environ:
        pytest.skip("SARTOR_TEST_DATA is not set to the folder with cifar10/")
    folder = Path(os.environ["SARTOR_TEST_DATA"], "cifar10")
    if not folder.is_dir():
        pytest.skip(f"{folder} does not exist")
    images = open_data(folder)
    assert images.test is not None
    assert (len(images), len(images.test), images.task.classes, images.task.image) == (20_000, 4_000, 10, 32)


def test_arrays_are_scaled_as_files_are(tmp_path):
    ramp = np.add.outer(np.arange(40) * 3, np.arange(40) * 2).astype(np.uint8)
    picture = np.stack([ramp, ramp.T, np.roll(ramp, 7, 0)])
    Image.fromarray(picture.transpose(1, 2, 0)).save(tmp_path / "a.png")
    scaled = from_arrays(picture[None].repeat(6, 0), [0, 1] * 3, image=24).pixels(np.array([0]))[0].numpy()
    assert np.abs(scaled.astype(int) - square(tmp_path / "a.png", 24)).max() <= 1
