"""BayesNAS: its update rules, planted problems, the paper's own selection, resuming."""

import dataclasses
import math

import numpy as np
import planted
import pytest
import tiny
import torch
from gaussian import Gaussian

from sartor.core.arch import canonical
from sartor.core.errors import BadInput
from sartor.engine.curvature.hessian import diagonal
from sartor.engine.device import Engine
from sartor.methods.bayesnas.method import BayesNAS
from sartor.methods.bayesnas.relevance import THRESHOLD, Relevance, Removal, entropy
from sartor.methods.bayesnas.search import Search, Switched
from sartor.pipeline.context import open_context
from sartor.pipeline.options import from_mapping
from sartor.runs.progress import Reporter
from sartor.solvers import solve
from sartor.solvers.base import Problem
from sartor.spaces.cells.bayes_nets import BayesNet
from sartor.spaces.cells.freecells import FreeCells
from sartor.spaces.switches import Circuit, Switch


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)


def parallel(count, places=1):
    """Switches side by side between an input and an output."""
    made = [Switch(f"s{n}", "in", "out", (n, 0), places) for n in range(count)]
    return Circuit(tuple(made), frozenset({"in"}), frozenset({"out"}))


def on(relevance):
    return {s.name for s, live in zip(relevance.circuit.switches, relevance.on, strict=True) if live}


# update rules --------------------------------------------------------------------------------------


def test_equations_17_to_19_as_printed():
    relevance = Relevance(parallel(3), np.array([0.01, 0.02, 0.05]))
    relevance.gamma = gamma = np.array([1.0, 0.3, 2.0])
    w, hessian = np.array([0.5, -1.0, 0.1]), np.array([0.02, 0.001, 0.3])
    relevance.update(w, hessian)
    c = 1 / (1 / gamma + hessian / np.array([0.01, 0.02, 0.05]))
    omega = np.sqrt(gamma - c) / gamma
    np.testing.assert_allclose(relevance.variance, c)
    np.testing.assert_allclose(relevance.omega, omega)
    np.testing.assert_allclose(relevance.s, np.abs(w) / omega)
    np.testing.assert_allclose(relevance.gamma, relevance.s)  # nothing depends on anything here


def test_groups_of_appendix_a3():
    relevance = Relevance(parallel(2, places=3), np.full(2, 0.01))
    relevance.gamma = np.array([0.5, 2.0])
    w, hessian = np.arange(1.0, 7.0), np.linspace(0.001, 0.06, 6)
    relevance.update(w, hessian)
    for n, gamma in enumerate((0.5, 2.0)):
        here = slice(3 * n, 3 * n + 3)
        c = 1 / (1 / gamma + hessian[here] / 0.01)
        omega = math.sqrt(((gamma - c) / gamma**2).sum())
        assert relevance.omega[n] == pytest.approx(omega)
        assert relevance.s[n] == pytest.approx(np.linalg.norm(w[here]) / omega)


def test_equation_8_joins_edge_and_predecessors():
    circuit = Circuit((
        Switch("a0", "in", "a", (0, 0)), Switch("a1", "in", "a", (1, 0)),
        Switch("ab.zero", "a", None, None), Switch("b0", "a", "b", (2, 0), 1, 2), Switch("b1", "a", "b", (3, 0), 1, 2),
    ), frozenset({"in"}), frozenset({"b"}))  # fmt: skip
    w, hessian = np.array([0.3, 0.4, 0.8, 1.0, 0.5]), np.full(5, 0.02)
    found = {}
    for dependency in ("full", "zero", "none"):
        relevance = Relevance(circuit, np.full(5, 0.01), dependency)
        relevance.update(w, hessian)
        found[dependency], s = relevance.gamma, relevance.s
    before = s[0] + s[1]
    full = [s[0], s[1], 1 / (1 / s[2] + 1 / before), *(1 / (1 / s[2] + 1 / before + 1 / s[k]) for k in (3, 4))]
    np.testing.assert_allclose(found["full"], full)
    np.testing.assert_allclose(found["zero"], [s[0], s[1], s[2], *(1 / (1 / s[2] + 1 / s[k]) for k in (3, 4))])
    np.testing.assert_allclose(found["none"], s)


def test_the_threshold_is_where_the_entropy_is_zero():
    assert pytest.approx(0.0585, abs=1e-4) == THRESHOLD
    assert entropy(np.array([THRESHOLD]))[0] == pytest.approx(0.0, abs=1e-12)


def test_a_weight_of_zero_is_irrelevant_whatever_its_curvature_and_negative_curvature_counts_as_none():
    relevance = Relevance(parallel(3), np.full(3, 0.01))
    relevance.update(np.array([0.0, 0.0, 1.0]), np.array([0.0, 5.0, -1.0]))
    assert relevance.s[0] == relevance.s[1] == 0
    assert np.isfinite(relevance.gamma).all() and np.isfinite(relevance.entropy).all()
    relevance.prune(1)
    assert on(relevance) == {"s2"}


