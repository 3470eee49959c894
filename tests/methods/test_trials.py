"""Trials: rungs, what goes up them, and what comes out."""

from dataclasses import replace
from multiprocessing import active_children
from multiprocessing.connection import Connection
from types import SimpleNamespace

import numpy as np
import pytest
import tiny

from sartor.core.arch import Arch, Choice, canonical
from sartor.core.errors import BadInput
from sartor.core.quadratic import Limit, Quadratic
from sartor.costs.macs import Macs
from sartor.costs.step import Step
from sartor.data.base import Splits
from sartor.engine import checkpoint
from sartor.engine.device import Way
from sartor.insight.ranking import quality
from sartor.methods.base import Gauge, start_file
from sartor.methods.trials import PLUGIN as Trials
from sartor.methods.trials import bench, field, ladder, schedule
from sartor.methods.trials.bench import Bench
from sartor.methods.trials.crew import Crew
from sartor.methods.trials.design import draw, largest, usage
from sartor.methods.trials.promise import Promises
from sartor.predictors.likeness import fit_trials
from sartor.runs.schema import Gauged, Pace, Trial
from sartor.solvers import cheapest, solve
from sartor.solvers.base import Problem

FAMILIES = ("res", "mb_k3_e3", "mb_k3_e6", "mb_k5_e6_se")
WIDTHS = ((8, 16, 24, 32), (16, 32, 48, 64), (32, 64, 96, 128))
CHOICES = tuple(
    choice
    for k, widths in enumerate(WIDTHS)
    for choice in (
        Choice(f"stage{k}.block", tuple(f"{f}_w{w}" for f in FAMILIES for w in widths)),
        Choice(f"stage{k}.depth", ("1", "2", "3", "4", "5")),
    )
)
SIZES = tuple(len(c.options) for c in CHOICES)


def paced(monkeypatch, step):
    """Every step takes so long, on one thread as in any other way."""
    monkeypatch.setattr(bench, "seconds_per_step", lambda training, patience, hopeless=0.0: step)
    monkeypatch.setattr(bench, "fastest", lambda training, patience, cores=None: (step, Way(1, 1)))


def truth(picks):
    """A family is worth the same in every stage; widths and depths by their logarithms."""
    value = 70.0
    for k, widths in enumerate(WIDTHS):
        family, width = divmod(picks[2 * k], len(widths))
        value += (0.0, -1.0, 0.5, 2.0)[family] + (1 + k) * np.log(widths[width]) + 2 * np.log(picks[2 * k + 1] + 1)
    return value


def sample(count, seed):
    rng = np.random.default_rng(seed)
    picks = np.stack([rng.integers(SIZES) for _ in range(count)])
    return picks, np.array([truth(p) for p in picks])


def test_thirty_networks_order_a_space_of_seven_million():
    (picks, y), (others, true) = sample(30, 0), sample(200, 1)
    noisy = y + np.random.default_rng(2).normal(0, 1.0, len(y))
    found = fit_trials(picks, noisy, np.zeros(30, int), CHOICES)
    predicted = found.score.batch(others)
    assert np.corrcoef(predicted, true)[0, 1] > 0.9
    assert np.sqrt(np.mean((predicted - true) ** 2)) < 0.4 * true.std()
    assert found.score.errors is not None


def test_a_rung_has_a_level_of_its_own_and_a_network_its_own_luck():
    picks, y = sample(24, 3)
    rung = np.repeat([0, 1], 12)
    found = fit_trials(picks, y + 10.0 * rung, rung, CHOICES)
    assert np.corrcoef(found.values, y)[0, 1] > 0.97  # level taken out
    assert abs(np.mean(found.values - (y + 10.0))) < 1.0  # as the last rung would measure them
    odd = y.copy()
    odd[20:] = y[20:] + 25.0  # networks that no sum of options explains
    found = fit_trials(np.concatenate([picks, picks]), np.tile(odd, 2), np.zeros(48, int), CHOICES)
    assert (found.values[20:24] > found.score.batch(picks[20:]) + 3.0).all()


