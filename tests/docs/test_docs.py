"""Every block of the site's pages and of the README runs; docs/tested.md says how far where. -m slow: to the end."""

import os
import re
import subprocess
import sys
import tomllib

import lines
import numpy as np
import pytest
import quick
import tiny
import typer
import world
from blocks import PAGES, ROOT, blocks

from sartor.cli.main import app

SHOWN = {"text", "toml", "json", "csv", "html", "kotlin"}
SITE = {"{toctree}", "{eval-rst}", "{include}", "{commands}"}
ALL = [block for page in PAGES for block in blocks(page)]
WITH_CODE = sorted({block.page for block in ALL if block.language in ("bash", "python")})
# These are run to their end in the suite, too, by tests/extension.
ELSEWHERE = {f"docs/extend/{name}.md" for name in ("method", "own_module", "space")}
# Commands that compute for many seconds: in the suite their words are checked, and nothing more.
PARSED = ("sartor bench", "sartor score", "sartor export runs/a --to openvino", "sartor verify runs/a/cuts/")


def parsed(words):
    """Refuses what the command line does not know."""
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        name, *words = words
        assert name in command.commands, f"there is no command {name}"
        command = command.commands[name]
    command.make_context(name, list(words))


def run(words, real):
    """A command of a page."""
    line = " ".join(words)
    if "ssh://" in line if real else line.startswith(PARSED):
        parsed(words[1:])
    elif words[0] == "sartor":
        code, out, err = lines.run(shorter(words[1:]) if real else words[1:])
        assert code == 0, err or out
    elif words[0] == "python":
        subprocess.run([sys.executable, *words[1:]], check=True, env=quick.environment(), capture_output=True)
    elif words[0].startswith("scripts/"):
        assert os.access(ROOT / words[0], os.X_OK)
    else:
        assert words[0] == "ls", f"{words[0]} is not run: say so above the block"
        subprocess.run(words, check=True, capture_output=True)


def shorter(words):
    """Fewer networks, seeds and rounds, where a command counts them itself."""
    least = {"--samples": "6", "--seeds": "1"} if words[0] in ("bench", "score") else {}
    few = {"measure": tiny.COARSE, "bench": {"method.steps": 2, "method.nu_networks": 2} if "nasi" in words else {}}
    sets = [f"--set={name}={value}" for name, value in few.get(words[0], {}).items()]
    return [least.get(before, word) for before, word in zip(["", *words], words, strict=False)] + sets


def walk(page, names, real):
    """All blocks of a page, from its top: how many commands and pieces of Python that were. One that fails says so."""
    code, walked = "", 0
    for block in (b for b in ALL if b.page == page):
        try:
            if block.language == "bash":
                for words in block.commands():
                    walked += 1
                    if block.runs:
                        run(words, real)
                    elif words[0] == "sartor":
                        parsed(words[1:])
            elif block.language == "python" and block.runs:
                walked += 1
                code += block.text
                if block.file:
                    with open(block.file, "w", encoding="utf-8") as file:
                        file.write(code)
                made = compile(block.text, str(block), "exec")
                if real or "SartorClassifier(" not in block.text:
                    exec(made, names)
        except BaseException as error:
            raise AssertionError(f"{block}: {error}") from error
    return walked


@pytest.fixture
def around(tmp_path, monkeypatch):
    """A folder with what the pages speak of, and the names that their code takes for granted."""
    world.photos(tmp_path)
    world.tables(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("CI", "1")
    before = set(sys.modules)
    x, y = tiny.arrays()
    yield {"X": np.asarray(x), "y": y, "__name__": "page"}
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("page", sorted(set(WITH_CODE) - ELSEWHERE))
def test_a_page_runs_up_to_the_work_of_minutes(page, around, tmp_path, finished, monkeypatch):
    world.stand_in(monkeypatch, world.Runs(finished.run, tmp_path), finished)
    assert walk(page, around, real=False) > 0


@pytest.fixture(scope="session")
def fitted(tmp_path_factory):
    """A run of the photos with a further budget, which pages that make none speak of."""
    folder = tmp_path_factory.mktemp("fitted")
    world.photos(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for words in (tiny.arguments("photos/", "runs/a", "--latency=50ms"), ["solve", "runs/a", "--latency=3ms"]):
            code, _, err = lines.run(words)
            assert code == 0, err
    return folder / "runs/a"


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("page", WITH_CODE)
def test_a_page_runs_to_its_end(page, around, tmp_path, fitted, monkeypatch, shared):
    monkeypatch.setenv("SARTOR_CACHE", str(shared / "prices"))
    world.shortened(monkeypatch, world.Runs(fitted, tmp_path))
    assert walk(page, around, real=True) > 0


def test_every_block_has_a_language_that_is_known():
    assert len(ALL) > 100
    assert {b.language for b in ALL} <= SHOWN | SITE | {"bash", "python"}, [b for b in ALL if not b.language]


def test_what_is_not_run_is_counted():
    """A block that says so cannot be wrong unseen: whoever adds one changes this."""
    told = [str(b) for b in ALL if not b.runs]
    assert len(told) == 14, told


def test_extras_that_pages_name_exist_and_all_are_explained():
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    named = {n for group in re.findall(r"(?:sartor|\.)\[([a-z,]+)\]", text) for n in group.split(",")}
    assert named <= extras
    told = (ROOT / "docs/install.md").read_text(encoding="utf-8")
    assert {n for n in extras - {"all", "dev"} if f"| `{n}` |" not in told} == set()


def test_every_page_is_in_the_contents():
    told = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"^(?:[^\n:{`]*<)?([a-z_/]+)>?$", told, re.MULTILINE))
    pages = {str(p.relative_to(ROOT / "docs").with_suffix("")) for p in PAGES if p.name != "README.md"}
    assert pages - {"index"} == listed


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "benchmarks/README.md"]
)
def test_links_lead_somewhere(page):
    links = re.findall(
        r"\]\(([^)#\s]+)", re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
    )
    assert {link for link in links if "://" not in link and not (page.parent / link).exists()} == set()
