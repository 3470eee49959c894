"""The table of docs/faq.md: every recorded comparison of a run with what could have been trained instead.

Run: python benchmarks/faq.py (writes the page; a test fails where it says anything else than the records)
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from _record import parser

ROOT = Path(__file__).resolve().parents[1]
PAGE, RESULTS = ROOT / "docs/faq.md", ROOT / "benchmarks/results"


def beside(path: Path) -> list[str]:
    """One comparison: its setting, a table with the best first, and what `sartor compare` concluded."""
    record = json.loads(path.read_text(encoding="utf-8"))
    found = record["results"]
    comparison, asked, data = found["comparison"], found["options"], found["certificate"]["data"]
    tried = [comparison["own"], *(e for e in comparison["rivals"] if e.get("accuracy") is not None)]
    budget = ", ".join(
        f"{value:g} ms" if name == "latency" else f"{name} {value:g}" for name, value in asked["budgets"].items()
    )
    device = record["hardware"]["gpu"] or f"{record['hardware']['cores']} cores of an {record['hardware']['cpu']}"
    time = f"{asked['time'] / 60:g} min" if asked["time"] else f"`--effort {asked['effort']}`"
    side = f" at {asked['image']} px" if asked["image"] else ""
    lines = [
        f"{data['name']}{side}, {budget}, {time}, {device}, {record['date'][:10]}, one seed (`{path.name}`):",
        "",
        f"| network | {comparison['metric']} | {comparison['axis']} | trained for |",
        "|---|---|---|---|",
    ]
    for e in sorted(tried, key=lambda e: -e["accuracy"]):
        own = e is comparison["own"]
        name = "**what Sartor delivered**" if own else e["name"] + ("" if e["searched"] else f" (`{e['network']}`)")
        name += f", {e['views']} views" if e.get("views", 1) > 1 else ""
        cost = f"{e['costs'][comparison['axis']]:.3g}" + (" ms" if comparison["axis"] == "latency" else "")
        lines.append(f"| {name} | {e['accuracy']:.1f} % | {cost} | {e['seconds']:.0f} s |")
    return [*lines, "", *found["verdict"]]


def render(page: str) -> str:
    """The page with the comparisons written anew."""
    told = ["\n".join(beside(path)) for path in sorted(RESULTS.glob("against_plain_*.json"))]
    made = "<!-- comparisons -->\n" + "\n\n".join(told) + "\n<!-- end -->"
    return re.sub(r"<!-- comparisons -->.*?<!-- end -->", lambda _: made, page, flags=re.DOTALL)


if __name__ == "__main__":
    parser(__doc__).parse_args()
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
