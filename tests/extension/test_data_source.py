"""Data from outside the package, on the command line and in Python, up to a finished run; no file of Sartor changes."""

import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tiny
from typer.testing import CliRunner

import sartor
from sartor.cli.main import app
from sartor.core import registry
from sartor.data.open import open_data

PAGE = Path(__file__).parents[2] / "docs/extend/data_source.md"


@pytest.fixture
def page(tmp_path, monkeypatch):
    """The page's code, as a module in a folder of its own."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "my_images.py").write_text("\n".join(blocks), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(__import__("sys").modules, "my_images", raising=False)
    return __import__("my_images")


def check(result):
    assert result.labels == ("dark", "light")
    assert result.certificate["fits"]
    assert (result.path / "report.html").is_file()


def test_the_page_says_what_its_code_does(page):
    assert page.images.task == sartor.Task(2, 9, 1)
    assert open_data("my_images:load").task.image == 18


def test_a_function_on_the_command_line(page, tmp_path):
    more = ("--params=60k", "--image=9", "--quiet", "--json")
    words = tiny.arguments("my_images:load", tmp_path / "run", *more, costs={})
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.exit_code == 0
    check(sartor.load(tmp_path / "run"))


def test_an_object_in_python_and_another_budget_for_it(page, tmp_path):
    fit = partial(sartor.fit, out=tmp_path / "run", params="60k", quiet=True, method="random", train={"epochs": 1})
    result = fit(page.pairs)
    check(result)
    again = fit(page.pairs)
    assert again.certificate == result.certificate
    with pytest.raises(sartor.RunError, match="has changed since"):
        fit(page.pairs[::-1])
    with pytest.raises(sartor.BadInput, match="Give it again"):
        sartor.solve(result.path, params="50k", quiet=True)
    check(sartor.solve(result.path, data=page.pairs, params="50k", quiet=True))
    found = result.predict(np.stack([x for x, _ in page.pairs])[:4, None])
    assert [set(entry["probabilities"]) for entry in found] == [{"dark", "light"}] * 4


def test_a_kind_of_data_that_an_installed_package_registers(page, tmp_path, monkeypatch):
    entry = registry.EntryPoint("sources.raw", "my_images:Raw", "sartor")
    monkeypatch.setattr(registry, "_installed", lambda: {entry.name: entry})
    (tmp_path / "raw").mkdir()
    for name in ("dark", "light"):
        held = np.stack([x for x, y in page.pairs if y == name])
        (tmp_path / "raw" / f"{name}.raw").write_bytes(held.tobytes())
    images = open_data(tmp_path / "raw")
    assert (images.class_names, len(images), images.task.image) == (("dark", "light"), 60, 9)
    with pytest.raises(sartor.BadInput, match=r"a folder of \.raw files"):
        open_data(3)