def test_what_differs_much_in_a_short_training_differs_less_in_a_longer_one():
    """The last rung's own figures decide there, not what a shorter rung's spread makes of a network."""
    picks, y = sample(27, 8)
    best = np.argsort(-y)
    first, last = picks[best[3:]], picks[best[:3]]  # 24 networks after an epoch; then three, of which two are new
    y = (y - y.mean()) / y.std()
    low, high = 60.0 + 8.0 * y[best[3:]], 89.0 + 0.5 * y[best[:3]]
    columns = np.concatenate([first, last, first[:1]]), np.concatenate([low, high, [89.0 + 0.5 * y[best[3]]]])
    found = fit_trials(*columns, np.repeat([0, 1], [24, 4]), CHOICES)
    assert np.abs(found.values[24:] - columns[1][24:]).max() < 0.4
    assert found.values.max() < 92.0  # 103 where a point is a point in every rung
    others, _ = sample(200, 1)
    assert np.corrcoef(found.score.batch(others), [truth(p) for p in others])[0, 1] > 0.85


def test_what_is_known_to_be_luck_is_not_explained():
    """Ten networks that differ by luck alone: untold of it, a fit finds the best of them and the optimum better."""
    rng, found = np.random.default_rng(0), {0.0: [], 4.0: []}
    for seed in range(6):
        picks, _ = sample(10, seed)
        y = 60.0 + rng.normal(0, 2.0, 10)
        for luck, kept in found.items():
            made = fit_trials(picks, y, np.zeros(10, int), CHOICES, luck=luck)
            kept.append((made.values.max() - 60.0, solve(Problem(made.score, ())).score - 60.0))
    without, told = (np.mean(kept, 0) for kept in found.values())
    assert (told < 0.5 * without).all(), (without, told)
    picks, y = sample(30, 0)
    others, true = sample(200, 1)
    noisy = y + rng.normal(0, 1.0, len(y))
    found = fit_trials(picks, noisy, np.zeros(30, int), CHOICES, luck=1.0)
    assert np.corrcoef(found.score.batch(others), true)[0, 1] > 0.9  # and what is there is found


def test_scores_drawn_from_what_is_uncertain_scatter_around_the_score():
    picks, y = sample(20, 5)
    found = fit_trials(picks, y, np.zeros(20, int), CHOICES)
    rng = np.random.default_rng(0)
    others, _ = sample(50, 6)
    drawn = np.stack([found.draw(rng).batch(others) for _ in range(200)])
    assert np.abs(drawn.mean(0) - found.score.batch(others)).max() < 4 * (drawn.std(0) / np.sqrt(200)).max()
    assert drawn.std(0).min() > 0


def price(picks):
    return picks + 1.0


LIMIT = Limit("price", Quadratic(SIZES, 0.0, {i: np.arange(1.0, n + 1) for i, n in enumerate(SIZES)}), high=12.0)


def test_what_is_drawn_lies_inside_and_uses_the_budget():
    start = Arch((0,) * len(SIZES))
    found = draw(CHOICES, [LIMIT], start, 20, np.random.default_rng(0))
    assert len(set(found)) == 20
    shares = usage([LIMIT], np.array([a.picks for a in found]))
    assert (shares <= 1).all()
    assert np.median(shares) > 0.85  # a uniform draw has 0.5 here: the cheapest costs 6
    inside = usage([LIMIT], sample(2000, 0)[0]) <= 1
    assert inside.mean() < 0.05  # why it is not left to chance


