"""Charts as HTML and SVG text.

Why not Plotly: its bundle alone is 4.8 MB of script to parse, for charts that need neither zooming nor 3D.
These are static and weigh a few kB. Curves are SVG stretched to the width at hand with strokes that do not
stretch; labels are HTML placed in percent. So a chart fits any window, prints, and its text keeps its size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from sartor.report.text import Html, esc, number

Format = Callable[[float], str]
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Scale:
    """A linear axis from `low` to `high`, in percent of the chart's side."""

    low: float
    high: float

    @classmethod
    def around(cls, values: Sequence[float], room: float = 0.05) -> Scale:
        """An axis that shows all values with some room at both ends."""
        low, high = min(values), max(values)
        gap = (high - low) * room or abs(high) * 0.1 or 1.0
        return cls(low - gap, high + gap)

    def at(self, value: float) -> float:
        """Where a value lies, in percent; outside values stay at the edge."""
        return round(min(100.0, max(0.0, 100 * (value - self.low) / (self.high - self.low))), 2)

    def ticks(self, most: int = 6) -> list[float]:
        """Round numbers, at most so many."""
        raw = (self.high - self.low) / most
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw * (1 - 1e-9))
        first = math.ceil(self.low / step - 1e-9)
        return [round(k * step, 12) for k in range(first, math.floor(self.high / step + 1e-9) + 1)]


@dataclass
class Plot:
    """One chart under construction: add layers, then take its `html`."""

    x: Scale
    y: Scale
    x_title: str
    y_title: str
    x_format: Format = number
    y_format: Format = number
    height: int = 280
    square: bool = False
    whole: bool = False  # the x axis counts something
    svg: list[str] = field(default_factory=list)
    over: list[str] = field(default_factory=list)

    def line(self, points: Points, style: str = "line", title: str = "", steps: bool = False) -> None:
        """A curve; with `steps` it stays level until the next point."""
        path = ""
        for x, y in points:
            here = f"{self.x.at(x)} {100 - self.y.at(y):.2f}"
            path += f"M{here}" if not path else f"H{self.x.at(x)}V{100 - self.y.at(y):.2f}" if steps else f"L{here}"
        self.svg.append(f'<path class="{esc(style)}" d="{path}">{_title(title)}</path>')

    def dots(self, points: Points, style: str = "dots", titles: Sequence[str] = ()) -> None:
        """Round marks: lines of no length with round ends, which stay round however the chart is stretched."""
        marks = [f"M{self.x.at(x)} {100 - self.y.at(y):.2f}h.001" for x, y in points]
        if titles:
            paired = zip(marks, titles, strict=True)
            self.svg += [f'<path class="{esc(style)}" d="{m}">{_title(t)}</path>' for m, t in paired]
        elif marks:
            self.svg.append(f'<path class="{esc(style)}" d="{"".join(marks)}"></path>')

    def mark(self, x: float, y: float, style: str, title: str = "", name: str = "") -> None:
        """A single HTML mark over the curves; with a `name` (an id) the page's script can move it."""
        given = f' id="{esc(name)}"' if name else ""
        place = f"left:{self.x.at(x)}%;bottom:{self.y.at(y)}%"
        self.over.append(f'<span{given} class="mark {esc(style)}" style="{place}" title="{esc(title)}"></span>')

    def upright(self, x: float, text: str, style: str = "limit", name: str = "") -> None:
        """A vertical line with a word at its top, to the side that has room."""
        given = f' id="{esc(name)}"' if name else ""
        at = self.x.at(x)
        side = "from-right" if at > 50 else "from-left"
        label = f'<span class="{side}">{esc(text)}</span>' if text else ""
        self.over.append(f'<div{given} class="upright {esc(style)}" style="left:{at}%">{label}</div>')

    def html(self, label: str, name: str = "") -> Html:
        """The finished chart; `label` says in words what it shows, for those who cannot see it."""
        xs, ys = self.x.ticks(), self.y.ticks(5)
        if self.whole:
            xs = [v for v in xs if v == round(v)]
        grid = "".join(f"M0 {100 - self.y.at(v):.2f}H100" for v in ys)
        words = "".join(f'<span class="xt" style="left:{self.x.at(v)}%">{esc(self.x_format(v))}</span>' for v in xs)
        words += "".join(f'<span class="yt" style="bottom:{self.y.at(v)}%">{esc(self.y_format(v))}</span>' for v in ys)
        given = f' id="{esc(name)}"' if name else ""
        shape = "plot square" if self.square else "plot"
        return Html(
            f'<div class="{shape}" role="img" aria-label="{esc(label)}"><div class="y-title">{esc(self.y_title)}</div>'
            f'<div class="area"{given} style="--height:{self.height}px">'
            f'<svg viewBox="0 0 100 100" preserveAspectRatio="none"><path class="grid" d="{grid}"></path>'
            f"{''.join(self.svg)}</svg>{words}{''.join(self.over)}</div>"
            f'<div class="x-title">{esc(self.x_title)}</div></div>'
        )


def _title(text: str) -> str:
    return f"<title>{esc(text)}</title>" if text else ""


def agreement(predicted: Sequence[float], measured: Sequence[float], unit: str, label: str, fmt: Format) -> Html:
    """Predicted against measured with the diagonal, on one scale for both so that a distance means the same."""
    scale = Scale.around([*predicted, *measured])
    plot = Plot(
        scale, scale, f"predicted, {unit}", f"measured, {unit}", x_format=fmt, y_format=fmt, height=320, square=True
    )
    plot.line([(scale.low, scale.low), (scale.high, scale.high)], "diagonal", "measured = predicted")
    titles = [f"predicted {fmt(p)}, measured {fmt(m)}" for p, m in zip(predicted, measured, strict=True)]
    plot.dots(list(zip(predicted, measured, strict=True)), "dots big", titles)
    return plot.html(label)


