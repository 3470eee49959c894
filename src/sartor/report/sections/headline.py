"""What came out, first: the verdict, every budget, and whatever a reader should know before relying on it."""

from __future__ import annotations

from typing import Any

from sartor.report.files import Files
from sartor.report.text import Unit, amount, number, percent_suffix, wilson

_ROUGH = 0.5  # a Kendall correlation below this leaves more than a quarter of all pairs in the wrong order
_DRIFT = 0.05  # a change of the machine's speed worth a word
_CALIBRATION = 0.10  # a median error of the latency table worth a word


def headline(files: Files) -> dict[str, Any]:
    """The verdict in one line, with the facts that carry it."""
    budgets = _budgets(files)
    verified = files.own("verify.json")
    fits = None if verified is None else bool(verified["fits"])
    spoken = [f"{b['value']} of {b['asked']}{'' if b['name'] == 'latency' else ' ' + b['name']}" for b in budgets]
    verdict = {True: "Fits", False: "Over budget", None: "Not measured yet"}[fits]
    if fits and not budgets:
        verdict, spoken = "Made without a budget", [f"{value} {name}" for name, value in _others(files)]
    return {
        "fits": fits, "verdict": verdict, "spoken": spoken, "budgets": budgets, "others": _others(files),
        "facts": [f for f in (_accuracy(files), _proof(files), _order(files)) if f], "cautions": cautions(files),
    }  # fmt: skip


def _budgets(files: Files) -> list[dict[str, Any]]:
    """Every budget: asked, predicted and measured, and where each lies on a bar that ends a little past the limit."""
    solution, verified = files.own("solution.json"), (files.own("verify.json") or {}).get("costs", {})
    cards = []
    for name, asked in solution["budgets"].items():
        entry, kind = verified.get(name, {}), files.kinds.get(name, "count")
        predicted = entry.get("predicted", solution["predicted"].get(name))
        measured, timing = entry.get("measured"), entry.get("timing")
        shown = measured if measured is not None else predicted
        full = max(v for v in (asked, predicted, shown, (timing or {}).get("p95")) if v is not None) * 1.08
        show = Unit.of([asked], kind).show  # one unit a card: 0.085 ms of 0.1 ms, not 85 µs of it
        cards.append({
            "name": name, "asked": show(asked), "holds": entry.get("holds"),
            "value": show(shown) if shown is not None else "?",
            "predicted": None if predicted is None else show(predicted),
            "measured": None if measured is None else show(measured),
            "interval": f"{show(timing['low'])} to {show(timing['high'])}" if timing else None,
            "p95": show(timing["p95"]) if timing else None,
            "calls": number(timing["n"]) if timing else None,
            "at": {n: 100 * v / full for n, v in (("asked", asked), ("predicted", predicted), ("shown", shown),
                                                  ("p95", (timing or {}).get("p95"))) if v is not None},
            "share": None if shown is None else f"{100 * shown / asked:.0f} %",
        })  # fmt: skip
    return cards


def _others(files: Files) -> list[tuple[str, str]]:
    """The costs that nobody limited."""
    solution, verified = files.own("solution.json"), (files.own("verify.json") or {}).get("costs", {})
    values = {n: e["measured"] for n, e in verified.items()} or solution["predicted"]
    return [(n, amount(v, files.kinds.get(n, "count"))) for n, v in values.items() if n not in solution["budgets"]]


def _accuracy(files: Files) -> dict[str, str] | None:
    training, data = files.own("training.json"), files.searched("splits.json")
    if training is None or training.get("test_accuracy") is None:
        return None
    count, value = len((data or {}).get("test", ())), float(training["test_accuracy"])
    text = f"{value:.1f} %"
    if not count:
        return {"value": text, "label": "of the test images right", "more": ""}
    low, high = wilson(value / 100, count)
    more = f"95 % interval {100 * low:.1f} to {100 * high:.1f} %; none of them was searched or trained on"
    return {"value": text, "label": f"of {count} test images right", "more": more}


def _proof(files: Files) -> dict[str, str]:
    solved, unit = files.own("solution.json")["solution"], files.unit
    value = f"{number(float(solved['score']))}{percent_suffix(unit)}"
    if solved["proven"]:
        return {"value": "proven", "label": "optimal for its score", "more": f"score {value}, by {solved['solver']}"}
    gap = "unknown" if solved.get("gap") is None else number(solved["gap"], 3)
    more = f"score {value}, by {solved['solver']}; a better one may exist"
    return {"value": f"gap {gap}", "label": "to the optimum of the score", "more": more}