def test_some_are_drawn_of_every_frame_that_has_networks_inside(tmp_path):
    """The cheapest frame alone uses a small budget well in a thousand ways: one chain would not leave it."""
    job = tiny.job(tmp_path, space="edge")
    macs = Macs().table(job.space, job.task).form
    frames = job.space.choices[0].options

    def drawn(high):
        told = replace(job, limits=(Limit("macs", macs, high=high),))
        return ladder.Ladder(told, Trials(epochs=1).recipe(1), 1, 12, 2, 1, 0.5).field.drawn(12)

    (tmp_path / "search").mkdir(exist_ok=True)
    least = [
        solve(Problem(macs * -1, (Limit("frame", Quadratic(job.space.sizes, 0.0, {0: one}), low=1.0),)))
        for one in np.eye(len(frames))
    ]
    least = sorted(-s.score for s in least)
    found = drawn(1.2 * least[-1])
    assert {a.picks[0] for a in found} == set(range(len(frames)))
    assert all(macs(a) <= 1.2 * least[-1] for a in found)
    (tmp_path / "search/trials.json").unlink()
    assert len({a.picks[0] for a in drawn(0.5 * (least[0] + least[1]))}) == 1  # of others there are none


def test_small_images_are_seen_whole_where_the_budget_has_room(tmp_path):
    """Half a side learns faster in a trial and ends lower; only a budget that leaves no choice is met with it."""
    job = tiny.job(tmp_path, space="edge")
    macs = Macs().table(job.space, job.task).form
    sides = [int(name.split("_")[0][1:]) for name in job.space.choices[0].options]
    assert min(sides) < max(sides) == job.task.image

    def tried(name, high, space=job.space, task=job.task):
        run = type(job.run)(tmp_path / name, job.run.reporter)
        told = replace(job, space=space, task=task, run=run, limits=(Limit("macs", macs, high=high),), macs=macs)
        return {
            sides[c.arch.picks[0]] for c in ladder.Ladder(told, Trials(epochs=1).recipe(1), 1, 12, 2, 1, 0.5)._first(12)
        }

    only = Limit(
        "side", Quadratic(job.space.sizes, 0.0, {0: np.array([float(s == max(sides)) for s in sides])}), low=1.0
    )
    least = -solve(Problem(macs * -1, (only,))).score
    assert tried("roomy", 8 * least) == {max(sides)}
    assert tried("tight", 2 * least) == set(sides)  # what sees them whole is all of one size
    assert min(sides) in tried("tighter", 0.9 * least)
    assert job.space.whole(replace(job.task, image=64)) is None  # larger images have pixels to spare


def test_of_every_family_the_largest_landmarks_inside():
    """The largest need not be the dearest; one of every family comes before a second one."""
    picks = {"res0-s1": (0, 0), "res2-s1": (2, 0), "res6-s1": (6, 0), "res8-w4-s2": (1, 0), "res9-s1": (9, 0)}
    picks |= {"mobilev2-w8-s1": (0, 1), "mobilev3-w8-s1": (0, 2)}
    archs = {name: Arch((*first, 0, 0, 0, 0)) for name, first in picks.items()}
    macs = Quadratic(SIZES, 0.0, {0: np.where(np.arange(SIZES[0]) == 2, 9.0, 3.0)})
    found = largest(archs, [LIMIT], macs)
    assert list(found) == ["res2-s1", "mobilev2-w8-s1", "mobilev3-w8-s1", "res8-w4-s2"]
    close = Quadratic(
        SIZES, 0.0, {0: np.where(np.arange(SIZES[0]) == 2, 9.0, np.where(np.arange(SIZES[0]) == 6, 7.5, 3.0))}
    )
    work = Quadratic(SIZES, 0.0, {0: np.where(np.arange(SIZES[0]) == 6, 1.0, 2.0)})
    assert next(iter(largest(archs, [LIMIT], close))) == "res2-s1"
    assert next(iter(largest(archs, [LIMIT], close, work=work))) == "res6-s1"  # about as large, and half the work
    assert next(iter(largest(archs, [LIMIT], macs, work=work))) == "res2-s1"  # three times as large
    work = Quadratic(SIZES, 0.0, {0: np.where(np.arange(SIZES[0]) == 6, 1.0, 1.1)})
    assert next(iter(largest(archs, [LIMIT], close, work=work))) == "res2-s1"  # a fifth larger for a tenth more work
    assert next(iter(largest(archs, [LIMIT], None))) == "res6-s1"  # where nothing is counted, the dearest
    assert largest({"res9-s1": archs["res9-s1"]}, [LIMIT], None) == {}


