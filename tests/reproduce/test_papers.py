"""docs/papers.md: its tables are what the presets and the results say, and `thorough` is what they say."""

import json
import re
import subprocess

import _record
import faq
import papers
import pytest
import tiny

from sartor.pipeline import options
from sartor.pipeline.context import open_context
from sartor.runs.progress import Reporter


def test_the_pages_tables_are_those_that_the_script_writes():
    for path, tables in papers.PAGES.items():
        page = path.read_text(encoding="utf-8")
        assert papers.render(page, tables) == page, f"python reproduce/papers.py writes {path.name}"


def test_the_comparisons_among_the_questions_are_those_of_the_records():
    page = faq.PAGE.read_text(encoding="utf-8")
    assert "what Sartor delivered" in page
    assert faq.render(page) == page, "python benchmarks/faq.py writes it"


def test_only_what_is_untried_lacks_a_number():
    for name in papers.SPACE_OF:
        assert {row[-1] for row in papers.items(name) if papers.NOT_YET in "".join(row)} <= {"untried"}


def test_compress_md_has_the_baselines_of_the_record():
    networks = json.loads((papers.RESULTS / "bayesnas_lenet.json").read_text())["results"]["networks"]
    told = (papers.ROOT / "docs/compress.md").read_text()
    assert "({:.2f} % and {:.2f} %)".format(*(networks[n]["baseline"]["error_mean"] for n in ("300-100", "5"))) in told


def test_a_record_notes_changed_scripts_what_has_changed_since_and_who_measured(tmp_path, monkeypatch):
    def git(*words):
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    for folder in ("benchmarks/results", "reproduce", "src/sartor/solvers"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "src/sartor/solvers/milp.py").write_text("1")
    (tmp_path / "reproduce/binas_optimisers.py").write_text("1")
    monkeypatch.setattr(_record, "ROOT", tmp_path / "benchmarks")
    git("init", "-q")
    git("add", "-A")
    git("commit", "-qm", "first")
    first = git("rev-parse", "HEAD").strip()
    path = _record.record("binas_optimisers", {})
    assert json.loads(path.read_text())["commit"] == first  # a result beside the scripts changes nothing
    (tmp_path / "reproduce/new.py").write_text("1")
    assert _record._commit() == first + "+"
    (tmp_path / "src/sartor/solvers/milp.py").write_text("2")
    git("add", "-A")
    git("commit", "-qm", "second")
    _record.mark()
    assert json.loads(path.read_text())["stale"]["changed"] == ["solvers/milp.py"]
    (tmp_path / "benchmarks/helps.py").write_text("x = 1")
    (tmp_path / "reproduce/binas_optimisers.py").write_text("from helps import x")
    git("add", "-A")
    git("commit", "-qm", "third")
    _record.record("binas_optimisers", {})
    (tmp_path / "benchmarks/helps.py").write_text("x = 2")
    git("commit", "-qam", "fourth")
    _record.mark()
    assert json.loads(path.read_text())["stale"]["changed"] == ["benchmarks/helps.py"]  # what the script imports
    other = {**json.loads(path.read_text()), "commit": "5c0ea5572e4f5f9bd3ee0cb4b3aa9f4f8ea6a0a1+"}
    path.write_text(json.dumps(other))
    _record.mark()
    assert json.loads(path.read_text())["stale"]["unknown"] == "commit not in this repository"
    _record.record("binas_optimisers", {})
    _record.mark()
    assert "stale" not in json.loads(path.read_text())
    there = {**json.loads(path.read_text()), "commit": first, "hardware": {"gpu": "theirs"}}
    (tmp_path / "there.json").write_text(json.dumps(there))
    monkeypatch.setenv("SARTOR_MEASURED", str(tmp_path / "there.json"))
    found = json.loads(_record.record("binas_optimisers", {"ours": 1}).read_text())
    assert (found["commit"], found["hardware"], found["results"]) == (first, {"gpu": "theirs"}, {"ours": 1})
    assert found["collected"]["commit"].rstrip("+") == git("rev-parse", "HEAD").strip()


def test_every_record_about_the_papers_has_its_script_and_names_the_changed_commit(monkeypatch):
    for path in papers.RESULTS.glob("*.json"):
        data = json.loads(path.read_text())
        script = _record.script_of(data)
        assert script is not None and (papers.ROOT / script).is_file(), path.name
        if data.get("commit") and path.stem.startswith(("binas_", "xnas_", "nasi_", "bayes", "compress_")):
            assert any(data["name"].startswith(start) for start in _record.DEPENDS), path.name
    for parts in _record.DEPENDS.values():
        assert all((papers.ROOT / "src/sartor" / part).exists() for part in parts), parts
    told = {row[0]: row for row in papers.records()}
    assert told["`nasi_search_cuda`"][1] == "`nasi_search.py`"
    assert told["`binas_headline`"][3].endswith("+")


