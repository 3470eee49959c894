"""Figures of the NASI page, from the committed results: figure 1, table 7, and the proxies beside published values.

Run: python reproduce/nasi_figures.py (needs matplotlib; nothing is measured)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from _record import parser  # noqa: E402

SPACES, BATCHES = ("S1", "S2", "S3"), ("4", "8", "16", "32", "64", "128", "sum")
OURS, THEIRS = "#1f5fa8", "#b8b8b8"


def results(*names: str) -> dict[str, Any]:
    """Of the first file that is there; nothing where none is."""
    for name in names:
        path = ROOT / f"benchmarks/results/{name}.json"
        if path.exists():
            found: dict[str, Any] = json.loads(path.read_text())["results"]
            return found
    return {}


def traces() -> None:
    """Figure 1 (random against true labels and images) above table 7; whole networks where they were measured."""
    table, scatter = results("nasi_table7", "nasi_table7_c8_p8"), results("nasi_figure1")
    figure, axes = plt.subplots(3, 3, figsize=(9.6, 8.4))
    for column, space in enumerate(SPACES):
        values, entries = scatter[space]["of_the_first_draw"], table[space]
        for row, (name, what) in enumerate((("labels", "random labels"), ("images", "Gaussian images"))):
            axis, entry = axes[row][column], scatter[space][name]
            axis.loglog(values["64"], values[name], ".", color=OURS, markersize=4)
            axis.set(title=f"{space}: Pearson {entry['ours']:.2f} (paper {entry['paper']:.2f})", xlabel="x, true",
                     ylabel=f"x, {what}")  # fmt: skip
        axis = axes[2][column]
        ours = [entries[b]["ours"] for b in BATCHES]
        bounds = zip(*(entries[b]["interval"] for b in BATCHES), strict=True)
        reach = [[abs(bound - value) for bound, value in zip(side, ours, strict=True)] for side in bounds]
        axis.plot(BATCHES, [entries[b]["paper"] for b in BATCHES], "o-", color=THEIRS, label="the paper", markersize=4)
        axis.errorbar(BATCHES, ours, reach, fmt="o-", color=OURS, label="here, 95 %", markersize=4, capsize=2)
        axis.set(xlabel="images of the mini-batch", ylabel="Pearson with the exact trace", ylim=(0.5, 1.02))
        axis.legend(frameon=False, loc="lower right")
    _save(figure, "nasi_table7")


def proxies() -> None:
    """Spearman with CIFAR-10 accuracy at both settings, and what is published."""
    settings = {"published": OURS, "sketch": "#7fb069"}
    found = {setting: results(f"nasi_proxies_{setting}") for setting in settings}
    settings = {setting: colour for setting, colour in settings.items() if found[setting]}
    names = sorted(found["published"]["proxies"], key=lambda n: found["published"]["proxies"][n]["spearman"])
    figure, axis = plt.subplots(figsize=(7.2, 5.2))
    for n, (setting, colour) in enumerate(settings.items()):
        entries = [found[setting]["proxies"][name] for name in names]
        low = [e["spearman"] - e["interval"][0] for e in entries]
        high = [e["interval"][1] - e["spearman"] for e in entries]
        axis.errorbar([e["spearman"] for e in entries], [k + 0.16 - 0.32 * n for k in range(len(names))],
                      xerr=[low, high], fmt="o", color=colour, markersize=5,
                      label=f"{setting} setting, {found[setting]['cells']} cells")  # fmt: skip
        axis.axvline(found[setting]["aggregate"]["held_out"], color=colour, linewidth=1, linestyle="--")
    theirs = [(found["published"]["proxies"][name]["published"], k) for k, name in enumerate(names)]
    axis.plot(*zip(*((v, k) for v, k in theirs if v is not None), strict=True), "k|", markersize=16, label="published")
    axis.set(yticks=range(len(names)), yticklabels=names, xlabel="Spearman with CIFAR-10 accuracy (dashed: aggregate)")
    axis.legend(frameon=False, loc="lower right")
    _save(figure, "nasi_proxies")


def _save(figure: Any, name: str) -> None:
    figure.tight_layout()
    figure.savefig(ROOT / f"reproduce/figures/{name}.png", dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    parser(__doc__).parse_args()
    traces()
    proxies()
