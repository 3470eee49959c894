"""A target over SSH, against a real OpenSSH server on the loopback interface: what it measures, what goes wrong."""

import itertools
import json
import os
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import sshd
import tiny
from own import Own
from torch import nn

import sartor
from sartor.cli.main import main
from sartor.core.arch import Arch
from sartor.core.errors import BadInput, Infeasible, SartorError
from sartor.core.quadratic import Limit
from sartor.core.task import Task
from sartor.costs.latency.cost import Latency
from sartor.deploy import probe
from sartor.deploy.module import onnx_graph
from sartor.deploy.quantise import sketched
from sartor.deploy.runtimes.base import Reference
from sartor.deploy.runtimes.onnxruntime import OnnxRuntime
from sartor.deploy.runtimes.torch import Torch
from sartor.deploy.targets import link, ssh
from sartor.deploy.targets.base import target_of
from sartor.deploy.targets.ssh import OverSsh, Ssh
from sartor.pipeline import decision
from sartor.runs.directory import read_file, read_json
from sartor.runs.schema import ScoreFile
from sartor.solvers import solve
from sartor.solvers.base import Problem

pytest.importorskip("onnxruntime")
BUILDS = {
    "reference": (Reference, Reference.shape),
    "small": (lambda: nn.Conv2d(3, 4, 1), (3, 8, 8)),
    "large": (lambda: nn.Conv2d(3, 64, 7), (3, 32, 32)),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with sshd.server(tmp_path_factory.mktemp("sshd")) as made:
        yield made


@pytest.fixture(autouse=True)
def afresh(request, monkeypatch):
    """The right keys, a good link, a machine that nobody has asked yet, and no long waits."""
    monkeypatch.setattr(ssh, "_PAUSES", (0.0, 0.1))
    ssh._facts_of.cache_clear()
    if "server" in request.fixturenames:
        made = request.getfixturevalue("server")
        made.link("plain")
        made.configure()


def python(folder: Path, name: str, script: str) -> str:
    """An interpreter over there that does something else first, or instead."""
    path = folder / name / "python3"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def timed(address: str, names=("small", "large"), seconds=0.001, **options):
    with OnnxRuntime(target=address, **options).stopwatch(BUILDS) as watch:
        return list(watch.visits(names, seconds)), watch


def running() -> list[str]:
    """Measuring programs that run on this machine."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.startswith(b"import sys;exec(sys.stdin") for word in words):
            found.append(path.parent.name)
    return found


def test_networks_are_timed_over_there_on_the_cores_that_were_asked_for_and_nothing_is_left_behind(server, tmp_path):
    core = max(os.sched_getaffinity(0))
    full = python(tmp_path, "full", f'echo Welcome\nulimit -f 0\nexec {sys.executable} "$@"')  # a disk without room
    address = f"{server.address.partition('?')[0]}?python={full}&cores={core}"
    visits, watch = timed(address)
    assert [name for name, _ in visits] == ["small", "large"]
    assert all(len(calls) >= 2 and min(calls) > 0 for _, calls in visits)
    assert min(visits[1][1]) > min(visits[0][1])
    assert watch.conditions()["target"] == address
    assert OnnxRuntime(target=address, precision="int8").identity()["weight_bits"] == probe.weight_bits()
    identity = OnnxRuntime(target=address).identity()
    assert identity["pinned"] == str(core)
    assert {**identity, "pinned": ""} == {**OnnxRuntime().identity(), "pinned": ""}  # it is this very machine
    assert running() == []


def test_int8_weights_have_the_bits_that_the_target_can_multiply(monkeypatch):
    net, farthest = nn.Conv2d(3, 4, 3), {}
    for bits in (7, 8):
        facts = {**dict.fromkeys(ssh._FACTS, ""), "weight_bits": bits}
        monkeypatch.setattr(ssh, "_facts_of", lambda target, runtime, it=facts: it)
        runtime = OnnxRuntime(target="ssh://board", precision="int8")
        assert runtime.identity()["weight_bits"] == bits
        stored = onnx.load_from_string(runtime.portable(net, (3, 8, 8))).graph.initializer
        weights = [onnx.numpy_helper.to_array(t).astype(int) for t in stored if t.dims == [4, 3, 3, 3]]
        farthest[bits] = int(np.abs(weights[0]).max())
    assert farthest[7] <= 64 < farthest[8]


def test_both_forms_of_a_network_are_timed_together_over_there(server, tmp_path):
    net, shape = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)), (3, 12, 12)
    files = {name: tmp_path / f"{name}.onnx" for name in ("float32", "int8")}
    files["float32"].write_bytes(onnx_graph(net, shape))
    files["int8"].write_bytes(sketched(files["float32"].read_bytes()))
    found = Latency(target=server.address, verify_s=0.02, visit_ms=0.0).compare(net, files, shape)
    assert all(0 < m.low <= m.value <= m.high and m.details["timing"]["n"] >= 40 for m in found.values())
    assert found["int8"].details["conditions"]["target"] == server.address


@pytest.mark.parametrize("precision", ["float32", "auto"])
def test_a_profile_that_was_measured_over_there_serves_without_it_at_any_time(server, tmp_path, monkeypatch, precision):
    """`sartor measure --target ssh://... --out board.json`, then a fit in less time, which would time fewer parts."""
    monkeypatch.setattr(ssh, "_REPEATS", 0)
    board = tmp_path / "board.json"
    sets = [f"--set={name}={value}" for name, value in tiny.COARSE.items()]
    task = ("--space=own:Own", "--image=8", "--channels=1", "--classes=3", f"--precision={precision}")
    monkeypatch.setattr(
        sys, "argv", ["sartor", "measure", f"--target={server.address}", *task, *sets, f"--out={board}"]
    )
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    away = Latency(target=str(board), **{**tiny.COARSE, "rounds": 6, "sample": 60})
    told, small = read_json(board), away.int8()
    assert away.table(Own(), Task(3, 8, 1)).to_json()["prices"] == told["prices"]
    if precision == "float32":
        assert small is None
        with pytest.raises(BadInput, match=r"profile with prices in int8, .*--precision int8 --out"):
            OnnxRuntime(target=str(board), precision="int8").identity()
    else:
        assert small.table(Own(), Task(3, 8, 1)).to_json() == told["int8"]
        assert OnnxRuntime(target=str(board)).weight_bits == told["int8"]["device"]["weight_bits"]


def test_a_cut_connection_goes_on_and_a_slow_one_only_takes_longer(server):
    before = (server.folder / "log").read_text().count("Accepted")
    server.link("cut 24000")  # in the midst of the models
    visits, _ = timed(server.address)
    assert [name for name, _ in visits] == ["small", "large"]
    assert (server.folder / "log").read_text().count("Accepted") - before >= 2
    server.link("slow 200000")
    assert [name for name, _ in timed(server.address)[0]] == ["small", "large"]


def test_a_host_that_vanishes_loses_nothing(server, tmp_path, monkeypatch):
    """Rounds that were measured before are not measured again."""
    monkeypatch.setattr(link, "_OPTIONS", (*link._OPTIONS[:2], "ServerAliveInterval=1", "ServerAliveCountMax=1"))
    monkeypatch.setattr("sartor.costs.latency.cache._SAVE_EVERY", -1.0)
    cost = Latency(target=server.address, rounds=3, visit_ms=0.0, networks=1, sample=1)
    space, task, made, asked = Own(), Task(10, 8, 1), OverSsh._asked, []

    def once(self, link, names, seconds):
        asked.append(len(names))
        if len(asked) == 2:
            server.link("silent 0")
        return made(self, link, names, seconds)

    monkeypatch.setattr(OverSsh, "_asked", once)
    monkeypatch.setattr(ssh, "_DRIFT", float("inf"))
    monkeypatch.setattr(ssh, "_PAUSES", ())
    with pytest.raises(SartorError, match=r"is gone: .*run the same command again"):
        cost.table(space, task, cache=tmp_path)
    server.link("plain")
    ticks = []
    table = cost.table(space, task, lambda *t: ticks.append(t), tmp_path)
    assert len(asked) == 4  # one round before, one that was cut, two more
    assert table.device["pinned"]
    assert table.calibration["conditions"]["rejected_rounds"] == 0
    assert json.dumps(table.to_json())
    assert cost.table(space, task, cache=tmp_path).to_json() == table.to_json()
    assert running() == []


def test_two_targets_in_one_run_are_both_kept_and_the_answer_is_that_of_an_exhaustive_search(
    server, tmp_path, monkeypatch
):
    monkeypatch.setattr(decision, "_SPARE", 0)  # the first network that fits will do
    monkeypatch.setattr(ssh, "_REPEATS", 0)  # tests run beside each other: no round is calm
    core = max(os.sched_getaffinity(0))
    board = f"{server.address}&cores={core}"
    limits = {"laptop": "50ms", "board": "60ms"}
    coarse = {"costs": {f"latency@{name}": dict(tiny.COARSE) for name in limits}, "train": tiny.QUICK["train"]}
    result = sartor.fit(
        str(tiny.npz(tmp_path)), out=tmp_path / "run", space=Own(), method="random", latency=limits,
        target={"laptop": "local", "board": board}, quiet=True, **coarse,
    )  # fmt: skip
    told = result.certificate["budgets"]
    assert {n: (e["limit"], e["holds"], e["on_device"]) for n, e in told.items()} == {
        "latency@board": (60.0, True, True), "latency@laptop": (50.0, True, True)
    }  # fmt: skip
    assert [told[f"latency@{n}"]["device"].get("pinned") for n in limits] == [None, str(core)]
    assert all(e["timing"]["n"] > 0 for e in told.values())
    assert told["latency@board"]["conditions"]["target"] == board
    page = (tmp_path / "run/report.html").read_text()
    assert all(f"latency@{name}" in page for name in limits)
    lines = {line.what: line for line in sartor.verify(tmp_path / "run", here=True).lines}
    assert "--trust-code" in lines[f"latency@board on {board}"].found  # a run that was received connects nowhere
    # what the solver says at budgets that bind, against every network of the space
    goal = read_file(tmp_path / "run/score.json", ScoreFile).score
    forms = {n: result.tables[n].form for n in told}
    every = [Arch(picks) for picks in itertools.product(*map(range, goal.sizes))]
    for share in (0.1, 0.3, 0.6):
        limited = [Limit(n, f, float(np.quantile([f(a) for a in every], share))) for n, f in forms.items()]
        inside = [goal(a) for a in every if all(limit.holds(a) for limit in limited)]
        if inside:
            assert solve(Problem(goal, tuple(limited))).score == pytest.approx(max(inside))
        else:
            with pytest.raises(Infeasible):
                solve(Problem(goal, tuple(limited)))


REFUSALS = {
    "an unknown host key": ({"UserKnownHostsFile": "/dev/null"}, "its host key must be a known one"),
    "a wrong key": ({"IdentityFile": "{folder}/stranger"}, "must let your key in"),
    "nobody listens": ({"ProxyCommand": "none", "Port": "1"}, "must be reachable"),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_a_machine_that_does_not_let_in_is_refused(server, what):
    changed, message = REFUSALS[what]
    server.configure(**{k: v.format(folder=server.folder) for k, v in changed.items()})
    address = server.address.replace(f":{server.port}", "") if "Port" in changed else server.address
    with pytest.raises(BadInput, match=message):
        timed(address)


def test_an_unknown_host_is_refused(server):
    with pytest.raises(BadInput, match="there must be such a host"):
        timed("ssh://somebody@no-such-host.invalid")


ANSWERS = {
    "garbage": ("exec yes garbage", "must answer as Sartor's measuring program does, but said 'garbage"),
    "impossible": ("echo '{\"sartor\": 1}'; echo '{\"machine\": {\"cores\": -1}}'; cat >/dev/null", "must answer as"),
    "nothing": (f"exec {sys.executable} -I -S \"$@\"", "must have onnxruntime"),
}  # fmt: skip


@pytest.mark.parametrize("what", ANSWERS)
def test_a_machine_that_answers_something_else_is_refused(server, tmp_path, what):
    script, message = ANSWERS[what]
    other = python(tmp_path, what, script)
    with pytest.raises(SartorError, match=message):
        timed(f"{server.address.partition('?')[0]}?python={other}")
    assert running() == []


def test_what_the_machine_cannot_do_is_said(server):
    with pytest.raises(BadInput, match=r"must have Python 3.8 .*\?python="):
        timed(f"{server.address.partition('?')[0]}?python=/nowhere/python3")
    with pytest.raises(BadInput, match="99 threads need as many of the cores"):
        timed(server.address, threads=99)
    with pytest.raises(BadInput, match="add --runtime onnxruntime"):
        Torch(target=server.address)


def test_a_round_that_drifted_is_made_again(monkeypatch):
    drifts = iter([1.5, 1.1, 3.0, 2.0, 1.4, 1.0])
    monkeypatch.setattr(ssh, "_first_link", lambda target, runtime: (None, {}))
    monkeypatch.setattr(OverSsh, "_round", lambda self, names, seconds: (d := next(drifts), [(names[0], [d])]))
    watch = OverSsh(Ssh(host="h"), OnnxRuntime(), {}, lambda done, total: None)
    assert list(watch.visits(["a"], 0.1)) == [("a", [1.1])]
    assert list(watch.visits(["a"], 0.1)) == [("a", [1.4])]  # three times is enough: the calmest counts
    assert watch.rejected == 3


def test_a_processor_that_is_slowed_down_spoils_a_round(monkeypatch, tmp_path):
    """A counter that rises, of whichever core; a Raspberry Pi's flags while they are up, from the beginning on, too."""
    monkeypatch.setattr(probe, "_CPU", f"{tmp_path}/cpu%d/")
    monkeypatch.setattr(probe, "_BOARD", str(tmp_path / "board"))
    states = []
    for counts, flags in (((7, 2), None), ((7, 3), None), ((7, 3), "50005"), ((7, 3), "50000")):
        for core, count in enumerate(counts):
            file = tmp_path / f"cpu{core}/thermal_throttle/core_throttle_count"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{count}\n")
        if flags is not None:
            (tmp_path / "board").write_text(f"{flags}\n")
        states.append(probe.state([0]))
    spoilt = {(i, j): ssh._drift([1.0, 1.2], states[i], states[j]) == float("inf") for i, j in
              ((0, 0), (0, 1), (1, 1), (1, 2), (2, 2), (2, 3), (3, 3))}  # fmt: skip
    assert spoilt == {(0, 0): 0, (0, 1): 1, (1, 1): 0, (1, 2): 1, (2, 2): 1, (2, 3): 1, (3, 3): 0}
    assert ssh._drift([1.0, 1.2], states[0], states[0]) == pytest.approx(1.2)


@pytest.mark.parametrize("address", ["ssh://pi", "ssh://a@b:22", "ssh://a@[::1]:2?python=/x/python3.12&cores=2,3"])
def test_an_address_says_where(address):
    assert str(target_of(address)) == address


@pytest.mark.parametrize(
    "address",
    ["ssh://", "ssh://-oProxyCommand=x", "ssh://-a@h", "ssh://a b", "ssh://h;id", "ssh://u:secret@h", "ssh://h/path",
     "ssh://h:99999", "ssh://h?python=sh", "ssh://h?python=python3;id", "ssh://h?cores=a", "ssh://h?other=1",
     "ftp://h", "os:system", "local://h"],
)  # fmt: skip
def test_what_is_no_address_is_refused(address):
    with pytest.raises(BadInput):
        Latency(target=address)
