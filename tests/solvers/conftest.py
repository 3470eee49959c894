"""Random problems and the slow, obvious references they are checked against."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from sartor.core.quadratic import Limit, Quadratic

PAPER = (3, 12, 12, 12, 12) * 5  # BINAS's full space: five stages, each a depth and four blocks


def edges_of(kind, count, rng):
    """Interactions among `count` choices: 'none', a random 'forest', a 'cycle' or 'dense'."""
    if kind == "none":
        return []
    if kind == "forest":
        order = rng.permutation(count)
        return [(int(order[n]), int(order[rng.integers(n)])) for n in range(1, count) if rng.random() < 0.8]
    if kind == "cycle":
        return [(n, (n + 1) % count) for n in range(count)]
    return [(i, j) for i in range(count) for j in range(i + 1, count)]


def draw(shape, rng, values):
    """Coefficients: 'real', 'tied' (small integers, negative ones too) or 'zero'."""
    if values == "zero":
        return np.zeros(shape)
    return rng.normal(size=shape) if values == "real" else rng.integers(-2, 3, shape).astype(float)


def form(sizes, edges, rng, values="real"):
    linear = {i: draw(n, rng, values) for i, n in enumerate(sizes) if rng.random() < 0.9}
    pairs = {(i, j): draw((sizes[i], sizes[j]), rng, values) for i, j in edges}
    return Quadratic(tuple(sizes), float(draw((), rng, values)), linear, pairs)


def framed(sizes, edges, rng, values="real"):
    """A form in which every option of choice 0 adds its own; `edges` are among the other choices."""

    def case():
        made = form(sizes, edges, rng, values)
        return replace(made, linear={i: v for i, v in made.linear.items() if i})

    whole = form(sizes, [*edges, *((0, i) for i in range(1, len(sizes)))], rng, values)
    return replace(whole, cases=tuple(case() for _ in range(sizes[0])))


def rule(sizes, rng, count, name="rule"):
    """A rule among `count` random choices: how many of them are at option 0 is limited on both sides."""
    chosen = rng.permutation(len(sizes))[:count]
    low = int(rng.integers(0, count + 1))
    linear = {int(i): np.eye(sizes[i])[0] for i in chosen}
    return Limit(name, Quadratic(tuple(sizes), 0.0, linear), high=int(rng.integers(low, count + 1)), low=low)


def every(sizes):
    return np.stack(np.unravel_index(np.arange(math.prod(sizes)), sizes), 1)


def reference(score, cost, rules=()):
    """(cost, score) of the whole frontier by trying everything, and staying simple about it."""
    picks = every(score.sizes)
    for r in rules:
        values = r.form.batch(picks)
        picks = picks[(values >= r.low - 1e-9) & (values <= r.high + 1e-9)]
    points, best = [], -math.inf
    for c, s in sorted(zip(cost.batch(picks), -score.batch(picks), strict=True)):
        if -s > best:
            best = -s
            points.append((c, best))
    return np.array(points).reshape(-1, 2)


def paper(seed):
    """A score and a latency with the structure of BINAS's full space and plausible magnitudes (% and ms)."""
    rng = np.random.default_rng(seed)
    linear, pairs, price, prices = {}, {}, {}, {}
    for hub in range(0, 25, 5):
        linear[hub], price[hub] = np.sort(rng.normal(0, 0.4, 3)), np.zeros(3)
        for block in range(hub + 1, hub + 5):
            latency = np.sort(rng.gamma(4, 0.25, 12)) * (1 + 0.04 * hub)
            gain = 0.25 * np.log(latency) + rng.normal(0, 0.1, 12)
            if block <= hub + 2:
                linear[block], price[block] = gain, latency
            else:
                active = np.array([0, block == hub + 3, 1], float)[:, None]
                pairs[hub, block] = active * (gain + rng.normal(0, 0.03, (3, 12)))
                prices[hub, block] = active * latency
    return Quadratic(PAPER, 70.0, linear, pairs), Quadratic(PAPER, 3.0, price, prices)


@pytest.fixture(scope="session")
def make():
    return SimpleNamespace(
        edges=edges_of, form=form, framed=framed, rule=rule, every=every, reference=reference, paper=paper
    )