WORDS = {
    "none": {0.0, None, ("none",)}, "AutoAugment": {"auto"}, "AutoAugment, cutout": {"auto_cutout"},
    "AutoAugment, cutout of 16": {"auto_cutout"}, "cutout of 16 pixels": {"cutout"}, "cutout": {"cutout"},
    "shifts and mirror images": {"light"}, "equation 3": {"paper"}, "equation 8": {"full"}, "algorithm 1": {True},
    "w_h": {True}, "80 %": {"train"}, "mean, adaptive": {"fixed", "adaptive"}, "adaptive": {"adaptive"},
    "the largest so far": {"largest"}, "true, random": {"true", "random"}, "BN-ReLU-Conv": {"bn_relu_conv"},
    "one epoch": {50_000 // 64}, "EMA": {0.999}, "equation 4": {1.0}, "fixed rate": {0.1},
}  # fmt: skip
# Where `thorough` has something else than the paper's text, and why.
DEPARTURES = {
    ("binas", "multipath_lr"): 0.0128, ("binas", "multipath_decay"): 1e-5,  # of the code that it says it follows
    ("binas", "train.epochs"): 19, ("binas", "train.warmup"): 3 / 19,  # of that code too: hours, and epochs
    ("nasi", "nu_scale"): None, ("nasi", "init"): "lecun", ("nasi", "parameterisation"): "ntk",  # the same in our words
    ("nasi", "nasbench1shot1", "nu_scale"): 10.0,
    ("bayesnas", "hessian"): "sampled", ("bayesnas", "hessian_images"): 512,  # exact in expectation, on all images
}  # fmt: skip


@pytest.mark.parametrize("name", papers.SPACE_OF)
def test_every_option_of_thorough_is_what_the_paper_says_or_a_departure_that_is_named(name):
    ours, stated = papers.options(name, "thorough"), 0
    rows = [((name, k), ours[k], papers.SAYS[name][k]) for k in ours]
    rows += [((name, space, k), value, said) for space, k, value, said in papers.elsewhere(name)]
    for key, value, said in rows:
        number = re.match(r"(?:code:? )?(\d[\d.]*(?:e-?\d+)?)", said)
        words = re.split(r" \(|[:;]", said)[0]
        if key in DEPARTURES:
            assert value == DEPARTURES[key], key
        elif words in WORDS:
            assert value in WORDS[words], key
        elif number:
            assert value == float(number[1]), key
        else:
            assert words.startswith(("unstated", "ours", "for networks of unstated")), key
            continue
        stated += 1
    assert stated > 20


@pytest.mark.parametrize(
    ("method", "space", "expected"),
    [
        ("binas", "mobile", {"method.estimator": "paper", "method.passes": 10, "method.warmup": 0.0, "method.clip": 0.0,
                             "train.augment": "auto_cutout", "train.teacher": True, "train.images": "train"}),
        ("xnas", "darts", {"method.augment": "auto", "train.augment": "auto_cutout", "space.cells": 20,
                           "space.channels": 36, "space.search_cells": 8, "train.drop_path": 0.2,
                           "train.auxiliary": 0.4, "train.cycles": 5, "train.power": 10.0, "train.images": "all"}),
        ("nasi", "darts_reduced", {"method.steps": 100, "method.batch": 64, "method.redraw": 0, "space.cells": 20}),
        ("bayesnas", "darts", {"method.batch": 18, "method.last_lr": 0.1, "space.channels": 36, "train.epochs": 600}),
    ],
)  # fmt: skip
def test_thorough_runs_the_papers_schedule(tmp_path, method, space, expected):
    """As a run would have it, not as the presets are listed; what is given by hand stays."""
    asked = {"data": str(tiny.npz(tmp_path)), "effort": "thorough", "method": method, "space": space}
    run = open_context(options.from_mapping(asked), tmp_path / "run", Reporter(silent=True))
    groups = {"method": run.method, "space": run.space, "train": run.train}
    found = {name: getattr(groups[name.split(".")[0]], name.split(".")[1]) for name in expected}
    assert found == expected
    given = {**asked, "train": {"epochs": 3}}
    assert open_context(options.from_mapping(given), tmp_path / "given", Reporter(silent=True)).train.epochs == 3
