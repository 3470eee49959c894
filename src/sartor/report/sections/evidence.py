"""The sections that show how far the headline can be trusted: ranking, timing, training, data."""

from __future__ import annotations

from typing import Any

from sartor.core.quadratic import Quadratic
from sartor.report import figures
from sartor.report.figures import Plot, Scale
from sartor.report.files import Files
from sartor.report.text import Html, Unit, amount, number, percent_suffix, seconds

_MEASURES = {"kendall": "Kendall’s τ", "spearman": "Spearman’s ρ", "mse": "mean squared error"}
_CLASSES = 400  # names shown; a page need not list every one of ten thousand


def ranking(files: Files) -> dict[str, Any] | None:
    """Predicted against measured on networks that the score had not seen."""
    score = files.searched("score.json") or {}
    quality, held = score.get("quality"), (score.get("facts") or {}).get("held_out")
    if not quality and not held:
        return None
    figure, suffix = None, percent_suffix(files.unit)
    if held:
        label = "Predicted score against measured accuracy of held-out networks"
        figure = figures.agreement(
            held["predicted"], held["measured"], files.unit, label, lambda v: number(v, 3) + suffix
        )
    rows = [
        {
            "name": _MEASURES.get(name, name),
            "value": number(q["value"], 3),
            "low": number(q["low"], 3),
            "high": number(q["high"], 3),
        }
        for name, q in (quality or {}).items()
        if isinstance(q, dict) and {"value", "low", "high"} <= q.keys()
    ]
    return {"figure": figure, "rows": rows, "networks": (quality or {}).get("networks")}


def timing(files: Files) -> dict[str, Any] | None:
    """The latency table against whole networks, the final timing round by round, and every correction."""
    table = files.table("latency")
    entry = ((files.own("verify.json") or {}).get("costs") or {}).get("latency") or {}
    if not table and not entry.get("timing"):
        return None
    base = files.searched("costs/latency.json")
    return {
        "calibration": _calibration(base) if base else None,
        "rounds": _rounds(entry) if (entry.get("timing") or {}).get("rounds") else None,
        "timing": _timing_rows(entry) if entry.get("timing") else [],
        "corrections": _corrections(files, table),
        "device": _device((table or {}).get("device") or (files.own("verify.json") or {}).get("device") or {}),
    }


def _calibration(table: Any) -> dict[str, Any] | None:
    notes = table["calibration"]
    if not notes.get("networks"):
        return None
    predicted = Quadratic.from_json(table["form"]).batch(notes["networks"]).tolist()
    label = "Predicted against measured time of whole networks"
    figure = figures.agreement(predicted, notes["measured_ms"], "ms", label, lambda v: number(v, 3))
    return {
        "figure": figure, "networks": len(predicted),
        "median": f"{100 * notes['held_out_median_error']:.1f} %",
        "worst": f"{100 * notes['held_out_worst_error']:.1f} %",
    }  # fmt: skip


def _rounds(entry: Any) -> Html:
    """Medians of the rounds in the order they were taken: a slow spell of the machine shows as a hill."""
    timed = entry["timing"]
    values = timed["rounds"]
    plot = Plot(
        Scale(0.5, len(values) + 0.5), Scale.around([*values, timed["low"], timed["high"]], 0.25), "round",
        "median of the round, ms", y_format=lambda v: number(v, 4), height=320, whole=True,
    )  # fmt: skip
    for name in ("low", "high"):
        plot.line([(plot.x.low, timed[name]), (plot.x.high, timed[name])], "diagonal", f"95 % interval: {name}")
    plot.line([(plot.x.low, timed["p50"]), (plot.x.high, timed["p50"])], "level", "median of all calls")
    points = [(n + 1.0, v) for n, v in enumerate(values)]
    plot.dots(points, "dots big", [f"round {n:.0f}: {number(v)} ms" for n, v in points])
    return plot.html("Median time of each round of the final timing")


def _timing_rows(entry: Any) -> list[tuple[str, str]]:
    t = entry["timing"]
    show = Unit.of([entry.get("limit", t["p50"])], "time").show
    rows = [
        ("predicted by the table", show(entry["predicted"])),
        ("measured median (p50)", show(t["p50"])),
        ("its 95 % interval", f"{show(t['low'])} to {show(t['high'])}"),
        ("95th percentile (p95)", show(t["p95"])),
        ("calls timed", number(t["n"])),
    ]
    if "limit" in entry:
        rows.insert(0, ("asked", show(entry["limit"])))
    if t.get("drift"):
        way = "slower" if t["drift"] > 1 else "faster"
        rows.append(("machine since the parts were priced", f"{100 * abs(t['drift'] - 1):.1f} % {way}"))
    return rows


