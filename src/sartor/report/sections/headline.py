"""What came out, first: the verdict, every budget, and whatever a reader should know before relying on it."""

from __future__ import annotations

from typing import Any

from sartor.core.units import BYTES, TIME
from sartor.core.views import each
from sartor.report.files import Files
from sartor.report.text import Unit, amount, number, percent_suffix, wilson
from sartor.runs.progress import span
from sartor.runs.schema import (
    AuditFile,
    OriginFile,
    QuantisedFile,
    SplitsFile,
    StagesFile,
    TrainingFile,
    Verified,
    VerifyFile,
)

_ROUGH = 0.5  # a Kendall correlation below this leaves more than a quarter of all pairs in the wrong order
_DRIFT = 0.05  # a change of the machine's speed worth a word
_CALIBRATION = 0.10  # a median error of the latency table worth a word
_USED = 0.93  # share of a budget from which on it is used
_TOLD = 10  # networks from which on a rank correlation says something
_LEARNT = 0.1  # of the way from guessing to knowing, that a trial should have gone
_SHARE = 0.85  # of the time, below which it was not used
_FEW, _MANY, _FALLING = 8, 40, 0.05  # epochs that are few in any case, that are many, and a fall of the loss in between


def headline(files: Files) -> dict[str, Any]:
    """The verdict in one line, with the facts that carry it."""
    budgets, verified = _budgets(files), files.own(VerifyFile)
    fits = verified.fits if verified else None
    alone = sum(b["timed"] for b in budgets) == 1
    spoken = [f"{b['value']} of {b['asked']}{'' if b['timed'] and alone else ' ' + b['name']}" for b in budgets]
    verdict = {True: "Fits", False: "Over budget", None: "Not measured yet"}[fits]
    if fits and any(b["predicted_only"] for b in budgets):
        verdict = "Predicted to fit"
    if fits and not budgets:
        verdict, spoken = "Made without a budget", [f"{value} {name}" for name, value in _others(files)]
    return {
        "fits": fits,
        "verdict": verdict,
        "spoken": spoken,
        "budgets": budgets,
        "others": _others(files),
        "facts": [f for f in (_accuracy(files), _views(files), _precision(files), _proof(files), _order(files)) if f],
        "cautions": cautions(files),
    }


def _budgets(files: Files) -> list[dict[str, Any]]:
    """Every budget: asked, predicted and measured, and where each lies on a bar that ends a little past the limit."""
    cards = []
    for name, asked in files.solution.budgets.items():
        entry, kind = files.verified.get(name), files.kind(name)
        predicted = entry.predicted if entry else files.solution.predicted.get(name)
        measured, timing = (entry.measured, entry.timing) if entry else (None, None)
        shown, p95 = measured if measured is not None else predicted, timing.p95 if timing else None
        full = max(v for v in (asked, predicted, shown, p95) if v is not None) * 1.08
        show = Unit.of([asked], kind).show  # one unit a card: 0.085 ms of 0.1 ms, not 85 µs of it
        places = (("asked", asked), ("predicted", predicted), ("shown", shown), ("p95", p95))
        cards.append({
            "name": name, "asked": show(asked), "holds": entry.holds if entry else None, "timed": kind == TIME,
            "predicted_only": bool(entry and entry.on_device is False),
            "value": show(shown) if shown is not None else "?",
            "predicted": None if predicted is None else show(predicted),
            "measured": None if measured is None or (entry and entry.on_device is False) else show(measured),
            "interval": f"{show(timing.low)} to {show(timing.high)}" if timing else None,
            "p95": show(timing.p95) if timing else None, "calls": number(timing.n) if timing else None,
            "at": {n: 100 * v / full for n, v in places if v is not None},
            "share": None if shown is None else f"{100 * shown / asked:.0f} %",
        })  # fmt: skip
    return cards


def _others(files: Files) -> list[tuple[str, str]]:
    """The costs that nobody limited."""
    values = {n: e.measured for n, e in files.verified.items()} or files.solution.predicted
    limited = files.solution.budgets
    return [(n, amount(v, files.kind(n))) for n, v in values.items() if n not in limited]


def _accuracy(files: Files) -> dict[str, str] | None:
    training, data = files.own(TrainingFile), files.searched(SplitsFile)
    if training is None:
        return None
    both = files.own(QuantisedFile)
    right = both.int8.test_accuracy if both and both.used else training.test_accuracy
    text = f"{right:.1f} %"
    if data is None:
        return {"value": text, "label": "of the test images right", "more": ""}
    count = len(data.test)
    if training.metric != "accuracy":
        return {"value": text, "label": f"{training.metric} on {count} test images", "more": ""}
    low, high = wilson(right / 100, count)
    never = files.origin.told() if files.origin else "none of them was searched or trained on"
    more = f"95 % interval {100 * low:.1f} to {100 * high:.1f} %; {never}"
    return {"value": text, "label": f"of {count} test images right", "more": more}


