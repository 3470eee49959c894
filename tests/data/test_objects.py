"""Data that is an object in Python: sequences, torch data sets, Hugging Face's, references to code."""

from __future__ import annotations

import io
import pickle
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import numpy as np
import pytest
import torch
from PIL import Image

from sartor.core.errors import BadInput, MissingDependency
from sartor.core.task import MultiLabel, Task
from sartor.data import cache, files
from sartor.data.naming import refuse_code
from sartor.data.open import open_data
from sartor.data.sources import items


def pixels(k: int, height: int = 12, width: int = 12, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(k).integers(0, 256, (height, width, channels), np.uint8)


PAIRS = [(pixels(k), k % 2) for k in range(8)]
WHOLE = np.stack([x for x, _ in PAIRS]).transpose(0, 3, 1, 2)


@pytest.mark.parametrize(
    "form",
    [
        lambda x: x,
        Image.fromarray,
        torch.from_numpy,
        lambda x: torch.from_numpy(x.transpose(2, 0, 1).copy()),
        lambda x: torch.from_numpy(x.transpose(2, 0, 1) / np.float32(255)),
    ],
    ids=["array", "PIL", "tensor HWC", "tensor CHW", "tensor of fractions"],
)
def test_images_of_one_size_stay_as_they_are(form):
    images = open_data([(form(x), y) for x, y in PAIRS])
    assert images.task == Task(2, 12)
    np.testing.assert_array_equal(images.pixels(np.arange(8)).numpy(), WHOLE)
    assert images.labels.tolist() == [0, 1] * 4
    assert images.digest() == open_data((WHOLE, np.arange(8) % 2)).digest()


def test_grey_images_have_one_channel_and_a_coloured_one_among_them_is_refused():
    grey = [(pixels(k)[..., 0], k % 2) for k in range(8)]
    assert open_data(grey).task == Task(2, 12, 1)
    assert open_data([(torch.from_numpy(x)[None] / 255, y) for x, y in grey]).task.channels == 1


def test_a_colour_seen_late_is_refused(monkeypatch):
    monkeypatch.setattr(items, "_LOOKED_AT", 2)
    grey = [(pixels(k)[..., 0], k % 2) for k in range(8)]
    with pytest.raises(BadInput, match=r"list\[3\] must be grey"):
        open_data([*grey[:3], PAIRS[3], *grey[4:]])


def test_images_of_many_sizes_are_treated_like_photos():
    images = open_data([(pixels(k, 40 + k, 50), k % 2) for k in range(8)], largest=64)
    assert (images.task.image, images.native, images.is_smaller) == (32, 43, True)
    assert open_data([(pixels(k, 40 + k, 50), k % 2) for k in range(8)], image=48).task.image == 48
    assert open_data([(pixels(k, 300, 300), k % 2) for k in range(4)], largest=64).task.image == 64


class Torch(torch.utils.data.Dataset):
    classes = ("ant", "bee")

    def __len__(self):
        return len(PAIRS)

    def __getitem__(self, index):
        if index >= len(PAIRS):
            raise IndexError(index)
        x, y = PAIRS[index]
        return torch.from_numpy(x).permute(2, 0, 1) / 255, torch.tensor(y)


def test_a_torch_data_set_brings_its_class_names():
    images = open_data(Torch())
    assert (images.name, images.class_names, images.labels.tolist()) == ("Torch", ("ant", "bee"), [0, 1] * 4)
    subset = open_data(torch.utils.data.Subset(Torch(), range(6)))
    assert (len(subset), subset.class_names) == (6, ("0", "1"))


@pytest.mark.parametrize(
    ("labels", "expected", "names"),
    [
        ([("a", "b"), ("b",), ["a"], {"c"}], [[1, 1, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]], ("a", "b", "c")),
        ([[0, 2], [1], [], [2]], [[1, 0, 1], [0, 1, 0], [0, 0, 0], [0, 0, 1]], ("0", "1", "2")),
        (list(torch.eye(4)[[0, 1, 2, 3]] + torch.eye(4)[[1, 1, 2, 3]] > 0), None, ("0", "1", "2", "3")),
    ],
)
def test_several_labels_an_image(labels, expected, names):
    images = open_data([(x, y) for (x, _), y in zip(PAIRS, labels, strict=False)])
    assert isinstance(images.task, MultiLabel)
    assert images.class_names == names
    assert images.labels.tolist() == (expected or [[1, 1, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])


def test_rows_of_ones_and_zeros_are_labels_of_arrays_too():
    y = np.array([[1, 1, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1]] * 2)
    assert open_data((WHOLE, y)).task == MultiLabel(3, 12)
    assert open_data((WHOLE, torch.eye(3)[torch.arange(8) % 3])).task == Task(3, 12)  # one each: one of them


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ([(pixels(0), 0), (pixels(1) / 127.0, 1)], r"list\[1\]: numbers with a fraction must lie in 0..1"),
        ([(pixels(0), 0), (pixels(1).astype(int), 1)], "uint8 values 0..255 or numbers 0..1"),
        ([(np.zeros((2, 12, 12), np.uint8), 0), (pixels(1), 1)], r"has \(2, 12, 12\)"),
        ([(pixels(0), 0), (pixels(1), "a")], "all be numbers or all be names"),
        ([(pixels(0), 0.5), (pixels(1), 1.5)], "a number, a name or a list"),
        ([(pixels(0), 0), ("no/such.png", 1)], r"list\[1\] must be a readable image file"),
        ([], "pair"),
    ],
)
def test_what_cannot_be_used_is_named(given, says):
    with pytest.raises(BadInput, match=says):
        open_data(given)