def _corrections(files: Files, table: Any) -> list[dict[str, str]]:
    """From the corrected table where there is one: it also has those that came after verification."""
    listed = ((table or {}).get("calibration") or {}).get("corrections") or []
    pairs = [(c["predicted_ms"], c["measured_ms"]) for c in listed]
    if not pairs:
        pairs = [(c["predicted"], c["measured"]) for c in files.own("solution.json").get("corrections") or ()]
    return [
        {"predicted": amount(p, "time"), "measured": amount(m, "time"), "factor": f"{m / p:.3f}"} for p, m in pairs if p
    ]


def _device(device: dict[str, Any]) -> str:
    words = [str(device[k]) for k in ("processor", "gpu", "platform") if device.get(k)]
    words += [f"{device['runtime']} {device.get('runtime_version', '')}".strip()] if device.get("runtime") else []
    words += [f"{device['threads']} thread{'s' if device['threads'] != 1 else ''}"] if device.get("threads") else []
    words += [f"batch {device['batch']}"] if device.get("batch") else []
    return ", ".join(words)


def training(files: Files) -> dict[str, Any] | None:
    """Curves of every phase, and how long every stage of the run took."""
    facts = (files.searched("score.json") or {}).get("facts") or {}
    phases = dict(facts.get("history") or {})
    trained = files.own("training.json") or {}
    if trained.get("history"):
        phases["chosen network"] = trained["history"]
    cards = [c for name, history in phases.items() if (c := _phase(str(name), history))]
    times = _stages(files)
    if not cards and not times:
        return None
    accuracies = [
        ("heaviest network, validation", facts.get("heaviest_accuracy")),
        ("chosen network before fine-tuning, validation", trained.get("inherited_val_accuracy")),
        ("after fine-tuning, validation", trained.get("val_accuracy")),
        ("after fine-tuning, test", trained.get("test_accuracy")),
    ]
    return {
        "cards": cards, "stages": figures.bars(times), "total": seconds(sum(s for _, s, _ in times)),
        "accuracies": [(name, f"{value:.1f} %") for name, value in accuracies if value is not None],
    }  # fmt: skip


def _phase(name: str, history: Any) -> dict[str, Any] | None:
    """The losses of a phase; whatever it counts per second is a speed and stays out of the curves."""
    if not history:
        return None
    names = [k for k in history[0] if not k.endswith("_per_second")]
    series = {k: [float(h[k]) for h in history if h.get(k) is not None] for k in names}
    speeds = sorted(float(h["images_per_second"]) for h in history if h.get("images_per_second"))
    epochs = f"{len(history)} epoch{'s' if len(history) > 1 else ''}"
    speed = f", {number(speeds[len(speeds) // 2], 3)} images/s" if speeds else ""
    figure = figures.curves({k: v for k, v in series.items() if v}, f"Losses of the phase {name} over its epochs")
    return {"name": name, "figure": figure, "note": epochs + speed}


def _stages(files: Files) -> list[tuple[str, float, str]]:
    """Seconds by stage. The report's own stage is left out: it is listed only after the report is written."""
    listed = dict(files.searched("stages.json") or {})
    if files.is_cut:
        early = ("data", "costs", "search")
        listed = {f"{n} (of the run)": v for n, v in listed.items() if n in early} | (files.own("stages.json") or {})
    kept = {n: v for n, v in listed.items() if n not in ("report", "certificate")}
    return [(n, float(v["seconds"]), seconds(float(v["seconds"]))) for n, v in kept.items()]


def data(files: Files) -> dict[str, Any] | None:
    """Classes, splits and what was skipped."""
    splits = files.searched("splits.json")
    if splits is None:
        return None
    sizes = [
        (title, len(splits[key])) for key, title in (("train", "training"), ("val", "validation"), ("test", "test"))
    ]
    total = sum(n for _, n in sizes) or 1
    classes = [str(c) for c in splits["classes"]]
    return {
        "name": splits["name"], "sizes": [(t, n, 100 * n / total) for t, n in sizes], "total": total,
        "classes": classes[:_CLASSES], "hidden": max(0, len(classes) - _CLASSES), "count": len(classes),
        "skipped": splits.get("skipped") or [], "digest": splits.get("digest"), "digest_of": splits.get("digest_of"),
    }  # fmt: skip