@dataclass(frozen=True)
class Row:
    """One line of a forest: a value with half of its 95 % interval, and a price; no label makes it a rule."""

    label: str
    value: float
    half: float | None = None
    price: float | None = None
    picked: bool = False
    title: str = ""


def reach(rows: Sequence[Row]) -> float:
    """How far the rows' values and intervals go from zero."""
    return max((abs(r.value) + (r.half or 0.0) for r in rows), default=0.0) or 1.0


@dataclass(frozen=True)
class Forest:
    """How a page's forests are drawn, alike in all of them so that they compare."""

    widest: float  # how far the values go from zero
    dearest: float  # how far the prices go from zero
    write: Format
    write_price: Format

    def html(self, rows: Sequence[Row]) -> Html:
        """Values about zero as dots with their intervals and prices as bars, one line each."""
        return Html(f'<div class="forest">{"".join(self._row(r) for r in rows)}</div>')

    def _row(self, row: Row) -> str:
        if not row.label:
            return '<div class="rule"></div>'
        price = "<div></div><div></div>" if row.price is None else _bar(row.price, self.dearest, self.write_price)
        return _dot(row, Scale(-self.widest * 1.04, self.widest * 1.04), self.write) + price


def _bar(price: float, dearest: float, write: Format) -> str:
    """A price as a bar from the middle, and in words."""
    width = 50 * min(1.0, abs(price) / dearest)
    style = f"left:{50 - width if price < 0 else 50:.2f}%;width:{width:.2f}%"
    return f'<div class="f-bar"><i style="{style}"></i></div><div class="f-price">{esc(write(price))}</div>'


def _dot(row: Row, scale: Scale, write: Format) -> str:
    """A label, a value with its interval as a mark, and in words."""
    bar = ""
    if row.half is not None:
        left, right = scale.at(row.value - row.half), scale.at(row.value + row.half)
        bar = f'<i class="whisker" style="left:{left}%;width:{right - left:.2f}%"></i>'
    sure = row.half is not None and abs(row.value) > row.half
    tone = ("up" if row.value > 0 else "down") if sure else "unsure"
    error = "" if row.half is None else f" <small>± {row.half:.2f}</small>"
    name = f"<b>{esc(row.label)}</b>" if row.picked else esc(row.label)
    return (
        f'<div class="f-label" title="{esc(row.title)}">{name}</div>'
        f'<div class="f-plot {tone}">{bar}<i class="dot" style="left:{scale.at(row.value)}%"></i></div>'
        f'<div class="f-value">{esc(write(row.value))}{error}</div>'
    )


def heat(
    columns: Sequence[str],
    rows: Sequence[tuple[str, Sequence[float], Sequence[str], int | None]],
    widest: float,
    write: Format,
) -> Html:
    """A table whose cells are coloured by value: (label, values, titles, index of the picked one or None) a row."""
    head = "".join(f"<th scope=col>{esc(c)}</th>" for c in columns)
    body = ""
    for label, values, titles, picked in rows:
        cells = ""
        for n, (value, title) in enumerate(zip(values, titles, strict=True)):
            tone = "up" if value >= 0 else "down"
            strength = min(1.0, abs(value) / widest)
            chosen = " picked" if n == picked else ""
            cells += (
                f'<td class="{tone}{chosen}" style="--v:{strength:.2f}" title="{esc(title)}">{esc(write(value))}</td>'
            )
        body += f"<tr><th scope=row>{esc(label)}</th>{cells}</tr>"
    return Html(f'<div class="scroll"><table class="heat"><thead><tr><td></td>{head}</tr></thead>{body}</table></div>')


def curves(series: Mapping[str, Sequence[float]], label: str, axis: str = "loss") -> Html:
    """Several curves over epochs, with a legend where there is more than one."""
    values = [v for s in series.values() for v in s]
    epochs = max(len(s) for s in series.values())
    scale = Scale(1.0, epochs) if epochs > 1 else Scale(0.5, 1.5)
    plot = Plot(scale, Scale.around([*values, 0.0]), "epoch", axis, height=190, whole=True)
    for k, (name, points) in enumerate(series.items()):
        numbered = [(n + 1.0, v) for n, v in enumerate(points)]
        plot.line(numbered, f"line s{k % 5}", name)
        if epochs <= 40:
            plot.dots(numbered, f"dots s{k % 5}", [f"{name}, epoch {n:.0f}: {number(v)}" for n, v in numbered])
    legend = "".join(f'<span class="key s{k % 5}">{esc(name)}</span>' for k, name in enumerate(series))
    return Html(plot.html(label) + (f'<div class="legend">{legend}</div>' if len(series) > 1 else ""))


def bars(rows: Sequence[tuple[str, float, str]]) -> Html:
    """Labelled horizontal bars: (label, length, words)."""
    most = max((length for _, length, _ in rows), default=0.0) or 1.0
    cells = "".join(
        f'<div>{esc(label)}</div><div class="track"><i style="width:{100 * length / most:.1f}%"></i></div>'
        f"<div>{esc(words)}</div>"
        for label, length, words in rows
    )
    return Html(f'<div class="bars">{cells}</div>')