def test_the_last_way_through_is_kept_and_named():
    circuit = Circuit((
        Switch("a", "in", "a", (0, 0)), Switch("b", "a", "out", (1, 0)), Switch("c", "in", "out", (2, 0)),
    ), frozenset({"in"}), frozenset({"out"}), (frozenset({"out"}),))  # fmt: skip
    for w, kept in (([1e-3, 2e-3, 1e-4], {"a", "b"}), ([1e-4, 1.0, 1e-3], {"c"})):
        relevance = Relevance(circuit, np.full(3, 0.01))
        relevance.update(np.array(w), np.full(3, 1.0))
        removal = relevance.prune(1)
        assert on(relevance) == kept == {circuit.switches[i].name for i in removal.kept}
        assert (relevance.score()[relevance.on] > 0).all()
        assert (relevance.score()[~relevance.on] < 0).all()


# planted problems ----------------------------------------------------------------------------------


def regress(x, y, variance, rounds=8):
    """Sparse linear regression by the method's own rules: (16) by proximal gradient steps, then (17) to (20)."""
    count = x.shape[1]
    relevance = Relevance(parallel(count), np.full(count, 1 / len(x)))
    net = Switched(None, torch.nn.Identity(), relevance)  # no network: its weights and their penalty
    net.double()
    likelihood = Gaussian(variance)
    step = float(variance / torch.linalg.eigvalsh(x.T @ x / len(x)).max())
    for number in range(rounds):
        for _ in range(400):
            w = net.weights().detach().requires_grad_()
            (gradient,) = torch.autograd.grad(likelihood.loss((x @ w)[:, None], y[:, None]), w)
            with torch.no_grad():
                net.v -= step * gradient
            net.shrink(step)
        w = net.weights().detach().requires_grad_()
        hessian = diagonal(lambda x, w=w: (x @ w)[:, None], [w], [(x, y[:, None])], "exact", likelihood=likelihood)[0]
        relevance.update(w.detach().numpy(), hessian.numpy())
        relevance.prune(number + 1)
        net.follow()
    return relevance


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_sparse_regression_agrees_with_a_reference(seed):
    from sklearn.linear_model import ARDRegression

    rng = np.random.default_rng(seed)
    true = np.zeros(20)
    true[rng.permutation(20)[:6]] = rng.uniform(0.5, 2.0, 6) * rng.choice([-1, 1], 6)
    x = rng.normal(size=(150, 20)) @ (np.eye(20) + 0.2 * rng.normal(size=(20, 20)))
    y = x @ true + 0.3 * rng.normal(size=150)
    reference = ARDRegression(fit_intercept=False, threshold_lambda=1e3).fit(x, y)
    relevance = regress(torch.from_numpy(x), torch.from_numpy(y), 0.09)
    assert relevance.on.tolist() == (true != 0).tolist()
    assert relevance.on.tolist() == (np.abs(reference.coef_) > 0.05).tolist()
    np.testing.assert_allclose(np.where(relevance.on, relevance.mean, 0.0), reference.coef_, atol=0.06)


METHOD = {
    "rounds": 3, "epochs": 6, "batch": 50, "augment": "none", "strength": 0.003, "zero_strength": 0.003,
}  # fmt: skip
PLANTED = {"in-a.2", "in-c.0", "a-c.2"}


def left(search):
    return {s.name for s, live in zip(search.circuit.switches, search.relevance.on, strict=True) if live and s.pick}


@pytest.mark.parametrize(
    ("operations", "seed"), [(PLANTED, 0), (PLANTED, 1), ({"in-b.1", "b-c.0", "in-c.1"}, 0)], ids=("0", "1", "b")
)
def test_planted_operations_survive_and_no_others(operations, seed, tmp_path):
    search = Search(planted.job(tmp_path, operations, planted.Planted(zeros=True), seed=seed), BayesNAS(**METHOD))
    search.run()
    assert left(search) == operations
    assert search.circuit.isolated(search.relevance.on) == []


def test_without_the_dependency_a_node_is_isolated(tmp_path):
    """Figure 1a: nothing reaches node b, yet what leaves it has nonzero weights and passes for relevant."""
    method = BayesNAS(**METHOD, dependency="zero")
    search = Search(planted.job(tmp_path, PLANTED, planted.Planted(zeros=True)), method)
    search.run()
    assert search.circuit.isolated(search.relevance.on) == ["b"]
    assert left(search) > PLANTED
    assert search.rounds[-1]["isolated"] == ["b"]


