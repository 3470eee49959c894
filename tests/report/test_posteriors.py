"""The section on BayesNAS's switches."""

from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pytest

from sartor.report.sections.switches import draw, switches
from sartor.runs.codec import decode
from sartor.runs.schema import Facts, Posterior


def entry(name, reads, feeds, removed=0, entropy=1.0):
    return {
        "switch": name, "reads": reads, "feeds": feeds, "edge": True, "places": 2, "mean": 0.5, "variance": 0.1,
        "s": 1.0, "gamma": 0.4, "entropy": entropy, "removed": removed,
    }  # fmt: skip


POSTERIOR = [
    entry("cell.a.zero", "cell.in", None),
    entry("cell.a.sep_conv", "cell.in", "cell.a"),
    entry("cell.a.<pool>", "cell.in", "cell.a", removed=1, entropy=-12.4),
    entry("cell.b.sep_conv", "cell.a", "cell.b", removed=2, entropy=-0.2),
]
LEARNT = {
    "threshold": 0.0585, "dependency": "full", "hessian": "sampled", "strength": 0.01, "posterior": POSTERIOR,
    "rounds": [
        {"round": 1, "removed": [{"switch": "cell.a.<pool>", "why": "entropy"}], "kept": [], "left": 2, "edges": 1,
         "isolated": []},
        {"round": 2, "removed": [{"switch": "cell.b.sep_conv", "why": "source"}], "kept": ["cell.a.sep_conv"],
         "left": 1, "edges": 1, "isolated": ["cell.b"]},
    ],
}  # fmt: skip


def files(facts):
    return SimpleNamespace(facts=decode(Facts, facts, "facts"))


def posteriors(entries):
    return [decode(Posterior, e, "posterior") for e in entries]


def test_other_methods_have_no_such_section():
    assert switches(files({})) is None


def test_every_switch_and_every_round_is_told():
    section = switches(files({"switches": LEARNT}))
    assert (section["count"], section["left"]) == (4, 2)
    assert [r["name"] for r in section["rows"]] == [p["switch"] for p in POSTERIOR]
    assert [r["state"] for r in section["rows"]] == ["on", "on", "gone in round 1", "gone in round 2"]
    assert [r["counts"] for r in section["rounds"]] == [[1, 0, 0, 0], [0, 0, 1, 0]]
    assert section["rounds"][1]["kept"] == ("cell.a.sep_conv",)
    assert [g["name"] for g in section["graphs"]] == ["cell"]
    assert str(section["figure"]).count("<title>") == 4 + 1
    assert "&lt;pool&gt;" in section["figure"]


@pytest.mark.parametrize(("after", "operations"), [(False, 3), (True, 1)])
def test_the_graph_has_its_edges_before_and_what_is_left_after(after, operations):
    picture = ET.fromstring(str(draw(posteriors(POSTERIOR[1:]), "cell", after)))
    titles = [t.text for t in picture.iter("title")]
    assert f"{operations} operations" in titles[0]
    lines = list(picture.iter("path"))
    assert len(lines) == 2
    dashed = [line for line in lines if "stroke-dasharray" in line.attrib]
    assert len(dashed) == (1 if after else 0)
    assert {t.text for t in picture.iter("text")} == {"in", "a", "b"}


def test_a_cycle_is_refused():
    with pytest.raises(ValueError, match="cycle"):
        draw(posteriors([entry("x", "a", "b"), entry("y", "b", "a")]), "cell", after=False)
