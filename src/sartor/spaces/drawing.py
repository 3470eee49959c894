"""What a space says about how one of its networks is drawn, so that who draws it needs to know no space by name.

Every choice of a space is drawn once, as a box that shows the picked option. `stages` line the boxes up in the order in
which data passes them; without stages they are listed. `aspects` say what the options of such boxes differ by (kernel,
expansion, ...) and how that shows, and `options` has the aspects' values of every option, by its name. Whatever else is
to be seen of the one network comes as `graphs` (cells: nodes and labelled edges) and `grids` (rows of which each column
has some). All of it is plain data: `to_json` writes it into a run's solution.json, `runs.codec` reads it back, and
`default` derives a drawing from a space's choices alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from sartor.core.arch import Choice


@dataclass(frozen=True, slots=True)
class Stage:
    """Blocks that follow one another, each the index of a choice; `depth` is the choice of how many of them run."""

    title: str
    blocks: tuple[int, ...]
    depth: int | None = None


@dataclass(frozen=True, slots=True)
class Aspect:
    """One respect in which options differ: a number, written by `form`, or a flag, and how a box shows it."""

    name: str
    shows: Literal["height", "tone", "mark", "word"] = "word"
    form: str = "{0:g}"
    short: str = ""  # where `name` is too long

    def text(self, value: float | bool) -> str:
        """A value in words."""
        return ("with" if value else "without") if isinstance(value, bool) else self.form.format(value)


@dataclass(frozen=True, slots=True)
class Edge:
    """From one node to another, by their numbers; without a label the target takes the source as it is."""

    source: int
    target: int
    label: str = ""


@dataclass(frozen=True, slots=True)
class Graph:
    """A cell: nodes by name in an order in which data passes them; the first `inputs` come from outside."""

    title: str
    nodes: tuple[str, ...]
    edges: tuple[Edge, ...]
    inputs: int = 1

    @property
    def unread(self) -> tuple[str, ...]:
        """Nodes of its own from which nothing leads to the last one: they compute for nobody."""
        read = {len(self.nodes) - 1}
        for edge in sorted(self.edges, key=lambda e: -e.target):
            read |= {edge.source} if edge.target in read else set()
        return tuple(name for n, name in enumerate(self.nodes) if n >= self.inputs and n not in read)


@dataclass(frozen=True, slots=True)
class Grid:
    """What every column has of what the rows name, as (row, column) pairs."""

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    filled: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Drawing:
    """One network of a space."""

    stages: tuple[Stage, ...] = ()
    aspects: tuple[Aspect, ...] = ()
    options: Mapping[str, tuple[float | bool, ...]] = field(default_factory=dict)
    graphs: tuple[Graph, ...] = ()
    grids: tuple[Grid, ...] = ()

    @property
    def warning(self) -> str:
        """What is odd about this one network; empty where nothing is."""
        idle = [f"{', '.join(g.unread)} of the {g.title}" for g in self.graphs if g.unread]
        return f"nothing reads {' and '.join(idle)}: the network is smaller than it looks" if idle else ""

    def to_json(self) -> dict[str, Any]:
        """For solution.json."""
        return asdict(self)


def default(choices: Sequence[Choice]) -> Drawing:
    """What names and dependencies tell: choices ``NAME.*`` of which all but one need that one are a stage of blocks."""
    groups: dict[str, list[int]] = {}
    for i, choice in enumerate(choices):
        groups.setdefault(choice.name.partition(".")[0], []).append(i)
    stages = []
    for name, members in groups.items():
        needed = {other for i in members for other, _ in choices[i].needs}
        depth = next((i for i in members if i in needed and all(o.isdigit() for o in choices[i].options)), None)
        if depth is None or not needed <= {depth}:
            return Drawing()
        stages.append(Stage(name, tuple(i for i in members if i != depth), depth))
    return Drawing(tuple(stages))
