"""Table 4 of XNAS: the depth of published normal cells, the mean index of the sources that their nodes read.

SNAS, PNAS and ASAP are listed with the paper's figure alone: their cells are not in this repository, and for SNAS the
commonly published cell gives 0.5, not 0.625.

Run: python reproduce/xnas_depth.py
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "benchmarks"))
from _record import parser, record  # noqa: E402

from sartor.spaces.cells.genotype import PUBLISHED  # noqa: E402

PAPER = {
    "SNAS": 0.625,
    "PNAS": 0.5,
    "AmoebaNet-A": 0.9,
    "NASNet": 0.4,
    "DARTS": 0.625,
    "ASAP": 0.875,
    "XNAS": 1.375,
}
# Sources of the normal cells of five nodes that the cell space cannot hold (other operations): two a node.
SOURCES = {"NASNet": (1, 0, 0, 0, 1, 0, 0, 0, 1, 1), "AmoebaNet-A": (0, 1, 0, 2, 0, 3, 1, 1, 0, 1)}


def results():
    found = {name: sum(sources) / len(sources) for name, sources in SOURCES.items()}
    found |= {"DARTS": PUBLISHED["DARTS_V2"].normal.depth, "XNAS": PUBLISHED["XNAS"].normal.depth}
    return {name: {"paper": value, "counted": found.get(name)} for name, value in PAPER.items()}


def draw(path, rows):
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, panel = plt.subplots(figsize=(5, 2.8), layout="constrained")
    names = sorted(rows, key=lambda name: rows[name]["paper"])
    panel.barh(names, [rows[n]["paper"] for n in names], color="lightgrey", label="paper")
    panel.plot([rows[n]["counted"] for n in names], names, "ko", label="counted here")
    panel.set(xlabel="depth of the normal cell")
    panel.legend()
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    parser(__doc__).parse_args()
    found = results()
    print(record("xnas_depth", found))
    draw(ROOT / "reproduce/figures/xnas_depth.png", found)
