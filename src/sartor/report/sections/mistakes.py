"""Where the network errs: what is taken for what, its surest mistakes as pictures, whether it knows when it errs."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from sartor.report import figures
from sartor.report.figures import Plot, Scale
from sartor.report.files import Files
from sartor.report.text import Html, esc, number
from sartor.runs.schema import EvaluationFile, Mistake, Reliability

_CLASSES = 20  # in one table
_FULL = 40.0  # percent of a class that are told in full colour
_JPEG = b"\xff\xd8\xff"


def mistakes(files: Files) -> dict[str, Any] | None:
    """Of the test images; runs before evaluation.json have none of it."""
    found = files.judged
    if found is None:
        return None
    trust = found.reliability
    return {
        "matrix": confusions(found),
        "hidden": max(0, len(found.classes) - _CLASSES) if found.confusion else 0,
        "confused": [(found.classes[a], found.classes[b], n) for a, b, n in found.confused()[:10]],
        "pictures": [p for m in found.mistakes if (p := _picture(found, m))],
        "curve": _curve(trust),
        "error": f"{trust.error:.1f}",
        "scaled": f"{trust.error_scaled:.1f}",
        "temperature": number(trust.temperature, 3),
        "fitted_on": trust.fitted_on,
    }


def confusions(found: EvaluationFile) -> Html | None:
    """Classes against answers in percent of each class; of many classes, those that are confused most."""
    if found.confusion is None:
        return None
    weight = [0] * len(found.classes)
    for a, b, n in found.confused():
        weight[a] += n
        weight[b] += n
    kept = sorted(sorted(range(len(weight)), key=lambda k: (-weight[k], k))[:_CLASSES])
    table = {(a, b): n for a, b, n in found.confusion}
    names, rows = [found.classes[k] for k in kept], []
    for k in kept:
        many = found.counts[k]
        # Mistakes below zero, which colours them otherwise.
        shares = [(1 if j == k else -1) * 100 * table.get((k, j), 0) / max(1, many) for j in kept]
        titles = [f"{table.get((k, j), 0)} of {many} {found.classes[k]}: {found.classes[j]}" for j in kept]
        rows.append((found.classes[k], shares, titles, kept.index(k)))
    return figures.heat(names, rows, _FULL, lambda v: f"{abs(v):.0f}" if v else "")


def _picture(found: EvaluationFile, m: Mistake) -> Html | None:
    """A figure with the picture inside; what is no JPEG is left out, for the file may come from anybody."""
    try:
        if not base64.b64decode(m.picture, validate=True).startswith(_JPEG):
            return None
    except (ValueError, binascii.Error):
        return None
    truth, said = (", ".join(found.classes[k] for k in numbers) or "nothing" for numbers in (m.truth, m.said))
    return Html(
        f'<figure><img src="data:image/jpeg;base64,{esc(m.picture)}" alt="{esc(m.name)}" title="{esc(m.name)}">'
        f"<figcaption><b>{esc(said)}</b> {100 * m.chance:.0f} %<br>is {esc(truth)}</figcaption></figure>"
    )


def _curve(trust: Reliability) -> Html:
    """What was promised against what came true, in percent, before and after the temperature."""
    scale = Scale(0.0, 100.0)
    plot = Plot(scale, scale, "probability that the network gave, %", "of these were right, %", height=300, square=True)
    plot.line([(0.0, 0.0), (100.0, 100.0)], "diagonal", "as often as promised")
    for style, title, promised, kept in (
        ("s1", "as it is", trust.promised, trust.kept),
        ("s0", "with its temperature", trust.promised_scaled, trust.kept_scaled),
    ):
        points = [(100 * p, 100 * k) for p, k in zip(promised, kept, strict=True)]
        told = [f"{title}: {p:.0f} % promised, {k:.0f} % of {n} right"
                for (p, k), n in zip(points, trust.images, strict=True)]  # fmt: skip
        plot.line(points, f"line {style}", title)
        plot.dots(points, f"dots big {style}", told)
    return plot.html("Probabilities against how often they came true")
