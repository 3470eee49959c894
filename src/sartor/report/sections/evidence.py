"""The sections that show how far the headline can be trusted: ranking, timing, training, data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sartor.core.units import Kind
from sartor.report import figures
from sartor.report.figures import Plot, Scale
from sartor.report.files import Files
from sartor.report.text import Html, Unit, amount, number, percent_suffix, seconds, wilson
from sartor.runs.schema import (
    AuditFile,
    Calibration,
    Correction,
    Device,
    Epoch,
    Estimate,
    SplitsFile,
    StagesFile,
    TimingSummary,
    TrainingFile,
    Verified,
    VerifyFile,
)

_MEASURES = {"kendall": "Kendall’s τ", "spearman": "Spearman’s ρ", "mse": "mean squared error"}
_CLASSES = 400  # names shown; a page need not list every one of ten thousand


def ranking(files: Files) -> dict[str, Any] | None:
    """Predicted against measured on networks that the score had not seen."""
    quality, held = files.learnt.quality if files.learnt else None, files.facts.held_out
    if quality is None and held is None:
        return None
    figure, suffix = None, percent_suffix(files.unit)
    if held:
        label = "Predicted score against measured accuracy of held-out networks"
        figure = figures.agreement(held.predicted, held.measured, files.unit, label, lambda v: number(v, 3) + suffix)
    rows = []
    for name, title in _MEASURES.items() if quality else ():
        e: Estimate = getattr(quality, name)
        rows.append({"name": title, "value": number(e.value, 3), "low": number(e.low, 3), "high": number(e.high, 3)})
    return {"figure": figure, "rows": rows, "networks": quality.networks if quality else None}


def timing(files: Files) -> dict[str, Any] | None:
    """Every measured table against whole networks, the final timing round by round, and every correction."""
    timed = {n: e for n, e in files.verified.items() if e.timing}
    names = dict.fromkeys((*files.calibrations, *timed))
    return {"costs": [_timed(files, n, timed.get(n)) for n in names]} if names else None


def _timed(files: Files, name: str, entry: Verified | None) -> dict[str, Any]:
    """One cost on its target."""
    notes, verified = files.calibrations.get(name), files.own(VerifyFile)
    corrections = files.corrections.get(name) or (files.solution.corrections if len(files.calibrations) < 2 else ())
    told, table = files.verified.get(name), files.tables.get(name)
    device = (
        (told.device if told else None) or (table.device if table else None) or (verified.device if verified else {})
    )
    return {
        "name": name,
        "calibration": _calibration(files, name, notes) if notes else None,
        "rounds": _rounds(entry.timing) if entry and entry.timing else None,
        "timing": _timing_rows(entry, entry.timing) if entry and entry.timing else [],
        "corrections": [_correction(c, files.kinds[name]) for c in corrections],
        "predicted_only": bool(told and told.on_device is False),
        "device": _device(device),
    }


_CONDITIONS = {"mhz": "clock meanwhile, MHz", "celsius": "temperature meanwhile, degrees Celsius"}


def _calibration(files: Files, name: str, notes: Calibration) -> dict[str, Any]:
    """The table as it was priced, before any correction."""
    predicted = files.priced[name].form.batch(notes.networks).tolist()
    label = "Predicted against measured time of whole networks"
    figure = figures.agreement(predicted, notes.measured_ms, "ms", label, lambda v: number(v, 3))
    return {
        "figure": figure,
        "networks": len(predicted),
        "median": f"{100 * notes.held_out_median_error:.1f} %",
        "worst": f"{100 * notes.held_out_worst_error:.1f} %",
        "timed": notes.timed_parts,
        "inferred": notes.inferred_parts,
        "error": f"{100 * (notes.inferred_median_error or 0):.1f} %",
    }


def _rounds(timed: TimingSummary) -> Html:
    """Medians of the rounds in the order they were taken: a slow spell of the machine shows as a hill."""
    plot = Plot(
        Scale(0.5, len(timed.rounds) + 0.5),
        Scale.around([*timed.rounds, timed.low, timed.high], 0.25),
        "round",
        "median of the round, ms",
        y_format=lambda v: number(v, 4),
        height=320,
        whole=True,
    )
    for name, value in (("low", timed.low), ("high", timed.high)):
        plot.line([(plot.x.low, value), (plot.x.high, value)], "diagonal", f"95 % interval: {name}")
    plot.line([(plot.x.low, timed.p50), (plot.x.high, timed.p50)], "level", "median of all calls")
    points = [(n + 1.0, v) for n, v in enumerate(timed.rounds)]
    plot.dots(points, "dots big", [f"round {n:.0f}: {number(v)} ms" for n, v in points])
    return plot.html("Median time of each round of the final timing")


def _timing_rows(entry: Verified, t: TimingSummary) -> list[tuple[str, str]]:
    show = Unit.of([t.p50 if entry.limit is None else entry.limit], entry.kind).show
    rows = [
        ("predicted by the table", show(entry.predicted)),
        ("measured median (p50)", show(t.p50)),
        ("its 95 % interval", f"{show(t.low)} to {show(t.high)}"),
        ("95th percentile (p95)", show(t.p95)),
        ("calls timed", number(t.n)),
    ]
    if entry.limit is not None:
        rows.insert(0, ("asked", show(entry.limit)))
    if t.drift is not None:
        way = "slower" if t.drift > 1 else "faster"
        rows.append(("machine since the parts were priced", f"{100 * abs(t.drift - 1):.1f} % {way}"))
    return rows + _conditions(entry.others.get("conditions"))


def _conditions(told: object) -> list[tuple[str, str]]:
    """What the machine was like while the network was timed, where it told."""
    if not isinstance(told, dict):
        return []
    ranges = {name: told[name] for name in _CONDITIONS if isinstance(told.get(name), list)}
    rows = [(_CONDITIONS[name], " to ".join(dict.fromkeys(f"{v:.4g}" for v in both))) for name, both in ranges.items()]
    rejected = told.get("rejected_rounds")
    return rows + ([("rounds rejected and made again", str(rejected))] if rejected else [])


def _correction(c: Correction, kind: Kind) -> dict[str, str]:
    factor = f"{c.measured / c.predicted:.3f}" if c.predicted else ""
    return {"predicted": amount(c.predicted, kind), "measured": amount(c.measured, kind), "factor": factor}


def _device(device: Device) -> str:
    """What the measurements were made with, in words; a runtime of one's own may tell other things."""
    words = [str(device[k]) for k in ("processor", "gpu", "platform") if device.get(k)]
    if device.get("runtime"):
        words.append(f"{device['runtime']} {device.get('runtime_version') or ''}".strip())
    if device.get("threads"):
        words.append(f"{device['threads']} thread{'s' if device['threads'] != 1 else ''}")
    return ", ".join([*words, f"batch {device['batch']}"] if device.get("batch") else words)