def test_items_that_do_not_fit_into_the_memory_are_asked_for_again(monkeypatch):
    held = open_data(PAIRS)
    monkeypatch.setattr(items, "memory_limit", lambda: 10)
    images = open_data(PAIRS)
    assert isinstance(images, files.Decoded)
    index = np.array([5, 0, 5])
    np.testing.assert_array_equal(images.pixels(index), held.pixels(index))
    assert images.digest() == open_data(list(PAIRS)).digest() != open_data(PAIRS[::-1]).digest()


# Hugging Face: the package is not installed; these stand for its classes, with the members that it documents.


class ClassLabel:
    def __init__(self, names):
        self.names = names


class Sequence:
    def __init__(self, feature):
        self.feature = feature


class Picture:
    """Its class is called Image there."""


Picture.__name__ = "Image"


class Dataset:
    def __init__(self, features, rows):
        self.features, self.rows, self.column_names = features, rows, list(features)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def hugging(pairs, label, image="img", name="label"):
    rows = [{"id": k, image: Image.fromarray(x), name: y} for k, (x, y) in enumerate(pairs)]
    return Dataset({"id": object(), image: Picture(), name: label}, rows)


def test_a_hugging_face_data_set_by_the_types_of_its_columns():
    images = open_data(hugging(PAIRS, ClassLabel(["ant", "bee"]), image="photo", name="kind"))
    assert (images.class_names, images.labels.tolist()) == (("ant", "bee"), [0, 1] * 4)
    np.testing.assert_array_equal(images.pixels(np.arange(8)).numpy(), WHOLE)
    with pytest.raises(BadInput, match=r"column label or labels .* has id, img, what"):
        open_data(hugging(PAIRS, object(), name="what"))


def test_a_hugging_face_list_of_labels_is_multi_label():
    pairs = [(x, [0, 1] if k % 2 else [2]) for k, (x, _) in enumerate(PAIRS)]
    images = open_data(hugging(pairs, Sequence(ClassLabel(["a", "b", "c"])), name="labels"))
    assert images.task == MultiLabel(3, 12)
    assert images.labels.tolist() == [[0, 0, 1], [1, 1, 0]] * 4


def test_a_dictionary_of_hugging_face_splits_keeps_them():
    label = ClassLabel(["ant", "bee"])
    parts = {"train": hugging(PAIRS[:4], label), "test": hugging(PAIRS[4:6], label), "unsupervised": None}
    images = open_data(parts | {"validation": hugging(PAIRS[6:], label)})
    assert len(images) == 8
    assert (images.test.tolist(), images.val.tolist()) == ([4, 5], [6, 7])
    with pytest.raises(BadInput, match="must have 'train'"):
        open_data({"test": parts["test"]})


def test_a_name_of_hugging_faces_hub_is_fetched_where_its_package_is(tmp_path, monkeypatch):
    asked = []

    def load_dataset(*words):
        asked.append(words)
        if words[0] == "ada/nothing":
            raise ConnectionError("cannot reach the hub\nmore")
        return {"train": hugging(PAIRS, ClassLabel(["ant", "bee"]))}

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingDependency, match=r"sartor\[datasets\]"):
        open_data("hf://datasets/ada/bugs")
    fake = ModuleType("datasets")
    fake.load_dataset, fake.__spec__ = load_dataset, ModuleSpec("datasets", None)
    monkeypatch.setitem(sys.modules, "datasets", fake)
    for name, words in (("hf://datasets/ada/bugs", ("ada/bugs",)), ("ada/bugs", ("ada/bugs",)),
                        ("hf://datasets/ada/bugs/small", ("ada/bugs", "small"))):  # fmt: skip
        assert open_data(name).class_names == ("ant", "bee")
        assert asked.pop() == words
    with pytest.raises(BadInput, match=r"ada/nothing must be a folder.*cannot reach the hub. It is fetched once"):
        open_data("ada/nothing")
    (tmp_path / "photos").mkdir()
    with pytest.raises(BadInput, match="neither a name nor an existing path"):
        open_data("photos/trian")  # a slip in a path is nobody else's business
    assert asked == [("ada/nothing",)]


