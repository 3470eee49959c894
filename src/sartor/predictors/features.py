"""One-hot features of architectures, and the way from their coefficients to a `Quadratic`.

A term is a choice (features: its options) or a pair of choices (features: pairs of options). In
every network a term has at most one feature of value one, so that a design of n networks and T
terms is a sparse matrix of at most n T ones, whatever the number of its columns.

What an inactive choice cannot do to a network it must not do to a score. A choice that needs
another, its hub, is therefore gated by the hub: that makes its own term a pair term of hub and
choice, and a product with a third choice would be a cubic. Such products are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import block_diag, null_space
from scipy.sparse import csr_array

from sartor.core.arch import Choice, hub
from sartor.core.quadratic import Array, Quadratic
from sartor.predictors.base import Index


@dataclass(frozen=True, slots=True)
class Term:
    """The features of `choices`, one or two; zero unless choice `gate` is at one of its `allowed` options."""

    choices: tuple[int, ...]
    gate: int | None = None
    allowed: tuple[int, ...] = ()


def linear_terms(choices: Sequence[Choice]) -> list[Term]:
    """A term per choice, gated where the choice needs another: the structure of equation 3."""
    return [Term((i,), *(hub(choices, i) or (None, ()))) for i in range(len(choices))]


def pair_term(choices: Sequence[Choice], i: int, j: int, inactive: bool = False) -> Term | None:
    """The products of two choices, or None where they would be cubic; `inactive` ignores who is active."""
    if inactive:
        return Term((i, j))
    one, two = hub(choices, i), hub(choices, j)
    if one is None and two is None:
        return Term((i, j))
    if one is None and two is not None and two[0] == i:
        return Term((i, j), *two)
    if two is None and one is not None and one[0] == j:
        return Term((i, j), *one)
    return None


@dataclass(frozen=True)
class Features:
    """The columns of a design matrix: terms side by side."""

    sizes: tuple[int, ...]
    terms: tuple[Term, ...]

    @cached_property
    def first(self) -> Index:
        """The first column of every term, and the number of columns at the end."""
        widths = [int(np.prod([self.sizes[i] for i in t.choices])) for t in self.terms]
        return np.concatenate([[0], np.cumsum(widths)]).astype(np.int64)

    def design(self, picks: Index) -> csr_array:
        """The (n, columns) matrix of zeros and ones."""
        columns, present = [], []
        for term, start in zip(self.terms, self.first, strict=False):
            at = picks[:, term.choices[0]]
            for i in term.choices[1:]:
                at = at * self.sizes[i] + picks[:, i]
            columns.append(start + at)
            gate = term.gate
            present.append(np.ones(len(picks), bool) if gate is None else np.isin(picks[:, gate], term.allowed))
        index, there = np.stack(columns, 1), np.stack(present, 1)
        starts = np.concatenate([[0], np.cumsum(there.sum(1))])
        shape = (len(picks), int(self.first[-1]))
        return csr_array((np.ones(int(starts[-1])), index[there], starts), shape=shape)

    def quadratic(self, constant: float, weights: Array, errors: tuple[float, Array] | None = None) -> Quadratic:
        """The function whose value at an architecture is ``constant + features . weights``."""
        linear: dict[int, Array] = {}
        pairs: dict[tuple[int, int], Array] = {}
        for n, term in enumerate(self.terms):
            mine = weights[self.first[n] : self.first[n + 1]]
            i = term.choices[0]
            if len(term.choices) == 2:
                table = mine.reshape(self.sizes[i], self.sizes[term.choices[1]]).copy()
                if term.gate is not None:  # a product that no network has
                    never = np.setdiff1d(np.arange(self.sizes[term.gate]), term.allowed)
                    (table if term.gate == i else table.T)[never] = 0.0
                _add(pairs, (i, term.choices[1]), table)
            elif term.gate is None:
                linear[i] = linear[i] + mine if i in linear else mine
            else:
                table = np.zeros((self.sizes[term.gate], self.sizes[i]))
                table[list(term.allowed)] = mine
                _add(pairs, (term.gate, i), table)
        spread = None if errors is None else self.quadratic(*errors)
        return Quadratic(self.sizes, constant, linear, pairs, errors=spread)

    def contrasts(self) -> Array:
        """A basis of the coefficients that sum to zero over a choice's options (for every option of its partner).

        One-hot vectors sum to one, so that coefficients are determined only up to a constant a
        choice; sums of zero make the constant the mean over uniform networks, as E[Acc] is.
        """
        blocks = []
        for term in self.terms:
            size = self.sizes[term.choices[-1]]
            basis = null_space(np.ones((1, size))) if size > 1 else np.zeros((1, 0))
            rows = 1 if len(term.choices) == 1 else self.sizes[term.choices[0]]
            live = term.allowed if len(term.choices) == 2 and term.gate == term.choices[0] else range(rows)
            for r in range(rows):
                blocks.append(basis if r in live else np.zeros((size, 0)))
        return np.asarray(block_diag(*blocks), np.float64)


def _add(pairs: dict[tuple[int, int], Array], key: tuple[int, int], table: Array) -> None:
    key, table = (key, table) if key[0] < key[1] else ((key[1], key[0]), table.T)
    pairs[key] = pairs[key] + table if key in pairs else table
