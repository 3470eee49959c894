"""BayesNAS's switches: the posterior of each, the graph before and after, and what left in which round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sartor.report.figures import Plot, Scale
from sartor.report.files import Files
from sartor.report.text import Html, esc, number, signed
from sartor.runs.schema import Posterior, SwitchRound

_STEP, _LEFT, _HIGH = 120, 55, 210  # pixels between nodes, before the first one, and of the whole drawing
_MOST = 6  # graphs that are drawn
_LOWEST = -3.0  # entropies below this are drawn at it: what is gone has one of minus infinity
_REASONS = {
    "entropy": "no positive entropy",
    "edge": "their edge's zero switch is off",
    "source": "nothing reaches the node they read",
    "unread": "nobody reads the node they feed",
}
_DEPENDENCY = {
    "full": "A switch's relevance counts its edge's zero switch and all predecessors of its node (equation 8).",
    "zero": "A switch's relevance counts its edge's zero switch, but not its predecessors.",
    "none": "Every switch is judged on its own, without dependencies.",
}


def switches(files: Files) -> dict[str, Any] | None:
    """None where the search had no switches."""
    learnt = files.facts.switches
    if learnt is None:
        return None
    posterior = learnt.posterior
    graphs = _graphs(posterior)
    return {
        "threshold": number(learnt.threshold, 3),
        "strength": number(learnt.strength, 3),
        "dependency": _DEPENDENCY[learnt.dependency],
        "hessian": learnt.hessian,
        "count": len(posterior),
        "left": sum(not p.removed for p in posterior),
        "figure": _entropies(posterior),
        "rounds": [_round(r) for r in learnt.rounds],
        "reasons": list(_REASONS.values()),
        "graphs": [{"name": n, "before": draw(g, n, False), "after": draw(g, n, True)} for n, g in graphs[:_MOST]],
        "more_graphs": max(0, len(graphs) - _MOST),
        "rows": [_row(p) for p in posterior],
    }


def _round(entry: SwitchRound) -> dict[str, Any]:
    reasons = [removed.why for removed in entry.removed]
    return {
        "number": entry.round,
        "counts": [reasons.count(why) for why in _REASONS],
        "left": entry.left,
        "names": [f"{r.switch} ({_REASONS[r.why]})" for r in entry.removed],
        "kept": entry.kept,
        "isolated": entry.isolated,
    }


def _row(entry: Posterior) -> dict[str, str]:
    gone = entry.removed
    return {
        "name": entry.switch,
        "places": str(entry.places),
        "mean": number(entry.mean, 3),
        "variance": number(entry.variance, 3),
        "s": number(entry.s, 3),
        "gamma": number(entry.gamma, 3),
        "entropy": signed(entry.entropy),
        "state": f"gone in round {gone}" if gone else "on",
    }


def _entropies(posterior: Sequence[Posterior]) -> Html:
    """Every switch by its entropy, largest first, against the threshold."""
    ordered = sorted(posterior, key=lambda p: -p.entropy)
    values = [max(_LOWEST, p.entropy) for p in ordered]
    plot = Plot(
        Scale(0.0, len(ordered) + 1.0),
        Scale.around([*values, 0.0]),
        "switches, by entropy",
        "entropy",
        height=260,
        whole=True,
    )
    plot.line([(0.0, 0.0), (len(ordered) + 1.0, 0.0)], "diagonal", "the threshold: at or below it a switch goes")
    for style, gone in (("dots", False), ("dots s1", True)):
        some = [
            (n + 1.0, v, p) for n, (v, p) in enumerate(zip(values, ordered, strict=True)) if bool(p.removed) == gone
        ]
        titles = [f"{p.switch}: entropy {signed(p.entropy)}, relevance {number(p.gamma, 3)}" for _, _, p in some]
        plot.dots([(x, y) for x, y, _ in some], style, titles)
    return plot.html("Every switch's entropy against the threshold of zero; those at or below it left")


def _graphs(posterior: Sequence[Posterior]) -> list[tuple[str, list[Posterior]]]:
    """The switches of operations, one list for every part of the circuit that hangs together by its nodes' names."""
    found: dict[str, list[Posterior]] = {}
    for entry in posterior:
        if entry.feeds is not None:
            found.setdefault(entry.feeds.rpartition(".")[0], []).append(entry)
    return list(found.items())


