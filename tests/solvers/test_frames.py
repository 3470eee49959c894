"""Forms with cases: every solver answers as trying everything does, over all options of choice 0."""

import numpy as np
import pytest

from sartor.core.errors import Infeasible, SolverError
from sartor.core.quadratic import Limit, Quadratic
from sartor.solvers import cheapest, milp, solve
from sartor.solvers.base import Problem
from sartor.solvers.exhaustive import Exhaustive
from sartor.solvers.frames import best_of_frames
from sartor.solvers.frontier import frontier
from sartor.solvers.milp import Milp
from sartor.solvers.multipliers import survivors

CHAIN = [(1, 2), (2, 3), (3, 4), (2, 5)]  # with a leaf, as a stage's depth is
SIZES = (3, 2, 3, 3, 2, 2)
RULE = Limit("few", Quadratic(SIZES, 0.0, {0: [0.0, 1.0, 1.0], 3: [0.0, 0.0, 1.0]}), high=1.0)  # joins the frame


def problem(make, seed, values="real"):
    """Score and cost along a chain; the cost's cases differ by frame, the score's pairs with the frame too."""
    rng = np.random.default_rng(seed)
    score = make.form(SIZES, [*CHAIN, (0, 1), (0, 3)], rng, values)
    return (make.framed(SIZES, CHAIN, rng, values) if seed % 3 == 0 else score), make.framed(SIZES, CHAIN, rng, values)


@pytest.mark.parametrize("values", ["real", "tied"])
@pytest.mark.parametrize("rules", [(), (RULE,)], ids=["free", "ruled"])
def test_the_frontier_over_all_frames_equals_trying_everything(make, values, rules):
    seen = set()
    for seed in range(12):
        score, cost = problem(make, seed, values)
        front = frontier(score, cost, rules)
        expected = make.reference(score, cost, rules)
        np.testing.assert_allclose(np.stack([front.cost, front.score], 1), expected, rtol=0, atol=1e-12)
        assert np.array_equal(front.cost, cost.batch(front.picks))
        seen.update(front.picks[:, 0])
    assert seen == {0, 1, 2}


@pytest.mark.parametrize("solver", ["auto", "frontier", "milp", "exhaustive", "best", "frank_wolfe", "evolution"])
def test_every_solver_finds_the_best_of_all_frames(make, solver):
    for seed in range(3):
        score, cost = problem(make, seed)
        for budget in np.quantile(cost.batch(make.every(SIZES)), [0.05, 0.5]):
            asked = Problem(score, (Limit("latency", cost, float(budget)), RULE))
            options = {"iterations": 60} if solver == "evolution" else {"starts": 3} if solver == "frank_wolfe" else {}
            found, best = solve(asked, solver, **options), Exhaustive().solve(asked)
            assert asked.feasible(found.arch) and found.score == score(found.arch)
            assert found.bound >= best.score - 1e-9
            if solver not in ("frank_wolfe", "evolution"):
                assert found.score == pytest.approx(best.score, abs=1e-9) and found.proven


def test_two_budgets_over_all_frames_equal_trying_everything(make):
    for seed in range(4):
        score, cost = problem(make, seed)
        other = make.framed(SIZES, CHAIN, np.random.default_rng(100 + seed))
        every = make.every(SIZES)
        limits = [Limit(n, f, float(np.quantile(f.batch(every), 0.3))) for n, f in (("ms", cost), ("params", other))]
        asked = Problem(score, tuple(limits))
        assert solve(asked).score == pytest.approx(Exhaustive().solve(asked).score, abs=1e-9)
        best = Milp().solve(asked)
        assert best.score == pytest.approx(Exhaustive().solve(asked).score, abs=1e-9)
        # The cheapest that still scores halfway: from an architecture that does, and from nothing.
        halfway = (*limits, Limit("score", score, low=best.score - 1.0))
        least = -Exhaustive().solve(Problem(cost * -1.0, halfway)).score
        assert cheapest(cost, halfway, known=best.arch).value == pytest.approx(least, abs=1e-9)
        assert cheapest(cost, halfway).value == pytest.approx(least, abs=1e-9)
        alone = Limit("alone", score, low=best.score)
        assert cheapest(cost, (*limits, alone), known=best.arch).arch == best.arch


