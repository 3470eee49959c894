"""Laws that every method obeys."""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny

from sartor.core.config import build
from sartor.core.quadratic import Limit, Quadratic
from sartor.core.registry import COSTS, METHODS
from sartor.methods.base import Found, Method
from sartor.runs.directory import read_json
from sartor.solvers import solve
from sartor.solvers.base import Problem

NAMES = METHODS.names()
EFFORTS = ("quick", "standard", "thorough")


def make(name):
    """The method at its shortest: options of the tiny job that it has."""
    fields = {f.name for f in dataclasses.fields(METHODS[name])}
    short = {**tiny.QUICK["method"], "steps": 2, "nu_networks": 2, "epochs": 1, "networks": 40}
    if "rungs" in fields:  # a network that is trained by itself needs some long steps to differ from the others
        short |= {"rungs": 1, "networks": 4, "epochs": 8, "batch": 8, "lr": 0.2}
    if "nu_networks" in fields:
        short |= {"batch": 4}
    return build(METHODS[name], {k: v for k, v in short.items() if k in fields}, "method")


_SEARCH = """
import json, sys
from pathlib import Path
import torch
torch.set_num_threads(1)
sys.path[:0] = [sys.argv[1], sys.argv[1] + "/conformance"]
import tiny, test_methods
folder = Path(sys.argv[2])
for name in test_methods.NAMES:
    found = test_methods.make(name).search(tiny.job(folder / name))
    (folder / f"{name}.json").write_text(json.dumps(found.score.to_json()))
"""


def in_another_process(folder):
    command = [sys.executable, "-c", _SEARCH, str(Path(tiny.__file__).parent), str(folder)]
    env = {**os.environ, "PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def elsewhere(shared):
    """Every method's score as another process found it, one for all of them."""
    return tiny.once(shared / "elsewhere", in_another_process)


@pytest.fixture(scope="module", params=NAMES)
def searched(request, tmp_path_factory):
    import torch

    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp(request.param)
    job = tiny.job(folder)
    return request.param, job, make(request.param).search(job)


@pytest.mark.parametrize("name", NAMES)
def test_is_a_frozen_method_with_keyword_options(name):
    cls = METHODS[name]
    assert issubclass(cls, Method)
    assert cls.__dataclass_params__.frozen
    assert all(f.kw_only for f in dataclasses.fields(cls))
    assert cls() == cls()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("effort", EFFORTS)
@pytest.mark.parametrize("images", [1, 1000, 10**7])
def test_presets_are_valid_options_at_every_effort(name, effort, images):
    assert isinstance(build(METHODS[name], METHODS[name].preset(effort, images), "method"), METHODS[name])


def test_a_search_returns_a_score_over_the_spaces_choices(searched):
    _, job, found = searched
    assert isinstance(found, Found)
    assert isinstance(found.score, Quadratic)
    assert found.score.sizes == job.space.sizes
    assert found.unit
    values = found.score.batch([job.space.sample(np.random.default_rng(k)).picks for k in range(20)])
    assert np.isfinite(values).all()
    assert np.ptp(values) > 0
    json.dumps({"quality": found.quality, "facts": found.facts}, allow_nan=False)
    for name in found.files:
        assert name.startswith("search/")
        assert (job.run.path / name).is_file()


def test_the_same_seed_gives_the_same_score_in_another_process(searched, elsewhere):
    name, _, found = searched
    assert read_json(elsewhere / f"{name}.json") == json.loads(json.dumps(found.score.to_json()))


def test_a_finished_search_gives_the_same_score_again(searched):
    name, job, found = searched
    assert make(name).search(job).score.to_json() == found.score.to_json()


def test_another_seed_gives_another_score(searched, tmp_path):
    name, _, found = searched
    other = make(name).search(tiny.job(tmp_path, seed=1)).score
    assert other.to_json() != found.score.to_json()


def test_every_budget_is_kept_with_every_methods_score(searched):
    _, job, found = searched
    table = COSTS["params"]().table(job.space, job.task)
    least, most = table.form(job.space.smallest), table.form(job.space.heaviest)
    for share in (0.0, 0.1, 0.5, 1.0):
        budget = least + share * (most - least)
        solution = solve(Problem(found.score, (Limit("params", table.form, budget),)))
        assert solution.proven
        net = job.space.network(solution.arch, job.task)
        assert sum(p.numel() for p in net.parameters()) <= budget


def test_nothing_is_written_outside_the_search_folder(searched):
    _, job, _ = searched
    assert not job.run.path.exists() or {p.name for p in job.run.path.iterdir()} <= {"search", "tensorboard", "log.txt"}