def training(files: Files) -> dict[str, Any] | None:
    """Curves of every phase, and how long every stage of the run took."""
    trained, facts = files.own(TrainingFile), files.facts
    phases = dict(facts.history or {})
    accuracies = [("heaviest network, validation", facts.heaviest_accuracy)]
    if trained:
        phases["chosen network"] = trained.history
        accuracies += [
            ("chosen network before fine-tuning, validation", trained.inherited_val_accuracy),
            ("after fine-tuning, validation", trained.val_accuracy),
            ("after fine-tuning, test", trained.test_accuracy),
        ]
    cards, times = [_phase(name, history) for name, history in phases.items() if history], _stages(files)
    if not cards and not times:
        return None
    taught = [("imitated a wider network", trained.teacher)] if trained and trained.teacher else []
    return {
        "cards": cards,
        "stages": figures.bars(times),
        "total": seconds(sum(s for _, s, _ in times)),
        "accuracies": [(name, f"{value:.1f} %") for name, value in accuracies if value is not None] + taught,
    }


def _phase(name: str, history: Sequence[Epoch]) -> dict[str, Any]:
    """The losses of a phase; whatever it counts per second is a speed and stays out of the curves."""
    names = [k for k in history[0] if not k.endswith("_per_second")]
    series = {k: [v for h in history if (v := h.get(k)) is not None] for k in names}
    speeds = sorted(v for h in history if (v := h.get("images_per_second")))
    epochs = f"{len(history)} epoch{'s' if len(history) > 1 else ''}"
    speed = f", {number(speeds[len(speeds) // 2], 3)} images/s" if speeds else ""
    figure = figures.curves({k: v for k, v in series.items() if v}, f"Losses of the phase {name} over its epochs")
    return {"name": name, "figure": figure, "note": epochs + speed}


def _stages(files: Files) -> list[tuple[str, float, str]]:
    """Seconds by stage. The report's own stage is left out: it is listed only after the report is written."""
    own, base = files.own(StagesFile) or StagesFile(), files.searched(StagesFile) or StagesFile()
    listed = dict(own.stages)
    if files.is_cut:
        early = ("data", "costs", "search")
        listed = {f"{n} (of the run)": v for n, v in base.stages.items() if n in early} | listed
    kept = {n: v for n, v in listed.items() if n not in ("report", "certificate")}
    return [(n, v.seconds, seconds(v.seconds)) for n, v in kept.items()]


def data(files: Files) -> dict[str, Any] | None:
    """Classes, splits and what was skipped."""
    splits, audit = files.searched(SplitsFile), files.searched(AuditFile)
    if splits is None:
        return None
    sizes = [("training", len(splits.train)), ("validation", len(splits.val)), ("test", len(splits.test))]
    total = sum(n for _, n in sizes) or 1
    return {
        "name": splits.name,
        "sizes": [(t, n, 100 * n / total) for t, n in sizes],
        "total": total,
        "classes": splits.classes[:_CLASSES],
        "hidden": max(0, len(splits.classes) - _CLASSES),
        "count": len(splits.classes),
        "skipped": splits.skipped,
        "per_class": _per_class(files, audit),
        "audit": audit.lines() if audit else [],
        "groups": [str(g) for g in audit.groups[:_CLASSES]] if audit else [],
    }


def _per_class(files: Files, audit: AuditFile | None) -> dict[str, Any] | None:
    """How many images every class has and what is right of its test images with its interval, the worst first."""
    trained, judged = files.own(TrainingFile), files.judged
    if audit is None or trained is None or trained.per_class is None:
        return None
    tested = judged.counts if judged and trained.metric == "accuracy" else (0,) * len(audit.classes)
    right = judged.per_class if judged else trained.per_class
    found = zip(audit.classes, audit.per_class, right, tested, strict=False)
    rows = sorted(found, key=lambda row: -1.0 if row[2] is None else row[2])[:_CLASSES]
    known = [value for value in right if value is not None]
    balanced = sum(known) / len(known) if known else None
    return {
        "rows": [(name, number(count), "" if value is None else f"{value:.1f} %", _interval(value, n))
                 for name, count, value, n in rows],
        "mean": None if balanced is None else f"{balanced:.1f} %", "metric": trained.metric,
    }  # fmt: skip


def _interval(value: float | None, images: int) -> str:
    """The 95 % interval of the share of so many images."""
    if value is None or not images:
        return ""
    low, high = wilson(value / 100, images)
    return f"{100 * low:.1f} to {100 * high:.1f} %"
