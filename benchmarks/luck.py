"""How much luck to assume in a trial's accuracy: what the fit makes of the trials of finished searches on `edge`.

    python benchmarks/luck.py RUN...

For multiples of the variance that drawing the validation images has: the error with which each trial of the last rung
is predicted from all other trials, and what the score's optimum promises above the best network that was tried. Nothing
is trained; runs are read.
"""

from pathlib import Path

import numpy as np
from _record import parser, record

from sartor.core.arch import Arch
from sartor.insight.factors import drawn
from sartor.methods.trials.bench import judged
from sartor.predictors.likeness import fit_trials
from sartor.runs.directory import Run
from sartor.runs.schema import ScoreFile, SplitsFile
from sartor.solvers import solve
from sartor.solvers.base import Problem
from sartor.spaces.edge.space import Edge

MULTIPLES = (0.0, 1.0, 2.0, 4.0)


def fitted(trials, choices, parse, judges, times):
    """The fit, a trial's variance being so many times that of its judges."""
    right = [(t.accuracy / 100 * n + 1) / (n + 2) for t, n in zip(trials, judges, strict=True)]
    luck = [times * 100**2 * p * (1 - p) / n for p, n in zip(right, judges, strict=True)]
    return fit_trials(
        [t.picks for t in trials], [t.accuracy for t in trials], [t.rung for t in trials], choices, parse, luck
    )


def looked_at(path):
    """One run's figures for every multiple."""
    run = Run.open(path)
    known, told = run.load(ScoreFile), run.load(SplitsFile)
    trials, choices = known.facts.trials, known.choices
    space = Edge().fitted(told.task)
    parse, last = drawn(space.draw(space.heaviest)), max(t.rung for t in trials)
    judges = [judged(told.val, t.rung == last) for t in trials]
    found = {}
    for times in MULTIPLES:
        errors = []
        for n, trial in enumerate(trials):
            if trial.rung == last and sum(t.rung == last for t in trials) > 2:
                rest = [(t, j) for k, (t, j) in enumerate(zip(trials, judges, strict=True)) if k != n]
                others = [t for t, _ in rest]
                fit = fitted(others, choices, parse, [j for _, j in rest], times)
                before = [k for k, t in enumerate(others) if t.picks == trial.picks]
                said = fit.values[before[-1]] if before else fit.score(Arch(trial.picks))
                errors.append(float(said - trial.accuracy))
        whole = fitted(trials, choices, parse, judges, times)
        ahead = solve(Problem(whole.score, tuple(space.rules))).score - float(whole.values.max())
        found[f"{times:g}"] = {"errors": errors, "ahead": ahead}
    return {"trials": len(trials), "fits": found}


def main() -> None:
    options, results = parser(__doc__), {}
    options.add_argument("runs", type=Path, nargs="+")
    for path in options.parse_args().runs:
        results["_".join(path.parts[-2:])] = looked_at(path)
    each = {f"{times:g}": [r["fits"][f"{times:g}"] for r in results.values()] for times in MULTIPLES}
    summary = {
        times: {
            "left_out_rmse": float(np.sqrt(np.mean(np.square(np.concatenate([r["errors"] for r in rows]))))),
            "promised_ahead": float(np.mean([r["ahead"] for r in rows])),
        }
        for times, rows in each.items()
    }
    print(summary)
    record("luck", {"summary": summary, "runs": results})


if __name__ == "__main__":
    main()