def _views(files: Files) -> dict[str, str] | None:
    """Where the network looks at an image more than once."""
    training, count = files.own(TrainingFile), files.solution.views
    if count == 1:
        return None
    alone = training.one_view_accuracy if training else None
    more = f"averaged inside the network: {each(count)}" + ("" if alone is None else f"; alone {alone:.1f} % right")
    return {"value": f"{count} views", "label": "of every image, in one call", "more": more}


def _precision(files: Files) -> dict[str, str] | None:
    """Both precisions on the same test images, where 8 bits were asked for."""
    both = files.own(QuantisedFile)
    if both is None:
        return None
    each = (("int8", both.int8), ("float32", both.float32))
    more = "; ".join(
        f"{name}: {form.test_accuracy:.1f} %, {amount(form.timing.p50, TIME) + ', ' if form.timing else ''}"
        f"{amount(form.bytes, BYTES)}"
        for name, form in each
    )
    return {"value": "int8" if both.used else "float32", "label": f"deployed ({both.why})", "more": more}


def _proof(files: Files) -> dict[str, str]:
    solved = files.solution.solution
    value = f"{number(solved.score)}{percent_suffix(files.unit)}"
    if solved.solver == "trials" and not solved.proven:  # see pipeline.stages
        more = f"its score is {value}; trained for a while, it was worth more than the score's optimum"
        return {"value": "tried", "label": "and found better than the score's optimum", "more": more}
    if solved.proven:
        return {"value": "proven", "label": "optimal for its score", "more": f"score {value}, by {solved.solver}"}
    gap = "unknown" if solved.gap is None else number(solved.gap, 3)
    more = f"score {value}, by {solved.solver}; a better one may exist"
    return {"value": f"gap {gap}", "label": "to the optimum of the score", "more": more}


def _order(files: Files) -> dict[str, str] | None:
    quality = files.learnt.quality if files.learnt else None
    if quality is None:
        return None
    k = quality.kendall
    more = f"95 % interval {number(k.low, 2)} to {number(k.high, 2)}, {quality.networks} held-out networks"
    return {"value": number(k.value, 2), "label": "rank correlation (Kendall) of the score", "more": more}


def cautions(files: Files) -> list[str]:
    """Everything weak about this result, in plain words, the worst first."""
    found = [*_about_budgets(files), *_about_room(files), *_about_score(files), *_about_training(files)]
    found += _about_data(files)
    return [c.replace(" %", "\u00a0%") for c in found]  # a number and its sign stay on one line


def _about_budgets(files: Files) -> list[str]:
    found = [words for name, entry in files.verified.items() for words in _about_cost(name, entry)]
    corrected = files.corrections
    if count := sum(map(len, corrected.values())) or len(files.solution.corrections):
        networks = "1 network was" if count == 1 else f"{count} networks were"
        tables = " and ".join(corrected) or "cost"
        found.append(f"{networks} built, measured over the budget and turned down; the {tables} table was corrected.")
    for name, notes in files.calibrations.items():
        error = notes.held_out_median_error
        if error > _CALIBRATION:
            found.append(
                f"The {name} table is coarse: on networks it had not seen it erred by {100 * error:.0f} % (median)."
            )
    return found


def _about_cost(name: str, entry: Verified) -> list[str]:
    kind, timing, limit = entry.kind, entry.timing, entry.limit
    found = []
    if entry.on_device is False:
        found.append(
            f"The {name} budget was not verified on its device, which was not there: the network's {name} is what the "
            "device's profile predicts. Solve for the budget again with --target when it is back."
        )
    if limit is not None and not entry.holds:
        found.append(f"The network measures {amount(entry.measured, kind)} where {amount(limit, kind)} was asked.")
    elif entry.slowed is not None:
        was, now = amount(entry.slowed.before, kind), amount(entry.slowed.now, kind)
        found.append(
            f"While it was trained its device became slower: the network as built took {was} before and {now} after. "
            f"The {name} budget is judged at the speed of before; now the network takes {amount(entry.measured, kind)}."
        )
    elif timing and limit is not None and timing.high > limit:
        found.append("The measured time fits, but its 95 % interval reaches over the budget.")
    if timing and limit is not None and entry.holds and timing.p95 > limit:
        slow = amount(timing.p95, kind)
        found.append(f"The budget holds for the median call; one call in twenty takes longer than {slow}.")
    drift = timing.drift if timing else None
    if drift is not None and abs(drift - 1) > _DRIFT:
        found.append(
            f"When it was verified the machine ran {100 * abs(drift - 1):.0f} % {'slower' if drift > 1 else 'faster'} "
            f"than when the parts were priced: predictions of {name} carry that difference."
        )
    return found


