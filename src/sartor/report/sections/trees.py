"""Tree cells as a drawing: which of the nine paths every block keeps."""

from __future__ import annotations

from sartor.report.text import Html, esc
from sartor.spaces.treecell.tree import EDGES, PATHS, way

_LEFT, _TOP, _STEP = 190, 22, 14  # pixels before the first column, above the first row, and from one to the next


def blocks(string: str) -> list[set[str]] | None:
    """The paths of every block, where the network's string is that of the treecell space."""
    found = [set() if word == "-" else set(word.split("+")) for word in string.split()]
    return found if found and all(paths <= set(PATHS) for paths in found) else None


def draw(string: str) -> Html | None:
    """A row a path, a column a block, from the first to the last; None for any other network."""
    cells = blocks(string)
    if cells is None:
        return None
    marks = []
    for row, path in enumerate(PATHS):
        y, name = _TOP + _STEP * row, " → ".join(EDGES[e] for e in way(path))
        marks.append(f'<text x="{_LEFT - 8}" y="{y + 9}" text-anchor="end">{esc(name)}</text>')
        for column, paths in enumerate(cells):
            look = 'fill="currentColor" opacity=".8"' if path in paths else 'fill="none" opacity=".25"'
            marks.append(
                f'<rect x="{_LEFT + _STEP * column}" y="{y}" width="{_STEP - 3}" height="{_STEP - 3}" rx="2" '
                f'stroke="currentColor" {look}><title>{esc(f"block {column + 1}: {name}")}</title></rect>'
            )
    for column in range(0, len(cells), 6):
        marks.append(f'<text x="{_LEFT + _STEP * column}" y="{_TOP - 8}">{column + 1}</text>')
    empty = sum(not paths for paths in cells)
    words = (
        f"{sum(map(len, cells))} of {len(PATHS) * len(cells)} paths in {len(cells)} blocks, of which {empty} have none"
    )
    width, height = _LEFT + _STEP * len(cells) + 8, _TOP + _STEP * len(PATHS) + 6
    return Html(
        f'<svg viewBox="0 0 {width} {height}" role="img" style="width:100%;height:auto;max-width:{width}px" '
        f'font-size="10" fill="currentColor"><title>{esc(words)}.</title>{"".join(marks)}</svg>'
    )