@pytest.mark.parametrize("solver", ["frontier", "milp", "exhaustive", "best", "frank_wolfe", "evolution"])
def test_where_no_frame_fits_the_least_over_all_frames_is_named(make, solver):
    score, cost = problem(make, 1)
    least = cost.batch(make.every(SIZES)).min()
    assert cheapest(cost).value == pytest.approx(least, abs=1e-12)
    with pytest.raises(Infeasible, match=r"latency <= .* the least any network of this space needs is") as caught:
        solve(Problem(score, (Limit("latency", cost, float(least) - 0.5),)), solver)
    assert caught.value.least == pytest.approx(least, abs=1e-6)


def test_a_ring_through_the_frame_is_opened_by_it(make):
    sizes = (4,) * 12  # 17 million combinations: neither a tree nor few enough to try
    rng = np.random.default_rng(0)
    score, cost = (make.form(sizes, make.edges("cycle", 12, rng), rng) for _ in range(2))
    front = frontier(score, cost)
    middle = len(front) // 2
    found = Milp().solve(Problem(score, (Limit("cost", cost, float(front.cost[middle])),)))
    assert found.score == pytest.approx(front.score[middle], abs=1e-5)


def test_a_chain_of_stages_equals_highs_at_20_budgets(make, monkeypatch):
    monkeypatch.setattr(milp, "survivors", lambda *_: None)  # HiGHS sees every option of every frame
    monkeypatch.setattr(milp, "ceiling", lambda _: np.inf)
    sizes = (3, 2, 6, 2, 6, 2, 2)  # frame, stem, two stages with their depths, head
    edges = [(1, 2), (2, 3), (2, 4), (4, 5), (4, 6)]
    rng = np.random.default_rng(7)
    score, cost = make.form(sizes, [*edges, (0, 2), (0, 4)], rng), make.framed(sizes, edges, rng)
    front = frontier(score, cost)
    for budget in np.linspace(front.cost[0], front.cost[-1], 20):
        found = Milp().solve(Problem(score, (Limit("latency", cost, float(budget)),)))
        assert found.score == pytest.approx(front.score[front.best(float(budget))], abs=1e-5)


@pytest.mark.parametrize("kind", ["none", "forest"])
def test_no_option_of_the_optimum_is_ever_dropped(make, kind):
    """Under several limits, two-sided ones too; and options are dropped indeed."""
    left, dropped = 0, 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        sizes = tuple(int(n) for n in rng.integers(2, 6, 5))
        edges = make.edges(kind, 5, rng)
        forms = [make.form(sizes, edges, rng) for _ in range(3)]
        forms[1] = forms[1] + Quadratic(sizes, -1e5, {0: np.full(sizes[0], 1e5)})  # digits that must not be lost
        every = make.every(sizes)
        low, high = np.quantile(forms[1].batch(every), [0.1, 0.5])
        limits = (
            Limit("a", forms[1], float(high), float(low)),
            Limit("b", forms[2], float(np.median(forms[2].batch(every)))),
        )
        asked = Problem(forms[0], limits)
        best = Exhaustive().solve(asked)
        options = survivors(asked)
        if options is None:
            continue
        left += sum(len(kept) for kept in options)
        dropped += sum(sizes) - sum(len(kept) for kept in options)
        assert all(pick in kept for pick, kept in zip(best.arch.picks, options, strict=True))
        assert all(pick in kept for pick, kept in zip(best.arch.picks, survivors(asked, best.score), strict=True))
        assert not all(len(kept) for kept in survivors(asked, best.score + 100.0))
        assert Milp().solve(asked).score == pytest.approx(best.score, abs=1e-9)
    assert dropped > left


def test_where_nothing_is_known_nothing_is_dropped(make):
    rng = np.random.default_rng(0)
    ring, tree = (make.form((3,) * 4, make.edges(kind, 4, rng), rng) for kind in ("cycle", "none"))
    assert survivors(Problem(tree)) is None
    assert survivors(Problem(ring, (Limit("a", tree, 0.0),))) is None
    assert survivors(Problem(tree, (Limit("a", tree, -100.0),))) is None


def test_a_frame_without_an_answer_in_time_leaves_the_bound_open(make):
    asked = Problem(problem(make, 1)[0])

    def attempt(part, left, best):
        if left == 1:
            raise SolverError("no time")
        return Exhaustive().solve(part)

    assert best_of_frames(asked, attempt).bound == np.inf
    with pytest.raises(SolverError, match="no time"):
        best_of_frames(asked, lambda part, left, best: attempt(part, 1, best))
