"""What carries information in a circuit of switches."""

import numpy as np
import pytest

from sartor.core.errors import BadInput
from sartor.spaces.switches import Circuit, Switch


def chain():
    """in -> a -> b -> out with two operations an edge, a zero switch on the second edge, and a shortcut in -> out."""
    switches = (
        Switch("in-a.0", "in", "a", (0, 0), places=2),
        Switch("in-a.1", "in", "a", (1, 0), places=2),
        Switch("a-b.zero", "a", None, None, places=2),
        Switch("a-b.0", "a", "b", (2, 0), places=2, zero=2),
        Switch("a-b.1", "a", "b", (3, 0), places=2, zero=2),
        Switch("b-out", "b", "out", (4, 0)),
        Switch("in-out", "in", "out", (5, 0)),
    )
    return Circuit(switches, frozenset({"in"}), frozenset({"out"}), (frozenset({"out"}),))


def mask(*off):
    on = np.ones(7, bool)
    on[list(off)] = False
    return on


def names(circuit, on):
    return [s.name for s, o in zip(circuit.switches, on, strict=True) if not o]


def test_weights_stand_switch_by_switch():
    circuit = chain()
    assert circuit.slices[2] == slice(4, 6)
    assert circuit.owner.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 6]


def test_predecessors_feed_the_node_that_is_read():
    assert chain().predecessors == (None, None, (0, 1), (0, 1), (0, 1), (3, 4), None)


@pytest.mark.parametrize(
    ("off", "gone"),
    [
        ((), []),
        ((0,), ["in-a.0"]),
        ((0, 1), ["in-a.0", "in-a.1", "a-b.zero", "a-b.0", "a-b.1", "b-out"]),  # a is dead, and all that follows
        ((2,), ["in-a.0", "in-a.1", "a-b.zero", "a-b.0", "a-b.1", "b-out"]),  # the edge; then a leads nowhere
        ((3, 4), ["in-a.0", "in-a.1", "a-b.zero", "a-b.0", "a-b.1", "b-out"]),
        ((6,), ["in-out"]),
    ],
)
def test_what_depends_on_the_dead_is_dead(off, gone):
    circuit = chain()
    assert names(circuit, circuit.alive(mask(*off))) == gone


def test_isolated_nodes_and_severed_outputs():
    circuit = chain()
    assert circuit.isolated(mask()) == []
    assert circuit.isolated(mask(0, 1)) == ["a", "b"]
    assert circuit.severed(mask(0, 1)) == []
    assert circuit.severed(mask(0, 1, 6)) == [frozenset({"out"})]


def test_what_is_no_circuit_is_refused():
    with pytest.raises(BadInput, match="depend on themselves"):
        Circuit((Switch("x", "a", "b", None), Switch("y", "b", "a", None)), frozenset({"in"}), frozenset({"b"}))
    with pytest.raises(BadInput, match="reads a node"):
        Circuit((Switch("x", "a", "b", None),), frozenset({"in"}), frozenset({"b"}))
    with pytest.raises(BadInput, match="at least one input"):
        Circuit((), frozenset(), frozenset())
