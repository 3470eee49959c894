"""A result as a notebook shows it: the certificate, every optimal trade-off, what is taken for what.

It stands in a frame of its own, so that neither its style nor the notebook's touches the other, and without scripts.
"""

from __future__ import annotations

from pathlib import Path

from sartor.report.files import Files
from sartor.report.sections.frontier import frontier
from sartor.report.sections.headline import headline
from sartor.report.sections.mistakes import confusions
from sartor.report.text import Html, esc

_STYLE = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
_OWN = "body{background:none} section{margin:0 0 10px} .upright.cursor,.mark.ring{display:none}"


def frame(path: Path) -> str:
    """The HTML of one finished run, or of a further budget of it."""
    files = Files.open(path)
    judged, traded = files.judged, frontier(files)
    body: list[str] = [_certificate(files)]
    if traded and not traded["empty"]:
        title = f"Every optimal trade-off: {traded['count']} networks"
        body.append(f"<section><h2>{esc(title)}</h2>{traded['figure']}</section>")
    if judged and (matrix := confusions(judged)):
        words = "percent of each class (rows) that is given each answer (columns)"
        body.append(f"<section><h2>What is taken for what</h2><p class=muted>{words}</p>{matrix}</section>")
    page = f"<!doctype html><meta charset=utf-8><style>{_STYLE}{_OWN}</style><main>{''.join(body)}</main>"
    height = 330 + (470 if len(body) > 1 else 0) + (210 + 26 * min(20, len(judged.classes)) if judged else 0)
    return (
        f'<iframe sandbox srcdoc="{esc(page)}" style="width:100%;height:{height}px;border:0" '
        f'title="{esc(files.name)}"></iframe>'
    )


def _certificate(files: Files) -> Html:
    """The verdict, what carries it, and every cost: asked, predicted, measured."""
    told = headline(files)
    tiles = "".join(
        f'<div class="tile"><b>{esc(f["value"])}</b><span>{esc(f["label"])}</span><small>{esc(f["more"])}</small></div>'
        for f in told["facts"]
    )
    rows = "".join(
        f"<tr><td>{esc(b['name'])}</td>"
        + "".join(f"<td class=num>{esc(b[key] or '')}</td>" for key in ("asked", "predicted", "measured"))
        + "</tr>"
        for b in told["budgets"]
    ) + "".join(
        f"<tr><td>{esc(name)}</td><td></td><td></td><td class=num>{esc(value)}</td></tr>"
        for name, value in told["others"]
    )
    spoken = f": {', '.join(told['spoken'])}" if told["spoken"] else ""
    return Html(
        f'<section class="hero {"good" if told["fits"] else "open"}"><h1>{esc(told["verdict"] + spoken)}</h1>'
        f'<div class="tiles">{tiles}</div><table class="plain"><thead><tr><th>cost</th><th>asked</th><th>predicted</th>'
        f"<th>measured</th></tr></thead>{rows}</table></section>"
    )
