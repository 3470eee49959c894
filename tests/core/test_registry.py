import subprocess
import sys
from importlib.metadata import EntryPoint

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


MINE = """
from dataclasses import dataclass
from sartor.solvers.best import Best

@dataclass(frozen=True)
class Mine(Best):
    '''Mine own.'''
    budget: int = 3

class Half:
    pass

ready = Mine(budget=5)
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """A module outside the package, in the current folder."""
    (tmp_path / "mine_of_a_test.py").write_text(MINE)
    (tmp_path / "broken_of_a_test.py").write_text("import no_such_thing")
    monkeypatch.chdir(tmp_path)
    yield "mine_of_a_test"
    sys.modules.pop("mine_of_a_test", None)


def test_a_class_outside_the_package_is_found_made_and_found_again(mine):
    cls = SOLVERS[f"{mine}:Mine"]
    assert SOLVERS.summary(f"{mine}:Mine") == "Mine own."
    assert SOLVERS[cls] is cls
    made = SOLVERS.make(f"{mine}:Mine", {"budget": 4})
    assert made.budget == 4
    assert SOLVERS.make(made) is made
    assert SOLVERS.make(made, {"budget": 7}).budget == 7
    assert SOLVERS.make(f"{mine}:ready").budget == 5
    assert SOLVERS.reference(cls) == SOLVERS.reference(made) == f"{mine}:Mine"
    assert str(sys.path).count(str(sys.modules[mine].__file__).rpartition("/")[0]) == 0


@pytest.mark.parametrize("registry", ALL, ids=lambda r: r.noun)
def test_built_ins_are_referred_to_by_name(registry):
    assert [registry.reference(registry[n]) for n in registry.names()] == list(registry.names())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("mine_of_a_test:Nine", "has no Nine; did you mean Mine"),
        ("mine_of_a_test:Half", "must be a solver, a subclass of sartor.solvers.base.Solver .* the class Half"),
        ("mine_of_a_test:dataclass", "must be a solver"),
        ("mine_of_a_tent:Mine", "there is no module mine_of_a_tent"),
        ("broken_of_a_test:Mine", "raised ModuleNotFoundError"),
        ("mine_of_a_test:", "must be package.module:name"),
        ("sartor.solvers.base:Solver", "does not say all it must: solve"),
        ("mlip", "did you mean milp"),
        (3, "3 must be a solver"),
    ],
)
def test_what_cannot_be_used_says_why(mine, given, words):
    with pytest.raises(BadInput, match=words):
        SOLVERS[given]


def test_code_named_by_a_file_runs_only_when_trusted(mine):
    with pytest.raises(BadInput, match=rf"{mine}:Mine is code .*--trust-code.*trust_code=True"):
        SOLVERS.resolve(f"{mine}:Mine", trusted=False)
    assert mine not in sys.modules
    assert SOLVERS.resolve("milp", trusted=False) is SOLVERS["milp"]


def test_an_installed_package_adds_names(mine, monkeypatch):
    entries = [("solvers.ours", f"{mine}:Mine"), ("costs.ours", "x:y"), ("solvers.lost", "no_such_module:Mine")]
    found = {n: EntryPoint(n, v, "sartor") for n, v in entries}
    monkeypatch.setattr("sartor.core.registry._installed", lambda: found)
    assert SOLVERS.names()[-2:] == ("ours", "lost")
    assert mine not in sys.modules
    assert SOLVERS.reference(SOLVERS["ours"]) == "ours"
    assert "no module no_such_module" in SOLVERS.summary("lost")