def _order(files: Files) -> dict[str, str] | None:
    quality = (files.searched("score.json") or {}).get("quality")
    if not quality:
        return None
    k = quality["kendall"]
    more = f"95 % interval {number(k['low'], 2)} to {number(k['high'], 2)}, {quality['networks']} held-out networks"
    return {"value": number(k["value"], 2), "label": "rank correlation (Kendall) of the score", "more": more}


def cautions(files: Files) -> list[str]:
    """Everything weak about this result, in plain words, the worst first."""
    found = [*_about_budgets(files), *_about_score(files), *_about_data(files)]
    return [c.replace(" %", "\u00a0%") for c in found]  # a number and its sign stay on one line


def _about_budgets(files: Files) -> list[str]:
    found = []
    verified = (files.own("verify.json") or {}).get("costs", {})
    for name, e in verified.items():
        kind, timing, limit = e["kind"], e.get("timing"), e.get("limit")
        if limit is not None and not e["holds"]:
            found.append(f"The network measures {amount(e['measured'], kind)} where {amount(limit, kind)} was asked.")
        elif timing and limit is not None and timing["high"] > limit:
            found.append("The measured time fits, but its 95 % interval reaches over the budget.")
        if timing and limit is not None and e["holds"] and timing["p95"] > limit:
            slow = amount(timing["p95"], kind)
            found.append(f"The budget holds for the median call; one call in twenty takes longer than {slow}.")
        drift = (timing or {}).get("drift")
        if drift and abs(drift - 1) > _DRIFT:
            way = "slower" if drift > 1 else "faster"
            change = abs(drift - 1) if drift > 1 else 1 - drift
            found.append(
                f"When it was verified the machine ran {100 * change:.0f} % {way} than when the parts were priced: "
                f"predictions of {name} carry that difference."
            )
    table = files.table("latency") or {}
    corrections = (table.get("calibration") or {}).get("corrections") or files.own("solution.json").get("corrections")
    if corrections:
        count = len(corrections)
        networks = "1 network was" if count == 1 else f"{count} networks were"
        found.append(f"{networks} built, measured over the budget and turned down; the latency table was corrected.")
    error = (table.get("calibration") or {}).get("held_out_median_error")
    if error is not None and error > _CALIBRATION:
        found.append(
            f"The latency table is coarse: on networks it had not seen it erred by {100 * error:.0f} % (median)."
        )
    return found


def _about_score(files: Files) -> list[str]:
    score = files.searched("score.json") or {}
    quality, solved = score.get("quality"), files.own("solution.json")["solution"]
    found = []
    if quality and quality["kendall"]["low"] <= 0:
        k = quality["kendall"]
        found.append(
            f"The score does not reliably order networks: its Kendall correlation with measured accuracy is "
            f"{number(k['value'], 2)}, and the 95 % interval, {number(k['low'], 2)} to {number(k['high'], 2)}, "
            "includes zero. “Optimal” is then a statement about the score, not about accuracy. Train longer "
            "(--effort thorough) or give more images."
        )
    elif quality and quality["kendall"]["value"] < _ROUGH:
        found.append(
            f"The score orders networks only roughly (Kendall {number(quality['kendall']['value'], 2)}): networks that "
            "score a little less may in truth be as accurate."
        )
    elif not quality:
        found.append(
            f"How well this score ({score.get('unit', 'of an unknown unit')}) orders networks by accuracy was not "
            "measured: “optimal” is a statement about the score alone."
        )
    if not solved["proven"]:
        found.append("The solver could not prove its answer optimal; the gap above is what may be missing.")
    training = files.own("training.json") or {}
    before, after = training.get("inherited_val_accuracy"), training.get("val_accuracy")
    if before is not None and after is not None and after < before:
        found.append(
            f"Fine-tuning made the network worse on validation images: {before:.1f} % before, {after:.1f} % after."
        )
    return found


def _about_data(files: Files) -> list[str]:
    data = files.searched("splits.json") or {}
    skipped, tests = len(data.get("skipped", ())), len(data.get("test", ()))
    found = []
    if skipped:
        files_were = "1 file was" if skipped == 1 else f"{skipped} files were"
        found.append(f"{files_were} skipped as unreadable; they are named under “The data”.")
    if 0 < tests < 100:
        found.append(f"Only {tests} test images: the accuracy above is uncertain, as its interval shows.")
    return found
