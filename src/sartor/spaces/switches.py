"""The switches of a search network: what BayesNAS (arXiv:1905.04919) needs to know of a space, and nothing more.

A space that can be searched with switches says two things:

- ``space.circuit(task)``, a `Circuit`: its switches, and which of them depend on which;
- ``space.switched(net, x, w)``: the logits of its supernet when every switch multiplies what its operation gives by its
  own weight. `w` is one flat vector, the places of switch 0, then those of switch 1, and so on (`Circuit.slices`).

`Space` has a default for both: a switch for every option of every choice that is mixed, without dependencies. A space
whose cells are searched all alike gives a switch one place a cell (grouped, appendix A.3); one whose cells are free to
differ gives every cell switches of its own, each with one place.

Nodes are named by any strings. Information flows from `inputs` along switches that are on to `outputs`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sartor.core.errors import BadInput

Mask = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Switch:
    """One switch s: it decides on one operation from node `reads` to node `feeds`, in `places` of the network at once.

    `pick` is the ``(choice, option)`` that means that the operation is in the network. `zero` is the index of the
    switch that rules the whole edge (equation 8's s_ii'); that one reads the edge's source, feeds nothing itself
    (None) and has no pick: its edge is gone when it is off, and it when all of its operations are.
    """

    name: str
    reads: str
    feeds: str | None
    pick: tuple[int, int] | None
    places: int = 1
    zero: int | None = None
    also: tuple[tuple[int, int], ...] = ()  # further options that have the operation, where options are whole subsets

    @property
    def picks(self) -> tuple[tuple[int, int], ...]:
        """All options that have the operation."""
        return () if self.pick is None else (self.pick, *self.also)


@dataclass(frozen=True)
class Circuit:
    """All switches of a search network and the nodes between them.

    `inputs` are nodes that always carry information, `outputs` those that are read from outside. Of each set in
    `required` at least one node must stay alive: without it the network would not be connected.

    `scales`, where given, has a number for every weight of the flat vector: weights with the same number may all be
    multiplied by one factor and the network computes (nearly) the same, since batch-norms follow, as in a cell. A
    penalty alone would then shrink them all; the method keeps their mean square instead.
    """

    switches: tuple[Switch, ...]
    inputs: frozenset[str]
    outputs: frozenset[str]
    required: tuple[frozenset[str], ...] = ()
    scales: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        fed = {s.feeds for s in self.switches} | set(self.inputs)
        for switch in self.switches:
            rule = None if switch.zero is None else self.switches[switch.zero]
            if switch.places < 1 or switch.reads not in fed or (rule is not None and rule.feeds is not None):
                raise BadInput(f"a switch has places, reads a node that exists and obeys a zero switch: {switch}.")
        if self.scales is not None and len(self.scales) != sum(s.places for s in self.switches):
            raise BadInput(f"scales must name every weight of all switches, but there are {len(self.scales)}.")
        if not self.order:  # and raises where there is a cycle
            raise BadInput("a circuit needs at least one input.")

    def __len__(self) -> int:
        return len(self.switches)

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """Where the weights of every switch stand in the flat vector."""
        ends = np.cumsum([s.places for s in self.switches])
        return tuple(slice(int(e) - s.places, int(e)) for e, s in zip(ends, self.switches, strict=True))

    @cached_property
    def owner(self) -> NDArray[np.int64]:
        """The switch of every weight of the flat vector."""
        return np.repeat(np.arange(len(self)), [s.places for s in self.switches])

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...] | None, ...]:
        """For every switch those that feed the node it reads; None where it reads an input (equation 6's sum)."""
        feeding = self.feeding
        return tuple(None if s.reads in self.inputs else tuple(feeding[s.reads]) for s in self.switches)

    @cached_property
    def feeding(self) -> dict[str, list[int]]:
        """The switches that feed a node."""
        found: dict[str, list[int]] = {}
        for i, switch in enumerate(self.switches):
            if switch.feeds is not None:
                found.setdefault(switch.feeds, []).append(i)
        return found

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The nodes in an order in which each comes after all that feed it."""
        return tuple(self._flow())

    def _flow(self) -> Iterator[str]:
        waiting: dict[str, set[str]] = {}
        for switch in self.switches:
            if switch.feeds is not None and switch.feeds not in self.inputs:
                waiting.setdefault(switch.feeds, set()).add(switch.reads)
        done = set(self.inputs)
        yield from sorted(done)
        while waiting:
            ready = sorted(node for node, sources in waiting.items() if sources <= done)
            if not ready:
                raise BadInput(f"nodes must not depend on themselves, but {', '.join(sorted(waiting))} do.")
            for node in ready:
                waiting.pop(node)
                done.add(node)
                yield node

    def alive(self, on: Mask) -> Mask:
        """The switches that carry information from an input to an output while those of `on` are on (proposition 1).

        A node without a live predecessor goes, and with it all that reads it; so does what leads nowhere, an edge
        whose zero switch is off, and a zero switch that rules nothing any more.
        """
        left = on.copy()
        for i, switch in enumerate(self.switches):
            if switch.zero is not None and not on[switch.zero]:
                left[i] = False
        while True:
            reached, read = self.reached(left), self._read(left)
            keep = left.copy()
            ruling = {s.zero for i, s in enumerate(self.switches) if left[i] and s.zero is not None}
            for i, switch in enumerate(self.switches):
                useful = i in ruling if switch.feeds is None else switch.feeds in read
                keep[i] &= switch.reads in reached and useful
            if (keep == left).all():
                return keep
            left = keep

    def reached(self, on: Mask) -> set[str]:
        """The nodes to which information flows from an input."""
        reached = set(self.inputs)
        for node in self.order:
            if any(on[i] and self.switches[i].reads in reached for i in self.feeding.get(node, ())):
                reached.add(node)
        return reached

    def _read(self, on: Mask) -> set[str]:
        """The nodes from which information flows to an output."""
        read = set(self.outputs)
        for node in reversed(self.order):
            if node in read:
                read |= {self.switches[i].reads for i in self.feeding.get(node, ()) if on[i]}
        return read

    def isolated(self, on: Mask) -> list[str]:
        """Nodes that are read though nothing reaches them: figure 1a's failure."""
        reached = self.reached(on)
        return sorted({s.reads for i, s in enumerate(self.switches) if on[i] and s.reads not in reached})

    def severed(self, on: Mask) -> list[frozenset[str]]:
        """The required sets of which nothing is reached any more."""
        reached = self.reached(on)
        return [nodes for nodes in self.required if not nodes & reached]