def _about_score(files: Files) -> list[str]:
    found = []
    quality, unit = (files.learnt.quality, files.unit) if files.learnt else (None, "of an unknown unit")
    if quality is None:
        found.append(
            f"How well this score ({unit}) orders networks by accuracy was not measured: “optimal” is a statement "
            "about the score alone."
        )
    elif quality.kendall.low <= 0 and quality.networks < _TOLD:
        k = quality.kendall
        found.append(
            f"Whether the score orders networks by their accuracy cannot be told from {quality.networks} of them: its "
            f"Kendall correlation is {number(k.value, 2)}, 95 % interval {number(k.low, 2)} to {number(k.high, 2)}. "
            "“Optimal” is then a statement about the score. Give it more time (--time) to try more."
        )
    elif quality.kendall.low <= 0:
        k = quality.kendall
        found.append(
            f"The score does not reliably order networks: its Kendall correlation with measured accuracy is "
            f"{number(k.value, 2)}, and the 95 % interval, {number(k.low, 2)} to {number(k.high, 2)}, "
            "is not above zero. “Optimal” is then a statement about the score, not about accuracy. Give it more "
            "time (--time) or more images."
        )
    elif quality.kendall.value < _ROUGH:
        found.append(
            f"The score orders networks only roughly (Kendall {number(quality.kendall.value, 2)}): networks that "
            "score a little less may in truth be as accurate."
        )
    found += _about_trials(files)
    if not files.solution.solution.proven and files.solution.solution.solver != "trials":
        found.append("The solver could not prove its answer optimal; the gap above is what may be missing.")
    return found


def _about_trials(files: Files) -> list[str]:
    """Trials that were too short to learn anything."""
    data, tried = files.searched(SplitsFile), files.facts.trials
    if not tried or data is None or data.task.metric != "accuracy":
        return []
    best, guess = max(t.accuracy for t in tried), 100.0 / data.task.classes
    if best >= 2 * guess and best >= guess + _LEARNT * (100 - guess):
        return []
    return [
        f"The best of the networks that were tried got {best:.1f} % right, where guessing gets about {guess:.1f}: they "
        "were trained for too short a time to be told apart. Give it more time (--time)."
    ]


def _about_room(files: Files) -> list[str]:
    """Budgets of which none is used up."""
    shares = {n: e.measured / e.limit for n, e in files.verified.items() if e.limit}
    if not shares or max(shares.values()) >= _USED or not files.verified:
        return []
    used = " and ".join(f"{100 * share:.0f} % of the {name} budget" for name, share in shares.items())
    if files.facts.most is not None:
        return [f"Only {used} is used: larger networks could not be tried for long enough. Give it more time (--time)."]
    tried = files.solution.solution.solver == "trials"
    why = "no larger network did better when it was tried" if tried else "no larger network of this space scores more"
    return [f"Only {used} is used: {why}. Try another space, or give the search more time (--time)."]


def _about_training(files: Files) -> list[str]:
    training = files.own(TrainingFile)
    if training is None:
        return []
    found, asked, stages = list[str](), files.config.time, files.own(StagesFile)
    took = sum(stage.seconds for stage in stages.stages.values()) if stages and not files.is_cut else None
    if asked and took is not None and took < _SHARE * asked:
        found.append(f"Of the {span(asked)} that were given, only {span(took)} were used.")
    before, after = training.inherited_val_accuracy, training.val_accuracy
    if before is not None and after is not None and after < before:
        found.append(
            f"Fine-tuning made the network worse on validation images: {before:.1f} % before, {after:.1f} % after."
        )
    losses = [loss for epoch in training.history if (loss := epoch.get("loss")) is not None]
    fifth = len(losses) // 5
    if len(losses) < _FEW or (fifth and losses[-1] < (1 - _FALLING) * losses[-1 - fifth] and len(losses) < _MANY):
        epochs = "1 epoch" if len(losses) == 1 else f"{len(losses)} epochs"
        found.append(
            f"The network was trained for {epochs} only, and its loss still fell at the end: more time (--time) would "
            "make it better."
        )
    return found


def _about_data(files: Files) -> list[str]:
    data = files.searched(SplitsFile)
    if data is None:
        return []
    skipped, tests, native, side = len(data.skipped), len(data.test), data.native, data.task.image
    found, audit, trained = list[str](), files.searched(AuditFile), files.own(TrainingFile)
    if native is not None and native > side:
        found.append(
            f"The images were made smaller: most have {native} pixels a side, the network sees {side}. What only the "
            f"larger ones show is lost; --image {native} keeps it, and takes longer to train."
        )
    origin, leaks = files.searched(OriginFile), audit.leaks if audit else ()
    if seen := {*leaks, *(origin.test if origin else ())}:
        unseen = trained.unseen_accuracy if trained else None
        where = f", here or by the weights its search began with ({origin.given})" if origin and origin.test else ""
        found.append(
            f"{len(seen)} of the {tests} test images equal, or nearly, one that was trained on{where}"
            + ("." if trained is None or unseen is None else f"; without them: {trained.metric} {unseen:.1f} %.")
        )
    if audit and audit.findings.contradictions:
        found.append(f"{audit.findings.contradictions} images equal, or nearly, one with other labels: see “The data”.")
    if skipped:
        files_were = "1 file was" if skipped == 1 else f"{skipped} files were"
        found.append(f"{files_were} skipped as unreadable; they are named under “The data”.")
    if tests < 100:
        found.append(f"Only {tests} test images: the accuracy above is uncertain, as its interval shows.")
    return found
