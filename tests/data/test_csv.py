from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from sartor.core.errors import BadInput
from sartor.core.task import MultiLabel, Task
from sartor.data.open import open_data
from sartor.data.split import split


def table(folder, text, files=()):
    for k, name in enumerate(files):
        (folder / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (20 + k, 20), (10 * k, 0, 0)).save(folder / name)
    path = folder / "labels.csv"
    path.write_text(text, encoding="utf-8")
    return path


NAMES = [f"a/{k}.png" for k in range(8)]


def rows(*columns):
    return "".join(f"{','.join(row)}\n" for row in zip(*columns, strict=True))


def test_one_label_an_image_is_a_single_label_task(tmp_path):
    path = table(tmp_path, "path,label\n" + rows(NAMES, ["cat", "dog"] * 4), NAMES)
    images = open_data(path)
    assert images.task == Task(2, 16)
    assert (images.class_names, images.labels.tolist()) == (("cat", "dog"), [0, 1] * 4)
    assert images.pixels(np.arange(8))[:, 0, 8, 8].tolist() == [10 * k for k in range(8)]
    assert (images.native, images.is_smaller) == (20, True)
    assert open_data(path).digest() == images.digest() != open_data(path, image=32).digest()


@pytest.mark.parametrize("separator", [";", "|", " ; "])
def test_several_labels_in_a_cell_make_a_multi_label_task(tmp_path, separator):
    cells = [separator.join(("cat", "dog")), "dog", "cat", separator.join(("dog", "emu"))] * 3
    names = [f"{k:02}.png" for k in range(12)]
    images = open_data(table(tmp_path, "file,labels\n" + rows(names, cells), names))
    assert images.task == MultiLabel(3, 16)
    assert images.class_names == ("cat", "dog", "emu")
    assert images.labels.tolist() == [[1, 1, 0], [0, 1, 0], [1, 0, 0], [0, 1, 1]] * 3
    assert images.labels.dtype == np.float32


def test_several_rows_of_a_file_are_several_labels_and_other_delimiters_are_known(tmp_path):
    text = "image;label\n" + "".join(f"{n};cat\n{n};{('dog', 'emu')[k % 2]}\n" for k, n in enumerate(NAMES))
    images = open_data(table(tmp_path, text, NAMES))
    assert images.labels.tolist() == [[1, 1, 0], [1, 0, 1]] * 4


def test_the_split_column_decides(tmp_path):
    parts = ["train", "train", "train", "train", "val", "validation", "test", "test"]
    images = open_data(table(tmp_path, "file,label,split\n" + rows(NAMES, ["a", "b"] * 4, parts), NAMES))
    splits = split(images, np.random.default_rng(0))
    assert [part.tolist() for part in (splits.train, splits.val, splits.test)] == [[0, 1, 2, 3], [4, 5], [6, 7]]
    images = open_data(table(tmp_path, "file,label,split\n" + rows(NAMES, ["a", "b"] * 4, ["", ""] * 3 + ["val"] * 2)))
    splits = split(images, np.random.default_rng(0))
    assert splits.val.tolist() == [6, 7]
    assert (len(splits.train), len(splits.test)) == (4, 2)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("file,label\na/0.png,x\na/9.png,y\n", r"1 of 2 do not: a/9.png\. Paths are relative"),
        ("file,label\na/0.png,\n", "line 2 must name a file and its label"),
        ("file,label\na/0.png,cat;\n", "line 2 must name a file and its label"),
        ("file,label\n,cat\n", "line 2 must name a file and its label"),
        ("file,label\na/0.png\n", "line 2 must have 2 cells"),
        ("name,label\na/0.png,x\n", "column file or path or image or filename .* has name, label"),
        ("file,what\na/0.png,x\n", "column label or labels"),
        ("file,label,split\na/0.png,x,later\n", "split must be train, val or test"),
        ("file,label\n", "no rows"),
        ("", "column file"),
        ("file,label\na/0.png,x\na/1.png,x\n", "at least two classes"),
        ("file,label\na/0.png,x\na/1.png,x\na/2.png,x\na/3.png,y\n", r"too few are in: 'y' \(1\)"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, text, says):
    with pytest.raises(BadInput, match=says):
        open_data(table(tmp_path, text, NAMES))


def test_damaged_files_are_skipped_and_named(tmp_path):
    path = table(tmp_path, "file,labels\n" + rows(NAMES, ["cat;dog", "dog", "cat", "dog"] * 2), NAMES)
    (tmp_path / "a/1.png").write_bytes(b"x")
    images = open_data(path)
    assert [entry.name for entry in images.skipped] == ["a/1.png"]
    assert images.labels.tolist() == [[1, 1], [1, 0], [0, 1], [1, 1], [0, 1], [1, 0], [0, 1]]
