"""Cells as people publish them: which operation reads which node, as JSON and in the customary tuple form.

A cell's nodes are numbered as its inputs are: 0 and 1 are the outputs of the two cells before it, 2 is its
first own node. A node adds up any number of operations, several of which may read the same source; the
customary form assumes two a node, and is written with one list a node where that does not hold.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sartor.core.errors import BadInput
from sartor.spaces.drawing import Drawing, Edge, Graph

OPERATIONS = (
    "max_pool_3x3", "avg_pool_3x3", "skip_connect", "sep_conv_3x3", "sep_conv_5x5", "dil_conv_3x3", "dil_conv_5x5",
)  # fmt: skip
ZERO = "none"  # an edge that carries nothing; known so that baselines' cells can be read
INPUTS = 2  # sources that come from outside the cell
KINDS = ("normal", "reduce")
OWN = (2, 3, 4, 5)  # the nodes of a cell that is searched
EDGES = tuple((node, source) for node in OWN for source in range(node))  # of such a cell

Reads = tuple[str, int]  # (operation, source)


@dataclass(frozen=True, slots=True)
class Cell:
    """The operations of every node, and the nodes that are concatenated into the cell's output."""

    nodes: tuple[tuple[Reads, ...], ...]
    concat: tuple[int, ...] = OWN

    def __post_init__(self) -> None:
        for number, reads in enumerate(self.nodes, start=INPUTS):
            for operation, source in reads:
                if operation not in (*OPERATIONS, ZERO):
                    raise BadInput(f"an operation must be one of {', '.join(OPERATIONS)}, but got {operation!r}.")
                if not 0 <= source < number:
                    raise BadInput(f"node {number} can read nodes 0 to {number - 1}, but reads {source}.")
        last = len(self.nodes) + INPUTS
        if not self.concat or not all(INPUTS <= n < last for n in self.concat):
            raise BadInput(f"concat must name own nodes of the cell (2 to {last - 1}), but got {list(self.concat)}.")

    @property
    def depth(self) -> float:
        """The mean index of the sources that are read: table 4 of XNAS."""
        sources = [source for reads in self.nodes for _, source in reads]
        return sum(sources) / len(sources) if sources else 0.0

    def to_json(self) -> dict[str, Any]:
        """One list a node, each operation with its source."""
        nodes = [[{"op": operation, "from": source} for operation, source in reads] for reads in self.nodes]
        return {"nodes": nodes, "concat": list(self.concat)}


@dataclass(frozen=True, slots=True)
class Genotype:
    """A normal cell and a reduction cell."""

    normal: Cell
    reduce: Cell

    def to_json(self) -> dict[str, Any]:
        """The readable form; `from_json` reads it back."""
        return {"normal": self.normal.to_json(), "reduce": self.reduce.to_json()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Genotype:
        """Read what `to_json` wrote."""
        try:
            return cls(*(_cell_from_json(data[kind]) for kind in ("normal", "reduce")))
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise BadInput(f"this is not a genotype as Sartor writes it: {error!r}.") from error

    def draw(self) -> Drawing:
        """Each cell as a graph."""
        return Drawing(graphs=(_graph("normal cell", self.normal), _graph("reduction cell", self.reduce)))

    def to_text(self) -> str:
        """``Genotype(normal=[('sep_conv_3x3', 0), ...], normal_concat=[2, 3, 4, 5], reduce=..., ...)``."""
        fields = []
        for kind, cell in (("normal", self.normal), ("reduce", self.reduce)):
            flat = all(len(reads) == INPUTS for reads in cell.nodes)
            listed: Any = [r for reads in cell.nodes for r in reads] if flat else [list(reads) for reads in cell.nodes]
            fields += [f"{kind}={listed!r}", f"{kind}_concat={list(cell.concat)!r}"]
        return f"Genotype({', '.join(fields)})"

    @classmethod
    def from_text(cls, text: str) -> Genotype:
        """Read the customary form, also with ``range(2, 6)``; the text is parsed, never run."""
        try:
            call = ast.parse(text.strip(), mode="eval").body
            if not isinstance(call, ast.Call) or call.args:
                raise ValueError("not a call with named arguments")
            given = {str(word.arg): _literal(word.value) for word in call.keywords}
            cells = [_cell_from_lists(given[k], given[f"{k}_concat"]) for k in ("normal", "reduce")]
        except (KeyError, TypeError, ValueError, SyntaxError) as error:
            raise BadInput(f"a genotype reads Genotype(normal=[...], normal_concat=[...], ...): {error!r}.") from error
        return cls(*cells)


def _graph(title: str, cell: Cell) -> Graph:
    nodes = ("two cells before", "cell before", *(f"node {n + 1}" for n in range(len(cell.nodes))), "output")
    edges = [Edge(s, n, op) for n, reads in enumerate(cell.nodes, start=INPUTS) for op, s in reads]
    edges += [Edge(n, len(nodes) - 1) for n in cell.concat]
    return Graph(title, nodes, tuple(edges), INPUTS)


def read(given: str) -> Genotype:
    """Cells by their published name, or from a file: a genotype as JSON or text, or a run's ``solution.json``."""
    named = {name.lower(): genotype for name, genotype in PUBLISHED.items()}
    if given.lower() in named:
        return named[given.lower()]
    path = Path(given)
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text) if text.lstrip().startswith("{") else None
    except (OSError, ValueError) as error:
        raise BadInput(f"cells are {', '.join(PUBLISHED)} or a genotype's file, but {given!r} is neither.") from error
    if data is None:
        return Genotype.from_text(text)
    return Genotype.from_text(str(data["string"])) if "string" in data else Genotype.from_json(data)


