"""Evolutionary search with the published settings, on any score, inside any limits (BINAS, section 3.3).

A generation keeps its best 25, mutates them into 50 (every choice redrawn with probability 0.1)
and crosses them into 50 (every choice from one of two parents). A child outside the limits is
drawn again a few times and then goes back to its parent, a choice at a time, until it is inside:
a tight budget costs no more time than a generous one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from sartor.core.config import check
from sartor.core.errors import BadInput
from sartor.core.quadratic import Limit
from sartor.solvers.base import Problem, Solution, Solver, certify
from sartor.solvers.local import Index, Score, allowed, arch_of, feasible_start, retreat, uniform


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How many live, survive and are born, and for how long; the defaults are the paper's."""

    population: int = 100
    iterations: int = 500
    parents: int = 25
    mutants: int = 50
    crossovers: int = 50
    mutation: float = 0.1
    redraws: int = 5

    def __post_init__(self) -> None:
        check(self, population=">= 1", parents=">= 1", mutation="> 0 <= 1")
        check(self, iterations=">= 0", mutants=">= 0", crossovers=">= 0", redraws=">= 0")
        if self.mutants + self.crossovers < 1:
            raise BadInput(f"mutants and crossovers must be at least 1 together, but got {self}.")


@dataclass(frozen=True, eq=False)
class Evolved:
    """The best architecture, its score, and the best score after every generation."""

    picks: Index
    score: float
    history: tuple[float, ...]


def evolve(
    score: Score,
    sizes: Sequence[int],
    limits: Sequence[Limit],
    rng: np.random.Generator,
    settings: Settings | None = None,
) -> Evolved:
    """Maximise `score`, which maps (n, choices) picks to (n,) values, inside `limits`."""
    how = settings or Settings()
    people = _first(sizes, limits, how.population, rng)
    values = np.asarray(score(people), np.float64)
    history = [float(values.max())]
    for _ in range(how.iterations):
        top = np.argsort(-values, kind="stable")[: how.parents]
        people, values = people[top], values[top]
        children = np.concatenate([_mutants(people, sizes, limits, how, rng), _cross(people, limits, how, rng)])
        people = np.concatenate([people, children])
        values = np.concatenate([values, np.asarray(score(children), np.float64)])
        history.append(float(values.max()))
    best = int(np.argmax(values))
    return Evolved(people[best], float(values[best]), tuple(history))


def _first(sizes: Sequence[int], limits: Sequence[Limit], count: int, rng: np.random.Generator) -> Index:
    """Uniform networks that happen to be inside the limits; the others walk towards the cheapest until they are."""
    anchor = feasible_start(sizes, limits)
    drawn = uniform(sizes, 4 * count, rng)
    good = drawn[allowed(limits, drawn)][:count]
    rest = retreat(uniform(sizes, count - len(good), rng), anchor, limits, rng)
    people = np.concatenate([good, rest])
    people[-1] = anchor
    return people


def _mutants(
    people: Index, sizes: Sequence[int], limits: Sequence[Limit], how: Settings, rng: np.random.Generator
) -> Index:
    parents = people[rng.integers(len(people), size=how.mutants)]

    def draw(rows: Index) -> Index:
        return np.where(rng.random(rows.shape) < how.mutation, uniform(sizes, len(rows), rng), rows)

    return _inside(parents, draw, limits, how.redraws, rng)


def _cross(people: Index, limits: Sequence[Limit], how: Settings, rng: np.random.Generator) -> Index:
    parents = people[rng.integers(len(people), size=how.crossovers)]

    def draw(rows: Index) -> Index:
        partners = people[rng.integers(len(people), size=len(rows))]
        return np.where(rng.random(rows.shape) < 0.5, rows, partners)

    return _inside(parents, draw, limits, how.redraws, rng)


def _inside(
    parents: Index, draw: Callable[[Index], Index], limits: Sequence[Limit], redraws: int, rng: np.random.Generator
) -> Index:
    """A child a parent: drawn, drawn again at most `redraws` times, then led back to its parent until it is inside."""
    children = draw(parents)
    outside = np.flatnonzero(~allowed(limits, children))
    for _ in range(redraws):
        if not len(outside):
            return children
        children[outside] = draw(parents[outside])
        outside = outside[~allowed(limits, children[outside])]
    children[outside] = retreat(children[outside], parents[outside], limits, rng)
    return children


@final
@dataclass(frozen=True, kw_only=True)
class Evolution(Settings, Solver):
    """Evolutionary search with BINAS's settings; a heuristic that takes any score and any limits."""

    exact: ClassVar[bool] = False

    seed: int = 0

    def solve(self, problem: Problem) -> Solution:
        """The best architecture of all generations; nothing is known of better ones, so its bound is infinite."""
        begin = time.perf_counter()
        rng = np.random.default_rng(self.seed)
        found = evolve(problem.score.batch, problem.sizes, problem.limits, rng, self)
        return certify(problem, arch_of(found.picks), math.inf, "evolution", time.perf_counter() - begin)


PLUGIN = Evolution
