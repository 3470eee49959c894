"""Parquet: tables of files, and tables that hold the images, as Hugging Face stores them."""

from __future__ import annotations

import io
import json
import pickle

import numpy as np
import pytest
from PIL import Image

from sartor.core.errors import BadInput, MissingDependency
from sartor.core.task import MultiLabel
from sartor.data import cache, decode
from sartor.data.open import open_data
from sartor.data.sources import parquet as source


def encoded(n: int) -> bytes:
    """A small PNG that is like no other."""
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(n).integers(0, 255, (20, 24, 3), np.uint8)).save(file, "png")
    return file.getvalue()


def test_parquet_is_read_as_a_csv_is(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    for n in range(8):
        Image.new("RGB", (12, 12), (30 * n, 9, 9)).save(tmp_path / f"{n}.png")
    files, labels = [f"{n}.png" for n in range(8)], ["cat" if n % 2 else "dog" for n in range(8)]
    splits = ["test" if n > 5 else "train" for n in range(8)]
    parquet.write_table(arrow.table({"file": files, "Label": labels, "split": splits}), tmp_path / "a.parquet")
    rows = "\n".join(",".join(row) for row in zip(files, labels, splits, strict=True))
    (tmp_path / "a.csv").write_text(f"file,label,split\n{rows}\n")
    found, expected = open_data(tmp_path / "a.parquet"), open_data(tmp_path / "a.csv")
    assert found.digest() == expected.digest()
    parquet.write_table(arrow.table({"file": files, "labels": [[x, "all"] for x in labels]}), tmp_path / "b.parquet")
    assert open_data(tmp_path / "b.parquet").class_names == ("all", "cat", "dog")


def test_a_parquet_file_needs_its_package_or_must_be_one(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises((MissingDependency, BadInput), match=r"sartor\[parquet\]|must be a Parquet file"):
        open_data(tmp_path / "a.parquet")


@pytest.fixture
def written(tmp_path):
    """Two shards as `datasets` writes them: structs of bytes and paths, class names beside the schema."""
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    def write(name, first, count, labels=None, **columns):
        rows = [{"bytes": encoded(n), "path": f"{n}.png"} for n in range(first, first + count)]
        feature = {"names": ["ant", "bee"], "_type": "ClassLabel"}
        told = {"info": {"features": {"image": {"_type": "Image"}, "label": feature}}}
        labels = [n % 2 for n in range(first, first + count)] if labels is None else labels
        table = arrow.table({"image": rows, "label": labels, **columns})
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        parquet.write_table(table.replace_schema_metadata({"huggingface": json.dumps(told)}), path, row_group_size=7)
        return path

    return write


def expected(count):
    return np.stack([np.asarray(Image.open(io.BytesIO(encoded(n))).crop((2, 0, 22, 20))) for n in range(count)])


def test_images_inside_are_read_in_place_and_shards_say_their_split(written, tmp_path):
    written("data/train-00000-of-00001.parquet", 0, 24)
    written("data/test-00000-of-00001.parquet", 24, 8)
    images = open_data(tmp_path, image=20)
    assert images.class_names == ("ant", "bee")
    order = [int(name.rpartition("-")[2].removesuffix(".png")) for name in images.files]
    assert [order[i] for i in images.test] == list(range(24, 32))
    assert (images.pixels(np.arange(32)).numpy().transpose(0, 2, 3, 1) == expected(32)[order]).all()
    assert images.labels.tolist() == [n % 2 for n in order]
    again = pickle.loads(pickle.dumps(images))
    assert again.digest() == images.digest()


def test_they_are_kept_in_the_cache_and_few_groups_of_rows_in_memory(written, tmp_path, monkeypatch):
    path = written("a.parquet", 0, 60)
    monkeypatch.setenv("SARTOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "LEAST", 10)
    monkeypatch.setattr(source, "_HELD", 0)
    assert (open_data(path, image=20).pixels(np.arange(60)).numpy().transpose(0, 2, 3, 1) == expected(60)).all()
    monkeypatch.setattr(decode, "sized", lambda *_: pytest.fail("decoded again"))
    assert len(open_data(path, image=20)) == 60


def test_a_column_decides_the_split_and_lists_are_several_labels(written, tmp_path):
    parts = ["train"] * 8 + ["validation"] * 4 + ["test"] * 4
    images = open_data(written("a.parquet", 0, 16, [[0], [0, 1], [1], [0]] * 4, split=parts))
    assert isinstance(images.task, MultiLabel)
    assert (images.val.tolist(), images.test.tolist()) == ([8, 9, 10, 11], [12, 13, 14, 15])
    assert images.labels.tolist() == [[1, 0], [1, 1], [0, 1], [1, 0]] * 4


def test_bytes_alone_damaged_rows_and_rows_that_name_files(tmp_path):
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pyarrow import parquet

    held = [encoded(n) for n in range(12)]
    parquet.write_table(arrow.table({"img": [*held[:11], b"none"], "label": ["a", "b"] * 6}), tmp_path / "a.parquet")
    images = open_data(tmp_path / "a.parquet", image=20)
    assert [(s.name, s.reason) for s in images.skipped] == [("a.parquet/11", "not an image that can be read")]
    assert (images.pixels(np.arange(11)).numpy().transpose(0, 2, 3, 1) == expected(11)).all()
    for n, content in enumerate(held):
        (tmp_path / f"{n}.png").write_bytes(content)
    rows = [{"bytes": None, "path": f"{n}.png"} for n in range(12)]
    parquet.write_table(arrow.table({"image": rows, "label": ["a", "b"] * 6}), tmp_path / "b.parquet")
    pixels = open_data(tmp_path / "b.parquet", image=20).pixels(np.arange(12)).numpy()
    assert (pixels.transpose(0, 2, 3, 1) == expected(12)).all()


def test_what_is_missing_is_said(written, tmp_path):
    with pytest.raises(BadInput, match="row 2 must have a label"):
        open_data(written("a.parquet", 0, 8, [0, None, *[1] * 6]))
    with pytest.raises(BadInput, match="split must be train, val or test"):
        open_data(written("b.parquet", 0, 8, split=["later"] * 8))
    from pyarrow import parquet, table

    parquet.write_table(table({"image": [encoded(0)]}), tmp_path / "c.parquet")
    with pytest.raises(BadInput, match="column label or labels"):
        open_data(tmp_path / "c.parquet")
