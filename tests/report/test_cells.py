from types import SimpleNamespace
from xml.etree import ElementTree as ET

import pytest

from sartor.report.sections.cells import cells, draw_graph, draw_grid, mixture
from sartor.runs.codec import decode
from sartor.runs.schema import Facts, Mixture
from sartor.spaces.cells.genotype import PUBLISHED
from sartor.spaces.drawing import Drawing, Edge, Graph, Grid

MIXTURE = decode(Mixture, {
    "groups": [{"choices": ["normal.node1.from0", "normal.node1.from1"], "options": 2, "replicas": 3}],
    "epochs": [
        {"epoch": n, "groups": [{"entropy": 1.0 / n, "remaining": 2.0}], "weights": [[[0.5, 0.5], [0.9, 0.1]]]}
        for n in (1, 2, 3)
    ],
}, "mixture")  # fmt: skip


def files(drawing=Drawing(), facts=Facts()):  # noqa: B008
    return SimpleNamespace(drawing=drawing, facts=facts)


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_operation_of_a_cell_is_drawn(name):
    graph = PUBLISHED[name].draw().graphs[0]
    picture = ET.fromstring(str(draw_graph(graph)))
    texts = [t.text for t in picture.iter("text") if t.text]
    for edge in graph.edges:
        assert edge.label.split("_")[0] in " ".join(texts)
    assert len(list(picture.iter("path"))) == len(graph.edges)
    assert "node 4 adds" in next(picture.iter("title")).text


def test_all_lines_of_a_node_end_at_its_box():
    edges = tuple(Edge(n % 2, 2, "none") for n in range(8))
    picture = ET.fromstring(str(draw_graph(Graph("wide", ("a", "b", "c", "out"), edges, 2))))
    box = list(picture.iter("rect"))[2]
    top, bottom = float(box.get("y")), float(box.get("y")) + float(box.get("height"))
    ends = [float(path.get("d").split()[-1]) for path in picture.iter("path")]
    assert len(set(ends)) == 8
    assert all(top < end < bottom for end in ends)


def test_cells_of_any_shape_are_drawn():
    edges = (*(Edge(0, 1, "none"),) * 5, Edge(1, 3), Edge(2, 3))
    picture = ET.fromstring(str(draw_graph(Graph("odd", ("in", "a", "b", "out"), edges))))
    assert len(list(picture.iter("path"))) == 5 + 2  # five operations on one edge, a node without any, two outputs


def test_the_section_is_there_for_graphs_grids_and_mixtures_only():
    both = cells(files(PUBLISHED["XNAS"].draw(), Facts(mixture=MIXTURE)))
    assert [d["name"] for d in both["drawings"]] == ["normal cell", "reduction cell"]
    assert [c["name"] for c in both["curves"]] == [
        "normalised entropy", "options left per choice, mean", "largest weight of a choice, mean",
    ]  # fmt: skip
    assert cells(files()) is None
    assert cells(files(facts=Facts(mixture=MIXTURE)))["drawings"] == []
    assert mixture(None) == mixture(Mixture((), ())) == []


def test_a_grid_has_a_square_for_every_row_and_column():
    grid = Grid("paths of every block", ("left <way>", "right"), ("block 1", "block 2", "block 3"), ((0, 0), (1, 2)))
    (drawn,) = cells(files(Drawing(grids=(grid,))))["drawings"]
    assert drawn["name"] == "paths of every block"
    picture = ET.fromstring(str(draw_grid(grid)))
    squares = list(picture.iter("rect"))
    assert len(squares) == 2 * 3
    filled = [r.find("title").text for r in squares if r.get("fill") != "none"]
    assert filled == ["block 1: left <way>", "block 3: right"]
    assert next(picture.iter("title")).text == "paths of every block: 2 of 6 in 3 columns, of which 1 have none."
