"""XNAS and DARTS on the cell space, at the smallest size."""

from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch

from sartor.core.arch import canonical
from sartor.core.errors import BadInput
from sartor.engine import checkpoint
from sartor.engine.length import Length
from sartor.methods.darts import DARTS
from sartor.methods.mixture import Search, groups
from sartor.methods.xnas.experts import Experts, learning_rate
from sartor.methods.xnas.method import XNAS, _Experts
from sartor.solvers import solve
from sartor.solvers.base import Problem
from sartor.spaces.cells.darts import Darts
from sartor.spaces.cells.genotype import INPUTS, OPERATIONS

SHORT = {"epochs": 2, "batch": 16, "augment": "none"}


def job_of(path, seed=0):
    job = tiny.job(path, seed, space="darts")
    return replace(job, space=Darts(cells=3, channels=4).fitted(job.task))


@pytest.fixture
def job(tmp_path):
    return job_of(tmp_path)


def papers_rule(weights):
    """Section 2.1, literally: the two strongest predecessors of every node by max u, then the strongest expert.

    `weights[kind]` is (14, 7), node by node.
    """
    cells = []
    for u in weights:
        nodes, start = [], 0
        for node in range(INPUTS, INPUTS + 4):
            rows = u[start : start + node]
            start += node
            strongest = sorted(np.argsort(-rows.max(1))[:2])
            nodes.append(tuple((OPERATIONS[int(rows[s].argmax())], int(s)) for s in strongest))
        cells.append(tuple(nodes))
    return cells


def test_without_a_budget_the_answer_is_the_papers_discretisation(job):
    search = Search(job, _Experts(XNAS(**SHORT), job), XNAS(**SHORT).recipe(), "x")
    assert [len(members) for members, _, _ in search.groups] == [14, 14]
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        for experts, _ in search.learner.parts:
            experts.logs = torch.randn(14, 7, generator=generator, dtype=torch.float64)
        weights = [experts.weights(torch.float64).detach().numpy() for experts, _ in search.learner.parts]
        found = solve(Problem(search.score()))
        assert found.proven
        genotype = job.space.genotype(canonical(job.space.choices, found.arch))
        assert [genotype.normal.nodes, genotype.reduce.nodes] == papers_rule(weights)


def test_rewards_are_finite_differences_of_the_validation_loss(job):
    """In double precision, through the whole search network, over all replicas of a cell type."""
    method = XNAS(**SHORT)
    search = Search(job, _Experts(method, job), method.recipe(), "x")
    search.net.double().train()
    x, y = next(iter(job.feed.plain(job.splits.train[:8], 8)))
    leaves = [experts.weights(torch.float64) for experts, _ in search.learner.parts]

    def loss(weights):
        return torch.nn.functional.cross_entropy(search.net(x.double(), search.gates(weights)), y)

    gradients = torch.autograd.grad(loss(leaves), leaves)
    rng, h = np.random.default_rng(0), 1e-6
    for _ in range(4):
        g, f, o = int(rng.integers(2)), int(rng.integers(14)), int(rng.integers(7))
        with torch.no_grad():
            sides = []
            for sign in (1, -1):
                moved = [leaf.detach().clone() for leaf in leaves]
                moved[g][f, o] += sign * h
                sides.append(float(loss(moved)))
        assert float(gradients[g][f, o]) == pytest.approx((sides[0] - sides[1]) / (2 * h), abs=1e-6, rel=1e-4)


@pytest.mark.parametrize("within", [False, True])
@pytest.mark.parametrize("method", [XNAS(**SHORT, zeta=0.001), DARTS(**SHORT)])
def test_a_killed_search_ends_with_the_same_score(method, within, tmp_path, monkeypatch):
    """Killed at the end of an epoch, or within one, after its first step of several."""
    method = replace(method, batch=6) if within else method
    whole = method.search(job_of(tmp_path / "whole"))
    job, saves = job_of(tmp_path / "killed"), []

    def save(path, state):
        if state["epoch"] == 2:
            raise KeyboardInterrupt
        saves.append(path)
        original(path, state)
        if state["epoch"] == 1 and "begun" in state:
            assert state["begun"]["steps"] == 1
            raise KeyboardInterrupt

    original = checkpoint.save
    monkeypatch.setattr("sartor.engine.fit._SAVE_EVERY", -1.0 if within else 60.0)
    monkeypatch.setattr(checkpoint, "save", save)
    with pytest.raises(KeyboardInterrupt):
        method.search(job)
    monkeypatch.undo()
    assert saves
    again = method.search(job_of(tmp_path / "killed"))
    assert again.score.to_json() == whole.score.to_json()
    assert again.facts["mixture"] == whole.facts["mixture"]
    assert len(whole.facts["mixture"]["epochs"]) == 2


