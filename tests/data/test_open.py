from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from sartor.core.errors import BadInput
from sartor.data.open import open_data
from sartor.data.sources import fashion_mnist


def test_a_pair_of_arrays():
    x = np.zeros((6, 12, 12), np.uint8)
    images = open_data((x, np.arange(6) % 2), image=8)
    assert (len(images), images.task.image) == (6, 8)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("no/such/folder", "'no/such/folder' is neither a name nor an existing path"),
        ("", "data must be|sub-folder"),
        ("a\0b", "no usable path|neither a name"),
        ("x" * 5000, "no usable path|neither a name"),
        (3, "but is a int"),
        (("x",), "pair"),
    ],
)
def test_what_is_not_data_is_refused(source, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=says):
        open_data(source)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("photos.zip", "must be a sound archive"),
        ("photos.tar.gz", "must be a sound archive"),
        ("a.pkl", "run any code"),
        ("a.jpg", "another file"),
    ],
)
def test_files_of_other_kinds_are_refused(name, says, tmp_path):
    path = tmp_path / name
    path.write_bytes(b"PK")
    with pytest.raises(BadInput, match=says):
        open_data(path)


def test_fashion_mnist_names_its_package_where_it_is_absent(tmp_path, monkeypatch):
    monkeypatch.setattr(fashion_mnist, "FOLDER", tmp_path / "absent")
    with pytest.raises(BadInput, match="apt install dataset-fashion-mnist"):
        open_data("fashion-mnist")


def test_importing_the_contract_does_not_import_torch():
    code = "import sys, sartor, sartor.data.base; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
