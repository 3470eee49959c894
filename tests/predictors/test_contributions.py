import itertools

import numpy as np
import pytest

from sartor.core.arch import Arch, Choice, active
from sartor.predictors.contributions import Entry, assemble, entries, estimate, force
from sartor.spaces.mobile.space import Mobile

# One stage as in the mobile space: depth 1 to 3 beyond block 1, and a block that nothing else decides about.
STAGE = (
    Choice("depth", ("2", "3", "4")),
    Choice("block1", ("a", "b")),
    Choice("block2", ("a", "b"), ((0, (0, 1, 2)),)),
    Choice("block3", ("a", "b"), ((0, (1, 2)),)),
    Choice("block4", ("a", "b"), ((0, (2,)),)),
    Choice("other", ("x", "y", "z")),
)
FLAT = (Choice("a", ("0", "1")), Choice("b", ("0", "1", "2")), Choice("c", ("0", "1")))


def sizes_of(choices):
    return tuple(len(c.options) for c in choices)


def all_picks(choices):
    return np.array(list(itertools.product(*(range(n) for n in sizes_of(choices)))))


def planted(choices, seed=0):
    """An accuracy that adds up: a gain for every option of every active choice."""
    rng = np.random.default_rng(seed)
    gains = [rng.normal(size=n) for n in sizes_of(choices)]
    picks = all_picks(choices)
    values = [50 + sum(g[p] for c, g, p in zip(choices, gains, row, strict=True) if active(c, row)) for row in picks]
    return picks, np.array(values)


def expected(picks, values, condition=()):
    """The exact expectation over uniformly random networks with the condition's options forced."""
    keep = np.all([picks[:, c] == a for c, a in condition], axis=0) if condition else slice(None)
    return values[keep].mean()


def test_the_mobile_space_has_the_papers_255_entries_and_conditions():
    choices = Mobile().choices
    found = entries(choices)
    assert len(found) == 255
    assert sum(e.choice % 5 == 0 for e in found) == 15
    for e in found:
        stage, block = divmod(e.choice, 5)
        depth = 5 * stage
        if block <= 1:  # the depth itself; block 1, whose depth is left free
            assert e.condition == ((e.choice, e.option),)
        else:  # block b with a stage that ends at block b
            assert e.condition == ((depth, block - 2), (e.choice, e.option))
            assert choices[depth].options[block - 2] == str(block)
    assert [(e.choice, e.option) for e in found] == sorted({(e.choice, e.option) for e in found})


def test_forcing_changes_the_conditions_choices_and_nothing_else():
    picks = np.arange(12).reshape(4, 3)
    kept = picks.copy()
    changed = force(picks, ((0, 7), (2, 9)))
    assert np.array_equal(picks, kept)
    assert np.array_equal(changed, np.stack([np.full(4, 7), picks[:, 1], np.full(4, 9)], axis=1))


def test_equation_three_from_exact_expectations():
    picks, values = planted(STAGE)
    mean = expected(picks, values)
    delta = np.array([expected(picks, values, e.condition) - mean for e in entries(STAGE)])
    score = assemble(STAGE, sizes_of(STAGE), mean, delta)
    by_entry = {(e.choice, e.option): d for e, d in zip(entries(STAGE), delta, strict=True)}
    for row in picks:
        depth = row[0] + 2
        due = [(0, row[0]), (5, row[5]), *((b, row[b]) for b in range(1, depth + 1))]
        assert score(Arch(tuple(row))) == pytest.approx(mean + sum(by_entry[d] for d in due))


def test_accuracies_that_add_up_are_predicted_exactly():
    picks, values = planted(FLAT)
    conditional = np.array([[expected(picks, values, e.condition)] * 4 for e in entries(FLAT)])
    score = estimate(FLAT, np.full(4, expected(picks, values)), conditional)
    assert score.batch(picks) == pytest.approx(values)
    assert score.constant == pytest.approx(values.mean())


def test_multi_path_measurements_converge_to_the_exact_contributions():
    """The whole chain on a planted accuracy: random paths, forced conditions, images that are right by chance."""
    rng = np.random.default_rng(0)
    every, values = planted(STAGE)
    lookup = dict(zip(map(tuple, every.tolist()), values, strict=True))
    images, passes = 400, 60
    todo = entries(STAGE)
    base, conditional = np.zeros(images), np.zeros((len(todo), images))
    for _ in range(passes):
        picks = np.stack([rng.integers(n, size=images) for n in sizes_of(STAGE)], axis=1)
        luck = rng.random(images)  # the same for all entries: what differs is the decision

        def right(p, luck=luck):
            return 100.0 * (luck < np.array([lookup[tuple(row)] for row in p.tolist()]) / 100)

        base += right(picks) / passes
        for n, e in enumerate(todo):
            conditional[n] += right(force(picks, e.condition)) / passes
    score = estimate(STAGE, base, conditional)
    mean = expected(every, values)
    exact = np.array([expected(every, values, e.condition) - mean for e in todo])
    exact = assemble(STAGE, sizes_of(STAGE), mean, exact)
    assert score.errors is not None
    z = np.concatenate([
        *((score.linear[i] - exact.linear[i]) / score.errors.linear[i] for i in exact.linear),
        *((score.pairs[k] - exact.pairs[k])[exact.pairs[k] != 0] / score.errors.pairs[k][exact.pairs[k] != 0]
          for k in exact.pairs),
    ])  # fmt: skip
    assert np.abs(z).max() < 4.5
    assert abs(score.constant - exact.constant) < 4.5 * score.errors.constant


def test_standard_errors_are_the_spread_over_samples_of_images():
    rng = np.random.default_rng(1)
    found, claimed = [], []
    for _ in range(300):
        base = 100.0 * (rng.random(50) < 0.6)
        better = np.where(rng.random(50) < 0.2, 100.0, base)
        conditional = np.stack([better, base, base, base, base, base, base])
        score = estimate(FLAT, base, conditional)
        assert score.errors is not None
        found.append((score.constant, score.linear[0][0]))
        claimed.append((score.errors.constant, score.errors.linear[0][0]))
        assert score.linear[0][1] == score.errors.linear[0][1] == 0
    assert np.mean(claimed, axis=0) == pytest.approx(np.std(found, axis=0), rel=0.2)


def test_inactive_decisions_contribute_nothing():
    delta = np.arange(1.0, 1 + len(entries(STAGE)))
    score = assemble(STAGE, sizes_of(STAGE), 0.0, delta)
    shallow = [score(Arch((0, 0, 0, a, b, 0))) for a in (0, 1) for b in (0, 1)]
    assert len(set(shallow)) == 1
    assert score(Arch((2, 0, 0, 1, 1, 0))) - score(Arch((2, 0, 0, 0, 0, 0))) == 2
    assert entries(STAGE)[0] == Entry(0, 0, ((0, 0),))