# searches ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strength", [0.003, 0.01])
def test_rounds_go_on_until_the_planted_operations_are_left_also_under_batch_norms(strength, tmp_path):
    """The loss feels no common factor of a batch-normed node's weights: the penalty alone would take all of them."""
    method = BayesNAS(**{**METHOD, "rounds": 0, "epochs": 4, "strength": strength, "zero_strength": strength})
    search = Search(planted.job(tmp_path, PLANTED, planted.Planted(zeros=True, norms=True), count=1200), method)
    history = search.run()
    assert left(search) == PLANTED
    gone = [len(r["removed"]) for r in search.rounds]
    assert gone[-2:] == [0, 0] and gone[-3] > 0
    assert len(history) == 4 * len(gone) < 4 * 20
    assert search.warning == ""


def test_without_the_sphere_the_penalty_takes_planted_operations_too(tmp_path):
    """`Circuit.scales` ablated under batch-norms: at 0.003 all three are found either way, at 0.01 with it alone."""
    method = BayesNAS(**{**METHOD, "rounds": 0, "epochs": 4, "strength": 0.01, "zero_strength": 0.01})
    search = Search(planted.job(tmp_path, PLANTED, planted.Planted(zeros=True, norms=True), count=1200), method)
    search.net.groups = 0
    search.run()
    assert left(search) < PLANTED


def test_where_nothing_is_pruned_the_run_says_so(tmp_path, monkeypatch):
    job, said = planted.job(tmp_path, PLANTED, planted.Planted(zeros=True)), []
    monkeypatch.setattr(type(job.run), "log", lambda _, text: said.append(text))
    BayesNAS(**{**METHOD, "rounds": 1, "epochs": 1, "strength": 1e-9, "zero_strength": 1e-9}).search(job)
    assert "warning: nothing was pruned in 1 rounds" in said[-1]
    assert "1 / images is" in said[-1]


SHORT = {"rounds": 2, "epochs": 2, "batch": 16, "augment": "light", "rate": 30.0}


def search_of(folder, order="relu_conv_bn", **options):
    job = tiny.job(folder, space="freecells")
    space = FreeCells(cells=3, channels=2, order=order).fitted(job.task)
    return Search(dataclasses.replace(job, space=space), BayesNAS(**{**SHORT, **options}))


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    torch.set_num_threads(1)
    search = search_of(tmp_path_factory.mktemp("bayesnas"))
    search.run()
    return search


