import subprocess
import sys

import pytest

from sartor.core.errors import BadInput
from sartor.core.registry import COSTS, METHODS, SOLVERS, SPACES, Registry

ALL = [SPACES, SOLVERS, COSTS, METHODS]


@pytest.mark.parametrize("registry", ALL, ids=lambda r: r.noun)
def test_every_public_file_is_a_plugin_with_one_line_about_itself(registry):
    assert registry.names()
    for name in registry.names():
        assert isinstance(registry[name], type)
        assert registry.summary(name).endswith(".")


@pytest.mark.parametrize("registry", ALL, ids=lambda r: r.noun)
@pytest.mark.parametrize("name", ["no such thing", "base", "_private", "", "../run", "binas.Random"])
def test_an_unknown_name_is_refused_with_the_known_ones(registry, name):
    with pytest.raises(BadInput, match=registry.noun) as caught:
        registry[name]
    assert all(known in str(caught.value) for known in registry.names())


def test_a_new_file_is_a_new_plugin(tmp_path, monkeypatch):
    package = tmp_path / "plugins_of_a_test"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "base.py").write_text("")
    (package / "_helper.py").write_text("")
    (package / "mine.py").write_text('class Mine:\n    """First line.\n\n    More."""\n\n\nPLUGIN = Mine\n')
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry("plugins_of_a_test", "plug-in")
    assert registry.names() == ("mine",)
    assert registry["mine"].__name__ == "Mine"
    assert registry.summary("mine") == "First line."


def test_names_import_nothing_and_sartor_itself_does_not_import_torch():
    code = (
        "import sys, sartor, sartor.cli.main, sartor.pipeline.options;"
        "from sartor.core.registry import METHODS; METHODS.names();"
        "print([m for m in ('torch', 'sartor.methods.binas.method', 'lightning_fabric', 'onnx') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
