"""The graphs and grids of the chosen network's drawing, and how a mixture of operations was decided."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sartor.report import figures
from sartor.report.files import Files
from sartor.report.text import Html, esc
from sartor.runs.schema import Mixture, MixtureGroup
from sartor.spaces.drawing import Graph, Grid

_STEP, _LEFT, _HIGH = 150, 70, 300  # pixels between nodes, before the first one, and of the whole drawing
_MARGIN, _TOP, _CELL = 190, 22, 14  # pixels before a grid's first column, above its first row, and of a cell


def cells(files: Files) -> dict[str, Any] | None:
    """What is to be seen of the chosen network beside its choices, and how it was decided; None without either."""
    curves = mixture(files.facts.mixture)
    drawings = [{"name": g.title, "figure": draw_graph(g)} for g in files.drawing.graphs]
    drawings += [{"name": g.title, "figure": draw_grid(g)} for g in files.drawing.grids]
    return {"drawings": drawings, "curves": curves} if drawings or curves else None


def mixture(recorded: Mixture | None) -> list[dict[str, Any]]:
    """Curves over the epochs, a line for every group of forecasters: entropy (54), options left, largest weight."""
    if recorded is None or not recorded.epochs:
        return []
    found = []

    def curve(title: str, axis: str, value: Callable[[Any, int], float]) -> None:
        series = {
            _group(group, n): [value(epoch, n) for epoch in recorded.epochs] for n, group in enumerate(recorded.groups)
        }
        found.append({"name": title, "figure": figures.curves(series, f"{title} over the epochs of the search", axis)})

    curve("normalised entropy", "entropy", lambda e, n: e.groups[n].entropy)
    curve("options left per choice, mean", "remaining", lambda e, n: e.groups[n].remaining)
    curve(
        "largest weight of a choice, mean",
        "weight",
        lambda e, n: sum(max(row) for row in e.weights[n]) / len(e.weights[n]),
    )
    return found


def _group(group: MixtureGroup, number: int) -> str:
    """A short name for choices that learn alike: what their names begin with, if that is one word."""
    words = {choice.split(".")[0] for choice in group.choices}
    return f"{words.pop()} cells" if len(words) == 1 else f"group {number + 1}: {len(group.choices)} choices"


def draw_graph(graph: Graph) -> Html:
    """Inputs on the left, nodes in their order; every labelled edge is a line with its label, any other is dashed."""
    middle, last = _HIGH // 2, len(graph.nodes) - 1
    reached = {
        n: sorted((e for e in graph.edges if e.target == n and e.label), key=lambda e: e.source)
        for n in range(len(graph.nodes))
    }
    places = {}
    for n in range(len(graph.nodes)):
        if n < graph.inputs:
            places[n] = (_LEFT, middle + round(120 * (n - (graph.inputs - 1) / 2)))
        else:
            k = n - graph.inputs
            places[n] = (_LEFT + _STEP * (k + 1), middle if n == last else middle - 40 if k % 2 else middle + 40)
    lines, labels = [], []
    for n, edges in reached.items():
        # From the highest source down, so that lines cross as little as they can.
        for k, edge in enumerate(sorted(edges, key=lambda e: places[e.source][1])):
            x, y = places[n]
            line, label = _line(places[edge.source], (x, y + 12 * (2 * k - len(edges) + 1) // 2), edge.label)
            lines.append(line)
            labels.append(label)
    lines += [
        _curve(places[e.source], places[e.target], 'stroke-dasharray="3 3" opacity=".5"')
        for e in graph.edges
        if not e.label
    ]
    boxes = [_box(place, graph.nodes[n], max(17, 6 * len(reached[n]) + 5)) for n, place in places.items()]
    words = "; ".join(
        f"{graph.nodes[n]} adds " + " and ".join(f"{e.label} of {graph.nodes[e.source]}" for e in edges)
        for n, edges in reached.items()
        if edges
    )
    more = max(0, 6 * max(map(len, reached.values())) - 25)  # room for lines that swing around the tallest boxes
    return Html(
        f'<svg viewBox="0 {-more} {places[last][0] + _LEFT} {_HIGH + 2 * more}" role="img" '
        f'style="width:100%;height:auto;max-width:{min(960, places[last][0] + _LEFT)}px" '
        f'font-size="11" fill="currentColor"><title>{esc(f"The {graph.title}: {words}.")}</title>'
        f"{''.join(lines)}{''.join(boxes)}{''.join(labels)}</svg>"
    )


def _curve(start: tuple[int, int], end: tuple[int, int], style: str) -> str:
    """Lines that pass other nodes swing around them, above or below."""
    (a, b), (c, d) = (start[0] + 34, start[1]), (end[0] - 34, end[1])
    bend, passed = (c - a) / 2, (end[0] - start[0]) // _STEP - 1
    swing = 55 * min(2, passed) * (-1 if b + d < _HIGH else 1)
    shape = f"M{a} {b}C{a + bend:g} {b + swing} {c - bend:g} {d + swing} {c} {d}"
    return f'<path d="{shape}" fill="none" stroke="currentColor" {style}></path>'


def _line(start: tuple[int, int], end: tuple[int, int], operation: str) -> tuple[str, str]:
    """An operation from its source to its node, its name where the line arrives; heavier work, heavier line."""
    width = 2.2 if "conv" in operation else 1.2
    text = operation.replace("_", " ").replace("3x3", "3×3").replace("5x5", "5×5")
    label = (
        f'<text x="{end[0] - 40}" y="{end[1] - 3}" text-anchor="end" font-size="10" '
        f'paint-order="stroke" stroke="Canvas" stroke-width="3">{esc(text)}</text>'
    )
    return _curve(start, end, f'stroke-width="{width}" opacity=".75"'), label


def _box(place: tuple[int, int], name: str, half: int = 17) -> str:
    """A node: as high as the lines that arrive need, `half` above and below its middle."""
    x, y = place
    words = name.split(" ", 1) if len(name) > 9 else [name]
    text = "".join(f'<tspan x="{x}" dy="{12 if k else 0}">{esc(w)}</tspan>' for k, w in enumerate(words))
    return (
        f'<rect x="{x - 34}" y="{y - half}" width="68" height="{2 * half}" rx="6" fill="Canvas" '
        f'stroke="currentColor"></rect>'
        f'<text x="{x}" y="{y - 2 if len(words) > 1 else y + 4}" text-anchor="middle">{text}</text>'
    )


def draw_grid(grid: Grid) -> Html:
    """A square for every row and column, filled where the column has what the row names."""
    filled, marks = set(grid.filled), []
    for row, name in enumerate(grid.rows):
        y = _TOP + _CELL * row
        marks.append(f'<text x="{_MARGIN - 8}" y="{y + 9}" text-anchor="end">{esc(name)}</text>')
        for n, column in enumerate(grid.columns):
            look = 'fill="currentColor" opacity=".8"' if (row, n) in filled else 'fill="none" opacity=".25"'
            marks.append(
                f'<rect x="{_MARGIN + _CELL * n}" y="{y}" width="{_CELL - 3}" height="{_CELL - 3}" rx="2" '
                f'stroke="currentColor" {look}><title>{esc(f"{column}: {name}")}</title></rect>'
            )
    for n in range(0, len(grid.columns), 6):
        marks.append(f'<text x="{_MARGIN + _CELL * n}" y="{_TOP - 8}">{n + 1}</text>')
    empty = len(grid.columns) - len({column for _, column in filled})
    words = (
        f"{grid.title}: {len(filled)} of {len(grid.rows) * len(grid.columns)} in {len(grid.columns)} columns, "
        f"of which {empty} have none"
    )
    width, height = _MARGIN + _CELL * len(grid.columns) + 8, _TOP + _CELL * len(grid.rows) + 6
    return Html(
        f'<svg viewBox="0 0 {width} {height}" role="img" style="width:100%;height:auto;max-width:{width}px" '
        f'font-size="10" fill="currentColor"><title>{esc(words)}.</title>{"".join(marks)}</svg>'
    )
