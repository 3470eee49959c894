"""What the stages decide beyond the solvers."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from sartor.core.arch import Arch, Choice
from sartor.core.errors import BadInput, Infeasible
from sartor.core.quadratic import Limit, Quadratic
from sartor.core.units import TIME
from sartor.costs.base import CostTable, Measured
from sartor.engine.recipe import Recipe
from sartor.pipeline import decision, precision, training
from sartor.pipeline.final import Final, suited
from sartor.pipeline.options import Fit, Plug, from_mapping
from sartor.runs.directory import Run
from sartor.runs.schema import Compared, Spread
from sartor.solvers import solve
from sartor.solvers.base import Problem, Solution


@pytest.mark.parametrize("seed", range(5))
def test_of_equal_scores_under_several_budgets_the_cheapest_is_taken(seed):
    rng, sizes = np.random.default_rng(seed), (3, 4, 4)
    goal = Quadratic(sizes, 0.0, {0: np.array([1.0, 1.0, 0.0])})
    latency, params = (Quadratic(sizes, 0.0, {i: rng.uniform(1, 2, n) for i, n in enumerate(sizes)}) for _ in range(2))
    limits = (Limit("latency", latency, 5.0), Limit("params", params, 4.9))
    cut = SimpleNamespace(budgets={"latency": 5.0, "params": 4.9}, axis="latency", limits=lambda tables: limits)
    every = [Arch((a, b, c)) for a in range(3) for b in range(4) for c in range(4)]
    best = [a for a in every if goal(a) == 1.0 and all(limit.holds(a) for limit in limits)]
    dearest = max(best, key=latency)
    tables = {"latency": SimpleNamespace(form=latency), "params": SimpleNamespace(form=params)}
    found = decision._thrifty(cut, goal, tables, Solution(dearest, 1.0, 1.0, "milp"))
    assert found.score == 1.0
    assert latency(found.arch) == pytest.approx(min(map(latency, best)))


def test_photos_that_are_made_smaller_are_said_to_be():
    from types import SimpleNamespace as Stub

    from sartor.pipeline.order import _summary

    def said(native):
        images = Stub(name="photos", native=native, is_smaller=native > 32, skipped=())
        splits = Stub(train=range(6), val=range(2), test=range(2))
        return _summary(Stub(images=images, task=Stub(classes=3, image=32, channels=3), splits=splits))

    assert "made smaller: most have 224 pixels; --image 224 keeps them" in said(224)
    assert "smaller" not in said(32)


class Stub:
    """A cut over one choice of ten networks that score their number; what each measures is not what is predicted."""

    axis, measured, traded = "time", ("time",), False

    def __init__(self, measure, budget=5.0, tried=()):
        self.really, self.budgets, self.kept, self.worth = measure, {"time": budget}, None, dict(tried)
        self.space = SimpleNamespace(choices=(Choice("network", tuple("abcdefghij")),), sizes=(10,), rules=())
        self.seen = []
        kind = SimpleNamespace(show=str)
        cost = SimpleNamespace(kind=kind, correct=lambda table, arch, m, both: table.scaled(arch, m, both))
        silent, asked = SimpleNamespace(log=lambda text: None), SimpleNamespace(precision="float32")
        once = SimpleNamespace(views=1)
        self.context = SimpleNamespace(costs={"time": cost}, best=solve, run=silent, options=asked, train=once)
        self.context.options.check_precision = lambda costs: None
        self.run = SimpleNamespace(path=Path("nowhere"), stages=dict)
        self.small = None  # of the predicted time, what 8 bits take
        self.known = {}  # measured before the search
        self.last = None  # of those that were tried, the ones of the last rung; else all

    def goal(self):
        return Quadratic((10,), 0.0, {0: np.arange(10.0)})

    def tables(self, precision=None):
        form = Quadratic((10,), 0.0, {0: np.arange(1.0, 11.0)})
        if precision == "int8" and self.small is not None:
            return {"time": CostTable("time", TIME, {}, form * self.small, {"precision": "int8"})}
        return {"time": CostTable("time", TIME, {}, form)}

    def limits(self, tables):
        return (Limit("time", tables["time"].form, self.budgets["time"]),)

    def network(self, arch):
        return arch.picks[0]

    def measure(self, name, net, table):
        self.seen.append(net)
        return Measured.exact(self.really(net) * (self.small if table.precision == "int8" else 1.0))

    def correct(self, table, arch, amount, both_ways=False):
        return self.keep(table.scaled(arch, amount, both_ways))

    def keep(self, table):
        self.kept = table
        return table

    def impossible(self, name, asked, least):
        return Infeasible(f"at least {least:g}", limit=name, asked=asked, least=least)

    def tried(self):
        return {Arch((n,)): worth for n, worth in self.worth.items()}

    def finalists(self):
        return {Arch((n,)) for n in self.worth} if self.last is None else {Arch((n,)) for n in self.last}

    def gauged(self, cost, precision):
        return {Arch((n,)): amount for n, amount in self.known.items() if precision == "float32"}


@pytest.fixture
def decided(monkeypatch):
    """What a decision about a stub comes to: the network, and the tables that it is told with."""
    found = {}
    monkeypatch.setattr(
        decision,
        "_write_decision",
        lambda cut, goal, fits, told: found.update(vars(fits)),
    )
    monkeypatch.setattr(precision, "impossible", lambda cut: None if cut.small else "it has no price")
    monkeypatch.setattr(precision, "sketches", lambda cut, arch: None)

    def forms(cut, arch):  # both as `measure` has them
        large, small = ((v, v - 0.01, v + 0.01) for v in (cut.really(arch.picks[0]) * f for f in (1.0, cut.small)))
        return {"time": Compared(Spread(*large), Spread(*small))}

    monkeypatch.setattr(precision, "forms", forms)

    def of(cut):
        decision.decide(cut)
        return found["arch"].picks[0], found["tables"]["time"], found["solution"]

    return of


def test_room_that_the_table_did_not_know_of_is_used(decided):
    cut = Stub(lambda n: 0.5 * (n + 1))  # all run twice as fast as predicted
    assert decided(cut)[0] == 9


def test_of_networks_around_the_budget_the_best_that_fits_is_kept_with_its_table(decided):
    # The table's shape is wrong too: what is large is dearer than a scaled table says.
    cut = Stub(lambda n: [0.4, 0.8, 1.2, 1.6, 2.0, 4.0, 4.5, 5.5, 7.0, 9.0][n])
    chosen, table, _ = decided(cut)
    assert chosen == 6
    assert cut.kept is table  # the file says what the answer is told with
    assert table.form(Arch((6,))) <= 5.0


@pytest.mark.parametrize(
    ("asked", "small", "budget", "chosen", "bits"),
    [
        ("auto", 0.5, 4.0, 7, "int8"),  # twice as fast: a larger network fits
        ("auto", 1.0, 4.0, 3, "float32"),  # as fast: nothing is gained
        ("auto", 3.0, 4.0, 3, "float32"),  # slower
        ("auto", 0.5, 0.6, 0, "int8"),  # nothing fits in float32
        ("auto", None, 4.0, 3, "float32"),  # 8 bits have no prices
        ("int8", 3.0, 4.0, 0, "int8"),
        ("float32", 0.5, 4.0, 3, "float32"),
    ],
)
def test_the_precision_that_allows_the_better_network_is_chosen(decided, asked, small, budget, chosen, bits):
    cut = Stub(lambda n: n + 1.0, budget)
    cut.context.options.precision, cut.small = asked, small
    found, table, _ = decided(cut)
    assert (found, table.precision) == (chosen, bits)
    assert bits == "float32" or cut.kept is table  # whoever reads the budget's tables next finds this one


def test_a_budget_that_neither_precision_meets_is_refused(decided):
    cut = Stub(lambda n: n + 1.0, 0.4)
    cut.context.options.precision, cut.small = "auto", 0.5
    with pytest.raises(Infeasible, match=r"at least 0\.5"):
        decided(cut)


def test_a_network_that_was_tried_and_is_worth_more_than_the_optimum_promises(decided):
    chosen, _, solution = decided(Stub(lambda n: n + 1.0, tried={2: 4.5, 3: 3.9, 8: 99.0}))
    assert chosen == 2
    assert (solution.score, solution.bound, solution.proven) == (2.0, 4.0, False)  # of the score it is no optimum
    cut = Stub(
        lambda n: n + 1.0, tried={2: 2.3}
    )  # the optimum, 4, was not tried: four times its error is more than 1.7
    cut.goal = lambda: replace(Stub.goal(cut), errors=Quadratic((10,), 0.0, {0: np.full(10, 0.45)}))
    assert decided(cut)[0] == 2
    cut.worth = {2: 2.15}
    assert decided(cut)[0] == 4
    chosen, _, solution = decided(Stub(lambda n: n + 1.0, tried={2: 4.5, 4: 4.6}))
    assert chosen == 4 and solution.proven


def test_of_networks_that_were_tried_those_of_the_last_rung_are_known_best(decided):
    cut = Stub(lambda n: n + 1.0, tried={1: 4.4, 2: 4.1, 3: 4.6, 8: 9.0})
    assert decided(cut)[0] == 3
    cut.last = {1, 2, 8}
    assert decided(cut)[0] == 1
    cut.last = {8}  # over the budget: then what was tried for a shorter time
    assert decided(cut)[0] == 3


def test_a_network_that_was_measured_inside_before_the_search_is_chosen_whatever_the_table_says(decided):
    cut = Stub(lambda n: n + 1.0 if n < 6 else 4.9, tried={2: 3.0, 6: 6.5, 8: 9.0})
    assert decided(cut)[0] == 4  # 5 ms; the seventh is predicted to take 7
    cut.known = {6: 4.95}
    chosen, table, solution = decided(cut)
    assert chosen == 6
    assert table.form(Arch((6,))) <= 5.0  # the proof goes by the table, which has learnt it
    assert solution.bound >= solve(Problem(cut.goal(), cut.limits({"time": table}))).score
    cut.known = {6: 5.5}
    assert decided(cut)[0] == 4
    cut.known, cut.really = {6: 4.95}, lambda n: n + 1.0  # it was measured on a better day
    assert decided(cut)[0] == 4


def test_what_a_network_measured_before_it_was_trained_is_kept(decided, monkeypatch):
    found = []
    monkeypatch.setattr(decision, "_write_decision", lambda cut, goal, fits, told: found.append(fits))
    decision.decide(Stub(lambda n: 0.9 * (n + 1)))
    assert found[0].built == {"time": pytest.approx(4.5)}


def test_a_network_that_was_over_as_deployed_is_not_chosen_again(decided):
    """It fits whenever it is built: it would be trained, verified and turned down again and again."""
    cut = Stub(lambda n: 0.9 * (n + 1))
    assert decided(cut)[0] == 4
    told = cut.tables()["time"].scaled(Arch((4,)), 5.2)
    cut.tables = lambda precision=None: {"time": told}
    cut.seen.clear()
    assert decided(cut)[0] == 3
    assert 4 not in cut.seen


def test_a_network_that_replaces_another_is_trained_half_as_long_at_least(tmp_path, monkeypatch):
    """Its time is used up by the one that turned out to be over the budget."""
    run, said = Run(tmp_path), []
    monkeypatch.setattr(training, "chosen", lambda run: Arch((0,)))
    clock = SimpleNamespace(seconds=100.0, left=0.0)
    context = SimpleNamespace(clock=clock, run=SimpleNamespace(log=said.append), ending=12.0)
    cut = SimpleNamespace(run=run, context=context, phase=lambda arch: "network-b")
    assert training._left(cut) == pytest.approx(10)  # a tenth of the time, where the search took too long
    run.write("search/network-a.plan.json", {"seconds": 60.0})
    run.write("search/network-b.plan.json", {"seconds": 500.0})  # its own, begun before an interruption
    assert training._left(cut) == 30
    assert "longer than" in said[-1]
    clock.left = 80.0
    assert training._left(cut) == 68


def test_images_are_varied_the_more_the_fewer_there_are_and_the_more_often_each_is_seen():
    def found(epochs, images, given=(), taught=False):
        made = suited(Final(epochs=1, fixed=given), epochs, images, taught)
        return made.augment, made.mix

    assert found(20, 5000) == ("light", 0.0)
    assert found(100, 5000) == ("light", 0.5)
    assert found(200, 5000) == ("standard", 0.5)
    assert found(100, 50_000) == ("light", 0.0)
    assert found(200, 50_000) == ("light", 0.5)
    assert found(200, 5000, taught=True) == ("light", 0.5)
    assert found(200, 5000, ("augment", "mix")) == (Recipe(epochs=1).augment, 0.0)
    assert found(200, 5000, ("augment",)) == (Recipe(epochs=1).augment, 0.5)


def test_a_gpu_is_used_where_there_is_one(monkeypatch):
    for there, device in ((True, "cuda"), (False, "cpu")):
        monkeypatch.setattr("torch.cuda.is_available", lambda there=there: there)
        assert Fit(data="digits").device == device


@pytest.mark.parametrize(("time", "sample", "rounds"), [(60, 60, 6), (300, 120, 8), (3600, 240, 15)])
def test_a_short_time_prices_fewer_parts(time, sample, rounds):
    made = Fit(data="digits", time=time, budgets={"latency": 1.0}).made_costs()["latency"]
    assert (made.sample, made.rounds) == (sample, rounds)
    asked = {"latency": Plug("latency", {"sample": 7})}
    assert Fit(data="digits", time=time, costs=asked).made_costs()["latency"].sample == 7


def test_images_of_one_call_and_threads_are_the_deployments():
    """Of everything that is measured, and of the device that the certificate names where nothing is."""
    asked = {"data": "digits", "batch": 4, "budgets": {"latency": 1.0, "energy": 1.0}}
    made = from_mapping(asked)
    assert {cost.batch for name, cost in made.made_costs().items() if name in made.budgets} == {4}
    told = made.deployed_under().identity()
    assert (told["batch"], told["threads"]) == (4, 1) and made.to_mapping()["batch"] == 4
    assert from_mapping({**asked, "costs": {"latency": {"batch": 2}}}).made_costs()["latency"].batch == 2
    with pytest.raises(BadInput, match="batch must be at least 1"):
        from_mapping({**asked, "batch": 0})