@pytest.fixture(scope="module")
def climbed(tmp_path_factory):
    path = tmp_path_factory.mktemp("trials")
    return path, search(path)


def search(path, high=20.0, **more):
    job = tiny.job(path, space="mobile")
    form = Quadratic(job.space.sizes, 0.0, {i: np.arange(float(n)) for i, n in enumerate(job.space.sizes)})
    job = replace(job, limits=(Limit("price", form, high=high),))
    return job, Trials(**{"networks": 6, "rungs": 2, "epochs": 1, "batch": 16, **more}).search(job)


def test_all_rungs(climbed):
    path, (job, found) = climbed
    trials = found.facts["trials"]
    rungs = [t["rung"] for t in trials]
    assert rungs == [0] * 6 + [1] * 3
    assert {t["why"] for t in trials[6:]} >= {"onward", "optimum"}
    assert all(job.limits[0].holds(Arch(tuple(t["picks"]))) for t in trials)
    onward = [t for t in trials if t["why"] == "onward"]
    assert all(t["epochs"] == 3 for t in trials[6:])  # three times as long, those that went on included
    before = {tuple(t["picks"]) for t in trials[:6]}
    assert all(tuple(t["picks"]) in before for t in onward)
    best = canonical(job.space.choices, solve(Problem(found.score, job.limits)).arch)
    assert job.limits[0].holds(best)
    for t in trials[6:]:
        assert (path / start_file(Arch(tuple(t["picks"])))).is_file()
    assert len(list((path / "search").glob("*.checkpoint.safetensors"))) == 3  # of the top rung only
    assert found.quality is not None