class Encoded(Dataset):
    """With the members that give images as they are in their files."""

    def __init__(self, features, rows, decoded=True, mark="a"):
        super().__init__(features, rows)
        self.format, self._fingerprint, self.decoded = {"type": None}, mark, decoded

    def cast_column(self, column, feature):
        assert not feature.decode
        return Encoded(self.features | {column: feature}, self.rows, False, self._fingerprint + "'")

    def __getitem__(self, index):
        if isinstance(index, str):
            return [row[index] for row in self.rows]
        row = self.rows[index]
        return row | {"image": Image.open(io.BytesIO(row["image"]["bytes"])) if self.decoded else row["image"]}


class Feature:
    def __init__(self, decode=True):
        self.decode = decode


Feature.__name__ = "Image"


def encoded(pairs, mark):
    rows = []
    for x, y in pairs:
        file = io.BytesIO()
        Image.fromarray(x).save(file, "png")
        rows.append({"image": {"bytes": file.getvalue(), "path": None}, "label": y})
    return Encoded({"image": Feature(), "label": ClassLabel(["ant", "bee"])}, rows, mark=mark)


@pytest.mark.parametrize("memory", [10, 1 << 40])
def test_a_data_set_with_a_fingerprint_is_decoded_once_for_all_runs(tmp_path, monkeypatch, memory):
    monkeypatch.setenv("SARTOR_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "LEAST", 5)
    monkeypatch.setattr(items, "memory_limit", lambda: memory)
    seen, sized = [], items.sized
    monkeypatch.setattr(items, "sized", lambda *given: (seen.append(given), sized(*given))[1])
    first = open_data(encoded(PAIRS, "a"))
    assert len(seen) == 8
    again = open_data(encoded(PAIRS, "a"))
    assert len(seen) == 8
    for images in (first, again):
        assert (images.pixels(np.arange(8)).numpy() == WHOLE).all()
        assert images.labels.tolist() == [0, 1] * 4
        assert images.kept_in is not None
    assert first.digest() == again.digest()
    assert (open_data(encoded(PAIRS[::-1], "b")).pixels(np.arange(8)).numpy() == WHOLE[::-1]).all()


def test_a_data_set_that_nothing_tells_from_others_is_decoded_once_for_a_run(tmp_path, monkeypatch):
    monkeypatch.setenv("SARTOR_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "LEAST", 5)
    monkeypatch.setattr(items, "memory_limit", lambda: 10)
    asked = []

    class Asked(Torch):
        def __getitem__(self, index):
            asked.append(index)
            return super().__getitem__(index)

    images = open_data(Asked())
    asked.clear()
    assert (images.pixels(np.arange(8)).numpy() == WHOLE).all()
    assert (pickle.loads(pickle.dumps(images)).pixels(np.arange(8)).numpy() == WHOLE).all()
    assert asked == []
    assert images.digest() == open_data(Torch()).digest() != open_data(PAIRS[::-1]).digest()
    (folder,) = (p for p in tmp_path.glob("images/*") if p.is_dir())
    del images
    assert not folder.exists()


def test_a_reference_to_code_is_called_and_opened(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos_of_mine.py").write_text(
        "import numpy as np\n"
        "def load(image=None):\n    return np.zeros((6, image or 9, image or 9), np.uint8), np.arange(6) % 2\n"
        "class Data:\n    def __len__(self): return 6\n"
        "    def __getitem__(self, i): return np.full((10, 10), i, np.uint8), i % 2\n"
        "pairs = [(np.zeros((11, 11), np.uint8), i % 2) for i in range(6)]\n"
        "def broken(): return 1 / 0\n"
    )
    assert open_data("photos_of_mine:load").task.image == 9
    assert open_data("photos_of_mine:load", 16).task.image == 16
    assert open_data("photos_of_mine:Data").task.image == 10
    assert open_data("photos_of_mine:pairs").task.image == 11
    with pytest.raises(BadInput, match="ZeroDivisionError"):
        open_data("photos_of_mine:broken")
    with pytest.raises(BadInput, match="trust"):
        refuse_code({"data": "photos_of_mine:load"})
    refuse_code({"data": "photos/", "space": {"name": "mobile"}})


def test_images_that_are_open_already_are_taken_as_they_are():
    images = open_data(PAIRS)
    assert open_data(images) is images
    with pytest.raises(BadInput, match="open already"):
        open_data(images, 16)
