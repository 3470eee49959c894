"""``sartor tables``: fit, frontier and check on people's own tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sartor.cli.app import AsJson, group
from sartor.cli.show import emit

app = group(
    "tables", "Bring your own tables: networks measured elsewhere and a price list in, a score and its frontier out."
)

SpacePath = Annotated[Path, typer.Option("--space", help="The choices and their options (TOML).")]
SamplesPath = Annotated[
    Path, typer.Option("--samples", help="Measured networks (CSV): a column per choice, and targets.")
]
Target = Annotated[str, typer.Option("--target", help="The column to predict.")]
ScorePath = Annotated[Path, typer.Option("--score", help="A score written by `sartor tables fit`.")]
Repeats = Annotated[str, typer.Option("--repeats", help="The same network with two values: error, or mean.")]
Seed = Annotated[int, typer.Option("--seed", help="Of folds and bootstrap.")]


def _ranking(name: str, found: dict[str, Any]) -> list[str]:
    lines = [f"{name}: {found['networks']} networks"]
    for key in ("kendall", "spearman", "mse"):
        value = found[key]
        lines.append(f"  {key:<8} {value['value']:.4g}  (95 %: {value['low']:.4g} to {value['high']:.4g})")
    return lines


@app.command()
def fit(
    space: SpacePath,
    samples: SamplesPath,
    target: Target,
    out: Annotated[Path, typer.Option("--out", help="Where to write the score (JSON).")],
    predictor: Annotated[str, typer.Option(help="auto, linear, bilinear, quadratic, or module:Class.")] = "auto",
    scale: Annotated[str, typer.Option(help="auto, value, or rank: robust where some networks failed.")] = "auto",
    unit: Annotated[str, typer.Option(help="The target's unit; needed where it is a cost, e.g. ms.")] = "",
    repeats: Repeats = "error",
    seed: Seed = 0,
    set_: Annotated[list[str] | None, typer.Option("--set", help="Any option of the predictor, inactive=true.")] = None,
    as_json: AsJson = False,
) -> None:
    """Fit a score to measured networks."""
    from sartor.core.config import assign
    from sartor.runs.directory import check_writable
    from sartor.tables.files import read_samples, read_space, score_json, write_score
    from sartor.tables.fit import fit_tables

    check_writable(out)
    choices = read_space(space)
    options: dict[str, Any] = {}
    for setting in set_ or []:
        assign(options, setting)
    table = read_samples(samples, choices, target, repeats)
    score = fit_tables(choices, table, predictor=predictor, scale=scale, unit=unit, seed=seed, options=options)
    write_score(out, score, choices)
    how = f"{score.facts['predictor']} score, fitted to the {score.facts['fitted_to']}s of {target}"
    lines = [f"{how} of {len(table)} networks, written to {out}; held out in turn:"]
    for name, found in score.facts["held_out"].items():
        lines += [f"  {name}: Kendall {found['kendall']['value']:.3f}, Spearman {found['spearman']['value']:.3f}"]
    if unseen := score.facts["unseen"]:
        more = f" and {len(unseen) - 8} more" if len(unseen) > 8 else ""
        lines += [
            f"no network has {', '.join(unseen[:8])}{more}: what is said of them is a guess from options like them. "
            "Measure some, or remove the option."
        ]
    emit(score_json(score, choices), as_json, lambda: lines)


@app.command()
def frontier(
    space: SpacePath,
    score: ScorePath,
    cost: Annotated[list[str], typer.Option("--cost", help="name=FILE: prices (JSON), or a score fitted to a cost.")],
    out: Annotated[Path, typer.Option("--out", help="Where to write the frontier (JSON).")],
    limit: Annotated[list[str] | None, typer.Option("--limit", help="name=value, e.g. params=4M.")] = None,
    as_json: AsJson = False,
) -> None:
    """Every best trade-off of the score against a cost, inside limits on the others."""
    from sartor.core.units import show
    from sartor.runs.directory import check_writable, write_json
    from sartor.tables.files import read_score, read_space
    from sartor.tables.fit import frontier_tables, limits_from, open_costs

    check_writable(out)
    choices = read_space(space)
    costs = open_costs(cost, choices)
    fitted = read_score(score, choices)
    points = frontier_tables(choices, fitted, costs, limits_from(limit or [], costs))
    data = points.to_json(choices, fitted, costs)
    write_json(out, data)
    kind, front = costs[points.axis].kind, points.front
    whole = points.said
    lines = [f"{len(front)} networks against {points.axis} ({whole}), written to {out}"]
    for n in sorted({round(x) for x in [i * (len(front) - 1) / 9 for i in range(10)]}):
        lines.append(f"  {show(float(front.cost[n]), kind):>12}  {fitted.target} {data['points'][n]['predicted']:.5g}")
    emit(data, as_json, lambda: lines)


@app.command()
def check(
    space: SpacePath,
    score: ScorePath,
    samples: SamplesPath,
    target: Target,
    repeats: Repeats = "error",
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """How well a score ranks other measured networks: Kendall, Spearman, mean squared error, with intervals."""
    from sartor.tables.files import read_samples, read_score, read_space
    from sartor.tables.fit import check_tables

    choices = read_space(space)
    table = read_samples(samples, choices, target, repeats)
    found = check_tables(choices, read_score(score, choices), table, seed=seed)
    emit(found, as_json, lambda: _ranking(f"{score} on {samples}", found))
