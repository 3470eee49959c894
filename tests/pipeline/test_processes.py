"""Two processes on the CPU (gloo) share the work and end with one network and one score."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import tiny

from sartor.runs.directory import Run, read_json

# What both ranks of `torchrun` do: the whole job, then say what this rank itself ended with.
LAUNCHED = """
import hashlib, json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import tiny
from sartor.core.registry import METHODS
from sartor.pipeline import context as contexts
from sartor.pipeline import options, stages, training
from sartor.pipeline import order as pipeline
from sartor.runs.progress import Reporter

data, out, said = (Path(a) for a in sys.argv[2:5])
options._LEAST_TIME = 0.0
chosen = tiny.given(data, {"params": "150K"}, devices=2, **json.loads(sys.argv[5]))
method, mine = chosen.method.resolve(METHODS), {}
search, solve, train = method.search, contexts.solve, training.train_network


def searched(self, job):
    found = search(self, job)
    mine["score"] = hashlib.sha256(json.dumps(found.score.to_json()).encode()).hexdigest()
    mine["accuracy"] = found.facts.get("heaviest_accuracy")
    mine["trials"] = [[t["picks"], t["accuracy"], t["epochs"]] for t in found.facts.get("trials", ())]
    mine["rank"], mine["world"] = job.engine.rank, job.engine.world
    return found


def solved(problem, **options):
    solution = solve(problem, **options)
    mine["solved"] = list(solution.arch.picks)  # by this rank, from the score and the tables that it holds
    return solution


def trained(net, *more, **titled):
    history = train(net, *more, **titled)
    state = {k: v.double().sum().item() for k, v in net.state_dict().items()}
    mine["weights"] = hashlib.sha256(json.dumps(state).encode()).hexdigest()
    mine["history"] = [{k: v for k, v in row.items() if k != "images_per_second"} for row in history]
    return history


method.search, contexts.solve, training.train_network = searched, solved, trained
path = pipeline.fit(chosen, out, Reporter())
mine["picks"] = list(stages.chosen(pipeline.Run(path)).picks)
(said / f"rank{mine['rank']}.json").write_text(json.dumps(mine))
"""


def environment():
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "RANK", "LOCAL_RANK", "WORLD_SIZE"))}
    return {**kept, "OMP_NUM_THREADS": "1", "CI": "1"}


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200, env=environment())
    assert done.returncode == 0, done.stderr[-5000:]
    return done


# With a time each has a clock of its own: whatever depends on it, the first process decides for both.
TIMED = {"method": {"name": "trials", "batch": 16}, "train": {"batch": 16}, "time": 10, "costs": {}}


@pytest.mark.parametrize("more", [{}, TIMED], ids=["epochs", "time"])
def test_both_ranks_end_with_one_score_one_network_and_the_same_weights(finished, tmp_path, more):
    out = tmp_path / "run"
    if not more:
        tiny.prepare(finished, tiny.given(finished.data, {"params": "150K"}, devices=2), out)
    (tmp_path / "launched.py").write_text(LAUNCHED)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    arguments = [Path(tiny.__file__).parent, finished.data, out, tmp_path, json.dumps(more)]
    run([*torchrun, str(tmp_path / "launched.py"), *map(str, arguments)])
    one, two = (json.loads((tmp_path / f"rank{r}.json").read_text()) for r in (0, 1))
    assert (one.pop("rank"), two.pop("rank")) == (0, 1)
    assert one == two
    assert one["world"] == 2
    assert one["picks"] == read_json(out / "solution.json")["solution"]["picks"]


def test_the_command_line_starts_its_processes_itself(finished, tmp_path):
    out = tmp_path / "run"
    tiny.prepare(finished, tiny.given(finished.data, {"params": "150K"}, devices=2), out)
    arguments = tiny.arguments(finished.data, out, "--params=150K", "--devices=2", "--json")
    done = run([sys.executable, "-m", "sartor", *arguments])
    certificate = json.loads(done.stdout)  # printed by the first process alone
    assert certificate["fits"]
    assert certificate["environment"]["processes"] == 1  # written by `prepare`, in this process
    assert done.stderr.count("search: binas") == 1
    listed = Run.open(out)
    assert all(listed.done(stage) for stage in listed.stages())
    assert {"search", "solve", "train", "export", "verify"} <= set(listed.stages())


def test_what_is_refused_is_said_once_and_leaves_no_process_behind(finished, tmp_path):
    out = tmp_path / "run"
    tiny.prepare(finished, tiny.given(finished.data, {"params": "1K"}, devices=2), out)
    arguments = tiny.arguments(finished.data, out, "--params=1K", "--devices=2")
    command = [sys.executable, "-m", "sartor", *arguments]
    # The second process holds the other end of this pipe too: reading it to its end waits for both.
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, env=environment())
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert done.stderr.count("params <= 1 K cannot be met") == 1


GOING = """
import os, signal, sys, time
import numpy as np
from sartor.core.errors import RunError
from sartor.engine import watch
from sartor.engine.device import Engine

watch.PATIENCE = dict.fromkeys(watch.PATIENCE, 3)
who, number = map(int, sys.argv[1:])
engine = Engine(devices=2)
engine.barrier()
if engine.rank == who:
    os.kill(os.getpid(), number)
try:
    engine.sum(np.ones(3))
except RunError as error:
    print("sartor:", error, file=sys.stderr, flush=True)
    os._exit(2)
"""


@pytest.mark.parametrize(
    "who, number, named",
    [
        (1, signal.SIGKILL, "ended (killed by signal 9)"),
        (1, signal.SIGSTOP, "is stopped"),
        (0, signal.SIGKILL, "ended"),
    ],
)
def test_a_process_that_dies_or_is_stopped_is_named_by_the_other(tmp_path, who, number, named):
    (tmp_path / "going.py").write_text(GOING)
    command = [sys.executable, str(tmp_path / "going.py"), str(who), str(int(number))]
    # The output's end is that of both processes: none is left behind.
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100, env=environment())
    assert done.returncode == (2 if who else -signal.SIGKILL), done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("sartor: ")]
    assert len(said) == 1
    assert said[0].startswith(f"sartor: process {who} of 2 {named}, and the others cannot go on without it")
    assert "Traceback" not in done.stderr