def test_without_a_budget_the_answer_is_what_was_not_pruned(searched):
    search, space, relevance = searched, searched.job.space, searched.relevance
    assert 0 < relevance.on.sum() < len(relevance.on)
    arch = canonical(space.choices, solve(Problem(search.score(), space.rules)).arch)
    kept = {s.pick[0] for s, live in zip(search.circuit.switches, relevance.on, strict=True) if live and s.pick}
    for kind, places in enumerate(space.counts(search.job.task)):
        table = space.table(np.asarray(arch.picks)[None], kind)[0]
        chosen = {space.choice_of(kind, e, o) for e, o in np.argwhere(table).tolist()}
        if places:
            assert chosen == {c for c in kept if c // space.hub(1) == kind}


def test_lambda_as_a_share_of_the_images_is_that_lambda(tmp_path):
    whole = search_of(tmp_path / "whole", strength=0.5, zero_strength=0.5)
    images = len(whole.job.splits.train)
    share = search_of(tmp_path / "share", strength_per_image=0.5 * images)
    for search in (whole, share):
        search.run()
    assert share.score().to_json() == whole.score().to_json()
    assert share.facts([])["switches"]["strength"] == pytest.approx(0.5)
    with pytest.raises(BadInput, match=r"method\.zero_strength would be ignored"):
        BayesNAS(strength_per_image=10.0, zero_strength=0.02)


def test_the_papers_order_is_searched_wiped_and_resumed(tmp_path):
    """BN-ReLU-Conv, edge by edge; what is left is a network of that order."""
    search = search_of(tmp_path, order="bn_relu_conv", strength=0.05)
    search.run()
    assert 0 < search.relevance.on.sum() < len(search.relevance.on)
    space = search.job.space
    arch = canonical(space.choices, solve(Problem(search.score(), space.rules)).arch)
    assert isinstance(space.network(arch, search.job.task), BayesNet)
    again = search_of(tmp_path, order="bn_relu_conv", strength=0.05)
    again.run()
    assert again.score().to_json() == search.score().to_json()


def test_wiped_operations_are_freed(searched):
    search = searched
    wiped = [(kind, *place) for kind, freed in enumerate(search.net.net.freed) for place in freed]
    off = np.flatnonzero(~search.relevance.on)
    assert len(wiped) == sum(search.circuit.switches[i].pick is not None for i in off)
    kind, edge, operation = next((k, e, o) for k, e, o in wiped if o > 2)
    cell = next(c for c in search.net.net.cells if int(c.slot.reduces) == kind)
    assert all(p.numel() == 0 for p in cell.edges[edge][operation].parameters())


def test_a_killed_search_resumes_to_the_same_score(searched, tmp_path, monkeypatch):
    whole = searched
    killed = search_of(tmp_path / "killed")
    end = Search._end

    def stop(self, t, optimiser, number, steps):
        end(self, t, optimiser, number, steps)
        if number == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(Search, "_end", stop)
    monkeypatch.setattr("sartor.engine.fit._SAVE_EVERY", -1.0)  # it goes on from the last step of the round
    with pytest.raises(KeyboardInterrupt):
        killed.run()
    assert list((tmp_path / "killed/search").glob("*.within.safetensors"))
    monkeypatch.undo()
    again = search_of(tmp_path / "killed")
    again.run()
    assert again.score().to_json() == whole.score().to_json()
    assert again.rounds == whole.rounds


@pytest.mark.parametrize("hessian", ["ggn", "exact"])
def test_other_hessians(hessian, tmp_path, monkeypatch):
    """What the round's end takes is the diagonal of the mean loss' Hessian, or of its Gauss-Newton part, at w."""
    job = planted.job(tmp_path, PLANTED, planted.Planted(zeros=True), count=400)
    search = Search(job, BayesNAS(**{**METHOD, "rounds": 1, "epochs": 2}, hessian=hessian, hessian_images=60))
    taken = []
    monkeypatch.setattr(search.relevance, "update", lambda w, h: taken.append((w, h)))
    monkeypatch.setattr(search.relevance, "prune", lambda number: Removal({}, ()))
    search.run()
    ((w, found),) = taken
    index = np.sort(job.seeds.rng("hessian").permutation(job.splits.train)[:60])
    search.net.eval()
    expected = np.zeros_like(found)
    batches = list(job.feed.plain(index, search.recipe.batch))
    for x, y in batches:
        at = torch.from_numpy(w).float()
        if hessian == "exact":
            mean_loss = lambda v, x=x, y=y: torch.nn.functional.cross_entropy(search.net(x, v), y)  # noqa: E731
            share = torch.autograd.functional.hessian(mean_loss, at).diagonal()
        else:
            slope = torch.autograd.functional.jacobian(lambda v, x=x: search.net(x, v), at)  # (B, C, K)
            p = search.net(x, at).softmax(1).detach()[:, :, None]
            share = ((p * slope**2).sum(1) - (p * slope).sum(1) ** 2).mean(0)
        expected += share.detach().numpy() * len(y) / len(index)
    np.testing.assert_allclose(found, expected, rtol=2e-3, atol=1e-6)
    assert np.abs(expected).max() > 1e-3


def test_with_this_method_darts_means_cells_of_any_wiring(tmp_path):
    given = tiny.given(
        tiny.npz(tmp_path), {"params": "150K"}, space={"name": "darts", "cells": 4}, method={"name": "bayesnas"}
    )
    context = open_context(given, tmp_path / "run", Reporter(silent=True), Engine())
    assert context.space == FreeCells(cells=4, channels=8, stem="small")
    assert context.config()["space"]["name"] == "freecells"
    again = open_context(from_mapping(context.config()), tmp_path / "run", Reporter(silent=True), Engine())
    assert again.config() == context.config()
    other = tiny.given(tmp_path / "bars.npz", {"params": "150K"}, space="darts", method={"name": "xnas"})
    assert open_context(other, tmp_path / "run", Reporter(silent=True), Engine()).options.space.given == "darts"


def test_each_scale_keeps_its_mean_square():
    circuit = Circuit(parallel(4).switches, frozenset({"in"}), frozenset({"out"}), (), (0, 0, 1, 1))
    relevance = Relevance(circuit, np.full(4, 0.1))
    net = Switched(None, torch.nn.Identity(), relevance, rate=4.0)
    with torch.no_grad():
        net.v.copy_(torch.tensor([1.0, 0.01, 0.5, 0.5]) / 2)
    net.shrink(0.1)
    w = net.weights().detach()
    assert w[1] == 0 and w[0] == pytest.approx(math.sqrt(2))
    assert w[2] == w[3] == pytest.approx(1.0)


@pytest.mark.parametrize(
    "options", [{"rounds": -1}, {"epochs": 0}, {"strength": 0.0}, {"zero_strength": -1.0}, {"rate": 0.0}]
)
def test_nonsense_is_refused(options):
    with pytest.raises(BadInput, match="must be"):
        BayesNAS(**options)
