import errno
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError

from sartor.core.errors import RunError
from sartor.engine import checkpoint
from sartor.runs.directory import Run, atomic, read_json, sha256, write_json
from sartor.runs.progress import Reporter


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path / "run", Reporter(silent=True))


def stage(run, name="one", files=("a.json",)):
    """Run a stage that writes `files`; whether it ran."""

    def work():
        for file in files:
            run.write(file, {"stage": name})
        return list(files)

    return run.stage(name, work, name)


# files ------------------------------------------------------------------------------------------


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "deep" / "er" / "a.txt"
    with pytest.raises(ZeroDivisionError), atomic(path) as tmp:
        tmp.write_text("half" * (1 // 0) if tmp.write_text("half") else "")
    assert list(path.parent.iterdir()) == []
    with atomic(path) as tmp:
        tmp.write_text("old")
        assert not path.exists()
    with pytest.raises(ZeroDivisionError), atomic(path) as tmp:
        tmp.write_text("half" * (1 // 0) if tmp.write_text("half") else "")
    assert path.read_text() == "old"
    assert [p.name for p in path.parent.iterdir()] == ["a.txt"]


def test_a_killed_write_leaves_the_old_file(tmp_path):
    write_json(tmp_path / "a.json", 1)
    code = (
        "import os, signal, sys; from pathlib import Path; from sartor.runs.directory import atomic\n"
        "with atomic(Path(sys.argv[1])) as tmp:\n"
        "    tmp.write_text('half'); os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path / "a.json")], check=False).returncode == -9
    assert read_json(tmp_path / "a.json") == 1


def test_json_in_any_script_comes_back_and_nan_is_refused(tmp_path):
    data = {"名": ["ä", "\U0001f600", 0.1, 1e-300, None, True]}
    write_json(tmp_path / "a.json", data)
    assert read_json(tmp_path / "a.json") == data
    with pytest.raises(ValueError):
        write_json(tmp_path / "a.json", float("nan"))
    assert read_json(tmp_path / "a.json") == data


@pytest.mark.parametrize(
    "content",
    [b"", b'{"a": 1', b"\xff\xfe", b"[" * 200_000, b'{"a":' * 100_000, b"nonsense", b"1" * 10_000],
    ids=["empty", "truncated", "not text", "deep lists", "deep objects", "no json", "enormous number"],
)
def test_a_damaged_file_is_named(tmp_path, content):
    path = tmp_path / "score.json"
    path.write_bytes(content)
    with pytest.raises(RunError, match=r"score\.json is damaged"):
        read_json(path)


def test_a_missing_file_and_a_folder_in_its_place_are_named(tmp_path):
    with pytest.raises(RunError, match=r"none\.json is missing"):
        read_json(tmp_path / "none.json")
    (tmp_path / "dir.json").mkdir()
    with pytest.raises(RunError, match=r"dir\.json"):
        read_json(tmp_path / "dir.json")


def test_a_file_in_place_of_the_folder_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="file"):
        write_json(tmp_path / "file" / "a.json", 1)
    with pytest.raises(RunError, match="must be a writable folder"), Run(tmp_path / "file").locked():
        pass


@pytest.mark.parametrize("error", [PermissionError(13, "Permission denied"), OSError(28, "No space left on device")])
def test_no_permission_and_a_full_disk_are_said(tmp_path, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(RunError, match=error.strerror):
        write_json(tmp_path / "a.json", 1)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def small_disk():
    """No file may grow over 4096 bytes: what the system then answers is like a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_checkpoint_that_does_not_fit_leaves_the_last_one(tmp_path, small_disk):
    path = tmp_path / "a.safetensors"
    checkpoint.save(path, {"x": torch.ones(8)})
    before = path.read_bytes()
    with pytest.raises(RunError, match=r"a\.safetensors must be writable, but: File too large"):
        checkpoint.save(path, {"x": torch.ones(8000)})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_as_safetensors_says_it_is_told_with_what_to_do(tmp_path):
    with pytest.raises(RunError, match=r"No space left on device\. Make room"), atomic(tmp_path / "a"):
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


def test_a_disk_that_turns_read_only_is_said(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    def turn(tmp):
        monkeypatch.setattr(Path, "unlink", fail)
        monkeypatch.setattr(os, "replace", fail)

    with pytest.raises(RunError, match="a must be writable, but: Read-only"), atomic(tmp_path / "a") as tmp:
        turn(tmp)
    with pytest.raises(RunError, match="must be a writable folder, but: Read-only"), atomic(tmp_path / "b"):
        pytest.fail("the block must not begin")


def test_a_link_at_the_temporary_name_is_not_written_through(tmp_path):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / f".a.{os.getpid()}.tmp").symlink_to(tmp_path / "victim")
    with atomic(tmp_path / "a") as tmp:
        tmp.write_text("mine")
    assert (tmp_path / "victim").read_text() == "precious"
    assert (tmp_path / "a").read_text() == "mine"


def test_errors_of_the_work_itself_pass_through(tmp_path):
    with pytest.raises(FileNotFoundError), atomic(tmp_path / "a"):
        (tmp_path / "no such folder" / "b").read_text()


# the lock ---------------------------------------------------------------------------------------

_HOLD = (
    "import sys, time; from pathlib import Path; from sartor.runs.directory import Run\n"
    "with Run(Path(sys.argv[1])).locked():\n"
    "    print('held', flush=True); time.sleep(60)"
)


def test_a_second_process_is_refused_until_the_first_is_gone(run):
    holder = subprocess.Popen([sys.executable, "-c", _HOLD, str(run.path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(RunError, match="in use by another process"), run.locked():
            pass
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    with run.locked():  # a crash released it
        assert run.path.is_dir()


def test_what_a_killed_process_had_half_written_is_cleared_away(run):
    stage(run, files=("model/a.json",))
    left = [run.path / "model" / name for name in (".weights.safetensors.30891.tmp", ".tmp1uZj4X")]
    others = [run.path / "model" / name for name in ("my.30891.tmp", ".mine", "tmp1uZj4X")]
    for path in (*left, *others):
        path.write_text("half")
    with run.locked():
        assert not any(path.exists() for path in left)
        assert all(path.exists() for path in (*others, run.path / "model/a.json", run.path / ".stages.json"))


def test_the_lock_is_free_after_an_error(run):
    with pytest.raises(ZeroDivisionError), run.locked():
        raise ZeroDivisionError
    with run.locked(), pytest.raises(RunError, match="in use"), Run(run.path).locked():
        pass


@pytest.mark.parametrize("name", [".lock", "log.txt"])
def test_a_link_out_of_the_run_is_refused_and_its_file_stays(run, tmp_path, name):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    run.path.mkdir()
    (run.path / name).symlink_to(victim)
    with pytest.raises(RunError, match="a link stands where a file of the run belongs"):
        run.log("text") if name == "log.txt" else run.locked().__enter__()
    assert victim.read_text() == "precious"


def test_a_folder_of_the_run_that_is_a_link_elsewhere_is_refused_before_anything_is_written(run, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    run.path.mkdir()
    (run.path / "model").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RunError, match=r"run/model is a link that leads out of the run directory"), run.locked():
        run.write("model/labels.json", ["a"])
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_pipe_in_place_of_the_lock_is_not_waited_for(run):
    run.path.mkdir()
    os.mkfifo(run.path / ".lock")
    with pytest.raises(RunError, match="writable folder"), run.locked():
        pass


# stages -----------------------------------------------------------------------------------------


def test_a_complete_stage_never_runs_again(run):
    assert stage(run)
    before = (run.path / "a.json").stat().st_mtime_ns, run.stages()
    assert not stage(run)
    assert not Run(run.path, Reporter(silent=True)).stage("one", lambda: pytest.fail("ran again"), "one")
    assert before == ((run.path / "a.json").stat().st_mtime_ns, run.stages())
    assert run.stages()["one"].files == {"a.json": sha256(run.path / "a.json")}


def test_a_stage_is_listed_when_its_files_are_on_the_disk(run, monkeypatch):
    """What a power cut leaves is either no entry, or one whose files are there."""
    synced = []

    def spied(path):
        synced.append(path.name)
        assert not (run.path / "stages.json").exists()

    monkeypatch.setattr("sartor.runs.directory.to_disk", spied)
    stage(run, "data", ("a.json", "b/c.json"))
    assert {"a.json", "c.json", run.path.name, "b"} == set(synced)
    assert "data" in run.stages()


def test_a_stage_that_failed_runs_again_and_the_others_stay(run):
    stage(run)
    with pytest.raises(ZeroDivisionError):
        run.stage("two", lambda: 1 / 0, "two")
    assert list(run.stages()) == ["one"]
    assert stage(run, "two", ("b.json",))
    assert list(run.stages()) == ["one", "two"]


def test_forgotten_stages_run_again(run):
    stage(run)
    stage(run, "two", ("b.json",))
    run.forget(["two", "never there"])
    assert not stage(run)
    assert stage(run, "two", ("b.json",))


@pytest.mark.parametrize("damage", ["change", "truncate", "delete", "folder"])
def test_a_file_that_is_not_what_the_stage_wrote_is_refused_by_name(run, damage):
    stage(run, files=("a.json", "sub/b.json"))
    path = run.path / "sub/b.json"
    content = path.read_bytes()
    path.unlink()
    if damage == "change":
        path.write_bytes(content.replace(b"one", b"two"))
    elif damage == "truncate":
        path.write_bytes(content[:-3])
    elif damage == "folder":
        path.mkdir()
    with pytest.raises(RunError, match=r"sub/b\.json .*'one'"):
        stage(run, files=("a.json", "sub/b.json"))


@pytest.mark.parametrize(
    "content",
    ["[]", "3", '"text"', '{"one": 5}', '{"one": {}}', '{"one": {"files": [1]}}', '{"one": {"files": {"a.json": 5}}}',
     '{"one": null}', "[" * 100_000],
)  # fmt: skip
def test_a_strange_stages_file_is_refused_by_name(run, content):
    stage(run)
    (run.path / "stages.json").write_text(content)
    with pytest.raises(RunError, match=r"stages\.json|a\.json"):
        run.done("one")


@pytest.mark.parametrize("content", ["", "[]", '{"one": {', '{"one": {"files": {"a.json": 5}}}'])
@pytest.mark.parametrize("changed", [False, True])
def test_a_damaged_list_is_mended_from_the_files_that_are_as_they_were(run, content, changed):
    stage(run)
    stage(run, "two", ("b.json",))
    stage(run, "three", ("c.json",))
    before = run.stages()
    (run.path / "stages.json").write_text(content)
    if changed:
        (run.path / "b.json").write_text("{}")
    with run.locked():
        assert run.stages() == ({"one": before["one"]} if changed else before)
    assert "stages.json was damaged and is mended" in (run.path / "log.txt").read_text()


def test_the_list_of_another_budget_is_mended_too(run):
    stage(cut := run.sub("cuts/params-1M"))
    before = cut.stages()
    (cut.path / "stages.json").write_text("[")
    cut.mend()
    assert cut.stages() == before


def test_a_damaged_list_without_a_copy_is_refused_by_name(run):
    stage(run)
    for damaged in ("stages.json", ".stages.json"):
        (run.path / damaged).write_text("[")
    with pytest.raises(RunError, match=r"run/stages\.json is damaged .* Delete it and run"), run.locked():
        pass


def test_stages_json_cannot_point_outside_the_run(run, tmp_path):
    stage(run)
    secret = tmp_path / "secret.txt"
    secret.write_text("x")
    for name in ("../secret.txt", str(secret)):
        write_json(run.path / "stages.json", {"one": {"files": {name: sha256(secret)}}})
        with pytest.raises(RunError, match=r"stages\.json"):
            run.done("one")


def test_only_the_writer_writes(tmp_path):
    run = Run(tmp_path / "run", Reporter(silent=True), writer=False, agree=lambda value: False)
    with run.locked():
        run.write("a.json", 1)
        run.log("text")
        assert run.stage("one", lambda: ["a.json"], "one") is False
    assert not run.path.exists()


def test_the_log_grows_by_a_line_an_event(run):
    run.log("first, ä")
    run.log("second")
    assert [line[20:] for line in (run.path / "log.txt").read_text("utf-8").splitlines()] == ["first, ä", "second"]


# opening ----------------------------------------------------------------------------------------


def test_a_folder_from_elsewhere_is_no_run(tmp_path):
    with pytest.raises(RunError, match="no such folder"):
        Run.open(tmp_path / "none")
    with pytest.raises(RunError, match=r"no config\.toml"):
        Run.open(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="no such folder"):
        Run.open(tmp_path / "file")


def test_stage_times_are_those_of_the_work(run):
    run.path.mkdir()
    run.stage("slow", lambda: time.sleep(0.05) or [], "slow")
    assert 0.04 < json.loads((run.path / "stages.json").read_text())["slow"]["seconds"] < 5
