from xml.etree import ElementTree as ET

import pytest

from sartor.report.sections.cells import cells, draw, mixture
from sartor.spaces.cells.genotype import PUBLISHED, Cell


class FakeFiles:
    def __init__(self, string="", facts=None):
        self.string, self.facts = string, facts

    def own(self, name):
        return {"string": self.string}

    def searched(self, name):
        return {"facts": self.facts} if self.facts else None


FACTS = {
    "mixture": {
        "groups": [{"choices": ["normal.node1.from0", "normal.node1.from1"], "options": 2, "replicas": 3}],
        "epochs": [
            {"epoch": n, "groups": [{"entropy": 1.0 / n, "remaining": 2.0}], "weights": [[[0.5, 0.5], [0.9, 0.1]]]}
            for n in (1, 2, 3)
        ],
    }
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_operation_of_a_cell_is_drawn(name):
    cell = PUBLISHED[name].normal
    picture = ET.fromstring(str(draw(cell, "normal")))
    texts = [t.text for t in picture.iter("text") if t.text]
    for reads in cell.nodes:
        for operation, _ in reads:
            assert operation.split("_")[0] in " ".join(texts)
    assert len(list(picture.iter("path"))) == sum(map(len, cell.nodes)) + len(cell.concat)
    assert "node 4 adds" in next(picture.iter("title")).text


def test_all_lines_of_a_node_end_at_its_box():
    picture = ET.fromstring(str(draw(Cell(((("none", 0), ("none", 1)) * 4,), (2,)), "wide")))
    box = list(picture.iter("rect"))[2]
    top, bottom = float(box.get("y")), float(box.get("y")) + float(box.get("height"))
    ends = [float(path.get("d").split()[-1]) for path in picture.iter("path")][:8]
    assert len(set(ends)) == 8
    assert all(top < end < bottom for end in ends)


def test_cells_of_any_shape_are_drawn():
    picture = ET.fromstring(str(draw(Cell(((("none", 0),) * 5, ()), (2, 3)), "odd")))
    assert len(list(picture.iter("path"))) == 5 + 2  # five operations on one edge, a node without any, two outputs


def test_the_section_is_there_for_genotypes_and_mixtures_only():
    both = cells(FakeFiles(PUBLISHED["XNAS"].to_text(), FACTS))
    assert [d["name"] for d in both["drawings"]] == ["normal cell", "reduction cell"]
    assert len(both["curves"]) == 3
    assert "normal cells" in str(both["curves"][0]["figure"]) or len(FACTS["mixture"]["groups"]) == 1
    assert cells(FakeFiles("ds_r1_k3_s1_e1_c16_nre")) is None
    assert cells(FakeFiles("ds_r1", FACTS))["drawings"] == []
    assert mixture(None) == mixture({"epochs": []}) == []


def test_tree_cells_are_drawn_path_by_path():
    found = cells(FakeFiles("111+112 - 222"))
    assert [d["name"] for d in found["drawings"]] == ["paths of every block"]
    picture = ET.fromstring(str(found["drawings"][0]["figure"]))
    squares = list(picture.iter("rect"))
    assert len(squares) == 9 * 3
    filled = [r.find("title").text for r in squares if r.get("fill") != "none"]
    assert filled == ["block 1: conv3 → conv1 → avg3", "block 1: conv3 → conv1 → sep7", "block 3: conv3 → sep3 → sep3"]
    assert next(picture.iter("title")).text == "3 of 27 paths in 3 blocks, of which 1 have none."
    for other in ("", "111+nonsense", "ds_r1_k3"):
        assert cells(FakeFiles(other)) is None
