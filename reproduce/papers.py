"""The tables of docs/papers.md and docs/nasi.md, written from the presets and from benchmarks/results: never by hand.

    python reproduce/papers.py           # rewrite them
    python reproduce/papers.py --check   # exit code 1 where the page says anything else

A table stands between `<!-- table NAME -->` and `<!-- end -->`; everything else on the page is prose.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from sartor.core.registry import METHODS, SPACES
from sartor.core.task import Task
from sartor.pipeline.final import preset

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from _record import parser, script_of  # noqa: E402

PAGE, ROWS, RESULTS = ROOT / "docs/papers.md", ROOT / "reproduce/papers_rows.md", ROOT / "benchmarks/results"
IMAGES, CIFAR = 50_000, Task(10, 32, 3)

# What the papers say of every option that `thorough` sets or leaves at its default. "code": the authors' code says it.
SHARING = {
    "epochs": "50 (4.1)", "batch": "96 (4.1)", "lr": "unstated: DARTS's", "momentum": "unstated: DARTS's",
    "weight_decay": "unstated: DARTS's", "clip": "unstated: DARTS's",
}  # fmt: skip
EVALUATION = {
    "epochs": "600 (B.4)", "batch": "96", "lr": "0.025, cosine to 0", "weight_decay": "3e-4", "warmup": "none",
    "smoothing": "none", "ema": "none", "augment": "cutout of 16 pixels", "drop_path": "0.2, rising",
    "auxiliary": "0.4",
}  # fmt: skip
SAYS: dict[str, dict[str, str]] = {
    "binas": {
        "heaviest_epochs": "250 (A)", "heaviest_lr": "0.1, cosine (C)", "heaviest_decay": "1e-4 (C)",
        "multipath_epochs": "100 (A)", "multipath_lr": "0.1 (C); code 0.0128", "multipath_decay": "1e-4 (C); code 1e-5",
        "batch": "200 (A)", "smoothing": "0.1 (C)", "gamma": "code 1", "ema": "EMA (C); code 0.999", "warmup": "none",
        "clip": "none", "dropout": "none", "augment": "AutoAugment, cutout (C); the policy is CIFAR-10's",
        "sort_share": "code 0.1", "estimator": "equation 3", "outcome": "ours, for joint", "shrink": "ours, for joint",
        "focus": "ours, for joint", "mirror": "ours, for joint", "passes": "10 each, 2560 in all (A)",
        "held_out": "500 (4.2)",
        "train.epochs": "8 GPU hours (A); code 19", "train.batch": "code 128", "train.lr": "code 0.00128, cosine",
        "train.weight_decay": "code 1e-5", "train.warmup": "code: 3 epochs", "train.smoothing": "code 0",
        "train.clip": "none", "train.augment": "AutoAugment, cutout (C)", "train.teacher": "w_h (A)",
        "train.images": "80 % (A)",
    },
    "xnas": {
        **SHARING, "augment": "AutoAugment (9.2)", "bound": "1 (3.2)",
        "zeta": "1 (algorithm 1)", "rate": "equation 4", "wipeout": "algorithm 1",
        **{f"train.{k}": v for k, v in EVALUATION.items()}, "train.epochs": "1500 (4.2)",
        "train.smoothing": "0.1 (9.3)",
        "train.augment": "AutoAugment, cutout of 16 (9.3)",
        "train.cycles": "5 (4.2)",
        "train.cycle_decay": "0.5 (4.2)", "train.power": "unstated: 10, of sharpDARTS",
        "space.cells": "20 (4.2)", "space.channels": "36, 44 or 50 (4.2)", "space.search_cells": "8 (4.1)",
        "space.search_channels": "unstated: DARTS's",
    },
    "nasi": {
        "steps": "100 (5.2)", "batch": "64 (5.2)", "mu": "2 (5.2)",
        "nu": "mean, adaptive (B.1)",
        "nu_start": "for networks of unstated size: 100 fixed, 500 adaptive (5.2)", "nu_networks": "50 (B.1)",
        "nu_scale": "1 (40)", "size": "none: Delta* alone", "normalise": "the largest so far (18)",
        "temperature": "1 (B.3)",
        "loss": "unstated; MSE in theory",
        "labels": "true, random (5.3)",
        "images": "true, random (5.3)", "init": "Jacot's (3.1)", "parameterisation": "Jacot's (3.1)", "gain": "1",
        "norm": "unstated", "without": "none (B.2)", "redraw": "0: one theta_0", "sketch": "unstated",
        "side": "unstated",
        **{f"train.{k}": v for k, v in EVALUATION.items()},
        "space.cells": "20 (B.4)", "space.channels": "36 (B.4)",
    },
    "bayesnas": {
        "rounds": "unstated", "epochs": "1 (1)", "batch": "18 (6.1), 16 (D.1)", "lr": "0.1 (6.1)",
        "last_lr": "fixed rate (6.1)", "momentum": "0.9", "weight_decay": "1e-4 (D.1)", "clip": "unstated: DARTS's",
        "augment": "shifts and mirror images (D.1)", "strength": "0.01, 0.007, 0.005 (table 1)",
        "zero_strength": "code: 0.01", "strength_per_image": "none: lambda is absolute",
        "rate": "1", "dependency": "equation 8", "hessian": "recursion (C)",
        "hessian_images": "code: the last batch",
        **{f"train.{k}": v for k, v in EVALUATION.items()}, "train.epochs": "unstated: DARTS's",
        "train.batch": "128 (D.3)",
        "train.lr": "0.1, cosine (D.3)", "train.weight_decay": "3e-4 (D.3)", "train.augment": "cutout (D.2)",
        "train.drop_path": "code 0.2", "train.auxiliary": "none",
        "space.cells": "20 (6.1)", "space.channels": "code 36", "space.search_cells": "8 (6.1)",
        "space.search_channels": "16 (D.1); code 36", "space.order": "BN-ReLU-Conv (D.1)",
    },
}  # fmt: skip
SAYS_OF_A_SPACE: dict[str, dict[tuple[str, str], str]] = {
    "binas": {}, "xnas": {},
    "nasi": {
        ("nasbench1shot1", "mu"): "1 (5.1)", ("nasbench1shot1", "nu"): "adaptive (5.1)",
        ("nasbench1shot1", "nu_scale"): "1000 in units of its own (5.1): ten times the fixed 100 of 5.2",
        ("nasbench1shot1", "steps"): "one epoch (5.1)", ("nasbench201", "mu"): "1 where networks are small (B.1)",
    },
    "bayesnas": {("treecell", "batch"): "32 (6.2)"},
}  # fmt: skip
SPACE_OF = {"binas": "mobile", "xnas": "darts", "nasi": "darts_reduced", "bayesnas": "freecells"}


def options(name: str, effort: str) -> dict[str, object]:
    """Every option of the method, and those of the final training and of the space that the effort sets."""
    method, space = METHODS[name], SPACES[SPACE_OF[name]]
    made = method(**method.preset_on(space, effort, IMAGES))
    found = {f.name: getattr(made, f.name) for f in fields(made)}
    found |= {f"train.{k}": v for k, v in preset(effort, "cpu", method.paper(), IMAGES).items()}
    if effort == "thorough" and not method.inherits:
        found |= {f"space.{k}": v for k, v in space.papers_size(CIFAR).items()}
    return found


def thorough(name: str) -> list[list[str]]:
    """Option, `thorough`, `standard`, and what the paper says."""
    ours, usual = options(name, "thorough"), options(name, "standard")
    if unsaid := sorted(ours.keys() ^ SAYS[name].keys()):
        raise SystemExit(f"{name}: what does the paper say of {', '.join(unsaid)}? Add it to SAYS, or remove it.")
    head = [["option", "`thorough`", "`standard`", "the paper"]]
    rows = [[f"`{k}`", _shown(v), _shown(usual.get(k, "-")), SAYS[name][k]] for k, v in ours.items()]
    for space, option, value, said in elsewhere(name):
        rows.append([f"`{option}` on `{space}`", _shown(value), _shown(usual[option]), said])
    return head + rows


def elsewhere(name: str) -> list[tuple[str, str, object, str]]:
    """What `thorough` has for a space of its own: space, option, value, and what the paper says of it."""
    found = {space: SPACES[space].papers_search(IMAGES).get(name, {}) for space in SPACES.names()}
    if unsaid := sorted({(s, k) for s, o in found.items() for k in o} ^ set(SAYS_OF_A_SPACE[name])):
        raise SystemExit(f"{name}: what does the paper say of {unsaid}? Add it to SAYS_OF_A_SPACE, or remove it.")
    return [(s, k, v, SAYS_OF_A_SPACE[name][s, k]) for s, o in found.items() for k, v in o.items()]


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return ", ".join(value) if isinstance(value, tuple) else "-" if value is None else str(value)


def items(name: str) -> list[list[str]]:
    """A paper's rows of `papers_rows.md`, with our numbers looked up."""
    part = ROWS.read_text(encoding="utf-8").split(f"\n## {name}\n")[1].split("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[_LOOKED_UP.sub(_number, cell.strip()) for cell in line.strip("|").split("|")] for line in lines]


NOT_YET = "(not run yet)"  # only where the verdict is "untried"
_LOOKED_UP = re.compile(r"\{([^{}]+?)(?::(,|\.\d+[f%]))?\}")  # {FILE/key/key:.2f}


def _number(match: re.Match[str]) -> str:
    name, *keys = match[1].split("/")
    try:
        found: Any = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["results"]
        for key in keys:
            found = found[int(key)] if isinstance(found, list) else found[key]
    except (FileNotFoundError, KeyError):
        return NOT_YET
    return format(found, match[2] or "")


def records() -> list[list[str]]:
    """Every result about the papers: when, of which commit, on what, and what that decides it has changed since."""
    rows = [["result", "script", "measured", "commit", "on", "changed since", "by hand"]]
    for path in sorted(RESULTS.glob("*.json")):
        data = json.loads(path.read_text(encoding="utf-8"))
        if not path.stem.startswith(("binas_", "xnas_", "nasi_", "bayes", "compress_")):
            continue
        stale, commit, hardware = data.get("stale", {}), str(data["commit"]), data["hardware"]
        old = stale.get("changed", [])
        changed = ", ".join(old[:3]) + (f" and {len(old) - 3} more" if len(old) > 3 else "")
        on, short = hardware.get("gpu") or hardware["cpu"], commit[:8] + ("+" if commit.endswith("+") else "")
        hand = ", ".join(data.get("by_hand", [])) or "-"
        told = stale.get("unknown") or changed or "-"
        script = f"`{Path(script_of(data) or '-').name}`"
        rows.append([f"`{path.stem}`", script, data["date"][:10], short, on, told, hand])
    return rows


# Test accuracies of tables 4 (4T) and 2 (standard, random labels, random data).
NASI_SAYS = {"NAS-Bench-201": "93.55", "S1": "92.7, 93.2, 93.4", "S2": "92.8, 93.0, 92.5", "S3": "92.8, 92.5, 92.7"}


def nasi_beside() -> list[list[str]]:
    """Test accuracy on the tabular benchmarks: NASI, and what needs no search."""
    found = read("nasi_search_cpu")
    plain = ("3x3 convolutions alone", "most parameters", "convolutions alone", "all networks", "best")
    variants = ("images and labels", "random labels", "no data", "with parameters")
    head = ["Delta*: images, labels", "random labels", "no data", "and parameters"]
    rows = [["benchmark", *head, *plain, "the paper"]]
    for name, said in NASI_SAYS.items():
        runs = [found[name][v] for v in variants]
        ours = [f"{r['mean']:.2f} +- {r['std']:.2f} ({r['seeds']})" for r in runs]
        rows.append([name, *ours, *(f"{found[name]['beside'][k]:.2f}" for k in plain), said])
    return rows


def traces() -> list[list[str]]:
    """Table 7 and figure 1 of NASI: Pearson correlations, the paper's in brackets, and their intervals below."""
    table, figure = (read(name) for name in ("nasi_table7_c8_p8", "nasi_figure1"))
    batches = ("4", "8", "16", "32", "64", "128", "sum")
    rows = [["space", "x, 4 images", *batches[1:], "labels", "images"]]
    for space in ("S1", "S2", "S3"):
        entries = [*(table[space][b] for b in batches), *(figure[space][k] for k in ("labels", "images"))]
        rows.append([space, *(f"{e['ours']:.2f} ({e['paper']:.2f})" for e in entries)])
        rows.append(["", *("{:.2f}-{:.2f}".format(*e["interval"]) for e in entries)])
    return rows


def proxies() -> list[list[str]]:
    """Spearman of every proxy with CIFAR-10 accuracy in both settings, the literature's, and networks a second."""
    sketch, whole = read("nasi_proxies"), read("nasi_proxies_published")
    rows = [["proxy", "published setting", "literature", "sketch", "networks a second: sketch, one core",
             "published, one core", "one H200"]]  # fmt: skip
    for of, column in ((sketch, 3), (whole, 1)):
        row = [f"**{' + '.join(of['aggregate']['proxies'])}**, ranks", *[""] * 6]
        row[column] = f"**{of['aggregate']['all']:.3f}**"
        rows.append(row)
    for name, entry in sorted(whole["proxies"].items(), key=lambda item: -item[1]["spearman"]):
        small, said = sketch["proxies"][name], entry["published"]
        speeds = [
            small.get("networks_per_second"),
            *(whole["networks_per_second"][d].get(name) for d in ("cpu", "cuda")),
        ]
        rows.append([
            name, f"{entry['spearman']:.3f}", "" if said is None else f"{said:g}", f"{small['spearman']:.3f}",
            *("counted" if s is None else f"{s:.2g}" for s in speeds),
        ])  # fmt: skip
    return rows


def nasi_budgets() -> list[list[str]]:
    """Tables 6 and 8 and figure 2 of NASI: test errors, the paper's in brackets."""
    found, rows = read("nasi_tables"), [["space", "what varies", "test error in percent (the paper)"]]
    for what, title in (("width", "table 6: first width"), ("batch", "table 8: images of a batch")):
        for space, row in found[what].items():
            told = (f"{k}: {e['mean']:.1f} +- {e['std']:.1f} ({e['paper']})" for k, e in row.items())
            rows.append([space, title, ", ".join(told)])
    for space, row in found["budget"].items():
        told = (f"{k}: {e['mean']:.1f} +- {e['std']:.1f}" for k, e in row.items() if k != "beside")
        rows.append([space, "figure 2: steps", ", ".join(told)])
    return rows


def read(name: str) -> dict[str, Any]:
    """A record's results."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["results"]
    return found


def algorithm_3() -> list[list[str]]:
    """Lambda alone: where the rounds end, and the fewest weights of any round that costs at most one point."""
    found = read("bayesnas_algorithm3")
    near = "fewest weights of a round within one point"
    rows = [["network", "lambda in 1 / N", "rounds", "error before, after", "weights left", near]]
    for net, runs in found.items():
        for run in runs:
            kept = [r for r in run["rounds"] if r["error"] <= run["error_before"] + 1]
            best = min(kept, key=lambda r: r["share"]) if kept else None
            errors = f"{run['error_before']:.2f}, {run['error_after']:.2f} %"
            told = f"{best['share']:.1%} at {best['error']:.2f} %" if best else "none"
            rows.append([net, f"{run['strength']:g}", str(len(run["rounds"])), errors, f"{run['share']:.1%}", told])
    return rows


TABLES: dict[str, Callable[[], list[list[str]]]] = {
    **{f"thorough {name}": partial(thorough, name) for name in SPACE_OF},
    **{f"items {name}": partial(items, name) for name in SPACE_OF},
    "nasi beside": nasi_beside,
    "nasi budgets": nasi_budgets,
    "algorithm 3": algorithm_3,
    "records": records,
}
OF_NASI: dict[str, Callable[[], list[list[str]]]] = {"traces": traces, "proxies": proxies}
PAGES = {PAGE: TABLES, ROOT / "docs/nasi.md": OF_NASI}


def markdown(rows: list[list[str]]) -> str:
    """A table with its first row as head."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])


def render(page: str, tables: dict[str, Callable[[], list[list[str]]]] = TABLES) -> str:
    """The page with every table written anew; a table that nobody makes, or that stands nowhere, is an error."""
    named = re.findall(r"<!-- table (.*?) -->", page)
    if sorted(named) != sorted(tables):
        raise SystemExit(f"tables and page differ: {', '.join(sorted(set(named) ^ set(tables)))}.")

    def fill(match: re.Match[str]) -> str:
        return f"{match[1]}\n{markdown(tables[match[2]]())}\n<!-- end -->"

    return re.sub(r"(<!-- table (.*?) -->)\n.*?<!-- end -->", fill, page, flags=re.DOTALL)


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--check", action="store_true", help="write nothing; exit code 1 where the page differs")
    check = options.parse_args().check
    differ = 0
    for page, tables in PAGES.items():
        before = page.read_text(encoding="utf-8")
        after = render(before, tables)
        differ += after != before
        if not check:
            page.write_text(after, encoding="utf-8")
    return int(check and differ > 0)


if __name__ == "__main__":
    sys.exit(main())