def _literal(node: ast.expr) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("range", "list", "tuple"):
        values = [_literal(a) for a in node.args]
        return list(range(*values)) if node.func.id == "range" else list(values[0])
    return ast.literal_eval(node)


def _cell_from_lists(reads: Sequence[Any], concat: Sequence[int]) -> Cell:
    if reads and reads[0] and isinstance(reads[0][0], str):  # flat: two a node
        if len(reads) % INPUTS:
            raise ValueError("a flat list needs two operations a node")
        reads = [reads[i : i + INPUTS] for i in range(0, len(reads), INPUTS)]
    nodes = tuple(tuple((str(operation), int(source)) for operation, source in node) for node in reads)
    return Cell(nodes, tuple(int(n) for n in concat))


def _cell_from_json(data: Mapping[str, Any]) -> Cell:
    nodes = tuple(tuple((str(r["op"]), int(r["from"])) for r in node) for node in data["nodes"])
    return Cell(nodes, tuple(int(n) for n in data["concat"]))


def from_short(normal: str, reduce: str) -> Genotype:
    """A cell written shortly, ``"sep3 0, sep3 1 | skip 0, dil3 2"``: how the published ones are kept here."""
    long = dict(zip(("max", "avg", "skip", "sep3", "sep5", "dil3", "dil5"), OPERATIONS, strict=True))
    cells = []
    for text in (normal, reduce):
        nodes = [[word.split() for word in node.split(",")] for node in text.split("|")]
        read = tuple(tuple((long[op], int(source)) for op, source in node) for node in nodes)
        cells.append(Cell(read, tuple(range(INPUTS, INPUTS + len(read)))))
    return Genotype(*cells)


PUBLISHED = {
    "DARTS_V1": from_short(
        "sep3 1, sep3 0 | skip 0, sep3 1 | skip 0, sep3 1 | sep3 0, skip 2",
        "max 0, max 1 | skip 2, max 0 | max 0, skip 2 | skip 2, avg 0",
    ),
    "DARTS_V2": from_short(
        "sep3 0, sep3 1 | sep3 0, sep3 1 | sep3 1, skip 0 | skip 0, dil3 2",
        "max 0, max 1 | skip 2, max 1 | max 0, skip 2 | skip 2, max 1",
    ),
    "XNAS": from_short(
        "sep3 1, skip 0 | sep3 0, sep3 2 | sep3 3, sep3 1 | dil5 4, sep3 0",
        "max 0, avg 1 | avg 0, skip 2 | dil3 3, max 0 | dil5 4, avg 0",
    ),
    "BayesNAS-0.01": from_short(  # named by lambda; several operations an edge, any number of inputs a node
        "sep5 1, sep5 0, max 0, avg 0, skip 0 | max 1, skip 1 | skip 1, max 0 | avg 2",
        "skip 1, sep3 0, avg 0, max 0, sep5 0 | max 0, avg 0 | sep3 0, avg 0 | sep5 2",
    ),
    "BayesNAS-0.007": from_short(
        "sep3 0, skip 0 | sep3 1, skip 1 | skip 1, sep3 0 | sep5 0, max 0, avg 0, skip 2",
        "sep5 1, avg 1, avg 0, max 0, skip 0, sep5 0 | avg 0, skip 2 | avg 0, sep5 2, skip 2 | avg 2, max 2",
    ),
    "BayesNAS-0.005": from_short(
        "max 0, avg 0, skip 0 | skip 1, sep5 0 | avg 1, skip 0, max 0 | sep5 0, max 2",
        "sep3 1, sep5 1, max 1, avg 0, max 0 | max 2, avg 2, skip 2 | skip 0, max 0 | sep3 0, max 0, max 2",
    ),
}