def _levels(entries: Sequence[Posterior]) -> list[str]:
    """The nodes, each after all that feed it."""
    feeding: dict[str, set[str]] = {}
    for entry in entries:
        feeding.setdefault(entry.reads, set())
        feeding.setdefault(str(entry.feeds), set()).add(entry.reads)
    done: list[str] = []
    while len(done) < len(feeding):
        ready = sorted(n for n, sources in feeding.items() if n not in done and sources <= set(done))
        if not ready:
            raise ValueError("the switches' nodes form a cycle")
        done += ready
    return done


def draw(entries: Sequence[Posterior], name: str, after: bool) -> Html:
    """Nodes from left to right; a line is an edge, as thick as it has operations; what left is dashed."""
    nodes = _levels(entries)
    inputs = [n for n in nodes if all(e.feeds != n for e in entries)]
    places = {n: (_LEFT, _HIGH // 2 + (k - (len(inputs) - 1) / 2) * 70) for k, n in enumerate(inputs)}
    for k, node in enumerate(n for n in nodes if n not in inputs):
        places[node] = (_LEFT + _STEP * (k + 1), _HIGH // 2 + (28 if k % 2 else -28))
    edges: dict[tuple[str, str], list[Posterior]] = {}
    for entry in entries:
        edges.setdefault((entry.reads, str(entry.feeds)), []).append(entry)
    lines = []
    for (source, node), here in edges.items():
        left = [e for e in here if not (after and e.removed)]
        words = ", ".join(e.switch.rpartition(".")[2].replace("_", " ") for e in left) or "none"
        look = f'stroke-width="{0.8 + 0.6 * len(left):.1f}" opacity=".6"'
        look = look if left else 'stroke-width="1" stroke-dasharray="2 4" opacity=".3"'
        label = f"{source} to {node}: {len(left)} of {len(here)} operations ({words})"
        lines.append(
            f'<path d="{_curve(places[source], places[node])}" fill="none" stroke="currentColor" {look}>'
            f"<title>{esc(label)}</title></path>"
        )
    dead = {n for n in nodes if n not in inputs and after and all(e.removed for e in entries if e.feeds == n)}
    boxes = [_box(places[n], n.rpartition(".")[2], n in dead) for n in nodes]
    width = _LEFT * 2 + _STEP * (len(nodes) - len(inputs))
    count = sum(not (after and e.removed) for e in entries)
    words = f"{name}, {'after' if after else 'before'} the search: {count} operations"
    return Html(
        f'<svg viewBox="0 0 {width} {_HIGH}" role="img" style="width:100%;height:auto;max-width:{width}px" '
        f'font-size="12" fill="currentColor"><title>{esc(words)}.</title>{"".join(lines)}{"".join(boxes)}</svg>'
    )


def _curve(start: tuple[float, float], end: tuple[float, float]) -> str:
    (a, b), (c, d) = start, end
    swing = 0 if c - a <= _STEP else (45 if b + d > _HIGH else -45)
    return f"M{a + 15:g} {b:g}C{(a + c) / 2:g} {b + swing:g} {(a + c) / 2:g} {d + swing:g} {c - 15:g} {d:g}"


def _box(place: tuple[float, float], name: str, dead: bool) -> str:
    x, y = place
    look = ' stroke-dasharray="3 3" opacity=".4"' if dead else ""
    return (
        f'<circle cx="{x:g}" cy="{y:g}" r="15" fill="Canvas" stroke="currentColor"{look}></circle>'
        f'<text x="{x:g}" y="{y + 4:g}" text-anchor="middle"{look}>{esc(name)}</text>'
    )