def test_wiped_experts_leave_the_network_and_the_optimiser(job):
    method = XNAS(**SHORT, zeta=1e-4)
    search = Search(job, _Experts(method, job), method.recipe(), "x")
    before = sum(p.numel() for p in search.net.parameters())
    search.run()
    last = search.history[-1]["groups"]
    assert all(1 <= g["remaining"] < 4 for g in last)
    assert sum(p.numel() for p in search.net.parameters()) < 0.7 * before
    assert all(g["regret"] <= g["regret_bound"] for g in last)
    state = checkpoint.load(job.run.path / "search/x.checkpoint.safetensors")
    kept = sum(s["momentum_buffer"].numel() for s in state["optimiser"]["state"].values())
    assert kept <= sum(p.numel() for p in search.net.parameters())


@pytest.mark.parametrize(("batch", "length", "steps"), [(16, None, 2), (6, 1.6, 5)])
def test_algorithm_1_ends_with_one_expert_an_edge(job, monkeypatch, batch, length, steps):
    """Each cell type with its own T, of the images that are shown: a last, smaller batch is dropped, and time may cut
    the training short."""
    if length:
        monkeypatch.setattr(type(job), "timed", lambda _, training: replace(training, length=Length(length)))
    method = XNAS(**{**SHORT, "batch": batch}, rate=0.5)
    search = Search(job, _Experts(method, job), method.recipe(), "x")
    search.run()
    for (experts, replicas), (_, options, places) in zip(search.learner.parts, groups(job), strict=True):
        assert (experts.experts, replicas) == (options, places)
        assert experts.time == experts.horizon == batch * steps * places
        assert experts.rate == pytest.approx(0.5 * learning_rate(7, experts.horizon))
    remaining = [[group["remaining"] for group in epoch["groups"]] for epoch in search.history]
    assert min(remaining[0]) > 1
    assert remaining[-1] == [1.0, 1.0]


def test_history_can_be_plotted(job):
    found = XNAS(**SHORT).search(job)
    mixture = found.facts["mixture"]
    for epoch in mixture["epochs"]:
        for group, weights in zip(mixture["groups"], epoch["weights"], strict=True):
            assert np.shape(weights) == (len(group["choices"]), group["options"])
            np.testing.assert_allclose(np.sum(weights, 1), 1.0, atol=1e-3)
    assert 0 < mixture["epochs"][0]["groups"][0]["entropy"] <= 1
    assert isinstance(Experts(1, 2, 3).summary()["entropy"], float)


def test_learning_rates_of_section_3_2_2(job):
    """Printed as 7.5e-4 and 1.3e-3: eight experts, all 25,000 images an epoch. A search has seven, and shows 24,960."""
    assert learning_rate(8, 25_000 * 50 * 6) == pytest.approx(7.447e-4, rel=1e-4)
    assert learning_rate(8, 25_000 * 50 * 2) == pytest.approx(1.290e-3, rel=1e-3)
    learner = _Experts(XNAS(), replace(job, space=Darts(cells=8, channels=4).fitted(job.task)))
    learner.expect(50 * (25_000 // 96) * 96)
    rates = {replicas: experts.rate for experts, replicas in learner.parts}
    assert rates == {6: pytest.approx(7.209e-4, rel=1e-3), 2: pytest.approx(1.2487e-3, rel=1e-3)}


def test_options_are_checked():
    for wrong in ({"zeta": 2.0}, {"rate": 0.0}, {"bound": -1.0}, {"batch": 0}):
        with pytest.raises(BadInput):
            XNAS(**wrong)
    with pytest.raises(BadInput, match="mixture_lr"):
        DARTS(mixture_lr=0.0)


def test_a_choice_that_needs_two_others_is_refused_before_any_training(job):
    class Two(Darts):
        @property
        def choices(self):
            last = replace(super().choices[-1], needs=((0, (0,)), (1, (0,))))
            return (*super().choices[:-1], last)

    with pytest.raises(BadInput, match="may need one other choice"):
        replace(job, space=Two())
