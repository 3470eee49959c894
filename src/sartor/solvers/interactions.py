"""Which choices interact: a problem's connected parts, and whether each is a tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from sartor.core.quadratic import Array, Limit, Quadratic
from sartor.solvers.base import within

Edge = tuple[int, int]


def support(form: Quadratic) -> tuple[int, ...]:
    """The choices that the form depends on; terms that are zero everywhere do not count."""
    found = {i for i, v in form.linear.items() if v.any()}
    for pair, table in form.pairs.items():
        if table.any():
            found.update(pair)
    for case in form.cases:
        found.update((0, *support(case)))
    return tuple(sorted(found))


def grid(form: Quadratic, choices: Sequence[int], constant: float) -> Array:
    """`constant` plus the form's terms on all combinations of `choices`, which are in increasing order.

    One axis per choice; axes that the form does not depend on have length one, and terms with a choice
    that is not among `choices` are left out. The terms are added in the order of `Quadratic.batch`,
    so that both give the same floating-point number.
    """
    axis = {choice: n for n, choice in enumerate(choices)}
    value = np.full((1,) * len(choices), constant)
    terms = [((i,), v) for i, v in form.linear.items()] + [(k, t) for k, t in form.pairs.items()]
    for involved, table in terms:
        if table.any() and all(i in axis for i in involved):
            shape = [1] * len(choices)
            for i in involved:
                shape[axis[i]] = form.sizes[i]
            value = value + table.reshape(shape)
    return value


@dataclass(frozen=True, eq=False)
class Component:
    """Choices that interact with each other and with nothing else, and the rules among them."""

    choices: tuple[int, ...]
    edges: frozenset[Edge] = frozenset()
    rules: tuple[Limit, ...] = field(default=())

    @property
    def tree(self) -> bool:
        """Whether there is no cycle and no rule that joins three choices or more."""
        return len(self.edges) == len(self.choices) - 1 and all(len(support(r.form)) <= 2 for r in self.rules)

    def neighbours(self, choice: int) -> list[int]:
        """The choices that `choice` interacts with directly."""
        return sorted({j if i == choice else i for i, j in self.edges if choice in (i, j)})

    def rooted(self) -> tuple[list[int], dict[int, int]]:
        """The choices of a tree, parents before children, and the parent of each; the root has most neighbours."""
        near = {i: self.neighbours(i) for i in self.choices}
        root = max(self.choices, key=lambda i: (len(near[i]), i))
        parent, order = {root: -1}, [root]
        for choice in order:  # grows while it is walked
            new = [d for d in near[choice] if d != parent[choice]]
            parent.update(dict.fromkeys(new, choice))
            order.extend(new)
        return order, parent


def components(forms: Iterable[Quadratic], rules: Sequence[Limit]) -> list[Component] | None:
    """The connected parts of the interaction graph, in order of their first choice.

    None where a rule that depends on no choice does not hold, so that no architecture is left.
    """
    forms = list(forms)
    edges: set[Edge] = {k for form in forms for k, t in form.pairs.items() if t.any()}
    joined = [support(rule.form) for rule in rules]
    if not all(within(r, np.asarray(r.form.constant)) for r, s in zip(rules, joined, strict=True) if not s):
        return None
    edges |= {(s[0], s[1]) for s in joined if len(s) == 2}
    count = len(forms[0].sizes)
    root = list(range(count))

    def find(i: int) -> int:
        while root[i] != i:
            root[i] = i = root[root[i]]
        return i

    for group in [*edges, *joined]:
        for other in group[1:]:
            low, high = sorted((find(group[0]), find(other)))
            root[high] = low
    members: dict[int, list[int]] = {}
    for i in range(count):
        members.setdefault(find(i), []).append(i)
    inside: dict[int, list[Edge]] = {}
    for edge in edges:
        inside.setdefault(find(edge[0]), []).append(edge)
    ruled: dict[int, list[Limit]] = {}
    for rule, group in zip(rules, joined, strict=True):
        if group:
            ruled.setdefault(find(group[0]), []).append(rule)
    return [Component(tuple(m), frozenset(inside.get(r, ())), tuple(ruled.get(r, ()))) for r, m in members.items()]