@pytest.mark.parametrize("moment", [5, 8])  # in the first rung; in the second, after one that went on
def test_what_was_tried_before_an_interruption_is_kept(climbed, tmp_path, monkeypatch, moment):
    _, (_, whole) = climbed
    train, count = Bench.measure, 0

    def interrupted(self, work):
        nonlocal count
        count += 1
        if count == moment:
            raise KeyboardInterrupt
        return train(self, work)

    monkeypatch.setattr(Bench, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        search(tmp_path)
    monkeypatch.setattr(Bench, "measure", train)
    _, again = search(tmp_path)
    assert outcome(again) == outcome(whole)


def outcome(found):
    same = ("picks", "rung", "accuracy", "epochs", "why", "value")
    return [[t.get(k) for k in same] for t in found.facts["trials"]], found.score.to_json()


def test_side_by_side_ends_as_one_after_the_other(climbed, tmp_path, monkeypatch):
    _, (_, whole) = climbed
    send, killed = Connection.send, []

    def deadly(self, work):
        """One of the two does not live to train its first network."""
        if not killed:
            killed.extend(p for p in active_children() if p.name == min(q.name for q in active_children()))
            killed[0].kill()
            killed[0].join()
        send(self, work)

    monkeypatch.setattr(Connection, "send", deadly)
    _, beside = search(tmp_path, processes=2)
    assert killed
    assert outcome(beside) == outcome(whole)
    assert not active_children()


def test_what_cannot_be_sent_is_tried_here(tmp_path, monkeypatch):
    job, said = tiny.job(tmp_path), []
    monkeypatch.setattr(type(job.run), "log", lambda self, text: said.append(text))
    unsendable = replace(job, feed=replace(job.feed, images=SimpleNamespace(sent=lambda: None, task=job.task)))
    assert Crew.of(unsendable, Trials().recipe(0), 2) is None
    assert "one after the other" in said[0]


def test_bad_options_are_refused():
    with pytest.raises(BadInput, match="rungs"):
        Trials(rungs=0)


def test_epochs_of_no_length_need_a_time(tmp_path):
    with pytest.raises(BadInput, match="--time"):
        search(tmp_path, epochs=0)


@pytest.mark.parametrize(("step", "networks", "rungs"), [(0.5, 4, 2), (0.01, 20, 3), (0.06, 11, 2)])
def test_where_steps_are_slow_there_are_fewer_trials_rather_than_shorter_ones(
    tmp_path, monkeypatch, step, networks, rungs
):
    paced(monkeypatch, step)
    job = replace(tiny.job(tmp_path), seconds=100.0)
    monkeypatch.setattr(schedule, "time", SimpleNamespace(monotonic=lambda: job.began))  # planning takes no time
    made = ladder.Ladder(job, Trials(epochs=0).recipe(0), 0, 0, 3, 1, 0.5).schedule
    assert (made.first, made.rungs) == (networks, rungs)
    steps = made.epochs * len(job.feed.batches(job.splits.train, 64, "trials"))
    assert steps >= schedule._STEPS or networks == schedule._FEWEST
    assert steps * step * made.units <= 86  # all rungs inside the search's time


@pytest.mark.parametrize("last", [50, 5])  # epochs of the median network in the end
def test_trials_favour_the_network_that_is_best_in_the_end(tmp_path, monkeypatch, last):
    """Errors of n^-a + (e / E)^-a after e of E epochs at n times the median's step: its size is best in the end."""
    job = replace(tiny.job(tmp_path), seconds=100.0)
    step = 100 / last / len(job.feed.batches(job.splits.train, 64, "trials"))
    paced(monkeypatch, step)
    made = ladder.Ladder(job, Trials(epochs=0).recipe(0), 0, 0, 3, 1, 0.5)
    training, _ = made.bench.training(job.space.heaviest, 0)
    work = made._work(ladder.Candidate(job.space.heaviest, "drawn"), 0)

    def epochs(size):
        paced(monkeypatch, size * step)
        return made.bench._epochs(work, training)

    sizes = np.geomspace(0.01, 100.0, 2001)

    def best(share):
        return sizes[np.argmin(sizes**-schedule._DECAY + share**-schedule._DECAY)]

    assert epochs(1.0) == pytest.approx(made.schedule.epochs)
    share = np.array([epochs(size) for size in sizes]) * bench.GROWTH ** ((made.schedule.rungs - 1) / 2) / last
    assert best(1 / sizes) == pytest.approx(1.0)
    assert best(share[1000] / sizes) < 0.6  # after equal times
    assert best(share) == pytest.approx(1.0)


def _paced(tmp_path, monkeypatch, seconds, slowest):
    """Ladders, of a job in which work is counted or not, on a machine whose steps take as long as they are work."""
    job = replace(tiny.job(tmp_path, space="edge"), seconds=seconds)
    macs, work = (cost.table(job.space, job.task).form for cost in (Macs(), Step()))
    most = solve(Problem(work, job.limits)).score
    monkeypatch.setattr(Bench, "pace", lambda self, arch, patience: (slowest * work(arch) / most, 0.0))

    def made(name, **known):
        run = type(job.run)(tmp_path / name, job.run.reporter)
        return ladder.Ladder(replace(job, run=run, **known), Trials(epochs=0).recipe(0), 0, 0, 3, 1, 0.5)

    return made("slow"), made("fast", macs=macs), work


def test_where_even_the_fewest_trials_would_be_too_short_faster_networks_are_tried(tmp_path, monkeypatch):
    slow, fast, work = _paced(tmp_path, monkeypatch, 100.0, 20.0)
    assert slow.field.most is None
    assert fast.field.most is not None
    slowly, quickly = (made.schedule.epochs * made.schedule.units for made in (slow, fast))
    assert quickly > 2 * slowly and fast.schedule.first >= schedule._FEWEST
    tried = fast.candidates(0)
    assert max(work(c.arch) for c in tried) <= fast.field.most < solve(Problem(work, slow.field.limits)).score
    assert ladder.Ladder(fast.job, Trials(epochs=0).recipe(0), 0, 0, 3, 1, 0.5).candidates(0) == tried  # resumed


@pytest.mark.parametrize("last", [1.5, 0.05])  # steps of the largest network in the end, in such that are enough
def test_networks_that_would_see_too_few_steps_in_the_end_are_not_tried(tmp_path, monkeypatch, last):
    monkeypatch.setattr(schedule, "_STEPS", 1e-9)  # trials are long enough
    _, fast, work = _paced(tmp_path, monkeypatch, 100.0, 10.0 / schedule._ENOUGH / last)
    slowest = max(work(c.arch) for c in fast.candidates(0))
    assert (fast.field.most is None) is (last > 1)
    assert last * solve(Problem(work, fast.job.limits)).score / slowest > 0.99


@pytest.mark.parametrize(("last", "promised"), [(0.0, (40.0, 40.0)), (20.0, (62.1, 56.5)), (2000.0, (73.5, 73.5))])
def test_of_two_that_did_as_well_the_faster_promises_more_while_time_is_scarce(last, promised):
    """20 seconds are ten epochs of one and five of the other; beyond sixty more of them count for nothing."""
    read = Promises(10.0, Splits(*[np.arange(1000)] * 3), 2, Pace(0.01, 1.0, 1, 1, last), None, 1.0)
    fast, slow = (Trial((0,), 0, 40.0, seconds, 1.0, "drawn") for seconds in (2.0, 4.0))
    found = tuple(read.accuracy(t) for t in (fast, slow))
    assert found == pytest.approx(promised, abs=0.05)
    plain = replace(read, pace=None).luck(fast)
    luck = [((100 - p) / 60) ** 2 * plain for p in found]
    assert [read.luck(t) for t in (fast, slow)] == pytest.approx(luck)  # it shrinks as errors do


def test_a_network_that_only_guesses_promises_nothing():
    read = Promises(10.0, Splits(*[np.arange(1000)] * 3), 2, Pace(0.01, 1.0, 1, 1, 2000.0), None, 1.0)
    found = [read.accuracy(Trial((0,), 0, right, 1.0, 1.0, "drawn")) for right in (5.0, 10.0, 11.0, 12.0, 40.0)]
    assert found[:2] == [5.0, 10.0]
    assert 11.0 < found[2] < found[3] < found[4]
    assert found[2] < 35.0  # with nothing but luck to go by, it would be 60


def test_weights_are_there_for_every_network_that_goes_on_from_them(tmp_path, monkeypatch):
    """Also for one that skipped a rung; afterwards only those of the last rung are."""

    def measure(self, work):
        files = [bench.trial_file(self.path, t.picks, t.rung) for t in (work.before,) if t]
        assert all(f.is_file() for f in files)
        luck.append(len(luck))
        checkpoint.save(bench.trial_file(self.path, work.arch.picks, work.rung), {"net": {}, "epoch": 1})
        right = float(np.random.default_rng((len(luck), seed)).uniform(40, 60))
        return Trial(work.arch.picks, work.rung, right, 1.0, 3.0**work.rung, work.why)

    monkeypatch.setattr(Bench, "measure", measure)
    skipped = 0
    for seed in range(3):
        luck = []
        _, found = search(tmp_path / str(seed), high=2.0, networks=12, rungs=3)
        trials = [(tuple(t["picks"]), t["rung"]) for t in found.facts["trials"]]
        assert [r for _, r in trials] == [0] * 12 + [1] * 4 + [2] * 3
        skipped += sum((p, 0) in trials and (p, 1) not in trials for p, r in trials if r == 2)
        assert len(list((tmp_path / str(seed) / "search").glob("*.checkpoint.safetensors"))) == 3
    assert skipped


@pytest.mark.parametrize("few", [1, 2])
def test_a_budget_that_one_or_two_networks_meet(tmp_path, few):
    job = tiny.job(tmp_path, space="mobile")
    form = Quadratic(job.space.sizes, 0.0, {i: np.arange(float(n)) for i, n in enumerate(job.space.sizes)})
    if few == 2:
        form = form + Quadratic(job.space.sizes, 0.0, {1: np.where(np.arange(job.space.sizes[1]) == 1, -1.0, 0.0)})
    job = replace(job, limits=(Limit("price", form, high=0.0),))
    found = Trials(networks=6, rungs=2, epochs=1, batch=16).search(job)
    assert len({tuple(t["picks"]) for t in found.facts["trials"]}) == few
    assert solve(Problem(found.score, job.limits)).proven
    assert found.quality is None


def test_limits_of_the_search_itself_always_leave_networks(tmp_path, monkeypatch):
    """However little work a step may be, whatever the budget, and without a search for the very largest network."""
    job = tiny.job(tmp_path, space="edge")
    macs = Macs().table(job.space, job.task).form
    least = cheapest(macs).value
    monkeypatch.setattr(field, "solve", lambda problem: pytest.fail("the largest is a subset-sum problem"))
    fields = []
    for times in (1.0, 1.3, 4.0, 16.0, np.inf):
        told = replace(job, macs=macs, limits=(Limit("macs", macs, high=times * least),) if times < np.inf else ())
        fields.append(field.Field(told))
    assert {f.whole is None for f in fields} == {True, False}
    monkeypatch.setattr(field, "solve", solve)
    for made in fields:
        made.hasten(1e-9)
        found = made.drawn(4)
        assert found and all(limit.holds(arch) for arch in found for limit in made.limits)


def test_where_no_time_is_left_one_network_is_tried_for_a_step(tmp_path):
    job = replace(tiny.job(tmp_path, space="edge"), seconds=1e-9)
    job = replace(job, macs=Macs().table(job.space, job.task).form)
    made = ladder.Ladder(job, Trials(epochs=0).recipe(0), 0, 0, 3, 1, 0.5)
    made.climb(0)
    assert [t.rung for t in made.trials] == [0]
    assert made.outcome()[0].sizes == job.space.sizes


def test_well_known_networks_that_are_just_outside_by_prediction_are_measured(tmp_path):
    """Of those of the largest computation; what measures inside is tried, what does not gives way to the next."""
    job = tiny.job(tmp_path, space="edge")
    macs = Macs().table(job.space, job.task).form
    known = {n: canonical(job.space.choices, a) for n, a in job.space.landmarks(job.task).items()}
    nets = sorted((macs(a), n) for n, a in known.items() if n.startswith("resnet") and n.endswith("-s1"))
    asked, high = [], 0.9 * nets[-4][0]
    limits = (Limit("time", macs, high=high), Limit("macs", macs, high=1.12 * high))
    near = [known[n] for size, n in reversed(nets) if high < size <= 1.12 * high]
    assert len(near) >= 1

    def made(name, amount):
        def measure(arch):
            asked.append(arch)
            return Gauged(arch.picks, "float32", {"time": amount})

        run = type(job.run)(tmp_path / name, job.run.reporter)
        told = replace(job, run=run, limits=limits, macs=macs, gauge=Gauge(("time",), measure), seconds=900.0)
        return ladder.Ladder(told, Trials(epochs=1).recipe(1), 1, 20, 2, 1, 0.5)

    inside = made("inside", 0.99 * high)
    assert asked[0] == near[0]
    assert all(high < macs(arch) <= 1.12 * high for arch in asked)  # what is counted needs no measurement
    assert near[0] in [c.arch for c in inside.candidates(0)]
    seen = list(asked)
    again = ladder.Ladder(inside.job, Trials(epochs=1).recipe(1), 1, 20, 2, 1, 0.5)
    assert again.candidates(0) == inside.candidates(0) and asked == seen  # resumed: nothing is measured twice
    outside = made("outside", 1.01 * high)
    assert set(asked[len(seen) :]) >= set(near)
    assert all(macs(c.arch) <= high for c in outside.candidates(0))


def test_a_network_from_elsewhere_is_tried_first_however_slowly_it_is_trained(tmp_path):
    """It knows most already: the limit on the work of a step, which is for networks that begin anew, is not its own."""
    job = tiny.job(tmp_path, space="edge")
    job = replace(job, macs=Macs().table(job.space, job.task).form)
    made = ladder.Ladder(job, Trials(epochs=1).recipe(1), 1, 8, 2, 1, 0.5)
    work, known = Step().table(job.space, job.task).form, job.space.heaviest
    made.field.work, made.field.most = work, 0.3 * work(known)
    told = known.named(job.space.choices)
    made.field.job = replace(job, origin=SimpleNamespace(told=(told,)))
    first, *others = made.candidates(0)
    assert first.arch == canonical(job.space.choices, known) and first.name == "start"
    assert others and all(work(c.arch) <= made.field.most for c in others)
    least = min(job.macs(arch) for arch in job.space.alike(told))  # of all frames
    made.field.job = replace(made.field.job, limits=(Limit("macs", job.macs, high=0.9 * least),))
    assert all(c.name != "start" for c in made.candidates(0))  # but the budgets are


def test_a_late_search_that_tried_three_networks_still_has_a_score(tmp_path, monkeypatch):
    paced(monkeypatch, 0.01)
    job = replace(tiny.job(tmp_path), seconds=100.0)
    made = ladder.Ladder(job, Trials(epochs=0).recipe(0), 0, 0, 3, 1, 0.5)
    archs = (job.space.smallest, job.space.heaviest, job.space.sample(np.random.default_rng(0)))
    made.trials = [Trial(arch.picks, 0, 50.0 + k, 1.0, 1.0, "drawn") for k, arch in enumerate(archs)]
    _, trials, held_out = made.outcome()
    assert [t.value is not None for t in trials] == [True] * 3
    assert held_out is None
    made.trials.append(Trial(job.space.sample(np.random.default_rng(1)).picks, 0, 60.0, 1.0, 1.0, "drawn"))
    assert len(made.outcome()[2]["predicted"]) == 4


def test_a_score_that_knows_nothing_does_not_seem_to_order_networks_the_wrong_way_round(tmp_path, monkeypatch):
    """Left out, a good network leaves a lower mean behind: that is no prediction."""
    paced(monkeypatch, 0.01)
    job = replace(tiny.job(tmp_path), seconds=100.0)
    made, rng, found = ladder.Ladder(job, Trials(epochs=0).recipe(0), 0, 0, 3, 1, 0.5), np.random.default_rng(3), []
    for _ in range(20):
        archs = {job.space.sample(rng) for _ in range(7)}
        made.trials = [Trial(a.picks, 0, 50.0 + rng.normal(), 1.0, 1.0, "drawn") for a in archs]
        held = made.outcome()[2]
        found.append(quality(held["predicted"], held["measured"], rng, 2)["kendall"]["value"])
    assert abs(np.mean(found)) < 3 * 0.3 / np.sqrt(len(found))  # pure luck: 0.3 is its deviation with seven


def test_a_search_that_is_late_for_its_second_rung_leaves_the_weights_of_its_first(tmp_path, monkeypatch):
    job = tiny.job(tmp_path)
    made = ladder.Ladder(job, Trials(epochs=1, networks=3).recipe(1), 1, 3, 2, 1, 0.5)
    made.climb(0)
    monkeypatch.setattr(type(job), "late", property(lambda self: True))
    made.climb(1)
    assert {t.rung for t in made.trials} == {0}
    assert all((tmp_path / file).is_file() for file in made.starts())
