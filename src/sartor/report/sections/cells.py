"""Cells as a drawing, where the network's string is a genotype, and the mixture's weights over the search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sartor.core.errors import BadInput
from sartor.report import figures
from sartor.report.files import Files
from sartor.report.sections import trees as _trees
from sartor.report.text import Html, esc
from sartor.spaces.cells.genotype import INPUTS, Cell, Genotype

_STEP, _LEFT, _HIGH = 150, 70, 300  # pixels between nodes, before the first one, and of the whole drawing


def cells(files: Files) -> dict[str, Any] | None:
    """The two cells of the chosen network and how their search went; None where there is neither."""
    string = str((files.own("solution.json") or {}).get("string", ""))
    try:
        genotype = Genotype.from_text(string)
    except BadInput:
        genotype = None
    curves = mixture(((files.searched("score.json") or {}).get("facts") or {}).get("mixture"))
    tree = _trees.draw(string)
    if genotype is None and tree is None and not curves:
        return None
    drawn = [] if genotype is None else [("normal", genotype.normal), ("reduction", genotype.reduce)]
    drawings = [{"name": f"{kind} cell", "figure": draw(cell, kind)} for kind, cell in drawn]
    if tree is not None:
        drawings.append({"name": "paths of every block", "figure": tree})
    return {"drawings": drawings, "curves": curves}


def mixture(recorded: Any) -> list[dict[str, Any]]:
    """Curves over the epochs, a line for every group of forecasters: entropy (54), options left, largest weight."""
    if not recorded or not recorded.get("epochs"):
        return []
    names = [_group(group, n) for n, group in enumerate(recorded["groups"])]
    epochs = recorded["epochs"]
    found = []
    for key, title in (("entropy", "normalised entropy"), ("remaining", "options left a choice, mean")):
        series: dict[str, Sequence[float]] = {
            name: [float(e["groups"][n][key]) for e in epochs] for n, name in enumerate(names)
        }
        found.append({"name": title, "figure": figures.curves(series, f"{title} over the epochs of the search", key)})
    largest: dict[str, Sequence[float]] = {
        name: [sum(max(row) for row in e["weights"][n]) / len(e["weights"][n]) for e in epochs]
        for n, name in enumerate(names)
    }
    title = "largest weight of a choice, mean"
    found.append({"name": title, "figure": figures.curves(largest, f"{title} over the epochs of the search", "weight")})
    return found


def _group(group: Any, number: int) -> str:
    """A short name for choices that learn alike: what their names begin with, if that is one word."""
    words = {str(choice).split(".")[0] for choice in group["choices"]}
    return f"{words.pop()} cells" if len(words) == 1 else f"group {number + 1}: {len(group['choices'])} choices"


def draw(cell: Cell, kind: str) -> Html:
    """Inputs on the left, nodes in their order, the output on the right; every operation is a labelled line."""
    nodes = len(cell.nodes)
    middle = _HIGH // 2
    places = {0: (_LEFT, middle - 60), 1: (_LEFT, middle + 60)}
    for n in range(nodes):
        places[INPUTS + n] = (_LEFT + _STEP * (n + 1), middle - 40 if n % 2 else middle + 40)
    out = (_LEFT + _STEP * (nodes + 1), middle)
    lines, labels = [], []
    for n, reads in enumerate(cell.nodes):
        # From the highest source down, so that lines cross as little as they can.
        for k, (operation, source) in enumerate(sorted(reads, key=lambda read: places[read[1]][1])):
            end = places[INPUTS + n]
            line, label = _line(places[source], (end[0], end[1] + 12 * (2 * k - len(reads) + 1) // 2), operation)
            lines.append(line)
            labels.append(label)
    for n in cell.concat:
        lines.append(_curve(places[n], out, 'stroke-dasharray="3 3" opacity=".5"'))
    arriving = [0, 0, *(len(reads) for reads in cell.nodes)]
    boxes = [_box(place, _name(n), max(17, 6 * arriving[n] + 5)) for n, place in places.items()]
    boxes.append(_box(out, "output"))
    words = "; ".join(
        f"{_name(INPUTS + n)} adds " + " and ".join(f"{operation} of {_name(source)}" for operation, source in reads)
        for n, reads in enumerate(cell.nodes)
    )
    more = max(0, 6 * max(arriving) - 25)  # room for lines that swing around the tallest boxes
    return Html(
        f'<svg viewBox="0 {-more} {out[0] + _LEFT} {_HIGH + 2 * more}" role="img" '
        f'style="width:100%;height:auto;max-width:960px" '
        f'font-size="11" fill="currentColor"><title>{esc(f"The {kind} cell: {words}.")}</title>'
        f"{''.join(lines)}{''.join(boxes)}{''.join(labels)}</svg>"
    )


def _name(node: int) -> str:
    return ("two cells before", "cell before")[node] if node < INPUTS else f"node {node - INPUTS + 1}"


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
