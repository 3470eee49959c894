"""A run directory from elsewhere is data: nothing it names is imported, and nothing outside it is touched."""

import json
import os
import re

import pytest
import tiny

import sartor
from sartor.cli.main import app
from sartor.core.errors import RunError, SartorError
from sartor.runs.directory import Run, sha256

CODE = "from pathlib import Path\nPath({!r}).touch()\ndef make(*_, **__): raise SystemExit\n"


@pytest.fixture
def got(finished, tmp_path, monkeypatch):
    """A run that was received, in a folder from which its files could be imported."""
    monkeypatch.chdir(tmp_path)
    run = finished.copy(tmp_path / "runs/got")
    (run / "search/x.py").write_text(CODE.format(str(tmp_path / "bitten")))
    return run


def renewed(run):
    """Every hash as a forger would renew it."""
    stages = json.loads((run / "stages.json").read_text())
    for entry in stages.values():
        if isinstance(entry, dict):
            entry["files"] = {name: sha256(run / name) for name in entry["files"]}
    (run / "stages.json").write_text(json.dumps(stages))


def edited(path, edit):
    data = json.loads(path.read_text())
    edit(data)
    path.write_text(json.dumps(data))


EVIL = "runs.got.search.x:make"
COMMANDS = {
    "report": lambda run: app(["report", str(run)], standalone_mode=False),
    "frontier": lambda run: app(["frontier", str(run), "--json"], standalone_mode=False),
    "solve": lambda run: sartor.solve(run, params="60K", quiet=True),
    "compress": lambda run: sartor.compress(run, params="50%", out=run.parent / "small", quiet=True),
    "compare": lambda run: sartor.compare(run, time="1s", quiet=True),
    "model": lambda run: sartor.load(run).model,
    "explain": lambda run: sartor.load(run).explain(),
    "predict": lambda run: sartor.load(run).predict(tiny.arrays(1)[0][:, None]),
}


def given(run):
    def become(arch):
        del arch["space"]
        arch["given"] = EVIL

    edited(run / "model/arch.json", become)


def space(run):
    edited(run / "model/arch.json", lambda arch: arch["space"].update(name=EVIL))
    configured(run, r'(\[space\]\nname = )"mobile"')


def table(run):
    (run / "costs/macs.json").rename(run / f"costs/{EVIL}.json")
    edited(run / "stages.json", lambda s: s["costs"]["files"].update({f"costs/{EVIL}.json": ""}))
    edited(run / "stages.json", lambda s: s["costs"]["files"].pop("costs/macs.json"))


def configured(run, pattern):
    path = run / "config.toml"
    path.write_text(re.sub(pattern, rf'\1"{EVIL}"', path.read_text(), count=1))


PLANTED = {
    "arch.json given": (given, {"compress", "model"}),
    "space": (space, {"solve", "compress", "compare", "model"}),
    "runtime of a cost": (lambda run: configured(run, r'(\[costs.latency\][^\[]*runtime = )"onnxruntime"'),
                          {"solve", "compare"}),
    "target of a cost": (lambda run: configured(run, r'(\[costs.latency\][^\[]*target = )"local"'),
                         {"solve", "compare"}),
    "method": (lambda run: configured(run, r'(\[method\]\nname = )"binas"'), {"solve", "compare"}),
    "data": (lambda run: configured(run, r'(data = )"[^"]*"'), {"solve", "compare", "compress"}),
    "name of a cost table": (table, {"solve", "compare"}),
}  # fmt: skip


@pytest.mark.parametrize("where", PLANTED)
def test_code_that_its_files_name_is_refused_by_every_command_that_would_use_it(got, tmp_path, where):
    plant, refused = PLANTED[where]
    plant(got)
    renewed(got)
    for name in refused:
        with pytest.raises(SartorError, match=re.escape(f"{EVIL} is code named by a file")):
            COMMANDS[name](got)
    if where == "arch.json given":
        for name in ("report", "frontier", "explain", "predict"):  # use none of it
            COMMANDS[name](got)
    assert not (tmp_path / "bitten").exists()


def test_a_list_without_its_files_switches_no_check_off(got):
    edited(got / "stages.json", lambda stages: [entry.update(files={}) for n, entry in stages.items() if n != "format"])
    for name in ("report", "frontier", "solve", "compress", "model", "predict"):
        with pytest.raises(RunError, match=r"stages\.json must list "):
            COMMANDS[name](got)


@pytest.mark.parametrize("name", ["training.json", "certificate.json", "costs/macs.json"])
def test_a_report_of_changed_files_is_refused_by_name(got, name):
    (got / name).write_text((got / name).read_text() + " ")
    with pytest.raises(RunError, match=re.escape(f"{name} has changed")):
        COMMANDS["report"](got)
    edited(got / "stages.json", lambda s: [e["files"].pop(name, 0) for n, e in s.items() if n not in ("format",)])
    with pytest.raises(RunError, match=re.escape(name)):
        COMMANDS["report"](got)


def test_a_truncated_report_is_written_again(finished, tmp_path):
    run = finished.copy(tmp_path / "run")
    whole = (run / "report.html").read_bytes()
    (run / "report.html").write_bytes(whole[: len(whole) // 2])
    from sartor.pipeline import order
    from sartor.runs.progress import Reporter

    order.fit(tiny.given(finished.data, tiny.BUDGETS), run, Reporter(silent=True))
    assert (run / "report.html").read_bytes() == whole
    assert Run(run).done("report")


@pytest.mark.parametrize("name", ["log.txt", "report.html", "cuts", "model/labels.json", "costs"])
def test_a_link_out_of_the_run_is_refused(got, tmp_path, name):
    victim = tmp_path / "victim"
    if name in ("cuts", "costs"):
        victim.mkdir()
    else:
        victim.write_text("mine")
    link = got / name
    if link.is_dir():
        link.rename(tmp_path / "old")
    link.unlink(missing_ok=True)
    link.symlink_to(victim)
    for command in ("report", "solve", "compress", "model"):
        with pytest.raises(RunError, match=re.escape(f"{name} is a link")):
            COMMANDS[command](got)
    assert list(victim.iterdir()) == [] if victim.is_dir() else victim.read_text() == "mine"


def test_a_pipe_in_place_of_a_file_is_refused_rather_than_waited_for(got):
    (got / "training.json").unlink()
    os.mkfifo(got / "training.json")
    with pytest.raises(RunError, match=r"training\.json must be a file or a folder"):
        COMMANDS["report"](got)


def test_a_network_made_from_itself_ends(got):
    def become(arch):
        del arch["space"]
        arch["given"] = str(got)

    edited(got / "model/arch.json", become)
    renewed(got)
    with pytest.raises(RunError, match="leads back to it"):
        COMMANDS["model"](got)
